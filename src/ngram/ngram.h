/* ngram.h - internals of n-gram models (banyan/ngram.h): words, sorting on disk, counting and estimation. */
#ifndef BY_NGRAM_NGRAM_H
#define BY_NGRAM_NGRAM_H

#include "banyan/ngram.h"
#include "base/file.h"

/* ---- words (words.c): strings and their ids, in the order of their first occurrence ---------------- */

enum { NGRAM_UNK, NGRAM_BOS, NGRAM_EOS, NGRAM_SPECIAL }; /* "<unk>", "<s>", "</s>" */

/* What separates words, as for lmplz; other control characters belong to words. */
static inline bool ngram_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\0';
}

typedef struct ngram_word_slot {
    uint32_t id, tag; /* id + 1, 0 for a free slot; bits of the hash */
    uint64_t start;   /* of the word in the text */
} ngram_word_slot;

typedef struct ngram_words {
    char *text; /* all words, each with a NUL after it */
    size_t size, room;
    uint64_t *starts;       /* (count) of each word in text */
    ngram_word_slot *slots; /* open addressing */
    size_t slot_count;      /* a power of two */
    uint32_t count, starts_room;
} ngram_words;

by_status ngram_words_make(ngram_words *w); /* with the three special words */
void ngram_words_free(ngram_words *w);
size_t ngram_words_bytes(const ngram_words *w); /* of memory */
uint64_t ngram_words_hash(const char *word, size_t n);
/* The id of a word of n bytes; ngram_words_find gives NGRAM_UNK for one that is not there. */
by_status ngram_words_add(ngram_words *w, const char *word, size_t n, uint64_t hash, uint32_t *id);
uint32_t ngram_words_find(const ngram_words *w, const char *word, size_t n);
/* Before a word is added: brings its slot, and then the text of the word in that slot, from memory. */
void ngram_words_fetch(const ngram_words *w, uint64_t hash);
void ngram_words_fetch_text(const ngram_words *w, uint64_t hash);
const char *ngram_words_name(const ngram_words *w, uint32_t id);

/* ---- memory and temporary files (spool.c) -------------------------------------------------------------- */

/* Zeroed memory in large pages where the system has them; it is touched at random. NULL on failure. */
void *ngram_big_alloc(size_t bytes);
void ngram_big_free(void *memory, size_t bytes);   /* NULL is a no-op */
void ngram_big_forget(void *memory, size_t bytes); /* gives the memory back; it is zero again */

/* A new file in dir that has no name: it goes with the process, however that ends. NULL on failure. */
FILE *ngram_temporary(const char *dir);
by_status ngram_temporary_fail(const char *dir); /* by errno */

/* ---- sorting (sorter.c) ---------------------------------------------------------------------------- */

enum { NGRAM_RECORD_WORDS = BY_NGRAM_MAX_ORDER + 2 }; /* u32 of a record at most */

/* Sorts records by their first `words` u32, the first word first; equal records keep the order in which they
 * came. It holds as many records as the budget allows and writes sorted runs to a file when there are more.
 * Records with equal words are merged where there is a merge function. */
typedef struct ngram_sorter ngram_sorter;
typedef struct ngram_sorter_spec {
    int words;
    size_t record; /* bytes; a multiple of 4 */
    size_t budget; /* bytes of memory */
    int threads;
    void (*merge)(void *into, const void *from, int words); /* NULL: equal records are not merged */
    const char *dir;                                        /* for runs */
} ngram_sorter_spec;
ngram_sorter *ngram_sorter_new(const ngram_sorter_spec *spec);
void ngram_sorter_free(ngram_sorter *s);
/* Where the next record is to be written. Without a merge function. */
by_status ngram_sorter_place(ngram_sorter *s, void **record);
/* Adds a record or merges it with an equal one that is in memory. With a merge function. */
by_status ngram_sorter_count(ngram_sorter *s, const void *record);
by_status ngram_sorter_finish(ngram_sorter *s); /* after the last record */
/* The records in order; *record is NULL at the end. Valid until the next call. */
by_status ngram_sorter_next(ngram_sorter *s, const void **record);

