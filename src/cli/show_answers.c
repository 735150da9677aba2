/* show_answers.c - displays rows of an alignment run: text and tokens, with the learned parts in
 * [[brackets]], or in colour on a terminal. */
#include "cli/show_answers.h"

#include <stdio.h>
#include <unistd.h>

#include "align/tuning_data.h"
#include "base/input.h"
#include "base/json.h"
#include "cli/common.h"
#include "cli/report.h"

typedef struct answers_printer {
    bool json, colour;
} answers_printer;

static void open_mark(base_buf *out, const answers_printer *p)
{
    base_buf_puts(out, p->colour ? "\033[1;32m" : "[[");
}

static void close_mark(base_buf *out, const answers_printer *p)
{
    base_buf_puts(out, p->colour ? "\033[0m" : "]]");
}

/* The end of the tokens from t on that are all learned or all not learned, in one example. */
static int run_end(const align_shown *e, int t)
{
    int end = t + 1;
    while (end < e->count && e->learned[end] == e->learned[t] && e->positions[end] > 0)
        end++;
    return end;
}

static by_status put_text(base_buf *out, const align_shown *e, int from, int to)
{
    return tok_decode_with(e->tokenizer, e->tokens + from, (size_t)(to - from),
                           &(tok_decode_spec){.lossy = true}, out);
}

/* The row as text, with a line for each example in it. */
static by_status put_marked(base_buf *out, const answers_printer *p, const align_shown *e)
{
    for (int t = 0, end; t < e->count; t = end) {
        end = run_end(e, t);
        if (t > 0 && e->positions[t] == 0)
            base_buf_puts(out, "\n---- next example of the row ----\n");
        if (e->learned[t])
            open_mark(out, p);
        BY_TRY(put_text(out, e, t, end));
        if (e->learned[t])
            close_mark(out, p);
    }
    return BY_OK;
}

static void put_ids(base_buf *out, const answers_printer *p, const align_shown *e)
{
    for (int t = 0, end; t < e->count; t = end) {
        end = run_end(e, t);
        base_buf_puts(out, t ? " " : "");
        if (e->learned[t])
            open_mark(out, p);
        for (int i = t; i < end; i++)
            base_buf_printf(out, "%s%d", i > t ? " " : "", (int)e->tokens[i]);
        if (e->learned[t])
            close_mark(out, p);
    }
}

static by_status put_plain(base_buf *out, const answers_printer *p, const align_shown *e)
{
    int learned = 0;
    for (int t = 0; t < e->count; t++)
        learned += e->learned[t];
    base_buf_printf(out, "row %d%s%s: %d tokens, %d learned\n", e->number, e->kind ? ", " : "",
                    e->kind ? e->kind : "", e->count, learned);
    BY_TRY(put_marked(out, p, e));
    base_buf_puts(out, "\n");
    put_ids(out, p, e);
    base_buf_puts(out, "\n\n");
    return BY_OK;
}

static by_status put_json(base_buf *out, const align_shown *e)
{
    base_buf text = {0};
    by_status s = put_text(&text, e, 0, e->count);
    base_buf_printf(out, "{\"row\": %d, ", e->number);
    if (e->kind)
        base_buf_printf(out, "\"kind\": \"%s\", ", e->kind);
    base_buf_puts(out, "\"text\": ");
    base_json_quote_bytes(out, text.data ? text.data : "", text.size);
    base_buf_puts(out, ", \"tokens\": [");
    for (int t = 0; t < e->count; t++)
        base_buf_printf(out, "%s%d", t ? ", " : "", (int)e->tokens[t]);
    base_buf_puts(out, "], \"learned\": [");
    for (int t = 0; t < e->count; t++)
        base_buf_printf(out, "%s%d", t ? ", " : "", (int)e->learned[t]);
    base_buf_puts(out, "], \"positions\": [");
    for (int t = 0; t < e->count; t++)
        base_buf_printf(out, "%s%d", t ? ", " : "", (int)e->positions[t]);
    base_buf_puts(out, "]}\n");
    base_buf_free(&text);
    return s;
}

static by_status show(void *user, const align_shown *e)
{
    const answers_printer *p = user;
    base_buf out = {0};
    by_status s = p->json ? put_json(&out, e) : put_plain(&out, p, e);
    if (s == BY_OK && out.failed)
        s = BY_ERR_MEMORY;
    if (s == BY_OK)
        fwrite(out.data, 1, out.size, stdout);
    base_buf_free(&out);
    return s;
}

int cli_show_answers(by_device *d, const by_align_spec *spec, int count, bool json, bool quiet)
{
    answers_printer p = {.json = json, .colour = !json && cli_has_colour(STDOUT_FILENO)};
    base_buf about = {0};
    const bool shown = align_preview(d, spec, count, show, &p, &about) == BY_OK;
    if (shown && !quiet && about.data)
        fprintf(stderr, "%s: %s\n", base_input_name(spec->data), about.data);
    base_buf_free(&about);
    return shown ? CLI_OK : cli_fail(NULL);
}
