/* pipeline.h - a tokenizer as published in tokenizer.json: added tokens are split off the text; the rest
 * passes through normalisers, then splitters (pre-tokenizers), then a model that turns each piece into ids; a
 * template adds special tokens. Decoding passes through decoders. Private to src/text and its tests. */
#ifndef BY_TEXT_PIPELINE_H
#define BY_TEXT_PIPELINE_H

#include <stdatomic.h>

#include "text/kind.h"
#include "text/vocab.h"

#define TOK_MAX_NESTING 8 /* maximum nesting of "Sequence" in a file */

/* ---- strings of the file, which may contain NUL (tokenizer_models.c) ------------------------- */

typedef struct tok_chars {
    char *data; /* heap, NUL-terminated; NULL: absent from the file */
    size_t size;
} tok_chars;
by_status tok_chars_set(tok_chars *s, const char *json); /* sets it from a string of the tree */
by_status tok_chars_read(const cJSON *object, const char *key, tok_chars *out);
void tok_chars_free(tok_chars *s);

/* ---- the text between stages (stage_buffer.c) ----------------------------------------------- */

/* The origin of a byte: bytes [start, end) of the original text. */
typedef struct tok_at {
    uint32_t start, end;
} tok_at;

typedef struct tok_piece {
    size_t start, size; /* in tok_buffer.text */
    int32_t id;         /* id of an added token, or -1 for text that is still to be encoded */
    uint32_t base;      /* start of the piece in the original text, before the normalisers */
} tok_piece;

typedef struct tok_buffer {
    char *text;
    tok_at *at; /* one per byte of text if offsets are kept, otherwise NULL */
    size_t size, capacity;
    tok_piece *pieces;
    size_t count, piece_capacity;
    bool offsets; /* record at[] */
    bool failed;  /* an allocation failed; sticky, as in base_buf */
} tok_buffer;

void tok_buffer_free(tok_buffer *w);
void tok_buffer_clear(tok_buffer *w, bool offsets);
/* All n bytes have the origin at. */
void tok_buffer_put(tok_buffer *w, const char *bytes, size_t n, tok_at at);
/* Copies bytes with their origins. */
void tok_buffer_copy(tok_buffer *w, const tok_buffer *from, size_t start, size_t size);
void tok_buffer_piece(tok_buffer *w, size_t start, size_t size, int32_t id); /* empty pieces are dropped */
void tok_buffer_reserve(tok_buffer *w, size_t extra);

/* Returns the origin of byte i of w. */
static inline tok_at tok_buffer_at(const tok_buffer *w, size_t i)
{
    return w->at ? w->at[i] : (tok_at){0, 0};
}

/* Puts a text into an empty buffer. Invalid UTF-8 becomes U+FFFD, byte by byte, with its origin set; the
 * other bytes have no origin yet. */
by_status tok_buffer_fill(tok_buffer *w, const char *text, size_t size);

/* Put one character, unchanged or in lower case. */
void tok_buffer_put_char(tok_buffer *w, uint32_t c, tok_at at);
void tok_buffer_put_lower(tok_buffer *w, uint32_t c, tok_at at);

/* Returns the origin of text inserted before byte i of a piece: that of the previous byte, or the empty
 * start. */
tok_at tok_buffer_before(const tok_buffer *in, const tok_piece *p, size_t i);

/* Rewrites a piece character by character. The origin of a new character depends on `change`: 0 replaces the
 * next old character; -n also removes the n old characters after it; 1 inserts, and shares the origin of the
 * previous old character. */
typedef struct tok_transform {
    const tok_buffer *in;
    const tok_piece *piece;
    tok_buffer *out;
    size_t next; /* offset in the piece; bytes before it have been replaced */
} tok_transform;
/* Returns the origin of the next character, without putting it. */
tok_at tok_transform_step(tok_transform *t, int change);
void tok_transform_put(tok_transform *t, uint32_t c, int change);
void tok_transform_copy(tok_transform *t, size_t size); /* copies whole characters with their own origins */

/* ---- stages: normalisers (normalize.c) and splitters (split.c) ------------------------------- */

typedef enum tok_split_behavior {
    TOK_SPLIT_REMOVED,
    TOK_SPLIT_ISOLATED,
    TOK_SPLIT_PREVIOUS,
    TOK_SPLIT_NEXT,
    TOK_SPLIT_CONTIGUOUS
} tok_split_behavior;

typedef struct tok_regex tok_regex;       /* regex.c */
typedef struct tok_charsmap tok_charsmap; /* charsmap.c */
typedef struct tok_stage tok_stage;
struct tok_stage {
    const char *type; /* as in the file; static */

