/* task_options.c - see task_options.h. */
#include "cli/task_options.h"

#include "cli/report.h"
#include "cli/show.h"

bool cli_task_fits(by_example_kind kind, const char *task, const cli_args *own)
{
#define BIT(name) (1u << BY_EXAMPLE_##name)
    enum { PICTURES = BIT(IMAGE_CLASSIFY) | BIT(CAPTION), PLAIN = BIT(LM) | BIT(MLM) };
    static const cli_scope scopes[] = {
        {"format", ~PICTURES, "texts"},
        {"label", ~PLAIN, "examples with labels"},
        {"pair", ~(PICTURES | PLAIN | BIT(TAG) | BIT(SEQ2SEQ)), "classify, regress, answer and choice"},
        {"choices", BIT(CHOICE), "choice"},
        {"label-separator", BIT(CLASSIFY), "classify"},
        {"max-answer-length", BIT(ANSWER), "answer"},
        {"null-threshold", BIT(ANSWER), "answer"},
        {"max-length", ~PICTURES, "texts"},
        {"stride", BIT(ANSWER) | BIT(TAG), "answer and tag"},
        {"prefix", BIT(SEQ2SEQ), "seq2seq"},
        {"label-words", BIT(SEQ2SEQ), "seq2seq"},
        {"eval-texts", BIT(SEQ2SEQ), "seq2seq"},
        {"batch-tokens", BIT(SEQ2SEQ), "seq2seq"},
        {"class-weights", BIT(CLASSIFY) | BIT(TAG), "classify and tag"},
        {"label-smoothing", BIT(SEQ2SEQ) | PICTURES, "seq2seq, image-classify and caption"},
        {"classes", BIT(IMAGE_CLASSIFY), "image-classify"},
        {"coarse", BIT(IMAGE_CLASSIFY), "image-classify"},
        {"workers", PICTURES, "pictures"},
        {"image-size", PICTURES, "pictures"}};
#undef BIT
    const cli_scope *row = cli_given_outside(own, scopes, BY_COUNT(scopes), 1u << kind);
    if (row)
        cli_usage_fail("--%s is for %s, not for the task %s", row->option, row->names, task);
    return !row;
}

bool cli_task_read(const cli_task_options *t, const char *task, by_examples_spec *data, by_row_spec *spec)
{
    by_example_kind kind;
    if (!by_example_kind_find(task, &kind)) {
        cli_usage_fail("unknown --task %s; the tasks are classify, regress, tag, answer (or qa), choice, "
                       "seq2seq, image-classify, caption, mlm and lm",
                       task);
        return false;
    }
    *data = (by_examples_spec){.kind = kind,
                               .format = t->format,
                               .text = t->text,
                               .pair = t->pair,
                               .label = t->label,
                               .choices = t->choices,
                               .separator = t->separator,
                               .header = t->header};
    *spec = (by_row_spec){.limit = t->limit,
                          .overlap = t->overlap,
                          .longest_answer = t->longest_answer,
                          .null_threshold = t->null_threshold};
    return true;
}

void cli_task_print(const by_task_result *v)
{
    for (int i = 0; i < v->n_metrics; i++)
        printf("%s %.4f   ", v->metrics[i].name, v->metrics[i].value);
    printf("loss %.4f\n%lld example%s", v->loss, (long long)v->cases, v->cases == 1 ? "" : "s");
    if (v->seconds > 0)
        printf(" in %.1f s, %.0f per second", v->seconds, (double)v->cases / v->seconds);
    printf("\n");
}

void cli_task_json(cJSON *json, const by_task_result *v)
{
    for (int i = 0; i < v->n_metrics; i++)
        cli_json_number(json, v->metrics[i].name, v->metrics[i].value);
    cli_json_number(json, "loss", v->loss);
    cJSON_AddNumberToObject(json, "cases", (double)v->cases);
    cJSON_AddNumberToObject(json, "rows", (double)v->rows);
    cli_json_number(json, "eval_seconds", v->seconds);
}
