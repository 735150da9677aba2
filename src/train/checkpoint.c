/* checkpoint.c - see checkpoint.h. */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "banyan/adapter.h"
#include "base/file.h"
#include "graph/graph.h"
#include "io/weights.h"
#include "train/trainer_state.h"

/* ---- optimiser state ------------------------------------------------------------------------- */

/* Optimiser state of a checkpoint: the moments of trained parameters. Models are saved in at most f32, so the
 * values of an f64 model are stored here too. */
static const struct {
    const char *prefix;
    by_slot slot;
} kept[] = {{"moment1", BY_SLOT_MOMENT1}, {"moment2", BY_SLOT_MOMENT2}, {"value", BY_SLOT_VALUE}};

static int kept_count(const by_params *p)
{
    return p->type == BY_F64 ? 3 : 2;
}

static bool is_kept(const by_params *p, int i, int k)
{
    if (kept[k].slot == BY_SLOT_VALUE)
        return p->list[i].type == p->type; /* weights of other types are saved exactly with the model */
    return gr_params_address(p, i, kept[k].slot) != NULL;
}

/* One entry for buffer k of a parameter. Its data are on the device. */
static by_status describe_slot(const by_params *p, int i, int k, by_weight *e)
{
    e->name = base_sprintf("%s.%s", kept[k].prefix, p->list[i].name);
    e->data = gr_params_address(p, i, kept[k].slot);
    e->dtype = gr_acc_type(p->type);
    e->bytes = (size_t)p->list[i].count * by_dtype_size(e->dtype);
    e->rank = p->list[i].rank;
    memcpy(e->dim, p->list[i].dim, sizeof(int64_t) * (size_t)e->rank);
    return e->name ? BY_OK : BY_ERR_MEMORY;
}

by_status train_put_from(void *user, base_writer *w, const by_weight *e)
{
    enum { PART = 1 << 20 };
    by_device *d = user;
    if (d->on_host)
        return base_writer_put(w, e->data, e->bytes);
    char *part = base_alloc(PART);
    by_status s = part ? BY_OK : BY_ERR_MEMORY;
    for (size_t at = 0; at < e->bytes && s == BY_OK; at += PART) {
        const size_t n = BY_MIN(e->bytes - at, (size_t)PART);
        s = d->backend->download(d, part, (const char *)e->data + at, n);
        if (s == BY_OK)
            s = base_writer_put(w, part, n);
    }
    base_free(part);
    return s;
}

static by_status write_moments(const by_params *p, const char *dir)
{
    int slots = kept_count(p), n = 0;
    by_weight *entries = base_alloc_zero((size_t)(p->count * slots) + 1, sizeof *entries);
    char *path = base_path_join(dir, "optimizer.safetensors");
    by_status s = entries && path ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; i < p->count * slots && s == BY_OK; i++)
        if (is_kept(p, i / slots, i % slots))
            s = describe_slot(p, i / slots, i % slots, &entries[n++]);
    if (s == BY_OK)
        s = io_safetensors_write(path, entries, n, NULL, train_put_from, p->device);
    for (int i = 0; entries && i < n; i++) {
        union { /* owned here; by_weight only borrows */
            const char *from;
            char *to;
        } name = {entries[i].name};
        base_free(name.to);
    }
    base_free(entries);
    base_free(path);
    return s;
}

static by_status read_slot(by_params *p, int i, int k, const by_weights *file)
{
    char *name = base_sprintf("%s.%s", kept[k].prefix, p->list[i].name);
    if (!name)
        return BY_ERR_MEMORY;
    const by_weight *e = by_weights_find(file, name);
    by_dtype type = gr_acc_type(p->type);
    by_status s;
    if (!e || e->dtype != type || e->bytes != (size_t)p->list[i].count * by_dtype_size(type))
        s = base_fail(BY_ERR_FORMAT, "optimizer.safetensors: %s is missing or has another shape", name);
    else
        s = gr_params_set_typed(p, i, kept[k].slot, e->data, type);
    base_free(name);
    return s;
}

