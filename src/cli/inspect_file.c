/* inspect_file.c - contents of files: tensors, tokenizers, a directory of both. */
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "cli/inspect.h"
#include "cli/report.h"
#include "cli/format.h"
#include "base/json.h"
#include "io/weights.h"
#include "text/tokenizer.h"

/* ---- the files of a directory ---------------------------------------------------------------- */

static int cli_name_order(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

void cli_each_file(const char *dir, void (*fn)(void *user, const char *name, size_t bytes), void *user)
{
    struct dirent **list = NULL;
    int n = scandir(dir, &list, NULL, cli_name_order);
    for (int i = 0; i < n; i++) {
        struct stat st;
        char *path = base_path_join(dir, list[i]->d_name);
        if (path && stat(path, &st) == 0 && S_ISREG(st.st_mode))
            fn(user, list[i]->d_name, (size_t)st.st_size);
        base_free(path);
        free(list[i]);
    }
    free(list);
}

static void print_file(void *user, const char *name, size_t bytes)
{
    (void)user;
    printf("  %-32s %12s\n", name, cli_bytes_text(bytes).s);
}

static void add_file(void *user, const char *name, size_t bytes)
{
    cJSON_AddNumberToObject(user, name, (double)bytes);
}

/* ---- tensors --------------------------------------------------------------------------------- */

cJSON *cli_shape_json(int rank, const int64_t *dim)
{
    cJSON *a = cJSON_CreateArray();
    for (int i = 0; i < rank; i++)
        cJSON_AddItemToArray(a, cJSON_CreateNumber((double)dim[i]));
    return a;
}

typedef struct totals {
    size_t bytes;
    int64_t elements;
    size_t by_type[BY_DTYPE_COUNT];
} totals;

static totals count(const by_weights *w)
{
    totals t = {0};
    for (int i = 0; i < by_weights_count(w); i++) {
        const by_weight *e = by_weights_at(w, i);
        t.bytes += e->bytes;
        t.by_type[e->dtype] += e->bytes;
        t.elements += (int64_t)(e->bytes / by_dtype_size(e->dtype));
    }
    return t;
}

/* Names come from a file: control characters must not reach the terminal. */
static void print_weights(const by_weights *w)
{
    const char *key, *value;
    totals t = count(w);
    for (int i = 0; i < by_weights_count(w); i++) {
        const by_weight *e = by_weights_at(w, i);
        printf("%-56s %-7s %-24s %11s%s\n", io_show(e->name).text, by_dtype_name(e->dtype),
               cli_shape_text(e->rank, e->dim).s, cli_bytes_text(e->bytes).s, e->stride ? "  strided" : "");
    }
    for (int i = 0; by_weights_metadata_at(w, i, &key, &value); i++)
        printf("metadata %s: %s\n", io_show(key).text, io_show(value).text);
    printf("%d tensors, %s elements, %s (", by_weights_count(w), cli_count_text(t.elements).s,
           cli_bytes_text(t.bytes).s);
    bool first = true;
    for (int k = 0; k < BY_DTYPE_COUNT; k++)
        if (t.by_type[k]) {
            printf("%s%s %s", first ? "" : ", ", by_dtype_name((by_dtype)k), cli_bytes_text(t.by_type[k]).s);
            first = false;
        }
    printf(first ? "%s, %d file%s)\n" : "; %s, %d file%s)\n", by_weights_format(w), by_weights_files(w),
           by_weights_files(w) == 1 ? "" : "s");
}

static void add_metadata(cJSON *j, const by_weights *w)
{
    const char *key, *value;
    cJSON *o = cJSON_AddObjectToObject(j, "metadata");
    for (int i = 0; by_weights_metadata_at(w, i, &key, &value); i++)
        cJSON_AddStringToObject(o, key, value);
}

static void add_weights(cJSON *j, const by_weights *w)
{
    totals t = count(w);
    cJSON_AddStringToObject(j, "format", by_weights_format(w));
    cJSON_AddNumberToObject(j, "weight_files", by_weights_files(w));
    cJSON_AddNumberToObject(j, "elements", (double)t.elements);
    cJSON_AddNumberToObject(j, "bytes", (double)t.bytes);
    add_metadata(j, w);
    cJSON *list = cJSON_AddArrayToObject(j, "tensors");
    for (int i = 0; i < by_weights_count(w); i++) {
        const by_weight *e = by_weights_at(w, i);
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "name", e->name);
        cJSON_AddStringToObject(o, "dtype", by_dtype_name(e->dtype));
        cJSON_AddItemToObject(o, "shape", cli_shape_json(e->rank, e->dim));
        cJSON_AddNumberToObject(o, "bytes", (double)e->bytes);
        cJSON_AddItemToArray(list, o);
    }
}

