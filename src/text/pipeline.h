/* pipeline.h - a tokenizer as published in tokenizer.json: added tokens are cut out of the text, the rest
 * goes through normalisers, then splitters (pre-tokenizers), then a model that turns each piece into ids; a
 * template adds special tokens. Decoding goes through decoders. Private to src/text and its tests. */
#ifndef BY_TEXT_PIPELINE_H
#define BY_TEXT_PIPELINE_H

#include <stdatomic.h>

#include "text/kind.h"
#include "text/vocab.h"

#define BY_MAX_NESTING 8 /* of "Sequence" in a file */

/* ---- strings of the file, which may hold NUL (models.c) --------------------------------------- */

typedef struct by_chars {
    char *data; /* heap, with a NUL after it; NULL: the file does not say */
    size_t size;
} by_chars;
by_status by_chars_set(by_chars *s, const char *json); /* a string of the tree */
by_status by_chars_read(const cJSON *object, const char *key, by_chars *out);
void by_chars_free(by_chars *s);

/* ---- the text on its way through the stages (work.c) ----------------------------------------- */

/* Where a byte comes from: bytes [start, end) of the original text. */
typedef struct by_at {
    uint32_t start, end;
} by_at;

typedef struct by_piece {
    size_t start, size; /* in by_work.text */
    int32_t id;         /* an added token, or -1 for text that is still to be encoded */
    uint32_t base;      /* where the piece began in the original text before the normalisers */
} by_piece;

typedef struct by_work {
    char *text;
    by_at *at; /* one per byte of text when offsets are kept, else NULL */
    size_t size, capacity;
    by_piece *pieces;
    size_t count, piece_capacity;
    bool offsets; /* keep at[] */
    bool failed;  /* an allocation failed: sticky, as in by_buf */
} by_work;

void by_work_free(by_work *w);
void by_work_clear(by_work *w, bool offsets);
void by_work_put(by_work *w, const char *bytes, size_t n, by_at at);           /* all n bytes come from at */
void by_work_copy(by_work *w, const by_work *from, size_t start, size_t size); /* with where they come from */
void by_work_piece(by_work *w, size_t start, size_t size, int32_t id);         /* empty pieces are dropped */
void by_work_reserve(by_work *w, size_t extra);

/* Where byte i of w comes from. */
static inline by_at by_work_at(const by_work *w, size_t i)
{
    return w->at ? w->at[i] : (by_at){0, 0};
}

/* Put a text into an empty buffer. What is not UTF-8 becomes U+FFFD, byte by byte, with its place marked; the
 * other bytes have no place yet. */
by_status by_work_fill(by_work *w, const char *text, size_t size);

/* Put one character; in lower case. */
void by_work_put_char(by_work *w, uint32_t c, by_at at);
void by_work_put_lower(by_work *w, uint32_t c, by_at at);

/* The place of text inserted before byte i of a piece: that of the byte before, or the empty start. */
by_at by_work_before(const by_work *in, const by_piece *p, size_t i);

/* Rewriting a piece character by character. The place of a new character depends on its change: 0 replaces
 * the next old character, -n also removes the n old characters after it, and 1 is inserted and shares the
 * place of the old character before. */
typedef struct by_transform {
    const by_work *in;
    const by_piece *piece;
    by_work *out;
    size_t next; /* of the piece's bytes: those before have been replaced */
} by_transform;
by_at by_transform_step(by_transform *t, int change); /* the place of the next character, which is not put */
void by_transform_put(by_transform *t, uint32_t c, int change);
void by_transform_copy(by_transform *t, size_t size); /* whole characters, each in its own place */

/* ---- stages: normalisers (normalize.c) and splitters (split.c) ------------------------------- */

typedef enum by_split_behavior {
    BY_SPLIT_REMOVED,
    BY_SPLIT_ISOLATED,
    BY_SPLIT_PREVIOUS,
    BY_SPLIT_NEXT,
    BY_SPLIT_CONTIGUOUS
} by_split_behavior;

typedef struct by_regex by_regex;       /* regex.c */
typedef struct by_charsmap by_charsmap; /* charsmap.c */
typedef struct by_stage by_stage;
struct by_stage {
    const char *type; /* as in the file; static */

