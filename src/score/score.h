/* score.h - shared by the metrics: texts as code points, words as numbers, and n-gram counts. */
#ifndef BY_SCORE_SCORE_H
#define BY_SCORE_SCORE_H

#include "banyan/score.h"
#include "base/base.h"

/* ---- code points (points.c) ------------------------------------------------------------------ */

/* Sticky like base_buf: if an allocation fails, `failed` is set and later puts do nothing. */
typedef struct score_points {
    uint32_t *c;
    size_t count, room;
    bool failed;
} score_points;
void score_points_put(score_points *p, uint32_t c);
void score_points_free(score_points *p);

/* Replaces the contents with the code points of a text. Invalid UTF-8 is BY_ERR_FORMAT. */
by_status score_points_read(score_points *p, const char *text);
/* The same for a hypothesis or a reference, which the message names. reference -1: the hypothesis. */
by_status score_points_read_part(score_points *p, const char *text, int reference);

/* Converts to lower case as Python's str.lower does. `out` is emptied first. */
void score_points_lower(const score_points *p, score_points *out);

/* Returns true for white space as defined by Python's str.split and str.strip. */
bool score_space(uint32_t c);

/* ---- words of BLEU (bleu_words.c) ------------------------------------------------------------ */

/* Separates the words of *text with white space; *spare is scratch. Allocation failures are sticky in
 * both. */
void score_bleu_part(by_bleu_words words, score_points *text, score_points *spare);

/* ---- n-grams (grams.c) ----------------------------------------------------------------------- */

/* Sequences of numbers and their n-grams, order by order. Each distinct n-gram gets a number for the pair of
 * the (n-1)-gram it starts with and the item it ends with, so equal numbers are equal n-grams. */
typedef struct score_grams {
    uint32_t *items; /* all sequences, concatenated */
    size_t count, room;
    size_t *ends; /* end of each sequence */
    int sequences, sequences_room;
    int order;                      /* order of the current n-grams; 0 before score_grams_next */
    uint32_t *gram;                 /* number of the n-gram that starts at each position */
    size_t distinct;                /* number of distinct n-grams */
    uint32_t *ours, *theirs, *most; /* counts by number, for the caller */
    size_t built;                   /* capacity of these arrays */
    struct score_gram_slot *slots;
    size_t slots_room; /* a power of two */
} score_grams;
void score_grams_clear(score_grams *g); /* removes all sequences */
void score_grams_free(score_grams *g);
by_status score_grams_put(score_grams *g, uint32_t item); /* appends to the current sequence */
by_status score_grams_end(score_grams *g);                /* ends the current sequence and starts the next */
by_status score_grams_next(score_grams *g);               /* computes the n-grams of the next order */

static inline size_t score_grams_begin(const score_grams *g, int sequence)
{
    return sequence > 0 ? g->ends[sequence - 1] : 0;
}
static inline size_t score_grams_length(const score_grams *g, int sequence)
{
    return g->ends[sequence] - score_grams_begin(g, sequence);
}
int64_t score_grams_total(const score_grams *g, int sequence); /* number of n-grams of the current order */
void score_grams_count(const score_grams *g, int sequence, uint32_t *counts);
/* Returns the sum of the smaller counts. */
int64_t score_grams_common(const score_grams *g, const uint32_t *a, const uint32_t *b);

/* ---- words as numbers (grams.c) -------------------------------------------------------------- */

typedef struct score_numbers {
    base_names *names;
    int count;
    base_buf word;
} score_numbers;
by_status score_numbers_make(score_numbers *n);
void score_numbers_free(score_numbers *n);
/* Appends n->word to the sequence and empties it. */
by_status score_numbers_put(score_numbers *n, score_grams *g);
/* Appends a word given as code points. */
by_status score_numbers_points(score_numbers *n, score_grams *g, const uint32_t *c, size_t count);

/* ---- stems (porter.c) ------------------------------------------------------------------------ */

/* Shortens a word of lower-case letters and digits to its stem, like NLTK's variant of Porter's algorithm
 * (1980). Returns the new length, at most n. */
size_t score_porter_stem(char *word, size_t n);

/* Updates the number of references per segment: 0: none yet, -1: varies. */
static inline int score_references(int before, int now)
{
    return before == 0 || before == now ? now : -1;
}
/* "nrefs:2|" */
void score_put_references(base_buf *out, int references);
by_status score_check(const char *hypothesis, const char *const *references, int count);

#endif
