/* test_picture.c - the values that curves of a run show; pictures of weights: what an SVG holds, that a PNG
 * decodes to the same squares, captions, and bounds on the size of both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "report/heatmap.h"
#include "report/png.h"
#include "report/history.h"

/* ---- a reader of PNG, as far as the writer goes ----------------------------------------------- */

typedef struct input {
    const uint8_t *data;
    size_t bit;
} input;

static uint32_t bits(input *in, int n) /* the lowest first */
{
    uint32_t x = 0;
    for (int i = 0; i < n; i++, in->bit++)
        x |= (uint32_t)(in->data[in->bit / 8] >> in->bit % 8 & 1) << i;
    return x;
}

static int symbol(input *in) /* of the fixed codes */
{
    uint32_t code = 0;
    for (int n = 1; n <= 9; n++) {
        code = code << 1 | bits(in, 1);
        if (n == 7 && code < 24)
            return 256 + (int)code;
        if (n == 8 && code >= 48 && code < 192)
            return (int)code - 48;
        if (n == 8 && code >= 192 && code < 200)
            return 280 + (int)code - 192;
        if (n == 9 && code >= 400)
            return 144 + (int)code - 400;
    }
    fail_msg("no symbol");
    return 0;
}

static size_t inflate(const uint8_t *data, uint8_t *out, size_t room)
{
    static const int base[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                               31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const int extra[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    input in = {.data = data + 2};
    size_t n = 0;
    assert_int_equal(bits(&in, 3), 3);
    for (int s; (s = symbol(&in)) != 256;) {
        int length = 1;
        if (s > 256) {
            length = base[s - 257] + (int)bits(&in, extra[s - 257]);
            assert_int_equal(bits(&in, 5), 0);
            assert_true(n > 0);
            s = out[n - 1];
        }
        for (; length > 0; length--) {
            assert_true(n < room);
            out[n++] = (uint8_t)s;
        }
    }
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < n; i++) {
        a = (a + out[i]) % 65521;
        b = (b + a) % 65521;
    }
    const uint8_t *end = in.data + (in.bit + 7) / 8;
    assert_int_equal((uint32_t)end[0] << 24 | (uint32_t)end[1] << 16 | (uint32_t)end[2] << 8 | end[3],
                     b << 16 | a);
    return n;
}

static uint32_t u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The pixels of a file, each an index into its palette, which is checked to be there. */
static uint8_t *read_png(const base_buf *file, uint32_t *width, uint32_t *height)
{
    const uint8_t *at = (const uint8_t *)file->data, *end = at + file->size;
    uint8_t *pixels = NULL;
    assert_memory_equal(at, "\x89PNG\r\n\x1a\n", 8);
    for (at += 8; at < end; at += u32(at) + 12) {
        if (memcmp(at + 4, "IHDR", 4) == 0) {
            *width = u32(at + 8);
            *height = u32(at + 12);
            assert_memory_equal(at + 16, "\x08\x03\0\0\0", 5);
        } else if (memcmp(at + 4, "IDAT", 4) == 0) {
            const size_t w = *width, h = *height;
            uint8_t *raw = malloc(h * (w + 1));
            pixels = malloc(w * h);
            assert_non_null(raw);
            assert_non_null(pixels);
            assert_int_equal(inflate(at + 8, raw, h * (w + 1)), h * (w + 1));
            for (size_t y = 0; y < h; y++)
                for (size_t x = 0; x < w; x++)
                    pixels[y * w + x] =
                        (uint8_t)(raw[y * (w + 1) + 1 + x] + (y ? pixels[(y - 1) * w + x] : 0));
            free(raw);
        }
    }
    assert_non_null(pixels);
    assert_true(at == end);
    return pixels;
}

static void test_png(void **state)
{
    (void)state;
    enum { W = 700, H = 5 };
    static const uint8_t palette[256][3] = {{1, 2, 3}};
    uint8_t in[W * H];
    uint32_t x = 1;
    for (int i = 0; i < W * H; i++) { /* noise, and runs of every length */
        x = x * 1664525u + 1013904223u;
        in[i] = i < W ? (uint8_t)(x >> 24) : i < 3 * W ? (uint8_t)(i / 259) : 7;
    }
    base_buf file = {0};
    report_png_put(&file, in, W, H, palette, 256);
    uint32_t width, height;
    uint8_t *out = read_png(&file, &width, &height);
    assert_int_equal(width, W);
    assert_int_equal(height, H);
    assert_memory_equal(in, out, sizeof in);
    free(out);
    base_buf_free(&file);
}

/* ---- maps ------------------------------------------------------------------------------------ */

enum { MOST = 600 };
static float weights[MOST * MOST];
static const char *names[MOST];

static report_heatmap map_of(int rows, int cols)
{
    for (int i = 0; i < MOST; i++)
        names[i] = i % 2 ? "<b>" : "caf\xc3\xa9";
    for (int i = 0; i < rows * cols; i++)
        weights[i] = (float)(i * 7919LL % 1000) / 1000;
    return (report_heatmap){
        .weights = weights, .rows = rows, .cols = cols, .row_names = names, .col_names = names};
}

static base_buf draw(report_picture kind, const report_heatmap *m, const report_heatmap_grid *g,
                     int *together)
{
    base_buf out = {0};
    const report_heatmap_page page = {"model: layer 0, head 1", "a & b", *m, g};
    if (report_heatmap_write(&out, kind, &page, together) != BY_OK)
        fail_msg("%s", by_error_message());
    base_buf_put(&out, "", 1);
    out.size--;
    return out;
}

static void test_svg(void **state)
{
    (void)state;
    int together;
    const report_heatmap m = map_of(3, 3);
    const report_heatmap_grid g = {m, 2, 1, 4, "layer", "head"};
    base_buf out = draw(REPORT_PICTURE_SVG, &m, &g, &together);
    assert_int_equal(together, 1);
    assert_non_null(strstr(out.data, ">model: layer 0, head 1</text>"));
    assert_non_null(strstr(out.data, ">a &#38; b</text>"));
    assert_non_null(strstr(out.data, "crispEdges"));
    assert_null(strstr(out.data, "<image"));
    assert_non_null(strstr(out.data, ">0.25</text>")); /* the scale */
    assert_non_null(strstr(out.data, ">layer 5, head 0</text>"));
    assert_null(strstr(out.data, "layer 6"));
    assert_non_null(strstr(out.data, "width=\"960\"")); /* three tokens fill the page too: squares of 120 */
    assert_non_null(strstr(out.data, "width=\"119\" height=\"119\""));
    base_buf_free(&out);
}

/* The PNG has the squares of the SVG, each two pixels to a unit, of the level of its weight. */
static void test_png_of_a_map(void **state)
{
    (void)state;
    int together;
    uint32_t width, height;
    const report_heatmap m = map_of(4, 6);
    base_buf svg = draw(REPORT_PICTURE_SVG, &m, NULL, &together),
             png = draw(REPORT_PICTURE_PNG, &m, NULL, &together);
    uint8_t *pixels = read_png(&png, &width, &height);
    assert_int_equal(width, 2 * 960);
    int seen = 0;
    for (const char *at = svg.data; (at = strstr(at, "<rect x=\"")) != NULL; at++) {
        int x, y, w, h;
        unsigned colour;
        if (sscanf(at, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#%x\"><title>", &x, &y, &w,
                   &h, &colour) != 5 ||
            w != h)
            continue;
        const size_t corner = (size_t)(2 * y + 2) * width + (size_t)(2 * x + 2);
        assert_int_equal(pixels[corner], report_level_of((double)m.weights[seen]));
        assert_int_equal(pixels[(size_t)(2 * (y + h) - 1) * width + (size_t)(2 * (x + w) - 1)],
                         pixels[corner]);
        seen++;
    }
    assert_int_equal(seen, 24);
    free(pixels);
    base_buf_free(&svg);
    base_buf_free(&png);
}

/* More tokens and heads than can be seen are drawn coarser; a picture beyond all measure is refused. */
static void test_bounds(void **state)
{
    (void)state;
    int together;
    const report_heatmap m = map_of(MOST, MOST), small = map_of(20, 20);
    base_buf out = draw(REPORT_PICTURE_SVG, &m, NULL, &together);
    assert_int_equal(together, 4);
    assert_true(out.size < 3000000);
    base_buf_free(&out);
    const report_heatmap_grid g = {small, 30, 30, 0, "layer", "head"};
    out = draw(REPORT_PICTURE_SVG, &small, &g, &together);
    assert_int_equal(together, 1);
    assert_true(out.size < 12000000);
    base_buf_free(&out);
    const report_heatmap tiny = map_of(1, 1);
    const report_heatmap_grid many = {tiny, 255, 600, 0, "layer", "head"};
    const report_heatmap_page page = {"", "", tiny, &many};
    assert_int_equal(report_heatmap_write(&out, REPORT_PICTURE_PNG, &page, &together), BY_ERR_ARGUMENT);
    assert_non_null(strstr(by_error_message(), "too large"));
    base_buf_free(&out);
}

static void caption_is(const report_heatmap *m, const char *expected)
{
    char *c = report_heatmap_caption(m);
    assert_string_equal(c, expected);
    base_free(c);
}

static void test_captions(void **state)
{
    (void)state;
    static const char *const words[] = {" the", " cat", " sat", " down"};
    static const uint8_t dull[4] = {1, 0, 0, 0};
    float w[16] = {1, 0, 0, 0, 0.1f, 0.9f, 0, 0, 0.1f, 0.8f, 0.1f, 0, 0.1f, 0.1f, 0.7f, 0.1f};
    report_heatmap m = {w, 4, 4, words, words, NULL, true};
    caption_is(&m, "previous token 53 %");
    m.same = false;
    caption_is(&m, "down → sat 0.70"); /* not the → the 1.00, which is no choice */
    float sink[16] = {1, 0, 0, 0, 0.9f, 0.1f, 0, 0, 0.8f, 0.1f, 0.1f, 0, 0.7f, 0.1f, 0.1f, 0.1f};
    m.weights = sink;
    m.same = true;
    caption_is(&m, "first token 80 %");
    float even[16] = {1, 0, 0, 0, 0.45f, 0.55f, 0, 0, 0.3f, 0.3f, 0.4f, 0, 0.2f, 0.2f, 0.45f, 0.15f};
    m.weights = even;
    m.dull = dull;
    caption_is(&m, "down → sat 0.45");
}

/* The caption of the narrowest small map is broken into two lines rather than cut. */
static void test_narrow_captions(void **state)
{
    (void)state;
    enum { ACROSS = 16 };
    static const char *const words[] = {" the", " cat", " sat", " down"};
    const float one[16] = {1, 0, 0, 0, 0.1f, 0.9f, 0, 0, 0.1f, 0.8f, 0.1f, 0, 0.1f, 0.1f, 0.7f, 0.1f};
    float all[ACROSS * 16];
    for (int i = 0; i < ACROSS; i++)
        memcpy(all + i * 16, one, sizeof one);
    const report_heatmap m = {all, 4, 4, words, words, NULL, true};
    const report_heatmap_grid g = {m, 1, ACROSS, 0, "layer", "head"};
    int together;
    base_buf out = draw(REPORT_PICTURE_SVG, &m, &g, &together);
    base_buf_put(&out, "", 1);
    assert_non_null(strstr(out.data, ">previous token<"));
    assert_non_null(strstr(out.data, ">53 %<"));
    assert_null(strstr(out.data, "…"));
    base_buf_free(&out);
}

static void test_endings(void **state)
{
    (void)state;
    report_picture kind;
    assert_int_equal(report_picture_of("a/b.PNG", &kind), BY_OK);
    assert_int_equal(kind, REPORT_PICTURE_PNG);
    assert_int_equal(report_picture_of("x.svg", &kind), BY_OK);
    assert_int_equal(kind, REPORT_PICTURE_SVG);
    assert_int_equal(report_picture_of("x.jpg", &kind), BY_ERR_ARGUMENT);
    assert_int_equal(report_picture_of("svg", &kind), BY_ERR_ARGUMENT);
}

/* ---- what curves of a run show ----------------------------------------------------------------- */

static void add(report_history *h, const char *line)
{
    cJSON *json = base_json_parse(line, strlen(line), "line");
    assert_non_null(json);
    assert_int_equal(report_history_add_line(h, json), BY_OK);
    cJSON_Delete(json);
}

/* The metric is the first that decides; its unit follows from the metrics beside it. */
static void test_history(void **state)
{
    (void)state;
    static const struct {
        const char *metrics, *name, *label;
        double value;
    } cases[] = {
        {"\"eval_accuracy\": 0.5, \"eval_f1\": 0.4", "held-out accuracy", "accuracy (0 to 1)", 0.5},
        {"\"eval_f1\": 0.4, \"eval_precision\": 0.3, \"eval_accuracy\": 0.5", "held-out F1", "F1 (0 to 1)",
         0.4},
        {"\"eval_f1\": 60.5, \"eval_exact_match\": 50", "held-out F1", "F1 (%)", 60.5},
        {"\"eval_micro_f1\": 0.6, \"eval_macro_f1\": 0.4", "held-out micro F1", "micro F1 (0 to 1)", 0.6},
        {"\"eval_mse\": 4, \"eval_pearson\": -0.5", "held-out Pearson's r", "Pearson's r (-1 to 1)", -0.5},
        {"\"eval_perplexity\": 12", "held-out perplexity", "perplexity (per token)", 12},
        {"\"eval_next_accuracy\": 0.7", "held-out accuracy of pairs", "accuracy (0 to 1)", 0.7},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        report_history h = {0};
        add(&h, "{\"step\": 1, \"loss\": 3, \"ms\": 5}");
        report_curve c = report_history_curve(&h, "T", "nats per token");
        assert_int_equal(c.count, 1);
        assert_int_equal(c.panels[0].count, 1); /* nothing was evaluated */
        char line[256];
        snprintf(line, sizeof line, "{\"step\": 2, \"loss\": 2, \"eval_loss\": 2.5, %s}", cases[i].metrics);
        add(&h, line);
        c = report_history_curve(&h, "T", "nats per token");
        assert_string_equal(c.title, "T");
        assert_string_equal(c.x_label, "step");
        assert_int_equal(c.count, 2);
        assert_string_equal(c.panels[0].y_label, "loss (nats per token)");
        assert_int_equal(c.panels[0].count, 2);
        assert_int_equal(c.panels[0].series[0].count, 2);
        assert_float_equal(c.panels[0].series[1].y[0], 2.5, 0);
        assert_string_equal(c.panels[1].y_label, cases[i].label);
        assert_int_equal(c.panels[1].count, 1);
        assert_string_equal(c.panels[1].series->name, cases[i].name);
        assert_int_equal(c.panels[1].series->count, 1);
        assert_float_equal(c.panels[1].series->x[0], 2, 0);
        assert_float_equal(c.panels[1].series->y[0], cases[i].value, 0);
        report_history_free(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_png),          cmocka_unit_test(test_svg),
        cmocka_unit_test(test_png_of_a_map), cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_captions),     cmocka_unit_test(test_narrow_captions),
        cmocka_unit_test(test_endings),      cmocka_unit_test(test_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
