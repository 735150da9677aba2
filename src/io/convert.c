/* convert.c - converts a checkpoint: element type, files, format. Tensors pass through a small buffer one at
 * a time. Nothing appears under its final name before all of it is on disk. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/json.h"
#include "io/weights.h"

/* Duplicate names of tied tensors. transformers ties them on loading, so they are not written a second time
 * if they share storage. */
static const char *const tied[] = {"lm_head.weight",
                                   "lm_loss.weight",
                                   "predictions.decoder.weight",
                                   "predictions.decoder.bias",
                                   "lm_head.decoder.weight",
                                   "lm_head.decoder.bias",
                                   "encoder.embed_tokens.weight",
                                   "decoder.embed_tokens.weight",
                                   "pred_layer.proj.weight",
                                   "vocab_projector.weight"};

enum { MAX_METADATA = 1000 };
/* Followed by the process id, in the name of a directory that is being written. */
#define UNFINISHED ".unfinished-"

typedef struct job {
    const by_convert_spec *spec;
    by_weights *in;
    by_weight *list; /* tensors to write; data points to the source tensor */
    int count;
    int *shard;            /* file index of each */
    const char **metadata; /* key, value, ..., NULL; or NULL */
    size_t done;
    by_convert_report *report;
} job;

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), t = strlen(tail);
    return n >= t && strcmp(s + n - t, tail) == 0;
}

/* ---- planning -------------------------------------------------------------------------------- */

static bool is_tied_name(const char *name)
{
    for (int i = 0; i < BY_COUNT(tied); i++)
        if (ends_with(name, tied[i]))
            return true;
    return false;
}

static int compare_bytes(const void *a, const void *b, size_t n)
{
    return !a || !b ? !b - !a : memcmp(a, b, n);
}

/* Orders tensors with the same elements next to each other, those with a tied name last. */
static int compare_places(const void *a, const void *b)
{
    const by_weight *x = *(const by_weight *const *)a, *y = *(const by_weight *const *)b;
    if (x->data != y->data)
        return (const char *)x->data < (const char *)y->data ? -1 : 1;
    int order = x->rank != y->rank ? x->rank - y->rank : (int)x->dtype - (int)y->dtype;
    if (order == 0)
        order = memcmp(x->dim, y->dim, sizeof x->dim);
    if (order == 0)
        order = compare_bytes(x->stride, y->stride, sizeof x->dim);
    if (order == 0)
        order = is_tied_name(x->name) - is_tied_name(y->name);
    return order ? order : strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const by_weight *const *)a)->name, (*(const by_weight *const *)b)->name);
}

/* Selects the tensors to write, by name. */
static void choose(job *j, const by_weight **chosen)
{
    int all = by_weights_count(j->in), n = 0;
    for (int i = 0; i < all; i++)
        chosen[i] = by_weights_at(j->in, i);
    if (all > 1)
        qsort(chosen, (size_t)all, sizeof *chosen, compare_places);
    for (int i = 0; i < all; i++) {
        bool again = i > 0 && chosen[i]->bytes > 0 && io_weight_same(chosen[i], chosen[n - 1]);
        if (again && is_tied_name(chosen[i]->name))
            j->report->dropped++;
        else
            chosen[n++] = chosen[i];
    }
    if (n > 1)
        qsort(chosen, (size_t)n, sizeof *chosen, compare_names);
    j->count = n;
}

/* The old names are those of the file, so that names can be exchanged. */
static by_status rename_tensor(job *j, const char *rename)
{
    const char *sign = strchr(rename, '='), *to = sign ? sign + 1 : "";
    const size_t size = sign ? (size_t)(sign - rename) : 0;
    if (!*to)
        return base_fail(BY_ERR_ARGUMENT, "\"%s\" is not OLD=NEW", io_show(rename).text);
    for (int i = 0; i < j->count; i++) {
        const char *name = ((const by_weight *)j->list[i].data)->name;
        if (strlen(name) == size && memcmp(name, rename, size) == 0) {
            j->list[i].name = to;
            return BY_OK;
        }
    }
    return base_fail(BY_ERR_ARGUMENT, "%s: no tensor of that name", io_show(rename).text);
}

static by_status rename_tensors(job *j)
{
    for (int k = 0; k < j->spec->rename_count; k++)
        BY_TRY(rename_tensor(j, j->spec->renames[k]));
    return io_weights_sort(j->list, j->count, "after renaming", BY_ERR_ARGUMENT);
}

/* Determines types, sizes, and the file of each tensor. */
static by_status plan(job *j, const by_weight *const *chosen)
{
    const by_convert_spec *spec = j->spec;
    by_convert_report *r = j->report;
    for (int i = 0; i < j->count; i++) {
        by_weight *e = &j->list[i];
        *e = *chosen[i];
        e->data = chosen[i];
        e->stride = NULL;
        if (spec->set_dtype && by_dtype_has_fraction(e->dtype))
            e->dtype = spec->dtype;
        if (!io_weight_bytes(e, &e->bytes) || !base_add_size(r->bytes_out, e->bytes, &r->bytes_out))
            return base_fail(BY_ERR_FORMAT, "the total size of the tensors overflows");
        r->tensors++;
        r->bytes_in += chosen[i]->bytes;
        r->elements += (int64_t)(e->bytes / by_dtype_size(e->dtype));
    }
    if (spec->rename_count)
        BY_TRY(rename_tensors(j));
    size_t limit = spec->shard_bytes > 0 ? (size_t)spec->shard_bytes : SIZE_MAX;
    r->files = io_shards_plan(j->list, j->count, limit, j->shard);
    return BY_OK;
}

