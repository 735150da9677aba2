/* read.c - texts in, batches through a model (see read.h). */
#include "cli/read.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/common.h"
#include "cli/report.h"

enum { TOGETHER = 4096 }; /* lines taken at a time */

/* ---- texts ----------------------------------------------------------------------------------- */

static void forget(cli_texts *t)
{
    for (int i = 0; i < t->count; i++) {
        by_free(t->texts[i]);
        by_free(t->seconds[i]);
    }
    t->before += t->count;
    t->count = 0;
}

void cli_texts_free(cli_texts *t)
{
    forget(t);
    by_free(t->texts);
    by_free(t->seconds);
    if (t->file && t->file != stdin)
        fclose(t->file);
    *t = (cli_texts){0};
}

static by_status add(cli_texts *t, const char *line)
{
    const char *tab = t->pairs ? strchr(line, '\t') : NULL;
    char *text = tab ? by_sprintf("%.*s", (int)(tab - line), line) : by_strdup(line);
    char *second = tab ? by_strdup(tab + 1) : NULL;
    if (!text || (tab && !second)) {
        by_free(text);
        by_free(second);
        return BY_ERR_MEMORY;
    }
    t->texts[t->count] = text;
    t->seconds[t->count++] = second;
    return BY_OK;
}

static by_status open_file(cli_texts *t)
{
    t->file = t->path ? fopen(t->path, "r") : stdin;
    return t->file ? BY_OK : by_fail(BY_ERR_IO, "%s: %s", t->path, strerror(errno));
}

/* A person may take their time, and Ctrl-C has to end that: a read would start again after the signal. */
static bool await_line(const cli_texts *t, bool live)
{
    struct pollfd terminal = {.fd = fileno(t->file), .events = POLLIN};
    return !live || poll(&terminal, 1, -1) >= 0 || !cli_interrupted();
}

/* A terminal is answered line by line. */
static by_status read_lines(cli_texts *t)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t size = 0;
    by_status s = t->file ? BY_OK : open_file(t);
    const bool live = s == BY_OK && isatty(fileno(t->file));
    const int most = live ? 1 : t->most ? t->most : TOGETHER;
    while (s == BY_OK && t->count < most && !cli_interrupted() && await_line(t, live) &&
           (size = getline(&line, &room, t->file)) >= 0) {
        while (size > 0 && (line[size - 1] == '\n' || line[size - 1] == '\r'))
            line[--size] = '\0';
        s = strlen(line) == (size_t)size
                ? add(t, line)
                : by_fail(BY_ERR_FORMAT, "%s: line %lld holds a NUL character",
                          t->path ? t->path : "the input", (long long)t->before + t->count + 1);
    }
    if (s == BY_OK && size < 0 && ferror(t->file))
        s = by_fail(BY_ERR_IO, "%s: %s", t->path ? t->path : "the input", strerror(errno));
    t->ended = size < 0 || cli_interrupted();
    free(line);
    return s;
}

by_status cli_texts_next(cli_texts *t)
{
    forget(t);
    if (!t->texts) {
        size_t room = (size_t)BY_MAX(t->n_arguments, BY_MAX(t->most, TOGETHER));
        t->texts = by_alloc_zero(room, sizeof *t->texts);
        t->seconds = by_alloc_zero(room, sizeof *t->seconds);
        if (!t->texts || !t->seconds)
            return BY_ERR_MEMORY;
    }
    if (t->ended)
        return BY_OK;
    if (t->n_arguments == 0)
        return read_lines(t);
    t->ended = true;
    for (int i = 0; i < t->n_arguments; i++)
        BY_TRY(add(t, t->arguments[i]));
    return BY_OK;
}

int cli_texts_run(cli_texts *t, by_status begun, cli_texts_fn *each, void *user)
{
    by_status s = begun;
    while (s == BY_OK && (s = cli_texts_next(t)) == BY_OK && t->count > 0 && cli_flush())
        s = each(user, t);
    const int code = s != BY_OK ? cli_fail(NULL) : cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
    cli_texts_free(t);
    return code;
}

