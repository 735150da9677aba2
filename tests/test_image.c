/* test_image.c - pictures: files written and read back, damage, sizes, processors. That decoded and prepared pictures equal
 * the reference's is checked by `banyan verify` on recorded ones (test_parity.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/image.h"
#include "base/file.h"

static char folder[256];

static int make_folder(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/banyan-image-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return base_dir_remove(folder) == BY_OK ? 0 : -1;
}

static const char *at(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* A picture in which every sample is random. */
static by_image *noise(int width, int height, by_pixels format)
{
    by_image *m = by_image_new(width, height, format);
    base_rng r = base_rng_make(3, (uint64_t)format);
    assert_non_null(m);
    for (int i = 0; i < width * height * m->channels; i++)
        ((uint8_t *)m->pixels)[i] = (uint8_t)base_rng_u32(&r);
    return m;
}

static void assert_same(const by_image *a, const by_image *b)
{
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->height, b->height);
    assert_int_equal(a->format, b->format);
    assert_memory_equal(a->pixels, b->pixels, (size_t)(a->width * a->height * a->channels));
}

static bool reads_png(void)
{
    return strstr(by_image_formats(), "png") != NULL;
}

static void test_write_and_read(void **state)
{
    static const by_pixels formats[] = {BY_PIXELS_RGB, BY_PIXELS_GREY, BY_PIXELS_GREY_ALPHA, BY_PIXELS_RGBA};
    (void)state;
    for (int i = 0; i < BY_COUNT(formats); i++) {
        by_image *m = noise(37, 21, formats[i]);
        if (!reads_png()) {
            assert_int_equal(by_image_write_png(m, at("x.png")), BY_ERR_UNSUPPORTED);
            by_image_free(m);
            continue;
        }
        assert_int_equal(by_image_write_png(m, at("x.png")), BY_OK);
        by_image *back = by_image_open(at("x.png"), &(by_image_spec){.format = BY_PIXELS_NATIVE});
        assert_non_null(back);
        assert_same(m, back);
        by_image_free(m);
        by_image_free(back);
    }
}

/* Any prefix of a file, and any byte of it changed, ends in a picture of that size or in an error. */
static void test_damage(void **state)
{
    (void)state;
    if (!reads_png())
        skip();
    by_image *m = noise(9, 5, BY_PIXELS_RGB);
    size_t size;
    assert_int_equal(by_image_write_png(m, at("x.png")), BY_OK);
    char *bytes = base_file_read(at("x.png"), 1 << 20, &size);
    assert_non_null(bytes);
    for (size_t n = 0; n + 12 < size; n++) { /* the last chunk may be missing */
        by_image *cut = by_image_decode(bytes, n, NULL);
        assert_null(cut);
    }
    for (size_t n = 0; n < size; n++) {
        bytes[n] ^= 0x41;
        by_image_free(by_image_decode(bytes, size, &(by_image_spec){.max_pixels = 10000}));
        bytes[n] ^= 0x41;
    }
    base_free(bytes);
    by_image_free(m);
}

/* A GIF of one pixel is read; one with codes of any other number of bits than LZW has is refused. */
static void test_gif_codes(void **state)
{
    (void)state;
    uint8_t gif[] = {'G', 'I', 'F', '8', '9', 'a', 1, 0, 1, 0, 0x80, 0, 0, 10,   20, 30, 40, 50,
                     60,  ',', 0,   0,   0,   0,   1, 0, 1, 0, 0,    2, 2, 0x4c, 1,  0,  ';'};
    by_image *m = by_image_decode(gif, sizeof gif, NULL);
    assert_non_null(m);
    assert_memory_equal(m->pixels, "\x28\x32\x3c", 3);
    by_image_free(m);
    for (int bits = 0; bits < 256; bits++) {
        gif[29] = (uint8_t)bits;
        m = by_image_decode(gif, sizeof gif, NULL);
        assert_true(m ? bits >= 1 && bits <= 8 : base_error_status() == BY_ERR_FORMAT);
        by_image_free(m);
    }
}

