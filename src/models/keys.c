/* keys.c - keys of config.json that are common to all families: every key that a configuration class of the
 * reference library has (tests/data/config_keys.json), or had in a published file. */
#include "base/base.h"
#include "models/models.h"

static const arch_key common[] = {
    /* origin of the file, and runtime settings of the reference */
    {.key = "_name_or_path"},
    {.key = "name_or_path"},
    {.key = "transformers_version"},
    {.key = "model_type"},
    {.key = "architectures"},
    {.key = "auto_map"},
    {.key = "dtype"},
    {.key = "torch_dtype"},
    {.key = "torchscript"},
    {.key = "use_bfloat16"},
    {.key = "use_cache"},
    {.key = "return_dict"},
    {.key = "use_return_dict"},
    {.key = "output_attentions"},
    {.key = "output_hidden_states"},
    {.key = "output_past"},
    {.key = "gradient_checkpointing"},
    {.key = "chunk_size_feed_forward"}, /* the same computation in parts */
    {.key = "tokenizer_class"},
    {.key = "prefix"},
    {.key = "task_specific_params"},
    {.key = "finetuning_task"},
    /* labels */
    {.key = "id2label"},
    {.key = "label2id"},
    {.key = "num_labels"},
    {.key = "_num_labels"},
    {.key = "problem_type"},
    /* tokens */
    {.key = "bos_token_id"},
    {.key = "eos_token_id"},
    {.key = "pad_token_id"},
    {.key = "sep_token_id"},
    {.key = "cls_token_id"},
    {.key = "unk_token_id"},
    {.key = "mask_token_id"},
    {.key = "decoder_start_token_id"},
    /* generation: read there */
    {.key = "max_length"},
    {.key = "min_length"},
    {.key = "do_sample"},
    {.key = "early_stopping"},
    {.key = "num_beams"},
    {.key = "num_beam_groups"},
    {.key = "diversity_penalty"},
    {.key = "temperature"},
    {.key = "top_k"},
    {.key = "top_p"},
    {.key = "typical_p"},
    {.key = "repetition_penalty"},
    {.key = "length_penalty"},
    {.key = "no_repeat_ngram_size"},
    {.key = "encoder_no_repeat_ngram_size"},
    {.key = "bad_words_ids"},
    {.key = "num_return_sequences"},
    {.key = "output_scores"},
    {.key = "return_dict_in_generate"},
    {.key = "forced_bos_token_id"},
    {.key = "forced_eos_token_id"},
    {.key = "remove_invalid_values"},
    {.key = "exponential_decay_length_penalty"},
    {.key = "suppress_tokens"},
    {.key = "begin_suppress_tokens"},
    /* models that are not supported */
    {.key = "is_encoder_decoder", .neutral = "false"},
    {.key = "is_decoder", .neutral = "false"},
    {.key = "add_cross_attention", .neutral = "false"},
    {.key = "cross_attention_hidden_size", .neutral = "null"},
    {.key = "tie_encoder_decoder", .neutral = "false"},
    {.key = "tie_word_embeddings", .neutral = "true"},
    {.key = "pruned_heads", .neutral = "{}|null"},
    {.key = "position_embedding_type", .neutral = "\"absolute\"|null"},
    {.key = "quantization_config", .neutral = "null"},
};

const arch_key *arch_key_find(const arch_family *a, const char *key)
{
    for (int i = 0; i < a->n_fields; i++)
        if (strcmp(a->fields[i].key, key) == 0)
            return NULL;
    for (const arch_key *k = a->keys; k && k->key; k++)
        if (strcmp(k->key, key) == 0)
            return k;
    const char *dot = strrchr(key, '.'); /* a nested configuration, whose keys are those of a model */
    for (int i = 0; i < BY_COUNT(common); i++)
        if (strcmp(common[i].key, dot ? dot + 1 : key) == 0)
            return &common[i];
    return NULL;
}

bool arch_key_known(const arch_family *a, const char *key)
{
    const size_t n = strlen(key);
    for (int i = 0; i < a->n_fields; i++)
        if (strncmp(a->fields[i].key, key, n) == 0 &&
            (a->fields[i].key[n] == '\0' || a->fields[i].key[n] == '.'))
            return true;
    for (const arch_alias *l = a->aliases; l && l->key; l++)
        if (strcmp(l->key, key) == 0)
            return true;
    return arch_key_find(a, key) != NULL;
}
