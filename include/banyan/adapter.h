/* adapter.h - adapters: small sets of parameters trained while those of the model are frozen. LoRA (Hu et al.
 * 2021), rsLoRA (Kalajdzievski 2023) and DoRA (Liu et al. 2024) on linear layers and embeddings of any
 * family, IA3 (Liu et al. 2022) on linear layers, prefixes (Li & Liang 2021) and prompts (Lester et al.
 * 2021), stored in PEFT's format (adapter_config.json, adapter_model.safetensors). docs/ADAPTERS.md has the
 * equations. */
#ifndef BANYAN_ADAPTER_H
#define BANYAN_ADAPTER_H

#include "banyan/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_adapter by_adapter;

/* The settings of a new adapter. Lists of names are separated by commas. Zero members mean the default. */
struct by_adapter_spec {
    int rank;     /* r; 0: 8 */
    double alpha; /* the product of both matrices is scaled by alpha / r; 0: r */
    bool rslora;  /* by alpha / sqrt(r) instead */
    bool dora;    /* with a trained magnitude per output */
    double dropout;
    /* Layers to adapt: "all-linear" (all but the output head); names, each the end of a layer's path; or a
     * regular expression (recognised by one of the characters * ? | ( ) [ ] \ ^ $) for the whole path. NULL:
     * the usual layers for the family. Names are those in model files or, where these differ, those of
     * modules in the reference library. */
    const char *targets;
    const char *save; /* modules to train and store in full, besides a new head; NULL: none */
    /* biases to train: "none", "lora_only" (of adapted layers), "all"; NULL: "none" */
    const char *bias;
    const char *layers; /* layer numbers to which targets are limited; NULL: all */
    const char *tokens; /* ids of tokens whose embeddings are trained, also in a tied head; NULL: none */
    /* IA3 in place of LoRA: a factor for each output of a target. Of the members above, only targets and save
     * apply. */
    bool ia3;
    /* IA3: the targets whose inputs are scaled instead of their outputs, as names or an expression as in
     * targets. Names are ends of paths; if both members are lists, these names must be among the targets. "":
     * none; NULL: the usual ones for the family */
    const char *feedforward;
    /* Prefix tuning (Li & Liang 2021) in place of LoRA: the number of positions with trained keys and values
     * before every text, in all layers of a language-model decoder. They reduce its context. 0: none */
    int prefix;
    /* Prompt tuning (Lester et al. 2021) in place of LoRA: the number of positions with trained embeddings
     * before every text, initialised with the embeddings of random tokens. 0: none */
    int prompt;
    uint64_t seed; /* of the initial values */
    bool blank;    /* they stay zero: to inspect the shape */
};

/* Adds a new adapter, whose initial values do not change the model's outputs, or the adapter in a folder. The
 * model owns it and selects it. If the adapter is to be trained, the model must not have been opened for
 * training: only the adapter's parameters get gradients. Returns NULL on failure. by_model_spec.adapter and
 * by_model_open() of an adapter folder do this when a model is opened. */
BY_API by_adapter *by_adapter_new(by_model *m, const by_adapter_spec *spec, bool training);
BY_API by_adapter *by_adapter_open(by_model *m, const char *dir, bool training);
/* Removes an adapter from its model. Passes and generators created with it must be freed first.
 * by_model_free() removes the remaining adapters. */
BY_API void by_adapter_free(by_adapter *a);

/* Selects the adapter for passes and generators created after the call; NULL selects the model without an
 * adapter. Nothing is loaded or copied. by_passes keeps the compiled passes of each adapter. */
BY_API void by_model_use(by_model *m, by_adapter *a);
BY_API by_adapter *by_model_adapter(const by_model *m); /* the selected one, or NULL */

/* Writes adapter_config.json and adapter_model.safetensors, in f32, into a folder, which is created if
 * missing. */
BY_API by_status by_adapter_save(const by_adapter *a, const char *dir);

/* Adds the adapter to the weights of its model, which must have been opened with `copy` or on a GPU and
 * without block quantisation. The merged model computes the same without the adapter. unmerge() restores the
 * weights exactly, from a copy in host memory. Fails with BY_ERR_UNSUPPORTED if an adapted table is tied to a
 * head that the adapter does not adapt. */
BY_API by_status by_adapter_merge(by_adapter *a);
BY_API by_status by_adapter_unmerge(by_adapter *a);

/* The adapter's parameters, named as in its file. */
BY_API by_params *by_adapter_params(const by_adapter *a);
/* Number of adapted layers. */
BY_API int by_adapter_layers(const by_adapter *a);
/* The parameters to train: those of the selected adapter if it was opened for training, otherwise the
 * model's. */
BY_API by_params *by_model_trained(const by_model *m);

/* The model directory that the adapter in a folder was trained for, as a heap string (by_string_free): a path
 * relative to the working directory or to the folder. NULL if the folder has no adapter_config.json or the
 * directory does not exist. */
BY_API char *by_adapter_base(const char *dir);

#ifdef __cplusplus
}
#endif
#endif
