/* common.c - helpers of several verbs (see common.h). */
#include "cli/common.h"

#include "banyan/adapter.h"
#include "banyan/ngram.h"
#include "banyan/weights.h"
#include "base/file.h"
#include "base/input.h"
#include "cli/report.h"

/* dir/name is there. A failed allocation counts as absent: opening the file next reports it. */
static bool holds(const char *dir, const char *name)
{
    char *path = base_path_join(dir, name);
    bool there = path && base_file_exists(path);
    base_free(path);
    return there;
}

/* NAME or OWNER/NAME with only letters, digits and "-_.". If a directory OWNER exists, it is a path. */
static bool is_hub_name(const char *path)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t owner = strspn(path, letters), rest = path[owner] == '/' ? strspn(path + owner + 1, letters) : 0;
    if (owner == 0 || *path == '.' || (path[owner] && (rest == 0 || path[owner + 1 + rest])))
        return false;
    char *parent = path[owner] ? base_sprintf("%.*s", (int)owner, path) : NULL;
    const bool local = parent && base_dir_exists(parent);
    base_free(parent);
    return !local;
}

void cli_fail_absent(const char *path)
{
    if (base_file_exists(path))
        base_fail(BY_ERR_IO, "%s: a file, not a model directory", path);
    else if (base_input_ends(path, ".arpa"))
        base_fail(BY_ERR_IO, "%s: no such file", path);
    else if (is_hub_name(path))
        base_fail(BY_ERR_IO,
                  "%s: no such directory; fetch a model from the Hugging Face hub first: git clone "
                  "https://huggingface.co/%s (needs git-lfs)",
                  path, path);
    else
        base_fail(BY_ERR_IO, "%s: no such directory", path);
}

cli_kind_of_model cli_model_kind(const char *path)
{
    return by_ngram_is(path) ? CLI_MODEL_NGRAM : CLI_MODEL_NEURAL;
}

/* A model, or an adapter that names its model. */
static bool is_model(const char *dir)
{
    return holds(dir, "config.json") || holds(dir, "adapter_config.json");
}

char *cli_model_dir(const char *path)
{
    static const char *const inside[] = {"best", "last"};
    if (!*path) {
        base_fail(BY_ERR_ARGUMENT, "the model name is empty");
        return NULL;
    }
    if (cli_model_kind(path) == CLI_MODEL_NGRAM) {
        base_fail(BY_ERR_UNSUPPORTED,
                  "%s: this command does not support n-gram models; train, eval, score, generate, inspect "
                  "and convert do",
                  path);
        return NULL;
    }
    if (is_model(path))
        return base_strdup(path);
    for (int i = 0; i < BY_COUNT(inside); i++) {
        char *dir = base_path_join(path, inside[i]);
        if (!dir || is_model(dir))
            return dir;
        base_free(dir);
    }
    if (!base_dir_exists(path))
        cli_fail_absent(path);
    else
        base_fail(BY_ERR_IO, "%s: neither a model directory (config.json) nor a run folder (best/ or last/)",
                  path);
    return NULL;
}

by_tokenizer *cli_tokenizer(const char *path)
{
    char *dir = cli_model_dir(path);
    if (!dir)
        return NULL;
    by_tokenizer *t =
        by_tokenizer_load(holds(dir, "tokenizer.json") || !holds(path, "tokenizer.json") ? dir : path);
    char *base = !t && holds(dir, "adapter_config.json") ? by_adapter_base(dir) : NULL;
    if (base)
        t = by_tokenizer_load(base);
    base_free(base);
    base_free(dir);
    return t;
}

by_dtype cli_stored_type(const char *dir)
{
    by_weights *w = by_weights_open(dir);
    const by_weight *largest = NULL;
    for (int i = 0; w && i < by_weights_count(w); i++) {
        const by_weight *one = by_weights_at(w, i);
        if (!largest || one->bytes > largest->bytes)
            largest = one;
    }
    const by_dtype type = largest ? largest->dtype : BY_F32;
    by_weights_free(w);
    base_error_clear();
    return type;
}

void cli_note_widening(const char *dir, by_dtype dtype)
{
    const by_dtype stored = dir && dtype == BY_F32 ? cli_stored_type(dir) : dtype;
    if (dtype != BY_F32 || (stored != BY_BF16 && stored != BY_F16))
        return;
    cli_note("%s: %s weights are converted to f32, which takes time and twice the memory; --dtype bf16 "
             "computes in 16 bits, and `banyan convert %s DIR --dtype f32` converts them once",
             dir, by_dtype_name(stored), dir);
}

by_dtype cli_weights(const char *name)
{
    by_dtype type = BY_F32;
    if (name)
        by_dtype_parse(name, &type);
    return type;
}

by_device *cli_device(const char *name, int threads)
{
    return by_device_open(name, threads);
}

by_status cli_list_split(cli_list *out, const char *const *items, int count)
{
    *out = (cli_list){0};
    for (int i = 0; i < count; i++)
        for (const char *p = items[i], *end; p; p = end ? end + 1 : NULL) {
            end = base_file_exists(items[i]) ? NULL : strchr(p, ',');
            const char **more = base_resize(out->items, (size_t)out->count + 1, sizeof *more);
            char *item = more ? base_sprintf("%.*s", (int)(end ? end - p : (ptrdiff_t)strlen(p)), p) : NULL;
            out->items = more ? more : out->items;
            if (!item)
                return BY_ERR_MEMORY;
            out->items[out->count++] = item;
        }
    return BY_OK;
}

void cli_list_free(cli_list *l)
{
    base_paths_free((char **)l->items, l->count);
}
