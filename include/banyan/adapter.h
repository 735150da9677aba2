/* adapter.h - adapters: few parameters that are trained beside the frozen ones of a model. LoRA (Hu et al. 2021), rsLoRA
 * (Kalajdzievski 2023) and DoRA (Liu et al. 2024) on linear layers and embeddings of any family, IA3 (Liu et al. 2022) on linear
 * layers, prefixes (Li & Liang 2021) and prompts (Lester et al. 2021), in the folders of PEFT (adapter_config.json,
 * adapter_model.safetensors). docs/ADAPTERS.md has the equations. */
#ifndef BANYAN_ADAPTER_H
#define BANYAN_ADAPTER_H

#include "banyan/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_adapter by_adapter;

/* A new adapter. Lists of names are separated by commas. Members that are zero mean the default. */
struct by_adapter_spec {
    int rank;     /* r; 0: 8 */
    double alpha; /* the product of both matrices is scaled by alpha / r; 0: r */
    bool rslora;  /* by alpha / sqrt(r) instead */
    bool dora;    /* with a trained magnitude for every output */
    double dropout;
    /* Layers to adapt: "all-linear" (all but the output head); names, each the end of a layer's path; or a regular
     * expression, which has one of the characters * ? | ( ) [ ] \ ^ $, for the whole path. NULL: the layers that are usual
     * for the family.
     * Names are those in files of models or, where these differ, those of modules in the reference library. */
    const char *targets;
    const char *save; /* modules that are trained and stored whole, besides a new head; NULL: none */
    /* biases that are trained: "none", "lora_only" (of adapted layers), "all"; NULL: "none" */
    const char *bias;
    const char *layers; /* numbers of the layers whose targets are adapted; NULL: all */
    const char *tokens; /* ids of tokens whose embeddings are trained, for a tied head too; NULL: none */
    /* IA3 in place of LoRA: a factor for each output of a target. Of the members above, only targets and save are for IA3. */
    bool ia3;
    /* Of IA3: names or an expression, as in targets, of the targets whose inputs are scaled, not their outputs. Names are ends of
     * paths and, in a list beside a list of targets, must be among those. "": none; NULL: those that are usual for the family */
    const char *feedforward;
    /* Prefix tuning (Li & Liang 2021) in place of LoRA: keys and values of so many positions stand before every text, in all layers of
     * a decoder that writes text. Its context is shorter by them. 0: none */
    int prefix;
    /* Prompt tuning (Lester et al. 2021) in place of LoRA: the number of positions before every text whose embeddings are trained. They
     * start as the embeddings of random tokens. 0: none */
    int prompt;
    uint64_t seed; /* of the initial values */
    bool blank;    /* they stay zero: for a look at its shape */
};

/* Adds an adapter with initial values, which change nothing yet, or the adapter in a folder. The model owns it and uses it from now
 * on. For training, the model must not have been opened for training: its parameters get no gradients, the adapter's
 * do. Returns NULL on failure. by_model_spec.adapter and by_model_open() of such a folder do this when a model is opened. */
BY_API by_adapter *by_adapter_new(by_model *m, const by_adapter_spec *spec, bool training);
BY_API by_adapter *by_adapter_open(by_model *m, const char *dir, bool training);
/* Removes an adapter from its model. Passes and generators that were made with it must be freed before. by_model_free() removes
 * those that are left. */
BY_API void by_adapter_free(by_adapter *a);

/* Selects the adapter that passes and generators use that are made from now on; NULL: none, the model alone. Nothing is loaded or
 * copied. by_passes keeps the compiled passes of each adapter. */
BY_API void by_model_use(by_model *m, by_adapter *a);
BY_API by_adapter *by_model_adapter(const by_model *m); /* the selected one, or NULL */

/* Writes adapter_config.json and adapter_model.safetensors, in f32, into a folder, which is created if missing. */
BY_API by_status by_adapter_save(const by_adapter *a, const char *dir);

/* Adds the adapter to the weights of its model, which must have been opened with `copy` or on a GPU and not be of blocks. The model
 * alone then computes what it computed with the adapter. unmerge() restores the weights to the bit: their old values are kept in host
 * memory. BY_ERR_UNSUPPORTED where an adapted table is tied to a head that the adapter does not adapt. */
BY_API by_status by_adapter_merge(by_adapter *a);
BY_API by_status by_adapter_unmerge(by_adapter *a);

/* The adapter's parameters, under the names of its file. */
BY_API by_params *by_adapter_params(const by_adapter *a);
/* Number of adapted layers. */
BY_API int by_adapter_layers(const by_adapter *a);
/* The parameters that training changes: those of the selected adapter if it is for training, else the model's. */
BY_API by_params *by_model_trained(const by_model *m);

/* The model directory that the adapter in a folder was trained for, as a heap string (by_string_free): a path relative to the working
 * directory or to the folder. NULL if the folder has no adapter_config.json or names no directory that is there. */
BY_API char *by_adapter_base(const char *dir);

#ifdef __cplusplus
}
#endif
#endif