/* A file of 2 x 1 pixels, red and blue, whose EXIF chunk says that it is to be turned by a quarter. */
static void test_webp_orientation(void **state)
{
    (void)state;
    uint8_t file[] = {82, 73, 70, 70, 82, 0,  0,  0,  87, 69,  66,  80,  86,  80, 56, 88, 10,  0,
                      0,  0,  8,  0,  0,  0,  1,  0,  0,  0,   0,   0,   86,  80, 56, 76, 17,  0,
                      0,  0,  47, 1,  0,  0,  0,  15, 16, 243, 191, 255, 243, 31, 14, 50, 162, 255,
                      1,  0,  69, 88, 73, 70, 26, 0,  0,  0,   73,  73,  42,  0,  8,  0,  0,   0,
                      1,  0,  18, 1,  3,  0,  1,  0,  0,  0,   6,   0,   0,   0,  0,  0,  0,   0};
    if (!strstr(by_image_formats(), "webp"))
        return;
    by_image *m = by_image_decode(file, sizeof file, &(by_image_spec){.upright = true});
    assert_non_null(m);
    assert_int_equal(m->width * 10 + m->height, 12);
    assert_memory_equal(m->pixels, "\xff\0\0\0\0\xff", 6);
    by_image_free(m);
    file[76] = 4; /* the number is a LONG */
    m = by_image_decode(file, sizeof file, &(by_image_spec){.upright = true});
    assert_non_null(m);
    assert_int_equal(m->height, 2);
    by_image_free(m);
    static const uint8_t tiff[] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 4, 0, 0, 0, 1, 0, 0, 0, 6};
    memset(file + 64, 0, sizeof file - 64);
    memcpy(file + 64, tiff, sizeof tiff);
    m = by_image_decode(file, sizeof file, &(by_image_spec){.upright = true});
    assert_non_null(m);
    assert_int_equal(m->height, 2);
    by_image_free(m);
    file[77] = 1; /* bytes name no orientation */
    m = by_image_decode(file, sizeof file, &(by_image_spec){.upright = true});
    assert_non_null(m);
    assert_int_equal(m->height, 1);
    by_image_free(m);
    for (size_t n = 0; n < sizeof file; n++) /* a cut file is an error or the same picture */
        by_image_free(by_image_decode(file, n, &(by_image_spec){.upright = true}));
}

/* Two frames on a canvas of 4 x 3 pixels, of which the first has 2 x 1, at (2, 2). */
static void test_animated_webp(void **state)
{
    (void)state;
    uint8_t file[] = {82,  73,  70, 70, 134, 0,  0,   0,   87,  69, 66,  80,  86, 80,  56,  88,  10,  0,
                      0,   0,   2,  0,  0,   0,  3,   0,   0,   2,  0,   0,   65, 78,  73,  77,  6,   0,
                      0,   0,   0,  0,  0,   0,  0,   0,   65,  78, 77,  70,  42, 0,   0,   0,   1,   0,
                      0,   1,   0,  0,  1,   0,  0,   0,   0,   0,  0,   0,   0,  2,   86,  80,  56,  76,
                      17,  0,   0,  0,  47,  1,  0,   0,   0,   7,  80,  138, 42, 212, 163, 255, 129, 136,
                      232, 127, 0,  0,  65,  78, 77,  70,  40,  0,  0,   0,   1,  0,   0,   1,   0,   0,
                      0,   0,   0,  0,  0,   0,  0,   0,   0,   0,  86,  80,  56, 76,  16,  0,   0,   0,
                      47,  0,   0,  0,  0,   7,  144, 213, 170, 64, 255, 3,   17, 209, 255, 0};
    if (!strstr(by_image_formats(), "webp"))
        return;
    by_image *m = by_image_decode(file, sizeof file, NULL);
    assert_non_null(m);
    assert_int_equal(m->width * 10 + m->height, 43);
    for (int i = 0; i < 30; i++)
        assert_int_equal(((uint8_t *)m->pixels)[i], 0);
    assert_memory_equal((uint8_t *)m->pixels + 30, ((const uint8_t[]){10, 20, 30, 10, 20, 30}), 6);
    by_image_free(m);
    for (size_t n = 0; n < sizeof file; n++)
        by_image_free(by_image_decode(file, n, NULL));
    file[52] = 2; /* the frame sticks out of the canvas */
    assert_null(by_image_decode(file, sizeof file, NULL));
    assert_int_equal(base_error_status(), BY_ERR_FORMAT);
}

