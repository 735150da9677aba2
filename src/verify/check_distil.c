/* check_distil.c - a student that learns from a teacher (see check_align.h). */
#include "verify/check_align.h"

/* Outputs of a model without a loss. */
static by_status compare_outputs(verify_align *a, const char *whose, by_model *m, const by_batch *b)
{
    by_batch plain = *b;
    by_batch_put(&plain, "targets", BY_I32, 0, NULL, NULL);
    by_batch_put(&plain, "soft_mask", BY_I32, 0, NULL, NULL);
    by_pass *p = by_pass_new(m, &plain, &(by_pass_spec){.grads = BY_GRAD_NONE, .hidden = true});
    by_status s = p ? by_pass_run(p, &plain) : base_error_status();
    if (s == BY_OK)
        s = verify_align_values(a, whose, "logits", verify_align_output(a, p, "logits"));
    const int last = p ? by_io_output_count(by_pass_io(p), "hidden") - 1 : -1;
    const by_tensor *h = last >= 0 ? by_io_output_at(by_pass_io(p), "hidden", last) : NULL;
    float *v = h ? verify_align_room(a, (size_t)by_elements(h), sizeof *v) : NULL;
    if (s == BY_OK)
        s = v ? by_pass_read(p, h, v) : base_error_status();
    if (s == BY_OK)
        s = verify_align_values(a, whose, "hidden", v);
    by_pass_free(p);
    return s;
}

static by_status check_variant(verify_align *a, const char *variant, const by_batch *b)
{
    static const struct {
        const char *recorded, *name;
    } terms[] = {{"loss_ce", "soft_loss"}, {"loss_mlm", "task_loss"}, {"loss_cos", "cosine_loss"}};
    const by_distill_spec spec = {.teacher = a->other,
                                  .student = a->model,
                                  .temperature = verify_align_number(a, "", "temperature", 0),
                                  .soft = verify_align_number(a, "", "alpha_ce", 0),
                                  .task = verify_align_number(a, "", "alpha_mlm", 0),
                                  .cosine = verify_align_number(a, "", "alpha_cos", 0)};
    by_pass *p = verify_align_pass(a, a->model, b, by_distill_loss, &spec, true);
    double loss = 0;
    by_status s = p ? verify_align_loss(a, p, &loss) : base_error_status();
    if (s == BY_OK)
        s = verify_align_number_is(a, variant, "loss", loss);
    for (int i = 0; i < BY_COUNT(terms) && s == BY_OK; i++)
        s = verify_align_values(a, variant, terms[i].recorded, verify_align_output(a, p, terms[i].name));
    if (s == BY_OK)
        s = verify_align_grads(a, variant, "", a->model);
    by_pass_free(p);
    return s;
}

by_status verify_distil(verify_align *a)
{
    int rows, cols;
    const int32_t *tokens = verify_align_ids(a, "input_ids", &rows, &cols);
    const int32_t *mask = verify_align_ids(a, "attention_mask", NULL, NULL);
    const int32_t *labels = verify_align_ids(a, "labels", NULL, NULL);
    int32_t *masked = tokens ? verify_align_room(a, (size_t)rows * (size_t)cols, sizeof *masked) : NULL;
    if (!mask || !labels || !masked)
        return base_error_status();
    for (int i = 0; i < rows * cols; i++)
        masked[i] = labels[i] != -100;
    by_batch b = by_batch_of(rows, cols, tokens);
    by_batch_put_tokens(&b, "mask", mask);
    by_batch_put_tokens(&b, "targets", labels);
    BY_TRY(compare_outputs(a, "output", a->model, &b));
    BY_TRY(compare_outputs(a, "teacher", a->other, &b));
    BY_TRY(check_variant(a, "all", &b));
    by_batch_put_tokens(&b, "soft_mask", masked);
    return check_variant(a, "masked_only", &b);
}
