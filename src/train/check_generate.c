/* check_generate.c - generated tokens against those of the reference. */
#include <stdio.h>

#include "base/json.h"
#include "train/check.h"

typedef struct generation {
    by_generate_spec spec;
    int pad;
    int32_t eos;         /* -1: none */
    int32_t first, last; /* forced tokens, where the spec points to them */
} generation;

/* early_stopping: false, true or "never". */
static by_status read_early_stopping(const cJSON *json, by_early_stopping *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "early_stopping");
    bool early;
    if (cJSON_IsString(item) && strcmp(item->valuestring, "never") == 0) {
        *out = BY_STOP_NEVER;
        return BY_OK;
    }
    BY_TRY(by_json_bool(json, "early_stopping", false, &early));
    *out = early ? BY_STOP_EARLY : BY_STOP_HEURISTIC;
    return BY_OK;
}

static by_status read_beam(const cJSON *json, by_beam *out)
{
    int64_t width, groups, returned;
    BY_TRY(by_json_int(json, "num_beams", 1, 1, 64, &width));
    BY_TRY(by_json_int(json, "num_beam_groups", 1, 1, 64, &groups));
    BY_TRY(by_json_int(json, "num_return_sequences", 1, 1, 64, &returned));
    BY_TRY(by_json_double(json, "length_penalty", 1, -1e3, 1e3, &out->length_penalty));
    BY_TRY(by_json_double(json, "diversity_penalty", 0, 0, 1e3, &out->diversity));
    BY_TRY(read_early_stopping(json, &out->early_stopping));
    out->width = (int)width;
    out->groups = (int)groups;
    out->returned = (int)returned;
    return BY_OK;
}

/* A token that is forced, when the settings name one. */
static by_status read_forced(const cJSON *json, const char *name, int32_t *token, const int32_t **out)
{
    int64_t id;
    BY_TRY(by_json_int(json, name, -1, 0, INT32_MAX, &id));
    *token = (int32_t)id;
    *out = id >= 0 ? token : NULL;
    return BY_OK;
}

/* Settings by the names that the reference library gives them. An unknown one is an error: it may change the
 * tokens. */
static by_status read_generation(const by_check *c, const cJSON *json, generation *out)
{
    static const char *const known[] = {"do_sample",
                                        "num_beams",
                                        "max_new_tokens",
                                        "min_new_tokens",
                                        "eos_token_id",
                                        "pad_token_id",
                                        "repetition_penalty",
                                        "no_repeat_ngram_size",
                                        "length_penalty",
                                        "early_stopping",
                                        "num_beam_groups",
                                        "diversity_penalty",
                                        "num_return_sequences",
                                        "forced_bos_token_id",
                                        "forced_eos_token_id"};
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
    int64_t most, least, ngram, eos, pad;
    double penalty;
    BY_TRY(by_json_bool(json, "do_sample", false, &sample));
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
    *out = (generation){.pad = (int)pad, .eos = (int32_t)eos};
    out->spec = (by_generate_spec){.max_new_tokens = (int)most, .ignore_eos = true};
    out->spec.sampling.min_new_tokens = (int)least;
    out->spec.sampling.no_repeat_ngram = (int)ngram;
    out->spec.sampling.repetition_penalty = penalty;
    BY_TRY(read_forced(json, "forced_bos_token_id", &out->first, &out->spec.sampling.forced_first));
    BY_TRY(read_forced(json, "forced_eos_token_id", &out->last, &out->spec.sampling.forced_last));
    BY_TRY(read_beam(json, &out->spec.beam));
    if (out->spec.beam.width > 1 && pad == 0 && eos >= 0)
        out->pad = (int)eos; /* so the reference fills up what a beam search returns */
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
    for (int b = 0; b < r->count; b++) {
        const int length = r->rows[b].count + (r->rows[b].finish == BY_FINISH_STOP);
        if (length > width && different++ == 0)
            snprintf(note, size, "row %d has %d tokens, the reference %d", b, length, width);
        for (int i = 0; i < width; i++) {
            int here = token_at(&r->rows[b], g, i);
            if (here == there[b * width + i])
                continue;
            if (different++ == 0)
                snprintf(note, size, "first in row %d: token %d is %d, the reference has %d", b, i, here,
                         (int)there[b * width + i]);
        }
    }
    return different;
}

/* The reference was generated from input_ids alone: its mask takes no part in that. */
static void take_source(const by_check *c, int b, const int32_t **source, int *length)
{
    *source = c->source + (size_t)b * (size_t)c->source_seq;
    *length = c->source_seq;
}

/* The reference holds prompts and what followed; prompts are the beginnings of input_ids. A beam search gives
 * several rows for each. */
static by_status generate_rows(by_check *c, const by_weight *e, generation *g, const int32_t *there)
{
    const bool pair = by_model_task(c->model) == BY_TASK_SEQ2SEQ;
    const int beams = g->spec.beam.width, returned = beams > 1 ? g->spec.beam.returned : 1;
    int rows = (int)e->dim[0] / returned, width = (int)e->dim[1], prompt = width - g->spec.max_new_tokens;
    const int32_t **prompts = by_alloc_zero((size_t)rows, sizeof *prompts);
    int *lengths = by_alloc_zero((size_t)rows, sizeof *lengths);
    by_generate_result result = {0};
    by_status s = prompts && lengths ? BY_OK : BY_ERR_MEMORY;
    for (int b = 0; b < rows && s == BY_OK; b++) {
        prompts[b] = there + (size_t)(b * returned) * (size_t)width;
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
    const by_generator_spec shape = {.batch = rows * beams, .beams = beams};
    c->generator = s == BY_OK ? by_generator_new(c->model, &shape) : NULL;
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
    if (s == BY_OK && !by_check_is_wide(c)) {
        by_check_note(c, e, BY_VERDICT_NOT_RUN, "in 16 bits another token may be the likeliest");
        return BY_OK;
    }
    const int64_t most = s == BY_OK ? (int64_t)c->batch * g.spec.beam.returned : 0;
    if (s == BY_OK && (e->rank != 2 || by_dtype_is_float(e->dtype) || e->dim[0] < 1 || e->dim[0] > most ||
                       e->dim[0] % g.spec.beam.returned != 0 || e->dim[1] > 1 << 24))
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
