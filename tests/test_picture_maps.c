/* test_picture_maps.c - looking at models of pictures: attention over patches, rollout, captions word by word, positions, patch filters,
 * and the pages that show them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "banyan/inspect.h"
#include "banyan/train_tokenizer.h"
#include "base/base.h"
#include "base/file.h"
#include "report/mosaic.h"

static by_device *device;
static by_picture_set *set;
static char dir[] = "/tmp/banyan-maps.XXXXXX", path[64];

enum {
    SIDE = 12,
    PATCH = 4,
    ACROSS = SIDE / PATCH,
    PATCHES = ACROSS * ACROSS,
    WIDTH = 16,
    LAYERS = 3,
    HEADS = 2
};

static void must(by_status s)
{
    if (s != BY_OK)
        fail_msg("%s", by_error_message());
}

static by_model *new_model(const char *family, by_task task, int vocab)
{
    const by_model_shape shape = {.layers = LAYERS,
                                  .heads = HEADS,
                                  .width = WIDTH,
                                  .image = SIDE,
                                  .patch = PATCH,
                                  .channels = 3,
                                  .vocab = vocab,
                                  .context = vocab ? 16 : 0,
                                  .dropout = -1};
    by_model *m =
        by_model_new(device, family, &shape, &(by_model_spec){.seed = 5, .task = task, .labels = 4});
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

static by_processor *new_processor(void)
{
    by_processor *p = by_processor_new(&(by_processor_spec){.channels = 3, .height = SIDE, .width = SIDE});
    assert_non_null(p);
    return p;
}

static int set_up(void **state)
{
    (void)state;
    device = by_device_open("cpu", 1);
    by_image *m = by_image_new(SIDE, SIDE, BY_PIXELS_RGB);
    if (!device || !m || !mkdtemp(dir))
        return 1;
    for (int i = 0; i < 3 * SIDE * SIDE; i++)
        ((uint8_t *)m->pixels)[i] = (uint8_t)(i * 37 % 251);
    base_format(path, sizeof path, "%s/picture.png", dir);
    must(by_image_write_png(m, path));
    by_image_free(m);
    set =
        by_picture_set_open((const char *const[]){path}, 1, &(by_picture_set_spec){.kind = BY_EXAMPLE_IMAGE});
    return set == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    by_picture_set_free(set);
    by_device_free(device);
    unlink(path);
    return rmdir(dir);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* The rollout of all positions by whole matrices, as Abnar and Zuidema write it: (A + I) / 2 of each layer, multiplied. */
static void rollout_of(const by_picture_maps *a, double *out)
{
    const int n = a->tokens + PATCHES;
    double layer[12][12], product[12][12], next[12][12];
    assert_true(n <= 12);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            product[i][k] = i == k;
    for (int l = 0; l < a->layers; l++) {
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n; k++) {
                layer[i][k] = 0.5 * (i == k);
                for (int h = 0; h < a->heads; h++)
                    layer[i][k] += 0.5 * (double)a->weights[((l * a->heads + h) * n + i) * n + k] / a->heads;
            }
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n; k++) {
                next[i][k] = 0;
                for (int c = 0; c < n; c++)
                    next[i][k] += layer[i][c] * product[c][k];
            }
        memcpy(product, next, sizeof product);
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            out[i * n + k] = product[i][k];
}

