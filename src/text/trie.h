/* trie.h - the tokens of a vocabulary as a double-array trie (Aoe 1989): one lookup per byte finds all tokens
 * that start a text. */
#ifndef BY_TEXT_TRIE_H
#define BY_TEXT_TRIE_H

#include "text/vocab.h"

typedef struct tok_trie_node {
    int32_t base;  /* child of byte c is at base + c */
    int32_t check; /* its parent, or -1 if the position is free */
    int32_t id;    /* the token that ends here, or -1 */
} tok_trie_node;

typedef struct tok_trie {
    tok_trie_node *nodes;
    int32_t count;
} tok_trie;

/* Builds a trie over the tokens of v for which keep is NULL or keep[id] is true. Of equal tokens, the one
 * with the greatest id counts. */
by_status tok_trie_build(tok_trie *t, const tok_vocab *v, const bool *keep);
void tok_trie_free(tok_trie *t);

/* Returns the child of node along c, or -1. The root is 0. */
static inline int32_t tok_trie_step(const tok_trie *t, int32_t node, uint8_t c)
{
    int32_t next = t->nodes[node].base + c;
    return t->nodes[next].check == node ? next : -1;
}

#endif
