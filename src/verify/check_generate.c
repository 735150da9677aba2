/* check_generate.c - compares generated tokens with those of the reference. */
#include <stdio.h>

#include "banyan/rewrite.h"
#include "base/json.h"
#include "verify/check.h"

typedef struct generation {
    by_rewrite_defaults defaults; /* generation_config.json, then the settings of the case */
    by_generate_spec spec;
    int pad;
    int32_t eos;          /* the model's end token, if the spec points to it */
    const cJSON *lengths; /* prompt lengths, with padding before the shorter prompts; NULL: all equal */
} generation;

/* Removes the beam groups, which generation_config.json cannot specify, and the prompt lengths. */
static by_status read_groups(cJSON *json, by_beam *out)
{
    int64_t groups;
    BY_TRY(base_json_int(json, "num_beam_groups", 1, 1, 64, &groups));
    BY_TRY(base_json_double(json, "diversity_penalty", 0, 0, 1e3, &out->diversity));
    out->groups = (int)groups;
    cJSON_DeleteItemFromObjectCaseSensitive(json, "num_beam_groups");
    cJSON_DeleteItemFromObjectCaseSensitive(json, "diversity_penalty");
    cJSON_DeleteItemFromObjectCaseSensitive(json, "prompt_lengths");
    return BY_OK;
}

static by_status read_settings(const verify_case *c, const cJSON *json, generation *out)
{
    cJSON *rest = cJSON_Duplicate(json, true);
    by_beam groups = {0};
    by_status s = rest ? by_rewrite_defaults_load(c->model, c->dir, NULL, &out->defaults) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = read_groups(rest, &groups);
    base_buf text = {0};
    if (s == BY_OK)
        s = base_json_print(&text, rest, false);
    if (s == BY_OK)
        s = by_rewrite_defaults_read(c->model, text.data, &out->defaults);
    base_buf_free(&text);
    cJSON_Delete(rest);
    out->spec = out->defaults.generate;
    out->spec.beam.groups = groups.groups;
    out->spec.beam.diversity = groups.diversity;
    out->spec.beam.width = BY_MAX(out->spec.beam.width, 1);
    out->spec.beam.returned = BY_MAX(out->spec.beam.returned, 1);
    return s;
}

/* Reads settings with the names of the reference library; the others come from the model directory, as in the
 * reference. An unknown setting is an error because it may change the tokens. width: length of the rows to
 * compare. */
static by_status read_generation(const verify_case *c, const cJSON *json, int width, generation *out)
{
    const bool pair = by_model_task(c->model) == BY_TASK_SEQ2SEQ;
    const by_rewrite_defaults *d = &out->defaults;
    int64_t pad;
    BY_TRY(read_settings(c, json, out));
    BY_TRY(base_json_int(json, "pad_token_id", BY_MAX(by_model_pad(c->model), 0), 0, INT32_MAX, &pad));
    if (d->sample)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "sampled tokens cannot be compared because the random numbers differ");
    if (d->generate.stop_string_count > 0)
        return base_fail(BY_ERR_UNSUPPORTED, "stop_strings are not supported by verify");
    if (d->max_new == 0 && d->max_length == 0)
        return base_fail(BY_ERR_FORMAT, "max_new_tokens is missing");
    const int most = d->max_new ? d->max_new : pair ? BY_MAX(d->max_length - 1, 1) : 0;
    if (most == 0)
        return base_fail(BY_ERR_UNSUPPORTED, "max_length counts the prompt; use max_new_tokens");
    out->pad = (int)pad;
    out->lengths = cJSON_GetObjectItemCaseSensitive(json, "prompt_lengths");
    out->spec.max_new_tokens = most;
    out->spec.sampling.min_new_tokens = by_rewrite_defaults_least(d, pair ? 1 : width - most);
    if (!out->spec.ignore_eos && by_model_eos(c->model) >= 0) { /* must be known to compare */
        out->eos = by_model_eos(c->model);
        out->spec.stop_tokens = &out->eos;
        out->spec.stop_count = out->eos < by_model_vocab(c->model);
    }
    out->spec.ignore_eos = true;
    /* The reference pads the results of a beam search with it. */
    if (out->spec.beam.width > 1 && pad == 0 && out->spec.stop_count > 0)
        out->pad = out->spec.stop_tokens[0];
    return BY_OK;
}

/* Returns true if the reference token at position i is right: the tokens, then the end token if there was
 * one, then padding. *here is the token at that position. */
static bool agrees(const by_generation *row, const generation *g, int i, int32_t there, int32_t *here)
{
    *here = i < 0 ? g->pad : i < row->count ? row->tokens[i] : g->pad;
    if (row->finish != BY_FINISH_STOP || i != row->count)
        return *here == there;
    *here = g->spec.stop_tokens[0];
    for (int k = 0; k < g->spec.stop_count; k++)
        if (g->spec.stop_tokens[k] == there)
            return true;
    return false;
}

/* Returns how many of the `longest` tokens before the new ones belong to prompt b, or -1 if the settings are
 * invalid. */
static int prompt_length(const generation *g, int b, int longest)
{
    const cJSON *v = g->lengths ? cJSON_GetArrayItem(g->lengths, b) : NULL;
    if (!g->lengths)
        return longest;
    return cJSON_IsNumber(v) && v->valueint >= 1 && v->valueint <= longest ? v->valueint : -1;
}

