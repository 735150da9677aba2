/* generation_keys.c - a table of all keys of the reference's GenerationConfig. */
#include "infer/generation_keys.h"

#include "base/json.h"

/* Neutral values besides null: a number, false (0) or an empty list. */
static const struct {
    const char *name;
    gen_generation_key kind;
    double neutral;
} keys[] = {
    {"max_length", GEN_KEY_READ, 0},
    {"max_new_tokens", GEN_KEY_READ, 0},
    {"min_length", GEN_KEY_READ, 0},
    {"min_new_tokens", GEN_KEY_READ, 0},
    {"early_stopping", GEN_KEY_READ, 0},
    {"do_sample", GEN_KEY_READ, 0},
    {"num_beams", GEN_KEY_READ, 0},
    {"num_beam_groups", GEN_KEY_NEUTRAL, 1},
    {"diversity_penalty", GEN_KEY_NEUTRAL, 0},
    {"num_return_sequences", GEN_KEY_READ, 0},
    {"temperature", GEN_KEY_READ, 0},
    {"top_k", GEN_KEY_READ, 0},
    {"top_p", GEN_KEY_READ, 0},
    {"min_p", GEN_KEY_READ, 0},
    {"typical_p", GEN_KEY_READ, 0},
    {"repetition_penalty", GEN_KEY_READ, 0},
    {"length_penalty", GEN_KEY_READ, 0},
    {"no_repeat_ngram_size", GEN_KEY_READ, 0},
    {"bad_words_ids", GEN_KEY_READ, 0},
    {"forced_bos_token_id", GEN_KEY_READ, 0},
    {"forced_eos_token_id", GEN_KEY_READ, 0},
    {"exponential_decay_length_penalty", GEN_KEY_READ, 0},
    {"suppress_tokens", GEN_KEY_READ, 0},
    {"begin_suppress_tokens", GEN_KEY_READ, 0},
    {"eos_token_id", GEN_KEY_READ, 0},
    {"decoder_start_token_id", GEN_KEY_READ, 0},
    {"bos_token_id", GEN_KEY_READ, 0},
    {"sequence_bias", GEN_KEY_READ, 0},
    {"encoder_repetition_penalty", GEN_KEY_READ, 0},
    {"encoder_no_repeat_ngram_size", GEN_KEY_READ, 0},
    {"remove_invalid_values", GEN_KEY_READ, 0},
    {"renormalize_logits", GEN_KEY_READ, 0},
    {"top_h", GEN_KEY_READ, 0},
    {"epsilon_cutoff", GEN_KEY_READ, 0},
    {"eta_cutoff", GEN_KEY_READ, 0},
    {"stop_strings", GEN_KEY_READ, 0},
    {"max_time", GEN_KEY_READ, 0},

    {"token_healing", GEN_KEY_NEUTRAL, 0},
    {"guidance_scale", GEN_KEY_NEUTRAL, 1},
    {"watermarking_config", GEN_KEY_NEUTRAL, 0},
    {"penalty_alpha", GEN_KEY_NEUTRAL, 0},
    {"dola_layers", GEN_KEY_NEUTRAL, 0},
    {"constraints", GEN_KEY_NEUTRAL, 0},
    {"force_words_ids", GEN_KEY_NEUTRAL, 0},

    /* padding and the first token of an empty prompt come from config.json; caches, compilation and
     * speculation only affect speed; the rest affects only return values */
    {"pad_token_id", GEN_KEY_IDLE, 0},
    {"use_cache", GEN_KEY_IDLE, 0},
    {"use_mtp", GEN_KEY_IDLE, 0},
    {"cache_implementation", GEN_KEY_IDLE, 0},
    {"cache_config", GEN_KEY_IDLE, 0},
    {"max_cache_len", GEN_KEY_IDLE, 0},
    {"low_memory", GEN_KEY_IDLE, 0},
    {"prefill_chunk_size", GEN_KEY_IDLE, 0},
    {"compile_config", GEN_KEY_IDLE, 0},
    {"disable_compile", GEN_KEY_IDLE, 0},
    {"continuous_batching_config", GEN_KEY_IDLE, 0},
    {"is_assistant", GEN_KEY_IDLE, 0},
    {"num_assistant_tokens", GEN_KEY_IDLE, 0},
    {"num_assistant_tokens_schedule", GEN_KEY_IDLE, 0},
    {"assistant_confidence_threshold", GEN_KEY_IDLE, 0},
    {"assistant_early_exit", GEN_KEY_IDLE, 0},
    {"assistant_lookbehind", GEN_KEY_IDLE, 0},
    {"assistant_ensemble_weight", GEN_KEY_NEUTRAL, 0},
    {"target_lookbehind", GEN_KEY_IDLE, 0},
    {"prompt_lookup_num_tokens", GEN_KEY_IDLE, 0},
    {"max_matching_ngram_size", GEN_KEY_IDLE, 0},
    {"speculation_type", GEN_KEY_IDLE, 0},
    {"output_attentions", GEN_KEY_IDLE, 0},
    {"output_hidden_states", GEN_KEY_IDLE, 0},
    {"output_scores", GEN_KEY_IDLE, 0},
    {"output_logits", GEN_KEY_IDLE, 0},
    {"return_dict_in_generate", GEN_KEY_IDLE, 0},
    {"transformers_version", GEN_KEY_IDLE, 0},
    {"_from_model_config", GEN_KEY_IDLE, 0},
};

static int find(const char *name)
{
    for (int i = 0; i < BY_COUNT(keys); i++)
        if (strcmp(keys[i].name, name) == 0)
            return i;
    return -1;
}

gen_generation_key gen_generation_key_kind(const char *name)
{
    const int i = find(name);
    return i < 0 ? GEN_KEY_UNKNOWN : keys[i].kind;
}

static bool is_neutral(const cJSON *v, double neutral)
{
    if (cJSON_IsNumber(v))
        return v->valuedouble == neutral;
    return cJSON_IsNull(v) || cJSON_IsFalse(v) || ((cJSON_IsArray(v) || cJSON_IsObject(v)) && !v->child);
}

by_status gen_generation_keys_check(const cJSON *json)
{
    const cJSON *v;
    cJSON_ArrayForEach(v, json)
    {
        const int i = v->string ? find(v->string) : -1;
        if (i >= 0 && keys[i].kind == GEN_KEY_NEUTRAL && !is_neutral(v, keys[i].neutral))
            return base_fail(BY_ERR_UNSUPPORTED,
                             "%s is set, which is not supported; --no-generation-config ignores what the "
                             "model's directory says about generating",
                             v->string);
    }
    return BY_OK;
}