/* A first frame at (1, 0) of a canvas of one pixel: the canvas becomes wider, as in Pillow. */
static void test_gif_canvas(void **state)
{
    (void)state;
    static const uint8_t gif[] = {'G', 'I', 'F', '8', '9', 'a', 1, 0, 1, 0, 0x80, 0, 0, 10,   20, 30, 40, 50,
                                  60,  ',', 1,   0,   0,   0,   1, 0, 1, 0, 0,    2, 2, 0x4c, 1,  0,  ';'};
    by_image *m = by_image_decode(gif, sizeof gif, NULL);
    assert_non_null(m);
    assert_int_equal(m->width * 10 + m->height, 21);
    assert_memory_equal(m->pixels, "\x0a\x14\x1e\x28\x32\x3c", 6);
    by_image_free(m);
    assert_null(by_image_decode(gif, sizeof gif, &(by_image_spec){.max_pixels = 1}));
}

/* A black and a white pixel of one bit; white is transparent. */
static void test_transparent_bit(void **state)
{
    (void)state;
    static const uint8_t png[] = {
        137, 80, 78,  71,  13,  10,  26, 10, 0,   0,  0,  13, 73, 72,  68,  82, 0,   0,  0,  2,  0,
        0,   0,  1,   1,   0,   0,   0,  0,  220, 89, 66, 39, 0,  0,   0,   2,  116, 82, 78, 83, 0,
        1,   1,  148, 253, 174, 0,   0,  0,  10,  73, 68, 65, 84, 120, 156, 99, 112, 0,  0,  0,  66,
        0,   65, 41,  55,  244, 239, 0,  0,  0,   0,  73, 69, 78, 68,  174, 66, 96,  130};
    if (!reads_png())
        return;
    by_image *m = by_image_decode(png, sizeof png, &(by_image_spec){.format = BY_PIXELS_RGBA});
    assert_non_null(m);
    assert_memory_equal(m->pixels, "\0\0\0\xff\xff\xff\xff\0", 8);
    by_image_free(m);
}

static void test_limits(void **state)
{
    (void)state;
    if (!reads_png())
        skip();
    by_image *m = noise(40, 30, BY_PIXELS_GREY);
    assert_int_equal(by_image_write_png(m, at("x.png")), BY_OK);
    by_image *back = by_image_open(at("x.png"), &(by_image_spec){.max_pixels = 1200});
    assert_non_null(back);
    by_image_free(back);
    assert_null(by_image_open(at("x.png"), &(by_image_spec){.max_pixels = 1199}));
    assert_non_null(strstr(by_error_message(), "40 x 30 pixels; at most 1199"));
    assert_null(by_image_open(at("none.png"), NULL));
    assert_null(by_image_decode(NULL, 0, NULL));
    assert_null(by_image_open(NULL, NULL));
    by_image_free(m);
}

/* Values of Pillow 13, which begins with the vertical pass in the first case and with the horizontal one in the second. */
static void test_order_of_passes(void **state)
{
    (void)state;
    static const uint8_t down[] = {177, 161, 148, 137, 97, 62,  136, 99,  157,
                                   161, 126, 187, 73,  99, 123, 99,  140, 242};
    static const uint8_t across[] = {89, 101, 232, 119, 135, 106, 101, 213, 74, 141, 120, 149};
    by_image *m = by_image_new(5, 8, BY_PIXELS_GREY);
    assert_non_null(m);
    for (int i = 0; i < 40; i++)
        ((uint8_t *)m->pixels)[i] = (uint8_t)(i * 97 + i * i * 31);
    by_image *a = by_image_resize(m, 6, 3, BY_FILTER_LANCZOS),
             *b = by_image_resize(m, 2, 6, BY_FILTER_LANCZOS);
    assert_non_null(a);
    assert_non_null(b);
    assert_memory_equal(a->pixels, down, sizeof down);
    assert_memory_equal(b->pixels, across, sizeof across);
    by_image_free(a);
    by_image_free(b);
    by_image_free(m);
}