/* Compares rows of `width` tokens. The note names the first difference. */
static int count_different(const by_generate_result *r, const generation *g, const int32_t *there, int width,
                           char *note, size_t size)
{
    int different = 0;
    for (int b = 0; b < r->count; b++) {
        const int longest = width - g->spec.max_new_tokens;
        const int before = g->lengths ? longest - prompt_length(g, b, longest) : 0;
        const int length = before + r->rows[b].count + (r->rows[b].finish == BY_FINISH_STOP);
        if (length > width && different++ == 0)
            base_format(note, size, "row %d has %d tokens, the reference %d", b, length, width);
        for (int i = 0; i < width; i++) {
            int32_t here;
            if (agrees(&r->rows[b], g, i - before, there[b * width + i], &here))
                continue;
            if (different++ == 0)
                base_format(note, size, "first in row %d: token %d is %d, the reference has %d", b, i,
                            (int)here, (int)there[b * width + i]);
        }
    }
    return different;
}

/* The reference was generated from input_ids alone, without its mask. */
static void take_source(const verify_case *c, int b, const int32_t **source, int *length)
{
    *source = c->source + (size_t)b * (size_t)c->source_seq;
    *length = c->source_seq;
}

/* The reference contains prompts with their continuations; the prompts are prefixes of the rows of input_ids.
 * A beam search returns several rows for each. */
static by_status generate_rows(verify_case *c, const by_weight *e, generation *g, const int32_t *there)
{
    const bool pair = by_model_task(c->model) == BY_TASK_SEQ2SEQ;
    const by_array *pixels = pair ? by_batch_find(&c->extra, "pixel_values") : NULL;
    by_picture_batch seen;
    by_pictures pictures;
    if (pixels && by_model_pictures(c->model, &pictures)) {
        seen = (by_picture_batch){pixels->data, (int)e->dim[0] / g->spec.beam.returned, (int)pixels->shape[2],
                                  (int)pixels->shape[3]};
        g->spec.pictures = &seen;
    }
    const int beams = g->spec.beam.width, returned = beams > 1 ? g->spec.beam.returned : 1;
    int rows = (int)e->dim[0] / returned, width = (int)e->dim[1], prompt = width - g->spec.max_new_tokens;
    const int32_t **prompts = base_alloc_zero((size_t)rows, sizeof *prompts);
    int *lengths = base_alloc_zero((size_t)rows, sizeof *lengths);
    by_generate_result result = {0};
    by_status s = prompts && lengths ? BY_OK : BY_ERR_MEMORY;
    for (int b = 0; b < rows && s == BY_OK; b++) {
        if (g->spec.pictures)
            continue;
        lengths[b] = prompt_length(g, b, prompt);
        prompts[b] = there + (size_t)(b * returned) * (size_t)width + (prompt - lengths[b]);
        if (pair)
            take_source(c, b, &prompts[b], &lengths[b]);
        else if (lengths[b] < 1 || prompt > c->seq ||
                 memcmp(prompts[b], c->tokens + (size_t)b * (size_t)c->seq,
                        sizeof **prompts * (size_t)lengths[b]) != 0)
            s = base_fail(BY_ERR_FORMAT, "row %d does not start with the tokens of input_ids", b);
    }
    by_generator_free(c->generator);
    by_generator_spec shape = {.batch = rows * beams, .beams = beams};
    if (g->spec.pictures) /* of another size than the configuration's */
        shape.source_capacity = by_pictures_positions(&pictures, seen.height, seen.width);
    if (!pair && !by_model_is_limited(c->model))
        shape.capacity = BY_MAX(by_model_context(c->model), (int)width);
    c->generator = s == BY_OK ? by_generator_new(c->model, &shape) : NULL;
    if (s == BY_OK)
        s = c->generator ? by_generate(c->generator, prompts, lengths, &g->spec, &result)
                         : base_error_status();
    if (s == BY_OK) {
        char note[128] = "";
        verify_rule rule = verify_rule_for(VERIFY_SUBJECT_TOKENS, c->spec->dtype);
        int different = count_different(&result, g, there, width, note, sizeof note);
        verify_say(c, e, &rule, different, *note ? note : NULL);
    }
    by_generate_result_free(&result);
    base_free(prompts);
    base_free(lengths);
    return s;
}

by_status verify_generation(verify_case *c, const by_weight *e)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(c->settings, "generate");
    const cJSON *json = cJSON_GetObjectItemCaseSensitive(all, e->name + strlen("generate."));
    generation g = {0};
    by_status s = BY_OK;
    if (!cJSON_IsObject(json))
        s = base_fail(BY_ERR_FORMAT, "case.json has no settings for it");
    else
        s = read_generation(c, json, e->rank == 2 ? (int)BY_MIN(e->dim[1], 1 << 24) : 0, &g);
    if (s == BY_OK && !verify_is_wide(c)) {
        verify_note(c, e, BY_VERDICT_NOT_RUN, "in 16 bits another token may be the most likely");
        by_rewrite_defaults_free(&g.defaults);
        return BY_OK;
    }
    const int64_t most = s == BY_OK ? (int64_t)c->batch * g.spec.beam.returned : 0;
    if (s == BY_OK && (e->rank != 2 || by_dtype_is_float(e->dtype) || e->dim[0] < 1 || e->dim[0] > most ||
                       e->dim[0] % g.spec.beam.returned != 0 || e->dim[1] > 1 << 24))
        s = base_fail(BY_ERR_FORMAT, "the number of rows does not match input_ids");
    int32_t *there = s == BY_OK ? verify_values(e, BY_I32) : NULL;
    if (s == BY_OK)
        s = there ? generate_rows(c, e, &g, there) : BY_ERR_MEMORY;
    base_free(there);
    by_rewrite_defaults_free(&g.defaults);
    if (s == BY_ERR_FORMAT || s == BY_ERR_UNSUPPORTED || s == BY_ERR_ARGUMENT) {
        char *note = base_strdup(by_error_message());
        verify_note(c, e, BY_VERDICT_FAILED, note);
        base_free(note);
        s = BY_OK;
    }
    return s;
}