    /* Rewrite the piece in[p] into out: text, then pieces over it. Splitters that leave the text alone have
     * `split` instead: they append to out the pieces of the text that is already there, from `start`. */
    by_status (*rewrite)(const by_stage *s, const by_work *in, const by_piece *p, by_work *out);
    by_status (*split)(const by_stage *s, const by_work *in, const by_piece *p, by_work *out);

    by_regex *regex;
    by_charsmap *map;
    by_chars text, content; /* Replace: pattern and content; Prepend, Metaspace: the prefix */
    int behavior;           /* by_split_behavior, or a prepend scheme, or a normalisation form */
    bool flags[4];
};

typedef struct by_stages {
    by_stage *items;
    int count, capacity;
} by_stages;

by_stage *by_stages_add(by_stages *s, const char *type); /* zeroed; NULL on failure */
void by_stages_free(by_stages *s);
by_status by_normalizers_read(const cJSON *json, by_stages *out); /* null or absent gives none */
by_status by_splitters_read(const cJSON *json, by_stages *out);

/* Do the pieces depend on places in the original text? normalized: normalisers come before. */
bool by_splitters_need_places(const by_stages *s, bool normalized);

/* Send the pieces of *work through the stages; *spare is the other buffer and the two may have changed
 * places. */
by_status by_stages_run(const by_stages *s, by_work *work, by_work *spare);

/* Unicode forms (forms.c). behavior: bit 0 composes, bit 1 is compatibility. The flags also drop nonspacing
 * marks and lower the case, which makes BERT's steps one pass. */
enum { BY_FORM_STRIP, BY_FORM_LOWER };
by_status by_form_run(const by_stage *s, const by_work *in, const by_piece *p, by_work *out);

/* The words of XLM (moses.c); flags[0]: small letters without accents. */
by_status by_moses_run(const by_stage *s, const by_work *in, const by_piece *p, by_work *out);

/* The end of the GPT-2 word that starts at s[i]; i < n. Bytes that are not UTF-8 count as symbols. */
size_t by_gpt2_word(const uint8_t *s, size_t i, size_t n);

/* GPT-2's printable character of each byte, and back (-1 for characters that stand for no byte). */
uint32_t by_byte_char(uint8_t byte);
int by_char_byte(uint32_t c);

/* ---- regular expressions (regex.c), in the dialect of the files, over UTF-8 ------------------ */

by_regex *by_regex_new(const char *pattern, size_t size);

/* {"String": ...} or {"Regex": ...}; neither is set when there is none (models.c). */
by_status by_pattern_read(const cJSON *json, by_chars *text, by_regex **regex);
void by_regex_free(by_regex *r);

/* The matches of one text, which share a bound of time in proportion to its length. Several threads may scan
 * with one expression. */
typedef struct by_regex_scan {
    const by_regex *regex;
    const char *text;
    size_t size, finds;
    double deadline; /* 0: nothing has taken long yet */
    uint32_t limit;
    const struct pcre2_real_code_8 *code;
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_match_context_8 *context; /* NULL: the expression's own */
    struct pcre2_real_jit_stack_8 *stack;
} by_regex_scan;
by_status by_regex_begin(by_regex_scan *s, const by_regex *r, const char *text, size_t size);
/* The first match at or after from. Returns 1, 0 when there is none, -1 after by_fail. */
int by_regex_next(by_regex_scan *s, size_t from, size_t *start, size_t *end);
void by_regex_end(by_regex_scan *s); /* also after by_regex_begin failed */

/* ---- precompiled normaliser maps of SentencePiece (charsmap.c) ------------------------------- */

by_charsmap *by_charsmap_new(const uint8_t *blob, size_t size); /* copied */
void by_charsmap_free(by_charsmap *m);
/* The replacement of a prefix of text, NULL when there is none. *length: bytes matched. Longest prefix, or
 * shortest. */
const char *by_charsmap_find(const by_charsmap *m, const char *text, size_t size, bool longest,
                             size_t *length);
/* By byte: true for ASCII that stays as it is when ASCII or nothing follows. */
const bool *by_charsmap_plain(const by_charsmap *m);
by_status by_base64_decode(const char *text, by_buf *out);

/* ---- what one encoding needs: buffers and a cache of words (scratch.c) ----------------------- */

