/* test_json.c - JSON: what the parser refuses, typed members, printing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/json.h"
#include "io_case.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_json_refuses),
        TEST(test_json_members),
        TEST(test_json_print),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
