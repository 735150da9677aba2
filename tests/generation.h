/* generation.h - what the tests of generated texts share. Included after cmocka.h. */
#ifndef BY_TESTS_GENERATION_H
#define BY_TESTS_GENERATION_H

#include <math.h>
#include <stdlib.h>

#include "banyan/generate.h"
#include "base/base.h"

/* Initial values are so small that every token is about as likely; larger ones make a model with opinions. */
static inline void sharpen(by_model *m, float by)
{
    by_params *p = by_model_params(m);
    for (int i = 0; i < by_params_count(p); i++) {
        int64_t n = 1;
        for (int k = 0; k < by_params_rank(p, i); k++)
            n *= by_params_shape(p, i)[k];
        float *values = malloc(sizeof *values * (size_t)n);
        assert_non_null(values);
        assert_int_equal(by_params_get(p, i, BY_SLOT_VALUE, values), BY_OK);
        for (int64_t k = 0; by_params_rank(p, i) > 1 && k < n; k++)
            values[k] *= by;
        assert_int_equal(by_params_set(p, i, BY_SLOT_VALUE, values), BY_OK);
        free(values);
    }
}

/* Logits after the last of n tokens, from one pass over all of them without a cache. */
static inline void row_logits(by_model *m, const int32_t *tokens, int n, float *out)
{
    by_graph *graph = by_graph_new(&(by_graph_spec){.params = by_model_params(m)});
    assert_non_null(graph);
    int32_t last = n - 1;
    by_tensor *ids = by_input(graph, "tokens", BY_I32, 2, (int64_t[]){1, n});
    by_tensor *pick = by_input(graph, "pick", BY_I32, 1, (int64_t[]){1});
    by_model_io io = {0};
    by_io_feed(&io, "tokens", ids);
    by_io_feed(&io, "pick", pick);
    by_model_build(m, graph, &io);
    by_tensor *logits = by_output(graph, "logits", by_io_output(&io, "logits"));
    by_program *p = by_compile(graph, &(by_compile_spec){0});
    assert_non_null(p);
    assert_int_equal(by_write(p, ids, tokens, sizeof *tokens * (size_t)n), BY_OK);
    assert_int_equal(by_write(p, pick, &last, sizeof last), BY_OK);
    assert_int_equal(by_run(p), BY_OK);
    assert_int_equal(by_read_f32(p, logits, out), BY_OK);
    by_program_free(p);
}

/* Normalised mean squared error. */
static inline double nmse(const float *a, const float *b, int n)
{
    double error = 0, power = 0;
    for (int i = 0; i < n; i++) {
        error += pow((double)a[i] - (double)b[i], 2);
        power += pow((double)b[i], 2);
    }
    return error / power;
}

/* Search for what follows some prompts, or comes of some sources. */
static inline by_generate_result find(by_model *m, const int32_t *const *prompts, const int *lengths,
                                      int count, const by_generate_spec *spec)
{
    const int width = BY_MAX(spec->beam.width, 1);
    by_generator *g = by_generator_new(m, &(by_generator_spec){.batch = count * width, .beams = width});
    by_generate_result r = {0};
    if (!g || by_generate(g, prompts, lengths, spec, &r) != BY_OK)
        fail_msg("%s", by_error_message());
    by_generator_free(g);
    return r;
}

/* The value that a chi-square variable exceeds once in a thousand times (Wilson and Hilferty). */
static inline double chi_square_limit(int degrees)
{
    double v = 2.0 / (9.0 * degrees);
    return degrees * pow(1 - v + 3.0902 * sqrt(v), 3);
}

static inline void assert_same(const by_generation *a, const by_generation *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->finish, b->finish);
    assert_memory_equal(a->tokens, b->tokens, sizeof *a->tokens * (size_t)a->count);
    assert_true(fabsf(a->score - b->score) < 1e-4f);
}

#endif
