/* ngram_folder.c - n-gram models as files and directories (banyan/ngram.h). */
#include <errno.h>
#include <unistd.h>

#include "base/input.h"
#include "base/json.h"
#include "ngram/ngram.h"

#define BINARY "ngram.bin"
#define CONFIG "config.json"
static const char family[] = "ngram";

bool by_ngram_is_family(const char *name)
{
    return name && strcmp(name, family) == 0;
}

bool ngram_is_binary(const char *path)
{
    char first[8] = {0};
    FILE *f = fopen(path, "rb");
    const bool is =
        f && fread(first, 1, sizeof first, f) == sizeof first && memcmp(first, "byngram\n", 8) == 0;
    if (f)
        fclose(f);
    return is;
}

/* Whether dir/config.json describes an n-gram model. */
static bool is_folder(const char *dir)
{
    char *path = base_path_join(dir, CONFIG);
    cJSON *json = path && base_file_exists(path) ? base_json_load(path) : NULL;
    const bool is =
        by_ngram_is_family(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "model_type")));
    cJSON_Delete(json);
    base_free(path);
    return is;
}

bool by_ngram_is(const char *path)
{
    if (!path)
        return false;
    if (!base_dir_exists(path))
        return base_file_exists(path) && (ngram_is_binary(path) || base_input_ends(path, ".arpa"));
    const bool is = is_folder(path);
    if (!is)
        base_error_clear(); /* the reason does not matter here */
    return is;
}

char *ngram_file_of(const char *path)
{
    return base_dir_exists(path) ? base_path_join(path, BINARY) : base_strdup(path);
}

/* ---- conversion -------------------------------------------------------------------------------------- */

static by_status to_binary(const char *from, const char *to)
{
    ngram_image image = {0};
    base_file_remove_leftovers(to);
    by_status s = ngram_arpa_read(from, to, &image);
    if (s == BY_OK)
        s = ngram_image_finish(&image);
    ngram_image_abort(&image);
    return s == BY_OK ? BY_OK : base_fail_context("%s", from);
}

static by_status to_arpa(const char *from, const char *to)
{
    by_ngram *m = by_ngram_open(from);
    if (!m)
        return base_error_status();
    ngram_image_walk walk = {.header = ngram_model_header(m)};
    const ngram_listing l = ngram_image_listing(&walk);
    base_file_remove_leftovers(to);
    by_status s = ngram_arpa_write(to, &l);
    by_ngram_free(m);
    return s;
}

/* ---- directories ------------------------------------------------------------------------------------- */

/* What config.json says. */
typedef struct description {
    int order;
    by_smoothing smoothing;
    double k;
    bool tokens;
    int vocabulary;
} description;

static by_status write_config(const char *dir, const description *d)
{
    cJSON *json = cJSON_CreateObject();
    char *path = base_path_join(dir, CONFIG);
    const bool ok =
        json && path && base_json_put(json, "model_type", cJSON_CreateString(family)) &&
        base_json_put(json, "order", cJSON_CreateNumber(d->order)) &&
        base_json_put(json, "smoothing", cJSON_CreateString(by_smoothing_name(d->smoothing))) &&
        (d->smoothing != BY_SMOOTHING_ADD_K || base_json_put(json, "k", cJSON_CreateNumber(d->k))) &&
        base_json_put(json, "units", cJSON_CreateString(d->tokens ? "tokens" : "words")) &&
        base_json_put(json, "vocab_size", cJSON_CreateNumber(d->vocabulary));
    by_status s = ok ? base_json_write(path, json) : BY_ERR_MEMORY;
    cJSON_Delete(json);
    base_free(path);
    return s;
}

/* The file of another kind of model in dir, or NULL. */
static const char *find_other(const char *dir)
{
    static const char *const names[] = {CONFIG, "owned.json",        "last",
                                        "best", "model.safetensors", "pytorch_model.bin"};
    const char *found = NULL;
    for (int i = 0; i < BY_COUNT(names) && !found; i++) {
        char *path = base_path_join(dir, names[i]);
        found = path && access(path, F_OK) == 0 ? names[i] : NULL;
        base_free(path);
    }
    return found;
}

