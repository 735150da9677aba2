/* generator.h - inside the generator. generator.c has its life and what callers ask of it, generator_pass.c the
 * programs that extend the cache, generator_sources.c the encoders of encoder-decoders, generator_loop.c
 * decoding without the host, generator_share.c rows that begin alike, sequences.c the sequences that come and go. */
#ifndef BY_INFER_GENERATOR_H
#define BY_INFER_GENERATOR_H

#include "banyan/adapter.h"
#include "banyan/generate.h"
#include "base/base.h"
#include "nn/cache.h"

enum { GEN_WIDTHS = 4 }; /* of passes: 1, 16, 64 and 256 tokens */
extern const int gen_widths[GEN_WIDTHS];
enum { GEN_GREEDY = 0, GEN_DRAWN = -1 }; /* in place of a width */

/* A program that takes T new positions of B sequences, whichever they are, and its tensors. */
typedef struct gen_pass {
    by_program *program;         /* NULL: not compiled yet */
    int rows, width;             /* B, T; or GEN_GREEDY, GEN_DRAWN: a step of the loop on the device */
    bool reorders;               /* rows take over what others of their group hold */
    int top;                     /* k of keep_top when it was compiled */
    by_tensor *tokens;           /* (B, T) */
    by_tensor *positions;        /* (B, T) */
    by_tensor *past;             /* (B) positions the cache holds */
    by_tensor *pick;             /* (B) flat index of the last real token */
    by_tensor *pages;            /* (B, columns); NULL: all rows in order, each in its page */
    by_tensor *from;             /* (B) whose positions a row takes over first; NULL: rows stay */
    by_tensor *sources;          /* (B / beams) whose source a group has; NULL: its own, or there are none */
    by_tensor *reads, *valid;    /* of recurrent models: by_cache, */
    by_tensor *places;           /* and (batch); NULL: all rows in order */
    by_tensor *logits;           /* (B, V) there */
    by_tensor *features;         /* (B, T, C); NULL: nobody watches */
    by_tensor *best, *ids, *lse; /* (B, k), (B, k), (B): the highest of them; NULL with k = 0 */
} gen_pass;

/* The programs for sources of one length. */
typedef struct gen_stage {
    int length; /* S; 0: there are no sources */
    int height; /* of pictures, which two of one length may differ in; 0: sources are texts */
    gen_pass **passes;
    int n_passes;
    by_program *encoder; /* NULL: not compiled yet */
    by_tensor *source, *source_mask;
} gen_stage;

/* A sequence: what the cache holds of it, and where its logits are. */
typedef struct gen_row {
    int32_t past;      /* positions */
    int pages;         /* that are its own; 0 where every row has the one of its number */
    int from;          /* the row to take over, as by_generator_reorder asked for and no pass has done yet */
    int fed, take;     /* tokens of the present call that are fed, and that the present pass takes */
    bool known;        /* there are logits of its last position */
    gen_pass *where;   /* the pass that still has them; NULL: they are in gen_output */
    int there;         /* the row of that pass that has them */
    int slot;          /* its row in the present pass */
    int leader;        /* the row that is fed in its place in the present call; its own number: none */
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

/* What comes out of passes: of every sequence, and of the last pass. */
typedef struct gen_output {
    float *logits, *fresh;                /* (B, V), NULL until they are needed */
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

/* What a decoding step that ends where the next begins keeps. */
typedef struct gen_loop {
    by_memory *tokens, *positions, *past, *log; /* (B), (B), (B), (1 + 32 B) */
    by_memory *draws, *temperature;             /* (B, 5), (B): see by_draw; NULL: nothing was drawn yet */
    int32_t *out;                               /* (32 B) */
} gen_loop;

/* The program by which rows take over what another row was fed. */
typedef struct gen_share {
    by_program *program;    /* NULL: not compiled yet */
    by_tensor *from, *past; /* (B) */
} gen_share;

/* Hears of the tokens that a row was fed, with their hidden states (count, width). */
typedef struct gen_watch {
    by_status (*fed)(void *user, int row, const int32_t *tokens, int count, const float *states, int width);
    void *user;
} gen_watch;
/* What a generator of whole passes holds in place of a cache. */
typedef struct gen_whole gen_whole;

struct by_generator {
    by_model *model;
    by_adapter *adapter; /* that the model used when the generator was made; NULL: none */
    int batch, beams, capacity, vocab;
    int prefix;      /* positions that the adapter puts before every text; rows do not count them */
    int n_widths;    /* of gen_widths, those of use with this capacity */
    nn_store *store; /* the memory of keys and values, */
    int32_t *table;  /* (batch, columns) and the pages of every row in it */
    int columns;     /* pages that a row can have; 1: its own, for good */
    int ring;        /* pages that a row uses in turn, for good, as its queries see no further; 0: none */
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

/* by_model_build with the generator's own adapter, whichever the model uses now. */
void gen_build(const by_generator *g, by_graph *graph, by_model_io *io);

/* ---- passes (generator_pass.c) ---------------------------------------------------------------- */

/* Choose the rows of a pass: the first `per` of every group that acts (in.acts), and of others until their
 * number is one that there are passes for. Returns it. */
int gen_choose_rows(by_generator *g, int per);
/* The pass of this kind among those of the present stage, perhaps not compiled yet. NULL: out of memory. */
gen_pass *gen_find_pass(by_generator *g, int rows, int width, bool reorders);
/* What a graph sees of the cache. Adds the inputs of the pass that name rows and sources. */
by_cache gen_view(by_generator *g, by_graph *graph, gen_pass *p, by_tensor *past);
by_status gen_write_view(by_generator *g, gen_pass *p); /* these inputs, for the rows that were chosen */
/* Memory for the cache up to position past + more[b] of every row; `more` NULL: gives back what is not
 * needed. BY_ERR_MEMORY: there are not enough pages, and none was taken. */
by_status gen_reserve(by_generator *g, const int *more);
/* What the adapter puts before the text of rows that are empty and get tokens: counts of them, or `active`, the other NULL. */
by_status gen_feed_prefix(by_generator *g, const int *counts, const bool *active);
by_status gen_feed(by_generator *g, const int32_t *const *tokens, const int *counts);
/* The highest place of a token: that of the context, where a table of positions ends. */
int gen_last_place(const by_generator *g);
by_status gen_need_logits(by_generator *g); /* room for whole rows of them */
void gen_free_top(gen_output *o);

/* ---- rows that begin alike (generator_share.c) ------------------------------------------------ */

/* Empty rows that get the same tokens as the row before them: that one is their leader, and they count as fed. Whether there are any. */
bool gen_find_alike(by_generator *g, const int32_t *const *tokens, const int *counts);
by_status gen_take_over(by_generator *g); /* after the leaders were fed */

/* ---- sources (generator_sources.c) ------------------------------------------------------------ */

bool gen_has_sources(const by_generator *g);
by_status gen_make_sources(by_generator *g, int capacity); /* room for them; capacity 0: the context */
/* The programs for sources of `length` positions, of pictures of this height, become the present ones; 0 and 0: there are no
 * sources. */
by_status gen_enter_stage(by_generator *g, int length, int height);
by_status gen_check_stage(const by_generator *g); /* BY_ERR_ARGUMENT before the first source */
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
