/* test_pixels.c - pixel models: probabilities that sum to 1, sampling over a cache against whole passes, pictures that are
 * completed; palettes, and tokens of pictures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "banyan/image.h"
#include "banyan/pass.h"
#include "banyan/pixels.h"
#include "base/base.h"
#include "graph/mixture_layout.h"
#include "generation.h"
#include "infer/sample.h"
#include "model/model.h"

static by_device *device;

/* ---- mixtures -------------------------------------------------------------------------------- */

/* Random parameters of a mixture; log scales from -8 (less than the least) to 1. */
static void random_mixture(float *x, int components, int channels, uint64_t seed)
{
    base_rng random = base_rng_make(seed, 0);
    const int n = components * gr_mixture_parts(channels);
    for (int i = 0; i < n; i++)
        x[i] = (float)(2 * base_rng_uniform(&random) - 1);
    for (int c = 0; c < channels; c++)
        for (int k = 0; k < components; k++)
            x[(gr_mixture_at(c, channels) + 1) * components + k] = (float)(9 * base_rng_uniform(&random) - 8);
}

static double total(const double *log_p)
{
    double sum = 0;
    for (int v = 0; v < 256; v++)
        sum += exp(log_p[v]);
    return sum;
}

/* The probabilities of all values of a channel sum to 1. Up to 1e-5 the density stands for the probability of a component,
 * which is why the 256 of them may be off by some 1e-4; a wide logistic has no such values, and its sum is exact. */
static void test_sums(void **state)
{
    (void)state;
    float x[GR_MIXTURE_ROW];
    double log_p[256];
    for (int i = 0; i < 60; i++) {
        const int channels = i % 2 ? 3 : 1, components = 1 + i % 10;
        const int32_t before[] = {(i * 37) % 256, (i * 101) % 256};
        random_mixture(x, components, channels, (uint64_t)i);
        for (int c = 0; c < channels; c++) {
            by_mixture_log_probs(x, components * gr_mixture_parts(channels), channels, c, before, log_p);
            assert_true(fabs(total(log_p) - 1) < 1e-4);
        }
    }
    for (int i = 0; i < 5; i++) {
        const float wide[] = {0.3f, 0.5f * (float)i - 1, 0.1f * (float)i - 0.3f};
        by_mixture_log_probs(wide, 3, 1, 0, NULL, log_p);
        assert_true(fabs(total(log_p) - 1) < 1e-12);
    }
}

/* The product of the conditional probabilities of the channels is what the op computes. */
static void test_chain(void **state)
{
    (void)state;
    enum { ROWS = 40, COMPONENTS = 7 };
    for (int channels = 1; channels <= 3; channels += 2) {
        const int64_t cols = COMPONENTS * gr_mixture_parts(channels);
        static float x[ROWS * COMPONENTS * GR_MIXTURE_PARTS], each[ROWS];
        static int32_t targets[ROWS * 3];
        by_params *p = by_params_new(device, BY_F32);
        by_graph *g = by_graph_new(&(by_graph_spec){.params = p});
        by_tensor *in = by_input(g, "x", BY_F32, 2, (int64_t[]){ROWS, cols}), *nats;
        by_tensor *values = by_input(g, "targets", BY_I32, 2, (int64_t[]){ROWS, channels});
        by_logistic_mixture(g, in, values, channels, &nats);
        by_output(g, NULL, nats);
        assert_int_equal(by_params_freeze(p, false), BY_OK);
        by_program *program = by_compile(g, NULL);
        assert_non_null(program);
        for (int r = 0; r < ROWS; r++) {
            random_mixture(x + r * cols, COMPONENTS, channels, (uint64_t)(100 + r));
            for (int c = 0; c < channels; c++)
                targets[r * channels + c] = r < 2 ? 255 * r : (r * 67 + c * 41) % 256;
        }
        assert_int_equal(by_write(program, in, x, (size_t)(ROWS * cols) * sizeof *x), BY_OK);
        assert_int_equal(by_write(program, values, targets, (size_t)(ROWS * channels) * sizeof *targets),
                         BY_OK);
        assert_int_equal(by_run(program), BY_OK);
        assert_int_equal(by_read_f32(program, nats, each), BY_OK);
        for (int r = 0; r < ROWS; r++) {
            double sum = 0, log_p[256];
            for (int c = 0; c < channels; c++) {
                by_mixture_log_probs(x + r * cols, (int)cols, channels, c, targets + r * channels, log_p);
                sum -= log_p[targets[r * channels + c]];
            }
            assert_true(fabs(sum - (double)each[r]) < 1e-4 * fmax(1, fabs(sum)));
        }
        by_program_free(program);
        by_params_free(p);
    }
}

