/* checkpoint.c - see checkpoint.h. */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "graph/graph.h"
#include "base/json.h"
#include "io/weights.h"

#define TEMPORARY "unfinished-checkpoint"

/* ---- optimiser state ------------------------------------------------------------------------- */

/* What is kept beside the model. Models are saved in f32 at most: the values of one that computes in f64 are
 * kept here as well, in full. */
static const struct {
    const char *prefix;
    by_slot slot;
} kept[] = {{"moment1", BY_SLOT_MOMENT1}, {"moment2", BY_SLOT_MOMENT2}, {"value", BY_SLOT_VALUE}};

static int kept_count(const by_params *p)
{
    return p->type == BY_F64 ? 3 : 2;
}

/* Fill one entry with buffer k of a parameter, name and data in memory of its own. */
static by_status export_slot(const by_params *p, int i, int k, by_weight *e)
{
    by_device *d = p->device;
    size_t bytes = (size_t)p->list[i].count * by_dtype_size(by_acc_type(p->type));
    char *name = by_sprintf("%s.%s", kept[k].prefix, p->list[i].name);
    void *data = by_alloc(bytes), *from = by_params_address(p, i, kept[k].slot);
    e->name = name;
    e->data = data;
    e->bytes = bytes;
    e->dtype = by_acc_type(p->type);
    e->rank = p->list[i].rank;
    memcpy(e->dim, p->list[i].dim, sizeof(int64_t) * (size_t)e->rank);
    return name && data ? d->backend->download(d, data, from, bytes) : BY_ERR_MEMORY;
}

static by_status write_moments(const by_params *p, const char *dir)
{
    int slots = kept_count(p), n = p->count * slots;
    by_weight *entries = by_alloc_zero((size_t)n + 1, sizeof *entries);
    char *path = by_path_join(dir, "optimizer.safetensors");
    by_status s = entries && path ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; i < n && s == BY_OK; i++)
        s = export_slot(p, i / slots, i % slots, &entries[i]);
    if (s == BY_OK)
        s = by_weights_write(path, entries, n, NULL);
    for (int i = 0; entries && i < n; i++) {
        union { /* owned here, though by_weight only borrows */
            const void *from;
            void *to;
        } name = {entries[i].name}, data = {entries[i].data};
        by_free(name.to);
        by_free(data.to);
    }
    by_free(entries);
    by_free(path);
    return s;
}

static by_status read_slot(by_params *p, int i, int k, const by_weights *file)
{
    char *name = by_sprintf("%s.%s", kept[k].prefix, p->list[i].name);
    if (!name)
        return BY_ERR_MEMORY;
    const by_weight *e = by_weights_find(file, name);
    by_dtype type = by_acc_type(p->type);
    by_status s;
    if (!e || e->dtype != type || e->bytes != (size_t)p->list[i].count * by_dtype_size(type))
        s = by_fail(BY_ERR_FORMAT, "optimizer.safetensors: %s is missing or of another shape", name);
    else
        s = by_params_set_typed(p, i, kept[k].slot, e->data, type);
    by_free(name);
    return s;
}

static by_status read_moments(by_params *p, const char *dir)
{
    char *path = by_path_join(dir, "optimizer.safetensors");
    by_weights *file = path ? by_weights_open(path) : NULL;
    by_free(path);
    if (!file)
        return by_error_status();
    by_status s = BY_OK;
    for (int i = 0; i < p->count && s == BY_OK; i++)
        for (int k = 0; k < kept_count(p) && s == BY_OK; k++)
            s = read_slot(p, i, k, file);
    by_weights_free(file);
    return s;
}

/* ---- the few numbers beside it --------------------------------------------------------------- */