/* ---- tokenizers ------------------------------------------------------------------------------ */

static bool holds(const char *dir, const char *name)
{
    char *path = base_path_join(dir, name);
    bool there = path && base_file_exists(path);
    base_free(path);
    return there;
}

static bool has_tokenizer(const char *dir)
{
    static const char *const names[] = {"tokenizer.json", "vocab.json",     "vocab.txt",
                                        "spiece.model",   "merges.txt",     "sentencepiece.bpe.model",
                                        "source.spm",     "tokenizer.model"};
    for (int i = 0; i < BY_COUNT(names); i++)
        if (holds(dir, names[i]))
            return true;
    return false;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The tokenizer that a file belongs to: in the file itself, or in its directory if the file is only a part of
 * it. NULL if the name is not that of a tokenizer file: *is_one is then false and no error is set. */
static by_tokenizer *tokenizer_of(const char *path, bool *is_one)
{
    static const char *const parts[] = {"vocab.json", "vocab.txt", "merges.txt", "tokenizer_config.json",
                                        "special_tokens_map.json"};
    const char *name = base_name(path), *dot = strrchr(name, '.');
    *is_one = true;
    if (strcmp(name, "tokenizer.json") == 0 || strcmp(name, "target_tokenizer.json") == 0 ||
        (dot && (strcmp(dot, ".model") == 0 || strcmp(dot, ".spm") == 0)))
        return by_tokenizer_load(path);
    for (int i = 0; i < BY_COUNT(parts); i++)
        if (strcmp(name, parts[i]) == 0) {
            char *dir = name == path ? base_strdup(".") : base_sprintf("%.*s", (int)(name - path), path);
            by_tokenizer *t = dir ? by_tokenizer_load(dir) : NULL;
            base_free(dir);
            return t;
        }
    *is_one = false;
    return NULL;
}

static void print_tokenizer(const by_tokenizer *t)
{
    printf("tokenizer: %s, %s tokens", tok_kind(t), cli_count_text(by_tokenizer_vocab_size(t)).s);
    if (by_tokenizer_target_vocab_size(t))
        printf(" for the source and %s for the target", cli_count_text(by_tokenizer_target_vocab_size(t)).s);
    if (by_tokenizer_eos(t) >= 0)
        printf(", end of text %d", by_tokenizer_eos(t));
    printf(by_tokenizer_chat_template(t) ? ", chat template\n" : "\n");
}

static cJSON *tokenizer_json(const by_tokenizer *t)
{
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "kind", tok_kind(t));
    cJSON_AddNumberToObject(j, "vocab", by_tokenizer_vocab_size(t));
    if (by_tokenizer_target_vocab_size(t))
        cJSON_AddNumberToObject(j, "target_vocab", by_tokenizer_target_vocab_size(t));
    cJSON_AddNumberToObject(j, "eos", by_tokenizer_eos(t));
    cJSON_AddBoolToObject(j, "chat_template", by_tokenizer_chat_template(t) != NULL);
    return j;
}

/* Every token (of the source, if there are two vocabularies): its id, and its text as a JSON string. */
static by_status print_tokens(const by_tokenizer *t)
{
    for (int32_t id = 0; id < by_tokenizer_vocab_size(t); id++) {
        base_buf text = {0}, quoted = {0};
        by_status s = tok_decode_with(t, &id, 1, &(tok_decode_spec){.source = true}, &text);
        if (s == BY_OK) {
            base_json_quote(&quoted, text.data ? text.data : "");
            printf("%d\t%s\n", (int)id, quoted.data ? quoted.data : "");
        }
        base_buf_free(&text);
        base_buf_free(&quoted);
        BY_TRY(s);
    }
    return BY_OK;
}

