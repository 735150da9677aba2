/* rewrite_defaults.c - what a model directory says about generating (see banyan/rewrite.h). */
#include "banyan/rewrite.h"
#include "base/file.h"
#include "base/json.h"

enum { USUAL_SOURCE = 1024, MOST_SOURCE = 1 << 20 };

/* Settings come from up to three places; what is said later counts. */
static by_status read_beam(const cJSON *json, by_beam *b)
{
    int64_t beams, groups, returned;
    BY_TRY(by_json_int(json, "num_beams", BY_MAX(b->width, 1), 1, 64, &beams));
    BY_TRY(by_json_int(json, "num_beam_groups", BY_MAX(b->groups, 1), 1, 64, &groups));
    BY_TRY(by_json_int(json, "num_return_sequences", BY_MAX(b->returned, 1), 1, 64, &returned));
    BY_TRY(by_json_double(json, "length_penalty", b->length_penalty, -100, 100, &b->length_penalty));
    BY_TRY(by_json_double(json, "diversity_penalty", b->diversity, 0, 1e6, &b->diversity));
    b->width = (int)beams;
    b->groups = (int)groups;
    b->returned = (int)returned;
    const cJSON *early = cJSON_GetObjectItemCaseSensitive(json, "early_stopping");
    if (cJSON_IsBool(early))
        b->early_stopping = cJSON_IsTrue(early) ? BY_STOP_EARLY : BY_STOP_HEURISTIC;
    else if (cJSON_IsString(early) && strcmp(early->valuestring, "never") == 0)
        b->early_stopping = BY_STOP_NEVER;
    else if (early && !cJSON_IsNull(early))
        return by_fail(BY_ERR_FORMAT, "early_stopping is not true, false or \"never\"");
    return BY_OK;
}

static by_status read_lengths(const cJSON *json, by_rewrite_defaults *d)
{
    int64_t most, least, ngram;
    by_sampling *s = &d->generate.sampling;
    BY_TRY(by_json_int(json, "max_length", d->max_length, 0, 1 << 24, &most));
    BY_TRY(by_json_int(json, "max_new_tokens", most, 0, 1 << 24, &most));
    BY_TRY(by_json_int(json, "min_length", d->min_length, 0, 1 << 24, &least));
    BY_TRY(by_json_int(json, "no_repeat_ngram_size", s->no_repeat_ngram, 0, 1 << 20, &ngram));
    BY_TRY(
        by_json_double(json, "repetition_penalty", s->repetition_penalty, 1e-3, 1e3, &s->repetition_penalty));
    d->max_length = (int)most;
    d->min_length = (int)least;
    s->no_repeat_ngram = (int)ngram;
    return BY_OK;
}

static by_status read_forced(const cJSON *json, const char *key, int32_t *token, const int32_t **used)
{
    int64_t id;
    BY_TRY(by_json_int(json, key, -1, 0, INT32_MAX, &id));
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

/* Words of one token, and longer ones. */
static by_status read_bad_words(const cJSON *json, by_rewrite_defaults *d)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "bad_words_ids"), *word, *id;
    by_sampling *s = &d->generate.sampling;
    size_t words = 0, tokens = 0, at = 0;
    if (list && !cJSON_IsNull(list) && !cJSON_IsArray(list))
        return by_fail(BY_ERR_FORMAT, "bad_words_ids is not a list of lists of token ids");
    cJSON_ArrayForEach(word, list)
    {
        words++;
        cJSON_ArrayForEach(id, word)
        {
            if (!is_id(id))
                return by_fail(BY_ERR_FORMAT, "bad_words_ids is not a list of lists of token ids");
            tokens++;
        }
    }
    if (words == 0)
        return BY_OK;
    by_free(d->banned);
    by_free(d->words);
    by_free(d->word_tokens);
    d->banned = by_alloc_zero(words, sizeof *d->banned);
    d->words = by_alloc_zero(words, sizeof *d->words);
    d->word_tokens = by_alloc_zero(tokens + 1, sizeof *d->word_tokens);
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