/* Doubles are kept as hexadecimal text: nothing is lost on the way through a decimal. */
static by_status write_state(const by_run_state *s, const char *dir)
{
    by_buf text = {0};
    by_buf_printf(&text, "{\n  \"step\": %lld,\n  \"best_step\": %lld,\n  \"stale\": %d,\n",
                  (long long)s->step, (long long)s->best_step, s->stale);
    if (isnan(s->best_eval))
        by_buf_puts(&text, "  \"best_eval\": null\n}\n");
    else
        by_buf_printf(&text, "  \"best_eval\": \"%a\"\n}\n", s->best_eval);
    char *path = by_path_join(dir, "trainer_state.json");
    by_status status = text.failed || !path ? BY_ERR_MEMORY : by_file_write(path, text.data, text.size);
    by_free(path);
    by_buf_free(&text);
    return status;
}

static by_status read_state(by_run_state *s, const char *dir)
{
    char *path = by_path_join(dir, "trainer_state.json");
    cJSON *json = path ? by_json_load(path) : NULL;
    by_free(path);
    if (!json)
        return by_error_status();
    int64_t stale = 0;
    const char *best = NULL;
    by_status status = by_json_int(json, "step", -1, 0, INT64_C(1) << 50, &s->step);
    if (status == BY_OK && s->step < 0)
        status = by_fail(BY_ERR_FORMAT, "trainer_state.json does not say its step");
    if (status == BY_OK)
        status = by_json_int(json, "best_step", 0, 0, INT64_C(1) << 50, &s->best_step);
    if (status == BY_OK)
        status = by_json_int(json, "stale", 0, 0, 1 << 30, &stale);
    if (status == BY_OK)
        status = by_json_string(json, "best_eval", NULL, &best);
    s->stale = (int)stale;
    s->best_eval = best ? strtod(best, NULL) : NAN;
    cJSON_Delete(json);
    return status;
}

