/* train.c - trains a tokenizer on files: counts words, trains the vocabulary, writes it as tokenizer.json and
 * reads that back, so that the returned tokenizer is the one that others will load. */
#include "base/json.h"
#include "text/train/train.h"

#include "base/json.h"

void tok_trained_free(tok_trained *t)
{
    tok_vocab_free(&t->vocab);
    base_free(t->merges);
    base_free(t->scores);
    *t = (tok_trained){0};
}

by_status tok_train_progress(const by_vocab_spec *spec, const char *phase, int64_t done, int64_t total,
                             int64_t words)
{
    by_vocab_progress p = {phase, done, total, words};
    if (spec->progress && !spec->progress(spec->user, &p))
        return base_fail(BY_ERR_CANCELLED, "stopped while training a tokenizer");
    return BY_OK;
}

static by_status read_stages(const char *json, const char *what, tok_stages *out,
                             by_status (*read)(const cJSON *, tok_stages *))
{
    cJSON *root = base_json_tree(json, strlen(json), NULL, true);
    if (!root)
        return base_json_well_formed(json)
                   ? base_fail(BY_ERR_MEMORY, "out of memory while reading the %s", what)
                   : base_fail(BY_ERR_ARGUMENT, "the %s is not JSON", what);
    by_status s = read(root, out);
    cJSON_Delete(root);
    return s;
}

/* The stages before the model. GPT-2's splitter alone needs none: its words are bytes of the text. */
static by_status open_cutter(const by_vocab_spec *spec, tok_cutter *c)
{
    BY_TRY(read_stages(spec->normalizer, "normalizer", &c->normalizers, tok_normalizers_read));
    BY_TRY(read_stages(spec->pre_tokenizer, "pre-tokenizer", &c->splitters, tok_splitters_read));
    const tok_stage *s = c->splitters.items;
    bool alone = !c->normalizers.count && c->splitters.count == 1 && strcmp(s->type, "ByteLevel") == 0;
    c->raw = alone && s->flags[1] && spec->kind == BY_VOCAB_BPE;
    c->prefix_space = alone && s->flags[0];
    return BY_OK;
}

static by_status learn(const by_vocab_spec *spec, const char *const *files, int count, tok_trained *out,
                       by_vocab_result *result)
{
    tok_cutter cutter = {0};
    tok_words words = {0};
    double started = base_seconds();
    by_status s = open_cutter(spec, &cutter);
    if (s == BY_OK)
        s = tok_words_count(&cutter, files, count, spec, &words);
    result->count_seconds = base_seconds() - started;
    if (s == BY_OK)
        s = spec->kind == BY_VOCAB_UNIGRAM ? tok_unigram_train(spec, &words, out)
            : spec->kind == BY_VOCAB_WORD  ? tok_word_level_train(spec, &words, out)
                                           : tok_bpe_train(spec, &words, out);
    result->bytes = words.bytes;
    result->lines = words.lines;
    result->running = words.running;
    result->words = (int64_t)words.count;
    result->size = out->vocab.count;
    result->alphabet = out->alphabet;
    result->merges = out->merge_count;
    result->seconds = base_seconds() - started;
    tok_words_free(&words);
    tok_stages_free(&cutter.normalizers);
    tok_stages_free(&cutter.splitters);
    return s;
}

/* Gives the tokenizer the special tokens of its future tokenizer_config.json. */
static by_status take_config(by_tokenizer *t, base_buf *config)
{
    cJSON *root = base_json_tree(config->data, config->size, NULL, true);
    if (!root)
        return base_fail(BY_ERR_MEMORY, "out of memory while reading tokenizer_config.json");
    const char *end = tok_special_name(root, "eos_token");
    if (end)
        tok_set_eos(t, end);
    tok_special_read(t, root);
    cJSON_Delete(root);
    t->config = config->data;
    *config = (base_buf){0};
    return BY_OK;
}

static by_tokenizer *make(const tok_preset *p, const by_vocab_spec *spec, const tok_trained *t)
{
    base_buf json = {0}, config = {0};
    by_tokenizer *made = NULL;
    if (tok_trained_write(p, spec, t, &json) == BY_OK && tok_trained_config(p, spec, &config) == BY_OK)
        made = tok_parse(json.data, json.size, "the new tokenizer");
    if (made && take_config(made, &config) != BY_OK) {
        by_tokenizer_free(made);
        made = NULL;
    }
    base_buf_free(&json);
    base_buf_free(&config);
    return made;
}

by_tokenizer *by_tokenizer_train(const by_vocab_spec *spec, const char *const *files, int count,
                                 by_vocab_result *result)
{
    by_vocab_result unwanted;
    by_vocab_spec full;
    tok_preset preset;
    tok_trained trained = {0};
    by_tokenizer *t = NULL;
    base_arena *keep = base_arena_new();
    result = result ? result : &unwanted;
    *result = (by_vocab_result){0};
    by_status s = keep ? tok_preset_resolve(spec, keep, &preset, &full) : BY_ERR_MEMORY;
    if (s == BY_OK && count < 1)
        s = base_fail(BY_ERR_ARGUMENT, "no files to train on");
    if (s == BY_OK)
        s = learn(&full, files, count, &trained, result);
    if (s == BY_OK)
        t = make(&preset, &full, &trained);
    tok_trained_free(&trained);
    base_arena_free(keep);
    return t;
}