static by_status prepare(const char *dir, bool overwrite)
{
    static const char *const names[] = {BINARY, CONFIG};
    BY_TRY(base_dir_make(dir));
    if (is_folder(dir) && !overwrite)
        return base_fail(BY_ERR_ARGUMENT,
                         "%s already holds an n-gram model; overwrite it, or choose another directory", dir);
    const char *other = is_folder(dir) ? NULL : find_other(dir);
    if (other)
        return base_fail(BY_ERR_ARGUMENT, "%s holds another kind of model (%s); choose another directory",
                         dir, other);
    base_error_clear();
    for (int i = 0; i < BY_COUNT(names); i++) {
        char *path = base_path_join(dir, names[i]);
        if (path)
            base_file_remove_leftovers(path);
        base_free(path);
    }
    return BY_OK;
}

/* Moves the complete binary into place. Between the removal of the old config.json and the writing of the new
 * one, the directory is not a model. */
static by_status place(const char *dir, const char *fresh, const by_tokenizer *t, const description *d)
{
    char *config = base_path_join(dir, CONFIG), *binary = base_path_join(dir, BINARY);
    by_status s = config && binary ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK && unlink(config) != 0 && errno != ENOENT)
        s = base_fail(BY_ERR_IO, "%s: %s", config, strerror(errno));
    if (s == BY_OK)
        s = base_rename(fresh, binary);
    if (s == BY_OK && t)
        s = by_tokenizer_save(t, dir);
    if (s == BY_OK)
        s = write_config(dir, d);
    base_free(config);
    base_free(binary);
    return s;
}

/* The temporary name of a binary; leftovers of dead processes are removed. */
static char *fresh_name(const char *dir)
{
    return base_sprintf("%s/" BINARY ".tmp-%ld", dir, (long)getpid());
}

/* After a failure nothing is left, not even a directory that was made for the model. */
static void clear(by_status s, const char *dir, bool there, char *fresh)
{
    if (fresh)
        unlink(fresh);
    if (s != BY_OK && !there)
        rmdir(dir);
    base_free(fresh);
}

by_status by_ngram_train_folder(const char *const *files, int count, const by_tokenizer *t,
                                const by_ngram_spec *spec, const char *dir, const char *arpa, bool overwrite,
                                by_ngram_result *result)
{
    by_ngram_result unused;
    if (!dir || !spec)
        return base_fail_missing(spec ? "directory" : "by_ngram_spec");
    result = result ? result : &unused;
    const bool there = base_dir_exists(dir);
    BY_TRY(prepare(dir, overwrite));
    char *fresh = fresh_name(dir);
    by_status s = fresh ? by_ngram_train(files, count, t, spec, fresh, arpa, result) : BY_ERR_MEMORY;
    const description d = {.order = result->order,
                           .smoothing = spec->smoothing,
                           .k = spec->k,
                           .tokens = t != NULL,
                           .vocabulary = t ? by_tokenizer_vocab_size(t) : result->words};
    if (s == BY_OK)
        s = place(dir, fresh, t, &d);
    clear(s, dir, there, fresh);
    return s;
}

static by_status to_folder(const char *from, const char *dir)
{
    const bool there = base_dir_exists(dir);
    BY_TRY(prepare(dir, false));
    char *fresh = fresh_name(dir);
    by_status s = fresh ? to_binary(from, fresh) : BY_ERR_MEMORY;
    by_ngram *m = s == BY_OK ? by_ngram_open(fresh) : NULL;
    const description d = {
        .order = by_ngram_order(m), .smoothing = by_ngram_smoothing(m), .vocabulary = by_ngram_words(m)};
    by_ngram_free(m);
    if (s == BY_OK)
        s = m ? place(dir, fresh, NULL, &d) : base_error_status();
    clear(s, dir, there, fresh);
    return s;
}

by_status by_ngram_convert(const char *from, const char *to)
{
    if (!from || !to)
        return base_fail_missing("path");
    if (base_input_ends(to, ".arpa"))
        return to_arpa(from, to);
    if (base_dir_exists(from) || ngram_is_binary(from))
        return base_fail(BY_ERR_ARGUMENT, "%s is already a binary; name an ARPA file .arpa or .arpa.gz",
                         from);
    return base_input_ends(to, ".bin") ? to_binary(from, to) : to_folder(from, to);
}
