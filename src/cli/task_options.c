/* task_options.c - see task_options.h. */
#include "cli/task_options.h"

#include "cli/report.h"
#include "cli/show.h"

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
    printf("loss %.4f\n%lld examples in %.1f s, %.0f per second\n", v->loss, (long long)v->cases, v->seconds,
           (double)v->cases / v->seconds);
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
