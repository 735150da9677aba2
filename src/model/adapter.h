/* adapter.h - internals of adapters; the public interface is banyan/adapter.h. An adapter has its own list of
 * parameters. Their names are those of its file, which follow the reference library's modules
 * (arch_family.modules). While a model is built, a hook of the graph (gr_hook) sees every parameter, product
 * and look-up. It declares the adapter's parameters the first time, and adds them to the layer every time. */
#ifndef BY_MODEL_ADAPTER_H
#define BY_MODEL_ADAPTER_H

#include "graph/graph.h"
#include "model/model.h"

#define MODEL_ADAPTER_PREFIX "base_model.model."
#define MODEL_ADAPTER_PROMPT "prompt_embeddings"

/* The contents of adapter_config.json. The lists belong to the tree. */
typedef struct model_adapter_config {
    int64_t rank, prefix; /* prefix: positions before the text; 0: not a prefix or prompt */
    bool prompt;          /* their embeddings are trained; otherwise their keys and values */
    double alpha, dropout;
    bool ia3, rslora, dora;
    bool shifts; /* B has a bias (lora_bias) */
    enum { MODEL_BIAS_NONE, MODEL_BIAS_ADAPTED, MODEL_BIAS_ALL } bias;
    const cJSON *targets, *excluded;           /* a string or a list of strings; excluded: NULL: none */
    const cJSON *feedforward;                  /* IA3: the same; NULL: not IA3 */
    const cJSON *save;                         /* a list of strings, or NULL */
    const cJSON *layers, *layers_pattern;      /* a number or a list of numbers; strings; NULL: any */
    const cJSON *rank_pattern, *alpha_pattern; /* objects, or NULL */
    /* ids of tokens whose embeddings are trained: a list, or one list per table name; NULL: none */
    const cJSON *tokens;
} model_adapter_config;

/* An adapted layer with the weight W (outputs, inputs), A (r, inputs) and B (outputs, r). IA3 has one vector
 * in place of A. With a prefix there is one for every layer of the model, and A has the keys and values of
 * all of them. */
typedef struct model_target {
    int weight;     /* parameter of the body */
    bool embedding; /* look-ups of W^T are adapted, otherwise products */
    bool w_is_kn;   /* products: W is stored as (inputs, outputs) */
    int bias;       /* parameter of the body; -1: none */
    bool inputs;    /* IA3: scales inputs instead of outputs */
    int rank;
    double alpha, scale;
    int a, b, shift, magnitude; /* parameters of the adapter; -1: none. shift: the bias of B, (outputs) */
    int64_t width;              /* with a prefix: of keys and values; with a prompt: of its embeddings */
    int norms; /* not trained, (outputs): |W|^2 in training, otherwise magnitude / |W + scale B A|; -1: none */
} model_target;

/* A parameter of the body that the adapter replaces: a bias, or part of a module that is stored whole. */
typedef struct model_replaced {
    int body, own; /* index in the list of the body, of the adapter */
    bool tied;     /* a head's weights, where the body has only the tied table */
} model_replaced;

/* Rows of a table of the body that the adapter replaces. */
typedef struct model_tokens {
    int table;         /* parameter of the body */
    int rows, ids;     /* parameters of the adapter: (n, width), and (n), which is not trained */
    const cJSON *list; /* the ids */
} model_tokens;

/* The prompt in the graph under construction. */
typedef struct model_prompt {
    const by_tensor *ids;    /* placeholder tokens whose embeddings it replaces */
    by_tensor *past;         /* from the cache, or NULL */
    by_tensor **keys_values; /* for each layer, (1, N, C); heap */
    bool keeps;              /* the body is being built over the prompt alone */
} model_prompt;

struct by_adapter {
    by_model *model;
    by_adapter *next;
    cJSON *json; /* adapter_config.json */
    model_adapter_config config;
    by_params *params;
    bool training, declaring;
    bool old_names; /* the configuration uses a name that modules have only in files (arch_family.modules) */
    model_target *targets;
    int n_targets;
    model_replaced *replaced;
    int n_replaced;
    model_tokens *tokens;
    int n_tokens;
    int heads; /* with a prefix: of keys and values */
    model_prompt prompt;
    gr_hook hook;
    by_weights *file; /* open only while loading; with the tensor of each parameter */
    const by_weight **found;
    float **before; /* values of the body before merging, by parameter; NULL: not merged */
};

/* ---- adapter_config.c ------------------------------------------------------------------------- */

/* The configuration of a new adapter, and of the adapter in a folder. NULL on failure. */
cJSON *model_adapter_describe(const by_model *m, const by_adapter_spec *spec);
cJSON *model_adapter_read_config(const char *dir);
/* Reads a->json. Refuses unsupported settings that would change the result. */
by_status model_adapter_configure(by_adapter *a);
bool model_adapter_lists(const cJSON *list, const char *name,
                         size_t n); /* a list of names has the first n characters as a name */
/* The task of a configuration (task_type); BY_TASK_DEFAULT without one. */
by_task model_adapter_task(const cJSON *json);

/* ---- adapter_complete.c ----------------------------------------------------------------------- */

bool model_adapter_takes_all(const by_adapter *a); /* the targets are "all-linear" */
/* Completes the configuration once the layers are known: the modules of "all-linear", how their weights are
 * stored, and their names in the reference library. */