/* A picture of one colour keeps it in every size; the same size is a copy. */
static void test_resize(void **state)
{
    (void)state;
    by_image *flat = by_image_new(13, 7, BY_PIXELS_RGB), *m = noise(13, 7, BY_PIXELS_RGB);
    assert_non_null(flat);
    memset(flat->pixels, 77, 13 * 7 * 3);
    for (int filter = BY_FILTER_NEAREST; filter <= BY_FILTER_HAMMING; filter++)
        for (int size = 1; size < 40; size += 6) {
            by_image *to = by_image_resize(flat, size, 41 - size, (by_filter)filter);
            assert_non_null(to);
            for (int i = 0; i < to->width * to->height * 3; i++)
                assert_int_equal(((uint8_t *)to->pixels)[i], 77);
            by_image_free(to);
        }
    by_image *same = by_image_resize(m, 13, 7, BY_FILTER_BICUBIC);
    assert_same(m, same);
    by_image_free(same);
    assert_null(by_image_resize(m, 0, 7, BY_FILTER_BICUBIC));
    assert_null(by_image_resize(m, 5, 5, (by_filter)17));
    by_image_free(flat);
    by_image_free(m);
}

static void test_crop(void **state)
{
    (void)state;
    by_image *m = noise(6, 4, BY_PIXELS_RGB), *part = by_image_crop(m, -2, 1, 5, 9);
    assert_non_null(part);
    for (int y = 0; y < 9; y++)
        for (int x = 0; x < 5; x++)
            for (int c = 0; c < 3; c++) {
                const int from_x = x - 2, from_y = y + 1;
                const bool inside = from_x >= 0 && from_x < 6 && from_y < 4;
                assert_int_equal(((uint8_t *)part->pixels)[(y * 5 + x) * 3 + c],
                                 inside ? ((uint8_t *)m->pixels)[(from_y * 6 + from_x) * 3 + c] : 0);
            }
    by_image_free(m);
    by_image_free(part);
}

static by_processor *processor(const char *json)
{
    assert_int_equal(base_file_write(at("preprocessor_config.json"), json, strlen(json)), BY_OK);
    return by_processor_open(folder);
}

/* Old and new spellings of the same processor. */
static void test_processor(void **state)
{
    static const char *const spellings[] = {
        "{\"feature_extractor_type\": \"CLIPFeatureExtractor\", \"size\": 8, \"crop_size\": 6, \"resample\": "
        "3}",
        "{\"image_processor_type\": \"CLIPImageProcessorFast\", \"size\": {\"shortest_edge\": 8}, "
        "\"crop_size\": {\"height\": 6, \"width\": 6}}"};
    by_image *m = noise(20, 11, BY_PIXELS_RGB);
    by_prepared x[2];
    int height, width;
    (void)state;
    for (int i = 0; i < 2; i++) {
        by_processor *p = processor(spellings[i]);
        assert_non_null(p);
        by_processor_size(p, &height, &width);
        assert_int_equal(height * 100 + width, 606);
        assert_int_equal(by_processor_apply(p, m, &x[i]), BY_OK);
        by_processor_free(p);
    }
    assert_memory_equal(x[0].values, x[1].values, 3 * 36 * sizeof(float));
    by_prepared_free(&x[0]);
    by_prepared_free(&x[1]);
    by_image_free(m);
}

static void assert_prepared(const char *json, const by_image *m, int width, int height, double first)
{
    by_processor *p = processor(json);
    by_prepared x;
    assert_non_null(p);
    assert_int_equal(by_processor_apply(p, m, &x), BY_OK);
    assert_int_equal(x.width, width);
    assert_int_equal(x.height, height);
    assert_float_equal(x.values[0], first, 1e-6);
    by_prepared_free(&x);
    by_processor_free(p);
}

/* What the reference does where a file says nothing, and with a limit to the longer side: 50 * 20 / 44 is 22.7. */
static void test_processor_rules(void **state)
{
    (void)state;
    by_image *m = by_image_new(20, 44, BY_PIXELS_RGB);
    assert_non_null(m);
    assert_prepared("{\"image_processor_type\": \"DeiTImageProcessor\", \"size\": 12, \"crop_size\": 8}", m,
                    8, 8, -1);
    assert_prepared("{\"size\": {\"shortest_edge\": 30, \"longest_edge\": 50}}", m, 23, 50, -1);
    assert_prepared("{\"size\": {\"shortest_edge\": 30, \"longest_edge\": 66}}", m, 30, 66, -1);
    by_image_free(m);
}

