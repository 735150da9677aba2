/* generator.h - internals of the generator. generator.c has creation and queries, generator_pass.c the
 * programs that extend the cache, generator_sources.c the encoders of encoder-decoders, generator_loop.c
 * decoding on the device, generator_share.c shared prompts, sequences.c continuous batching. */
#ifndef BY_INFER_GENERATOR_H
#define BY_INFER_GENERATOR_H

#include "banyan/adapter.h"
#include "banyan/generate.h"
#include "base/base.h"
#include "nn/cache.h"

enum { GEN_WIDTHS = 4 }; /* of passes: 1, 16, 64 and 256 tokens */
extern const int gen_widths[GEN_WIDTHS];
enum { GEN_GREEDY = 0, GEN_DRAWN = -1 }; /* in place of a width */

/* A program that processes T new positions of any B sequences, and its tensors. */
typedef struct gen_pass {
    by_program *program;         /* NULL: not compiled yet */
    int rows, width;             /* B, T; or GEN_GREEDY, GEN_DRAWN: a step of the loop on the device */
    bool reorders;               /* rows copy others of their group */
    int top;                     /* k of keep_top when it was compiled */
    by_tensor *tokens;           /* (B, T) */
    by_tensor *positions;        /* (B, T) */
    by_tensor *past;             /* (B) positions the cache holds */
    by_tensor *pick;             /* (B) flat index of the last real token */
    by_tensor *pages;            /* (B, columns); NULL: all rows in order, each in its page */
    by_tensor *from;             /* (B) the row whose positions a row copies first; NULL: none */
    by_tensor *sources;          /* (B / beams) the source of a group; NULL: its own, or none */
    by_tensor *reads, *valid;    /* of recurrent models: by_cache, */
    by_tensor *places;           /* and (batch); NULL: all rows in order */
    by_tensor *logits;           /* (B, V) there */
    by_tensor *features;         /* (B, T, C); NULL: no callback */
    by_tensor *best, *ids, *lse; /* (B, k), (B, k), (B): the highest of them; NULL with k = 0 */
} gen_pass;

/* The programs for sources of one length. */
typedef struct gen_stage {
    int length; /* S; 0: there are no sources */
    int height; /* height of pictures, because sizes of one length may differ; 0: sources are texts */
    gen_pass **passes;
    int n_passes;
    by_program *encoder; /* NULL: not compiled yet */
    by_tensor *source, *source_mask;
} gen_stage;

/* A sequence: its positions in the cache, and the place of its logits. */
typedef struct gen_row {
    int32_t past;      /* positions */
    int pages;         /* number of its pages; 0: the page of the row's number */
    int from;          /* the row to copy, requested by by_generator_reorder and still pending */
    int fed, take;     /* tokens fed so far in the current call, and those of the current pass */
    bool known;        /* there are logits of its last position */
    gen_pass *where;   /* the pass that still holds them; NULL: they are in gen_output */
    int there;         /* the row of that pass that has them */
    int slot;          /* its row in the current pass */
    int leader;        /* the row that is fed instead in the current call; its own number: none */
    by_top_logits top; /* of these logits */
} gen_row;

/* What goes into a pass. */
typedef struct gen_input {
    bool *acts;                  /* (groups) takes part in it */
    int *rows;                   /* (B) the sequence of every row of the pass */
    int32_t *tokens, *positions; /* (B, widest) */
    int32_t *past, *pick, *from; /* (B) */
    int32_t *pages, *sources;    /* (B, columns), (groups) */
    int32_t *reads, *places;     /* (B) */
    int32_t *valid;              /* (B, widest) */
} gen_input;

/* Results of passes: per sequence, and of the last pass. */
typedef struct gen_output {
    float *logits, *fresh;                /* (B, V), NULL until needed */
    int top;                              /* highest logits that are kept of a row, 0: all */
    float *best, *fresh_best, *fresh_lse; /* (B, k), (B, k), (B) */
    int32_t *ids, *fresh_ids;             /* (B, k), (B, k) */
} gen_output;

/* What encoder-decoders read. */
typedef struct gen_sources {
    int capacity;
    int32_t *tokens, *mask; /* (N, S) */
    by_memory *seen;        /* mask, on the device */
} gen_sources;

/* State of the decoding loop on the device. */
typedef struct gen_loop {
    by_memory *tokens, *positions, *past, *log; /* (B), (B), (B), (1 + 32 B) */
    by_memory *draws, *temperature;             /* (B, 5), (B): see by_draw; NULL before the first draw */
    int32_t *out;                               /* (32 B) */
} gen_loop;

/* The program that copies the positions fed to another row. */
typedef struct gen_share {
    by_program *program;    /* NULL: not compiled yet */
    by_tensor *from, *past; /* (B) */
} gen_share;

