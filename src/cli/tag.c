/* tag.c - banyan tag: names, places and other stretches of a text that a model was taught to find. */
#include <stdio.h>

#include "cli/read.h"
#include "cli/verbs.h"
#include "base/json.h"

typedef struct tag_options {
    cli_read_options read;
    bool tokens;
} tag_options;

static const cli_option options[] = {
    {CLI_AT(tag_options, tokens), .name = "tokens",
     .help = "show the label of every token, not only what was found", .group = "Labels"},
    CLI_READ_ROWS(tag_options),
};

/* What was found out about a token of a text. */
typedef struct token {
    by_offset at;
    int label;
    float score;
} token;

typedef struct job {
    tag_options o;
    cli_reading r;
    float *logits;
    token *tokens; /* of all texts; by text, where they begin */
    size_t count, room, *first;
    int labels;
} job;

/* ---- batches --------------------------------------------------------------------------------- */

/* Where the tokens of a window go: behind those of the windows before it. Special tokens and what a window
 * repeats have no place of their own. */
static bool counts(const by_rows *rows, const by_row *row, int t, int *repeated)
{
    const by_offset at = rows->offsets[row->first + (size_t)t];
    if (at.end == at.start)
        return false;
    return (*repeated)++ >= row->repeated;
}

static by_status place_rows(job *j, int count)
{
    const by_rows *rows = &j->r.rows;
    size_t *first = by_resize(j->first, (size_t)count + 1, sizeof *first);
    if (!first)
        return BY_ERR_MEMORY;
    j->first = first;
    memset(first, 0, ((size_t)count + 1) * sizeof *first);
    for (int i = 0; i < rows->count; i++) {
        int repeated = 0;
        for (int t = 0; t < rows->list[i].count; t++)
            first[rows->list[i].example + 1] += counts(rows, &rows->list[i], t, &repeated);
    }
    for (int i = 0; i < count; i++)
        first[i + 1] += first[i];
    token *more = by_resize(j->tokens, BY_MAX(first[count], (size_t)1), sizeof *more);
    if (!more)
        return BY_ERR_MEMORY;
    j->tokens = more;
    return BY_OK;
}

/* Tokens of the example's windows before this one. */
static size_t tokens_before(const by_rows *rows, int row)
{
    size_t n = 0;
    for (int i = row - rows->list[row].window; i < row; i++) {
        int repeated = 0;
        for (int t = 0; t < rows->list[i].count; t++)
            n += counts(rows, &rows->list[i], t, &repeated);
    }
    return n;
}

static by_status take(void *user, cli_reading *r, by_pass *p, const by_batch *b, const int *rows, int count)
{
    job *j = user;
    const size_t labels = (size_t)j->labels;
    float *more = by_resize(j->logits, (size_t)b->batch * (size_t)b->seq * labels, sizeof *more);
    if (!more)
        return BY_ERR_MEMORY;
    j->logits = more;
    BY_TRY(by_pass_read(p, by_pass_io(p)->logits, j->logits));
    for (int i = 0; i < count; i++) {
        const by_row *row = &r->rows.list[rows[i]];
        token *to = j->tokens + j->first[row->example] + tokens_before(&r->rows, rows[i]);
        int repeated = 0;
        for (int t = 0; t < row->count; t++) {
            float *x = j->logits + ((size_t)i * (size_t)b->seq + (size_t)t) * labels;
            if (!counts(&r->rows, row, t, &repeated))
                continue;
            cli_softmax(x, j->labels);
            int best;
            cli_top(x, j->labels, 1, &best);
            *to++ = (token){r->rows.offsets[row->first + (size_t)t], best, x[best]};
        }
    }
    return BY_OK;
}

/* ---- from tokens to what they name ------------------------------------------------------------ */

/* A label without its B- or I-; whether it begins something. "O" names nothing. */
static const char *kind_of(const job *j, int label, bool *begins)
{
    const char *name = by_model_label_name(j->r.model, label);
    *begins = strncmp(name, "B-", 2) == 0;
    return *begins || strncmp(name, "I-", 2) == 0 ? name + 2 : strcmp(name, "O") == 0 ? NULL : name;
}