static by_status read_moments(by_params *p, const char *dir)
{
    char *path = base_path_join(dir, "optimizer.safetensors");
    by_weights *file = path ? by_weights_open(path) : NULL;
    base_free(path);
    if (!file)
        return base_error_status();
    by_status s = BY_OK;
    for (int i = 0; i < p->count && s == BY_OK; i++)
        for (int k = 0; k < kept_count(p) && s == BY_OK; k++)
            s = is_kept(p, i, k) ? read_slot(p, i, k, file) : BY_OK;
    by_weights_free(file);
    return s;
}

by_status train_model_save(const by_model *m, const by_tokenizer *tokenizer, const char *dir)
{
    BY_TRY(by_model_save(m, dir, BY_F32));
    if (tokenizer)
        BY_TRY(by_tokenizer_save(tokenizer, dir));
    return write_moments(by_model_trained(m), dir);
}

by_status train_model_load(by_model *m, const char *dir)
{
    return read_moments(by_model_trained(m), dir) == BY_OK ? BY_OK : base_fail_context("%s", dir);
}

by_status train_checkpoint_load(const char *dir, train_run_state *s, train_state_fn read, void *user)
{
    BY_TRY(read(user, dir));
    return train_state_read(s, dir) == BY_OK ? BY_OK : base_fail_context("%s", dir);
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* The name of a checkpoint, "" for none. */
typedef struct target {
    char name[256];
} target;

static target name_of(int64_t step)
{
    target t = {0};
    base_format(t.name, sizeof t.name, "checkpoint-%06lld", (long long)step);
    return t;
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

/* Replaces a link. */
static by_status point(const train_folder *f, const char *link, const char *to)
{
    char *path = base_path_join(f->out, link), *temp = base_sprintf("%s/.%s-new", f->out, link);
    by_status s = BY_ERR_MEMORY;
    if (path && temp) {
        unlink(temp);
        if (symlink(to, temp) != 0)
            s = base_fail(BY_ERR_IO, "%s: %s", temp, strerror(errno));
        else
            s = base_rename(temp, path);
    }
    base_free(path);
    base_free(temp);
    return s;
}

/* The target of a link of the folder. */
static by_status pointed(const train_folder *f, const char *link, target *t)
{
    char *path = base_path_join(f->out, link);
    if (!path)
        return BY_ERR_MEMORY;
    ssize_t n = readlink(path, t->name, sizeof t->name - 1);
    t->name[n > 0 ? n : 0] = '\0';
    base_free(path);
    return BY_OK;
}

/* Steps of the run's own checkpoints, the newest first; steps has room for count. Returns how many. */
static int newest(const train_folder *f, int64_t *steps, int count)
{
    DIR *d = opendir(f->out);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        int64_t step = train_folder_owns(f, e->d_name) ? step_of(e->d_name) : -1;
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

/* Removes checkpoints older than the newest `keep`, except those that last and best point to. */
static by_status thin_out(train_folder *f, int keep)
{
    enum { MANY = 4096 };
    target last, best;
    BY_TRY(pointed(f, "last", &last));
    BY_TRY(pointed(f, "best", &best));
    int64_t *steps = base_alloc(MANY * sizeof *steps);
    if (!steps)
        return BY_ERR_MEMORY;
    int n = newest(f, steps, MANY), others = 0;
    by_status s = BY_OK;
    for (int i = 0; i < n && s == BY_OK; i++) {
        target t = name_of(steps[i]);
        if (!strcmp(t.name, last.name) || !strcmp(t.name, best.name) || steps[i] > step_of(last.name))
            /* a checkpoint newer than last was found damaged, and is replaced when the run reaches its step
             */
            continue;
        if (++others > keep - 1) /* `last` is one of the newest that are kept */
            s = train_folder_drop(f, t.name);
    }
    base_free(steps);
    return s;
}

/* A checkpoint of that name that `last` does not point to was left by a run that died at that moment; it is
 * replaced. */
static by_status write_checkpoint(train_folder *f, const char *name, const train_run_state *s,
                                  train_state_fn write, void *user)
{
    char *stage;
    by_status status = train_folder_stage(f, &stage);
    if (status == BY_OK)
        status = write(user, stage);
    if (status == BY_OK)
        status = train_state_write(s, stage);
    if (status == BY_OK)
        status = train_folder_place(f, name);
    if (status != BY_OK)
        train_folder_unstage(f); /* free the disk space of the attempt */
    base_free(stage);
    return status;
}

by_status train_checkpoint_save(train_folder *f, const train_run_state *s, bool is_best, int keep,
                                train_state_fn write, void *user)
{
    static const char *const links[] = {"last", ".last-new", "best", ".best-new"};
    const target name = name_of(s->step);
    target last;
    char *path = base_path_join(f->out, name.name);
    by_status status = path ? pointed(f, "last", &last) : BY_ERR_MEMORY;
    if (status == BY_OK)
        status = train_folder_claim(f, links, BY_COUNT(links));
    if (status == BY_OK && (strcmp(last.name, name.name) != 0 || !base_dir_exists(path)))
        status = write_checkpoint(f, name.name, s, write, user);
    if (status == BY_OK)
        status = point(f, "last", name.name);
    if (status == BY_OK && is_best)
        status = point(f, "best", name.name);
    base_free(path);
    return status == BY_OK ? thin_out(f, keep) : base_fail_context("saving a checkpoint");
}

by_model *train_checkpoint_best(const train_folder *f, by_device *d, const by_model_spec *spec)
{
    char *dir = base_path_join(f->out, "best");
    by_model *m = dir ? by_model_open(d, dir, spec) : NULL;
    base_free(dir);
    return m;
}

by_status train_checkpoint_leave(train_folder *f, const by_model *m, const by_tokenizer *tokenizer,
                                 const by_processor *processor)
{
    return train_checkpoint_place(f, NULL, m, tokenizer, processor);
}

by_status train_checkpoint_place(train_folder *f, const char *dir, const by_model *m,
                                 const by_tokenizer *tokenizer, const by_processor *processor)
{
    char *stage;
    BY_TRY(train_folder_stage(f, &stage));
    by_status s = m ? by_model_save(m, stage, BY_F32) : BY_OK;
    if (s == BY_OK)
        s = processor ? by_processor_save(processor, stage) : by_tokenizer_save(tokenizer, stage);
    if (s == BY_OK)
        s = train_folder_place_files(f, dir);
    if (s != BY_OK)
        train_folder_unstage(f);
    base_free(stage);
    return s;
}

/* ---- resuming -------------------------------------------------------------------------------- */

/* A copied folder may have directories instead of links. Renames such a directory to a checkpoint, unless
 * that exists, and replaces it by a link. Nothing is removed unless an intact copy exists. */
static by_status restore_link(train_folder *f, const char *link)
{
    char *path = base_path_join(f->out, link);
    struct stat st;
    train_run_state state;
    if (!path)
        return BY_ERR_MEMORY;
    if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode) || !train_folder_owns(f, link)) {
        base_free(path);
        return BY_OK;
    }
    by_status s = train_state_read(&state, path);
    const target t = s == BY_OK ? name_of(state.step) : (target){0};
    char *other = base_path_join(f->out, t.name);
    if (s == BY_OK && other && train_state_read(NULL, other) == BY_OK && train_state_verify(other) == BY_OK) {
        s = train_folder_drop_copy(f, t.name, link);
    } else if (s == BY_OK && base_error_status() == BY_ERR_MEMORY) {
        s = BY_ERR_MEMORY;
    } else if (s == BY_OK) {
        s = train_state_verify(path);
        if (s == BY_OK)
            s = train_folder_drop(f, t.name); /* damaged, to be replaced by the copy */
        if (s == BY_OK)
            s = train_folder_move(f, link, t.name);
    }
    if (s == BY_OK)
        s = point(f, link, t.name);
    base_free(path);
    base_free(other);
    return s == BY_OK ? BY_OK : base_fail_context("%s/%s is a directory, not a link", f->out, link);
}

/* Whether a directory is a complete checkpoint, of this step unless it is -1. */
static by_status look_at(const char *dir, int64_t step)
{
    train_run_state s;
    BY_TRY(train_state_read(&s, dir));
    return step < 0 || s.step == step
               ? BY_OK
               : base_fail(BY_ERR_FORMAT, "%s holds the state of step %lld", dir, (long long)s.step);
}

/* The newest complete checkpoint of a step below `below`, or "". *seen: number of checkpoints, complete or
 * not. */
static by_status newest_whole(const train_folder *f, int64_t below, target *out, int *seen)
{
    enum { MANY = 4096 };
    int64_t *steps = base_alloc(MANY * sizeof *steps);
    if (!steps)
        return BY_ERR_MEMORY;
    *out = (target){0};
    *seen = newest(f, steps, MANY);
    by_status s = BY_OK;
    for (int i = 0; i < *seen && s == BY_OK && !out->name[0]; i++) {
        target t = name_of(steps[i]);
        char *dir = base_path_join(f->out, t.name);
        if (!dir)
            s = BY_ERR_MEMORY;
        else if (steps[i] < below && look_at(dir, steps[i]) == BY_OK)
            *out = t;
        else if (steps[i] < below && base_error_status() == BY_ERR_MEMORY)
            s = BY_ERR_MEMORY; /* which says nothing about the checkpoint */
        base_free(dir);
    }
    base_free(steps);
    return s;
}

/* There are checkpoints, but none to resume from. */
static by_status none_whole(const train_folder *f, const char *reason)
{
    return base_fail(BY_ERR_FORMAT,
                     "%s: no checkpoint is complete (%s); restore the missing files, or start over "
                     "(--overwrite), which removes the checkpoints",
                     f->out, reason);
}

/* The contents of the checkpoint do not match its checksums. */
static by_status damaged(const train_folder *f, const char *dir)
{
    if (base_error_status() == BY_ERR_MEMORY)
        return BY_ERR_MEMORY; /* nothing is known about the files */
    char *message = base_strdup(by_error_message());
    train_run_state s = {0};
    target other;
    int seen;
    by_status status = message ? train_state_read(&s, dir) : BY_ERR_MEMORY;
    if (status == BY_OK)
        status = newest_whole(f, s.step, &other, &seen);
    if (status == BY_OK && other.name[0])
        base_fail(BY_ERR_FORMAT, "%s; remove %s/%s to resume from %s, the previous complete checkpoint",
                  message, f->out, name_of(s.step).name, other.name);
    else if (status == BY_OK)
        base_fail(BY_ERR_FORMAT, "%s; there is no other complete checkpoint: restore the file, or start over",
                  message);
    base_free(message);
    return base_error_status();
}

by_status train_checkpoint_find(train_folder *f, char **dir)
{
    target found;
    int seen;
    *dir = NULL;
    base_error_clear();
    BY_TRY(restore_link(f, "best"));
    BY_TRY(restore_link(f, "last"));
    BY_TRY(pointed(f, "last", &found));
    char *last = base_path_join(f->out, "last"), *reason = NULL;
    by_status s = last ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK)
        base_error_clear();
    if (s == BY_OK && train_folder_owns(f, "last") && look_at(last, step_of(found.name)) == BY_OK) {
        *dir = last;
    } else if (s == BY_OK && base_error_status() == BY_ERR_MEMORY) {
        s = BY_ERR_MEMORY;
        base_free(last);
    } else if (s == BY_OK) {
        reason = base_strdup(by_error_message());
        s = newest_whole(f, INT64_MAX, &found, &seen);
        if (s == BY_OK && found.name[0]) {
            *dir = base_path_join(f->out, found.name);
            train_folder_warn(f, "%s is not usable (%s): continuing from %s, the newest complete checkpoint",
                              last, reason ? reason : "missing", found.name);
        } else if (s == BY_OK && seen > 0) {
            s = none_whole(f, reason ? reason : "missing");
        }
        base_free(last);
    }
    base_free(reason);
    if (s == BY_OK)
        base_error_clear();
    if (s == BY_OK && *dir && train_state_verify(*dir) != BY_OK)
        s = base_error_status() == BY_ERR_MEMORY ? BY_ERR_MEMORY : damaged(f, *dir);
    return s;
}

