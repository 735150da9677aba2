/* train.h - shared by the vocabulary trainers: counted words, and the resulting vocabulary. Private to
 * src/text and its tests. */
#ifndef BY_TEXT_TRAIN_TRAIN_H
#define BY_TEXT_TRAIN_TRAIN_H

#include "banyan/train_tokenizer.h"
#include "text/pipeline.h"
#include "text/utf8.h"

/* ---- words and their counts (train_words.c) -------------------------------------------------- */

typedef struct tok_word {
    const char *text;
    uint64_t count;
    uint32_t size, hash;
} tok_word;

#define TOK_WORD_PARTS 64 /* a power of two */

typedef struct tok_words {
    tok_word *items;
    size_t count;
    bool raw; /* bytes, each representing its GPT-2 character */
    base_arena *text[TOK_WORD_PARTS];
    int64_t bytes, lines, running; /* read so far */
} tok_words;

/* Splits text into words: the stages of the tokenizer being built. */
typedef struct tok_cutter {
    tok_stages normalizers, splitters;
    bool raw; /* only GPT-2's splitter: count bytes */
    bool prefix_space;
} tok_cutter;

/* Counts the words of all files. The order of items is undefined. The caller frees *out, also after a
 * failure. */
by_status tok_words_count(const tok_cutter *cutter, const char *const *files, int count,
                          const by_vocab_spec *spec, tok_words *out);
void tok_words_free(tok_words *w);

/* Returns the next character of a word at *at, or -1 at its end. */
static inline int32_t tok_word_next(const tok_words *w, const tok_word *word, size_t *at);

/* ---- vocabularies ---------------------------------------------------------------------------- */

typedef struct tok_merge_pair {
    int32_t left, right;
} tok_merge_pair;

typedef struct tok_trained {
    tok_vocab vocab;        /* special tokens first */
    tok_merge_pair *merges; /* BPE, in order */
    int merge_count;
    double *scores; /* Unigram, by id */
    int alphabet;
} tok_trained;
void tok_trained_free(tok_trained *t);

/* They take the spec with its defaults resolved, including special tokens. *out must be zero; the caller
 * frees it, also after a failure. */
by_status tok_bpe_train(const by_vocab_spec *spec, const tok_words *words, tok_trained *out);
by_status tok_unigram_train(const by_vocab_spec *spec, const tok_words *words, tok_trained *out);
by_status tok_word_level_train(const by_vocab_spec *spec, const tok_words *words, tok_trained *out);

/* Returns the characters of the words and of the initial alphabet that are kept, in code point order, as a
 * heap array. NUL is never included: tokenizer.json cannot represent it here. */
uint32_t *tok_alphabet(const by_vocab_spec *spec, const tok_words *words, int *count);

/* Candidate pieces of a Unigram vocabulary, with their log probabilities (train_seeds.c): the given
 * characters, and strings of them that occur more than once, up to spec->max_token_length characters. *out is
 * a heap array; its texts are in keep. */
#define TOK_UNIGRAM_LONGEST 256
typedef struct tok_candidate {
    const char *text;
    uint32_t size;
    double score;
} tok_candidate;
by_status tok_unigram_seeds(const by_vocab_spec *spec, const tok_words *words, const uint32_t *points,
                            int point_count, base_arena *keep, tok_candidate **out, size_t *count);

/* Words as rows of symbols, which are ids of the vocabulary (train_symbols.c). Characters that are not kept
 * are omitted. Adds special tokens, characters and their forms with affixes to the vocabulary. */
typedef struct tok_spelling {
    uint32_t *symbols;
    size_t *starts; /* start of each word, and the end of the last */
    size_t count;
} tok_spelling;
by_status tok_spell_words(const by_vocab_spec *spec, const tok_words *words, tok_trained *out,
                          tok_spelling *spelling);
void tok_spelling_free(tok_spelling *s);

/* Reports progress to the caller. Returns BY_ERR_CANCELLED if the caller asks to stop. */
by_status tok_train_progress(const by_vocab_spec *spec, const char *phase, int64_t done, int64_t total,
                             int64_t words);

/* ---- pipelines by name, and the file (train_presets.c, write_json.c) ------------------------- */

typedef struct tok_preset {
    const char *name;
    by_vocab_kind kind;
    bool byte_level;
    const char *prefix, *suffix, *unknown;
    const char *normalizer, *pre_tokenizer, *post_processor, *decoder; /* JSON, NULL: null */
    const char *const *special;
    const char *stripped;    /* special token that absorbs the space before it */
    const char *roles[4][2]; /* members of tokenizer_config.json that the names do not imply */
    int extra_ids;           /* T5 sentinels, after the vocabulary */
} tok_preset;

/* Resolves the defaults of the spec. *made and the strings in *keep live as long as the caller wants. */
by_status tok_preset_resolve(const by_vocab_spec *spec, base_arena *keep, tok_preset *made,
                             by_vocab_spec *full);

/* Write tokenizer.json and tokenizer_config.json. */
by_status tok_trained_write(const tok_preset *p, const by_vocab_spec *spec, const tok_trained *t,
                            base_buf *out);
by_status tok_trained_config(const tok_preset *p, const by_vocab_spec *spec, base_buf *out);

static inline int32_t tok_word_next(const tok_words *w, const tok_word *word, size_t *at)
{
    if (*at >= word->size)
        return -1;
    if (w->raw)
        return (int32_t)tok_byte_char((uint8_t)word->text[(*at)++]);
    uint32_t c = 0;
    const uint8_t *s = (const uint8_t *)word->text + *at;
    *at += (size_t)tok_utf8_decode(s, word->size - *at, &c);
    return (int32_t)c;
}

#endif
