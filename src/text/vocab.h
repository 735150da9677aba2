/* vocab.h - tokens by id and ids by token. Tokens are arbitrary byte strings. */
#ifndef BY_TEXT_VOCAB_H
#define BY_TEXT_VOCAB_H

#include "base/base.h"

typedef struct tok_token {
    const char *text; /* NULL if no token has this id; otherwise NUL-terminated for messages */
    uint32_t size;
} tok_token;

typedef struct tok_vocab {
    base_arena *arena;
    tok_token *tokens; /* by id */
    int count;         /* ids are below this; there may be gaps */
    int capacity;
    int used;       /* number of ids that have a token */
    int32_t *slots; /* open addressing: id + 1, 0: empty */
    size_t mask;
    uint32_t longest; /* bytes of the longest token */
} tok_vocab;

void tok_vocab_free(tok_vocab *v); /* resets to the zero state */

/* Assigns an id to a token; the text is copied. Returns BY_ERR_FORMAT if another token has that id. A token
 * that already has another id keeps its text there too, and is found under the new id, as in the reference
 * library. */
by_status tok_vocab_put(tok_vocab *v, const char *text, size_t size, int id);

/* Returns the id, or -1. */
int32_t tok_vocab_find(const tok_vocab *v, const char *text, size_t size);

/* A hash of bytes that is fast for short keys. */
uint64_t tok_bytes_hash(const void *bytes, size_t n);

#endif