/* ---- spools (spool.c) ------------------------------------------------------------------------------ */

/* Records that are written and then read in order, in memory as far as the budget goes and then in a file. */
typedef struct ngram_spool {
    size_t record, budget;
    char *memory;
    size_t used, room; /* bytes in memory */
    FILE *file;
    const char *dir; /* for the file */
    int64_t count, read;
    char *chunk; /* of the file */
} ngram_spool;
by_status ngram_spool_make(ngram_spool *s, size_t record, size_t budget, const char *dir);
void ngram_spool_free(ngram_spool *s); /* the zero state is a no-op */
by_status ngram_spool_put(ngram_spool *s, const void *record);
by_status ngram_spool_rewind(ngram_spool *s);
/* The next records, some thousands; *count is 0 at the end. Valid until the next call. */
by_status ngram_spool_next(ngram_spool *s, const void **records, size_t *count);

/* ---- estimation (estimate.c, adjust.c, interpolate.c) -------------------------------------------------- */

/* The numbers of an n-gram as the binary has them. A log10 probability is not positive: its sign bit says
 * instead whether longer n-grams end with this one. The lowest bit of a log10 weight says whether longer
 * n-grams begin with it. */
typedef struct ngram_value {
    uint32_t probability, weight;
} ngram_value;
#define NGRAM_EXTENDS 0x80000000u
#define NGRAM_BEGINS  1u

static inline float ngram_probability(ngram_value v)
{
    const uint32_t bits = v.probability | NGRAM_EXTENDS;
    float p;
    memcpy(&p, &bits, sizeof p);
    return p;
}
static inline float ngram_weight(ngram_value v)
{
    const uint32_t bits = v.weight & ~NGRAM_BEGINS;
    float w;
    memcpy(&w, &bits, sizeof w);
    return w;
}

/* A finished n-gram: its numbers and its words, the first one first. */
typedef struct ngram_entry {
    ngram_value value;
    uint32_t words[]; /* as many as its order */
} ngram_entry;

/* Everything that is known while a model is estimated. */
typedef struct ngram_job {
    const by_ngram_spec *spec;
    const by_tokenizer *tokenizer; /* NULL: words */
    by_ngram_result *result;
    int order;
    const char *stage; /* for progress */
    const char *dir;   /* for temporary files */
    size_t budget;     /* bytes for everything; the vocabulary always stays in memory */
    int threads;
    ngram_words *vocabulary;
    ngram_sorter *counts;                       /* raw counts of the highest order, in suffix order */
    ngram_sorter *contexts[BY_NGRAM_MAX_ORDER]; /* adjusted counts of each order, by context */
    ngram_sorter *suffixes[BY_NGRAM_MAX_ORDER]; /* probabilities before interpolation, in suffix order */
    ngram_spool backoffs[BY_NGRAM_MAX_ORDER];   /* of each order, in suffix order */
    bool lists, hashes;                         /* which results are wanted: for an ARPA file, for a binary */
    ngram_spool entries[BY_NGRAM_MAX_ORDER];    /* in suffix order; of unigrams always */
    ngram_sorter *hashed[BY_NGRAM_MAX_ORDER];   /* ngram_hashed, by part */
    int64_t with_count[BY_NGRAM_MAX_ORDER][5];  /* n-grams whose adjusted count is 1, 2, 3, 4 */
} ngram_job;

/* The highest bit of an adjusted count: the n-gram is pruned. */
#define NGRAM_PRUNED (UINT64_C(1) << 63)
/* Called periodically: reports progress of the stage, and polls for cancellation. */
by_status ngram_report(const ngram_job *j, int64_t done);
static inline by_status ngram_poll(const ngram_job *j, int64_t done)
{
    return done & 0xffff ? BY_OK : ngram_report(j, done);
}

/* Bytes for one order: a share of the budget without the vocabulary, in proportion to the n-grams of each
 * order once they are known. */
size_t ngram_share(const ngram_job *j, double share, int n);