    /* Rewrites the piece in[p] into out: text, then pieces over it. Splitters that do not change the text
     * have `split` instead: they append to out the pieces of the text that is already there, from `start`. */
    by_status (*rewrite)(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out);
    by_status (*split)(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out);

    tok_regex *regex;
    tok_charsmap *map;
    tok_chars text, content; /* Replace: pattern and content; Prepend, Metaspace: the prefix */
    int behavior;            /* tok_split_behavior, a prepend scheme, or a normalisation form */
    bool flags[4];
};

typedef struct tok_stages {
    tok_stage *items;
    int count, capacity;
} tok_stages;

tok_stage *tok_stages_add(tok_stages *s, const char *type); /* zeroed; NULL on failure */
void tok_stages_free(tok_stages *s);
by_status tok_normalizers_read(const cJSON *json, tok_stages *out); /* null or absent: none */
by_status tok_splitters_read(const cJSON *json, tok_stages *out);

/* Returns true if the pieces depend on positions in the original text. normalized: normalisers come
 * before. */
bool tok_splitters_need_places(const tok_stages *s, bool normalized);

/* Passes the pieces of *work through the stages. *spare is the other buffer; the two may be swapped. */
by_status tok_stages_run(const tok_stages *s, tok_buffer *work, tok_buffer *spare);

/* Unicode forms (forms.c). behavior: bit 0 composes, bit 1 is compatibility. The flags also drop nonspacing
 * marks and convert to lower case, which makes BERT's steps a single pass. */
enum { TOK_FORM_STRIP, TOK_FORM_LOWER };
by_status tok_form_run(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out);

/* Splits words as XLM does (legacy/moses.c); flags[0]: lower case without accents. */
by_status tok_moses_run(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out);

/* Returns the end of the GPT-2 word that starts at s[i]; i < n. Invalid UTF-8 counts as symbols. */
size_t tok_gpt2_word(const uint8_t *s, size_t i, size_t n);

/* GPT-2's printable character of each byte, and the inverse (-1 for characters that represent no byte). */
uint32_t tok_byte_char(uint8_t byte);
int tok_char_byte(uint32_t c);

/* ---- regular expressions (regex.c), in the dialect of the files, over UTF-8 ------------------ */

tok_regex *tok_regex_new(const char *pattern, size_t size);

/* Reads {"String": ...} or {"Regex": ...}; sets neither if there is none (tokenizer_models.c). */
by_status tok_pattern_read(const cJSON *json, tok_chars *text, tok_regex **regex);
void tok_regex_free(tok_regex *r);

/* A scan for matches in one text, with a time limit proportional to its length. Several threads may scan with
 * the same expression. */
typedef struct tok_regex_scan {
    const tok_regex *regex;
    const char *text;
    size_t size, finds;
    double deadline; /* 0: nothing has taken long yet */
    uint32_t limit;
    const struct pcre2_real_code_8 *code;
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_match_context_8 *context; /* NULL: that of the expression */
    struct pcre2_real_jit_stack_8 *stack;
} tok_regex_scan;
by_status tok_regex_begin(tok_regex_scan *s, const tok_regex *r, const char *text, size_t size);
/* Finds the first match at or after from. Returns 1, 0 if there is none, or -1 after base_fail. */
int tok_regex_next(tok_regex_scan *s, size_t from, size_t *start, size_t *end);
void tok_regex_end(tok_regex_scan *s); /* call also after tok_regex_begin failed */

/* ---- precompiled normaliser maps of SentencePiece (charsmap.c) ------------------------------- */

tok_charsmap *tok_charsmap_new(const uint8_t *blob, size_t size); /* blob is copied */
void tok_charsmap_free(tok_charsmap *m);
/* Returns the replacement of a prefix of text, or NULL. *length is the number of bytes matched, by the
 * longest or the shortest entry. */
const char *tok_charsmap_find(const tok_charsmap *m, const char *text, size_t size, bool longest,
                              size_t *length);
/* By byte: true for ASCII that is unchanged if followed by ASCII or nothing. */
const bool *tok_charsmap_plain(const tok_charsmap *m);
by_status tok_base64_decode(const char *text, base_buf *out);

/* ---- working memory of an encoding: buffers and a word cache (scratch.c) ---------------------- */

