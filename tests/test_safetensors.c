/* test_safetensors.c - safetensors: headers, round trips, shards, large files, recorded files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/json.h"
#include "io/weights.h"
#include "io_case.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_st_headers), TEST(test_st_round_trip), TEST(test_st_write_refuses),
        TEST(test_st_shards),  TEST(test_st_large),      TEST(test_st_fixtures),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