static void check_maps(const by_picture_maps *a)
{
    const int n = a->tokens + PATCHES;
    float map[PATCHES], other[PATCHES];
    double whole[144];
    for (int r = 0; r < a->layers * a->heads * n; r++) {
        double sum = 0;
        for (int i = 0; i < n; i++)
            sum += (double)a->weights[r * n + i];
        assert_true(fabs(sum - 1) < 1e-5);
    }
    rollout_of(a, whole);
    for (int q = 0; q < n; q++) {
        must(by_picture_maps_rollout(a, q, map));
        for (int i = 0; i < PATCHES; i++)
            assert_true(fabs((double)map[i] - whole[q * n + a->tokens + i]) < 1e-6);
    }
    double mean = 0;
    for (int h = 0; h < a->heads; h++) {
        must(by_picture_maps_head(a, 1, h, 2, map));
        for (int i = 0; i < PATCHES; i++)
            assert_true(map[i] == a->weights[((1 * a->heads + h) * n + 2) * n + a->tokens + i]);
        mean += (double)map[4] / a->heads;
    }
    must(by_picture_maps_head(a, 1, -1, 2, other));
    assert_true(fabs((double)other[4] - mean) < 1e-6);
    assert_int_equal(by_picture_maps_head(a, a->layers, 0, 0, map), BY_ERR_ARGUMENT);
    assert_int_equal(by_picture_maps_head(a, 0, a->heads, 0, map), BY_ERR_ARGUMENT);
    assert_int_equal(by_picture_maps_rollout(a, n, map), BY_ERR_ARGUMENT);
}

static void test_attention(void **state)
{
    (void)state;
    static const struct {
        const char *family;
        by_task task;
        int tokens, vocab;
    } all[] = {{"vit", BY_TASK_CLASSIFY, 1, 0},
               {"vit", BY_TASK_FEATURES, 1, 0},
               {"deit", BY_TASK_CLASSIFY, 2, 0},
               {"clip", BY_TASK_CONTRAST, 1, 20}};
    by_processor *p = new_processor();
    for (int i = 0; i < BY_COUNT(all); i++) {
        by_model *m = new_model(all[i].family, all[i].task, all[i].vocab);
        by_picture_maps a;
        must(by_picture_maps_make(m, p, set, 0, &(by_picture_maps_spec){0}, &a));
        assert_int_equal(a.rows, ACROSS);
        assert_int_equal(a.columns, ACROSS);
        assert_int_equal(a.tokens, all[i].tokens);
        assert_int_equal(a.layers, LAYERS);
        assert_int_equal(a.heads, HEADS);
        assert_int_equal(a.queries, all[i].tokens + PATCHES);
        assert_int_equal(a.seen->width, SIDE);
        check_maps(&a);
        by_picture_maps_free(&a);
        by_picture_maps_free(&a);
        assert_int_equal(by_picture_maps_make(m, p, set, 0, &(by_picture_maps_spec){.target = "a"}, &a),
                         BY_ERR_ARGUMENT);
        by_picture_maps_free(&a);
        by_model_free(m);
    }
    by_processor_free(p);
}

/* Each token of a caption has a row, whether it is given or written by the model. */
static void test_captions(void **state)
{
    (void)state;
    char file[64];
    base_format(file, sizeof file, "%s/words.txt", dir);
    static const char words[] = "a red boot above a blue bag\na bag in the middle\n";
    must(base_file_write(file, words, sizeof words - 1));
    by_tokenizer *t = by_tokenizer_train(&(by_vocab_spec){.kind = BY_VOCAB_WORD, .size = 32},
                                         (const char *const[]){file}, 1, NULL);
    unlink(file);
    if (!t)
        fail_msg("%s", by_error_message());
    by_model *m = new_model("vision-encoder-decoder", BY_TASK_SEQ2SEQ, by_tokenizer_vocab_size(t));
    by_model_set_start(m, 0);
    by_model_set_eos(m, 0);
    by_model_set_pad(m, 0);
    by_processor *p = new_processor();
    by_picture_maps a;
    float map[PATCHES];
    must(by_picture_maps_make(m, p, set, 0, &(by_picture_maps_spec){.tokenizer = t, .target = "a red bag"},
                              &a));
    assert_true(a.queries >= 3 && a.queries == a.text.tokens);
    assert_string_equal(a.text.names[1], "red");
    for (int q = 0; q < a.queries; q++) {
        must(by_picture_maps_head(&a, -1, -1, q, map));
        double sum = 0;
        for (int i = 0; i < PATCHES; i++)
            sum += (double)map[i];
        assert_true(sum > 0 && sum < 1); /* the class token has the rest */
    }
    assert_int_equal(by_picture_maps_rollout(&a, 0, map), BY_ERR_ARGUMENT);
    by_picture_maps_free(&a);
    assert_int_equal(by_picture_maps_make(m, p, set, 0, &(by_picture_maps_spec){0}, &a), BY_ERR_ARGUMENT);
    by_picture_maps_free(&a);
    by_processor_free(p);
    by_model_free(m);
    by_tokenizer_free(t);
}