typedef struct tok_scratch tok_scratch;
struct tok_scratch {
    tok_buffer work, spare;
    struct tok_cache_entry *cache;
    int32_t *cache_ids; /* ids of cached words */
    size_t cache_id_count;
    char *cache_keys; /* cached words that do not fit into an entry */
    size_t cache_key_count;
    size_t cache_used;
    void *memory; /* working memory of the model for one word */
    size_t memory_size;
};
void tok_scratch_free(tok_scratch *s);

/* A pool of idle scratch memory, taken and returned without a lock; initially zero. It has no visible state,
 * so constant tokenizers may contain one. */
#define TOK_SCRATCH_SLOTS 8
typedef struct tok_scratch_pool {
    _Atomic(tok_scratch *) spare[TOK_SCRATCH_SLOTS];
} tok_scratch_pool;
tok_scratch *tok_pool_take(const tok_scratch_pool *pool); /* NULL on failure */
void tok_pool_return(const tok_scratch_pool *pool, tok_scratch *s);
void tok_pool_free(tok_scratch_pool *pool);
void *tok_scratch_memory(tok_scratch *s,
                         size_t bytes); /* uninitialised, valid until the next call; NULL on failure */

/* Returns the ids of a cached word, or NULL. */
const int32_t *tok_cache_find(tok_scratch *s, const char *word, size_t size, size_t *count);
void tok_cache_put(tok_scratch *s, const char *word, size_t size, const int32_t *ids, size_t count);

/* ---- models ---------------------------------------------------------------------------------- */

/* The range of a token: bytes [start, end) of the word, later of the text. Trimming needs the number of
 * spaces at each end of the token's string. */
typedef struct tok_span_place {
    uint32_t start, end;
    uint32_t lead, trail;
} tok_span_place;
typedef struct tok_spans {
    tok_span_place *data; /* one per id */
    size_t count, capacity;
} tok_spans;
by_status tok_spans_push(tok_spans *v, size_t start, size_t end);

/* Completes an encoding that has its ids: offsets if spans is not NULL; ids from `own` on are special. */
by_status tok_encoding_fill(by_encoding *e, const tok_spans *spans, size_t own);

typedef struct tok_text_model tok_text_model;
struct tok_text_model {
    const char *type;
    tok_vocab vocab;
    int32_t surface; /* 1 + the id that decodes to its surface text: Unigram's unknown token; 0: none */
    /* Appends the ids of one piece, size > 0. If spans is not NULL, it gets one entry per id. */
    by_status (*encode)(const tok_text_model *m, tok_scratch *s, const char *word, size_t size, by_ids *out,
                        tok_spans *spans);
    void (*free)(tok_text_model *m); /* frees all but the vocabulary and m itself */
};
tok_text_model *tok_text_model_read(const cJSON *json); /* tokenizer_models.c: by type */
void tok_text_model_free(tok_text_model *m);
by_status tok_vocab_read(tok_vocab *v, const cJSON *json);            /* {"token": id} */
by_status tok_vocab_put_json(tok_vocab *v, const char *json, int id); /* a string of the tree */
tok_text_model *tok_bpe_read(const cJSON *json);
tok_text_model *tok_wordpiece_read(const cJSON *json);
tok_text_model *tok_wordlevel_read(const cJSON *json);
tok_text_model *tok_unigram_read(const cJSON *json);

/* BPE over raw bytes, each represented by its GPT-2 character: requires that every byte is known. */
bool tok_bpe_takes_bytes(const tok_text_model *m);
by_status tok_bpe_encode_bytes(const tok_text_model *m, tok_scratch *s, const char *word, size_t size,
                               by_ids *out, tok_spans *spans);

/* ---- added tokens (added.c) ------------------------------------------------------------------ */

typedef struct tok_added_token {
    int32_t id;
    char *content;
    uint32_t size;
    char *pattern; /* text to search for: the content, normalised if the token requires it */
    uint32_t pattern_size;
    bool single_word, lstrip, rstrip, normalized, special;
} tok_added_token;

typedef struct tok_added {
    tok_added_token *items;
    int count;
    struct tok_matcher *raw, *normalized; /* NULL if there are no such tokens */
} tok_added;

by_status tok_added_read(const cJSON *json, tok_added *out);
/* Builds the matchers; patterns of normalised tokens pass through the stages. */
by_status tok_added_prepare(tok_added *a, const tok_stages *normalizers);
void tok_added_free(tok_added *a);
const tok_added_token *tok_added_find(const tok_added *a, int32_t id);
/* Splits the piece into text and added tokens, appended to out as pieces. */
by_status tok_added_split(const tok_added *a, bool normalized, const char *text, size_t start, size_t size,
                          tok_buffer *out);

/* ---- post-processing (post.c) ---------------------------------------------------------------- */