by_status by_checkpoint_load(const char *dir, by_model *m, by_run_state *s)
{
    if (read_state(s, dir) != BY_OK || read_moments(by_model_params(m), dir) != BY_OK)
        return by_fail_context("%s", dir);
    return BY_OK;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static by_status point(const char *out, const char *link, const char *target)
{
    char *path = by_path_join(out, link), *temp = by_sprintf("%s/.%s-new", out, link);
    by_status s = BY_ERR_MEMORY;
    if (path && temp) {
        unlink(temp);
        if (symlink(target, temp) != 0)
            s = by_fail(BY_ERR_IO, "%s: %s", temp, strerror(errno));
        else
            s = by_rename(temp, path);
    }
    by_free(path);
    by_free(temp);
    return s;
}

/* Where a link of the folder points to, "" when it does not exist. */
typedef struct target {
    char name[256];
} target;

static by_status pointed(const char *out, const char *link, target *t)
{
    char *path = by_path_join(out, link);
    if (!path)
        return BY_ERR_MEMORY;
    ssize_t n = readlink(path, t->name, sizeof t->name - 1);
    t->name[n > 0 ? n : 0] = '\0';
    by_free(path);
    return BY_OK;
}

/* The step in "checkpoint-000123", -1 for another name. */
static int64_t step_of(const char *name)
{
    if (strncmp(name, "checkpoint-", 11) != 0)
        return -1;
    char *end;
    long long step = strtoll(name + 11, &end, 10);
    return *end == '\0' && end > name + 11 ? step : -1;
}

static by_status remove_in(const char *out, const char *name)
{
    char *path = by_path_join(out, name);
    by_status s = path ? by_dir_remove(path) : BY_ERR_MEMORY;
    by_free(path);
    return s;
}

/* Remove checkpoints older than the newest `keep`, except those that last and best point to. keep < 0: remove
 * all. */
static by_status thin_out(const char *out, int keep)
{
    target last, best;
    BY_TRY(pointed(out, "last", &last));
    BY_TRY(pointed(out, "best", &best));
    for (;;) { /* one at a time, the oldest first, until few enough are left */
        DIR *d = opendir(out);
        if (!d)
            return BY_OK;
        char oldest[256] = "";
        int count = 0;
        for (struct dirent *e; (e = readdir(d));) {
            if (step_of(e->d_name) < 0 ||
                (keep >= 0 && (!strcmp(e->d_name, last.name) || !strcmp(e->d_name, best.name))))
                continue;
            count++;
            if (!oldest[0] || step_of(e->d_name) < step_of(oldest))
                snprintf(oldest, sizeof oldest, "%s", e->d_name);
        }
        closedir(d);
        /* `last` is one of the newest that are kept */
        if (count == 0 || count <= keep - 1)
            return BY_OK;
        BY_TRY(remove_in(out, oldest));
    }
}

/* Remove what a process that died while writing has left in a folder: "<file>.tmp-<pid>", ".<link>-new". */
static by_status remove_temporaries(const char *dir)
{
    DIR *d = opendir(dir);
    by_status s = BY_OK;
    for (struct dirent *e; d && s == BY_OK && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (!strstr(e->d_name, ".tmp-") &&
            (e->d_name[0] != '.' || n < 5 || strcmp(e->d_name + n - 4, "-new") != 0))
            continue;
        char *path = by_path_join(dir, e->d_name);
        if (!path || (unlink(path) != 0 && errno != ENOENT))
            s = path ? by_fail(BY_ERR_IO, "cannot remove %s: %s", path, strerror(errno)) : BY_ERR_MEMORY;
        by_free(path);
    }
    if (d)
        closedir(d);
    return s;
}

by_status by_checkpoint_clean(const char *out, bool all)
{
    BY_TRY(remove_in(out, TEMPORARY));
    BY_TRY(remove_temporaries(out));
    char *data = by_path_join(out, "data");
    by_status s = data ? remove_temporaries(data) : BY_ERR_MEMORY;
    by_free(data);
    BY_TRY(s);
    if (!all)
        return BY_OK;
    const char *links[] = {"last", "best"};
    for (int i = 0; i < BY_COUNT(links); i++) {
        char *path = by_path_join(out, links[i]);
        if (!path)
            return BY_ERR_MEMORY;
        unlink(path);
        by_free(path);
    }
    return thin_out(out, -1);
}

static void name_of(int64_t step, target *t)
{
    snprintf(t->name, sizeof t->name, "checkpoint-%06lld", (long long)step);
}

by_status by_checkpoint_mend(const char *out, const by_run_state *s, int keep)
{
    target best, name;
    name_of(s->best_step, &name);
    BY_TRY(pointed(out, "best", &best));
    char *path = by_path_join(out, name.name);
    if (!path)
        return BY_ERR_MEMORY;
    bool there = by_dir_exists(path);
    by_free(path);
    if (s->best_step > 0 && there && strcmp(best.name, name.name) != 0)
        BY_TRY(point(out, "best", name.name));
    return thin_out(out, keep);
}

static by_status write_all(const char *dir, const by_model *m, const by_tokenizer *tokenizer,
                           const by_run_state *s)
{
    BY_TRY(by_model_save(m, dir, BY_F32));
    if (tokenizer)
        BY_TRY(by_tokenizer_save(tokenizer, dir));
    BY_TRY(write_moments(by_model_params(m), dir));
    BY_TRY(write_state(s, dir));
    return by_dir_sync(dir);
}

/* Write a checkpoint as `path`, by way of `temp`. A folder of that name which no link points to is what
 * another run, or one that died just there, has left: it is replaced. */
static by_status write_checkpoint(const char *path, const char *temp, const by_model *m,
                                  const by_tokenizer *tokenizer, const by_run_state *s)
{
    BY_TRY(by_dir_remove(temp));
    BY_TRY(write_all(temp, m, tokenizer, s));
    BY_TRY(by_dir_remove(path));
    return by_rename(temp, path);
}

by_status by_checkpoint_save(const char *out, const by_model *m, const by_tokenizer *tokenizer,
                             const by_run_state *s, bool is_best, int keep)
{
    target name, last;
    name_of(s->step, &name);
    char *temp = by_path_join(out, TEMPORARY), *path = by_path_join(out, name.name);
    by_status status = temp && path ? pointed(out, "last", &last) : BY_ERR_MEMORY;
    if (status == BY_OK && (strcmp(last.name, name.name) != 0 || !by_dir_exists(path)))
        status = write_checkpoint(path, temp, m, tokenizer, s);
    if (status == BY_OK)
        status = point(out, "last", name.name);
    if (status == BY_OK && is_best)
        status = point(out, "best", name.name);
    if (status != BY_OK &&
        temp) { /* give the disk back what the attempt took; the message stays that of the failure */
        char *message = by_strdup(by_error_message());
        by_dir_remove(temp);
        by_fail(status, "%s", message ? message : "out of memory");
        by_free(message);
    }
    by_free(temp);
    by_free(path);
    return status == BY_OK ? thin_out(out, keep) : by_fail_context("saving a checkpoint");
}

/* ---- the mean of several --------------------------------------------------------------------- */

/* Steps of the newest checkpoints, the newest first; steps has room for count. Returns how many. */
static int newest(const char *out, int64_t *steps, int count)
{
    DIR *d = opendir(out);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        int64_t step = step_of(e->d_name);
        int at = n;
        while (at > 0 && steps[at - 1] < step)
            at--;
        if (step < 0 || at == count)
            continue;
        n = BY_MIN(n + 1, count);
        memmove(steps + at + 1, steps + at, (size_t)(n - at - 1) * sizeof *steps);
        steps[at] = step;
    }
    if (d)
        closedir(d);
    return n;
}