/* Called with the tokens fed to a row and their hidden states (count, width). */
typedef struct gen_watch {
    by_status (*fed)(void *user, int row, const int32_t *tokens, int count, const float *states, int width);
    void *user;
} gen_watch;
/* Texts of a generator without a cache. */
typedef struct gen_whole gen_whole;

struct by_generator {
    by_model *model;
    by_adapter *adapter; /* the model's adapter when the generator was created; NULL: none */
    int batch, beams, capacity, vocab;
    int prefix;      /* positions that the adapter prepends to every text, not counted in rows */
    int n_widths;    /* number of gen_widths that fit this capacity */
    nn_store *store; /* the memory of keys and values, */
    int32_t *table;  /* (batch, columns) and the pages of every row in it */
    int columns;     /* pages that a row can have; 1: its own, for good */
    int ring;        /* length of a row's ring of pages, if queries see no further; 0: none */
    gen_row *rows;
    gen_stage **stages, *now; /* now: the one of the present sources */
    int n_stages;
    gen_input in;
    gen_output out;
    gen_sources sources;
    gen_loop loop;
    gen_share share;
    gen_watch watch;                 /* fed NULL: nobody */
    gen_whole *whole;                /* NULL: the model has a cache */
    struct gen_sequences *sequences; /* NULL: none was added yet */
};

/* by_model_build with the generator's own adapter, even if the model now has another. */
void gen_build(const by_generator *g, by_graph *graph, by_model_io *io);

/* Positions as the model reads them: where padding has one of its own, generated padding has it, too. */
by_tensor *gen_positions(const by_generator *g, by_graph *graph, by_tensor *tokens, by_tensor *positions);

/* ---- passes (generator_pass.c) ---------------------------------------------------------------- */

/* Selects the rows of a pass: the first `per` of every active group (in.acts), and others to round up to a
 * supported number. Returns this number. */
int gen_choose_rows(by_generator *g, int per);
/* The pass of this kind of the current stage, perhaps not compiled yet. NULL: out of memory. */
gen_pass *gen_find_pass(by_generator *g, int rows, int width, bool reorders);
/* The view of the cache for a graph. Adds the pass inputs that select rows and sources. */
by_cache gen_view(by_generator *g, by_graph *graph, gen_pass *p, by_tensor *past);
by_status gen_write_view(by_generator *g, gen_pass *p); /* sets these inputs for the selected rows */
/* Allocates cache pages up to position past + more[b] of every row; `more` NULL: frees unneeded pages.
 * BY_ERR_MEMORY: not enough pages, and none was allocated. */
by_status gen_reserve(by_generator *g, const int *more);
/* Writes the adapter's prefix for empty rows that get tokens: given by counts or `active`, the other is
 * NULL. */
by_status gen_feed_prefix(by_generator *g, const int *counts, const bool *active);
by_status gen_feed(by_generator *g, const int32_t *const *tokens, const int *counts);
/* The highest position of a token, limited by the position table. */
int gen_last_place(const by_generator *g);
by_status gen_need_logits(by_generator *g); /* allocates whole rows of logits */
void gen_free_top(gen_output *o);

/* ---- shared prompts (generator_share.c) ------------------------------------------------------- */

/* Finds empty rows that get the same tokens as the row before them, which becomes their leader; they count as
 * fed. Returns true if there are any. */
bool gen_find_alike(by_generator *g, const int32_t *const *tokens, const int *counts);
by_status gen_take_over(by_generator *g); /* after the leaders were fed */

/* ---- sources (generator_sources.c) ------------------------------------------------------------ */

bool gen_has_sources(const by_generator *g);
by_status gen_make_sources(by_generator *g, int capacity); /* room for them; capacity 0: the context */
/* Makes the programs for sources of `length` positions, of pictures of this height, the current ones; 0 and
 * 0: no sources. */
by_status gen_enter_stage(by_generator *g, int length, int height);
by_status gen_check_stage(const by_generator *g); /* returns BY_ERR_ARGUMENT before the first source */
void gen_free_stage(gen_stage *s);

/* ---- passes over whole texts (generator_whole.c) ---------------------------------------------- */

gen_whole *gen_whole_new(const by_generator *g);
void gen_whole_free(gen_whole *w);
size_t gen_whole_bytes(const gen_whole *w);
by_status gen_feed_whole(by_generator *g, const int32_t *const *tokens, const int *counts);
by_status gen_greedy_whole(by_generator *g, const int32_t *tokens, const bool *active, int steps,
                           int32_t *out);

/* ---- sequences (sequences.c) ------------------------------------------------------------------ */

void gen_drop_sequences(by_generator *g); /* all of them */

#endif