typedef struct by_scratch by_scratch;
struct by_scratch {
    by_work work, spare;
    struct by_cache_entry *cache;
    int32_t *cache_ids; /* ids of cached words */
    size_t cache_id_count;
    char *cache_keys; /* bytes of cached words that do not fit into an entry */
    size_t cache_key_count;
    size_t cache_used;
    void *memory; /* what a model needs for one word */
    size_t memory_size;
};
void by_scratch_free(by_scratch *s);

/* Idle ones, taken and returned without a lock; zero at first. Changing it changes nothing that can be seen,
 * so tokenizers that are constant may hold one. */
#define BY_SCRATCH_SLOTS 8
typedef struct by_scratch_pool {
    _Atomic(by_scratch *) spare[BY_SCRATCH_SLOTS];
} by_scratch_pool;
by_scratch *by_pool_take(const by_scratch_pool *pool); /* NULL on failure */
void by_pool_return(const by_scratch_pool *pool, by_scratch *s);
void by_pool_free(by_scratch_pool *pool);
void *by_scratch_memory(by_scratch *s,
                        size_t bytes); /* uninitialised, valid until the next call; NULL on failure */

/* ids of a word seen before, or NULL. */
const int32_t *by_cache_find(by_scratch *s, const char *word, size_t size, size_t *count);
void by_cache_put(by_scratch *s, const char *word, size_t size, const int32_t *ids, size_t count);

/* ---- models ---------------------------------------------------------------------------------- */

/* The place of a token: bytes [start, end) of the word, later of the text. Trimming needs to know how many of
 * the characters at the ends of the token's string are spaces. */
typedef struct by_span_place {
    uint32_t start, end;
    uint32_t lead, trail;
} by_span_place;
typedef struct by_spans {
    by_span_place *data; /* one per id */
    size_t count, capacity;
} by_spans;
by_status by_spans_push(by_spans *v, size_t start, size_t end);

/* The rest of an encoding that has its ids: places where spans is not NULL, and ids from `own` on are
 * special. */
by_status by_encoding_fill(by_encoding *e, const by_spans *spans, size_t own);

typedef struct by_text_model by_text_model;
struct by_text_model {
    const char *type;
    by_vocab vocab;
    int32_t surface; /* 1 + the id whose string is the text it stands for: Unigram's unknown; 0: none */
    /* Append the ids of one piece, size > 0; spans, when not NULL, gets as many. */
    by_status (*encode)(const by_text_model *m, by_scratch *s, const char *word, size_t size, by_ids *out,
                        by_spans *spans);
    void (*free)(by_text_model *m); /* all but the vocabulary and m itself */
};
by_text_model *by_text_model_read(const cJSON *json); /* models.c: by type */
void by_text_model_free(by_text_model *m);
by_status by_vocab_read(by_vocab *v, const cJSON *json);            /* {"token": id} */
by_status by_vocab_put_json(by_vocab *v, const char *json, int id); /* a string of the tree */
by_text_model *by_bpe_read(const cJSON *json);
by_text_model *by_wordpiece_read(const cJSON *json);
by_text_model *by_wordlevel_read(const cJSON *json);
by_text_model *by_unigram_read(const cJSON *json);

/* BPE over raw bytes, each byte being its GPT-2 character: possible when every byte is known and nothing is
 * unknown. */
bool by_bpe_takes_bytes(const by_text_model *m);
by_status by_bpe_encode_bytes(const by_text_model *m, by_scratch *s, const char *word, size_t size,
                              by_ids *out, by_spans *spans);

/* ---- added tokens (added.c) ------------------------------------------------------------------ */

typedef struct by_added_token {
    int32_t id;
    char *content;
    uint32_t size;
    char *pattern; /* what is searched for: content, normalised where the token asks for it */
    uint32_t pattern_size;
    bool single_word, lstrip, rstrip, normalized, special;
} by_added_token;

typedef struct by_added {
    by_added_token *items;
    int count;
    struct by_matcher *raw, *normalized; /* NULL where there are no such tokens */
} by_added;

by_status by_added_read(const cJSON *json, by_added *out);
/* Build the matchers; patterns of normalised tokens go through the stages. */
by_status by_added_prepare(by_added *a, const by_stages *normalizers);
void by_added_free(by_added *a);
const by_added_token *by_added_find(const by_added *a, int32_t id);
/* Cut the piece into text and added tokens, appended to out as pieces. */
by_status by_added_split(const by_added *a, bool normalized, const char *text, size_t start, size_t size,
                         by_work *out);

/* ---- post-processing (post.c) ---------------------------------------------------------------- */