/* ---- positions and filters ---------------------------------------------------------------------- */

static int find(const by_model *m, const char *end)
{
    const by_params *p = by_model_params(m);
    for (int i = 0; i < by_params_count(p); i++) {
        const size_t n = strlen(by_params_name(p, i));
        if (n >= strlen(end) && strcmp(by_params_name(p, i) + n - strlen(end), end) == 0)
            return i;
    }
    fail_msg("no parameter %s", end);
    return -1;
}

static void test_positions(void **state)
{
    (void)state;
    by_model *m = new_model("deit", BY_TASK_CLASSIFY, 0);
    float table[(2 + PATCHES) * WIDTH] = {0}, out[PATCHES * PATCHES];
    for (int i = 0; i < PATCHES; i++) { /* two numbers on a circle, a tenth of a turn apart */
        table[(2 + i) * WIDTH] = 3 * (float)cos(0.2 * 3.14159265358979 * i);
        table[(2 + i) * WIDTH + 1] = 3 * (float)sin(0.2 * 3.14159265358979 * i);
    }
    must(by_params_set(by_model_params(m), find(m, "embeddings.position_embeddings"), BY_SLOT_VALUE, table));
    must(by_position_similarities(m, out));
    for (int a = 0; a < PATCHES; a++)
        for (int b = 0; b < PATCHES; b++)
            assert_true(fabs((double)out[a * PATCHES + b] - cos(0.2 * 3.14159265358979 * (a - b))) < 1e-5);
    by_model_free(m);
    m = new_model("clip", BY_TASK_CONTRAST, 20);
    must(by_position_similarities(m, out));
    assert_true(fabs((double)out[0] - 1) < 1e-6 && fabs((double)out[1]) < 0.9);
    by_model_free(m);
}

/* Filters along three directions, at right angles: the components are these, by their strength. */
static void test_filters(void **state)
{
    (void)state;
    enum { N = 3 * PATCH * PATCH };
    static const int place[3] = {7, 20, 41};
    static const float strength[3] = {1, 4, 2};
    float filters[WIDTH * N] = {0}, out[4 * N];
    by_model *m = new_model("vit", BY_TASK_CLASSIFY, 0);
    for (int k = 0; k < 3; k++)
        for (int s = 0; s < 2; s++)
            filters[(2 * k + s) * N + place[k]] = s ? strength[k] : -strength[k];
    must(by_params_set(by_model_params(m), find(m, "patch_embeddings.projection.weight"), BY_SLOT_VALUE,
                       filters));
    must(by_patch_filters(m, 3, out));
    static const int order[3] = {1, 2, 0};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < N; i++)
            assert_true(fabs(fabs((double)out[k * N + i]) - (i == place[order[k]])) < 1e-4);
    assert_int_equal(by_patch_filters(m, 0, out), BY_ERR_ARGUMENT);
    assert_int_equal(by_patch_filters(m, N + 1, out), BY_ERR_ARGUMENT);
    by_model_free(m);
    m = by_model_new(device, "gpt2", &(by_model_shape){.preset = "tiny", .vocab = 10, .dropout = -1},
                     &(by_model_spec){0});
    assert_non_null(m);
    assert_int_equal(by_patch_filters(m, 1, out), BY_ERR_UNSUPPORTED);
    assert_int_equal(by_position_similarities(m, out), BY_ERR_UNSUPPORTED);
    by_model_free(m);
}

