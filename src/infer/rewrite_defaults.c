/* rewrite_defaults.c - generation settings of a model directory (see banyan/rewrite.h). */
#include "banyan/rewrite.h"
#include "base/file.h"
#include "base/json.h"
#include "infer/generation_keys.h"

enum { USUAL_SOURCE = 1024, MOST_SOURCE = 1 << 20 };

/* Settings come from up to three places; later ones override earlier ones. */
static by_status read_beam(const cJSON *json, by_beam *b)
{
    int64_t beams, returned;
    BY_TRY(base_json_int(json, "num_beams", b->width, 1, 64, &beams));
    BY_TRY(base_json_int(json, "num_return_sequences", b->returned, 1, 64, &returned));
    BY_TRY(base_json_double(json, "length_penalty", b->length_penalty, -100, 100, &b->length_penalty));
    b->width = (int)beams;
    b->returned = (int)returned;
    const cJSON *early = cJSON_GetObjectItemCaseSensitive(json, "early_stopping");
    if (cJSON_IsBool(early))
        b->early_stopping = cJSON_IsTrue(early) ? BY_STOP_EARLY : BY_STOP_HEURISTIC;
    else if (cJSON_IsString(early) && strcmp(early->valuestring, "never") == 0)
        b->early_stopping = BY_STOP_NEVER;
    else if (early && !cJSON_IsNull(early))
        return base_fail(BY_ERR_FORMAT, "early_stopping is not true, false or \"never\"");
    return BY_OK;
}

/* A time of 0 still gives the first token. */
static by_status read_time(const cJSON *json, double *out)
{
    double time;
    BY_TRY(base_json_double(json, "max_time", -1, 0, 1e9, &time));
    if (time >= 0)
        *out = BY_MAX(time, 1e-9);
    return BY_OK;
}

static by_status read_lengths(const cJSON *json, by_rewrite_defaults *d)
{
    static const char *const names[] = {"max_length", "min_length", "max_new_tokens", "min_new_tokens"};
    int *const out[] = {&d->max_length, &d->min_length, &d->max_new, &d->min_new};
    int64_t value, ngram;
    by_sampling *s = &d->generate.sampling;
    for (int i = 0; i < BY_COUNT(names); i++) {
        BY_TRY(base_json_int(json, names[i], *out[i], 0, 1 << 24, &value));
        *out[i] = (int)value;
    }
    BY_TRY(base_json_int(json, "no_repeat_ngram_size", s->no_repeat_ngram, 0, 1 << 20, &ngram));
    BY_TRY(base_json_int(json, "encoder_no_repeat_ngram_size", s->no_source_ngram, 0, 1 << 20, &value));
    BY_TRY(base_json_double(json, "encoder_repetition_penalty", s->source_penalty, 1e-3, 1e3,
                            &s->source_penalty));
    BY_TRY(base_json_bool(json, "remove_invalid_values", s->remove_invalid, &s->remove_invalid));
    BY_TRY(base_json_bool(json, "renormalize_logits", d->generate.beam.renormalize,
                          &d->generate.beam.renormalize));
    BY_TRY(read_time(json, &d->generate.max_seconds));
    s->no_source_ngram = (int)value;
    BY_TRY(base_json_double(json, "repetition_penalty", s->repetition_penalty, 1e-3, 1e3,
                            &s->repetition_penalty));
    s->no_repeat_ngram = (int)ngram;
    return BY_OK;
}

/* Sampling defaults of the reference: temperature 1 and top_k 50. */
static by_status read_draw(const cJSON *json, by_rewrite_defaults *d)
{
    by_sampling *s = &d->generate.sampling;
    const cJSON *sample = cJSON_GetObjectItemCaseSensitive(json, "do_sample");
    int64_t top_k;
    if (cJSON_IsBool(sample)) {
        d->sample = cJSON_IsTrue(sample);
        d->greedy = !d->sample;
    }
    BY_TRY(base_json_double(json, "temperature", s->temperature, 1e-6, 1e6, &s->temperature));
    BY_TRY(base_json_int(json, "top_k", s->top_k, 0, INT32_MAX, &top_k));
    BY_TRY(base_json_double(json, "top_p", s->top_p, 0, 1, &s->top_p));
    BY_TRY(base_json_double(json, "min_p", s->min_p, 0, 1, &s->min_p));
    BY_TRY(base_json_double(json, "typical_p", s->typical_p, 0, 1, &s->typical_p));
    BY_TRY(base_json_double(json, "epsilon_cutoff", s->epsilon_cutoff, 0, 1, &s->epsilon_cutoff));
    BY_TRY(base_json_double(json, "eta_cutoff", s->eta_cutoff, 0, 1, &s->eta_cutoff));
    BY_TRY(base_json_double(json, "top_h", s->top_h, 0, 1, &s->top_h));
    s->top_k = (int)top_k;
    return BY_OK;
}

