/* bench_decode.c - see bench.h: works of the generator, prefill, decode, profile-decode and translate. */
#include "cli/bench.h"

static int64_t sum_tokens(const by_generate_result *r)
{
    int64_t sum = 0;
    for (int i = 0; i < r->count; i++)
        for (int t = r->rows[i].prompt; t < r->rows[i].count; t++)
            sum += r->rows[i].tokens[t];
    return sum;
}

static by_status generator_open(bench *b, const by_generator_spec *spec)
{
    b->generator = by_generator_new(b->model, spec);
    return b->generator ? BY_OK : base_error_status();
}

static by_status prompts_open(bench *b, int capacity)
{
    return generator_open(b, &(by_generator_spec){.batch = b->o.batch, .capacity = capacity});
}

/* ---- prefill, decode ------------------------------------------------------------------------- */

/* Only the last token of a prompt needs the head, whose matrix is counted among the parameters. */
by_status bench_prefill_open(bench *b)
{
    double head = 2.0 * by_model_vocab(b->model) * by_model_width(b->model);
    b->flops_per_token = bench_forward_flops(b, b->o.seq) - head * (1 - 1.0 / b->o.seq);
    return prompts_open(b, b->o.seq);
}

by_status bench_prefill_step(bench *b, double *seconds)
{
    double begin = base_seconds();
    for (int r = 0; r < b->o.batch; r++)
        by_generator_rewind(b->generator, r, 0);
    BY_TRY(by_generator_feed(b->generator, b->rows, b->lengths));
    *seconds = base_seconds() - begin;
    return BY_OK;
}

/* The prompt gives the first new token; only the passes for the others are timed. */
by_status bench_decode_open(bench *b)
{
    b->passes = b->o.new_tokens - 1;
    b->tokens_per_step = (int64_t)b->o.batch * b->passes;
    b->flops_per_token = bench_forward_flops(b, b->o.seq + b->passes / 2.0);
    return prompts_open(b, b->o.seq + b->passes);
}

by_status bench_decode_step(bench *b, double *seconds)
{
    by_generate_spec spec = {.max_new_tokens = b->o.new_tokens, .ignore_eos = true, .cancelled = cli_poll};
    by_generate_result r;
    double begin = base_seconds();
    by_status status = by_generate(b->generator, b->rows, b->lengths, &spec, &r);
    *seconds = r.decode_seconds;
    if (status == BY_OK && !isfinite(b->first_token)) {
        b->first_token = begin - b->started + r.prompt_seconds;
        b->token_sum = sum_tokens(&r);
    }
    by_generate_result_free(&r);
    return status;
}

/* A greedy step after the prompt, node by node. */
by_status bench_decode_profile_open(bench *b)
{
    b->tokens_per_step = b->o.batch;
    b->flops_per_token = bench_forward_flops(b, b->o.seq);
    BY_TRY(prompts_open(b, b->o.seq + 1));
    BY_TRY(by_generator_feed(b->generator, b->rows, b->lengths));
    return by_generator_time(b->generator, bench_on_node, b);
}

by_status bench_decode_profile_step(bench *b, double *seconds)
{
    const bool again = by_model_is_recurrent(b->model); /* it cannot go back to the end of the prompt */
    int32_t next[1024], out[1024];
    bool active[1024];
    if (b->o.batch > BY_COUNT(next))
        return base_fail(BY_ERR_ARGUMENT, "at most %d rows can be profiled", BY_COUNT(next));
    for (int r = 0; r < b->o.batch; r++) {
        by_generator_rewind(b->generator, r, again ? 0 : b->o.seq);
        next[r] = b->tokens[r];
        active[r] = true;
    }
    if (again)
        BY_TRY(by_generator_feed(b->generator, b->rows, b->lengths));
    bench_clear_nodes(b);
    BY_TRY(by_generator_greedy(b->generator, next, active, 1, out));
    *seconds = 0;
    bench_sum_nodes(b, seconds);
    return BY_OK;
}

/* ---- translate ------------------------------------------------------------------------------- */

/* Texts of a fixed number of tokens; the time includes the encoder, the beam search and the host. */
by_status bench_translate_open(bench *b)
{
    if (!bench_is_pair(b))
        return base_fail(BY_ERR_ARGUMENT, "%s does not translate", base_a(by_model_class(b->model)).text);
    b->tokens_per_step = (int64_t)b->o.batch * b->o.new_tokens;
    b->passes = b->o.new_tokens;
    b->flops_per_token = NAN;
    return generator_open(b, &(by_generator_spec){.batch = b->o.batch * b->o.beams,
                                                  .beams = b->o.beams,
                                                  .capacity = b->o.new_tokens,
                                                  .source_capacity = b->o.seq});
}

by_status bench_translate_step(bench *b, double *seconds)
{
    by_generate_spec spec = {.max_new_tokens = b->o.new_tokens,
                             .sampling.min_new_tokens = b->o.new_tokens,
                             .beam = {.width = b->o.beams, .length_penalty = 1},
                             .cancelled = cli_poll};
    by_generate_result r;
    double begin = base_seconds();
    by_status status = by_generate(b->generator, b->rows, b->lengths, &spec, &r);
    *seconds = base_seconds() - begin;
    if (status == BY_OK && !b->token_sum)
        b->token_sum = sum_tokens(&r);
    by_generate_result_free(&r);
    return status;
}