static by_status add_values(const by_weights *file, const char *name, int64_t n, double *sum, float *values)
{
    const by_weight *w = by_weights_find(file, name);
    if (!w)
        return by_fail(BY_ERR_FORMAT, "%s is missing in a checkpoint", name);
    BY_TRY(by_weight_read(w, 0, (size_t)n, values, BY_F32));
    for (int64_t i = 0; i < n; i++)
        sum[i] += values[i];
    return BY_OK;
}

static by_status average_one(by_params *p, int i, by_weights *const *files, int count)
{
    const int64_t n = p->list[i].count;
    double *sum = by_alloc_zero((size_t)n, sizeof *sum);
    float *values = by_alloc((size_t)n * sizeof *values);
    by_status s = sum && values ? BY_OK : BY_ERR_MEMORY;
    for (int k = 0; k < count && s == BY_OK; k++)
        s = add_values(files[k], p->list[i].name, n, sum, values);
    for (int64_t j = 0; j < n && s == BY_OK; j++)
        values[j] = (float)(sum[j] / count);
    if (s == BY_OK)
        s = by_params_set(p, i, BY_SLOT_VALUE, values);
    by_free(sum);
    by_free(values);
    return s;
}

by_status by_checkpoint_average(const char *out, int count, by_model *m, int *used)
{
    by_params *p = by_model_params(m);
    int64_t *steps = by_alloc((size_t)count * sizeof *steps);
    by_weights **files = by_alloc_zero((size_t)count, sizeof *files);
    by_status s = steps && files ? BY_OK : BY_ERR_MEMORY;
    *used = s == BY_OK ? newest(out, steps, count) : 0;
    for (int k = 0; k < *used && s == BY_OK; k++) {
        target name;
        name_of(steps[k], &name);
        char *path = by_sprintf("%s/%s/model.safetensors", out, name.name);
        files[k] = path ? by_weights_open(path) : NULL;
        s = files[k] ? BY_OK : by_error_status();
        by_free(path);
    }
    for (int i = 0; i < p->count && s == BY_OK && *used; i++)
        s = average_one(p, i, files, *used);
    for (int k = 0; k < *used; k++)
        by_weights_free(files[k]);
    by_free(files);
    by_free(steps);
    return s;
}

by_status by_checkpoint_find(const char *out, char **dir)
{
    char *last = by_path_join(out, "last"), *state = last ? by_path_join(last, "trainer_state.json") : NULL;
    by_status s = state ? BY_OK : BY_ERR_MEMORY;
    *dir = state && by_file_exists(state) ? last : NULL;
    by_free(state);
    if (!*dir)
        by_free(last);
    return s;
}