/* ---- sampling -------------------------------------------------------------------------------- */

typedef struct kind {
    const char *family;
    by_model_shape shape;
} kind;

#define IMAGE_TRANSFORMER(...)                                \
    {                                                         \
        "image-transformer",                                  \
        {                                                     \
            .layers = 2, .heads = 2, .width = 16, __VA_ARGS__ \
        }                                                     \
    }

/* Small pictures of every kind of model: rows that divide the picture or not, memories, borders, channels. */
static const kind kinds[] = {
    {"imagegpt", {.layers = 2, .heads = 2, .width = 16, .context = 16, .vocab = 9}},
    IMAGE_TRANSFORMER(.image = 4, .channels = 1, .block_columns = 5, .memory_columns = 4),
    IMAGE_TRANSFORMER(.image = 4, .channels = 3, .block_columns = 12, .memory_columns = 7,
                      .coordinates = "learned"),
    IMAGE_TRANSFORMER(.image = 4, .channels = 3, .attention = "2d", .block_rows = 2, .block_columns = 4,
                      .memory_rows = 1, .memory_columns = 3),
    IMAGE_TRANSFORMER(.image = 6, .channels = 1, .attention = "2d", .block_rows = 3, .block_columns = 2,
                      .memory_rows = 2, .memory_columns = -1),
    IMAGE_TRANSFORMER(.image = 4, .channels = 3, .distribution = "dmol", .mixtures = 3, .block_columns = 5,
                      .memory_columns = 3),
    IMAGE_TRANSFORMER(.image = 4, .channels = 1, .distribution = "dmol", .mixtures = 2, .attention = "2d",
                      .block_rows = 2, .block_columns = 2, .memory_rows = 2, .memory_columns = 1),
    IMAGE_TRANSFORMER(.image = 4, .channels = 3, .upscale = 2, .attention = "2d", .block_rows = 2,
                      .block_columns = 4, .memory_rows = 1, .memory_columns = 2),
    IMAGE_TRANSFORMER(.image = 4, .channels = 3, .upscale = 4, .distribution = "dmol", .mixtures = 2,
                      .block_columns = 5, .memory_columns = 3),
};

/* The pictures that models enlarge: other values in each. */
enum { LOW = 16 };
static const int32_t *low_of(const by_model *m, int picture)
{
    static int32_t low[8 * LOW];
    by_canvas c;
    by_model_canvas(m, &c);
    const int n = by_canvas_low(&c);
    assert_true(n <= LOW);
    for (int i = 0; i < 8 * n; i++)
        low[i] = (i * 89 + 31) % 256;
    return n ? low + (ptrdiff_t)picture * n : NULL;
}