by_status model_adapter_complete(by_adapter *a);

/* ---- adapter_match.c -------------------------------------------------------------------------- */

/* Whether a name is the module's path or ends it after a dot. */
bool model_adapter_is_named(const char *module, const char *name);
/* The reference library's name of a module or parameter in a file. Its own paths stay as they are. */
bool model_adapter_path(const by_model *m, const char *path, base_buf *out);
/* The module of a parameter: its name without the last part. Returns false if the last part is not `part`. */
bool model_adapter_module(const char *name, const char *part, base_buf *out);
/* Whether the configuration adapts a module, and whether it stores a parameter's module whole. Paths are
 * those in model files; the configuration may use either spelling. An invalid regular expression is an error
 * and sets *out to false. */
by_status model_adapter_matches(by_adapter *a, const char *module, bool *out);
by_status model_adapter_saves(by_adapter *a, const char *parameter, bool *out);
/* Called once the layers are known. Fails, naming it, if one of the first `count` modules to save does not
 * exist. */
by_status model_adapter_check_saved(by_adapter *a, int count);
/* Whether IA3 scales the inputs of an adapted module. */
by_status model_adapter_scales_inputs(by_adapter *a, const char *module, bool *out);
/* Rank, alpha and scale of an adapted module. */
by_status model_adapter_scale(by_adapter *a, const char *module, model_target *t);

/* ---- adapter_layers.c ------------------------------------------------------------------------- */

gr_hook model_adapter_hook(by_adapter *a);
/* own: a parameter of the adapter under a module's name. declared: the leaf of a declared parameter. fix:
 * marks a parameter that is neither trained nor saved. */
by_tensor *model_adapter_own(by_graph *g, const by_adapter *a, const char *module, const char *part, int rank,
                             const int64_t *shape, by_init init);
by_tensor *model_adapter_declared(by_graph *g, by_params *p, int i);
void model_adapter_fix(by_adapter *a, by_tensor *t);
/* Whether several modules of the reference library share a table. An adapter would belong to only one of
 * them. */
bool model_adapter_is_shared(const by_adapter *a, const char *name);

/* ---- adapter_tokens.c ------------------------------------------------------------------------- */

/* The trained tokens of a table, or NULL. */
const model_tokens *model_tokens_of(by_graph *g, by_adapter *a, const by_tensor *table);
/* look_up: replaces the rows of trained tokens in y, the result of a look-up by these ids. table: replaces
 * them in the table. */
by_tensor *model_tokens_look_up(by_graph *g, const by_adapter *a, const model_tokens *t, by_tensor *y,
                                by_tensor *ids);
by_tensor *model_tokens_table(by_graph *g, const by_adapter *a, const model_tokens *t, by_tensor *table);
/* Called once the layers are known. Fails, naming it, if an embedding does not exist. */
by_status model_tokens_check(const by_adapter *a);
by_status model_tokens_derive(by_adapter *a);
/* Copies the rows between a table of this width and the adapter. */
void model_tokens_copy(const model_tokens *t, int64_t width, float *table, float *rows, bool into_table);

/* ---- adapter_prefix.c ------------------------------------------------------------------------- */

gr_hook model_prefix_hook(by_adapter *a);
/* Number of positions before every text; 0: none. a may be NULL. */
int model_adapter_prefix(const by_adapter *a);

/* ---- adapter_prompt.c ------------------------------------------------------------------------- */

gr_hook model_prompt_hook(by_adapter *a);
/* Called before the body is built. Builds the body over the prompt alone unless there is a cache. Does
 * nothing for other adapters. a may be NULL. */
void model_prompt_begin(by_adapter *a, by_graph *g, const by_model_io *io);

/* Shared with prefixes. fits: whether the attention belongs to a decoder and can have keys before those of
 * the text; otherwise an error of the graph. before: (N, C) as the first rows of (B, N + T, C). over:
 * replaces the first N positions of a cache by rows (N, C), where x (B, T, C) follows `past` positions. */
bool model_prefix_fits(by_graph *g, const by_adapter *a, const by_attention_spec *s);
by_tensor *model_prefix_before(by_graph *g, by_tensor *rows, by_tensor *x);
by_tensor *model_prefix_over(by_graph *g, by_tensor *rows, by_tensor *past, by_tensor *x);

/* ---- adapter_values.c ------------------------------------------------------------------------- */

/* Initial values of a new adapter, and values derived from its parameters and the body's. */
by_status model_adapter_init(by_adapter *a, uint64_t seed);
by_status model_adapter_derive(by_adapter *a);

/* ---- adapter_folder.c ------------------------------------------------------------------------- */

/* Finds the tensors of all declared parameters in the folder's file, which must have no others. Called before
 * buffers are allocated, so that a configuration cannot allocate more than the file has. load() reads the
 * values and closes the file. */
by_status model_adapter_match(by_adapter *a, const char *dir);
by_status model_adapter_load(by_adapter *a);
void model_adapter_close(by_adapter *a);
bool model_adapter_is_folder(const char *dir);
/* The number of labels of the head in a folder; 0: no head with a known name. */
int model_adapter_labels(const char *dir);

#endif
