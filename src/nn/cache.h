/* cache.h - keys and values of past positions. A store owns their memory, in pages; a by_cache is the view of
 * one graph. The store is created once; a view is created for every graph and lives as long.
 *
 *      store, one pair per layer        table: the pages of every sequence
 *      page 0  1  2  3  4  5             sequence 0:  1  4
 *          [. ][a0][b0][b1][a1][  ]      sequence 1:  2  3         view of a graph that feeds sequence 1 alone:
 *                                        sequence 2:  (none)       past = {20}, pages = {{2, 3}} */
#ifndef BY_NN_CACHE_H
#define BY_NN_CACHE_H

#include "nn/nn.h"

/* Memory of the keys and of the values of every layer. */
typedef struct nn_pairs {
    by_memory **keys, **values;
    int layers;
} nn_pairs;

/* Named memory: the state of every sequence, or the encoder's result for every source. */
typedef struct nn_named nn_named;

/* Memory is allocated when the first graph declares it, because layers and widths are known only then. */
typedef struct nn_store {
    by_device *device;
    int64_t rows;        /* sequences, each of which may have states */
    int64_t pages, page; /* number of pages, and positions of one */
    /* encoder-decoders: number of sources, and positions of each; otherwise 0 */
    int64_t sources, source_room;
    nn_pairs own, cross; /* (pages, page, C), (sources, source_room, C) */
    nn_named *named;
    int32_t *free; /* (pages) free pages; the next one is last */
    int n_free;
} nn_store;
/* All pages are free initially. Returns NULL on failure. */
nn_store *nn_store_new(by_device *d, int64_t pages, int64_t page);
void nn_store_free(nn_store *s);
size_t nn_store_bytes(const nn_store *s);
int32_t nn_page_take(nn_store *s); /* -1: there is none left */
void nn_page_give(nn_store *s, int32_t page);

/* Replaces the first past[b] positions of every row b, which has page b, by those of row from[b]
 * (by_reorder). */
void nn_store_move(by_graph *g, const nn_store *s, by_tensor *from, by_tensor *past, int beams);

/* The view of one graph: the rows of its batch, which may be any sequences. */
struct by_cache {
    nn_store *store;
    by_tensor *past;  /* (B) i32: positions already held */
    by_tensor *pages; /* (B, n) i32: the pages of every row; NULL: row b has page b */
    by_tensor *from;  /* (B) i32: the row whose positions row b copies first (by_reorder); NULL: none */
    int beams;        /* rows of a group; 0: 1 */
    /* encoder-decoders: every group has a source */
    int64_t source_length;  /* S of all current sources */
    by_tensor *source_mask; /* (B / beams, S) i32 */
    by_tensor *sources;     /* (B / beams) i32: the source of every group; NULL: group i has source i */
    /* recurrent models: states of sequences (carried_state.h) */
    by_tensor *reads; /* (B) i32: the sequence whose state row b continues */
    /* (sequences) i32: the new state of each sequence, as a row of [new states of the B rows, old states of
     * all sequences]; NULL: row b is sequence b */
    by_tensor *places;
    by_tensor *valid; /* (B, T) i32: 0 where a token is padding, which must not change a state */
};

/* The memory of that name as a state of this graph. The first graph that declares it allocates `room`
 * elements; shapes may differ between graphs as long as they fit. */
by_tensor *nn_cache_state(by_graph *g, const by_cache *c, const char *name, by_dtype type, int rank,
                          const int64_t *shape, int64_t room);
/* Stores a tensor (sources, ...) of the encoder, and reads it as (B / beams, ...), the source of every group.
 * `lengthy` is true if the second axis is S, whose length may change. */
void nn_cache_put(by_graph *g, const by_cache *c, const char *name, by_tensor *x, bool lengthy);
by_tensor *nn_cache_get(by_graph *g, const by_cache *c, const char *name, by_dtype type, int64_t width,
                        bool lengthy);

/* Attention of q, k and v, or of a packed q if k and v are NULL. With a cache, appends the new keys and
 * values to it and attends to all of its positions. */
by_tensor *nn_attend_over(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v, const by_cache *cache,
                          int layer, const by_attention_spec *spec);
/* Stores the keys and values (sources, S, C) of the encoder, and attends to them: the rows of a group
 * together. */
void nn_cache_keep_source(by_graph *g, by_tensor *k, by_tensor *v, const by_cache *cache, int layer);
by_tensor *nn_attend_source(by_graph *g, by_tensor *q, const by_cache *cache, int layer,
                            const by_attention_spec *spec);

#endif