static by_model *make(const kind *k)
{
    by_model *m = by_model_new(device, k->family, &k->shape, &(by_model_spec){.seed = 3});
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

/* Logits of all positions of a picture, by one pass over all of it: in raster order. */
typedef struct whole {
    by_pass *pass;
    by_batch batch;
    int32_t *tokens;
    float *logits;
    int width;
} whole;

/* low: the picture that is enlarged, or NULL. */
static whole whole_new(by_model *m, int tokens, const int32_t *low)
{
    whole w = {0};
    by_canvas c;
    by_model_canvas(m, &c);
    w.tokens = base_alloc_zero((size_t)tokens, sizeof *w.tokens);
    w.batch = by_batch_of(1, tokens, w.tokens);
    if (low)
        by_batch_put(&w.batch, "low", BY_I32, 3, (int64_t[]){1, by_canvas_low(&c) / c.channels, c.channels},
                     low);
    w.pass = by_pass_new(m, &w.batch, &(by_pass_spec){.grads = BY_GRAD_NONE});
    if (!w.pass)
        fail_msg("%s", by_error_message());
    by_tensor *t = by_io_output(by_pass_io(w.pass), "logits");
    w.width = (int)by_dim(t, -1);
    w.logits = base_alloc_zero((size_t)by_elements(t), sizeof *w.logits);
    return w;
}

/* ImageGPT reads what came before, after a start token; the others read the picture itself. */
static void whole_run(whole *w, const by_model *m, const int32_t *tokens, int count)
{
    const bool shifts = !m->arch->predicts_itself;
    for (int i = 0; i < count; i++)
        w->tokens[i] = !shifts ? tokens[i] : i ? tokens[i - 1] : by_model_source_vocab(m) - 1;
    assert_int_equal(by_pass_run(w->pass, &w->batch), BY_OK);
    assert_int_equal(by_pass_read(w->pass, by_io_output(by_pass_io(w->pass), "logits"), w->logits), BY_OK);
}

static void whole_free(whole *w)
{
    by_pass_free(w->pass);
    base_free(w->tokens);
    base_free(w->logits);
}

/* What the sampler must do, without a cache: a pass over the whole picture for every position. */
static void sample_slowly(by_model *m, const by_sampling *spec, int32_t *row, int64_t picture, double *nats)
{
    by_canvas c;
    gen_sampler sampler;
    by_model_canvas(m, &c);
    const int tokens = c.height * c.width * c.channels, per = tokens / c.positions;
    whole w = whole_new(m, tokens, low_of(m, (int)picture));
    assert_int_equal(gen_sampler_open(&sampler, c.values), BY_OK);
    memset(row, 0, (size_t)tokens * sizeof *row);
    *nats = 0;
    for (int t = 0; t < c.positions; t++) {
        const int place = m->arch->place ? m->arch->place(m->config, t) : t;
        whole_run(&w, m, row, tokens);
        for (int i = 0; i < per; i++) {
            const float *logits = w.logits + (ptrdiff_t)place * w.width;
            float own[256], logprob;
            double log_p[256];
            if (c.mixture) {
                by_mixture_log_probs(logits, w.width, c.channels, i, row + place * per, log_p);
                for (int v = 0; v < 256; v++)
                    own[v] = (float)log_p[v];
                logits = own;
            }
            const gen_sample_at at = {.tokens = row, .count = t * per + i, .sample = (uint64_t)picture};
            assert_int_equal(gen_sample(&sampler, spec, &at, logits, &row[place * per + i], &logprob, NULL),
                             BY_OK);
            *nats -= (double)logprob;
        }
    }
    gen_sampler_close(&sampler);
    whole_free(&w);
}

/* Sampling over the cache gives the pictures that whole passes give, and the same likelihoods. */
static void test_cached_sampling(void **state)
{
    (void)state;
    enum { PICTURES = 3, MOST = 64 };
    const by_sampling spec = {.temperature = 0.9, .top_k = 200, .seed = 5};
    for (int i = 0; i < BY_COUNT(kinds); i++) {
        by_model *m = make(&kinds[i]);
        int32_t fast[PICTURES * MOST], slow[MOST];
        double nats[PICTURES], own;
        const int tokens = by_model_context(m);
        assert_true(tokens <= MOST);
        /* two side by side, then one alone with a row that is not used */
        if (by_pixels_sample(m, &(by_pixel_spec){.sampling = spec, .batch = 2, .low = low_of(m, 0)}, fast,
                             PICTURES, nats) != BY_OK)
            fail_msg("%s", by_error_message());
        for (int k = 0; k < PICTURES; k++) {
            sample_slowly(m, &spec, slow, k, &own);
            assert_memory_equal(fast + k * tokens, slow, (size_t)tokens * sizeof *slow);
            assert_true(fabs(own - nats[k]) < 1e-4 * fabs(own));
        }
        by_model_free(m);
    }
}

/* The small picture is the mean of squares, rounded; what a model makes depends on it, and it must be there. */
static void test_upscaling(void **state)
{
    (void)state;
    const by_canvas c = {.height = 2, .width = 4, .channels = 3, .upscale = 2};
    const int32_t tokens[] = {0, 10, 255, 1, 10, 255, 7, 0, 0, 7, 0, 1,
                              0, 10, 255, 1, 10, 254, 7, 0, 1, 8, 0, 1};
    int32_t low[6], made[64];
    double nats[2];
    assert_int_equal(by_canvas_low(&c), 6);
    by_canvas_reduce(&c, tokens, low);
    assert_memory_equal(low, ((int32_t[]){1, 10, 255, 7, 0, 1}), sizeof low);
    for (int i = 0; i < BY_COUNT(kinds); i++) {
        by_model *m = make(&kinds[i]);
        int32_t bad[LOW] = {[1] = 256};
        by_pixel_spec s = {.sampling.temperature = 1, .low = low_of(m, 0)};
        sharpen(m, 4);
        assert_int_equal(by_pixels_sample(m, &s, made, 1, &nats[0]), BY_OK);
        const int32_t *other = s.low ? low_of(m, 1) : bad;
        s.low = other;
        assert_int_equal(by_pixels_sample(m, &s, made, 1, &nats[1]), other == bad ? BY_ERR_ARGUMENT : BY_OK);
        if (other != bad) {
            assert_true(fabs(nats[0] - nats[1]) > 1e-3);
            s.low = bad;
            assert_int_equal(by_pixels_sample(m, &s, made, 1, NULL), BY_ERR_ARGUMENT);
            assert_non_null(strstr(by_error_message(), "value 256 of picture 0"));
            s.low = NULL;
            assert_int_equal(by_pixels_sample(m, &s, made, 1, NULL), BY_ERR_ARGUMENT);
            assert_non_null(strstr(by_error_message(), "requires input pictures of"));
        }
        by_model_free(m);
    }
}

/* What is given stays; the rest is the same in every batch. */
static void test_completion(void **state)
{
    (void)state;
    enum { MOST = 64 };
    const by_sampling spec = {.temperature = 1, .seed = 8};
    for (int i = 0; i < BY_COUNT(kinds); i++) {
        by_model *m = make(&kinds[i]);
        const int tokens = by_model_context(m);
        bool given[MOST] = {false};
        int32_t a[2 * MOST], b[2 * MOST];
        for (int k = 0; k < tokens; k++) {
            given[k] = k < tokens / 2;
            a[k] = a[tokens + k] = b[k] = b[tokens + k] = k % by_model_vocab(m);
        }
        by_pixel_spec s = {.sampling = spec, .batch = 2, .given = given, .low = low_of(m, 0)};
        assert_int_equal(by_pixels_sample(m, &s, a, 2, NULL), BY_OK);
        s.batch = 1;
        assert_int_equal(by_pixels_sample(m, &s, b, 2, NULL), BY_OK);
        assert_memory_equal(a, b, (size_t)tokens * 2 * sizeof *a);
        for (int k = 0; k < tokens / 2; k++)
            assert_true(a[k] == k % by_model_vocab(m) && a[tokens + k] == a[k]);
        assert_true(memcmp(a, a + tokens, (size_t)tokens * sizeof *a) != 0);
        a[0] = by_model_vocab(m);
        assert_int_equal(by_pixels_sample(m, &s, a, 2, NULL), BY_ERR_ARGUMENT);
        by_model_free(m);
    }
}

/* A pixel looks at those that were generated before it, and at no others; weights sum to 1 with what goes to the start. */
static void test_attention(void **state)
{
    (void)state;
    enum { MOST = 64 };
    for (int i = 0; i < BY_COUNT(kinds); i++) {
        by_model *m = make(&kinds[i]);
        by_canvas c;
        by_model_canvas(m, &c);
        const int pixels = c.height * c.width, maps = by_model_layers(m) * by_model_heads(m);
        const int per = c.positions / pixels, row = c.height - 1, column = 1;
        int32_t tokens[MOST];
        int begun[MOST], done[MOST] = {0}; /* when the first and the last channel of a pixel are generated */
        static float weights[4 * MOST];
        for (int k = 0; k < by_model_context(m); k++)
            tokens[k] = (k * 7) % by_model_vocab(m);
        for (int t = c.positions - 1; t >= 0; t--) {
            const int x = (m->arch->place ? m->arch->place(m->config, t) : t) / per;
            begun[x] = t;
            done[x] = done[x] > t ? done[x] : t;
        }
        assert_int_equal(by_pixels_attention(m, tokens, row, column, weights), BY_OK);
        for (int k = 0; k < maps; k++) {
            double sum = 0;
            for (int x = 0; x < pixels; x++) {
                const bool later = begun[x] > done[row * c.width + column];
                assert_true(weights[k * pixels + x] >= 0 && (!later || weights[k * pixels + x] == 0));
                sum += (double)weights[k * pixels + x];
            }
            assert_true(sum > 0 && sum < 1 + 1e-5);
        }
        assert_int_equal(by_pixels_attention(m, tokens, 0, 0, weights), BY_OK);
        for (int x = 1; x < pixels; x++) /* the first sees its own earlier channels at most */
            assert_true(weights[x] == 0);
        assert_int_equal(by_pixels_attention(m, tokens, c.height, 0, weights), BY_ERR_ARGUMENT);
        by_model_free(m);
    }
}

/* The batch of a pass without a picture's tokens, and other models. */
static void test_refusals(void **state)
{
    (void)state;
    int32_t tokens[64];
    by_model *m = by_model_new(
        device, "gpt2", &(by_model_shape){.layers = 1, .heads = 1, .width = 8, .context = 8, .vocab = 9},
        &(by_model_spec){0});
    assert_int_equal(by_pixels_sample(m, &(by_pixel_spec){.sampling.temperature = 1}, tokens, 1, NULL),
                     BY_ERR_ARGUMENT);
    by_model_free(m);
    m = make(&kinds[1]);
    assert_null(by_generator_new(m, &(by_generator_spec){0}));
    assert_int_equal(by_pixels_sample(m, &(by_pixel_spec){.sampling.temperature = -1}, tokens, 1, NULL),
                     BY_ERR_ARGUMENT);
    assert_int_equal(by_pixels_sample(m, &(by_pixel_spec){0}, tokens, 0, NULL), BY_ERR_ARGUMENT);
    by_model_free(m);
    by_model_shape bad = kinds[3].shape;
    bad.block_rows = 3; /* of 4 rows */
    assert_null(by_model_new(device, "image-transformer", &bad, &(by_model_spec){0}));
}

/* ---- palettes and tokens ----------------------------------------------------------------------- */

static void test_palette(void **state)
{
    (void)state;
    enum { PIXELS = 5000, COLOURS = 40 };
    static uint8_t rgb[3 * PIXELS];
    static float a[3 * COLOURS], b[3 * COLOURS];
    int found, again;
    base_rng random = base_rng_make(4, 4);
    for (int i = 0; i < 3 * PIXELS; i++)
        rgb[i] = (uint8_t)base_rng_below(&random, 256);
    assert_int_equal(by_palette_learn(rgb, PIXELS, &(by_palette_spec){COLOURS, 1, 1}, a, &found), BY_OK);
    assert_int_equal(by_palette_learn(rgb, PIXELS, &(by_palette_spec){COLOURS, 1, 3}, b, &again), BY_OK);
    assert_int_equal(found, COLOURS);
    assert_memory_equal(a, b, sizeof a); /* threads do not matter */
    /* every pixel gets the nearest colour, and every colour is the mean of its pixels */
    by_processor *p = by_processor_new(
        &(by_processor_spec){.channels = 3, .height = 50, .width = 100, .palette = a, .colours = COLOURS});
    by_image *m = by_image_new(100, 50, BY_PIXELS_RGB);
    assert_true(p && m && by_processor_tokens(p) == PIXELS);
    memcpy(m->pixels, rgb, sizeof rgb);
    static int32_t ids[PIXELS];
    double sums[COLOURS][4] = {{0}};
    assert_int_equal(by_processor_encode(p, m, ids), BY_OK);
    for (int i = 0; i < PIXELS; i++) {
        double best = INFINITY;
        int nearest = 0;
        for (int k = 0; k < COLOURS; k++) {
            double d = 0;
            for (int c = 0; c < 3; c++)
                d += pow((double)rgb[3 * i + c] / 127.5 - 1 - (double)a[3 * k + c], 2);
            if (d < best - 1e-9) {
                best = d;
                nearest = k;
            }
        }
        assert_int_equal(ids[i], nearest);
        for (int c = 0; c < 3; c++)
            sums[ids[i]][c] += (double)rgb[3 * i + c] / 127.5 - 1;
        sums[ids[i]][3]++;
    }
    for (int k = 0; k < COLOURS; k++)
        for (int c = 0; c < 3; c++)
            assert_true(fabs(sums[k][c] / sums[k][3] - (double)a[3 * k + c]) < 1e-5);
    by_image *back = by_processor_decode(p, ids);
    assert_non_null(back);
    for (int i = 0; i < PIXELS; i++)
        for (int c = 0; c < 3; c++)
            assert_int_equal(((uint8_t *)back->pixels)[3 * i + c],
                             lrint(127.5 * ((double)a[3 * ids[i] + c] + 1)));
    by_image_free(back);
    by_image_free(m);
    by_processor_free(p);
    /* fewer colours than were asked for, the darkest first */
    static const uint8_t few[] = {255, 255, 255, 0, 0, 0, 255, 255, 255, 9, 9, 9};
    assert_int_equal(by_palette_learn(few, 4, &(by_palette_spec){COLOURS, 1, 1}, a, &found), BY_OK);
    assert_int_equal(found, 3);
    assert_true(a[0] == -1 && a[6] == 1);
    assert_int_equal(by_palette_learn(few, 0, &(by_palette_spec){COLOURS, 1, 1}, a, &found), BY_ERR_ARGUMENT);
}

/* Values of channels are their own tokens; grids put pictures side by side. */
static void test_values(void **state)
{
    (void)state;
    by_processor *p = by_processor_new(&(by_processor_spec){.channels = 1, .height = 2, .width = 3});
    by_image *m = by_image_new(3, 2, BY_PIXELS_GREY);
    int32_t tokens[6];
    for (int i = 0; i < 6; i++)
        ((uint8_t *)m->pixels)[i] = (uint8_t)(40 * i);
    assert_int_equal(by_processor_encode(p, m, tokens), BY_OK);
    for (int i = 0; i < 6; i++)
        assert_int_equal(tokens[i], 40 * i);
    by_image *back = by_processor_decode(p, tokens);
    assert_memory_equal(back->pixels, m->pixels, 6);
    by_image *page = by_image_grid((const by_image *const[]){m, back, m}, 3, 2, 2);
    assert_non_null(page);
    assert_true(page->width == 2 * (2 * 3 + 2) + 2 && page->height == 2 * (2 * 2 + 2) + 2);
    assert_int_equal(((uint8_t *)page->pixels)[2 * page->width + 2 + 2], 40); /* the second pixel */
    assert_int_equal(((uint8_t *)page->pixels)[0], 255);
    by_image *other = by_image_new(2, 2, BY_PIXELS_GREY);
    assert_null(by_image_grid((const by_image *const[]){m, other}, 2, 2, 1));
    by_image_free(other);
    by_image_free(page);
    by_image_free(back);
    by_image_free(m);
    by_processor_free(p);
}

static int set_up(void **state)
{
    (void)state;
    device = by_device_open("cpu", 2);
    return device ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_cached_sampling),
        cmocka_unit_test(test_completion),
        cmocka_unit_test(test_upscaling),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_palette),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests_name("pixels", tests, set_up, tear_down);
}
