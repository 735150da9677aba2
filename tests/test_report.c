/* test_report.c - event files and curves, read back from real files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "io_case.h"
#include "report/curve.h"
#include "report/events.h"

/* ---- event files: read back by the definition of the format, bit by bit ---------------------- */

static uint32_t crc_bitwise(const uint8_t *p, size_t n)
{
    uint32_t crc = ~0u;
    while (n--) {
        crc ^= *p++;
        for (int i = 0; i < 8; i++)
            crc = (crc & 1) ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

static uint32_t crc_stored(const uint8_t *p, size_t n)
{
    uint32_t crc = crc_bitwise(p, n);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static uint64_t little(const uint8_t *p, int n)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

typedef struct field {
    int number, type;
    uint64_t value; /* a number, or the length of bytes */
    const uint8_t *bytes;
} field;

static uint64_t take_varint(const uint8_t **p, const uint8_t *end)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        assert_true(*p < end);
        uint8_t b = *(*p)++;
        v |= (uint64_t)(b & 127) << shift;
        if (b < 128)
            return v;
    }
    fail();
    return 0;
}

static field take_field(const uint8_t **p, const uint8_t *end)
{
    uint64_t key = take_varint(p, end);
    field f = {.number = (int)(key >> 3), .type = (int)(key & 7)};
    if (f.type == 0) {
        f.value = take_varint(p, end);
        return f;
    }
    f.value = f.type == 2 ? take_varint(p, end) : f.type == 1 ? 8 : 4;
    assert_true(f.type == 1 || f.type == 2 || f.type == 5);
    assert_true(f.value <= (uint64_t)(end - *p));
    f.bytes = *p;
    *p += f.value;
    if (f.type != 2)
        f.value = little(f.bytes, (int)f.value);
    return f;
}

/* The record at *p with its checksums verified; moves behind it. */
static const uint8_t *take_record(const uint8_t **p, const uint8_t *end, size_t *size)
{
    assert_true(end - *p >= 16);
    *size = (size_t)little(*p, 8);
    assert_true(*size <= (size_t)(end - *p) - 16);
    assert_int_equal(little(*p + 8, 4), crc_stored(*p, 8));
    const uint8_t *record = *p + 12;
    assert_int_equal(little(record + *size, 4), crc_stored(record, *size));
    *p = record + *size + 4;
    return record;
}

static void check_scalar(const uint8_t *r, size_t size, int64_t step, const char *tag, float value)
{
    const uint8_t *end = r + size;
    field time = take_field(&r, end), number = take_field(&r, end), summary = take_field(&r, end);
    assert_ptr_equal(r, end);
    double wall;
    memcpy(&wall, time.bytes, 8);
    assert_true(time.number == 1 && time.type == 1 && wall > 1.6e9 && wall < 1e11);
    assert_true(number.number == 2 && number.type == 0 && (int64_t)number.value == step);
    assert_true(summary.number == 5 && summary.type == 2);
    end = summary.bytes + summary.value;
    field item = take_field(&summary.bytes, end);
    assert_true(item.number == 1 && item.type == 2 && summary.bytes == end);
    end = item.bytes + item.value;
    field name = take_field(&item.bytes, end), simple = take_field(&item.bytes, end);
    assert_ptr_equal(item.bytes, end);
    assert_true(name.number == 1 && name.type == 2 && name.value == strlen(tag));
    assert_memory_equal(name.bytes, tag, name.value);
    uint32_t bits = (uint32_t)simple.value;
    float got;
    memcpy(&got, &bits, 4);
    assert_true(simple.number == 2 && simple.type == 5);
    assert_true(got == value || (isnan(got) && isnan(value)));
}

static void test_events(void **state)
{
    (void)state;
    uint8_t ones[32];
    memset(ones, 0xff, sizeof ones);
    assert_int_equal(crc_bitwise((const uint8_t *)"123456789", 9), 0xe3069283u);
    assert_int_equal(crc_bitwise(ones, 32), 0x62a8ab43u); /* RFC 3720, B.4 */

    report_events *e = report_events_open(in_folder("logs/run"));
    assert_non_null(e);
    report_events *second = report_events_open(in_folder("logs/run"));
    assert_non_null(second);
    assert_string_not_equal(report_events_path(e), report_events_path(second));
    assert_int_equal(report_events_close(second), BY_OK);
    assert_non_null(strstr(report_events_path(e), "/events.out.tfevents."));

    static char tag[300];
    memset(tag, 'x', sizeof tag - 1);
    assert_int_equal(report_events_scalar(e, 0, "train/loss", 10.5), BY_OK);
    assert_int_equal(report_events_scalar(e, 300, "train/loss", NAN), BY_OK);
    assert_int_equal(report_events_scalar(e, INT64_C(1) << 40, tag, -0.125), BY_OK);
    assert_int_equal(report_events_flush(e), BY_OK);
    size_t size;
    char *text = base_file_read(report_events_path(e), 1 << 20, &size);
    assert_non_null(text);
    assert_int_equal(report_events_close(e), BY_OK);
    assert_int_equal(report_events_close(NULL), BY_OK);

    const uint8_t *p = (const uint8_t *)text, *end = p + size;
    size_t n;
    const uint8_t *r = take_record(&p, end, &n), *stop = r + n;
    assert_int_equal(take_field(&r, stop).number, 1);
    field version = take_field(&r, stop);
    assert_true(version.number == 3 && version.type == 2 && version.value == 13 && r == stop);
    assert_memory_equal(version.bytes, "brain.Event:2", 13);
    r = take_record(&p, end, &n);
    check_scalar(r, n, 0, "train/loss", 10.5f);
    r = take_record(&p, end, &n);
    check_scalar(r, n, 300, "train/loss", NAN);
    r = take_record(&p, end, &n);
    check_scalar(r, n, INT64_C(1) << 40, tag, -0.125f);
    assert_ptr_equal(p, end);
    base_free(text);

    write_text("plain", "x");
    assert_null(report_events_open(in_folder("plain/sub")));
}

static void test_events_disk_full(void **state)
{
    (void)state;
    report_events *e = report_events_open(in_folder("full"));
    assert_non_null(e);
    /* Every write to the stream fails from here on, as on a full disk: the descriptor leads to /dev/full. */
    char link[64], target[1024];
    int fd = -1;
    for (int i = 3; i < 64 && fd < 0; i++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", i);
        ssize_t n = readlink(link, target, sizeof target - 1);
        if (n > 0 && (target[n] = '\0', strstr(target, "tfevents")))
            fd = i;
    }
    FILE *full = fopen("/dev/full", "wb");
    if (fd < 0 || !full) {
        if (full)
            fclose(full);
        report_events_close(e);
        skip();
    }
    assert_int_equal(dup2(fileno(full), fd), fd);
    fclose(full);
    assert_int_equal(report_events_scalar(e, 1, "a", 1), BY_OK);
    assert_int_equal(report_events_flush(e), BY_ERR_IO);
    assert_failed(BY_ERR_IO, "tfevents");
    assert_int_equal(report_events_scalar(e, 2, "a", 1), BY_ERR_IO);
    assert_failed(BY_ERR_IO, "earlier error");
    report_events_close(e);
}

/* ---- curves ---------------------------------------------------------------------------------- */

static size_t occurrences(const char *text, const char *what)
{
    size_t n = 0;
    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

static char *svg_of(const report_curve *c)
{
    assert_int_equal(report_curve_svg(in_folder("c.svg"), c), BY_OK);
    char *text = base_file_read(in_folder("c.svg"), 4 << 20, NULL);
    assert_non_null(text);
    assert_int_equal(occurrences(text, "<svg"), 1);
    assert_int_equal(occurrences(text, "<g"), occurrences(text, "</g>"));
    assert_int_equal(occurrences(text, "<text"), occurrences(text, "</text>"));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    return text;
}

/* One panel: as many lines as a plot has, and after the legend none wider than the width. */
static void check_text(const report_curve *c, int width)
{
    char *text = report_curve_text(c, width);
    assert_non_null(text);
    int lines = 0, columns = 0;
    for (const char *p = text; *p; p++)
        if (*p == '\n') {
            lines++;
            columns = 0;
        } else if (((unsigned char)*p & 0xc0) != 0x80) {
            assert_true(++columns <= BY_MAX(width, 24) || lines == 0);
        }
    assert_int_equal(lines, 1 + 10 + 3);
    base_free(text);
}

/* The first path of a class, from its d=" on. */
static const char *path_of(const char *svg, const char *class)
{
    const char *path = strstr(svg, class);
    assert_non_null(path);
    return strstr(path, " d=\"") + 4;
}

static void test_curve_small(void **state)
{
    (void)state;
    report_curve_panel p = {.y_label = "loss"};
    report_curve c = {.title = "a < b & c", .x_label = "step", .panels = &p, .count = 1};
    char *text = svg_of(&c);
    assert_non_null(strstr(text, "no data yet"));
    assert_int_equal(occurrences(text, "a &#60; b &#38; c"), 2); /* shown, and for screen readers */
    base_free(text);
    check_text(&c, 40);

    double x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8] = {5, NAN, 4, INFINITY, -1e308, 3, 2.5, 2};
    report_curve_series s = {.name = "loss", .x = x, .y = y, .count = 1};
    p.series = &s;
    p.count = 1;
    text = svg_of(&c);
    assert_null(strstr(text, "no data yet"));
    base_free(text);
    check_text(&c, 60);

    /* Points that are not finite are left out: 5 4 3 2.5 2. */
    s.count = 8;
    text = svg_of(&c);
    size_t moves = 0, lines = 0;
    for (const char *path = path_of(text, "<path class=\"line\""); *path != '"'; path++) {
        moves += *path == 'M';
        lines += *path == 'L';
    }
    assert_int_equal(moves, 1);
    assert_int_equal(lines, 4);
    base_free(text);
    check_text(&c, 60);
    check_text(&c, -5);

    /* Only NaN; equal values; equal values of 0; a value too small to divide by. */
    double same[3] = {2, 2, 2}, bad[3] = {NAN, NAN, NAN}, zero[3] = {0, 0, 0}, tiny[1] = {1e-310};
    report_curve_series odd[] = {{.name = "bad", .x = x, .y = bad, .count = 3},
                                 {.name = "same", .x = same, .y = same, .count = 3, .exact = true},
                                 {.name = "zero", .x = zero, .y = zero, .count = 3},
                                 {.name = "tiny", .x = x, .y = tiny, .count = 1}};
    for (int i = 0; i < BY_COUNT(odd); i++) {
        p.series = &odd[i];
        base_free(svg_of(&c));
        check_text(&c, 30);
    }
}

static void assert_ticks(const char *svg, const char *const *expected, int count)
{
    for (int i = 0; i < count; i++)
        if (!strstr(svg, expected[i]))
            fail_msg("no tick %s", expected[i]);
}

/* Both axes logarithmic: ticks at powers of two, points that are not positive left out, names on several lines. */
static void test_curve_logarithmic(void **state)
{
    (void)state;
    enum { SERIES = 9 };
    double x[5] = {1024, 2048, 4096, 8192, 16384}, y[5] = {0.25, 1, 0, 16, 64};
    report_curve_series s[SERIES], more = {.x = x, .y = y, .count = 5, .exact = true};
    for (int i = 0; i < SERIES; i++)
        s[i] = (report_curve_series){.name = "longformer", .x = x, .y = y, .count = 5, .exact = true};
    report_curve_panel p[] = {{.y_label = "ms", .series = s, .count = SERIES},
                              {.y_label = "MiB", .series = &more, .count = 1}};
    report_curve c = {.x_label = "tokens", .panels = p, .count = 2, .logarithmic = true};
    char *text = svg_of(&c);
    static const char *const ticks[] = {">1k<", ">2k<", ">4k<", ">8k<", ">16k<", ">0.25<", ">64<"};
    assert_ticks(text, ticks, BY_COUNT(ticks));
    assert_int_equal(occurrences(text, "longformer"), SERIES);
    assert_int_equal(occurrences(text, "<path class=\"thin\""),
                     2 * SERIES + 1); /* lines, and samples beside names */
    size_t points = 0;
    for (const char *path = path_of(text, "<path class=\"thin\""); *path != '"'; path++)
        points += *path == 'M' || *path == 'L';
    assert_int_equal(points, 4);
    base_free(text);
}

static void test_curve_ticks(void **state)
{
    (void)state;
    double x[2] = {0, 3000}, y[2] = {2.2, 3.9};
    report_curve_series s = {.name = "loss", .x = x, .y = y, .count = 2};
    report_curve_panel p = {.y_label = "loss (nats per token)", .series = &s, .count = 1};
    report_curve c = {.x_label = "step", .panels = &p, .count = 1};
    char *text = svg_of(&c);
    static const char *const small[] = {">0<",    ">500<", ">1k<",  ">1.5k<", ">2k<",
                                        ">2.5k<", ">3k<",  ">2.2<", ">3<",    ">3.8<"};
    assert_ticks(text, small, BY_COUNT(small));
    base_free(text);
    x[0] = 2000000;
    x[1] = 2000100;
    text = svg_of(&c);
    static const char *const near[] = {">2M<", ">2.00002M<", ">2.0001M<"};
    assert_ticks(text, near, BY_COUNT(near));
    base_free(text);
}

/* Panels: an axis of their own each, one horizontal axis, colours that go on, dots for exact values. */
static void test_curve_panels(void **state)
{
    (void)state;
    double x[3] = {10, 20, 30}, loss[3] = {3, 2, 1}, held[3] = {3, 2.5, 2}, accuracy[3] = {0.5, 0.75, 0.7};
    report_curve_series s[] = {
        {.name = "training loss", .x = x, .y = loss, .count = 3},
        {.name = "held-out loss", .x = x, .y = held, .count = 3, .exact = true},
        {.name = "held-out accuracy", .x = x, .y = accuracy, .count = 3, .exact = true}};
    report_curve_panel p[] = {{"loss (nats per example)", s, 2}, {"accuracy (0 to 1)", s + 2, 1}};
    report_curve c = {.title = "BERT", .x_label = "step", .panels = p, .count = 2};
    char *svg = svg_of(&c);
    static const char *const texts[] = {">BERT</text>",
                                        ">step</text>",
                                        ">loss (nats per example)</text>",
                                        ">accuracy (0 to 1)</text>",
                                        ">training loss</tspan><tspan class=\"value\" dx=\"7\">1.",
                                        ">held-out loss</tspan><tspan class=\"value\" dx=\"7\">2<",
                                        ">held-out accuracy</tspan><tspan class=\"value\" dx=\"7\">0.7<"};
    for (int i = 0; i < BY_COUNT(texts); i++)
        if (occurrences(svg, texts[i]) != 1)
            fail_msg("not once: %s", texts[i]);
    static const char *const ticks[] = {">1.5<", ">2.5<", ">0.6<", ">0.7<", ">10<", ">30<"};
    assert_ticks(svg, ticks, BY_COUNT(ticks));
    assert_int_equal(occurrences(svg, ">30<"), 1); /* the steps are written once */
    for (int i = 0; i < 3; i++) {
        char group[32];
        base_format(group, sizeof group, "<g class=\"s%d\">", i);
        assert_int_equal(occurrences(svg, group), 1);
    }
    /* Three dots for the accuracy, below the losses: the first the lowest, the second the highest. */
    const char *dots = path_of(strstr(svg, "<g class=\"s2\">"), "\"dots\"");
    double at[3][2];
    assert_int_equal(sscanf(dots, "M%lf %lfh0M%lf %lfh0M%lf %lfh0\"", &at[0][0], &at[0][1], &at[1][0],
                            &at[1][1], &at[2][0], &at[2][1]),
                     6);
    assert_true(at[0][0] < at[1][0] && at[1][0] < at[2][0]);
    assert_true(at[0][1] > at[2][1] && at[2][1] > at[1][1] && at[1][1] > 500);
    base_free(svg);

    char *text = report_curve_text(&c, 76);
    assert_non_null(text);
    assert_non_null(strstr(text, "  loss (nats per example)   ⠤⠒ training loss 1."));
    assert_non_null(strstr(text, "   ● held-out loss 2\n"));
    assert_non_null(strstr(text, "  accuracy (0 to 1)   ● held-out accuracy 0.7\n"));
    assert_int_equal(occurrences(text, "\n"), 1 + 10 + 1 + 6 + 3);
    assert_int_equal(occurrences(text, "●"), 2 + 6);
    base_free(text);
}

static void test_curve_million(void **state)
{
    (void)state;
    size_t n = 1000000;
    double *x = base_alloc(n * sizeof *x), *y = base_alloc(n * sizeof *y);
    assert_true(x && y);
    base_rng r = base_rng_make(7, 0);
    for (size_t i = 0; i < n; i++) {
        x[i] = (double)(i + 1);
        y[i] = 2 + 8 / sqrt((double)(i + 1)) + 0.1 * base_rng_uniform(&r);
    }
    y[n / 3] = 9.5;  /* the only spike must survive the reduction */
    y[n / 2] = 2000; /* and one that is far outside must not flatten the rest */
    report_curve_series s = {.name = "loss", .x = x, .y = y, .count = n, .exact = true};
    report_curve_panel p = {.series = &s, .count = 1};
    report_curve c = {.panels = &p, .count = 1};
    char *text = svg_of(&c);
    assert_non_null(strstr(text, ">2k<")); /* exact values are all shown */
    assert_true(strlen(text) < 200000);
    base_free(text);
    s.exact = false;
    text = svg_of(&c);
    assert_true(strlen(text) < 200000);
    assert_null(strstr(text, ">2k<"));
    assert_non_null(strstr(text, ">10<"));
    double target = 0;
    bool spike = false;
    for (const char *path = path_of(text, "<path class=\"faint\""); *path != '"'; path++) {
        double px, py;
        if ((*path == 'L' || *path == 'M') && sscanf(path + 1, "%lf %lf", &px, &py) == 2) {
            if (target == 0)
                target = py; /* the first value, 10, is near the top */
            spike |= px > 300 && px < 400 && fabs(py - target) < 60;
        }
    }
    assert_true(spike);
    base_free(text);
    check_text(&c, 80);
    base_free(x);
    base_free(y);
}

static void test_curve_text(void **state)
{
    (void)state;
    double ends[2] = {0, 10}, x[3] = {0, 5, 10}, y[3] = {10, 5, 0};
    report_curve_series s[] = {{.name = "up", .x = ends, .y = ends, .count = 2},
                               {.name = "down", .x = x, .y = y, .count = 3, .exact = true}};
    report_curve_panel p = {.y_label = "y", .series = s, .count = 2};
    report_curve c = {.title = "T", .x_label = "step", .panels = &p, .count = 1};
    char *text = report_curve_text(&c, 30);
    /* The average of 0 and 10 reaches 10 / 1.04; the range is [0, 10.5]. */
    assert_string_equal(text, "         y   ⠤⠒ up 9.615   ● down 0\n"
                              "     10 ┤●                   ⢀\n"
                              "        │                  ⢀⠔⠁\n"
                              "      8 ┤                ⡠⠒⠁\n"
                              "        │             ⢀⡠⠊\n"
                              "      6 ┤           ⢀⠔⠁\n"
                              "        │         ⡠●⠁\n"
                              "      4 ┤       ⡠⠊\n"
                              "        │    ⢀⠔⠊\n"
                              "      2 ┤  ⢀⠔⠁\n"
                              "      0 ┤⡠⠊⠁                 ●\n"
                              "        └┬─────────┬─────────┬\n"
                              "         0         5        10\n"
                              "                 step\n");
    base_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_events),        TEST(test_events_disk_full),
        TEST(test_curve_small),   TEST(test_curve_logarithmic),
        TEST(test_curve_ticks),   TEST(test_curve_panels),
        TEST(test_curve_million), TEST(test_curve_text),
    };
    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