static bool is_wordly(uint8_t c)
{
    return c >= 0x80 || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

/* Whether a token goes on with the word before it: its label then follows that of the word's beginning. */
static bool is_inside_word(const char *text, const token *before, const token *now)
{
    return before && before->at.end == now->at.start && is_wordly((uint8_t)text[now->at.start]) &&
           is_wordly((uint8_t)text[now->at.start - 1]);
}

typedef struct entity {
    const char *kind;
    by_offset at;
    double score; /* mean of its words */
    int words;
} entity;

typedef void (*entity_fn)(by_buf *out, const char *text, const entity *e, bool first);

static void each_entity(const job *j, int i, const char *text, by_buf *out, entity_fn put)
{
    entity e = {0};
    bool first = true;
    const token *before = NULL;
    for (size_t k = j->first[i]; k <= j->first[i + 1]; k++) {
        const token *now = k < j->first[i + 1] ? &j->tokens[k] : NULL;
        bool begins = false;
        const char *kind = now ? kind_of(j, now->label, &begins) : NULL;
        if (now && is_inside_word(text, before, now)) {
            if (e.kind)
                e.at.end = now->at.end;
            before = now;
            continue;
        }
        if (e.kind && (!kind || begins || strcmp(kind, e.kind) != 0)) {
            e.score /= e.words;
            put(out, text, &e, first);
            first = false;
            e.kind = NULL;
        }
        if (kind && !e.kind)
            e = (entity){.kind = kind, .at = now->at};
        if (kind) {
            e.at.end = now->at.end;
            e.score += (double)now->score;
            e.words++;
        }
        before = now;
    }
}

/* ---- telling --------------------------------------------------------------------------------- */

static void put_part(by_buf *out, const char *text, by_offset at)
{
    char *part = by_sprintf("%.*s", (int)(at.end - at.start), text + at.start);
    by_json_quote(out, part ? part : "");
    out->failed |= !part;
    by_free(part);
}

static void entity_json(by_buf *out, const char *text, const entity *e, bool first)
{
    by_buf_puts(out, first ? "{\"label\":" : ",{\"label\":");
    by_json_quote(out, e->kind);
    by_buf_printf(out, ",\"start\":%u,\"end\":%u,\"score\":%.6g,\"text\":", e->at.start, e->at.end, e->score);
    put_part(out, text, e->at);
    by_buf_puts(out, "}");
}

static void entity_plain(by_buf *out, const char *text, const entity *e, bool first)
{
    (void)first;
    by_buf_printf(out, "  %-12s %6.2f %%  %.*s\n", e->kind, 100 * e->score, (int)(e->at.end - e->at.start),
                  text + e->at.start);
}

static void put_tokens(const job *j, int i, const char *text, by_buf *out)
{
    for (size_t k = j->first[i]; k < j->first[i + 1]; k++) {
        const token *t = &j->tokens[k];
        const char *label = by_model_label_name(j->r.model, t->label);
        if (!j->o.read.json) {
            by_buf_printf(out, "  %-12s %6.2f %%  %.*s\n", label, 100 * (double)t->score,
                          (int)(t->at.end - t->at.start), text + t->at.start);
            continue;
        }
        by_buf_puts(out, k > j->first[i] ? ",{\"label\":" : "{\"label\":");
        by_json_quote(out, label);
        by_buf_printf(out, ",\"start\":%u,\"end\":%u,\"score\":%.6g,\"text\":", t->at.start, t->at.end,
                      (double)t->score);
        put_part(out, text, t->at);
        by_buf_puts(out, "}");
    }
}

static void put_text(const job *j, int i, const char *text, by_buf *out)
{
    const bool json = j->o.read.json;
    if (json) {
        by_buf_puts(out, "{\"text\":");
        by_json_quote(out, text);
        by_buf_puts(out, j->o.tokens ? ",\"tokens\":[" : ",\"entities\":[");
    } else {
        by_buf_printf(out, "%s\n", text);
    }
    if (j->o.tokens)
        put_tokens(j, i, text, out);
    else
        each_entity(j, i, text, out, json ? entity_json : entity_plain);
    by_buf_puts(out, json ? "]}\n" : "");
}

static by_status place_all(void *user, cli_reading *r, by_batch *b, const int *rows, int count)
{
    job *j = user;
    (void)b, (void)rows, (void)count;
    return j->first ? BY_OK : place_rows(j, r->rows.examples);
}

static by_status tag(void *user, const cli_texts *t)
{
    job *j = user;
    static const cli_read_calls calls = {place_all, take};
    by_free(j->first); /* of other texts */
    j->first = NULL;
    BY_TRY(cli_read_run(&j->r, t->texts, NULL, t->count, &calls, j));
    by_buf out = {0};
    for (int i = 0; i < t->count; i++)
        put_text(j, i, t->texts[i], &out);
    return cli_put(&out);
}

static int run(int argc, char **argv)
{
    job j = {0};
    cli_args args;
    int code;
    if (!cli_parse(&cli_tag, argc, argv, &j.o, &args, &code))
        return code;
    cli_interrupt_install();
    cli_texts texts = {.arguments = args.items + 1, .n_arguments = args.count - 1, .path = j.o.read.file};
    by_rows_spec rows = {.offsets = true, .windows = true};
    by_status s = cli_read_open(&j.r, args.items[0], BY_TASK_TAG, &rows, &j.o.read);
    if (s == BY_OK)
        j.labels = by_model_labels(j.r.model);
    code = cli_texts_run(&texts, s, tag, &j);
    cli_read_close(&j.r);
    by_free(j.logits);
    by_free(j.tokens);
    by_free(j.first);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_tag = {
    .name = "tag",
    .summary = "find names and other stretches in texts",
    .args = "MODEL [TEXT...]",
    .description =
        "Each TEXT, or else each line of the input, is read token by token. Labels that begin with B- and I- "
        "are put together; a word has the label of its first token. Places are counted in bytes.",
    .examples = "banyan tag runs/conll \"Angela Merkel was born in Hamburg.\"\n"
                "banyan tag runs/conll --json < texts.txt > entities.jsonl\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
