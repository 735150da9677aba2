/* verb_answer.c - banyan answer: the stretch of a text that answers a question. */
#include <stdio.h>

#include "base/json.h"
#include "cli/read.h"
#include "cli/verbs.h"

typedef struct answer_options {
    cli_read_options read;
    int longest, overlap;
    double threshold;
} answer_options;

static const cli_option options[] = {
    {CLI_AT(answer_options, longest), .name = "max-answer", CLI_RANGE(1, 10000), .preset = "30",
     .help = "maximum tokens of an answer", .group = "Answers"},
    {CLI_AT(answer_options, overlap), .name = "stride", CLI_RANGE(0, 1e6), .preset = "128",
     .help = "tokens that consecutive windows of a long text share"},
    {CLI_AT(answer_options, threshold), .name = "null-threshold", .preset = "0",
     .help = "report no answer if \"no answer\" scores higher than the best span by more than this"},
    CLI_READ_ROWS(answer_options),
};

typedef struct job {
    answer_options o;
    cli_reading r;
    by_answer_spec spec;
    by_answer_found *found; /* for the present questions */
} job;

static void put(const job *j, const char *question, const char *text, const by_answer_found *a, base_buf *out)
{
    const char *answer = a->found ? text + a->at.start : "";
    const size_t size = a->found ? a->at.end - a->at.start : 0;
    if (!j->o.read.json) {
        base_buf_printf(out, "%.*s\n", a->found ? (int)size : 11, a->found ? answer : "(no answer)");
        return;
    }
    base_buf_puts(out, "{\"question\":");
    base_json_quote(out, question);
    base_buf_puts(out, ",\"answer\":");
    base_json_quote_bytes(out, answer, size);
    if (a->found) {
        base_buf_printf(out, ",\"start\":%u,\"end\":%u,\"score\":", a->at.start, a->at.end);
        base_json_put_number(out, a->score, 7);
    }
    base_buf_puts(out, "}\n");
}

/* Each line is a question, a tab and the text to search. */
static by_status answer(void *user, const cli_texts *t)
{
    job *j = user;
    by_answer_found *found = base_resize(j->found, (size_t)t->count, sizeof *found);
    if (!found)
        return BY_ERR_MEMORY;
    j->found = found;
    for (int i = 0; i < t->count; i++)
        if (!t->seconds[i])
            return base_fail(BY_ERR_ARGUMENT,
                             "line %lld has no tab; a line holds a question, a tab, and the text to search",
                             (long long)(t->before + i + 1));
    BY_TRY(by_predictor_answer(j->r.predictor, (const char *const *)t->texts, (const char *const *)t->seconds,
                               t->count, &j->spec, found));
    base_buf out = {0};
    for (int i = 0; i < t->count; i++)
        put(j, t->texts[i], t->seconds[i], &found[i], &out);
    return cli_put(&out);
}

static int run(int argc, char **argv)
{
    job j = {0};
    cli_args args;
    int code;
    if (!cli_parse(&cli_answer, argc, argv, &j.o, &args, &code) ||
        !cli_one_source(j.o.read.file, &args, &code))
        return code;
    cli_interrupt_install();
    j.spec = (by_answer_spec){.longest = j.o.longest,
                              .overlap = j.o.overlap ? j.o.overlap : -1,
                              .may_have_none = cli_given(&args, &j.o.threshold),
                              .null_threshold = j.o.threshold};
    char *line = args.count > 2 ? base_sprintf("%s\t%s", args.items[1], args.items[2]) : NULL;
    cli_texts texts = {.arguments = &line, .n_arguments = line != NULL, .path = j.o.read.file, .pairs = true};
    by_status s = args.count == 2 ? base_fail(BY_ERR_ARGUMENT, "missing TEXT: give MODEL QUESTION TEXT")
                                  : cli_read_open(&j.r, args.items[0], BY_TASK_ANSWER, &j.o.read);
    code = cli_texts_run(&texts, s, answer, &j);
    cli_read_close(&j.r);
    base_free(line);
    base_free(j.found);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_answer = {
    .name = "answer",
    .summary = "find the answer to a question in a text",
    .args = "MODEL [QUESTION] [TEXT]",
    .description =
        "Prints the span of TEXT that answers QUESTION. Without them, each line of the input holds a "
        "question, a tab, and a text. Long texts are searched in overlapping windows. A model trained with "
        "unanswerable questions may print \"(no answer)\"; --null-threshold moves the bound.",
    .examples =
        "banyan answer runs/squad \"Who wrote it?\" \"The book was written by Mary Shelley in 1818.\"\n"
        "banyan answer runs/squad --json < questions.tsv > answers.jsonl\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