/* Reads the corpora: job->counts and the vocabulary. */
by_status ngram_count(ngram_job *j, const char *const *files, int count);
/* Adjusted counts of every order (Kneser and Ney 1995), and the discounts of Chen and Goodman (1998). */
by_status ngram_adjust(ngram_job *j);
/* Probabilities and back-off weights: j->entries. */
by_status ngram_interpolate(ngram_job *j);
/* Of smoothings other than Kneser-Ney: the probability of an n-gram, and the weight of a context of n words.
 * `total` counts all that follows the context. */
#define NGRAM_STUPID 0.4
double ngram_relative_probability(const ngram_job *j, int n, double count, double total);
double ngram_relative_weight(const ngram_job *j, int n, double total);
#define NGRAM_NEVER -1e30f /* the logarithm of zero: finite, so that sums of it are no NaN */

/* ---- the binary (image.c): header, unigrams, words, and for every higher order a hash table ----------- */

/* Offsets are in bytes from the start. Integers and floats are those of the machine, which the magic number
 * checks. */
typedef struct ngram_header {
    char magic[8];
    uint32_t version, order, words;
    float missing;      /* log10 weight of contexts that are not listed */
    uint32_t smoothing; /* by_smoothing */
    uint32_t tokens;    /* of a model of tokens: token i is word NGRAM_SPECIAL + i; 0: words */
    int32_t eos;        /* the token that is </s>, or -1 */
    uint32_t unused;
    uint64_t tokenizer; /* fingerprint of the tokenizer, or 0 */
    uint64_t counts[BY_NGRAM_MAX_ORDER];
    uint64_t homes[BY_NGRAM_MAX_ORDER]; /* slots that keys are spread over; */
    uint64_t slots[BY_NGRAM_MAX_ORDER]; /* with those behind them, the last of which is free */
    uint64_t at[BY_NGRAM_MAX_ORDER];    /* slots; of order 1 an ngram_value for each word */
    uint64_t firsts
        [BY_NGRAM_MAX_ORDER]; /* u32 for each slot: the first word, from which all words of an n-gram follow.
                                          * Slots of the highest order have it in the place of the weight */
    uint64_t starts, text, text_bytes;        /* u64 of each word, and the words themselves */
    uint64_t index, index_homes, index_slots; /* ngram_word_slot by hash; the last one is free */
    uint64_t bytes;
} ngram_header;

typedef struct ngram_slot {
    uint64_t key; /* 0: free */
    ngram_value value;
} ngram_slot;

/* Odd, so that multiplying by them can be undone. */
#define NGRAM_MIX    0x9e3779b97f4a7c15ull
#define NGRAM_SPREAD 0xd6e8feb86659fd93ull
/* The key of words is made from the last one to the first. */
static inline uint64_t ngram_key(uint64_t key, uint32_t word)
{
    return (key ^ ((uint64_t)word + 1) * NGRAM_MIX) * NGRAM_SPREAD;
}
static inline uint64_t ngram_home(uint64_t homes, uint64_t key)
{
    return (key >> 32) * homes >> 32; /* homes < 2^32 */
}
/* The slot of a key, which is free if the key is not there. Tables end with a free slot. */
static inline ngram_slot *ngram_slot_of(ngram_slot *table, uint64_t homes, uint64_t key)
{
    ngram_slot *s = table + ngram_home(homes, key);
    while (s->key && s->key != key)
        s++;
    return s;
}

/* Properties of a model besides its n-grams. */
typedef struct ngram_traits {
    by_smoothing smoothing;
    int tokens; /* 0: words */
    int32_t eos;
    uint64_t tokenizer; /* fingerprint, or 0 */
} ngram_traits;
/* A header with all sizes and places, or BY_ERR_UNSUPPORTED. */
by_status ngram_image_layout(ngram_header *h, const ngram_words *w, int order, const int64_t *counts,
                             ngram_traits traits);
/* The words of the header into `to`, which begins at h->starts. */
by_status ngram_image_copy_words(const ngram_header *h, const ngram_words *w, char *to);
static inline size_t ngram_image_words_bytes(const ngram_header *h)
{
    return h->index + h->index_slots * sizeof(ngram_word_slot) - h->starts;
}