#define TOK_MAX_POSTS 16 /* maximum number of post-processors in a file */

typedef struct tok_template_item {
    int sequence; /* 0: the text, 1: its pair, -1: special tokens */
    int type_id;
    int32_t *ids; /* of a special token */
    int count;
    uint8_t trims[TOK_MAX_POSTS]; /* of a sequence: each removes the spaces at the ends of tokens */
    int trim_count;
} tok_template_item;
enum { TOK_TRIM_PREFIX_SPACE = 1, TOK_TRIM_FIRST = 2 }; /* a space was prepended; nothing precedes */

typedef struct tok_template {
    tok_template_item *items;
    int count;
    size_t added;    /* special tokens for which truncation leaves room */
    const char *bad; /* static: why the post-processors cannot produce it, or NULL */
} tok_template;

typedef struct tok_post {
    tok_template forms[2][2]; /* [pair][special]: all post-processors combined into one template */
    bool trims;
} tok_post;
by_status tok_post_read(const cJSON *json, tok_post *out);
void tok_post_free(tok_post *p);

/* ---- decoders (decode.c) --------------------------------------------------------------------- */

typedef struct tok_decoders tok_decoders;
tok_decoders *tok_decoders_read(const cJSON *json); /* NULL on failure only */
void tok_decoders_free(tok_decoders *d);

/* A text being decoded. The text of a token is appended as soon as it is certain. */
typedef struct tok_unfolding tok_unfolding;
tok_unfolding *tok_unfolding_new(const tok_decoders *d);
by_status tok_unfolding_put(tok_unfolding *c, const tok_token *token, base_buf *out);
by_status tok_unfolding_end(tok_unfolding *c, base_buf *out);
void tok_unfolding_free(tok_unfolding *c);

/* ---- the complete tokenizer (pipeline.c) ----------------------------------------------------- */

typedef struct tok_pipeline {
    by_tokenizer base;
    char *json; /* the original file, for saving */
    size_t json_size;
    tok_added added;
    tok_stages normalizers, splitters;
    tok_text_model *model;
    tok_post post;
    tok_decoders *decoders;
    tok_token *texts;  /* by id, vocab_size entries: decoded text */
    bool *specials;    /* by id: special tokens, which decoding may skip */
    bool bytes_direct; /* direct path from bytes to ids: byte-level BPE with nothing before it */
    bool words;        /* ... after splitting by GPT-2's expression */
    bool prefix_space;
    bool keep_places;   /* ids depend on positions: Metaspace checks whether a piece starts the text */
    bool truncate, pad; /* whether the file specifies it */
    by_truncation truncation;
    by_padding padding;
    tok_scratch_pool pool;
} tok_pipeline;

extern const tok_text_kind tok_text_pipeline;

/* Appends the ids of one text without special tokens. Appends nothing on failure (encode.c). */
by_status tok_pipeline_encode(const tok_pipeline *p, const char *text, size_t size, by_ids *out,
                              tok_spans *spans);
/* See tok_text_kind (assemble.c). */
by_status tok_pipeline_encode_with(const by_tokenizer *t, const char *text, size_t size,
                                   const by_encode_spec *spec, by_encoding *out);
/* Returns the text that by_tokenizer_save writes. */
by_status tok_pipeline_keep(by_tokenizer *t, const char *json, size_t size);
const char *tok_pipeline_type(const by_tokenizer *t); /* type of its model: "BPE", ... */

/* JSON helpers (tokenizer_models.c). tok_json_only: every member of the object must be one of the keys. */
by_status tok_json_only(const cJSON *object, const char *what, const char *const *keys, int count);
/* The same with "type" and up to `most` keys, padded with NULL. */
by_status tok_json_fields(const cJSON *object, const char *what, const char *const *keys, int most);

/* One part of a tokenizer.json, or a possibly nested Sequence of parts; null or absent: none. */
typedef struct tok_sequence {
    const char *what, *key; /* "normalizers", for messages; the member of a Sequence that holds the list */
    by_status (*read)(const cJSON *json, const char *type, void *out);
} tok_sequence;
by_status tok_sequence_read(const cJSON *json, const tok_sequence *s, void *out);
by_status tok_stage_bool(const cJSON *object, const char *key, bool fallback, bool *out);
const char *tok_stage_string(const cJSON *object, const char *key); /* NULL if absent or null */
void tok_json_put_string(base_buf *out, const char *s, size_t n);   /* with quotes */
const char *tok_json_type(const cJSON *object);                     /* "type", or "" if absent */

#endif
