/* bench_model.c - see bench.h: the model that is measured and the tokens it works on. */
#include "cli/bench.h"

/* A linear congruential generator: bench/peer_torch.py draws the same tokens with it. */
static int32_t draw_token(bench *b)
{
    b->random = b->random * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((b->random >> 33) % (uint64_t)by_model_vocab(b->model));
}

bool bench_is_pair(const bench *b)
{
    return by_model_task(b->model) == BY_TASK_SEQ2SEQ;
}

bool bench_is_picture(const bench *b)
{
    return b->picture.channels > 0;
}

static size_t plane(const bench *b)
{
    return (size_t)b->picture.channels * (size_t)b->picture.height * (size_t)b->picture.width;
}

/* One random number per row of a picture, from which its pixels are a ramp, so that generating data takes
 * little time. */
static void draw_pictures(bench *b)
{
    const size_t width = (size_t)b->picture.width, lines = (size_t)b->o.batch * plane(b) / width;
    for (size_t y = 0; y < lines; y++) {
        b->random = b->random * 6364136223846793005u + 1442695040888963407u;
        const uint32_t start = (uint32_t)(b->random >> 33);
        for (size_t x = 0; x < width; x++)
            b->pixels[y * width + x] = (float)((start + 37 * (uint32_t)x) % 256) / 127.5f - 1;
    }
    for (int r = 0; r < b->o.batch; r++)
        b->targets[r] = r % by_model_labels(b->model);
}

/* Encoder-decoders: sources, then targets. */
static by_status draw_pairs(bench *b)
{
    for (int i = 0; i < b->o.batch * b->o.seq; i++)
        b->source[i] = draw_token(b);
    for (int i = 0; i < b->o.batch * b->o.target; i++)
        b->targets[i] = draw_token(b);
    return by_model_shift(b->model, b->targets, b->o.batch, b->o.target, b->tokens);
}

/* New rows of T + 1 tokens: all but the last are the input, all but the first are the targets. */
by_status bench_draw(bench *b)
{
    if (bench_is_pair(b))
        return draw_pairs(b);
    if (bench_is_picture(b)) {
        draw_pictures(b);
        return BY_OK;
    }
    for (int r = 0; r < b->o.batch; r++) {
        int32_t next = draw_token(b);
        for (int t = 0; t < b->o.seq; t++) {
            size_t at = (size_t)r * (size_t)b->o.seq + (size_t)t;
            b->tokens[at] = next;
            b->targets[at] = next = draw_token(b);
        }
    }
    return BY_OK;
}

/* Three of twenty tokens are targets, at the same positions as in bench/peer_encoder.py. Their values do not
 * affect the time, so they are not replaced by masks. */
static bool is_hidden(int64_t i)
{
    return i * 3 % 20 < 3;
}

by_status bench_hide(bench *b)
{
    int64_t cells = (int64_t)b->o.batch * b->o.seq;
    b->pick = base_alloc_zero((size_t)cells, sizeof *b->pick);
    if (!b->pick)
        return BY_ERR_MEMORY;
    for (int64_t i = 0; i < cells; i++)
        if (is_hidden(i))
            b->pick[b->picks++] = (int32_t)i;
    return BY_OK;
}

bool bench_takes(const bench *b, const char *input)
{
    for (int i = 0; by_model_input(b->model, i); i++)
        if (strcmp(by_model_input(b->model, i)->name, input) == 0)
            return true;
    return false;
}

/* XLNet: the hidden tokens are predicted in a random order, after the others; a row has two segments. */
by_status bench_order(bench *b)
{
    const size_t cells = (size_t)b->o.batch * (size_t)b->o.seq;
    b->order = base_alloc_zero(cells, sizeof *b->order);
    b->segments = base_alloc_zero(cells, sizeof *b->segments);
    if (!b->order || !b->segments)
        return BY_ERR_MEMORY;
    for (size_t i = 0; i < cells; i++) {
        const uint32_t place = (uint32_t)(i % (size_t)b->o.seq);
        b->order[i] = is_hidden((int64_t)i) ? 1 + (int32_t)(place * 2654435761u >> 8) : 0;
        b->segments[i] = (int)place >= b->o.seq / 2;
    }
    return bench_hide(b);
}

/* FLOP of a token going forward: two per parameter, and for its queries, against the keys of `seen`
 * positions, two products. */
double bench_forward_flops(const bench *b, double seen)
{
    double n = (double)by_params_elements(by_model_params(b->model));
    double idle = b->pick ? 0.85 * by_model_vocab(b->model) * by_model_width(b->model) : 0;
    return 2 * (n - idle) + 4.0 * by_model_layers(b->model) * by_model_width(b->model) * seen;
}

static by_batch picture_batch(const bench *b)
{
    by_batch batch =
        by_batch_of_pictures(b->model, b->o.batch, b->picture.height, b->picture.width, b->pixels);
    by_batch_put_ids(&batch, "targets", b->o.batch, b->targets);
    return batch;
}

by_batch bench_batch(const bench *b)
{
    if (bench_is_picture(b))
        return picture_batch(b);
    by_batch batch = by_batch_of(b->o.batch, bench_is_pair(b) ? b->o.target : b->o.seq, b->tokens);
    if (b->source)
        by_batch_put_source(&batch, b->o.seq, b->source, b->mask);
    else
        by_batch_put_tokens(&batch, "mask", b->mask);
    by_batch_put_ids(&batch, "pick", b->picks, b->pick);
    by_batch_put_tokens(&batch, "order", b->order);
    by_batch_put_tokens(&batch, "segments", b->segments);
    by_batch_put_ids(&batch, "targets", by_batch_targets(b->model, &batch), b->targets);
    return batch;
}

