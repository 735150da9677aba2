/* verb_fill.c - banyan fill: predicts masked tokens. */
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
     .help = "predictions per gap", .group = "Predictions"},
    CLI_READ_ROWS(fill_options),
};

typedef struct job {
    fill_options o;
    cli_reading r;
} job;

static by_status put_guess(const job *j, base_buf *out, const by_guess *g, bool first)
{
    size_t size;
    char *word = by_decode(j->r.tokenizer, &g->token, 1, &size);
    if (!word)
        return base_error_status();
    if (j->o.read.json) {
        base_buf_puts(out, first ? "{\"token\":" : ",{\"token\":");
        base_json_quote_bytes(out, word, size);
        base_buf_printf(out, ",\"id\":%d,\"score\":", g->token);
        base_json_put_number(out, (double)g->score, 6);
        base_buf_puts(out, "}");
    } else {
        base_buf_printf(out, "  %6.2f %%  %s\n", 100 * (double)g->score, word);
    }
    by_release(word);
    return BY_OK;
}

static by_status put_text(const job *j, base_buf *out, const char *text, const by_guesses *g, int i)
{
    const bool json = j->o.read.json;
    if (json) {
        base_buf_puts(out, "{\"text\":");
        base_json_quote(out, text);
        base_buf_puts(out, ",\"holes\":[");
    } else {
        base_buf_printf(out, "%s\n", text);
    }
    for (int h = g->first[i]; h < g->first[i + 1]; h++) {
        const by_guess *list = g->list + (size_t)h * (size_t)g->top;
        const bool first = h == g->first[i];
        base_buf_puts(out, json ? (first ? "[" : ",[") : first ? "" : "\n");
        for (int k = 0; k < g->top && list[k].token >= 0; k++)
            BY_TRY(put_guess(j, out, &list[k], k == 0));
        base_buf_puts(out, json ? "]" : "");
    }
    base_buf_puts(out, json ? "]}\n" : "");
    return BY_OK;
}

static by_status check_masks(const by_guesses *g, int64_t before)
{
    for (int i = 0; i < g->count; i++)
        if (g->first[i] == g->first[i + 1])
            return base_fail(BY_ERR_ARGUMENT,
                             "text %lld has no gap: write the mask token or ___ where a word is missing",
                             (long long)(before + i + 1));
    return BY_OK;
}

static by_status fill(void *user, const cli_texts *t)
{
    job *j = user;
    by_guesses g;
    base_buf out = {0};
    BY_TRY(by_predictor_fill(j->r.predictor, (const char *const *)t->texts, t->count, j->o.top, &g));
    by_status s = check_masks(&g, t->before);
    for (int i = 0; i < t->count && s == BY_OK; i++)
        s = put_text(j, &out, t->texts[i], &g, i);
    by_guesses_free(&g);
    if (s == BY_OK)
        return cli_put(&out);
    base_buf_free(&out);
    return s;
}

static int run(int argc, char **argv)
{
    job j = {0};
    cli_args args;
    int code;
    if (!cli_parse(&cli_fill, argc, argv, &j.o, &args, &code) || !cli_one_source(j.o.read.file, &args, &code))
        return code;
    cli_interrupt_install();
    cli_texts texts = {.arguments = args.items + 1, .n_arguments = args.count - 1, .path = j.o.read.file};
    by_status s = cli_read_open(&j.r, args.items[0], BY_TASK_MLM, &j.o.read);
    code = cli_texts_run(&texts, s, fill, &j);
    cli_read_close(&j.r);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_fill = {
    .name = "fill",
    .summary = "predict the missing words of a text",
    .args = "MODEL [TEXT...]",
    .description =
        "Each TEXT or, without TEXT, each line of the input has gaps: the model's mask token ([MASK], "
        "<mask>) or three underscores. Prints the most likely tokens for each gap with their probabilities.",
    .examples = "banyan fill bert-base-uncased \"Paris is the ___ of France.\"\n"
                "banyan fill roberta-base --top 3 --json < texts.txt\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