static by_status keep_metadata(job *j)
{
    const char *key, *value;
    size_t n = 0;
    while (by_weights_metadata_at(j->in, (int)n, &key, &value))
        n++;
    if (n == 0)
        return BY_OK;
    if (n > MAX_METADATA)
        return base_fail(BY_ERR_FORMAT, "%zu metadata entries exceed the limit of %d", n, MAX_METADATA);
    j->metadata = base_alloc_zero(2 * n + 1, sizeof *j->metadata);
    if (!j->metadata)
        return BY_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        by_weights_metadata_at(j->in, (int)i, &j->metadata[2 * i], &j->metadata[2 * i + 1]);
    return BY_OK;
}

static by_status prepare(job *j)
{
    size_t n = (size_t)by_weights_count(j->in) + 1;
    const by_weight **chosen = base_alloc_zero(n, sizeof *chosen);
    j->list = base_alloc_zero(n, sizeof *j->list);
    j->shard = base_alloc_zero(n, sizeof *j->shard);
    by_status s = BY_ERR_MEMORY;
    if (chosen && j->list && j->shard) {
        choose(j, chosen);
        s = plan(j, chosen);
    }
    if (s == BY_OK)
        s = keep_metadata(j);
    base_free(chosen);
    return s;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes a few megabytes at a time. Pages that have been written are released. */
static by_status put(void *user, base_writer *w, const by_weight *e)
{
    enum { PART = 1 << 20 };
    job *j = user;
    const by_weight *from = e->data;
    size_t size = by_dtype_size(from->dtype), all = from->bytes / size;
    if (from->stride)
        BY_TRY(io_weight_write(w, from, e->dtype));
    for (size_t i = 0; i < all && !from->stride; i += PART) {
        size_t n = BY_MIN(all - i, (size_t)PART);
        by_weight part = {.name = e->name, .dtype = from->dtype, .rank = 1, .dim = {(int64_t)n}};
        part.data = (const char *)from->data + i * size;
        BY_TRY(io_weight_write(w, &part, e->dtype));
        base_map_forget(part.data, n * size);
    }
    j->done += e->bytes;
    if (j->spec->progress && !j->spec->progress(j->spec->user, e->name, j->done, j->report->bytes_out))
        return base_fail(BY_ERR_CANCELLED, "stopped");
    return BY_OK;
}

static by_status write_file(job *j, const char *path, int first, int count)
{
    return io_safetensors_write(path, j->list + first, count, j->metadata, put, j);
}

/* Writes config.json with the new element type, under all names that transformers has used for it. */
static by_status write_config(const job *j, const char *from, const char *dir)
{
    static const char *const names[] = {
        [BY_F32] = "float32", [BY_BF16] = "bfloat16", [BY_F16] = "float16", [BY_F64] = "float64"};
    static const char *const keys[] = {"dtype", "torch_dtype"};
    char *source = base_path_join(from, "config.json"), *target = base_path_join(dir, "config.json");
    bool there = source && base_file_exists(source);
    cJSON *json = there && target ? base_json_load(source) : NULL;
    by_status s = source && target ? BY_OK : BY_ERR_MEMORY;
    if (there && !json)
        s = base_error_status();
    if (json && !cJSON_IsObject(json))
        s = base_fail(BY_ERR_FORMAT, "%s is not a JSON object", source);
    if (json && s == BY_OK) {
        bool ok = true, any = false;
        for (int i = 0; i < BY_COUNT(keys); i++)
            if (cJSON_HasObjectItem(json, keys[i])) {
                any = true;
                ok = ok && base_json_put(json, keys[i], cJSON_CreateString(names[j->spec->dtype]));
            }
        if (!any)
            ok = base_json_put(json, keys[0], cJSON_CreateString(names[j->spec->dtype]));
        s = ok ? base_json_write(target, json)
               : base_fail(BY_ERR_MEMORY, "out of memory while writing config.json");
    }
    cJSON_Delete(json);
    base_free(source);
    base_free(target);
    return s;
}

/* Writes the configuration that the new names imply, if there is none. */
static by_status infer_config(const job *j, const char *path)
{
    by_weights named = {.list = base_alloc_zero((size_t)j->count + 1, sizeof *named.list), .count = j->count};
    if (!named.list)
        return BY_ERR_MEMORY;
    for (int i = 0; i < j->count; i++) {
        named.list[i] = *(const by_weight *)j->list[i].data;
        named.list[i].name = j->list[i].name;
    }
    by_status s = base_file_exists(path) ? BY_OK : io_recurrent_config(&named, path);
    base_free(named.list);
    return s;
}

static by_status write_folder(job *j, const char *in, const char *dir)
{
    BY_TRY(base_dir_make(dir));
    BY_TRY(io_shards_write(dir, j->list, j->count, j->shard, j->report->files, j->metadata, put, j));
    if (base_dir_exists(in)) {
        if (j->spec->set_dtype)
            BY_TRY(write_config(j, in, dir));
        BY_TRY(by_companions_copy(in, dir));
    }
    char *config = base_path_join(dir, "config.json");
    by_status s = config ? infer_config(j, config) : BY_ERR_MEMORY;
    base_free(config);
    return s == BY_OK ? base_dir_sync(dir) : s;
}

/* Returns the process that created OUT.unfinished-PID if the name has that form and the process no longer
 * exists, otherwise 0. */
static long dead_owner(const char *name, const char *out)
{
    size_t n = strlen(out);
    if (strncmp(name, out, n) != 0 || strncmp(name + n, UNFINISHED, strlen(UNFINISHED)) != 0)
        return 0;
    char *end;
    long pid = strtol(name + n + strlen(UNFINISHED), &end, 10);
    return *end == '\0' && pid > 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH ? pid : 0;
}

/* Removes what killed processes left next to `out`. */
static by_status remove_stale(const char *out)
{
    const char *slash = strrchr(out, '/'), *name = slash ? slash + 1 : out;
    char *parent = slash ? base_sprintf("%.*s", (int)(slash - out) + 1, out) : base_strdup(".");
    DIR *d = parent ? opendir(parent) : NULL;
    by_status s = parent ? BY_OK : BY_ERR_MEMORY;
    for (struct dirent *e; d && s == BY_OK && (e = readdir(d));) {
        if (!dead_owner(e->d_name, name))
            continue;
        char *path = base_path_join(parent, e->d_name);
        s = path ? base_dir_remove(path) : BY_ERR_MEMORY;
        base_free(path);
    }
    if (d)
        closedir(d);
    base_free(parent);
    return s;
}

/* Creates the whole folder under another name, and renames it once it is complete. */
static by_status write_directory(job *j, const char *in, const char *out)
{
    size_t n = strlen(out);
    while (n > 1 && out[n - 1] == '/')
        n--;
    char *target = base_sprintf("%.*s", (int)n, out);
    char *temp = base_sprintf("%.*s" UNFINISHED "%ld", (int)n, out, (long)getpid());
    by_status s = target && temp ? remove_stale(target) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = base_dir_remove(temp);
    if (s == BY_OK) {
        s = write_folder(j, in, temp);
        if (s == BY_OK && rmdir(target) != 0 && errno != ENOENT)
            s = base_fail(BY_ERR_IO, "cannot replace %s: %s", target, strerror(errno));
        if (s == BY_OK)
            s = base_rename(temp, target);
        if (s != BY_OK) {
            /* The message of the failure, not of the cleanup. */
            char *message = base_strdup(by_error_message());
            base_dir_remove(temp);
            base_fail(s, "%s", message ? message : "out of memory");
            base_free(message);
        }
    }
    base_free(target);
    base_free(temp);
    return s;
}

/* Rejects a name that suggests a file of another kind, which would become a directory. */
static by_status check_name(const char *out)
{
    static const char *const others[] = {".bin", ".pt",   ".pth", ".ckpt", ".gguf",   ".onnx",
                                         ".npz", ".json", ".h5",  ".zip",  ".msgpack"};
    for (int i = 0; i < BY_COUNT(others); i++)
        if (ends_with(out, others[i]) && !base_dir_exists(out))
            return base_fail(BY_ERR_ARGUMENT,
                             "%s: weights can only be written as safetensors; name a file that ends in "
                             ".safetensors, or a directory",
                             out);
    return BY_OK;
}

static by_status check_spec(const by_convert_spec *spec, bool to_file)
{
    if (spec->set_dtype && !by_dtype_is_float(spec->dtype))
        return base_fail(BY_ERR_ARGUMENT, "weights are converted to f32, bf16, f16 or f64, not %s",
                         by_dtype_name(spec->dtype));
    if (to_file && spec->shard_bytes > 0)
        return base_fail(BY_ERR_ARGUMENT, "cannot write shards to a single file; name a directory");
    return BY_OK;
}

by_status by_weights_convert(const char *in, const char *out, const by_convert_spec *spec,
                             by_convert_report *report)
{
    by_convert_report unused;
    job j = {.spec = spec, .report = report ? report : &unused};
    bool to_file = ends_with(out, ".safetensors") && !base_dir_exists(out);
    *j.report = (by_convert_report){0};
    base_error_clear();
    BY_TRY(check_spec(spec, to_file));
    BY_TRY(check_name(out));
    if (!to_file)
        BY_TRY(base_dir_check_empty(out));
    j.in = by_weights_open(in);
    by_status s = j.in ? prepare(&j) : base_error_status();
    if (s == BY_OK && !spec->dry_run)
        s = to_file ? write_file(&j, out, 0, j.count) : write_directory(&j, in, out);
    base_free(j.list);
    base_free(j.shard);
    base_free(j.metadata);
    by_weights_free(j.in);
    return s;
}
