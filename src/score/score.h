/* score.h - what the metrics share: texts as code points, words as numbers, and counts of n-grams. */
#ifndef BY_SCORE_SCORE_H
#define BY_SCORE_SCORE_H

#include "banyan/score.h"
#include "base/base.h"

/* ---- code points (points.c) ------------------------------------------------------------------ */

/* Sticky like base_buf: when memory is out, `failed` is set and nothing more is put. */
typedef struct score_points {
    uint32_t *c;
    size_t count, room;
    bool failed;
} score_points;
void score_points_put(score_points *p, uint32_t c);
void score_points_free(score_points *p);

/* The code points of a text, in the place of what was there. What is not UTF-8 is BY_ERR_FORMAT. */
by_status score_points_read(score_points *p, const char *text);
/* Of a hypothesis and its reference, named so in the message; reference -1: the hypothesis. */
by_status score_points_read_part(score_points *p, const char *text, int reference);

/* Small letters as Python's str.lower makes them; `out` is emptied first. */
void score_points_lower(const score_points *p, score_points *out);

/* What Python's str.split and str.strip take for white space. */
bool score_space(uint32_t c);

/* ---- words of BLEU (words.c) ----------------------------------------------------------------- */

/* Part the words of *text by white space; *spare is scratch. Allocation failures stick in them. */
void score_bleu_part(by_bleu_words words, score_points *text, score_points *spare);

/* ---- n-grams (grams.c) ----------------------------------------------------------------------- */

/* Some sequences of numbers, and their n-grams, order by order. Each distinct n-gram gets a number: it is the
 * pair of the (n-1)-gram it begins with and the item it ends with, hence equal numbers are equal n-grams. */
typedef struct score_grams {
    uint32_t *items; /* all sequences, one behind the other */
    size_t count, room;
    size_t *ends; /* where each sequence ends */
    int sequences, sequences_room;
    int order;                      /* of the present n-grams; 0 before score_grams_next */
    uint32_t *gram;                 /* the number of the n-gram at each place that has one */
    size_t distinct;                /* how many numbers there are */
    uint32_t *ours, *theirs, *most; /* counts by number, for the caller */
    size_t built;                   /* room of these arrays */
    struct score_gram_slot *slots;
    size_t slots_room; /* a power of two */
} score_grams;
void score_grams_clear(score_grams *g); /* no sequences */
void score_grams_free(score_grams *g);
by_status score_grams_put(score_grams *g, uint32_t item); /* at the end of the sequence being made */
by_status score_grams_end(score_grams *g);                /* which is complete: the next one begins */
by_status score_grams_next(score_grams *g);               /* n-grams of the next order */

static inline size_t score_grams_begin(const score_grams *g, int sequence)
{
    return sequence > 0 ? g->ends[sequence - 1] : 0;
}
static inline size_t score_grams_length(const score_grams *g, int sequence)
{
    return g->ends[sequence] - score_grams_begin(g, sequence);
}
int64_t score_grams_total(const score_grams *g, int sequence); /* n-grams of the present order in it */
void score_grams_count(const score_grams *g, int sequence, uint32_t *counts);
int64_t score_grams_common(const score_grams *g, const uint32_t *a,
                           const uint32_t *b); /* sum of the smaller */

/* ---- words as numbers (grams.c) -------------------------------------------------------------- */

typedef struct score_numbers {
    base_names *names;
    int count;
    base_buf word;
} score_numbers;
by_status score_numbers_make(score_numbers *n);
void score_numbers_free(score_numbers *n);
by_status score_numbers_put(score_numbers *n,
                            score_grams *g); /* n->word, which is emptied, into the sequence */
by_status score_numbers_points(score_numbers *n, score_grams *g, const uint32_t *c,
                               size_t count); /* a word of them */

/* ---- stems (porter.c) ------------------------------------------------------------------------ */

/* Shorten a word of small letters and digits to its stem, as NLTK's variant of Porter's algorithm (1980)
 * does. Returns the new length, never more than n. */
size_t score_porter_stem(char *word, size_t n);

/* References counted over segments: 0 none yet, -1 not always as many. */
static inline int score_references(int before, int now)
{
    return before == 0 || before == now ? now : -1;
}
/* "nrefs:2|" */
void score_put_references(base_buf *out, int references);
by_status score_check(const char *hypothesis, const char *const *references, int count);

#endif
