/* answer.c - banyan answer: the stretch of a text that answers a question. */
#include <stdio.h>

#include "base/json.h"
#include "cli/read.h"
#include "cli/verbs.h"
#include "data/spans.h"

typedef struct answer_options {
    cli_read_options read;
    int longest, overlap;
    double threshold;
} answer_options;

static const cli_option options[] = {
    {CLI_AT(answer_options, longest), .name = "max-answer", CLI_RANGE(1, 10000), .preset = "30",
     .help = "tokens of an answer at most", .group = "Answers"},
    {CLI_AT(answer_options, overlap), .name = "stride", CLI_RANGE(0, 1e6), .preset = "128",
     .help = "tokens that the windows of a long text share"},
    {CLI_AT(answer_options, threshold), .name = "null-threshold", .preset = "0",
     .help = "say that there is no answer when that scores higher than the best one by this much"},
    CLI_READ_ROWS(answer_options),
};

typedef struct job {
    answer_options o;
    cli_reading r;
    bool may_have_none; /* the user asked for it */
    float *starts, *ends;
    by_best *best; /* of the present questions */
} job;

static by_status take(void *user, cli_reading *r, by_pass *p, const by_batch *b, const int *rows, int count)
{
    job *j = user;
    const size_t cells = (size_t)b->batch * (size_t)b->seq;
    float *starts = by_resize(j->starts, cells, sizeof *starts);
    j->starts = starts ? starts : j->starts;
    float *ends = by_resize(j->ends, cells, sizeof *ends);
    j->ends = ends ? ends : j->ends;
    if (!starts || !ends)
        return BY_ERR_MEMORY;
    BY_TRY(by_pass_read(p, by_pass_io(p)->logits, starts));
    BY_TRY(by_pass_read(p, by_pass_io(p)->second, ends));
    for (int i = 0; i < count; i++) {
        size_t at = (size_t)i * (size_t)b->seq;
        by_best_look(&j->best[r->rows.list[rows[i]].example], &r->rows, rows[i], starts + at, ends + at,
                     j->o.longest);
    }
    return BY_OK;
}

static void tell(const job *j, const char *question, const char *text, const by_best *best, by_buf *out)
{
    bool none = best->score == -INFINITY || (j->may_have_none && best->none - best->score > j->o.threshold);
    char *answer =
        none ? by_strdup("") : by_sprintf("%.*s", (int)(best->end - best->start), text + best->start);
    out->failed |= !answer;
    if (!j->o.read.json) {
        by_buf_printf(out, "%s\n", none ? "(no answer)" : answer ? answer : "");
    } else {
        by_buf_puts(out, "{\"question\":");
        by_json_quote(out, question);
        by_buf_puts(out, ",\"answer\":");
        by_json_quote(out, answer ? answer : "");
        if (!none)
            by_buf_printf(out, ",\"start\":%u,\"end\":%u,\"score\":%.7g", best->start, best->end,
                          best->score);
        by_buf_puts(out, "}\n");
    }
    by_free(answer);
}

/* Lines are a question, a tab and the text; the pair is what the answer lies in. */
static by_status answer(void *user, const cli_texts *t)
{
    job *j = user;
    static const cli_read_calls calls = {NULL, take};
    by_best *best = by_resize(j->best, (size_t)t->count, sizeof *best);
    if (!best)
        return BY_ERR_MEMORY;
    j->best = best;
    for (int i = 0; i < t->count; i++) {
        best[i] = by_best_none();
        if (!t->seconds[i])
            return by_fail(BY_ERR_ARGUMENT, "line %lld has no tab: a question, a tab, and the text to search",
                           (long long)(t->before + i + 1));
    }
    BY_TRY(cli_read_run(&j->r, t->texts, t->seconds, t->count, &calls, j));
    by_buf out = {0};
    for (int i = 0; i < t->count; i++)
        tell(j, t->texts[i], t->seconds[i], &best[i], &out);
    return cli_put(&out);
}

static int run(int argc, char **argv)
{
    job j = {0};
    cli_args args;
    int code;
    if (!cli_parse(&cli_answer, argc, argv, &j.o, &args, &code))
        return code;
    cli_interrupt_install();
    j.may_have_none = cli_given(&args, &j.o.threshold);
    char *line = args.count > 2 ? by_sprintf("%s\t%s", args.items[1], args.items[2]) : NULL;
    cli_texts texts = {.arguments = &line, .n_arguments = line != NULL, .path = j.o.read.file, .pairs = true};
    by_rows_spec rows = {.offsets = true, .windows = true, .overlap = j.o.overlap};
    by_status s = args.count == 2
                      ? by_fail(BY_ERR_ARGUMENT, "a question needs a text to search: MODEL QUESTION TEXT")
                      : cli_read_open(&j.r, args.items[0], BY_TASK_ANSWER, &rows, &j.o.read);
    code = cli_texts_run(&texts, s, answer, &j);
    cli_read_close(&j.r);
    by_free(line);
    by_free(j.starts);
    by_free(j.ends);
    by_free(j.best);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_answer = {
    .name = "answer",
    .summary = "find the answer to a question in a text",
    .args = "MODEL [QUESTION] [TEXT]",
    .description =
        "Prints the stretch of TEXT that answers QUESTION. Without them, each line of the input is a "
        "question, a "
        "tab, and a text. Long texts are searched window by window. With --null-threshold a text may have no "
        "answer.",
    .examples =
        "banyan answer runs/squad \"Who wrote it?\" \"The book was written by Mary Shelley in 1818.\"\n"
        "banyan answer runs/squad --json < questions.tsv > answers.jsonl\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
