/* cache.h - keys and values of past positions. A store owns their memory, in pages; a by_cache is the view
 * that one graph has of it. The store is made once; views are made for every graph and forgotten with it.
 *
 *      store, one pair per layer        table: the pages of every sequence
 *      page 0  1  2  3  4  5             sequence 0:  1  4
 *          [. ][a0][b0][b1][a1][  ]      sequence 1:  2  3         view of a graph that feeds sequence 1 alone:
 *                                        sequence 2:  (none)       past = {20}, pages = {{2, 3}}
 */
#ifndef BY_NN_CACHE_H
#define BY_NN_CACHE_H

#include "nn/nn.h"

/* Memory of the keys and of the values of every layer. */
typedef struct nn_pairs {
    by_memory **keys, **values;
    int layers;
} nn_pairs;

/* Memory under a name: the state of every sequence, or what an encoder leaves of every source. */
typedef struct nn_named nn_named;

/* The memory is made when the first graph asks for it: only then are layers and widths known. */
typedef struct nn_store {
    by_device *device;
    int64_t rows;                 /* sequences, each of which may have states */
    int64_t pages, page;          /* number of pages, and positions of one */
    int64_t sources, source_room; /* of encoder-decoders: sources, and positions of one; otherwise 0 */
    nn_pairs own, cross;          /* (pages, page, C), (sources, source_room, C) */
    nn_named *named;
    int32_t *free; /* (pages) the pages that nobody has, the next one last */
    int n_free;
} nn_store;
/* All pages are free. NULL on failure. */
nn_store *nn_store_new(by_device *d, int64_t pages, int64_t page);
void nn_store_free(nn_store *s);
size_t nn_store_bytes(const nn_store *s);
int32_t nn_page_take(nn_store *s); /* -1: there is none left */
void nn_page_give(nn_store *s, int32_t page);

/* Every row, whose page is the one of its number, takes over the first past[b] positions of row from[b] (by_reorder). */
void nn_store_move(by_graph *g, const nn_store *s, by_tensor *from, by_tensor *past, int beams);

/* What one graph sees: the rows of its batch, whichever sequences they are. */
struct by_cache {
    nn_store *store;
    by_tensor *past;  /* (B) i32: positions already held */
    by_tensor *pages; /* (B, n) i32: the pages of every row; NULL: row b has page b */
    by_tensor *from; /* (B) i32: the row whose positions row b takes over first (by_reorder); NULL: its own */
    int beams;       /* rows of a group; 0: 1 */
    /* encoder-decoders: every group has a source */
    int64_t source_length;  /* S: of all sources at present */
    by_tensor *source_mask; /* (B / beams, S) i32 */
    by_tensor *sources;     /* (B / beams) i32: the source of every group; NULL: group i has source i */
    /* recurrent models: every sequence has a state (carried_state.h) */
    by_tensor *reads;  /* (B) i32: the sequence whose state row b goes on from */
    by_tensor *places; /* (sequences) i32: what the state of each becomes, as a row of [the new states of the
                          B rows, the old states of all sequences]; NULL: row b is sequence b */
    by_tensor *valid;  /* (B, T) i32: 0 where a token is padding, which must not change a state */
};

/* The memory of that name as a state of this graph. The first graph that asks makes it, with room for `room` elements;
 * shapes may differ from graph to graph as long as they fit. */
by_tensor *nn_cache_state(by_graph *g, const by_cache *c, const char *name, by_dtype type, int rank,
                          const int64_t *shape, int64_t room);
/* Keep a tensor (sources, ...) that the encoder gives, and read it: (B / beams, ...), the source of every group. With
 * a second axis of S, whose length may change, `lengthy` is true. */
void nn_cache_put(by_graph *g, const by_cache *c, const char *name, by_tensor *x, bool lengthy);
by_tensor *nn_cache_get(by_graph *g, const by_cache *c, const char *name, by_dtype type, int64_t width,
                        bool lengthy);

/* Attention of q, k and v, or of q, k and v in one when k and v are NULL; over the cache unless that is NULL,
 * where the new keys and values are added. */
by_tensor *nn_attend_over(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v, const by_cache *cache,
                          int layer, const by_attention_spec *spec);
/* Keep the keys and values (sources, S, C) that the encoder gives, and attend to them: the rows of a group
 * together. */
void nn_cache_keep_source(by_graph *g, by_tensor *k, by_tensor *v, const by_cache *cache, int layer);
by_tensor *nn_attend_source(by_graph *g, by_tensor *q, const by_cache *cache, int layer,
                            const by_attention_spec *spec);

#endif