by_status train_checkpoint_mend(train_folder *f, const train_run_state *s, int keep)
{
    const struct {
        const char *link;
        int64_t step;
    } links[] = {{"last", s->step}, {"best", s->best_step}};
    for (int i = 0; i < BY_COUNT(links); i++) {
        target now, right = name_of(links[i].step);
        BY_TRY(pointed(f, links[i].link, &now));
        char *path = base_path_join(f->out, right.name);
        if (!path)
            return BY_ERR_MEMORY;
        const bool there = base_dir_exists(path);
        base_free(path);
        if (links[i].step > 0 && there && strcmp(now.name, right.name) != 0)
            BY_TRY(point(f, links[i].link, right.name));
    }
    return thin_out(f, keep);
}

/* ---- the mean of several --------------------------------------------------------------------- */

static by_status add_values(const by_weights *file, const char *name, int64_t n, double *sum, float *values)
{
    const by_weight *w = by_weights_find(file, name);
    if (!w)
        return base_fail(BY_ERR_FORMAT, "%s is missing in a checkpoint", name);
    BY_TRY(by_weight_read(w, 0, (size_t)n, values, BY_F32));
    for (int64_t i = 0; i < n; i++)
        sum[i] += values[i];
    return BY_OK;
}

static by_status average_one(by_params *p, int i, by_weights *const *files, int count)
{
    const int64_t n = p->list[i].count;
    double *sum = base_alloc_zero((size_t)n, sizeof *sum);
    float *values = base_alloc((size_t)n * sizeof *values);
    by_status s = sum && values ? BY_OK : BY_ERR_MEMORY;
    for (int k = 0; k < count && s == BY_OK; k++)
        s = add_values(files[k], p->list[i].name, n, sum, values);
    for (int64_t j = 0; j < n && s == BY_OK; j++)
        values[j] = (float)(sum[j] / count);
    if (s == BY_OK)
        s = by_params_set(p, i, BY_SLOT_VALUE, values);
    base_free(sum);
    base_free(values);
    return s;
}

by_status train_checkpoint_average(const train_folder *f, int count, by_model *m, int *used)
{
    by_params *p = by_model_params(m);
    int64_t *steps = base_alloc((size_t)count * sizeof *steps);
    by_weights **files = base_alloc_zero((size_t)count, sizeof *files);
    by_status s = steps && files ? BY_OK : BY_ERR_MEMORY;
    *used = s == BY_OK ? newest(f, steps, count) : 0;
    for (int k = 0; k < *used && s == BY_OK; k++) {
        char *path = base_sprintf("%s/%s/model.safetensors", f->out, name_of(steps[k]).name);
        files[k] = path ? by_weights_open(path) : NULL;
        s = files[k] ? BY_OK : base_error_status();
        base_free(path);
    }
    for (int i = 0; i < p->count && s == BY_OK && *used; i++)
        s = average_one(p, i, files, *used);
    for (int k = 0; k < *used; k++)
        by_weights_free(files[k]);
    base_free(files);
    base_free(steps);
    return s;
}
