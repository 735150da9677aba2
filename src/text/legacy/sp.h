/* sp.h - a SentencePiece model ready to encode; between sentencepiece.c and sp_search.c. */
#ifndef BY_TEXT_LEGACY_SP_H
#define BY_TEXT_LEGACY_SP_H

#include "text/legacy/spiece.h"
#include "text/trie.h"

#define TOK_SP_SPACE   "\xe2\x96\x81" /* U+2581 stands for a space */
#define TOK_SP_PENALTY 10.0f

typedef struct tok_sp {
    by_tokenizer base;
    tok_spiece m;
    tok_trie trie;  /* pieces that can be found in a text */
    tok_trie users; /* user-defined pieces, which the normaliser leaves alone */
    bool has_users;
    tok_charsmap *map;
    float least; /* score of normal pieces */
    int32_t bytes[256];
    bool plain[256]; /* bytes that normalising leaves alone when ASCII or nothing follows */
    bool words;      /* no piece goes on behind a space: words can be encoded one by one */
    float largest;   /* of all scores, by magnitude */
    tok_scratch_pool pool;
} tok_sp;

/* Where the pieces go: ids with or without places, or somebody who wants their text. */
typedef struct tok_sink {
    by_ids *ids;
    tok_spans *spans;
    tok_piece_each *each;
    void *context;
} tok_sink;

/* Cut the normalised text in s->work into pieces (sp_search.c). */
by_status tok_sp_encode(const tok_sp *t, tok_scratch *s, const tok_sink *out);

/* Can the piece be found in a text? */
static inline bool tok_sp_findable(const tok_sp *t, int32_t id)
{
    return id >= 0 && (t->m.types[id] == TOK_PIECE_NORMAL || t->m.types[id] == TOK_PIECE_USER);
}

/* Does s begin with the mark that stands for a space? */
static inline bool tok_sp_mark(const char *s, size_t n)
{
    return s[0] == TOK_SP_SPACE[0] && n >= 3 && s[1] == TOK_SP_SPACE[1] && s[2] == TOK_SP_SPACE[2];
}

/* The longest user-defined piece that begins text, in bytes; 0 when none does. */
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
