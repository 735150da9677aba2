/* ngram_folder.c - n-gram models as files and directories (banyan/ngram.h). */
#include <unistd.h>

#include "base/input.h"
#include "base/json.h"
#include "ngram/ngram.h"

#define BINARY "ngram.bin"
#define ARPA   "model.arpa"
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

/* Whether dir/config.json says that it is one. */
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
        base_error_clear(); /* why a directory is none does not matter here */
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
    by_status s = ngram_arpa_write(to, &l);
    by_ngram_free(m);
    return s;
}

by_status by_ngram_convert(const char *from, const char *to)
{
    if (!from || !to)
        return base_fail_missing("path");
    if (base_input_ends(to, ".arpa"))
        return to_arpa(from, to);
    if (base_dir_exists(from) || ngram_is_binary(from))
        return base_fail(BY_ERR_ARGUMENT, "%s is a binary already; an ARPA file ends with .arpa or .arpa.gz",
                         from);
    return to_binary(from, to);
}

/* ---- directories ------------------------------------------------------------------------------------- */

static by_status write_config(const char *dir, const by_tokenizer *t, const by_ngram_spec *spec,
                              const by_ngram_result *r)
{
    cJSON *json = cJSON_CreateObject();
    char *path = base_path_join(dir, CONFIG);
    const bool ok =
        json && path && base_json_put(json, "model_type", cJSON_CreateString(family)) &&
        base_json_put(json, "order", cJSON_CreateNumber(spec->order ? spec->order : 3)) &&
        base_json_put(json, "smoothing", cJSON_CreateString(by_smoothing_name(spec->smoothing))) &&
        (spec->smoothing != BY_SMOOTHING_ADD_K || base_json_put(json, "k", cJSON_CreateNumber(spec->k))) &&
        base_json_put(json, "units", cJSON_CreateString(t ? "tokens" : "words")) &&
        base_json_put(json, "vocab_size",
                      cJSON_CreateNumber(t ? by_tokenizer_vocab_size(t) : (double)r->words));
    by_status s = ok ? base_json_write(path, json) : BY_ERR_MEMORY;
    cJSON_Delete(json);
    base_free(path);
    return s;
}

/* Removes what an interrupted call has left: "ngram.bin.tmp-123". */
static void remove_leftovers(const char *dir)
{
    char **paths = NULL;
    int count = 0;
    static const char *const patterns[] = {BINARY ".tmp-*", ARPA ".tmp-*", CONFIG ".tmp-*"};
    for (int k = 0; k < BY_COUNT(patterns); k++) {
        char *pattern = base_path_join(dir, patterns[k]);
        if (pattern && base_glob(pattern, &paths, &count) == BY_OK)
            for (int i = 0; i < count; i++)
                unlink(paths[i]);
        base_paths_free(paths, count);
        paths = NULL;
        count = 0;
        base_free(pattern);
    }
    base_error_clear();
}

/* A directory that is about to get a model is none until it has it. */
static by_status prepare(const char *dir, bool overwrite)
{
    BY_TRY(base_dir_make(dir));
    char *config = base_path_join(dir, CONFIG);
    by_status s = config ? BY_OK : BY_ERR_MEMORY;
    if (config && base_file_exists(config)) {
        if (!is_folder(dir))
            s = base_fail(BY_ERR_ARGUMENT,
                          "%s: holds a model that is not an n-gram model; choose another directory", dir);
        else if (!overwrite)
            s = base_fail(BY_ERR_ARGUMENT,
                          "%s: holds an n-gram model already; overwrite it, or choose another directory",
                          dir);
        else
            unlink(config);
    }
    base_free(config);
    if (s == BY_OK)
        remove_leftovers(dir);
    return s;
}

by_status by_ngram_train_folder(const char *const *files, int count, const by_tokenizer *t,
                                const by_ngram_spec *spec, const char *dir, bool arpa, bool overwrite,
                                by_ngram_result *result)
{
    by_ngram_result unused;
    if (!dir || !spec)
        return base_fail_missing(spec ? "directory" : "by_ngram_spec");
    result = result ? result : &unused;
    BY_TRY(prepare(dir, overwrite));
    char *binary = base_path_join(dir, BINARY), *text = arpa ? base_path_join(dir, ARPA) : NULL;
    by_status s = binary && (text || !arpa) ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = by_ngram_train(files, count, t, spec, binary, text, result);
    if (s == BY_OK && t)
        s = by_tokenizer_save(t, dir);
    if (s == BY_OK)
        s = write_config(dir, t, spec, result);
    base_free(binary);
    base_free(text);
    return s;
}
