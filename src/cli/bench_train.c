/* bench_train.c - see bench.h: works on whole sequences, train, gemm, profile and forward. */
#include "cli/bench.h"

/* ---- train, gemm, profile -------------------------------------------------------------------- */

/* The halves see different numbers of tokens: FLOP are counted in the compiled step. */
static by_status count_pairs(bench *b)
{
    const by_batch batch = bench_batch(b);
    b->tokens_per_step = (int64_t)b->o.batch * (b->o.seq + b->o.target);
    if (!by_trainer_program(b->trainer, &batch))
        return base_error_status();
    b->flops_per_token = by_trainer_flops(b->trainer) / (double)b->tokens_per_step;
    return BY_OK;
}

by_status bench_train_open(bench *b)
{
    if (by_model_task(b->model) == BY_TASK_MLM)
        BY_TRY(bench_hide(b));
    else if (bench_takes(b, "order"))
        BY_TRY(bench_order(b));
    const by_optimizer_spec adamw = {.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1, .max_grad_norm = 1};
    b->trainer =
        by_trainer_new(b->model, &(by_trainer_spec){.recompute = b->o.recompute, .optimizer = adamw});
    b->flops_per_token = 3 * bench_forward_flops(b, b->o.seq);
    if (!b->trainer)
        return base_error_status();
    return bench_is_pair(b) ? count_pairs(b) : BY_OK;
}

by_status bench_train_step(bench *b, double *seconds)
{
    const by_batch batch = bench_batch(b);
    double norm, begin = base_seconds();
    BY_TRY(by_trainer_backward(b->trainer, &batch, true, NULL));
    BY_TRY(by_trainer_update(b->trainer, 1e-4, NULL));
    BY_TRY(by_trainer_loss(b->trainer, &b->loss));
    BY_TRY(by_trainer_norm(b->trainer, &norm));
    *seconds = base_seconds() - begin;
    return BY_OK;
}

by_status bench_gemm_open(bench *b)
{
    b->only_products = true;
    BY_TRY(bench_train_open(b));
    const by_batch batch = bench_batch(b);
    by_program *p = by_trainer_program(b->trainer, &batch);
    if (!p)
        return base_error_status();
    by_program_time(p, bench_on_node, b);
    return BY_OK;
}

by_status bench_profile_open(bench *b)
{
    BY_TRY(bench_train_open(b));
    const by_batch batch = bench_batch(b);
    return by_trainer_time(b->trainer, &batch, bench_on_node, b);
}

/* The nodes of a training step, or the matrix products among them, each timed inside the step. */
by_status bench_traced_step(bench *b, double *seconds)
{
    const by_batch batch = bench_batch(b);
    bench_clear_nodes(b);
    BY_TRY(by_trainer_backward(b->trainer, &batch, true, &b->loss));
    if (!b->only_products)
        BY_TRY(by_trainer_update(b->trainer, 1e-4, NULL));
    *seconds = 0;
    b->flops_per_token = bench_sum_nodes(b, seconds) / (double)b->tokens_per_step;
    return BY_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

by_status bench_forward_open(bench *b)
{
    by_graph *g = by_graph_new(&(by_graph_spec){.params = by_model_params(b->model)});
    if (!g)
        return BY_ERR_MEMORY;
    const by_pictures *p = &b->picture;
    by_model_io io = {0};
    if (bench_is_picture(b))
        b->input =
            by_input(g, "pixel_values", BY_F32, 4, (int64_t[]){b->o.batch, p->channels, p->height, p->width});
    else
        b->input = by_input(g, "tokens", BY_I32, 2, (int64_t[]){b->o.batch, b->o.seq});
    by_io_feed(&io, bench_is_picture(b) ? "pixel_values" : "tokens", b->input);
    by_model_build(b->model, g, &io);
    by_tensor *logits = by_io_output(&io, "logits");
    by_output(g, "result", logits ? logits : by_io_output(&io, "features"));
    b->program = by_compile(g, &(by_compile_spec){0});
    b->flops_per_token = bench_forward_flops(b, b->o.seq);
    return b->program ? BY_OK : base_error_status();
}

by_status bench_forward_step(bench *b, double *seconds)
{
    double begin = base_seconds();
    BY_TRY(by_write(b->program, b->input, bench_is_picture(b) ? (const void *)b->pixels : b->tokens,
                    (size_t)by_elements(b->input) * 4));
    BY_TRY(by_run(b->program));
    BY_TRY(by_device_wait(b->device));
    *seconds = base_seconds() - begin;
    return BY_OK;
}
