/* checkpoint.c - see checkpoint.h. */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "io/json.h"
#include "io/safetensors.h"

#define TEMPORARY "unfinished-checkpoint"

/* ---- optimiser state
 * ------------------------------------------------------------------------------------------------------- */

static by_status write_moments(const by_params *p, const char *dir)
{
    int n = by_params_count(p);
    by_st_entry *entries = by_alloc_zero(2 * (size_t)n + 1, sizeof *entries);
    float **values = by_alloc_zero(2 * (size_t)n + 1, sizeof *values);
    char **names = by_alloc_zero(2 * (size_t)n + 1, sizeof *names);
    char *path = by_path_join(dir, "optimizer.safetensors");
    by_status s = entries && values && names && path ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; i < 2 * n && s == BY_OK; i++) {
        int k = i / 2;
        size_t count = 1;
        by_st_entry *e = &entries[i];
        e->rank = by_params_rank(p, k);
        for (int a = 0; a < e->rank; a++)
            count *= (size_t)(e->dim[a] = by_params_shape(p, k)[a]);
        names[i] = by_sprintf("moment%d.%s", i % 2 + 1, by_params_name(p, k));
        values[i] = by_alloc(count * sizeof(float));
        if (!names[i] || !values[i])
            s = BY_ERR_MEMORY;
        else
            s = by_params_get(p, k, i % 2 ? BY_SLOT_MOMENT2 : BY_SLOT_MOMENT1, values[i]);
        e->name = names[i];
        e->dtype = BY_F32;
        e->data = values[i];
        e->bytes = count * sizeof(float);
    }
    if (s == BY_OK)
        s = by_st_write(path, entries, 2 * n, NULL);
    for (int i = 0; i < 2 * n; i++) {
        by_free(values ? values[i] : NULL);
        by_free(names ? names[i] : NULL);
    }
    by_free(entries);
    by_free(values);
    by_free(names);
    by_free(path);
    return s;
}

static by_status read_moment(by_params *p, int i, by_slot slot, const by_st *file)
{
    char *name = by_sprintf("moment%d.%s", slot == BY_SLOT_MOMENT1 ? 1 : 2, by_params_name(p, i));
    if (!name)
        return BY_ERR_MEMORY;
    const by_st_entry *e = by_st_find(file, name);
    int64_t count = 1;
    for (int a = 0; a < by_params_rank(p, i); a++)
        count *= by_params_shape(p, i)[a];
    by_status s;
    if (!e || e->dtype != BY_F32 || e->bytes != (size_t)count * 4) {
        s = by_fail(BY_ERR_FORMAT, "optimizer.safetensors: %s is missing or of another shape", name);
    } else {
        float *copy = by_alloc(e->bytes); /* the file's data may be unaligned */
        s = copy ? BY_OK : BY_ERR_MEMORY;
        if (copy) {
            memcpy(copy, e->data, e->bytes);
            s = by_params_set(p, i, slot, copy);
        }
        by_free(copy);
    }
    by_free(name);
    return s;
}

static by_status read_moments(by_params *p, const char *dir)
{
    char *path = by_path_join(dir, "optimizer.safetensors");
    by_st *file = path ? by_st_open(path) : NULL;
    by_free(path);
    if (!file)
        return by_error_status();
    by_status s = BY_OK;
    for (int i = 0; i < by_params_count(p) && s == BY_OK; i++) {
        s = read_moment(p, i, BY_SLOT_MOMENT1, file);
        if (s == BY_OK)
            s = read_moment(p, i, BY_SLOT_MOMENT2, file);
    }
    by_st_free(file);
    return s;
}

/* ---- the few numbers beside it
 * -------------------------------------------------------------------------------------------------- */

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

/* ---- the folder
 * -------------------------------------------------------------------------------------------------------------------
 */

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
static void pointed(const char *out, const char *link, char *target, size_t size)
{
    char *path = by_path_join(out, link);
    ssize_t n = path ? readlink(path, target, size - 1) : -1;
    target[n > 0 ? n : 0] = '\0';
    by_free(path);
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
    char last[256], best[256];
    pointed(out, "last", last, sizeof last);
    pointed(out, "best", best, sizeof best);
    for (;;) { /* one at a time, the oldest first, until few enough are left */
        DIR *d = opendir(out);
        if (!d)
            return BY_OK;
        char oldest[256] = "";
        int count = 0;
        for (struct dirent *e; (e = readdir(d));) {
            if (step_of(e->d_name) < 0 ||
                (keep >= 0 && (!strcmp(e->d_name, last) || !strcmp(e->d_name, best))))
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

by_status by_checkpoint_clean(const char *out, bool all)
{
    BY_TRY(remove_in(out, TEMPORARY));
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

by_status by_checkpoint_save(const char *out, const by_model *m, const by_tokenizer *tokenizer,
                             const by_run_state *s, bool is_best, int keep)
{
    char name[64];
    snprintf(name, sizeof name, "checkpoint-%06lld", (long long)s->step);
    char *temp = by_path_join(out, TEMPORARY), *path = by_path_join(out, name);
    by_status status = temp && path ? by_dir_remove(temp) : BY_ERR_MEMORY;
    bool saved = status == BY_OK && by_dir_exists(path); /* a step gives the same bits whenever it is saved */
    if (status == BY_OK && !saved)
        status = write_all(temp, m, tokenizer, s);
    if (status == BY_OK && !saved)
        status = by_rename(temp, path);
    if (status == BY_OK)
        status = point(out, "last", name);
    if (status == BY_OK && is_best)
        status = point(out, "best", name);
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

char *by_checkpoint_find(const char *out)
{
    char *last = by_path_join(out, "last"), *state = last ? by_path_join(last, "trainer_state.json") : NULL;
    bool there = state && by_file_exists(state);
    by_free(state);
    if (!there) {
        by_free(last);
        return NULL;
    }
    return last;
}