#define BY_MAX_POSTS 16 /* post-processors of one file */

typedef struct by_template_item {
    int sequence; /* 0: the text, 1: its pair, -1: special tokens */
    int type_id;
    int32_t *ids; /* of a special token */
    int count;
    uint8_t trims[BY_MAX_POSTS]; /* of a sequence: each leaves the spaces at the ends of tokens out */
    int trim_count;
} by_template_item;
enum { BY_TRIM_PREFIX_SPACE = 1, BY_TRIM_FIRST = 2 }; /* a space was put in front; nothing stands before */

typedef struct by_template {
    by_template_item *items;
    int count;
    size_t added;    /* special tokens that truncation makes room for */
    const char *bad; /* static: why the post-processors cannot make it, or NULL */
} by_template;

typedef struct by_post {
    by_template forms[2][2]; /* [pair][special]: all post-processors as one template */
    bool trims;
} by_post;
by_status by_post_read(const cJSON *json, by_post *out);
void by_post_free(by_post *p);

/* ---- decoders (decode.c) --------------------------------------------------------------------- */

typedef struct by_decoders by_decoders;
by_decoders *by_decoders_read(const cJSON *json); /* NULL on failure only */
void by_decoders_free(by_decoders *d);

/* One text on its way through the decoders: what a token adds to it is appended as soon as it is certain. */
typedef struct by_unfolding by_unfolding;
by_unfolding *by_unfolding_new(const by_decoders *d);
by_status by_unfolding_put(by_unfolding *c, const by_token *token, by_buf *out);
by_status by_unfolding_end(by_unfolding *c, by_buf *out);
void by_unfolding_free(by_unfolding *c);

/* ---- the whole (pipeline.c) ------------------------------------------------------------------ */

typedef struct by_pipeline {
    by_tokenizer base;
    char *json; /* the file it came from, for saving it again */
    size_t json_size;
    by_added added;
    by_stages normalizers, splitters;
    by_text_model *model;
    by_post post;
    by_decoders *decoders;
    by_token *texts;   /* by id, vocab_size of them: what is decoded */
    bool *specials;    /* by id: special tokens, which decoding may leave out */
    bool bytes_direct; /* straight from bytes to ids: byte-level BPE with nothing before it */
    bool words;        /* ... cut by GPT-2's expression first */
    bool prefix_space;
    bool keep_places;   /* places decide about ids: Metaspace looks whether a piece begins the text */
    bool truncate, pad; /* does the file ask for it? */
    by_truncation truncation;
    by_padding padding;
    by_scratch_pool pool;
} by_pipeline;

extern const by_text_kind by_text_pipeline;

/* The ids of one text without special tokens, appended; on failure nothing is (encode.c). */
by_status by_pipeline_encode(const by_pipeline *p, const char *text, size_t size, by_ids *out,
                             by_spans *spans);
/* As by_text_kind has it (assemble.c). */
by_status by_pipeline_encode_with(const by_tokenizer *t, const char *text, size_t size,
                                  const by_encode_spec *spec, by_encoding *out);
by_status by_pipeline_keep(by_tokenizer *t, const char *json,
                           size_t size);             /* what by_tokenizer_save writes */
const char *by_pipeline_type(const by_tokenizer *t); /* of its model: "BPE", ... */

/* JSON helpers (models.c). by_json_only: every member of the object must be one of the keys. */
by_status by_json_only(const cJSON *object, const char *what, const char *const *keys, int count);
/* The same with "type" and up to `most` keys, NULL where there are fewer. */
by_status by_json_fields(const cJSON *object, const char *what, const char *const *keys, int most);

/* One part of a tokenizer.json, or a Sequence of them, perhaps nested; null and absent give none. */
typedef struct by_sequence {
    const char *what, *key; /* "normalizers", for messages; the member of a Sequence that is the list */
    by_status (*read)(const cJSON *json, const char *type, void *out);
} by_sequence;
by_status by_sequence_read(const cJSON *json, const by_sequence *s, void *out);
by_status by_stage_bool(const cJSON *object, const char *key, bool fallback, bool *out);
const char *by_stage_string(const cJSON *object, const char *key); /* NULL when absent or null */
void by_json_put_string(by_buf *out, const char *s, size_t n);     /* with its quotes */
const char *by_json_type(const cJSON *object);                     /* "type", "" when absent */

#endif
