/* generate_cache.c - a continuous cache (Grave et al. 2016) for each row of a generator. The states of all
 * rows are in one table on the device, a ring of `size` entries per row. One program computes the mixture for
 * one row. */
#include "infer/continuous_cache.h"
#include "infer/generator.h"

struct gen_recall {
    by_generator *generator;
    by_continuous_cache spec;
    int32_t eos;
    int width;
    by_memory *table; /* (rows size, C) f32 */
    by_params *params;
    by_program *program; /* NULL until the width of a state is known */
    by_tensor *state_in, *logits_in, *places_in, *next_in, *seen_in, *share_in, *out;
    int64_t *count;         /* (rows) pairs so far */
    int *skip;              /* (rows) coming tokens that are already in the cache */
    bool *begun;            /* (rows) there is a state */
    float *states;          /* (rows, C) the state of the last token, whose successor is not known yet */
    int32_t *next;          /* (rows, size) tokens */
    int32_t *places, *seen; /* (size) */
    float *log_probs;       /* (V) */
};

static by_status compile(gen_recall *r)
{
    const int64_t size = r->spec.size, rows = by_generator_batch(r->generator), vocab = r->generator->vocab;
    const int64_t table[] = {rows * size, r->width}, row[] = {1, size}, one[] = {1, 1};
    by_device *device = by_model_device(r->generator->model);
    r->table = by_memory_new(device, (size_t)(rows * size) * (size_t)r->width * sizeof(float));
    r->params = r->table ? by_params_new(device, BY_F32) : NULL;
    BY_TRY(r->params ? by_params_freeze(r->params, false) : base_error_status());
    by_graph *g = by_graph_new(&(by_graph_spec){.params = r->params});
    r->state_in = by_input(g, "state", BY_F32, 2, (int64_t[]){1, r->width});
    r->logits_in = by_input(g, "logits", BY_F32, 2, (int64_t[]){1, vocab});
    r->places_in = by_input(g, "places", BY_I32, 1, &size);
    r->next_in = by_input(g, "next", BY_I32, 1, &size);
    r->seen_in = by_input(g, "seen", BY_I32, 2, row);
    r->share_in = by_input(g, "share", BY_F32, 2, one);
    by_tensor *states = by_state(g, "states", BY_F32, 2, table, r->table);
    by_tensor *mixed = gen_cache_mix(g, &(gen_cache_mixture){.states = r->state_in,
                                                             .logits = r->logits_in,
                                                             .keys = by_gather(g, states, r->places_in),
                                                             .next = r->next_in,
                                                             .seen = r->seen_in,
                                                             .share = r->share_in,
                                                             .theta = r->spec.theta});
    r->out = by_output(g, "log-probabilities", mixed);
    r->program = by_compile(g, &(by_compile_spec){0});
    return r->program ? BY_OK : base_error_status();
}

static by_status open_states(gen_recall *r, int width)
{
    r->width = width;
    r->states = base_alloc_zero((size_t)by_generator_batch(r->generator) * (size_t)width, sizeof *r->states);
    return r->states ? compile(r) : BY_ERR_MEMORY;
}

/* Adds the pair of the previous state and this token. */
static by_status remember(gen_recall *r, int row, int32_t token)
{
    const size_t size = (size_t)r->spec.size, bytes = (size_t)r->width * sizeof(float);
    const size_t place = (size_t)row * size + (size_t)r->count[row] % size;
    r->next[place] = token;
    r->count[row]++;
    return by_memory_write(r->table, place * bytes, r->states + (ptrdiff_t)row * r->width, bytes);
}

/* Callback of the generator with the states (count, C) of tokens fed to a row. */
static by_status on_fed(void *user, int row, const int32_t *tokens, int count, const float *states, int width)
{
    gen_recall *r = user;
    if (!r->program)
        BY_TRY(open_states(r, width));
    for (int i = 0; i < count; i++) {
        if (r->skip[row] > 0) {
            r->skip[row]--;
            continue;
        }
        if (r->begun[row])
            BY_TRY(remember(r, row, tokens[i]));
        if (r->spec.per_document && tokens[i] == r->eos)
            r->count[row] = 0;
        r->begun[row] = true;
        memcpy(r->states + (ptrdiff_t)row * width, states + (ptrdiff_t)i * width,
               (size_t)width * sizeof *states);
    }
    return BY_OK;
}

gen_recall *gen_recall_new(by_generator *g, const by_continuous_cache *spec)
{
    const size_t rows = (size_t)by_generator_batch(g), size = (size_t)spec->size;
    gen_recall *r = base_alloc_zero(1, sizeof *r);
    if (!r)
        return NULL;
    *r = (gen_recall){.generator = g, .spec = *spec, .eos = by_model_eos(g->model)};
    r->count = base_alloc_zero(rows, sizeof *r->count);
    r->skip = base_alloc_zero(rows, sizeof *r->skip);
    r->begun = base_alloc_zero(rows, sizeof *r->begun);
    r->next = base_alloc_zero(rows * size, sizeof *r->next);
    r->places = base_alloc_zero(size, sizeof *r->places);
    r->seen = base_alloc_zero(size, sizeof *r->seen);
    r->log_probs = base_alloc_zero((size_t)g->vocab, sizeof *r->log_probs);
    if (!r->count || !r->skip || !r->begun || !r->next || !r->places || !r->seen || !r->log_probs) {
        gen_recall_free(r);
        return NULL;
    }
    g->watch = (gen_watch){on_fed, r};
    return r;
}

void gen_recall_free(gen_recall *r)
{
    if (!r)
        return;
    r->generator->watch = (gen_watch){0};
    by_program_free(r->program);
    by_params_free(r->params);
    by_memory_free(r->table);
    void *const host[] = {r->count, r->skip, r->begun, r->states, r->next, r->places, r->seen, r->log_probs};
    for (int i = 0; i < BY_COUNT(host); i++)
        base_free(host[i]);
    base_free(r);
}

void gen_recall_skip(gen_recall *r, int row, int count)
{
    if (r)
        r->skip[row] = count;
}

static by_status mix(gen_recall *r, int row, const float *logits)
{
    const size_t size = (size_t)r->spec.size, ints = size * sizeof(int32_t);
    const int64_t there = BY_MIN(r->count[row], r->spec.size);
    const float share = there ? (float)r->spec.lambda : 0;
    for (int i = 0; i < r->spec.size; i++) {
        r->places[i] = row * r->spec.size + i;
        r->seen[i] = i < there;
    }
    BY_TRY(by_write(r->program, r->state_in, r->states + (ptrdiff_t)row * r->width,
                    (size_t)r->width * sizeof *r->states));
    BY_TRY(by_write(r->program, r->logits_in, logits, (size_t)r->generator->vocab * sizeof *logits));
    BY_TRY(by_write(r->program, r->places_in, r->places, ints));
    BY_TRY(by_write(r->program, r->next_in, r->next + (size_t)row * size, ints));
    BY_TRY(by_write(r->program, r->seen_in, r->seen, ints));
    BY_TRY(by_write(r->program, r->share_in, &share, sizeof share));
    BY_TRY(by_run(r->program));
    return by_read_f32(r->program, r->out, r->log_probs);
}

const float *gen_recall_mix(gen_recall *r, int row, const float *logits)
{
    return mix(r, row, logits) == BY_OK ? r->log_probs : NULL;
}
