/* test_io.c - JSON, safetensors, event files and curves, on real files in a temporary directory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "report/curve.h"
#include "report/events.h"
#include "base/json.h"
#include "io/weights.h"

#ifndef BY_SOURCE_DIR
#define BY_SOURCE_DIR "."
#endif

static char folder[512]; /* made and removed around every test */

static int make_folder(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/banyan-io-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return base_dir_remove(folder) == BY_OK ? 0 : -1;
}

static const char *in_folder(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* The last call failed with this status and a message that holds the text. */
static void assert_failed(by_status status, const char *text)
{
    if (base_error_status() != status || !strstr(by_error_message(), text))
        fail_msg("expected status %d and \"%s\", got %d: %s", (int)status, text, (int)base_error_status(),
                 by_error_message());
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static cJSON *parse(const char *text)
{
    return base_json_parse(text, strlen(text), "text");
}

static void refuse_json(const char *text, size_t size, const char *message)
{
    base_error_clear();
    assert_null(base_json_parse(text, size, "text"));
    assert_failed(BY_ERR_FORMAT, message);
}

static void test_json_refuses(void **state)
{
    (void)state;
    refuse_json("", 0, "text: unexpected end of JSON at byte 0");
    refuse_json("{\"a\": 1,\n \"b\": x}", 17, "at byte 15 (line 2, column 7)");
    refuse_json("{\"a\": 1", 7, "unexpected end");
    refuse_json("[1, 2] 3", 8, "after the JSON value at byte 7");
    refuse_json("\"a\0b\"", 5, "control character in JSON at byte 2");
    refuse_json("\"\\u0000\"", 8, "NUL character in JSON string at byte 1");
    refuse_json("\"\xc0\x80\"", 4, "invalid UTF-8 in JSON at byte 1");
    refuse_json("\"\xed\xa0\x80\"", 5, "invalid UTF-8");
    refuse_json("\"\xe2\x82\"", 4, "invalid UTF-8");
    refuse_json("\"\xf4\x90\x80\x80\"", 6, "invalid UTF-8");
    refuse_json("\"a\nb\"", 5, "control character in JSON at byte 2");
    static const char *const numbers[] = {"01",  "-",         "-a", "1.", "-.5", "1e",
                                          "1e+", "[0.5, 00]", ".5", "+1", "1-2"};
    for (int i = 0; i < BY_COUNT(numbers); i++)
        refuse_json(numbers[i], strlen(numbers[i]), "text: ");
    char *deep = base_alloc(100000);
    memset(deep, '[', 100000);
    refuse_json(deep, 100000, "JSON");
    base_free(deep);
    base_error_clear();
    assert_null(base_json_load(in_folder("missing.json")));
    assert_failed(BY_ERR_IO, "missing.json");
    cJSON *v = parse("\"\\\\u0000 \xe2\x82\xac\"");
    assert_non_null(v);
    assert_string_equal(v->valuestring, "\\u0000 \xe2\x82\xac");
    cJSON_Delete(v);
}

static void test_json_members(void **state)
{
    (void)state;
    cJSON *o = parse(
        "{\"n\": 12, \"big\": 9007199254740991, \"huge\": 9007199254740993, \"half\": 0.5, \"no\": null,"
        " \"yes\": true, \"s\": \"abc\", \"inf\": 1e999}");
    assert_non_null(o);
    int64_t i = 0;
    double d = 0;
    bool b = false;
    const char *s = NULL;
    assert_int_equal(base_json_int(o, "n", 0, 0, 12, &i), BY_OK);
    assert_int_equal(i, 12);
    assert_int_equal(base_json_int(o, "big", 0, 0, INT64_MAX, &i), BY_OK);
    assert_true(i == 9007199254740991);
    assert_int_equal(base_json_int(o, "no", -1, 0, 5, &i), BY_OK);
    assert_int_equal(i, -1);
    assert_int_equal(base_json_int(o, "absent", 7, 0, 5, &i), BY_OK);
    assert_int_equal(i, 7);
    assert_int_equal(base_json_int(NULL, "n", 3, 0, 5, &i), BY_OK);
    assert_int_equal(i, 3);
    assert_int_equal(base_json_int(o, "n", 0, 0, 11, &i), BY_ERR_FORMAT);
    assert_failed(BY_ERR_FORMAT, "\"n\" is 12, expected an integer from 0 to 11");
    assert_int_equal(base_json_int(o, "huge", 0, 0, INT64_MAX, &i), BY_ERR_FORMAT);
    assert_int_equal(base_json_int(o, "half", 0, 0, 9, &i), BY_ERR_FORMAT);
    assert_failed(BY_ERR_FORMAT, "\"half\" is 0.5");
    assert_int_equal(base_json_int(o, "s", 0, 0, 9, &i), BY_ERR_FORMAT);
    assert_failed(BY_ERR_FORMAT, "\"s\" is \"abc\"");
    assert_int_equal(base_json_int(o, "inf", 0, 0, INT64_MAX, &i), BY_ERR_FORMAT);
    assert_int_equal(i, 3);

    assert_int_equal(base_json_double(o, "half", 0, 0, 1, &d), BY_OK);
    assert_true(d == 0.5);
    assert_int_equal(base_json_double(o, "no", 2, 0, 1, &d), BY_OK);
    assert_true(d == 2);
    assert_int_equal(base_json_double(o, "half", 0, 0.6, 1, &d), BY_ERR_FORMAT);
    assert_int_equal(base_json_double(o, "yes", 0, 0, 1, &d), BY_ERR_FORMAT);
    assert_failed(BY_ERR_FORMAT, "\"yes\" is true");

    assert_int_equal(base_json_bool(o, "yes", false, &b), BY_OK);
    assert_true(b);
    assert_int_equal(base_json_bool(o, "no", true, &b), BY_OK);
    assert_true(b);
    assert_int_equal(base_json_bool(o, "n", true, &b), BY_ERR_FORMAT);

    assert_int_equal(base_json_string(o, "s", NULL, &s), BY_OK);
    assert_string_equal(s, "abc");
    assert_int_equal(base_json_string(o, "no", "x", &s), BY_OK);
    assert_string_equal(s, "x");
    assert_int_equal(base_json_string(o, "n", NULL, &s), BY_ERR_FORMAT);
    cJSON_Delete(o);
}

static void test_json_print(void **state)
{
    (void)state;
    const char *text =
        "{\"z\":[1,-2,0.1,1e-05,1e+300,9007199254740991,3.4028234663852886e+38],\"a\":{},\"e\":[],"
        "\"t\":[true,false,null],\"s\":\"q\\\" \\\\ \\n \\u0001 \xe2\x82\xac\"}";
    cJSON *o = parse(text);
    assert_non_null(o);
    base_buf b = {0};
    assert_int_equal(base_json_print(&b, o, false), BY_OK);
    assert_string_equal(b.data, text);
    base_buf_free(&b);
    assert_int_equal(base_json_write(in_folder("x.json"), o), BY_OK);
    cJSON_Delete(o);

    o = parse("{\"b\": [1, {\"c\": null}], \"a\": 2.5}");
    assert_int_equal(base_json_print(&b, o, true), BY_OK);
    assert_string_equal(b.data,
                        "{\n  \"b\": [\n    1,\n    {\n      \"c\": null\n    }\n  ],\n  \"a\": 2.5\n}");
    base_buf_free(&b);
    cJSON_Delete(o);

    o = base_json_load(in_folder("x.json"));
    assert_non_null(o);
    assert_int_equal(base_json_print(&b, o, false), BY_OK);
    assert_string_equal(b.data, text);
    base_buf_free(&b);
    cJSON_Delete(o);

    /* The type and the digits of a number survive, also in a copy and beside new members. */
    text = "{\"a\":1.0,\"b\":1,\"s\":\"1.0 \\\" "
           "2\",\"c\":[1e5,-0.0,2.50,{\"d\":1000000000000000019884624838656}],\"e\":-3.00}";
    o = parse(text);
    cJSON *copy = cJSON_Duplicate(o, true);
    cJSON_Delete(o);
    assert_true(base_json_put(copy, "b", cJSON_CreateNumber(2)));
    assert_true(base_json_put(copy, "n", cJSON_CreateNumber(3)));
    assert_int_equal(base_json_print(&b, copy, false), BY_OK);
    assert_string_equal(b.data, "{\"a\":1.0,\"b\":2,\"s\":\"1.0 \\\" 2\",\"c\":[1e5,-0.0,2.5,{\"d\":"
                                "1000000000000000019884624838656}],\"e\":-3.00,\"n\":3}");
    base_buf_free(&b);
    cJSON_Delete(copy);

    base_json_quote(&b, "a\xff\xe2\x82z");
    assert_string_equal(b.data, "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\"");
    base_buf_free(&b);

    base_rng r = base_rng_make(1, 0);
    for (int i = 0; i < 2000; i++) {
        uint64_t bits = base_rng_u64(&r);
        double d;
        memcpy(&d, &bits, sizeof d);
        if (!isfinite(d))
            continue;
        cJSON *n = cJSON_CreateNumber(d);
        assert_int_equal(base_json_print(&b, n, false), BY_OK);
        assert_true(strtod(b.data, NULL) == d);
        cJSON_Delete(n);
        base_buf_free(&b);
    }
}

/* ---- safetensors ----------------------------------------------------------------------------- */

/* A container with this header and n bytes of data; *size gets its length. The caller frees. */
static uint8_t *container(const char *header, size_t n, size_t *size)
{
    size_t h = strlen(header);
    uint8_t *bytes = base_alloc_zero(8 + h + n, 1);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)h >> 8 * i);
    memcpy(bytes + 8, header, h);
    *size = 8 + h + n;
    return bytes;
}

