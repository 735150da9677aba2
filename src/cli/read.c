/* read.c - texts in, batches through a model (see read.h). */
#include "cli/read.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/input.h"
#include "cli/common.h"
#include "cli/report.h"
#include "infer/picture_passes.h"

enum { TOGETHER = 4096 }; /* lines taken at a time */

/* ---- texts ----------------------------------------------------------------------------------- */

static void forget(cli_texts *t)
{
    for (int i = 0; i < t->count; i++) {
        base_free(t->texts[i]);
        base_free(t->seconds[i]);
    }
    t->before += t->count;
    t->count = 0;
}

void cli_texts_free(cli_texts *t)
{
    forget(t);
    base_free(t->texts);
    base_free(t->seconds);
    if (t->file && t->file != stdin)
        fclose(t->file);
    *t = (cli_texts){0};
}

/* Appends the first `size` bytes of text, and its pair unless that is NULL. */
static by_status add_pair(cli_texts *t, const char *text, size_t size, const char *pair)
{
    char *first = base_sprintf("%.*s", (int)size, text), *second = pair ? base_strdup(pair) : NULL;
    if (!first || (pair && !second)) {
        base_free(first);
        base_free(second);
        return BY_ERR_MEMORY;
    }
    t->texts[t->count] = first;
    t->seconds[t->count++] = second;
    return BY_OK;
}

static by_status add(cli_texts *t, const char *line)
{
    const char *tab = t->pairs ? strchr(line, '\t') : NULL;
    return tab ? add_pair(t, line, (size_t)(tab - line), tab + 1) : add_pair(t, line, strlen(line), NULL);
}

static by_status read_table(cli_texts *t)
{
    const int most = t->most ? t->most : TOGETHER;
    while (t->before + t->count < t->table->count && t->count < most) {
        const data_example *x = &t->table->list[t->before + t->count];
        BY_TRY(add_pair(t, x->text, strlen(x->text), x->pair));
    }
    t->ended = t->before + t->count == t->table->count || cli_interrupted();
    return BY_OK;
}

static by_status open_file(cli_texts *t)
{
    t->file = t->path && strcmp(t->path, "-") != 0 ? base_input_open(t->path) : stdin;
    return t->file ? BY_OK : base_error_status();
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
                : base_fail(BY_ERR_FORMAT, "%s: line %lld contains a NUL character",
                            t->path ? t->path : "the input", (long long)t->before + t->count + 1);
    }
    if (s == BY_OK && size < 0 && ferror(t->file))
        s = base_input_check(t->file, t->path ? t->path : "-");
    t->ended = size < 0 || cli_interrupted();
    free(line);
    return s;
}

by_status cli_texts_next(cli_texts *t)
{
    forget(t);
    if (!t->texts) {
        size_t room = (size_t)BY_MAX(t->n_arguments, BY_MAX(t->most, TOGETHER));
        t->texts = base_alloc_zero(room, sizeof *t->texts);
        t->seconds = base_alloc_zero(room, sizeof *t->seconds);
        if (!t->texts || !t->seconds)
            return BY_ERR_MEMORY;
    }
    if (t->ended)
        return BY_OK;
    if (t->n_arguments == 0)
        return t->table ? read_table(t) : read_lines(t);
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

by_status cli_put(base_buf *out)
{
    const bool ok = !out->failed;
    if (ok)
        fwrite(out->data ? out->data : "", 1, out->size, stdout); /* cli_flush and cli_finish see a failure */
    base_buf_free(out);
    return ok ? BY_OK : base_fail(BY_ERR_MEMORY, "out of memory for the output");
}

/* ---- models ---------------------------------------------------------------------------------- */

bool cli_one_source(const char *file, cli_args *args, int *code)
{
    if (!file || args->count < 2)
        return true;
    *code = cli_usage_fail("--file and inputs on the command line exclude each other");
    cli_args_free(args);
    return false;
}

static bool interrupted(void *user)
{
    (void)user;
    return cli_interrupted();
}

/* The tokenizer of a model of texts, or the processor of a model of pictures. */
static by_status open_reader(cli_reading *r, const char *path, const char *dir, const char *adapter)
{
    by_pictures p;
    by_canvas c;
    if (gen_reads_pictures(r->model, &p))
        r->processor = gen_processor_open(r->model, dir, adapter);
    else if (by_model_canvas(r->model, &c))
        return base_fail(BY_ERR_ARGUMENT, "%s generates pictures; it has no labels",
                         base_a(by_model_class(r->model)).text);
    else
        r->tokenizer = cli_tokenizer(path);
    return r->processor || r->tokenizer ? BY_OK : base_error_status();
}

by_status cli_read_open(cli_reading *r, const char *path, by_task task, const cli_read_options *o)
{
    char *dir = cli_model_dir(path);
    cli_note_widening(dir, (by_dtype)o->dtype);
    r->device = dir ? cli_device(o->device, o->threads) : NULL;
    const by_model_spec spec = {.dtype = (by_dtype)o->dtype, .adapter_folder = o->adapter};
    r->model = r->device ? by_model_open(r->device, dir, &spec) : NULL;
    by_status s = r->model ? open_reader(r, path, dir, o->adapter) : base_error_status();
    base_free(dir);
    BY_TRY(s);
    r->predictor = by_predictor_new(
        r->model, r->tokenizer,
        &(by_predictor_spec){
            .task = task, .batch = o->batch, .cancelled = interrupted, .processor = r->processor});
    return r->predictor ? BY_OK : base_error_status();
}

void cli_read_close(cli_reading *r)
{
    by_predictor_free(r->predictor);
    by_tokenizer_free(r->tokenizer);
    by_processor_free(r->processor);
    by_model_free(r->model);
    by_device_free(r->device);
    *r = (cli_reading){0};
}