static by_status read_forced(const cJSON *json, const char *key, int32_t *token, const int32_t **used)
{
    int64_t id;
    BY_TRY(base_json_int(json, key, -1, 0, INT32_MAX, &id));
    if (id < 0)
        return BY_OK;
    *token = (int32_t)id;
    *used = token;
    return BY_OK;
}

static bool is_id(const cJSON *v)
{
    return cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble < INT32_MAX;
}

/* Reads a token id or a list of them: returns the number, and the ids in *out unless there are none. */
static by_status read_ids(const cJSON *json, const char *key, int vocab, int32_t **out, int *count)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(json, key), *id;
    if (!v || cJSON_IsNull(v))
        return BY_OK;
    const bool list = cJSON_IsArray(v);
    const int n = list ? cJSON_GetArraySize(v) : 1;
    int32_t *ids = base_alloc_zero((size_t)n + 1, sizeof *ids);
    if (!ids)
        return BY_ERR_MEMORY;
    int i = 0;
    for (id = list ? v->child : v; id; id = list ? id->next : NULL) {
        if (!cJSON_IsNumber(id)) {
            base_free(ids);
            return base_fail(BY_ERR_FORMAT, "%s is not a token id or a list of them", key);
        }
        if (is_id(id) && id->valuedouble < vocab) /* a negative id means no token */
            ids[i++] = (int32_t)id->valuedouble;
    }
    base_free(*out);
    *out = ids;
    *count = i;
    return BY_OK;
}

/* The stop tokens replace the model's own. */
static by_status read_stops(const cJSON *json, by_rewrite_defaults *d)
{
    int count = -1;
    BY_TRY(read_ids(json, "eos_token_id", d->vocab, &d->stops, &count));
    if (count < 0)
        return BY_OK;
    d->generate.stop_tokens = d->stops;
    d->generate.stop_count = count;
    d->generate.ignore_eos = true;
    return BY_OK;
}

static void free_strings(by_rewrite_defaults *d)
{
    for (int i = 0; i < d->generate.stop_string_count; i++)
        base_free(d->stop_strings[i]);
    base_free(d->stop_strings);
    d->stop_strings = NULL;
    d->generate.stop_strings = NULL;
    d->generate.stop_string_count = 0;
}

/* "suppress_tokens" are never generated, "begin_suppress_tokens" not as the first token. */
static by_status read_suppressed(const cJSON *json, by_rewrite_defaults *d)
{
    by_sampling *s = &d->generate.sampling;
    BY_TRY(read_ids(json, "begin_suppress_tokens", d->vocab, &d->first_banned, &s->first_banned_count));
    BY_TRY(read_ids(json, "suppress_tokens", d->vocab, &d->suppressed, &s->suppressed_count));
    s->first_banned = d->first_banned;
    s->suppressed = d->suppressed;
    return BY_OK;
}

/* The decoder start token; the reference falls back to bos_token_id. */
static by_status read_start(const cJSON *json, by_rewrite_defaults *d)
{
    int64_t start;
    BY_TRY(base_json_int(json, "bos_token_id", -1, 0, INT32_MAX, &start));
    BY_TRY(base_json_int(json, "decoder_start_token_id", start, 0, INT32_MAX, &start));
    d->start = (int32_t)start;
    d->generate.start = start >= 0 ? &d->start : NULL;
    return BY_OK;
}

/* A string or a list of strings. */
static by_status read_stop_strings(const cJSON *json, by_rewrite_defaults *d)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(json, "stop_strings"), *item;
    const bool list = cJSON_IsArray(v);
    if (!v || cJSON_IsNull(v))
        return BY_OK;
    free_strings(d);
    d->stop_strings = base_alloc_zero(list ? (size_t)cJSON_GetArraySize(v) + 1 : 1, sizeof *d->stop_strings);
    if (!d->stop_strings)
        return BY_ERR_MEMORY;
    for (item = list ? v->child : v; item; item = list ? item->next : NULL) {
        if (!cJSON_IsString(item) || !*item->valuestring)
            return base_fail(BY_ERR_FORMAT, "stop_strings is not a string or a list of strings");
        char *text = d->stop_strings[d->generate.stop_string_count] = base_strdup(item->valuestring);
        if (!text)
            return BY_ERR_MEMORY;
        d->generate.stop_string_count++;
    }
    d->generate.stop_strings = (const char *const *)d->stop_strings;
    return BY_OK;
}

