/* fill.c - banyan fill: what may stand where a text has a hole. */
#include <stdio.h>

#include "cli/read.h"
#include "cli/verbs.h"
#include "base/json.h"

typedef struct fill_options {
    cli_read_options read;
    int top;
} fill_options;

static const cli_option options[] = {
    {CLI_AT(fill_options, top), .name = "top", .letter = 'k', CLI_RANGE(1, 1000), .preset = "5",
     .help = "guesses for each hole", .group = "Guesses"},
    CLI_READ_ROWS(fill_options),
};

/* The guesses for one hole. */
typedef struct guess {
    int32_t token;
    float share;
} guess;

typedef struct job {
    fill_options o;
    cli_reading r;
    int32_t mask, *pick;
    const char *mask_name;
    int picks, room; /* holes of the present batch */
    float *logits;   /* (picks, V) */
    size_t logits_room;
    guess *guesses;    /* (holes of all texts, top) */
    int *first, holes; /* (texts + 1) where the holes of a text begin */
    const cli_texts *texts;
} job;

/* ---- holes ----------------------------------------------------------------------------------- */

/* People write three underscores more easily than the token of this model. */
static by_status with_holes(const char *text, const char *mask, by_buf *out)
{
    for (const char *at = text; *at;) {
        size_t run = strspn(at, "_");
        if (run >= 3)
            by_buf_puts(out, mask);
        else if (run == 0)
            by_buf_put(out, at, 1);
        else
            by_buf_put(out, at, run);
        at += run ? run : 1;
    }
    by_buf_put(out, "", 1);
    return out->failed ? BY_ERR_MEMORY : BY_OK;
}

static const char *mask_name(job *j)
{
    static const char *const names[] = {"[MASK]", "<mask>", "<special1>"};
    for (int i = 0; i < BY_COUNT(names); i++) {
        j->mask = by_tokenizer_find(j->r.tokenizer, names[i]);
        if (j->mask >= 0)
            return names[i];
    }
    by_fail(BY_ERR_UNSUPPORTED, "the tokenizer has no token for a hole: neither [MASK] nor <mask>");
    return NULL;
}

