/* folder_reserved.c - checks that a run does not touch its inputs and foreign files. See folder.h. */
#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "banyan/ngram.h"
#include "train/loop.h"
#include "train/folder.h"

static bool is_under(const char *name, const char *dir)
{
    const size_t n = strlen(dir);
    return strncmp(name, dir, n) == 0 && name[n] == '/';
}

/* The path of an input relative to the folder, or NULL if it is elsewhere or does not exist. */
static char *path_inside(const train_folder *f, const char *input)
{
    char out[PATH_MAX], path[PATH_MAX];
    if (!realpath(f->out, out) || !realpath(input, path))
        return NULL;
    if (strcmp(path, out) == 0)
        return base_strdup("");
    return is_under(path, out) ? base_strdup(path + strlen(out) + 1) : NULL;
}

/* An input must not be part of the run that is replaced. */
static by_status guard(const train_folder *f, const char *input)
{
    char *inside = input ? path_inside(f, input) : NULL;
    by_status s = BY_OK;
    for (int i = 0; inside && i < f->count && s == BY_OK; i++) {
        const char *name = f->names[i];
        if (strcmp(name, inside) == 0 || is_under(inside, name) || (*inside && is_under(name, inside)))
            s = base_fail(
                BY_ERR_ARGUMENT,
                "%s belongs to the run in %s, which starting over would replace; use another folder", input,
                f->out);
    }
    base_free(inside);
    return s;
}

/* The input model must not be in the folder itself, which will hold a model. */
static by_status keep_apart(const train_folder *f, const char *input)
{
    char *inside = input ? path_inside(f, input) : NULL;
    by_status s = inside && !*inside ? base_fail(BY_ERR_ARGUMENT,
                                                 "%s is both the model to read and the output folder, and "
                                                 "would be replaced; use another folder",
                                                 input)
                                     : BY_OK;
    base_free(inside);
    return s;
}

/* ---- required names -------------------------------------------------------------------------- */

static const char *const MODEL_FILES[] = {"config.json",
                                          "generation_config.json",
                                          "model.safetensors",
                                          "model.safetensors.index.json",
                                          "pytorch_model.bin",
                                          "adapter_config.json",
                                          "adapter_model.safetensors",
                                          "tokenizer.json",
                                          "tokenizer_config.json",
                                          "target_tokenizer.json",
                                          "special_tokens_map.json",
                                          "added_tokens.json",
                                          "vocab.json",
                                          "vocab.txt",
                                          "merges.txt",
                                          "vocab.bpe",
                                          "encoder.json",
                                          "spiece.model",
                                          "source.spm",
                                          "target.spm",
                                          "target_vocab.json",
                                          "sentencepiece.bpe.model",
                                          "tokenizer.model",
                                          "spm.model",
                                          "chat_template.jinja"};

static bool is_shard(const char *name)
{
    static const char pattern[] = "model-#####-of-#####.safetensors";
    size_t i = 0;
    for (; name[i] && pattern[i]; i++)
        if (pattern[i] == '#' ? name[i] < '0' || name[i] > '9' : name[i] != pattern[i])
            return false;
    return name[i] == pattern[i];
}

bool train_folder_is_model_file(const char *name)
{
    for (int i = 0; i < BY_COUNT(MODEL_FILES); i++)
        if (strcmp(name, MODEL_FILES[i]) == 0)
            return true;
    return is_shard(name);
}

/* Checkpoints of somebody else. */
static by_status check_checkpoints(const train_folder *f)
{
    DIR *d = opendir(f->out);
    by_status s = BY_OK;
    for (struct dirent *e; d && s == BY_OK && (e = readdir(d));) {
        const char *digits = e->d_name + 11;
        if (strncmp(e->d_name, "checkpoint-", 11) == 0 && *digits && !digits[strspn(digits, "0123456789")])
            s = train_folder_check_free(f, e->d_name);
    }
    if (d)
        closedir(d);
    return s;
}

/* Required names must be free or owned; checked at the start, not hours later. */
static by_status reserve(train_folder *f, bool averaged, bool model)
{
    static const char *const names[] = {"run.json", "metrics.jsonl", "loss.svg",  "last",
                                        "best",     ".last-new",     ".best-new", TRAIN_FOLDER_STAGE "/"};
    BY_TRY(check_checkpoints(f));
    if (averaged)
        BY_TRY(train_folder_check_free(f, "averaged"));
    for (int i = 0; i < BY_COUNT(MODEL_FILES) && model; i++)
        BY_TRY(train_folder_check_free(f, MODEL_FILES[i]));
    return train_folder_claim(f, names, BY_COUNT(names));
}

void train_folder_warn(const train_folder *f, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    base_vformat(text, sizeof text, fmt, args);
    va_end(args);
    by_report p = train_report_empty();
    p.warning = text;
    if (f->report)
        f->report(f->user, &p);
}

by_status train_folder_enter(train_folder *f, const train_folder_use *use)
{
    if (by_ngram_is(use->out))
        return base_fail(BY_ERR_ARGUMENT, "%s holds an n-gram model; choose another directory", use->out);
    base_error_clear();
    BY_TRY(train_folder_open(f, use->out));
    f->report = use->report;
    f->user = use->user;
    if (use->leaves_model)
        BY_TRY(keep_apart(f, use->model));
    BY_TRY(reserve(f, use->averages, use->leaves_model));
    if (!use->overwrite)
        return BY_OK;
    BY_TRY(guard(f, use->model));
    for (int i = 0; i < BY_COUNT(use->inputs); i++)
        for (int k = 0; k < use->inputs[i].count; k++)
            BY_TRY(guard(f, use->inputs[i].paths[k]));
    return BY_OK;
}
