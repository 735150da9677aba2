/* adapter.h - internals of adapters. The public interface is banyan/adapter.h. An adapter has a list of parameters of its own, under the
 * names of its file, which are those of modules in the reference library (arch_family.modules). While a model is built, a hook of the
 * graph (gr_hook) sees every parameter, product and look-up: it declares the adapter's parameters the first time and joins them to the
 * layer each time. */
#ifndef BY_MODEL_ADAPTER_H
#define BY_MODEL_ADAPTER_H

#include "graph/graph.h"
#include "model/model.h"

#define MODEL_ADAPTER_PREFIX "base_model.model."
#define MODEL_ADAPTER_PROMPT "prompt_embeddings"

/* adapter_config.json, taken apart. The lists are members of the tree. */
typedef struct model_adapter_config {
    int64_t rank, prefix; /* prefix: positions before the text; 0: another method */
    bool prompt;          /* their embeddings are trained; otherwise their keys and values */
    double alpha, dropout;
    bool ia3, rslora, dora;
    bool shifts; /* B has a bias (lora_bias) */
    enum { MODEL_BIAS_NONE, MODEL_BIAS_ADAPTED, MODEL_BIAS_ALL } bias;
    const cJSON *targets, *excluded;           /* a string or a list of strings; excluded: NULL: none */
    const cJSON *feedforward;                  /* of IA3: the same; NULL: not IA3 */
    const cJSON *save;                         /* a list of strings, or NULL */
    const cJSON *layers, *layers_pattern;      /* a number or a list of numbers; strings; NULL: any */
    const cJSON *rank_pattern, *alpha_pattern; /* objects, or NULL */
    const cJSON *
        tokens; /* ids of tokens whose embeddings are trained: a list, or lists by the name of a table; NULL: none */
} model_adapter_config;

/* An adapted layer. W is its weight, of outputs by inputs: A (r, inputs), B (outputs, r). IA3 has one vector in place of A. With
 * a prefix, every layer of the model is one: A has the keys and values of all of them. */
typedef struct model_target {
    int weight;     /* parameter of the body */
    bool embedding; /* look-ups of W^T are adapted; otherwise products */
    bool w_is_kn;   /* products: W is stored as (inputs, outputs) */
    int bias;       /* parameter of the body; -1: none */
    bool inputs;    /* of IA3: the inputs are scaled, not the outputs */
    int rank;
    double alpha, scale;
    int a, b, shift, magnitude; /* parameters of the adapter; -1: none. shift: the bias of B, (outputs) */
    int64_t width; /* with a prefix: of the keys, and of the values; of the embeddings of a prompt */
    int norms;     /* fixed, of outputs: |W|^2 in training, otherwise magnitude / |W + scale B A|; -1: none */
} model_target;

/* A parameter of the body that has other values with the adapter: of a module that is stored whole, or a bias. */
typedef struct model_replaced {
    int body, own; /* index in the list of the body, of the adapter */
    bool tied;     /* the weights of a head, where the body's parameter is the table that it is tied to */
} model_replaced;

/* Rows of a table of the body that have other values with the adapter. */
typedef struct model_tokens {
    int table;         /* parameter of the body */
    int rows, ids;     /* parameters of the adapter: (n, width), and fixed, (n) */
    const cJSON *list; /* the ids */
} model_tokens;

/* A prompt in the graph that is being built. */
typedef struct model_prompt {
    const by_tensor *ids;    /* the tokens whose embeddings it replaces */
    by_tensor *past;         /* the cache's, or NULL */
    by_tensor **keys_values; /* of each layer, (1, N, C); heap */
    bool keeps;              /* the body is being built over the prompt alone */
} model_prompt;

struct by_adapter {
    by_model *model;
    by_adapter *next;
    cJSON *json; /* adapter_config.json */
    model_adapter_config config;
    by_params *params;
    bool training, declaring;
    bool old_names; /* the configuration has a name that modules have in files alone (arch_family.modules) */
    model_target *targets;
    int n_targets;
    model_replaced *replaced;
    int n_replaced;
    model_tokens *tokens;
    int n_tokens;
    int heads; /* with a prefix: of keys and values */
    model_prompt prompt;
    gr_hook hook;
    by_weights *file; /* while it is opened; with the tensor of each parameter */
    const by_weight **found;
    float **before; /* values of the body before the adapter was merged, by parameter; NULL: it is not merged */
};

/* ---- adapter_config.c ------------------------------------------------------------------------- */

/* The configuration of a new adapter, and of the one in a folder. NULL on failure. */
cJSON *model_adapter_describe(const by_model *m, const by_adapter_spec *spec);
cJSON *model_adapter_read_config(const char *dir);
/* Takes a->json apart. Refuses what would change the result and is not supported. */
by_status model_adapter_configure(by_adapter *a);
bool model_adapter_lists(const cJSON *list, const char *name,
                         size_t n); /* a list has the first n characters as a name */
/* The task of a configuration (task_type); BY_TASK_DEFAULT if it has none. */
by_task model_adapter_task(const cJSON *json);

/* ---- adapter_complete.c ----------------------------------------------------------------------- */

