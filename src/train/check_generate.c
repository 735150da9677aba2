/* check_generate.c - generated tokens against those of the reference. */
#include <stdio.h>

#include "base/json.h"
#include "train/check.h"

typedef struct generation {
    by_generate_spec spec;
    int beams, pad;
    int32_t eos; /* -1: none */
} generation;

/* Settings by the names that the reference library gives them. An unknown one is an error: it may change the
 * tokens. */
static by_status read_generation(const by_check *c, const cJSON *json, generation *out)
{
    static const char *const known[] = {
        "do_sample",    "num_beams",          "max_new_tokens",       "min_new_tokens", "eos_token_id",
        "pad_token_id", "repetition_penalty", "no_repeat_ngram_size", "length_penalty", "early_stopping"};
    const cJSON *item;
    cJSON_ArrayForEach(item, json)
    {
        bool found = false;
        for (int i = 0; i < BY_COUNT(known) && !found; i++)
            found = strcmp(item->string, known[i]) == 0;
        if (!found)
            return by_fail(BY_ERR_UNSUPPORTED, "the setting %s is not known", item->string);
    }
    bool sample;
    int64_t beams, most, least, ngram, eos, pad;
    double penalty;
    BY_TRY(by_json_bool(json, "do_sample", false, &sample));
    BY_TRY(by_json_int(json, "num_beams", 1, 1, 1 << 16, &beams));
    BY_TRY(by_json_int(json, "max_new_tokens", 0, 1, 1 << 24, &most));
    BY_TRY(by_json_int(json, "min_new_tokens", 0, 0, 1 << 24, &least));
    BY_TRY(by_json_int(json, "no_repeat_ngram_size", 0, 0, 1 << 24, &ngram));
    BY_TRY(by_json_double(json, "repetition_penalty", 1, 1e-3, 1e3, &penalty));
    /* an explicit null means that nothing ends the text, no entry that the model's own token does */
    bool own = !cJSON_HasObjectItem(json, "eos_token_id");
    BY_TRY(by_json_int(json, "eos_token_id", own ? by_model_eos(c->model) : -1, 0, INT32_MAX, &eos));
    BY_TRY(by_json_int(json, "pad_token_id", 0, 0, INT32_MAX, &pad));
    if (sample)
        return by_fail(BY_ERR_UNSUPPORTED, "sampled tokens cannot be compared: the random numbers differ");
    if (most == 0)
        return by_fail(BY_ERR_FORMAT, "max_new_tokens is missing");
    *out = (generation){.beams = (int)beams, .pad = (int)pad, .eos = (int32_t)eos};
    out->spec = (by_generate_spec){.max_new_tokens = (int)most, .ignore_eos = true};
    out->spec.sampling.min_new_tokens = (int)least;
    out->spec.sampling.no_repeat_ngram = (int)ngram;
    out->spec.sampling.repetition_penalty = penalty;
    return BY_OK;
}

/* What the reference library returns at place i: the tokens, an end token when one came, padding after it. */
static int32_t token_at(const by_generation *row, const generation *g, int i)
{
    if (i < row->count)
        return row->tokens[i];
    return row->finish == BY_FINISH_STOP && i == row->count ? g->eos : g->pad;
}

/* Compare rows of `width` tokens; the first difference goes into the note. */
static int count_different(const by_generate_result *r, const generation *g, const int32_t *there, int width,
                           char *note, size_t size)
{
    int different = 0;
    for (int b = 0; b < r->count; b++)
        for (int i = 0; i < width; i++) {
            int here = token_at(&r->rows[b], g, i);
            if (here == there[b * width + i])
                continue;
            if (different++ == 0)
                snprintf(note, size, "first in row %d: token %d is %d, the reference has %d", b, i, here,
                         (int)there[b * width + i]);
        }
    return different;
}

/* The reference was generated from input_ids alone: its mask takes no part in that. */
static void take_source(const by_check *c, int b, const int32_t **source, int *length)
{
    *source = c->source + (size_t)b * (size_t)c->source_seq;
    *length = c->source_seq;
}

