/* sp.h - a SentencePiece model ready to encode; shared by sentencepiece.c and sp_search.c. */
#ifndef BY_TEXT_LEGACY_SP_H
#define BY_TEXT_LEGACY_SP_H

#include "text/legacy/spiece.h"
#include "text/trie.h"

#define TOK_SP_SPACE   "\xe2\x96\x81" /* U+2581 represents a space */
#define TOK_SP_PENALTY 10.0f

typedef struct tok_sp {
    by_tokenizer base;
    tok_spiece m;
    tok_trie trie;  /* pieces that can occur in a text */
    tok_trie users; /* user-defined pieces, which the normaliser does not change */
    bool has_users;
    tok_charsmap *map;
    float least; /* score of normal pieces */
    int32_t bytes[256];
    bool plain[256]; /* bytes that normalising does not change if followed by ASCII or nothing */
    bool words;      /* no piece continues after a space: words can be encoded independently */
    float largest;   /* largest magnitude of all scores */
    tok_scratch_pool pool;
} tok_sp;

/* Receives the pieces: ids with or without ranges, or a callback that wants their text. */
typedef struct tok_sink {
    by_ids *ids;
    tok_spans *spans;
    tok_piece_each *each;
    void *context;
} tok_sink;

/* Splits the normalised text in s->work into pieces (sp_search.c). */
by_status tok_sp_encode(const tok_sp *t, tok_scratch *s, const tok_sink *out);

/* Returns true if the piece can occur in a text. */
static inline bool tok_sp_findable(const tok_sp *t, int32_t id)
{
    return id >= 0 && (t->m.types[id] == TOK_PIECE_NORMAL || t->m.types[id] == TOK_PIECE_USER);
}

/* Returns true if s starts with the mark that represents a space. */
static inline bool tok_sp_mark(const char *s, size_t n)
{
    return s[0] == TOK_SP_SPACE[0] && n >= 3 && s[1] == TOK_SP_SPACE[1] && s[2] == TOK_SP_SPACE[2];
}

/* Returns the length of the longest user-defined piece that starts text, or 0. */
static inline size_t tok_sp_user(const tok_sp *t, const char *text, size_t size)
{
    size_t found = 0;
    int32_t node = 0;
    for (size_t i = 0;
         t->has_users && i < size && (node = tok_trie_step(&t->users, node, (uint8_t)text[i])) >= 0; i++)
        if (t->users.nodes[node].id >= 0)
            found = i + 1;
    return found;
}

#endif