bool model_adapter_takes_all(const by_adapter *a); /* the targets are "all-linear" */
/* What is known once the layers were found: the list of "all-linear", how their weights are stored, and what the reference library
 * calls them. */
by_status model_adapter_complete(by_adapter *a);

/* ---- adapter_match.c -------------------------------------------------------------------------- */

/* Whether a name is the module's path or its end, after a dot. */
bool model_adapter_is_named(const char *module, const char *name);
/* What the reference library calls a module or parameter of a file. A path of the reference library is left as it is. */
bool model_adapter_path(const by_model *m, const char *path, base_buf *out);
/* The module that a parameter belongs to: its name without the last part. False if that is not `part`. */
bool model_adapter_module(const char *name, const char *part, base_buf *out);
/* Whether the configuration adapts a module, and whether it stores the module of a parameter whole. The paths are those in files of
 * models; the configuration may have either names. An invalid regular expression is an error: then *out is false. */
by_status model_adapter_matches(by_adapter *a, const char *module, bool *out);
by_status model_adapter_saves(by_adapter *a, const char *parameter, bool *out);
/* Once the layers are known: an error names the first of the `count` first modules to be saved that is not there. */
by_status model_adapter_check_saved(by_adapter *a, int count);
/* Whether IA3 scales the inputs of an adapted module. */
by_status model_adapter_scales_inputs(by_adapter *a, const char *module, bool *out);
/* Rank, alpha and scale of an adapted module. */
by_status model_adapter_scale(by_adapter *a, const char *module, model_target *t);

/* ---- adapter_layers.c ------------------------------------------------------------------------- */

gr_hook model_adapter_hook(by_adapter *a);
/* A parameter of the adapter under a module's name, and the leaf of one that has been declared; one that is neither trained nor saved. */
by_tensor *model_adapter_own(by_graph *g, const by_adapter *a, const char *module, const char *part, int rank,
                             const int64_t *shape, by_init init);
by_tensor *model_adapter_declared(by_graph *g, by_params *p, int i);
void model_adapter_fix(by_adapter *a, by_tensor *t);
/* A table that several modules share in the reference library: an adapter would be of one of them. */
bool model_adapter_is_shared(const by_adapter *a, const char *name);

/* ---- adapter_tokens.c ------------------------------------------------------------------------- */

/* The trained tokens of a table, or NULL. */
const model_tokens *model_tokens_of(by_graph *g, by_adapter *a, const by_tensor *table);
/* What was looked up of the table by these ids, with the rows of the trained tokens; the table with them. */
by_tensor *model_tokens_look_up(by_graph *g, const by_adapter *a, const model_tokens *t, by_tensor *y,
                                by_tensor *ids);
by_tensor *model_tokens_table(by_graph *g, const by_adapter *a, const model_tokens *t, by_tensor *table);
/* Once the layers were found: an error names an embedding that is not there. */
by_status model_tokens_check(const by_adapter *a);
by_status model_tokens_derive(by_adapter *a);
/* Copies the rows between a table of this width and the adapter. */
void model_tokens_copy(const model_tokens *t, int64_t width, float *table, float *rows, bool into_table);

/* ---- adapter_prefix.c ------------------------------------------------------------------------- */

gr_hook model_prefix_hook(by_adapter *a);
/* Positions before every text; 0: none. a may be NULL. */
int model_adapter_prefix(const by_adapter *a);

/* ---- adapter_prompt.c ------------------------------------------------------------------------- */

gr_hook model_prompt_hook(by_adapter *a);
/* Comes before the body is built: builds it over the prompt alone, unless there is a cache. Nothing for other adapters. a may be NULL. */
void model_prompt_begin(by_adapter *a, by_graph *g, const by_model_io *io);

/* Shared with prefixes: a decoder whose attention can have keys before those of its text, else an error of the graph; (N, C) as the
 * first rows of (B, N + T, C); rows (N, C) in the place of the first N positions that a cache holds, where x (B, T, C) comes after past
 * others. */
bool model_prefix_fits(by_graph *g, const by_adapter *a, const by_attention_spec *s);
by_tensor *model_prefix_before(by_graph *g, by_tensor *rows, by_tensor *x);
by_tensor *model_prefix_over(by_graph *g, by_tensor *rows, by_tensor *past, by_tensor *x);

/* ---- adapter_values.c ------------------------------------------------------------------------- */

/* Initial values of a new adapter; what follows from its values and those of the body. */
by_status model_adapter_init(by_adapter *a, uint64_t seed);
by_status model_adapter_derive(by_adapter *a);

/* ---- adapter_folder.c ------------------------------------------------------------------------- */

/* Finds the tensors of all declared parameters in the folder's file, and nothing else. Before the buffers are made, so that a
 * configuration allocates nothing that the file does not have. load() reads their values and closes the file. */
by_status model_adapter_match(by_adapter *a, const char *dir);
by_status model_adapter_load(by_adapter *a);
void model_adapter_close(by_adapter *a);
bool model_adapter_is_folder(const char *dir);
/* How many labels the head in a folder predicts; 0: it has no head of a known name. */
int model_adapter_labels(const char *dir);

#endif