/* Finds or appends the bias of a token sequence; the last bias of a sequence applies. */
static by_bias *place_bias(by_sampling *s, by_bias *all, const int32_t *tokens, int count)
{
    for (int i = 0; i < s->bias_count; i++)
        if (all[i].count == count && memcmp(all[i].tokens, tokens, sizeof *tokens * (size_t)count) == 0)
            return &all[i];
    return &all[s->bias_count++];
}

/* [[[id, ...], bias], ...] */
static by_status read_biases(const cJSON *json, by_rewrite_defaults *d)
{
    static const char wrong[] = "sequence_bias is not a list of pairs [[id, ...], bias]";
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "sequence_bias"), *pair, *id;
    by_sampling *s = &d->generate.sampling;
    size_t tokens = 0, at = 0;
    if (!list || cJSON_IsNull(list))
        return BY_OK;
    cJSON_ArrayForEach(pair, list)
    {
        const cJSON *ids = cJSON_GetArrayItem(pair, 0), *bias = cJSON_GetArrayItem(pair, 1);
        if (!cJSON_IsArray(ids) || !ids->child || !cJSON_IsNumber(bias))
            return base_fail(BY_ERR_FORMAT, wrong);
        cJSON_ArrayForEach(id, ids)
        {
            if (!is_id(id) || id->valuedouble >= d->vocab)
                return base_fail(BY_ERR_FORMAT, "sequence_bias has a token that is not in the vocabulary");
            tokens++;
        }
    }
    if (!cJSON_IsArray(list))
        return base_fail(BY_ERR_FORMAT, wrong);
    base_free(d->biases);
    base_free(d->bias_tokens);
    d->biases = base_alloc_zero((size_t)cJSON_GetArraySize(list) + 1, sizeof *d->biases);
    d->bias_tokens = base_alloc_zero(tokens + 1, sizeof *d->bias_tokens);
    s->bias_count = 0;
    s->biases = d->biases;
    if (!d->biases || !d->bias_tokens)
        return BY_ERR_MEMORY;
    cJSON_ArrayForEach(pair, list)
    {
        int32_t *first = d->bias_tokens + at;
        cJSON_ArrayForEach(id, pair->child) d->bias_tokens[at++] = (int32_t)id->valuedouble;
        const int count = cJSON_GetArraySize(pair->child);
        *place_bias(s, d->biases, first, count) =
            (by_bias){first, count, cJSON_GetArrayItem(pair, 1)->valuedouble};
    }
    return BY_OK;
}

/* [start, factor] */
static by_status read_decay(const cJSON *json, by_sampling *s)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(json, "exponential_decay_length_penalty");
    const cJSON *start = cJSON_GetArrayItem(v, 0), *factor = cJSON_GetArrayItem(v, 1);
    if (!v || cJSON_IsNull(v))
        return BY_OK;
    if (cJSON_GetArraySize(v) != 2 || !is_id(start) || !cJSON_IsNumber(factor) || !(factor->valuedouble > 0))
        return base_fail(BY_ERR_FORMAT, "exponential_decay_length_penalty is not [start, factor]");
    s->decay_start = (int)start->valuedouble;
    s->decay = factor->valuedouble;
    return BY_OK;
}

/* Words of one token, and longer ones. */
static by_status read_bad_words(const cJSON *json, by_rewrite_defaults *d)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "bad_words_ids"), *word, *id;
    by_sampling *s = &d->generate.sampling;
    size_t words = 0, tokens = 0, at = 0;
    if (list && !cJSON_IsNull(list) && !cJSON_IsArray(list))
        return base_fail(BY_ERR_FORMAT, "bad_words_ids is not a list of lists of token ids");
    cJSON_ArrayForEach(word, list)
    {
        words++;
        cJSON_ArrayForEach(id, word)
        {
            if (!is_id(id))
                return base_fail(BY_ERR_FORMAT, "bad_words_ids is not a list of lists of token ids");
            tokens++;
        }
    }
    if (words == 0)
        return BY_OK;
    base_free(d->banned);
    base_free(d->words);
    base_free(d->word_tokens);
    d->banned = base_alloc_zero(words, sizeof *d->banned);
    d->words = base_alloc_zero(words, sizeof *d->words);
    d->word_tokens = base_alloc_zero(tokens + 1, sizeof *d->word_tokens);
    if (!d->banned || !d->words || !d->word_tokens)
        return BY_ERR_MEMORY;
    s->banned_count = s->word_count = 0;
    cJSON_ArrayForEach(word, list)
    {
        const int32_t *first = d->word_tokens + at;
        int count = 0;
        cJSON_ArrayForEach(id, word)
        {
            d->word_tokens[at++] = (int32_t)id->valuedouble;
            count++;
        }
        if (count == 1)
            d->banned[s->banned_count++] = *first;
        else if (count > 1)
            d->words[s->word_count++] = (by_words){first, count};
    }
    s->banned = d->banned;
    s->words = d->words;
    return BY_OK;
}

