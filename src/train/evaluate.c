/* evaluate.c - evaluation of a model directory on a file of examples (banyan/finetune.h). */
#include "train/task_batches.h"

static by_status evaluate(by_model *m, const by_tokenizer *t, const char *path, const by_examples_spec *data,
                          const by_row_spec *spec, const char *predictions, by_task_result *out)
{
    data_examples examples;
    train_task w = {0};
    by_status s = train_task_check(m, data);
    if (s != BY_OK)
        return s;
    s = data_examples_open(&examples, path, data);
    if (s == BY_OK)
        s = train_task_number(m, &examples);
    if (s == BY_OK)
        s = train_task_open(&w, &examples, m, t, spec);
    by_passes *passes = s == BY_OK ? by_passes_new(m, &(by_pass_spec){.grads = BY_GRAD_NONE}, 24) : NULL;
    if (s == BY_OK)
        s = passes ? train_task_evaluate(&w, passes, predictions, out) : base_error_status();
    by_passes_free(passes);
    train_task_close(&w);
    data_examples_close(&examples);
    return s;
}

by_status by_task_evaluate(by_device *d, const char *model, by_dtype dtype, const char *path,
                           const by_examples_spec *data, const by_row_spec *spec, const char *predictions,
                           by_task_result *out)
{
    base_error_clear();
    const by_model_spec opening = {.dtype = dtype, .weights = spec->weights, .adapter_folder = spec->adapter};
    by_model *m = by_model_open(d, model, &opening);
    by_tokenizer *t = m ? by_tokenizer_load(model) : NULL;
    by_status s = t ? evaluate(m, t, path, data, spec, predictions, out) : base_error_status();
    by_tokenizer_free(t);
    by_model_free(m);
    return s;
}