/* Settings inside processor_config.json come before those of preprocessor_config.json; a file of another kind is no matter. */
static void test_nested_processor(void **state)
{
    (void)state;
    static const char nested[] = "{\"image_processor\": {\"size\": 5, \"image_mean\": [0.25, 0.25, 0.25]}, "
                                 "\"processor_class\": \"X\"}",
                      other[] = "{\"processor_class\": \"X\"}", cut[] = "{\"image_processor\": ";
    const char *const files[] = {nested, other, cut};
    for (int i = 0; i < BY_COUNT(files); i++) {
        int height, width;
        assert_int_equal(base_file_write(at("processor_config.json"), files[i], strlen(files[i])), BY_OK);
        by_processor *p = processor("{\"size\": 7}");
        assert_int_equal(!p, i == 2);
        if (p)
            by_processor_size(p, &height, &width);
        assert_true(!p || height == (i == 0 ? 5 : 7));
        by_processor_free(p);
    }
    assert_int_equal(unlink(at("processor_config.json")), 0);
}

/* The reference normalises before it looks for colours. */
static void test_saved_palette(void **state)
{
    static const char plain[] =
        "{\"image_processor_type\": \"ImageGPTImageProcessor\", \"size\": 4, \"clusters\": "
        "[[-1,-1,-1],[0.1,0.5,1]]}";
    size_t size;
    (void)state;
    by_processor *p = processor(plain);
    assert_non_null(p);
    assert_int_equal(by_processor_save(p, folder), BY_OK);
    by_processor_free(p);
    char *text = base_file_read(at("preprocessor_config.json"), 1 << 20, &size);
    assert_non_null(text);
    const char *factor = strstr(text, "\"rescale_factor\":");
    assert_non_null(factor);
    assert_float_equal(strtod(factor + 17, NULL), 1.0 / 255, 1e-9);
    assert_null(strstr(text, "rescale_offset"));
    base_free(text);
    p = processor(
        "{\"rescale_factor\": 0.00784313725490196, \"rescale_offset\": true, \"clusters\": [[0, 0, 0]]}");
    assert_non_null(p); /* earlier files */
    by_processor_free(p);
}

static void test_bad_processors(void **state)
{
    static const char *const bad[] = {
        "{\"size\": 8, \"do_pad\": true, \"pad_size\": {\"height\": 9, \"width\": 9}}",
        "{\"clusters\": [[0, 0, 0]], \"image_mean\": [0.4, 0.5, 0.5]}",
        "{\"clusters\": [[0, 0, 0]], \"do_normalize\": false}",
        "{\"size\": -1}",
        "{\"size\": {}}",
        "{\"image_std\": [0, 1, 1]}",
        "{\"resample\": 9}",
        "{\"do_color_quantize\": true}",
        "{\"clusters\": [[1, 2]]}",
        "[",
        "{\"size\": [1, \"x\"]}"};
    (void)state;
    for (int i = 0; i < BY_COUNT(bad); i++)
        assert_null(processor(bad[i]));
}

/* A processor that is written and read again prepares the same values, also for grey pictures. */
static void test_saved_processor(void **state)
{
    static const char *const files[] = {
        "{\"image_processor_type\": \"DeiTImageProcessor\", \"size\": 12, \"crop_size\": 8}",
        "{\"image_processor_type\": \"CLIPImageProcessor\", \"size\": {\"shortest_edge\": 9}, \"crop_size\": "
        "7}",
        "{\"size\": 8, \"image_mean\": [0.25], \"image_std\": [0.5]}",
        "{\"image_processor_type\": \"ImageGPTImageProcessor\", \"size\": 4, \"clusters\": "
        "[[-1,-1,-1],[0.1,0.5,1]]}"};
    (void)state;
    for (int i = 0; i < BY_COUNT(files); i++) {
        by_image *m = noise(17, 13, i == 0 ? BY_PIXELS_GREY : BY_PIXELS_RGB);
        by_processor *p = processor(files[i]);
        by_prepared x[2];
        assert_non_null(p);
        assert_int_equal(by_processor_channels(p), i == 2 ? 1 : 3);
        assert_int_equal(by_processor_apply(p, m, &x[0]), BY_OK);
        assert_int_equal(by_processor_save(p, folder), BY_OK);
        by_processor_free(p);
        p = by_processor_open(folder);
        assert_non_null(p);
        assert_int_equal(by_processor_apply(p, m, &x[1]), BY_OK);
        const size_t n = (size_t)(x[0].channels * x[0].height * x[0].width);
        assert_int_equal(x[0].channels, x[1].channels);
        if (x[0].values)
            assert_memory_equal(x[0].values, x[1].values, n * sizeof(float));
        else
            assert_memory_equal(x[0].ids, x[1].ids, n * sizeof(int32_t));
        by_prepared_free(&x[0]);
        by_prepared_free(&x[1]);
        by_processor_free(p);
        by_image_free(m);
    }
}