static by_status read_prefix(const cJSON *json, by_rewrite_defaults *d)
{
    const char *prefix;
    BY_TRY(base_json_string(json, "prefix", NULL, &prefix));
    if (!prefix)
        return BY_OK;
    base_free(d->prefix);
    d->prefix = base_strdup(prefix);
    return d->prefix ? BY_OK : BY_ERR_MEMORY;
}

static by_status settings_read(const cJSON *json, by_rewrite_defaults *d)
{
    BY_TRY(gen_generation_keys_check(json));
    BY_TRY(read_beam(json, &d->generate.beam));
    BY_TRY(read_lengths(json, d));
    BY_TRY(read_draw(json, d));
    BY_TRY(read_stops(json, d));
    BY_TRY(read_decay(json, &d->generate.sampling));
    BY_TRY(read_forced(json, "forced_bos_token_id", &d->first, &d->generate.sampling.forced_bos));
    BY_TRY(read_forced(json, "forced_eos_token_id", &d->last, &d->generate.sampling.forced_last));
    BY_TRY(read_bad_words(json, d));
    BY_TRY(read_suppressed(json, d));
    BY_TRY(read_biases(json, d));
    BY_TRY(read_stop_strings(json, d));
    return read_prefix(json, d);
}

static bool is_end(const by_model *m, const by_generate_spec *g, int32_t token)
{
    bool end = !g->ignore_eos && token == by_model_eos(m);
    for (int i = 0; i < g->stop_count; i++)
        end = end || token == g->stop_tokens[i];
    return end;
}

/* Called when all settings are read: sampling settings have no effect without do_sample, and stop tokens are
 * not banned. */
static void settings_finish(const by_model *m, by_rewrite_defaults *d)
{
    by_sampling *s = &d->generate.sampling;
    int kept = 0;
    for (int i = 0; i < s->banned_count; i++)
        if (!is_end(m, &d->generate, d->banned[i]))
            d->banned[kept++] = d->banned[i];
    s->banned_count = kept;
    if (d->sample)
        return;
    s->temperature = s->top_p = s->typical_p = s->min_p = 0;
    s->epsilon_cutoff = s->eta_cutoff = s->top_h = 0;
    s->top_k = 0;
}

static by_status read_task(const cJSON *config, const char *task, by_rewrite_defaults *d)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(config, "task_specific_params"), *item;
    const cJSON *own = cJSON_GetObjectItemCaseSensitive(all, task);
    if (cJSON_IsObject(own))
        return settings_read(own, d);
    base_buf known = {0};
    cJSON_ArrayForEach(item, all)
    {
        base_buf_printf(&known, "%s%s", known.size ? ", " : "", item->string);
    }
    by_status s = base_fail(BY_ERR_ARGUMENT, "the model has no settings for \"%s\"; available: %s", task,
                            known.size ? known.data : "no tasks by name");
    base_buf_free(&known);
    return s;
}

/* The settings of a file, or of one of its tasks, or only its prefix or the first token of a decoder. */
typedef enum part { PART_ALL, PART_TASK, PART_PREFIX, PART_START } part;

static by_status read_file(const char *dir, const char *name, part wanted, const char *task,
                           by_rewrite_defaults *d)
{
    char *path = base_path_join(dir, name);
    cJSON *json = path && base_file_exists(path) ? base_json_load(path) : NULL;
    by_status s = !path || (!json && base_file_exists(path)) ? base_error_status() : BY_OK;
    if (s == BY_OK && json)
        s = wanted == PART_ALL     ? settings_read(json, d)
            : wanted == PART_START ? read_start(json, d)
            : wanted == PART_TASK  ? read_task(json, task, d)
                                   : read_prefix(json, d);
    if (s != BY_OK)
        base_fail_context("%s", path ? path : name);
    cJSON_Delete(json);
    base_free(path);
    return s;
}