static by_model *make_model(const bench *b)
{
    const bench_options *o = &b->o;
    by_model_spec spec = {.dtype = o->dtype,
                          .training = b->work->training,
                          .stochastic_rounding = o->gr_stochastic,
                          .weights = b->work->training ? BY_F32 : cli_weights(o->weights),
                          .seed = 1337};
    const bool pair = by_family_task(o->model) == BY_TASK_SEQ2SEQ;
    const bool pictures = by_family_task(o->model) == BY_TASK_CLASSIFY;
    const bool encoder = by_family_task(o->model) > BY_TASK_LM && !pair && !pictures;
    if (pictures)
        spec.labels = 1000; /* as ImageNet's */
    if (encoder)
        spec.task = b->work->training ? BY_TASK_MLM : BY_TASK_FEATURES;
    if (o->model_dir) {
        char *dir = cli_model_dir(o->model_dir);
        by_model *model = dir ? by_model_open(b->device, dir, &spec) : NULL;
        base_free(dir);
        return model;
    }
    const char *usual = encoder || pair || pictures ? "base" : "124m";
    const by_model_shape shape = {.preset = o->preset ? o->preset : usual,
                                  .layers = o->layers,
                                  .heads = o->heads,
                                  .width = o->width,
                                  .context = o->context,
                                  .vocab = o->vocab};
    return by_model_new(b->device, o->model, &shape, &spec);
}

by_status bench_open_model(bench *b)
{
    const bench_options *o = &b->o;
    b->model = make_model(b);
    if (!b->model)
        return base_error_status();
    if (by_model_task(b->model) == BY_TASK_CLASSIFY && by_model_pictures(b->model, &b->picture))
        b->o.seq = by_pictures_positions(&b->picture, b->picture.height, b->picture.width);
    if (by_model_task(b->model) != BY_TASK_LM && !b->work->any_task)
        return base_fail(BY_ERR_ARGUMENT, "bench decode needs a language model, not %s",
                         base_a(by_model_class(b->model)).text);
    by_model_set_dropout(b->model, 0);
    if (bench_is_pair(b) && !o->model_dir) { /* as Marian's models have them */
        by_model_set_pad(b->model, by_model_vocab(b->model) - 1);
        by_model_set_start(b->model, by_model_pad(b->model));
        by_model_set_eos(b->model, 0);
    }
    return o->save ? by_model_save(b->model, o->save, o->dtype == BY_F64 ? BY_F32 : o->dtype) : BY_OK;
}

/* Rows of different lengths, evenly spread, so that the given share of all tokens is padding. */
static by_status pad_rows(bench *b)
{
    const bench_options *o = &b->o;
    b->mask = base_alloc_zero((size_t)o->batch * (size_t)o->seq, sizeof *b->mask);
    if (!b->mask)
        return BY_ERR_MEMORY;
    for (int r = 0; r < o->batch; r++) {
        const double share = 2 * o->padding * (r + 0.5) / o->batch;
        const int kept = BY_MAX(1, (int)(o->seq * (1 - share) + 0.5));
        for (int t = 0; t < kept; t++)
            b->mask[(size_t)r * (size_t)o->seq + (size_t)t] = 1;
    }
    return BY_OK;
}

by_status bench_open_rows(bench *b)
{
    const bench_options *o = &b->o;
    const bool pair = bench_is_pair(b);
    const size_t cells = (size_t)o->batch * (size_t)BY_MAX(o->seq, o->target), rows = (size_t)o->batch;
    if (cells > INT32_MAX)
        return base_fail(BY_ERR_ARGUMENT, "a batch of %d rows of %d tokens is too large", o->batch,
                         BY_MAX(o->seq, o->target));
    b->tokens = base_alloc_zero(cells, sizeof *b->tokens);
    b->targets = base_alloc_zero(cells, sizeof *b->targets);
    b->pixels = bench_is_picture(b) ? base_alloc_zero(rows * plane(b), sizeof *b->pixels) : NULL;
    b->source = pair ? base_alloc_zero(cells, sizeof *b->source) : NULL;
    b->seconds = base_alloc_zero((size_t)o->steps, sizeof *b->seconds);
    b->rows = base_alloc_zero(rows, sizeof *b->rows);
    b->lengths = base_alloc_zero(rows, sizeof *b->lengths);
    if (!b->tokens || !b->targets || !b->seconds || !b->rows || !b->lengths || (pair && !b->source) ||
        (bench_is_picture(b) && !b->pixels))
        return BY_ERR_MEMORY;
    for (size_t r = 0; r < rows; r++) {
        b->rows[r] = (pair ? b->source : b->tokens) + r * (size_t)o->seq;
        b->lengths[r] = o->seq;
    }
    return o->padding > 0 ? pad_rows(b) : BY_OK;
}

void bench_release(bench *b)
{
    by_trainer_free(b->trainer);
    by_program_free(b->program);
    by_generator_free(b->generator);
    by_model_free(b->model);
    by_device_free(b->device);
    base_free(b->tokens);
    base_free(b->targets);
    base_free(b->source);
    base_free(b->pixels);
    base_free(b->mask);
    base_free(b->pick);
    base_free(b->order);
    base_free(b->segments);
    base_free(b->rows);
    base_free(b->lengths);
    base_free(b->seconds);
}