static by_status count_holes(job *j, int count)
{
    const by_rows *rows = &j->r.rows;
    j->holes = 0;
    int *first = by_resize(j->first, (size_t)count + 1, sizeof *first);
    if (!first)
        return BY_ERR_MEMORY;
    j->first = first;
    for (int i = 0; i < count; i++) { /* one row for each text */
        const by_row *row = &rows->list[i];
        first[i] = j->holes;
        for (int t = 0; t < row->count; t++)
            j->holes += rows->tokens.data[row->first + (size_t)t] == j->mask;
        if (j->holes == first[i])
            return by_fail(BY_ERR_ARGUMENT,
                           "text %lld has no hole: write the mask token or ___ where a word is missing",
                           (long long)(j->texts->before + i + 1));
    }
    first[count] = j->holes;
    guess *guesses = by_resize(j->guesses, (size_t)j->holes * (size_t)j->o.top, sizeof *guesses);
    if (!guesses)
        return BY_ERR_MEMORY;
    j->guesses = guesses;
    return BY_OK;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Logits are wanted at the holes alone; their number is rounded up, so that few shapes occur. */
static by_status prepare(void *user, cli_reading *r, by_batch *b, const int *rows, int count)
{
    job *j = user;
    (void)r;
    (void)rows;
    int room = 8;
    j->picks = 0;
    for (int i = 0; i < count * b->seq; i++)
        j->picks += b->tokens[i] == j->mask;
    while (room < j->picks)
        room *= 2;
    if (room > j->room) {
        int32_t *more = by_resize(j->pick, (size_t)room, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        j->pick = more;
        j->room = room;
    }
    memset(j->pick, 0, (size_t)room * sizeof *j->pick);
    for (int i = 0, n = 0; i < count * b->seq; i++)
        if (b->tokens[i] == j->mask)
            j->pick[n++] = i;
    b->pick = j->pick;
    b->picks = room;
    return BY_OK;
}

static by_status take(void *user, cli_reading *r, by_pass *p, const by_batch *b, const int *rows, int count)
{
    job *j = user;
    const size_t vocab = (size_t)by_model_vocab(r->model), size = (size_t)b->picks * vocab;
    int *places = by_alloc((size_t)j->o.top * sizeof *places);
    if (size > j->logits_room) {
        float *more = by_resize(j->logits, size, sizeof *more);
        j->logits = more ? more : j->logits;
        j->logits_room = more ? size : j->logits_room;
    }
    by_status s =
        places && size <= j->logits_room ? by_pass_read(p, by_pass_io(p)->logits, j->logits) : BY_ERR_MEMORY;
    for (int n = 0, before = -1, hole = 0; s == BY_OK && n < j->picks; n++) {
        int row = j->pick[n] / b->seq;
        hole = row == before ? hole + 1 : 0;
        before = row;
        if (row >= count)
            break;
        float *x = j->logits + (size_t)n * vocab;
        guess *to =
            j->guesses + (size_t)(j->first[r->rows.list[rows[row]].example] + hole) * (size_t)j->o.top;
        cli_softmax(x, (int)vocab);
        int found = cli_top(x, (int)vocab, j->o.top, places);
        for (int k = 0; k < j->o.top; k++)
            to[k] = k < found ? (guess){places[k], x[places[k]]} : (guess){-1, 0};
    }
    by_free(places);
    return s;
}

/* ---- telling --------------------------------------------------------------------------------- */

static by_status tell(const job *j, int i)
{
    by_buf out = {0};
    const bool json = j->o.read.json;
    if (json)
        by_buf_puts(&out, "{\"text\":");
    if (json)
        by_json_quote(&out, j->texts->texts[i]);
    else
        by_buf_puts(&out, j->texts->texts[i]);
    by_buf_puts(&out, json ? ",\"holes\":[" : "\n");
    for (int h = j->first[i]; h < j->first[i + 1]; h++) {
        by_buf_puts(&out, json ? (h > j->first[i] ? ",[" : "[") : h > j->first[i] ? "\n" : "");
        for (int k = 0; k < j->o.top && j->guesses[h * j->o.top + k].token >= 0; k++) {
            const guess *g = &j->guesses[h * j->o.top + k];
            size_t size;
            char *word = by_decode(j->r.tokenizer, &g->token, 1, &size);
            if (!word) {
                by_buf_free(&out);
                return by_error_status();
            }
            if (json) {
                by_buf_printf(&out, "%s{\"token\":", k ? "," : "");
                by_json_quote_bytes(&out, word, size);
                by_buf_printf(&out, ",\"id\":%d,\"score\":%.6g}", g->token, (double)g->share);
            } else {
                by_buf_printf(&out, "  %6.2f %%  %s\n", 100 * (double)g->share, word);
            }
            by_release(word);
        }
        by_buf_puts(&out, json ? "]" : "");
    }
    by_buf_puts(&out, json ? "]}\n" : "");
    bool ok = !out.failed && fwrite(out.data, 1, out.size, stdout) == out.size;
    by_buf_free(&out);
    return ok ? BY_OK : by_fail(BY_ERR_IO, "the output cannot be written");
}

static by_status fill(void *user, const cli_texts *t)
{
    job *j = user;
    static const cli_read_calls calls = {prepare, take};
    char **texts = by_alloc_zero((size_t)t->count, sizeof *texts);
    by_status s = texts ? BY_OK : BY_ERR_MEMORY;
    j->texts = t;
    by_rows_clear(&j->r.rows);
    for (int i = 0; i < t->count && s == BY_OK; i++) {
        by_buf holed = {0};
        s = with_holes(t->texts[i], j->mask_name, &holed);
        texts[i] = holed.data; /* the buffer's memory is the string's */
        if (s == BY_OK)
            s = by_rows_add(&j->r.rows, texts[i], NULL);
    }
    if (s == BY_OK)
        s = count_holes(j, t->count);
    if (s == BY_OK)
        s = cli_read_run(&j->r, texts, NULL, t->count, &calls, j);
    for (int i = 0; i < t->count && s == BY_OK; i++)
        s = tell(j, i);
    for (int i = 0; texts && i < t->count; i++)
        by_free(texts[i]);
    by_free(texts);
    return s;
}

static int run(int argc, char **argv)
{
    job j = {0};
    cli_args args;
    int code;
    if (!cli_parse(&cli_fill, argc, argv, &j.o, &args, &code))
        return code;
    cli_interrupt_install();
    cli_texts texts = {.arguments = args.items + 1, .n_arguments = args.count - 1, .path = j.o.read.file};
    by_status s = cli_read_open(&j.r, args.items[0], BY_TASK_MLM, &(by_rows_spec){0}, &j.o.read);
    j.mask_name = s == BY_OK ? mask_name(&j) : NULL;
    s = s == BY_OK && !j.mask_name ? by_error_status() : s;
    code = cli_texts_run(&texts, s, fill, &j);
    cli_read_close(&j.r);
    by_free(j.pick);
    by_free(j.logits);
    by_free(j.guesses);
    by_free(j.first);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_fill = {
    .name = "fill",
    .summary = "guess the missing words of a text",
    .args = "MODEL [TEXT...]",
    .description =
        "Each TEXT, or else each line of the input, has holes: the model's mask token ([MASK], <mask>) or "
        "three underscores. For each hole the likeliest tokens are printed with their probabilities.",
    .examples = "banyan fill bert-base-uncased \"Paris is the ___ of France.\"\n"
                "banyan fill roberta-base --top 3 --json < texts.txt\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