/* A binary that is filled in any order, in memory or in a mapped file. */
typedef struct ngram_image {
    ngram_header *header;
    char *path, *temporary; /* NULL: in memory */
} ngram_image;
by_status ngram_image_make(ngram_image *m, const char *path, const ngram_words *w, int order,
                           const int64_t *counts, ngram_traits traits);
/* Orders in rising order. An n-gram whose suffix or context is missing is an error. */
by_status ngram_image_put(ngram_image *m, int n, const uint32_t *words, float probability, float weight);
by_status ngram_image_finish(ngram_image *m); /* a file is synced and renamed */
void ngram_image_abort(ngram_image *m);       /* the zero state is a no-op */
by_status ngram_image_check(const ngram_header *h, size_t bytes);
/* The words of the n-gram of order n in a slot that is not free. False if the tables are damaged. */
bool ngram_image_words(const ngram_header *h, int n, uint64_t slot, uint32_t *words);

/* ---- a binary from beginning to end (image_file.c) ---------------------------------------------------- */

/* An n-gram on its way into a table: sorted by part, it comes near its slot. */
enum { NGRAM_PARTS_BITS = 11 };
typedef struct ngram_hashed {
    uint32_t part; /* the highest bits of the key */
    uint32_t key[2];
    ngram_value value;
    uint32_t first;
} ngram_hashed;
by_status ngram_hash_make(ngram_job *j, int n, size_t budget);
by_status ngram_hash_put(ngram_job *j, int n, const uint32_t *reversed, ngram_value value);
/* Writes j->entries[0] and j->hashed, and takes the latter. */
by_status ngram_image_write(ngram_job *j, const char *path);

/* ---- ARPA files (arpa.c, arpa_write.c) ---------------------------------------------------------------- */

by_status ngram_arpa_read(const char *path, const char *binary, ngram_image *out);

/* All n-grams of a model, order by order. */
typedef struct ngram_listing {
    int order, threads;
    int64_t counts[BY_NGRAM_MAX_ORDER];
    const char *text; /* of all words, one after the other, and where each begins */
    const uint64_t *starts;
    uint64_t text_bytes;
    uint32_t words;
    by_status (*begin)(void *user, int n); /* before the first of order n */
    /* Some of them as ngram_entry of order n; *count is 0 after the last. */
    by_status (*next)(void *user, int n, const void **entries, size_t *count);
    void *user;
} ngram_listing;
by_status ngram_arpa_write(const char *path, const ngram_listing *l);
/* A listing of a binary. */
enum { NGRAM_WALK = 1024 };
typedef struct ngram_image_walk {
    const ngram_header *header;
    uint64_t at; /* slot */
    uint32_t now[NGRAM_WALK * (BY_NGRAM_MAX_ORDER + 2)];
} ngram_image_walk;
ngram_listing ngram_image_listing(ngram_image_walk *w);
const ngram_header *ngram_model_header(const by_ngram *m);

/* ---- queries (ngram_model.c) -------------------------------------------------------------------------- */

/* by_ngram_find in steps: all words of a line wait for memory together. */
void ngram_fetch_word(const by_ngram *m, uint64_t hash);
void ngram_fetch_name(const by_ngram *m, uint64_t hash);
uint32_t ngram_find_hashed(const by_ngram *m, const char *word, size_t n, uint64_t hash);
/* The keys of the n-grams that end with *last, keys[n - 2] for n words, and their slots from memory; there
 * are order - 1 words before it. */
void ngram_fetch(const by_ngram *m, const uint32_t *last, uint64_t *keys);
/* by_ngram_score with these keys, or NULL; the states differ. */
double ngram_look_up(const by_ngram *m, const by_ngram_state *from, uint32_t word, const uint64_t *keys,
                     by_ngram_state *to, int *matched);

/* ---- files (ngram_folder.c) ---------------------------------------------------------------------------- */

bool ngram_is_binary(const char *path); /* by its first bytes */
char *ngram_file_of(
    const char *path); /* the file itself, or that of a model directory; heap string, NULL on failure */

#endif
