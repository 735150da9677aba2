/* generation_keys.c - one table of all keys of the reference's GenerationConfig. */
#include "infer/generation_keys.h"

#include "base/json.h"

/* Neutral values besides null: a number, false (0) or an empty list. */
static const struct {
    const char *name;
    by_generation_key kind;
    double neutral;
} keys[] = {
    {"max_length", BY_KEY_READ, 0},
    {"max_new_tokens", BY_KEY_READ, 0},
    {"min_length", BY_KEY_READ, 0},
    {"min_new_tokens", BY_KEY_READ, 0},
    {"early_stopping", BY_KEY_READ, 0},
    {"do_sample", BY_KEY_READ, 0},
    {"num_beams", BY_KEY_READ, 0},
    {"num_beam_groups", BY_KEY_NEUTRAL, 1},
    {"diversity_penalty", BY_KEY_NEUTRAL, 0},
    {"num_return_sequences", BY_KEY_READ, 0},
    {"temperature", BY_KEY_READ, 0},
    {"top_k", BY_KEY_READ, 0},
    {"top_p", BY_KEY_READ, 0},
    {"min_p", BY_KEY_READ, 0},
    {"typical_p", BY_KEY_READ, 0},
    {"repetition_penalty", BY_KEY_READ, 0},
    {"length_penalty", BY_KEY_READ, 0},
    {"no_repeat_ngram_size", BY_KEY_READ, 0},
    {"bad_words_ids", BY_KEY_READ, 0},
    {"forced_bos_token_id", BY_KEY_READ, 0},
    {"forced_eos_token_id", BY_KEY_READ, 0},
    {"exponential_decay_length_penalty", BY_KEY_READ, 0},
    {"suppress_tokens", BY_KEY_READ, 0},
    {"begin_suppress_tokens", BY_KEY_READ, 0},
    {"eos_token_id", BY_KEY_READ, 0},
    {"decoder_start_token_id", BY_KEY_READ, 0},
    {"bos_token_id", BY_KEY_READ, 0},
    {"sequence_bias", BY_KEY_READ, 0},
    {"encoder_repetition_penalty", BY_KEY_READ, 0},
    {"encoder_no_repeat_ngram_size", BY_KEY_READ, 0},
    {"remove_invalid_values", BY_KEY_READ, 0},
    {"renormalize_logits", BY_KEY_READ, 0},
    {"top_h", BY_KEY_READ, 0},
    {"epsilon_cutoff", BY_KEY_READ, 0},
    {"eta_cutoff", BY_KEY_READ, 0},
    {"stop_strings", BY_KEY_READ, 0},
    {"max_time", BY_KEY_READ, 0},

    {"token_healing", BY_KEY_NEUTRAL, 0},
    {"guidance_scale", BY_KEY_NEUTRAL, 1},
    {"watermarking_config", BY_KEY_NEUTRAL, 0},
    {"penalty_alpha", BY_KEY_NEUTRAL, 0},
    {"dola_layers", BY_KEY_NEUTRAL, 0},
    {"constraints", BY_KEY_NEUTRAL, 0},
    {"force_words_ids", BY_KEY_NEUTRAL, 0},

    /* padding and the first token of an empty prompt come from config.json; caches, compilation and
     * speculation change the speed alone; the rest is about the return value of a call */
    {"pad_token_id", BY_KEY_IDLE, 0},
    {"use_cache", BY_KEY_IDLE, 0},
    {"use_mtp", BY_KEY_IDLE, 0},
    {"cache_implementation", BY_KEY_IDLE, 0},
    {"cache_config", BY_KEY_IDLE, 0},
    {"max_cache_len", BY_KEY_IDLE, 0},
    {"low_memory", BY_KEY_IDLE, 0},
    {"prefill_chunk_size", BY_KEY_IDLE, 0},
    {"compile_config", BY_KEY_IDLE, 0},
    {"disable_compile", BY_KEY_IDLE, 0},
    {"continuous_batching_config", BY_KEY_IDLE, 0},
    {"is_assistant", BY_KEY_IDLE, 0},
    {"num_assistant_tokens", BY_KEY_IDLE, 0},
    {"num_assistant_tokens_schedule", BY_KEY_IDLE, 0},
    {"assistant_confidence_threshold", BY_KEY_IDLE, 0},
    {"assistant_early_exit", BY_KEY_IDLE, 0},
    {"assistant_lookbehind", BY_KEY_IDLE, 0},
    {"assistant_ensemble_weight", BY_KEY_NEUTRAL, 0},
    {"target_lookbehind", BY_KEY_IDLE, 0},
    {"prompt_lookup_num_tokens", BY_KEY_IDLE, 0},
    {"max_matching_ngram_size", BY_KEY_IDLE, 0},
    {"speculation_type", BY_KEY_IDLE, 0},
    {"output_attentions", BY_KEY_IDLE, 0},
    {"output_hidden_states", BY_KEY_IDLE, 0},
    {"output_scores", BY_KEY_IDLE, 0},
    {"output_logits", BY_KEY_IDLE, 0},
    {"return_dict_in_generate", BY_KEY_IDLE, 0},
    {"transformers_version", BY_KEY_IDLE, 0},
    {"_from_model_config", BY_KEY_IDLE, 0},
};

static int find(const char *name)
{
    for (int i = 0; i < BY_COUNT(keys); i++)
        if (strcmp(keys[i].name, name) == 0)
            return i;
    return -1;
}

by_generation_key by_generation_key_kind(const char *name)
{
    const int i = find(name);
    return i < 0 ? BY_KEY_UNKNOWN : keys[i].kind;
}

static bool is_neutral(const cJSON *v, double neutral)
{
    if (cJSON_IsNumber(v))
        return v->valuedouble == neutral;
    return cJSON_IsNull(v) || cJSON_IsFalse(v) || ((cJSON_IsArray(v) || cJSON_IsObject(v)) && !v->child);
}

by_status by_generation_keys_check(const cJSON *json)
{
    const cJSON *v;
    cJSON_ArrayForEach(v, json)
    {
        const int i = v->string ? find(v->string) : -1;
        if (i >= 0 && keys[i].kind == BY_KEY_NEUTRAL && !is_neutral(v, keys[i].neutral))
            return by_fail(BY_ERR_UNSUPPORTED,
                           "%s is set, which is not supported; --no-generation-config ignores "
                           "what the model's directory says about generating",
                           v->string);
    }
    return BY_OK;
}
