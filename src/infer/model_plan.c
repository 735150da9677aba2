/* model_plan.c - memory and FLOP of a model, computed by compiling its programs (see banyan/inspect.h). */
#include "banyan/adapter.h"
#include "banyan/inspect.h"
#include "banyan/pass.h"
#include "graph/graph.h"
#include "nn/cache.h"

bool by_model_plans(const by_model *m, by_plan_mode mode)
{
    const by_task task = by_model_task(m);
    if (mode == BY_PLAN_DECODE)
        return (task == BY_TASK_LM && by_model_has_cache(m)) || task == BY_TASK_SEQ2SEQ;
    return mode == BY_PLAN_FORWARD || (task != BY_TASK_FEATURES && task != BY_TASK_ENCODER);
}

/* The loss with targets of the shape of the task. */
static by_tensor *loss_of(const by_model *m, const by_plan_spec *s, by_graph *g, by_model_io *io)
{
    const by_task task = by_model_task(m);
    const int64_t shape[2] = {s->batch, s->seq};
    const by_batch b = by_batch_of(s->batch, s->seq, NULL);
    const int64_t n = by_batch_targets(m, &b);
    const bool tokens = n == shape[0] * shape[1] && task != BY_TASK_CLASSIFY;
    const bool numbers = task == BY_TASK_CLASSIFY && by_model_problem(m) == BY_PROBLEM_REGRESSION;
    const bool two = task == BY_TASK_ANSWER || task == BY_TASK_PRETRAIN;
    by_tensor *targets =
        by_input(g, "targets", numbers ? BY_F32 : BY_I32, tokens ? 2 : 1, tokens ? shape : &n);
    by_tensor *second = two ? by_input(g, "second targets", BY_I32, 1, shape) : NULL;
    by_io_feed(io, "second_targets", second);
    return by_model_loss(m, g, io, targets, second);
}

/* A source as long as the text; in decoding, its keys and values are in the cache. */
static void add_source(const by_plan_spec *s, by_graph *g, by_model_io *io)
{
    const int64_t shape[2] = {s->batch, s->seq};
    if (!io->cache) {
        by_io_feed(io, "source", by_input(g, "source", BY_I32, 2, shape));
        return;
    }
    io->part = BY_PART_DECODER;
    io->cache->store->sources = s->batch;
    io->cache->store->source_room = io->cache->source_length = s->seq;
    io->cache->source_mask = by_input(g, "source mask", BY_I32, 2, shape);
}

/* In decoding, the encoder has already read the input picture. */
static void add_low(const by_model *m, const by_plan_spec *s, by_model_io *io)
{
    by_canvas c;
    if (!io->cache || !by_model_canvas(m, &c) || !c.upscale)
        return;
    const int tokens = c.height * c.width * c.channels; /* tokens per position */
    io->part = BY_PART_DECODER;
    io->cache->store->sources = s->batch;
    io->cache->store->source_room = io->cache->source_length = by_canvas_low(&c) / (tokens / c.positions);
}

static by_program *compile(const by_model *m, const by_plan_spec *s, by_graph *g, by_cache *cache)
{
    const bool training = s->mode == BY_PLAN_TRAIN, decoding = s->mode == BY_PLAN_DECODE;
    const int64_t shape[2] = {s->batch, decoding ? 1 : s->seq};
    by_model_io io = {.cache = decoding ? cache : NULL};
    by_pictures p;
    if (by_model_pictures(m, &p) && !decoding)
        by_io_feed(
            &io, "pixel_values",
            by_input(g, "pixel_values", BY_F32, 4, (int64_t[]){s->batch, p.channels, p.height, p.width}));
    if (by_model_vocab(m) > 0)
        by_io_feed(&io, "tokens", by_input(g, "tokens", BY_I32, 2, shape));
    if ((by_model_task(m) == BY_TASK_CLASSIFY && by_model_vocab(m) > 0) || decoding)
        by_io_feed(&io, "pick", by_input(g, "pick", BY_I32, 1, shape));
    if (decoding) {
        by_io_feed(&io, "positions", by_input(g, "positions", BY_I32, 2, shape));
        cache->past = by_input(g, "past", BY_I32, 1, shape);
        cache->store->rows = s->batch;
    }
    if (decoding && by_model_is_recurrent(m)) {
        cache->reads = by_input(g, "reads", BY_I32, 1, shape);
        cache->valid = by_input(g, "valid", BY_I32, 2, shape);
    }
    if (by_model_is_pair(m) && by_model_task(m) != BY_TASK_ENCODER)
        add_source(s, g, &io);
    add_low(m, s, &io);
    by_model_build(m, g, &io);
    by_tensor *loss = training ? loss_of(m, s, g, &io) : NULL;
    const char *result = by_model_plans(m, BY_PLAN_TRAIN) ? "logits" : "features";
    if (!training)
        by_output(g, result, by_io_output(&io, result));
    if (!training && by_io_output(&io, "second"))
        by_output(g, "second logits", by_io_output(&io, "second"));
    return by_compile(g, &(by_compile_spec){.loss = loss,
                                            .grads = training ? BY_GRAD_STORE : BY_GRAD_NONE,
                                            .recompute = s->recompute && training});
}

static by_status measure(const by_model *m, const by_plan_spec *s, const by_program *p, by_plan *out)
{
    const by_params *body = by_model_params(m), *params = by_model_trained(m);
    const by_adapter *a = by_model_adapter(m);
    out->weights = by_params_value_bytes(body) + by_params_value_bytes(by_adapter_params(a));
    out->activations = by_program_bytes(p);
    out->flops = by_program_flops(p) / s->batch / (s->mode == BY_PLAN_DECODE ? 1 : s->seq);
    if (s->mode == BY_PLAN_TRAIN) {
        out->gradients = (size_t)by_params_trained(params) * by_dtype_size(gr_acc_type(s->dtype));
        out->optimizer = by_params_bytes(params) - by_params_value_bytes(params) - out->gradients;
    }
    if (s->text)
        out->text = by_program_text(p, s->text == BY_PLAN_DOT);
    return s->text && !out->text ? base_error_status() : BY_OK;
}

by_status by_model_plan(const by_model *m, const by_plan_spec *s, by_plan *out)
{
    if (!m || !s || !out)
        return base_fail_missing(m ? "by_plan_spec or by_plan" : "model");
    *out = (by_plan){0};
    if (s->batch < 1 || s->seq < 1)
        return base_fail(BY_ERR_ARGUMENT, "invalid plan: %d rows of %d tokens", s->batch, s->seq);
    if (!by_model_plans(m, s->mode))
        return base_fail(BY_ERR_ARGUMENT, "%s %s", base_a(by_model_class(m)).text,
                         s->mode == BY_PLAN_DECODE ? "does not decode" : "has no trainable head");
    by_graph *g =
        by_graph_new(&(by_graph_spec){.params = by_model_params(m), .training = s->mode == BY_PLAN_TRAIN});
    nn_store *keys = g ? nn_store_new(by_model_device(m), s->batch, s->seq) : NULL;
    if (!keys) {
        by_graph_free(g);
        return BY_ERR_MEMORY;
    }
    by_program *p = compile(m, s, g, &(by_cache){.store = keys});
    by_status status = p ? measure(m, s, p, out) : base_error_status();
    out->cache = nn_store_bytes(keys);
    by_program_free(p);
    nn_store_free(keys);
    return status;
}