/* The reference holds prompts and what followed; prompts are the beginnings of input_ids. */
static by_status generate_rows(by_check *c, const by_weight *e, generation *g, const int32_t *there)
{
    const bool pair = by_model_task(c->model) == BY_TASK_SEQ2SEQ;
    int rows = (int)e->dim[0], width = (int)e->dim[1], prompt = width - g->spec.max_new_tokens;
    const int32_t **prompts = by_alloc_zero((size_t)rows, sizeof *prompts);
    int *lengths = by_alloc_zero((size_t)rows, sizeof *lengths);
    by_generate_result result = {0};
    by_status s = prompts && lengths ? BY_OK : BY_ERR_MEMORY;
    for (int b = 0; b < rows && s == BY_OK; b++) {
        prompts[b] = there + (size_t)b * (size_t)width;
        lengths[b] = prompt;
        if (pair)
            take_source(c, b, &prompts[b], &lengths[b]);
        else if (prompt < 1 || prompt > c->seq ||
                 memcmp(prompts[b], c->tokens + (size_t)b * (size_t)c->seq,
                        sizeof **prompts * (size_t)prompt) != 0)
            s = by_fail(BY_ERR_FORMAT, "row %d does not begin with tokens of input_ids", b);
    }
    g->spec.stop_tokens = &g->eos;
    g->spec.stop_count = g->eos >= 0 && g->eos < by_model_vocab(c->model);
    by_generator_free(c->generator);
    c->generator = s == BY_OK ? by_generator_new(c->model, &(by_generator_spec){.batch = rows}) : NULL;
    if (s == BY_OK)
        s = c->generator ? by_generate(c->generator, prompts, lengths, &g->spec, &result) : by_error_status();
    if (s == BY_OK) {
        char note[128] = "";
        by_rule rule = by_rule_for(BY_SUBJECT_TOKENS, c->spec->dtype);
        int different = count_different(&result, g, there, width, note, sizeof note);
        by_check_say(c, e, &rule, different, *note ? note : NULL);
    }
    by_generate_result_free(&result);
    by_free(prompts);
    by_free(lengths);
    return s;
}

by_status by_check_generation(by_check *c, const by_weight *e)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(c->settings, "generate");
    const cJSON *json = cJSON_GetObjectItemCaseSensitive(all, e->name + strlen("generate."));
    generation g;
    by_status s = BY_OK;
    if (!cJSON_IsObject(json))
        s = by_fail(BY_ERR_FORMAT, "case.json has no settings for it");
    else
        s = read_generation(c, json, &g);
    if (s == BY_OK && g.beams > 1) {
        by_check_note(c, e, BY_VERDICT_NOT_RUN, "beam search is not there yet");
        return BY_OK;
    }
    if (s == BY_OK && !by_check_is_wide(c)) {
        by_check_note(c, e, BY_VERDICT_NOT_RUN, "in 16 bits another token may be the likeliest");
        return BY_OK;
    }
    if (s == BY_OK && (e->rank != 2 || by_dtype_is_float(e->dtype) || e->dim[0] < 1 || e->dim[0] > c->batch ||
                       e->dim[1] > 1 << 24))
        s = by_fail(BY_ERR_FORMAT, "these are not as many rows of tokens as input_ids has");
    int32_t *there = s == BY_OK ? by_check_values(e, BY_I32) : NULL;
    if (s == BY_OK)
        s = there ? generate_rows(c, e, &g, there) : BY_ERR_MEMORY;
    by_free(there);
    if (s == BY_ERR_FORMAT || s == BY_ERR_UNSUPPORTED || s == BY_ERR_ARGUMENT) {
        char *note = by_strdup(by_error_message());
        by_check_note(c, e, BY_VERDICT_FAILED, note);
        by_free(note);
        s = BY_OK;
    }
    return s;
}