/* ---- pages -------------------------------------------------------------------------------------- */

static void test_overlay(void **state)
{
    (void)state;
    const float map[4] = {0.1f, 0.3f, 0.1f, 0.1f};
    by_image *white = by_image_new(4, 2, BY_PIXELS_GREY);
    assert_non_null(white);
    memset(white->pixels, 255, 8);
    by_image *m = report_overlay(white, map, 2, 2, false);
    assert_non_null(m);
    const uint8_t *at = m->pixels;
    assert_memory_equal(at, "\x59\x59\x59", 3);     /* the smallest weight: 0.35 of white */
    assert_memory_equal(at + 9, "\xff\x8c\x00", 3); /* the largest: orange */
    by_image_free(m);
    m = report_map(map, 2, 2, 0.1, 0.3);
    assert_non_null(m);
    assert_memory_equal(m->pixels, "\xff\xff\xff\x08\x30\x6b", 6);
    by_image_free(m);
    by_image_free(white);
}

static void test_page(void **state)
{
    (void)state;
    report_tile *tiles = base_alloc_zero(3, sizeof *tiles);
    assert_non_null(tiles);
    for (int i = 0; i < 3; i++) {
        tiles[i].picture = by_image_new(8, 6, i ? BY_PIXELS_RGB : BY_PIXELS_GREY);
        base_format(tiles[i].title, sizeof tiles[i].title, "<%d>", i);
    }
    const report_mosaic page = {.title = "a & b",
                                .subtitle = "below",
                                .tiles = tiles,
                                .count = 3,
                                .large = 1,
                                .columns = 2,
                                .large_side = 80,
                                .small_side = 40};
    base_buf out = {0};
    must(report_mosaic_write(&out, REPORT_PICTURE_PNG, &page));
    by_image *m = by_image_decode(out.data, out.size, NULL);
    assert_non_null(m);
    int black = 0;
    for (int i = 0; i < m->width * m->height; i++)
        black += memcmp((uint8_t *)m->pixels + 3 * (ptrdiff_t)i, "\0\0\0", 3) == 0;
    assert_int_equal(black, 80 * 60 + 2 * 40 * 30);
    by_image_free(m);
    base_buf_free(&out);
    must(report_mosaic_write(&out, REPORT_PICTURE_SVG, &page));
    assert_non_null(strstr(out.data, "&#60;1&#62;"));
    assert_non_null(strstr(out.data, "data:image/png;base64,iVBORw0KGgo"));
    assert_non_null(strstr(out.data, "</svg>"));
    base_buf_free(&out);
    report_tiles_free(tiles, 3);
}

static void test_nothing(void **state)
{
    (void)state;
    by_picture_maps a = {0};
    float out[1];
    assert_int_equal(by_picture_maps_make(NULL, NULL, set, 0, NULL, &a), BY_ERR_ARGUMENT);
    assert_int_equal(by_picture_maps_head(NULL, 0, 0, 0, out), BY_ERR_ARGUMENT);
    assert_int_equal(by_picture_maps_rollout(&a, 0, out), BY_ERR_ARGUMENT);
    assert_int_equal(by_position_similarities(NULL, out), BY_ERR_ARGUMENT);
    assert_int_equal(by_patch_filters(NULL, 1, out), BY_ERR_ARGUMENT);
    by_picture_maps_free(NULL);
    assert_null(by_model_join(NULL, "a", "b", 0));
    assert_null(by_model_join(device, NULL, "b", 0));
    assert_null(by_model_join(device, "/nowhere", "/nowhere", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention), cmocka_unit_test(test_captions),
                                       cmocka_unit_test(test_positions), cmocka_unit_test(test_filters),
                                       cmocka_unit_test(test_overlay),   cmocka_unit_test(test_page),
                                       cmocka_unit_test(test_nothing)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
