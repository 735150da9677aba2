/* ngram.h - internals of n-gram models (banyan/ngram.h): words, sorting on disk, counting and estimation. */
#ifndef BY_NGRAM_NGRAM_H
#define BY_NGRAM_NGRAM_H

#include "banyan/ngram.h"
#include "base/file.h"

/* ---- words (words.c): strings and their ids, in the order of their first occurrence ---------------- */

enum { NGRAM_UNK, NGRAM_BOS, NGRAM_EOS, NGRAM_SPECIAL }; /* "<unk>", "<s>", "</s>" */

typedef struct ngram_words {
    char *text; /* all words, each with a NUL after it */
    size_t size, room;
    uint64_t *starts; /* (count) of each word in text */
    uint32_t *slots;  /* open addressing: id + 1, 0 for a free slot */
    uint32_t count, starts_room, slot_count;
} ngram_words;

by_status ngram_words_make(ngram_words *w); /* with the three special words */
void ngram_words_free(ngram_words *w);
/* The id of a word of n bytes; ngram_words_find gives NGRAM_UNK for one that is not there. */
by_status ngram_words_add(ngram_words *w, const char *word, size_t n, uint32_t *id);
uint32_t ngram_words_find(const ngram_words *w, const char *word, size_t n);
const char *ngram_words_name(const ngram_words *w, uint32_t id);

/* ---- temporary files (spool.c) ------------------------------------------------------------------------ */

/* A new file in dir that has no name: it goes with the process, however that ends. NULL on failure. */
FILE *ngram_temporary(const char *dir);
by_status ngram_temporary_fail(const char *dir); /* by errno */

/* ---- sorting (sorter.c) ---------------------------------------------------------------------------- */

/* Sorts records by their first `words` u32, the first word first. It holds as many records as the budget allows and
 * writes sorted runs to a file when there are more. Records with equal words are merged where there is a merge function. */
typedef struct ngram_sorter ngram_sorter;
typedef struct ngram_sorter_spec {
    int words;
    size_t record; /* bytes; a multiple of 4 */
    size_t budget; /* bytes of memory */
    int threads;
    void (*merge)(void *into, const void *from, int words); /* NULL: equal records stay apart */
    const char *dir;                                        /* for runs */
} ngram_sorter_spec;
ngram_sorter *ngram_sorter_new(const ngram_sorter_spec *spec);
void ngram_sorter_free(ngram_sorter *s);
by_status ngram_sorter_add(ngram_sorter *s, const void *record);
/* Adds it, or merges it at once with an equal one that is in memory. */
by_status ngram_sorter_count(ngram_sorter *s, const void *record);
by_status ngram_sorter_finish(ngram_sorter *s); /* after the last record */
/* The records in order; *record is NULL at the end. Valid until the next call. */
by_status ngram_sorter_next(ngram_sorter *s, const void **record);

/* ---- spools (spool.c) ------------------------------------------------------------------------------ */

/* Records that are written once and read once, in order, in memory as far as the budget goes and then in a file. */
typedef struct ngram_spool {
    size_t record, budget;
    char *memory;
    size_t used, room; /* bytes in memory */
    FILE *file;
    const char *dir; /* for the file */
    int64_t count, read;
    char *at; /* the record that was read last from the file */
} ngram_spool;
by_status ngram_spool_make(ngram_spool *s, size_t record, size_t budget, const char *dir);
void ngram_spool_free(ngram_spool *s); /* the zero state is a no-op */
by_status ngram_spool_put(ngram_spool *s, const void *record);
by_status ngram_spool_rewind(ngram_spool *s);
by_status ngram_spool_next(ngram_spool *s, const void **record);

/* ---- estimation (estimate.c, adjust.c, interpolate.c) -------------------------------------------------- */

/* A finished n-gram: its words, the first one first, its log10 probability and the log10 of its back-off weight. */
typedef struct ngram_entry {
    float probability, backoff;
    uint32_t words[]; /* as many as its order */
} ngram_entry;

/* Everything that is known while a model is estimated. */
typedef struct ngram_job {
    const by_ngram_spec *spec;
    const by_tokenizer *tokenizer; /* NULL: words */
    by_ngram_result *result;
    int order;
    const char *dir; /* for temporary files */
    size_t budget;
    int threads;
    ngram_words *vocabulary;
    ngram_sorter *counts;                       /* raw counts of the highest order, in suffix order */
    ngram_sorter *contexts[BY_NGRAM_MAX_ORDER]; /* adjusted counts of each order, by context */
    ngram_sorter *suffixes[BY_NGRAM_MAX_ORDER]; /* probabilities before interpolation, in suffix order */
    ngram_spool backoffs[BY_NGRAM_MAX_ORDER];   /* of each order, in suffix order */
    ngram_spool entries[BY_NGRAM_MAX_ORDER];    /* the result */
    int64_t with_count[BY_NGRAM_MAX_ORDER][5];  /* n-grams whose adjusted count is 1, 2, 3, 4 */
} ngram_job;