static void refuse(const char *header, size_t n, by_status status, const char *message)
{
    size_t size;
    uint8_t *bytes = container(header, n, &size);
    base_error_clear();
    assert_null(by_weights_open_memory(bytes, size, "m"));
    assert_failed(status, message);
    base_free(bytes);
}

static void accept(const char *header, size_t n, int count)
{
    size_t size;
    uint8_t *bytes = container(header, n, &size);
    by_weights *s = by_weights_open_memory(bytes, size, "m");
    if (!s)
        fail_msg("%s: %s", header, by_error_message());
    assert_int_equal(by_weights_count(s), count);
    by_weights_free(s);
    base_free(bytes);
}

#define T(dtype, shape, begin, end) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void test_st_headers(void **state)
{
    (void)state;
    accept("{}", 0, 0);
    accept("{}   \n", 0, 0);
    accept("{\"a\":" T("F32", "[2]", 0, 8) "}", 8, 1);
    accept("{\"b\":" T("F32", "[2]", 4, 12) ",\"a\":" T("U8", "[4]", 0, 4) "}", 12, 2);
    accept(
        "{\"a\":" T("F64", "[]", 0, 8) ",\"b\":" T("F32", "[3,0]", 8, 8) ",\"c\":" T("BOOL", "[1]", 8, 9) "}",
        9, 3);
    accept("{\"__metadata__\":null,\"a\":" T("BF16", "[1,1,1,1,1,1,1,1]", 0, 2) "}", 2, 1);

    refuse("", 0, BY_ERR_FORMAT, "does not start with '{'");
    refuse("[]", 0, BY_ERR_FORMAT, "does not start with '{'");
    refuse(" {}", 0, BY_ERR_FORMAT, "does not start with '{'");
    refuse("{\"a\":", 0, BY_ERR_FORMAT, "m: unexpected end of JSON");
    refuse("{\"a\":3}", 0, BY_ERR_FORMAT, "\"a\" has no dtype");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, BY_ERR_FORMAT, "no data_offsets");
    refuse("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 4, BY_ERR_FORMAT, "duplicate dtype");
    refuse("{\"a\":" T("F32", "[2]", 0, 8) "}", 7, BY_ERR_FORMAT, "truncated");
    refuse("{\"a\":" T("F32", "[2]", 0, 8) "}", 9, BY_ERR_FORMAT, "1 bytes of data after the last");
    refuse("{\"a\":" T("F32", "[2]", 0, 4) "}", 4, BY_ERR_FORMAT, "has 4 bytes, but its shape requires 8");
    refuse("{\"a\":" T("F32", "[1]", 4, 8) "}", 8, BY_ERR_FORMAT, "leaving a hole");
    refuse("{\"a\":" T("F32", "[1]", 0, 4) ",\"b\":" T("F32", "[1]", 0, 4) "}", 4, BY_ERR_FORMAT,
           "overlapping");
    refuse("{\"a\":" T("F32", "[2]", 0, 8) ",\"b\":" T("F32", "[1]", 4, 8) "}", 8, BY_ERR_FORMAT,
           "overlapping");
    refuse("{\"a\":" T("U8", "[1]", 0, 1) ",\"a\":" T("U8", "[1]", 1, 2) "}", 2, BY_ERR_FORMAT,
           "two tensors named \"a\"");
    refuse("{\"a\":" T("U8", "[1]", 1, 0) "}", 1, BY_ERR_FORMAT, "malformed data_offsets");
    refuse("{\"a\":" T("U8", "[1]", -1, 0) "}", 1, BY_ERR_FORMAT, "malformed data_offsets");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, BY_ERR_FORMAT,
           "malformed");
    refuse("{\"a\":" T("U8", "[-1]", 0, 1) "}", 1, BY_ERR_FORMAT, "invalid size");
    refuse("{\"a\":" T("U8", "[1.5]", 0, 1) "}", 1, BY_ERR_FORMAT, "invalid size");
    refuse("{\"a\":" T("U8", "4", 0, 1) "}", 1, BY_ERR_FORMAT, "not a list");
    refuse("{\"a\":" T("U8", "[4294967296,4294967296,0]", 0, 0) "}", 0, BY_ERR_FORMAT, "overflows");
    refuse("{\"a\":" T("F64", "[4503599627370496,1024]", 0, 0) "}", 0, BY_ERR_FORMAT, "overflows");
    refuse("{\"a\":" T("U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, BY_ERR_UNSUPPORTED,
           "more than 8 dimensions");
    refuse("{\"a\":" T("F4", "[1]", 0, 1) "}", 1, BY_ERR_UNSUPPORTED,
           "tensor \"a\" has unsupported element type F4");
    refuse("{\"a\":" T("F8_E4M3FNUZ", "[1]", 0, 1) "}", 1, BY_ERR_UNSUPPORTED, "F8_E4M3FNUZ");
    accept("{\"a\":" T("I8", "[1]", 0, 1) ",\"b\":" T("I16", "[1]", 1, 3) ",\"c\":" T("U16", "[1]", 3, 5) "}",
           5, 3);
    accept("{\"a\":" T("U32", "[1]", 0, 4) ",\"b\":" T("U64", "[1]", 4, 12) "}", 12, 2);
    accept("{\"a\":" T("F8_E4M3", "[1]", 0, 1) ",\"b\":" T("F8_E5M2", "[3]", 1, 4) "}", 4, 2);
    refuse("{\"a\\u001b\":" T("X9", "[1]", 0, 1) "}", 1, BY_ERR_FORMAT,
           "\"a?\" has unknown element type \"X9\"");
    refuse("{\"__metadata__\":3}", 0, BY_ERR_FORMAT, "__metadata__ is not an object");
    refuse("{\"__metadata__\":{\"a\":1}}", 0, BY_ERR_FORMAT, "metadata \"a\" is not a string");
    refuse("{\"__metadata__\":{},\"__metadata__\":{}}", 0, BY_ERR_FORMAT, "given twice");

    base_error_clear();
    assert_null(by_weights_open_memory("\x02\0\0\0\0\0\0", 7, "m"));
    assert_failed(BY_ERR_FORMAT, "too short");
    assert_null(by_weights_open_memory("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "m"));
    assert_failed(BY_ERR_FORMAT, "not a safetensors file");
    assert_null(by_weights_open_memory("\x03\0\0\0\0\0\0\0{}", 10, "m"));
    assert_failed(BY_ERR_FORMAT, "truncated");
    by_weights_free(NULL);
}

static const float F[6] = {1, -2, 3.5f, 0, 1e-30f, 6};
static const int64_t I[2] = {-5, INT64_MAX};
static const uint16_t H[3] = {0x3f80, 0xbf80, 0x7fc0};
static const uint8_t U[5] = {0, 1, 2, 254, 255};

static void test_st_round_trip(void **state)
{
    (void)state;
    by_weight e[] = {
        {.name = "u\"8\"", .dtype = BY_U8, .rank = 1, .dim = {5}, .data = U, .bytes = 5},
        {.name = "w", .dtype = BY_F32, .rank = 2, .dim = {2, 3}, .data = F, .bytes = 24},
        {.name = "h.\xc3\xa9", .dtype = BY_BF16, .rank = 1, .dim = {3}, .data = H, .bytes = 6},
        {.name = "empty", .dtype = BY_F32, .rank = 2, .dim = {0, 7}},
        {.name = "scalar", .dtype = BY_F32, .data = F + 2, .bytes = 4},
        {.name = "ids", .dtype = BY_I64, .rank = 1, .dim = {2}, .data = I, .bytes = 16},
    };
    const char *const meta[] = {"format", "pt", "note", "line\n\"two\"", NULL};
    assert_int_equal(by_weights_write(in_folder("model.safetensors"), e, 6, meta), BY_OK);
    by_weights *s = by_weights_open(in_folder("model.safetensors"));
    assert_non_null(s);
    assert_int_equal(by_weights_count(s), 6);
    for (int i = 0; i < 6; i++) {
        const by_weight *r = by_weights_find(s, e[i].name);
        assert_non_null(r);
        assert_int_equal(r->dtype, e[i].dtype);
        assert_int_equal(r->rank, e[i].rank);
        assert_memory_equal(r->dim, e[i].dim, sizeof r->dim);
        assert_int_equal(r->bytes, e[i].bytes);
        assert_int_equal((uintptr_t)r->data % by_dtype_size(r->dtype), 0);
        if (r->bytes)
            assert_memory_equal(r->data, e[i].data, r->bytes);
        if (i > 0)
            assert_true(strcmp(by_weights_at(s, i - 1)->name, by_weights_at(s, i)->name) < 0);
    }
    assert_int_equal((uintptr_t)by_weights_find(s, "ids")->data % 64, 0);
    assert_null(by_weights_find(s, "nothing"));
    assert_null(by_weights_at(s, -1));
    assert_null(by_weights_at(s, 6));
    assert_string_equal(by_weights_metadata(s, "note"), "line\n\"two\"");
    assert_null(by_weights_metadata(s, "absent"));
    by_weights_free(s);

    /* The directory opens the same file; another order of the same tensors gives the same bytes. */
    s = by_weights_open(folder);
    assert_non_null(s);
    by_weights_free(s);
    by_weight turned[6];
    for (int i = 0; i < 6; i++)
        turned[i] = e[5 - i];
    assert_int_equal(by_weights_write(in_folder("again.safetensors"), turned, 6, meta), BY_OK);
    size_t n1, n2;
    char *a = base_file_read(in_folder("model.safetensors"), 1 << 20, &n1);
    char *b = base_file_read(in_folder("again.safetensors"), 1 << 20, &n2);
    assert_int_equal(n1, n2);
    assert_memory_equal(a, b, n1);

    /* No prefix of the file is a file. */
    for (size_t n = 0; n < n1; n++) {
        char *part = base_alloc(n);
        memcpy(part, a, n);
        assert_null(by_weights_open_memory(part, n, "part"));
        assert_int_equal(base_error_status(), BY_ERR_FORMAT);
        base_free(part);
    }
    base_free(a);
    base_free(b);
}

static void test_st_write_refuses(void **state)
{
    (void)state;
    by_weight good = {.name = "a", .dtype = BY_F32, .rank = 1, .dim = {2}, .data = F, .bytes = 8},
              e[2] = {good, good};
    const char *path = in_folder("bad.safetensors");
    assert_int_equal(by_weights_write(path, e, 2, NULL), BY_ERR_ARGUMENT);
    assert_failed(BY_ERR_ARGUMENT, "two tensors named \"a\"");
    e[0].name = "__metadata__";
    assert_int_equal(by_weights_write(path, e, 1, NULL), BY_ERR_ARGUMENT);
    e[0].name = "\xff";
    assert_int_equal(by_weights_write(path, e, 1, NULL), BY_ERR_ARGUMENT);
    e[0] = good;
    e[0].bytes = 4;
    assert_int_equal(by_weights_write(path, e, 1, NULL), BY_ERR_ARGUMENT);
    e[0] = good;
    e[0].data = NULL;
    assert_int_equal(by_weights_write(path, e, 1, NULL), BY_ERR_ARGUMENT);
    e[0] = good;
    e[0].dim[0] = -2;
    assert_int_equal(by_weights_write(path, e, 1, NULL), BY_ERR_ARGUMENT);
    e[0] = good;
    e[0].rank = 9;
    assert_int_equal(by_weights_write(path, e, 1, NULL), BY_ERR_ARGUMENT);
    const char *const twice[] = {"k", "1", "k", "2", NULL}, *const odd[] = {"k", NULL};
    assert_int_equal(by_weights_write(path, &good, 1, twice), BY_ERR_ARGUMENT);
    assert_int_equal(by_weights_write(path, &good, 1, odd), BY_ERR_ARGUMENT);
    assert_false(base_file_exists(path));
    assert_int_equal(by_weights_write(in_folder("no/such/dir.safetensors"), &good, 1, NULL), BY_ERR_IO);
    assert_int_equal(by_weights_write(in_folder("none.safetensors"), NULL, 0, NULL), BY_OK);
    by_weights *s = by_weights_open(in_folder("none.safetensors"));
    assert_non_null(s);
    assert_int_equal(by_weights_count(s), 0);
    assert_string_equal(by_weights_metadata(s, "format"), "pt");
    by_weights_free(s);
}

static void write_text(const char *name, const char *text)
{
    assert_int_equal(base_file_write(in_folder(name), text, strlen(text)), BY_OK);
}

static void refuse_index(const char *text, const char *message)
{
    write_text("model.safetensors.index.json", text);
    base_error_clear();
    assert_null(by_weights_open(folder));
    assert_int_not_equal(base_error_status(), BY_OK);
    if (!strstr(by_error_message(), message))
        fail_msg("expected \"%s\": %s", message, by_error_message());
}

static void test_st_shards(void **state)
{
    (void)state;
    base_error_clear();
    assert_null(by_weights_open(folder));
    assert_failed(BY_ERR_IO, "no model.safetensors and no pytorch_model.bin");
    by_weight one[] = {{.name = "b", .dtype = BY_F32, .rank = 1, .dim = {2}, .data = F, .bytes = 8},
                       {.name = "extra", .dtype = BY_F32, .rank = 1, .dim = {1}, .data = F, .bytes = 4}};
    by_weight two = {.name = "a", .dtype = BY_I64, .rank = 1, .dim = {2}, .data = I, .bytes = 16};
    assert_int_equal(by_weights_write(in_folder("1.safetensors"), one, 2, NULL), BY_OK);
    assert_int_equal(by_weights_write(in_folder("2.safetensors"), &two, 1, NULL), BY_OK);
    write_text("model.safetensors.index.json",
               "{\"metadata\":{\"total_size\":24},"
               "\"weight_map\":{\"b\":\"1.safetensors\",\"a\":\"2.safetensors\"}}");
    by_weights *s = by_weights_open(folder);
    assert_non_null(s);
    assert_int_equal(by_weights_count(s), 2);
    assert_string_equal(by_weights_at(s, 0)->name, "a");
    assert_memory_equal(by_weights_find(s, "a")->data, I, 16);
    assert_memory_equal(by_weights_find(s, "b")->data, F, 8);
    assert_null(by_weights_find(s, "extra"));
    assert_string_equal(by_weights_metadata(s, "format"), "pt");
    by_weights_free(s);

    refuse_index("{}", "no weight_map");
    refuse_index("{\"weight_map\":{\"b\":\"../1.safetensors\"}}", "not a file name");
    refuse_index("{\"weight_map\":{\"b\":\"/etc/passwd\"}}", "not a file name");
    refuse_index("{\"weight_map\":{\"b\":\"..\"}}", "not a file name");
    refuse_index("{\"weight_map\":{\"b\":4}}", "not a file name");
    refuse_index("{\"weight_map\":{\"b\":\"3.safetensors\"}}", "3.safetensors");
    refuse_index("{\"weight_map\":{\"c\":\"1.safetensors\"}}", "tensor \"c\" is not in 1.safetensors");
    refuse_index("{\"weight_map\":{\"b\":\"1.safetensors\",\"b\":\"1.safetensors\"}}",
                 "two tensors named \"b\"");
}

static long resident_pages(void)
{
    long all = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &all, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return pages;
}

/* Half a gigabyte, most of it a hole in the file: opening it reads the header and nothing more. */
static void test_st_large(void **state)
{
    (void)state;
    size_t size;
    uint8_t *head = container("{\"w\":" T("F32", "[125,1000000]", 0, 500000000) "}", 0, &size);
    assert_int_equal(base_file_write(in_folder("large.safetensors"), head, size), BY_OK);
    base_free(head);
    assert_int_equal(truncate(in_folder("large.safetensors"), (off_t)size + 500000000), 0);
    long before = resident_pages();
    double start = base_seconds();
    by_weights *s = by_weights_open(in_folder("large.safetensors"));
    assert_non_null(s);
    assert_true(base_seconds() - start < 1); /* some tenths of a millisecond, on a machine that is not busy */
    assert_true((resident_pages() - before) * sysconf(_SC_PAGESIZE) < 4 << 20);
    float last = 1;
    assert_int_equal(by_weight_read(by_weights_at(s, 0), 124999999, 1, &last, BY_F32), BY_OK);
    assert_true(last == 0);
    by_weights_free(s);
}

/* Every container that the reference implementation wrote opens, and writing its tensors again keeps them. */
static void test_st_fixtures(void **state)
{
    (void)state;
    const char *shared = getenv("BANYAN_SHARED");
    char pattern[1024];
    snprintf(pattern, sizeof pattern, "%s/parity/*/*.safetensors",
             shared ? shared : BY_SOURCE_DIR "/../shared");
    char **paths = NULL;
    int count = 0;
    if (base_glob(pattern, &paths, &count) != BY_OK) {
        print_message("%s: not there, skipped\n", pattern);
        skip();
    }
    for (int i = 0; i < count; i++) {
        by_weights *s = by_weights_open(paths[i]);
        if (!s)
            fail_msg("%s", by_error_message());
        assert_true(by_weights_count(s) > 0);
        assert_int_equal(
            by_weights_write(in_folder("copy.safetensors"), by_weights_at(s, 0), by_weights_count(s), NULL),
            BY_OK);
        by_weights *copy = by_weights_open(in_folder("copy.safetensors"));
        assert_non_null(copy);
        assert_int_equal(by_weights_count(copy), by_weights_count(s));
        for (int j = 0; j < by_weights_count(s); j++) {
            const by_weight *a = by_weights_at(s, j), *b = by_weights_at(copy, j);
            assert_string_equal(a->name, b->name);
            assert_int_equal(a->dtype, b->dtype);
            assert_memory_equal(a->dim, b->dim, sizeof a->dim);
            assert_int_equal(a->bytes, b->bytes);
            if (a->bytes)
                assert_memory_equal(a->data, b->data, a->bytes);
        }
        by_weights_free(copy);
        by_weights_free(s);
    }
    base_paths_free(paths, count);
}

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
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(test_json_refuses),  TEST(test_json_members),      TEST(test_json_print),
        TEST(test_st_headers),    TEST(test_st_round_trip),     TEST(test_st_write_refuses),
        TEST(test_st_shards),     TEST(test_st_fixtures),       TEST(test_st_large),
        TEST(test_events),        TEST(test_events_disk_full),  TEST(test_curve_small),
        TEST(test_curve_ticks),   TEST(test_curve_logarithmic), TEST(test_curve_panels),
        TEST(test_curve_million), TEST(test_curve_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