static by_status read_settings(const cJSON *json, by_rewrite_defaults *d)
{
    const char *prefix;
    BY_TRY(read_beam(json, &d->generate.beam));
    BY_TRY(read_lengths(json, d));
    BY_TRY(read_forced(json, "forced_bos_token_id", &d->first, &d->generate.sampling.forced_first));
    BY_TRY(read_forced(json, "forced_eos_token_id", &d->last, &d->generate.sampling.forced_last));
    BY_TRY(read_bad_words(json, d));
    BY_TRY(by_json_string(json, "prefix", NULL, &prefix));
    if (!prefix)
        return BY_OK;
    by_free(d->prefix);
    d->prefix = by_strdup(prefix);
    return d->prefix ? BY_OK : BY_ERR_MEMORY;
}

static by_status read_task(const cJSON *config, const char *task, by_rewrite_defaults *d)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(config, "task_specific_params"), *item;
    const cJSON *own = cJSON_GetObjectItemCaseSensitive(all, task);
    if (cJSON_IsObject(own))
        return read_settings(own, d);
    by_buf known = {0};
    cJSON_ArrayForEach(item, all)
    {
        by_buf_printf(&known, "%s%s", known.size ? ", " : "", item->string);
    }
    by_status s = by_fail(BY_ERR_ARGUMENT, "the model says nothing about \"%s\"; it knows: %s", task,
                          known.size ? known.data : "no tasks by name");
    by_buf_free(&known);
    return s;
}

static by_status read_file(const char *dir, const char *name, const char *task, by_rewrite_defaults *d)
{
    char *path = by_path_join(dir, name);
    cJSON *json = path && by_file_exists(path) ? by_json_load(path) : NULL;
    by_status s = !path || (!json && by_file_exists(path)) ? by_error_status() : BY_OK;
    if (s == BY_OK && json)
        s = read_settings(json, d);
    if (s == BY_OK && task)
        s = read_task(json, task, d);
    if (s != BY_OK)
        by_fail_context("%s", path ? path : name);
    cJSON_Delete(json);
    by_free(path);
    return s;
}

/* Tokenizers that know no limit have 1e30 there. */
static by_status read_longest(const char *dir, int *out)
{
    char *path = by_path_join(dir, "tokenizer_config.json");
    cJSON *json = path && by_file_exists(path) ? by_json_load(path) : NULL;
    by_status s = !path || (!json && by_file_exists(path)) ? by_error_status() : BY_OK;
    const cJSON *most = cJSON_GetObjectItemCaseSensitive(json, "model_max_length");
    const bool said = cJSON_IsNumber(most) && most->valuedouble >= 2 && most->valuedouble <= MOST_SOURCE;
    *out = said ? (int)most->valuedouble : USUAL_SOURCE;
    cJSON_Delete(json);
    by_free(path);
    return s;
}

by_status by_rewrite_defaults_load(const by_model *m, const char *dir, const char *task,
                                   by_rewrite_defaults *out)
{
    if (out)
        *out = (by_rewrite_defaults){.generate.beam.length_penalty = 1};
    if (!m || !dir || !out)
        return by_fail_missing(m ? "directory or by_rewrite_defaults" : "model");
    BY_TRY(read_file(dir, "config.json", NULL, out));
    BY_TRY(read_file(dir, "generation_config.json", NULL, out));
    if (!by_model_is_limited(m))
        BY_TRY(read_longest(dir, &out->max_source));
    return task ? read_file(dir, "config.json", task, out) : BY_OK;
}

void by_rewrite_defaults_free(by_rewrite_defaults *d)
{
    by_free(d->prefix);
    by_free(d->banned);
    by_free(d->words);
    by_free(d->word_tokens);
    *d = (by_rewrite_defaults){0};
}