/* Tokenizers without a limit have 1e30 here. */
static by_status read_longest(const char *dir, int *out)
{
    char *path = base_path_join(dir, "tokenizer_config.json");
    cJSON *json = path && base_file_exists(path) ? base_json_load(path) : NULL;
    by_status s = !path || (!json && base_file_exists(path)) ? base_error_status() : BY_OK;
    const cJSON *most = cJSON_GetObjectItemCaseSensitive(json, "model_max_length");
    const bool said = cJSON_IsNumber(most) && most->valuedouble >= 2 && most->valuedouble <= MOST_SOURCE;
    *out = said ? (int)most->valuedouble : USUAL_SOURCE;
    cJSON_Delete(json);
    base_free(path);
    return s;
}

static bool has_file(const char *dir, const char *name)
{
    char *path = base_path_join(dir, name);
    const bool there = path && base_file_exists(path);
    base_free(path);
    return there;
}

by_status by_rewrite_defaults_none(const by_model *m, const char *dir, by_rewrite_defaults *out)
{
    if (out)
        *out = (by_rewrite_defaults){.generate.beam.length_penalty = 1};
    if (!m || !dir || !out)
        return base_fail_missing(m ? "directory or by_rewrite_defaults" : "model");
    return by_model_is_limited(m) ? BY_OK : read_longest(dir, &out->max_source);
}

by_status by_rewrite_defaults_load(const by_model *m, const char *dir, const char *task,
                                   by_rewrite_defaults *out)
{
    const bool own = dir && has_file(dir, "generation_config.json");
    BY_TRY(by_rewrite_defaults_none(m, dir, out));
    by_sampling *s = &out->generate.sampling;
    out->vocab = by_model_vocab(m);
    s->temperature = s->top_p = s->typical_p = 1;
    s->top_k = 50;
    BY_TRY(read_file(dir, "config.json", own ? PART_PREFIX : PART_ALL, NULL, out));
    BY_TRY(read_file(dir, "generation_config.json", PART_ALL, NULL, out));
    if (by_model_task(m) == BY_TASK_SEQ2SEQ)
        BY_TRY(read_file(dir, "generation_config.json", PART_START, NULL, out));
    if (own && by_model_eos(m) >= 0)
        out->generate.ignore_eos = true; /* a file without an end token has none */
    if (task)
        BY_TRY(read_file(dir, "config.json", PART_TASK, task, out));
    settings_finish(m, out);
    return BY_OK;
}

static by_status read_strictly(const by_model *m, const cJSON *json, by_rewrite_defaults *d)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, json)
    {
        if (!item->string || gen_generation_key_kind(item->string) == GEN_KEY_UNKNOWN)
            return base_fail(BY_ERR_UNSUPPORTED, "unknown setting %s", item->string ? item->string : "");
    }
    BY_TRY(settings_read(json, d));
    if (by_model_task(m) == BY_TASK_SEQ2SEQ && cJSON_HasObjectItem(json, "decoder_start_token_id"))
        BY_TRY(read_start(json, d));
    if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(json, "eos_token_id"))) {
        d->generate.ignore_eos = true;
        d->generate.stop_count = 0;
    }
    settings_finish(m, d);
    return BY_OK;
}

by_status by_rewrite_defaults_read(const by_model *m, const char *json, by_rewrite_defaults *d)
{
    if (!m || !json || !d)
        return base_fail_missing(m ? "settings or by_rewrite_defaults" : "model");
    cJSON *parsed = base_json_parse(json, strlen(json), "the settings");
    if (!parsed)
        return base_error_status();
    by_status s = cJSON_IsObject(parsed) ? read_strictly(m, parsed, d)
                                         : base_fail(BY_ERR_FORMAT, "the settings are not a JSON object");
    cJSON_Delete(parsed);
    return s;
}

int by_rewrite_defaults_most(const by_rewrite_defaults *d, int prompt)
{
    return d->max_new ? d->max_new : d->max_length ? BY_MAX(d->max_length - prompt, 1) : 0;
}

int by_rewrite_defaults_least(const by_rewrite_defaults *d, int prompt)
{
    return d->min_new ? d->min_new : BY_MAX(d->min_length - prompt, 0);
}

void by_rewrite_defaults_free(by_rewrite_defaults *d)
{
    base_free(d->prefix);
    base_free(d->banned);
    base_free(d->words);
    base_free(d->word_tokens);
    base_free(d->stops);
    base_free(d->first_banned);
    base_free(d->suppressed);
    base_free(d->biases);
    base_free(d->bias_tokens);
    free_strings(d);
    *d = (by_rewrite_defaults){0};
}