/* Reads the corpora: job->counts and the vocabulary. */
by_status ngram_count(ngram_job *j, const char *const *files, int count);
/* Adjusted counts of every order (Kneser and Ney 1995), and the discounts of Chen and Goodman (1998). */
by_status ngram_adjust(ngram_job *j);
/* Probabilities and back-off weights: j->entries. */
by_status ngram_interpolate(ngram_job *j);
/* Of smoothings other than Kneser-Ney: the probability of an n-gram, and the weight of a context of n words. `total` counts
 * all that follows the context. */
#define NGRAM_STUPID 0.4
double ngram_relative_probability(const ngram_job *j, int n, double count, double total);
double ngram_relative_weight(const ngram_job *j, int n, double total);
#define NGRAM_NEVER -1e30f /* the logarithm of zero: finite, so that sums of it are no NaN */

/* ---- the binary (image.c): header, unigrams, a hash table for every higher order, words ---------------- */

/* Offsets are in bytes from the start. Integers and floats are those of the machine, which the magic number checks. */
typedef struct ngram_header {
    char magic[8];
    uint32_t version, order, words;
    float missing;      /* log10 weight of contexts that are not listed */
    uint32_t smoothing; /* by_smoothing */
    uint32_t tokens;    /* of a model of tokens: token i is word NGRAM_SPECIAL + i; 0: words */
    int32_t eos;        /* the token that is </s>, or -1 */
    uint32_t unused;
    uint64_t counts[BY_NGRAM_MAX_ORDER], slots[BY_NGRAM_MAX_ORDER], at[BY_NGRAM_MAX_ORDER];
    uint64_t firsts
        [BY_NGRAM_MAX_ORDER]; /* u32 for each slot: the first word, from which all words of an n-gram follow */
    uint64_t starts, text, text_bytes, index, index_slots, bytes;
} ngram_header;

/* A probability is not positive; its sign bit says instead whether longer n-grams end with this one. The lowest bit of a
 * weight says whether longer n-grams begin with it. */
typedef struct ngram_value {
    uint32_t probability, weight;
} ngram_value;
typedef struct ngram_slot {
    uint64_t key; /* 0: free */
    ngram_value value;
} ngram_slot;

/* Odd, so that multiplying by them can be undone. */
#define NGRAM_MIX    0x9e3779b97f4a7c15ull
#define NGRAM_SPREAD 0xd6e8feb86659fd93ull
static inline uint64_t ngram_key(uint64_t key, uint32_t word)
{
    return (key ^ ((uint64_t)word + 1) * NGRAM_MIX) * NGRAM_SPREAD;
}
/* The slot of a key, which is free if the key is not there. */
static inline ngram_slot *ngram_slot_of(ngram_slot *table, uint64_t slots, uint64_t key)
{
    uint64_t at = (key >> 32) * slots >> 32; /* slots < 2^32 */
    while (table[at].key && table[at].key != key)
        at = at + 1 < slots ? at + 1 : 0;
    return &table[at];
}

/* A binary that is being made, in memory or in a mapped file. */
typedef struct ngram_image {
    ngram_header *header;
    char *path, *temporary; /* NULL: in memory */
} ngram_image;
/* What a model is, besides its n-grams. */
typedef struct ngram_traits {
    by_smoothing smoothing;
    int tokens; /* 0: words */
    int32_t eos;
} ngram_traits;
by_status ngram_image_make(ngram_image *m, const char *path, const ngram_words *w, int order,
                           const int64_t *counts, ngram_traits traits);
/* Orders in rising order. An n-gram whose suffix or context is missing is an error. */
by_status ngram_image_put(ngram_image *m, int n, const uint32_t *words, float probability, float weight);
by_status ngram_image_finish(ngram_image *m); /* a file is synced and renamed */
void ngram_image_abort(ngram_image *m);       /* the zero state is a no-op */
by_status ngram_image_check(const ngram_header *h, size_t bytes);
/* The words of the n-gram of order n in a slot that is not free. False if the tables are damaged. */
bool ngram_image_words(const ngram_header *h, int n, uint64_t slot, uint32_t *words);

/* ---- ARPA files (arpa.c) ------------------------------------------------------------------------------- */

by_status ngram_arpa_read(const char *path, const char *binary, ngram_image *out);

/* All n-grams of a model, order by order. */
typedef struct ngram_listing {
    int order;
    int64_t counts[BY_NGRAM_MAX_ORDER];
    const char *text; /* of all words, and where each begins */
    const uint64_t *starts;
    by_status (*begin)(void *user, int n);                         /* before the first of order n */
    by_status (*next)(void *user, int n, const ngram_entry **out); /* NULL after the last */
    void *user;
} ngram_listing;
by_status ngram_arpa_write(const char *path, const ngram_listing *l);
/* A listing of a binary. */
typedef struct ngram_image_walk {
    const ngram_header *header;
    uint64_t at;                          /* slot */
    uint32_t now[BY_NGRAM_MAX_ORDER + 2]; /* an ngram_entry */
} ngram_image_walk;
ngram_listing ngram_image_listing(ngram_image_walk *w);
const ngram_header *ngram_model_header(const by_ngram *m);

/* ---- files (ngram_folder.c) ---------------------------------------------------------------------------- */

bool ngram_is_binary(const char *path); /* by its first bytes */
char *ngram_file_of(
    const char *path); /* the file itself, or that of a model directory; heap string, NULL on failure */

#endif
