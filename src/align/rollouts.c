/* rollouts.c - see rollouts.h. */
#include "align/rollouts.h"

by_status align_rollouts_init(align_rollouts *r, int rows, int group, int sources)
{
    const size_t n = (size_t)rows;
    *r = (align_rollouts){.rows = rows, .group = group, .sources = sources, .capacity_rows = rows};
    r->prompt = base_alloc_zero(n, sizeof *r->prompt);
    r->count = base_alloc_zero(n, sizeof *r->count);
    r->ended = base_alloc_zero(n, sizeof *r->ended);
    r->total = base_alloc_zero(n, sizeof *r->total);
    r->each = base_alloc_zero(n * (size_t)sources, sizeof *r->each);
    r->judged = base_alloc_zero(n, sizeof *r->judged);
    r->answers = base_alloc_zero(n, sizeof *r->answers);
    return r->prompt && r->count && r->ended && r->total && r->each && r->judged && r->answers
               ? BY_OK
               : BY_ERR_MEMORY;
}

static void drop_answers(align_rollouts *r)
{
    for (int i = 0; r->answers && i < r->capacity_rows; i++) {
        by_release(r->answers[i]);
        r->answers[i] = NULL;
    }
}

void align_rollouts_free(align_rollouts *r)
{
    drop_answers(r);
    void *const all[] = {r->prompt, r->count,   r->ended,  r->total,   r->each,
                         r->judged, r->answers, r->tokens, r->targets, r->mask};
    for (int i = 0; i < BY_COUNT(all); i++)
        base_free(all[i]);
    *r = (align_rollouts){0};
}

/* ---- rows --------------------------------------------------------------------------------------- */

/* Rounds widths up, so that few passes are compiled. */
static int round_up(int n, int context)
{
    enum { STEP = 16 };
    return BY_MAX(BY_MIN((n + STEP - 1) / STEP * STEP, context), n);
}

static by_status make_rows(align_rollouts *r, int width)
{
    const size_t n = (size_t)r->rows * (size_t)width;
    r->width = width;
    if (n <= r->capacity)
        return BY_OK;
    int32_t *tokens = base_resize(r->tokens, n, sizeof *tokens);
    r->tokens = tokens ? tokens : r->tokens;
    int32_t *targets = base_resize(r->targets, n, sizeof *targets);
    r->targets = targets ? targets : r->targets;
    float *mask = base_resize(r->mask, n, sizeof *mask);
    r->mask = mask ? mask : r->mask;
    if (!tokens || !targets || !mask)
        return BY_ERR_MEMORY;
    r->capacity = n;
    return BY_OK;
}

/* The end token belongs to the answer, because the policy has chosen it. */
static void measure_row(align_rollouts *r, int row, const by_generation *text, int eos)
{
    r->prompt[row] = text->prompt;
    r->ended[row] = text->finish == BY_FINISH_STOP || text->finish == BY_FINISH_STRING;
    r->count[row] = text->count - text->prompt + (text->finish == BY_FINISH_STOP && eos >= 0);
    r->longest = BY_MAX(r->longest, r->count[row]);
    r->new_tokens += r->count[row];
}

static void fill_row(align_rollouts *r, int row, const by_generation *text, int eos, int pad, bool learned)
{
    int32_t *tokens = r->tokens + (ptrdiff_t)row * r->width,
            *targets = r->targets + (ptrdiff_t)row * r->width;
    float *mask = r->mask + (ptrdiff_t)row * r->width;
    const int all = text->prompt + r->count[row];
    for (int t = 0; t < r->width; t++)
        tokens[t] = t < text->count ? text->tokens[t] : t < all ? eos : pad;
    for (int t = 0; t < r->width; t++) {
        const bool there = learned && t + 1 >= text->prompt && t + 1 < all;
        targets[t] = there ? tokens[t + 1] : -100;
        mask[t] = there;
    }
}

static by_status arrange(align_rollouts *r, const by_generate_result *made, const align_sampling *how)
{
    const int eos = by_model_eos(how->model), pad = BY_MAX(by_model_pad(how->model), 0);
    int width = 1;
    r->longest = 0;
    r->new_tokens = 0;
    for (int i = 0; i < r->rows; i++) {
        measure_row(r, i, &made->rows[i], eos);
        width = BY_MAX(width, r->prompt[i] + r->count[i]);
    }
    BY_TRY(make_rows(r, round_up(width, by_model_context(how->model))));
    for (int i = 0; i < r->rows; i++)
        fill_row(r, i, &made->rows[i], eos, pad, r->ended[i] || !how->run->mask_truncated);
    return BY_OK;
}

/* ---- texts -------------------------------------------------------------------------------------- */

/* Removes the stop string that ended an answer. */
static void cut_stop(char *text, const by_policy_run *run)
{
    const size_t n = strlen(text);
    for (int i = 0; i < run->stop_count; i++) {
        const size_t m = strlen(run->stops[i]);
        char *at = m <= n ? strstr(text, run->stops[i]) : NULL;
        for (char *next = at; next && (next = strstr(next + 1, run->stops[i]));)
            at = next;
        if (at) {
            *at = '\0';
            return;
        }
    }
}

static by_status write_answers(align_rollouts *r, const by_generate_result *made,
                               const align_prompt *const *prompts, const align_sampling *how)
{
    drop_answers(r);
    for (int i = 0; i < r->rows; i++) {
        const by_generation *text = &made->rows[i];
        const align_prompt *p = prompts[i / r->group];
        r->answers[i] = by_decode(how->tokenizer, text->tokens + text->prompt,
                                  (size_t)(text->count - text->prompt), NULL);
        if (!r->answers[i])
            return base_error_status();
        if (text->finish == BY_FINISH_STRING)
            cut_stop(r->answers[i], how->run);
        r->judged[i] = (by_judged){
            .prompt = p->text, .answer = r->answers[i], .expected = p->expected, .messages = p->messages};
    }
    return BY_OK;
}

/* ---- sampling ------------------------------------------------------------------------------------- */

static by_generate_spec spec_of(const align_sampling *how)
{
    const by_policy_run *run = how->run;
    return (by_generate_spec){.sampling = {.temperature = how->greedy ? 0 : run->temperature,
                                           .top_k = run->top_k,
                                           .top_p = run->top_p,
                                           .seed = how->seed},
                              .max_new_tokens = how->max_new_tokens,
                              .stop_strings = run->stops,
                              .stop_string_count = run->stop_count,
                              .tokenizer = how->tokenizer,
                              .no_logprobs = true,
                              .cancelled = how->cancelled,
                              .user = how->user};
}

by_status align_rollouts_sample(align_rollouts *r, by_generator *g, const align_prompt *const *prompts,
                                const align_sampling *how)
{
    const by_generate_spec spec = spec_of(how);
    const size_t all = (size_t)by_generator_batch(g);
    const int32_t **starts = base_alloc_zero(all, sizeof *starts);
    int *lengths = base_alloc_zero(all, sizeof *lengths);
    by_generate_result made = {0};
    const double begin = base_seconds();
    by_status s = starts && lengths ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; s == BY_OK && i < r->rows; i++) {
        starts[i] = prompts[i / r->group]->tokens;
        lengths[i] = prompts[i / r->group]->count;
    }
    if (s == BY_OK)
        s = by_generate(g, starts, lengths, &spec, &made);
    r->seconds = base_seconds() - begin;
    if (s == BY_OK)
        s = arrange(r, &made, how);
    if (s == BY_OK)
        s = write_answers(r, &made, prompts, how);
    by_generate_result_free(&made);
    base_free(starts);
    base_free(lengths);
    return s;
}
