/* train.c - learn a tokenizer from files: count words, learn the vocabulary, write it as tokenizer.json and
 * read that back, so that what is returned is what others will load. */
#include "base/json.h"
#include "text/train.h"

#include "base/json.h"

void by_trained_free(by_trained *t)
{
    by_vocab_free(&t->vocab);
    by_free(t->merges);
    by_free(t->scores);
    *t = (by_trained){0};
}

by_status by_train_progress(const by_vocab_spec *spec, const char *phase, int64_t done, int64_t total,
                            int64_t words)
{
    by_vocab_progress p = {phase, done, total, words};
    if (spec->progress && !spec->progress(spec->user, &p))
        return by_fail(BY_ERR_CANCELLED, "stopped while training a tokenizer");
    return BY_OK;
}

static by_status read_stages(const char *json, const char *what, by_stages *out,
                             by_status (*read)(const cJSON *, by_stages *))
{
    cJSON *root = by_json_tree(json, strlen(json), NULL, true);
    if (!root)
        return by_json_well_formed(json) ? by_fail(BY_ERR_MEMORY, "out of memory reading the %s", what)
                                         : by_fail(BY_ERR_ARGUMENT, "the %s is not JSON", what);
    by_status s = read(root, out);
    cJSON_Delete(root);
    return s;
}

/* The stages in front of the model. GPT-2's splitter alone needs none: its words are bytes of the text. */
static by_status open_cutter(const by_vocab_spec *spec, by_cutter *c)
{
    BY_TRY(read_stages(spec->normalizer, "normalizer", &c->normalizers, by_normalizers_read));
    BY_TRY(read_stages(spec->pre_tokenizer, "pre-tokenizer", &c->splitters, by_splitters_read));
    const by_stage *s = c->splitters.items;
    bool alone = !c->normalizers.count && c->splitters.count == 1 && strcmp(s->type, "ByteLevel") == 0;
    c->raw = alone && s->flags[1] && spec->kind == BY_VOCAB_BPE;
    c->prefix_space = alone && s->flags[0];
    return BY_OK;
}

static by_status learn(const by_vocab_spec *spec, const char *const *files, int count, by_trained *out,
                       by_vocab_result *result)
{
    by_cutter cutter = {0};
    by_words words = {0};
    double started = by_seconds();
    by_status s = open_cutter(spec, &cutter);
    if (s == BY_OK)
        s = by_words_count(&cutter, files, count, spec, &words);
    result->count_seconds = by_seconds() - started;
    if (s == BY_OK)
        s = spec->kind == BY_VOCAB_UNIGRAM ? by_unigram_train(spec, &words, out)
                                           : by_bpe_train(spec, &words, out);
    result->bytes = words.bytes;
    result->lines = words.lines;
    result->running = words.running;
    result->words = (int64_t)words.count;
    result->size = out->vocab.count;
    result->alphabet = out->alphabet;
    result->merges = out->merge_count;
    result->seconds = by_seconds() - started;
    by_words_free(&words);
    by_stages_free(&cutter.normalizers);
    by_stages_free(&cutter.splitters);
    return s;
}

/* The tokenizer knows of its special tokens what its directory will say. */
static by_status take_config(by_tokenizer *t, by_buf *config)
{
    cJSON *root = by_json_tree(config->data, config->size, NULL, true);
    if (!root)
        return by_fail(BY_ERR_MEMORY, "out of memory reading tokenizer_config.json");
    const char *end = by_special_name(root, "eos_token");
    if (end)
        by_tokenizer_set_eos(t, end);
    by_special_read(t, root);
    cJSON_Delete(root);
    t->config = config->data;
    *config = (by_buf){0};
    return BY_OK;
}

static by_tokenizer *make(const by_preset *p, const by_vocab_spec *spec, const by_trained *t)
{
    by_buf json = {0}, config = {0};
    by_tokenizer *made = NULL;
    if (by_trained_write(p, spec, t, &json) == BY_OK && by_trained_config(p, spec, &config) == BY_OK)
        made = by_tokenizer_parse(json.data, json.size, "the new tokenizer");
    if (made && take_config(made, &config) != BY_OK) {
        by_tokenizer_free(made);
        made = NULL;
    }
    by_buf_free(&json);
    by_buf_free(&config);
    return made;
}

by_tokenizer *by_tokenizer_train(const by_vocab_spec *spec, const char *const *files, int count,
                                 by_vocab_result *result)
{
    by_vocab_result unwanted;
    by_vocab_spec full;
    by_preset preset;
    by_trained trained = {0};
    by_tokenizer *t = NULL;
    by_arena *keep = by_arena_new();
    result = result ? result : &unwanted;
    *result = (by_vocab_result){0};
    by_status s = keep ? by_preset_resolve(spec, keep, &preset, &full) : BY_ERR_MEMORY;
    if (s == BY_OK && count < 1)
        s = by_fail(BY_ERR_ARGUMENT, "there are no files to learn from");
    if (s == BY_OK)
        s = learn(&full, files, count, &trained, result);
    if (s == BY_OK)
        t = make(&preset, &full, &trained);
    by_trained_free(&trained);
    by_arena_free(keep);
    return t;
}