static void test_processor_size(void **state)
{
    (void)state;
    int height, width;
    by_processor *p =
        processor("{\"image_processor_type\": \"DeiTImageProcessor\", \"size\": 256, \"crop_size\": 224}");
    assert_int_equal(by_processor_set_size(p, 384, 384), BY_OK);
    by_processor_size(p, &height, &width);
    assert_int_equal(height, 384);
    by_image *m = noise(500, 439, BY_PIXELS_RGB), *shaped = by_processor_shape(p, m);
    by_image *sized = by_image_resize(m, 439, 439, BY_FILTER_BICUBIC); /* 256 * 384 / 224 */
    by_image *cut = by_image_crop(sized, 27, 27, 384, 384);
    assert_same(shaped, cut);
    by_image_free(m);
    by_image_free(shaped);
    by_image_free(sized);
    by_image_free(cut);
    by_processor_free(p);
    p = by_processor_new(&(by_processor_spec){.channels = 1, .height = 2, .width = 2});
    by_image *grey = by_image_new(2, 2, BY_PIXELS_GREY);
    float values[4];
    ((uint8_t *)grey->pixels)[3] = 255;
    assert_int_equal(by_processor_values(p, grey, values), BY_OK);
    assert_true(values[0] == -1 && values[3] == 1);
    by_image_free(grey);
    by_processor_free(p);
    assert_null(by_processor_new(&(by_processor_spec){.channels = 2, .height = 2, .width = 2}));
}

/* The usual processor of a type is what a file makes that says nothing but its type and the size. */
static void test_processor_types(void **state)
{
    (void)state;
    static const char *const types[] = {"ViT", "DeiT", "CLIP"};
    static const char *const sizes[] = {"\"size\": 56", "\"size\": 64, \"crop_size\": 56",
                                        "\"size\": 56, \"crop_size\": 56"};
    for (int i = 0; i < BY_COUNT(types); i++) {
        char json[200];
        snprintf(json, sizeof json, "{\"image_processor_type\": \"%sImageProcessor\", %s}", types[i],
                 sizes[i]);
        by_processor *p[2] = {processor(json),
                              by_processor_new(&(by_processor_spec){
                                  .channels = 3, .height = 56, .width = 56, .type = types[i]})};
        by_prepared x[2];
        by_image *m = noise(90, 71, BY_PIXELS_RGB);
        for (int k = 0; k < 2; k++) {
            assert_non_null(p[k]);
            assert_int_equal(by_processor_apply(p[k], m, &x[k]), BY_OK);
            assert_int_equal(x[k].height * x[k].width, 56 * 56);
        }
        assert_memory_equal(x[0].values, x[1].values, sizeof(float) * 3 * 56 * 56);
        for (int k = 0; k < 2; k++) {
            by_prepared_free(&x[k]);
            by_processor_free(p[k]);
        }
        by_image_free(m);
    }
    assert_null(
        by_processor_new(&(by_processor_spec){.channels = 3, .height = 8, .width = 8, .type = "Swin"}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_and_read),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_gif_codes),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_order_of_passes),
        cmocka_unit_test(test_crop),
        cmocka_unit_test(test_processor),
        cmocka_unit_test(test_processor_types),
        cmocka_unit_test(test_bad_processors),
        cmocka_unit_test(test_saved_processor),
        cmocka_unit_test(test_processor_size),
        cmocka_unit_test(test_webp_orientation),
        cmocka_unit_test(test_gif_canvas),
        cmocka_unit_test(test_animated_webp),
        cmocka_unit_test(test_transparent_bit),
        cmocka_unit_test(test_processor_rules),
        cmocka_unit_test(test_saved_palette),
        cmocka_unit_test(test_nested_processor),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
