/* generator.h - inside the generator, which is in three files: generator.c feeds tokens into the cache,
 * generator_sources.c runs the encoders of encoder-decoders, generator_greedy.c decodes without the host. */
#ifndef BY_INFER_GENERATOR_H
#define BY_INFER_GENERATOR_H

#include "banyan/generate.h"
#include "base/base.h"
#include "nn/nn.h"

enum { GEN_WIDTHS = 4 };                      /* of passes: 1, 16, 64 and 256 tokens */
enum { GEN_LEVELS = 6 };                      /* all groups, half of them, a quarter, ... */
enum { GEN_LEADERS = GEN_LEVELS, GEN_KINDS }; /* and the first row of every group alone, for prompts */

/* A program that takes T new positions of the first B rows, or of every stride-th, and its tensors. */
typedef struct gen_pass {
    by_program *program;    /* NULL: not compiled yet */
    int rows, top;          /* B, and k of keep_top when it was compiled */
    int stride;             /* row b of it is row b * stride of the generator */
    by_tensor *tokens;      /* (B, T) */
    by_tensor *positions;   /* (B, T) */
    by_tensor *past;        /* (B) positions the cache holds */
    by_tensor *pick;        /* (B) flat index of the last real token */
    by_tensor *from;        /* (B) whose positions a row takes over first; NULL: rows cannot be reordered */
    by_tensor *source_from; /* (B / beams) whose source a group does; NULL: there are none */
    by_tensor *logits;      /* (B, V) there */
    by_tensor *best, *ids, *lse; /* (B, k), (B, k), (B): the highest of them; NULL with k = 0 */
} gen_pass;

/* What a decoding step that ends where the next begins keeps. */
typedef struct gen_loop {
    by_memory *tokens, *positions, *past, *log; /* (B), (B), (B), (1 + 32 B) */
} gen_loop;

/* The programs for sources of one length. */
typedef struct gen_stage {
    int length; /* S; 0: there are no sources */
    gen_pass passes[GEN_KINDS][GEN_WIDTHS];
    by_program *greedy;  /* a step of the loop; NULL: not compiled yet */
    by_program *encoder; /* NULL: not compiled yet */
    by_tensor *source, *source_mask;
} gen_stage;

struct by_generator {
    by_model *model;
    int batch, capacity, vocab, beams;
    int n_widths; /* of widths[], those of use with this capacity */
    nn_cache *cache;
    gen_stage **stages;
    int n_stages;
    gen_stage *now; /* the one of the present sources */
    gen_loop greedy;
    by_memory *mask;                /* (N, S) of the sources, on the device */
    int32_t *sources, *source_mask; /* (N, S), of encoder-decoders alone */
    int source_capacity;
    int32_t *source_from;  /* (N) */
    int32_t *past;         /* (B) positions every row holds */
    int32_t *from;         /* (B) what by_generator_reorder asked for and no pass has done yet */
    bool *known;           /* (B) its logits are those of its last position */
    gen_pass **where;      /* (B) the pass that still has them; NULL: they are here */
    float *logits, *fresh; /* (B, V): of every row, and of the last pass; NULL until they are needed */
    int top;               /* highest logits that are kept of a row, 0: all */
    by_top_logits *tops;   /* (B) */
    float *best, *fresh_best, *fresh_lse; /* (B, k), (B, k), (B) */
    int32_t *ids, *fresh_ids;             /* (B, k), (B, k) */
    int32_t *tokens, *positions;          /* (B, widest) what goes into a pass */
    int32_t *pick, *starts;               /* (B), (B): positions held by its rows */
    int *done;                            /* (B) tokens already fed of the present call */
};

/* Nothing is left to reorder. */
void gen_stand_still(by_generator *g);

/* ---- sources (generator_sources.c) ------------------------------------------------------------ */

bool gen_has_sources(const by_generator *g);
by_status gen_make_sources(by_generator *g, int capacity); /* room for them; capacity 0: the context */
/* The programs for sources of so many tokens become the present ones; 0: there are no sources. */
by_status gen_enter_stage(by_generator *g, int length);
by_status gen_check_stage(const by_generator *g); /* BY_ERR_ARGUMENT before the first source */
void gen_free_stage(gen_stage *s);
/* Tell the cache what a graph of so many rows will find there. */
void gen_use_sources(by_generator *g, by_graph *graph, int rows);
by_status gen_move_sources(by_generator *g); /* with their groups, as by_generator_reorder asked for */

/* The highest place of a token: that of the context, where a table of positions ends. */
int gen_last_place(const by_generator *g);

#endif