by_status cli_put(by_buf *out)
{
    bool ok = !out->failed && fwrite(out->data ? out->data : "", 1, out->size, stdout) == out->size;
    by_buf_free(out);
    return ok ? BY_OK : by_fail(BY_ERR_IO, "the output cannot be written");
}

/* ---- models ---------------------------------------------------------------------------------- */

static by_status check_task(const by_model *m, by_task task)
{
    by_task has = by_model_task(m);
    if (has == task || (task == BY_TASK_MLM && has == BY_TASK_PRETRAIN))
        return BY_OK;
    return by_fail(BY_ERR_ARGUMENT, "a %s cannot do this: its head is for \"%s\", not for \"%s\"",
                   by_model_class(m), by_task_name(has), by_task_name(task));
}

by_status cli_read_open(cli_reading *r, const char *path, by_task task, const by_rows_spec *rows,
                        const cli_read_options *o)
{
    char *dir = cli_model_dir(path);
    r->device = dir ? cli_device(o->device, o->threads) : NULL;
    r->model =
        r->device ? by_model_open(r->device, dir, &(by_model_spec){.dtype = (by_dtype)o->dtype}) : NULL;
    by_free(dir);
    if (!r->model)
        return by_error_status();
    BY_TRY(check_task(r->model, task));
    r->tokenizer = cli_tokenizer(path);
    if (!r->tokenizer)
        return by_error_status();
    bool gpu = strncmp(by_device_name(r->device), "cpu", 3) != 0;
    r->batch = o->batch ? o->batch : gpu ? 256 : 32;
    r->passes = by_passes_new(r->model, &(by_pass_spec){0}, 64);
    if (!r->passes)
        return BY_ERR_MEMORY;
    return by_rows_init(&r->rows, r->model, r->tokenizer, rows);
}

void cli_read_close(cli_reading *r)
{
    by_rows_free(&r->rows);
    by_passes_free(r->passes);
    by_tokenizer_free(r->tokenizer);
    by_model_free(r->model);
    by_device_free(r->device);
    *r = (cli_reading){0};
}

static by_status run_group(cli_reading *r, const by_row_groups *groups, int g, by_row_batch *rows,
                           const cli_read_calls *calls, void *user)
{
    const int *list = groups->rows + groups->first[g];
    BY_TRY(by_rows_group(&r->rows, groups, g, r->batch, rows));
    by_batch b = rows->batch;
    if (calls->prepare)
        BY_TRY(calls->prepare(user, r, &b, list, rows->rows));
    by_pass *p = by_passes_get(r->passes, &b);
    if (!p)
        return by_error_status();
    BY_TRY(by_pass_run(p, &b));
    return calls->take(user, r, p, &b, list, rows->rows);
}

by_status cli_read_run(cli_reading *r, char *const *texts, char *const *pairs, int count,
                       const cli_read_calls *calls, void *user)
{
    by_row_groups groups = {0};
    by_row_batch rows = {0};
    by_status s = BY_OK;
    by_rows_clear(&r->rows);
    for (int i = 0; i < count && s == BY_OK; i++)
        s = by_rows_add(&r->rows, texts[i], pairs ? pairs[i] : NULL);
    if (s == BY_OK)
        s = by_rows_by_length(&r->rows, r->batch, &groups);
    for (int g = 0; s == BY_OK && g < groups.count; g++)
        s = cli_interrupted() ? by_fail(BY_ERR_CANCELLED, "interrupted")
                              : run_group(r, &groups, g, &rows, calls, user);
    by_row_groups_free(&groups);
    by_row_batch_free(&rows);
    return s;
}

/* ---- numbers --------------------------------------------------------------------------------- */

void cli_softmax(float *x, int n)
{
    float top = x[0];
    double sum = 0;
    for (int i = 1; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int i = 0; i < n; i++)
        sum += x[i] = expf(x[i] - top);
    for (int i = 0; i < n; i++)
        x[i] = (float)(x[i] / sum);
}

int cli_top(const float *x, int n, int k, int *places)
{
    int found = 0;
    for (int i = 0; i < n; i++) {
        int at = found < k ? found++ : k;
        for (; at > 0 && x[places[at - 1]] < x[i]; at--)
            if (at < k)
                places[at] = places[at - 1];
        if (at < k)
            places[at] = i;
    }
    return found;
}