static int show_tokenizer(const char *path, const by_tokenizer *t, const inspect_options *o)
{
    if (o->json) {
        cJSON *j = cJSON_CreateObject();
        cJSON_AddStringToObject(j, "file", path);
        cJSON_AddItemToObject(j, "tokenizer", tokenizer_json(t));
        return cli_print_json(j);
    }
    print_tokenizer(t);
    return o->params && print_tokens(t) != BY_OK ? cli_fail(NULL) : CLI_OK;
}

/* ---- kinds of files -------------------------------------------------------------------------- */

void cli_inspect_stored(const char *dir, int params, int64_t elements)
{
    by_weights *w = by_weights_open(dir);
    const totals t = w ? count(w) : (totals){0};
    if (w && (by_weights_count(w) != params || t.elements != elements))
        printf(": %d tensors, %s elements, repeated tied tensors and buffers included", by_weights_count(w),
               cli_count_text(t.elements).s);
    printf("\n");
    by_weights_free(w);
}

void cli_inspect_companions(const char *dir)
{
    cli_each_file(dir, print_file, NULL);
    by_tokenizer *t = has_tokenizer(dir) ? by_tokenizer_load(dir) : NULL;
    if (t) {
        printf("  ");
        print_tokenizer(t);
    } else if (has_tokenizer(dir)) {
        cli_note("%s", by_error_message());
    }
    by_tokenizer_free(t);
}

void cli_inspect_companions_json(const char *dir, cJSON *j)
{
    cli_each_file(dir, add_file, cJSON_AddObjectToObject(j, "files"));
    by_weights *w = by_weights_open(dir);
    if (w) {
        cJSON_AddNumberToObject(j, "stored_tensors", by_weights_count(w));
        cJSON_AddNumberToObject(j, "stored_elements", (double)count(w).elements);
        add_metadata(j, w);
    }
    by_weights_free(w);
    by_tokenizer *t = has_tokenizer(dir) ? by_tokenizer_load(dir) : NULL;
    if (t)
        cJSON_AddItemToObject(j, "tokenizer", tokenizer_json(t));
    by_tokenizer_free(t);
}

int cli_inspect_file(const char *path, const inspect_options *o)
{
    bool is_tokenizer;
    int code = CLI_OK;
    base_error_clear();
    by_tokenizer *t = tokenizer_of(path, &is_tokenizer);
    by_weights *w = is_tokenizer ? NULL : by_weights_open(path);
    if (t) {
        code = show_tokenizer(path, t, o);
    } else if (!w) {
        code = cli_fail(NULL);
    } else if (o->json) {
        cJSON *j = cJSON_CreateObject();
        cJSON_AddStringToObject(j, "file", path);
        add_weights(j, w);
        code = cli_print_json(j);
    } else {
        print_weights(w);
    }
    by_tokenizer_free(t);
    by_weights_free(w);
    return code;
}

static bool has_weights(const char *dir)
{
    return holds(dir, "model.safetensors") || holds(dir, "model.safetensors.index.json") ||
           holds(dir, "pytorch_model.bin") || holds(dir, "pytorch_model.bin.index.json");
}

int cli_inspect_folder(const char *dir, const inspect_options *o)
{
    bool weights = has_weights(dir);
    if (!weights && !has_tokenizer(dir)) {
        base_fail(BY_ERR_IO,
                  "%s: neither a model directory (config.json) nor a run folder (best/ or last/), and "
                  "without weights or a tokenizer",
                  dir);
        return cli_fail(NULL);
    }
    by_weights *w = weights ? by_weights_open(dir) : NULL;
    if (weights && !w)
        return cli_fail(NULL);
    int code = CLI_OK;
    if (o->json) {
        cJSON *j = cJSON_CreateObject();
        cJSON_AddStringToObject(j, "folder", dir);
        cli_inspect_companions_json(dir, j);
        cJSON_DeleteItemFromObjectCaseSensitive(j, "metadata");
        if (w)
            add_weights(j, w);
        code = cli_print_json(j);
    } else {
        printf("%s\n", dir);
        cli_inspect_companions(dir);
        if (w)
            print_weights(w);
    }
    by_weights_free(w);
    return code;
}
