/* test_torch.c - PyTorch files: real ones, ones made here byte by byte, and every way they can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "io/pickle.h"
#include "io/weights.h"
#include "torch_file.h"

#ifndef BY_SOURCE_DIR
#define BY_SOURCE_DIR "."
#endif

/* ---- making files ---------------------------------------------------------------------------- */

static const float F[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
static const int64_t I[3] = {-1, INT64_MAX, 7};

/* A zip file around a pickle, with the storages "0" (F) and "1" (I). */
static base_buf zip_around(const base_buf *pickle)
{
    zip_file z = {0};
    zip_add(&z, "archive/data.pkl", pickle->data, pickle->size);
    zip_add(&z, "archive/byteorder", "little", 6);
    zip_add(&z, "archive/data/0", F, sizeof F);
    zip_add(&z, "archive/data/1", I, sizeof I);
    zip_finish(&z);
    return z.out;
}

static base_buf zip_of(const torch_tensor *list, int count)
{
    base_buf pickle = {0};
    op_tensors(&pickle, list, count, false);
    base_buf file = zip_around(&pickle);
    base_buf_free(&pickle);
    return file;
}

static base_buf stream_of(const torch_tensor *list, int count, bool little_endian)
{
    base_buf b = {0};
    op_preamble(&b, little_endian);
    op_tensors(&b, list, count, true);
    op(&b, "\x80\x02](");
    op_text(&b, "0");
    op_text(&b, "1");
    op(&b, "e.");
    put_little(&b, 12, 8);
    base_buf_put(&b, F, sizeof F);
    put_little(&b, 3, 8);
    base_buf_put(&b, I, sizeof I);
    return b;
}

static by_weights *open_buf(const base_buf *file)
{
    base_error_clear();
    by_weights *w = by_weights_open_memory(file->data, file->size, "m");
    if (!w)
        fail_msg("%s", by_error_message());
    return w;
}

/* Frees the file. */
static void refuse(base_buf file, by_status status, const char *message)
{
    base_error_clear();
    assert_null(by_weights_open_memory(file.data, file.size, "m"));
    if (base_error_status() != status || !strstr(by_error_message(), message))
        fail_msg("expected status %d and \"%s\", got %d: %s", (int)status, message, (int)base_error_status(),
                 by_error_message());
    base_buf_free(&file);
}

static void refuse_pickle(const char *opcodes, size_t size, by_status status, const char *message)
{
    base_buf pickle = {0};
    base_buf_put(&pickle, opcodes, size);
    refuse(zip_around(&pickle), status, message);
    base_buf_free(&pickle);
}

#define REFUSE_PICKLE(opcodes, status, message) refuse_pickle(opcodes, sizeof opcodes - 1, status, message)

/* ---- what is right --------------------------------------------------------------------------- */

static const torch_tensor GOOD[] = {
    {"whole", "FloatStorage", "0", 12, 0, 2, {3, 4}, {4, 1}},
    {"turned", "FloatStorage", "0", 12, 0, 2, {4, 3}, {1, 4}},
    {"part", "FloatStorage", "0", 12, 5, 2, {2, 2}, {4, 1}},
    {"row", "FloatStorage", "0", 12, 4, 2, {1, 4}, {99, 1}},
    {"scalar", "FloatStorage", "0", 12, 11, 0, {0}, {0}},
    {"empty", "FloatStorage", "0", 12, 0, 2, {0, 3}, {3, 1}},
    {"ids", "LongStorage", "1", 3, 0, 1, {3}, {1}},
};

static void check_values(const by_weights *w, const char *name, int count, const float *wanted, bool dense)
{
    const by_weight *e = by_weights_find(w, name);
    float got[12];
    assert_non_null(e);
    assert_int_equal(e->bytes, (size_t)count * 4);
    assert_int_equal(!e->stride, dense);
    assert_int_equal(by_weight_read(e, 0, (size_t)count, got, BY_F32), BY_OK);
    assert_memory_equal(got, wanted, (size_t)count * 4);
    for (int i = 0; i < count; i++) { /* one by one, too */
        assert_int_equal(by_weight_read(e, (size_t)i, 1, got, BY_F32), BY_OK);
        assert_true(got[0] == wanted[i]);
    }
    assert_int_equal(by_weight_read(e, (size_t)count, 1, got, BY_F32), BY_ERR_ARGUMENT);
}

static void check_good(const base_buf *file, const char *format)
{
    by_weights *w = open_buf(file);
    assert_string_equal(by_weights_format(w), format);
    assert_int_equal(by_weights_count(w), BY_COUNT(GOOD));
    check_values(w, "whole", 12, F, true);
    check_values(w, "turned", 12, (float[]){0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}, false);
    check_values(w, "part", 4, (float[]){5, 6, 9, 10}, false);
    check_values(w, "row", 4, F + 4, true);
    check_values(w, "scalar", 1, F + 11, true);
    check_values(w, "empty", 0, F, true);
    const by_weight *ids = by_weights_find(w, "ids"), *whole = by_weights_find(w, "whole");
    assert_int_equal(ids->dtype, BY_I64);
    assert_memory_equal(ids->data, I, sizeof I);
    assert_true((const char *)whole->data > file->data &&
                (const char *)whole->data < file->data + file->size);
    assert_ptr_equal(by_weights_find(w, "row")->data,
                     (const char *)whole->data + 16); /* one storage, no copy */
    by_weights_free(w);
}

static void test_made_here(void **state)
{
    (void)state;
    base_buf zip = zip_of(GOOD, BY_COUNT(GOOD)), stream = stream_of(GOOD, BY_COUNT(GOOD), true);
    check_good(&zip, "PyTorch zip");
    check_good(&stream, "PyTorch stream");
    base_buf_free(&zip);
    base_buf_free(&stream);
}

/* No beginning of a file is a file. The stream ends with its last storage, the zip with its directory. */
static void test_cut_short(void **state)
{
    (void)state;
    base_buf files[] = {zip_of(GOOD, BY_COUNT(GOOD)), stream_of(GOOD, BY_COUNT(GOOD), true)};
    for (int k = 0; k < 2; k++) {
        for (size_t n = 0; n < files[k].size; n++) {
            char *part = base_alloc(n);
            memcpy(part, files[k].data, n);
            base_error_clear();
            assert_null(by_weights_open_memory(part, n, "part"));
            assert_int_equal(base_error_status(), BY_ERR_FORMAT);
            base_free(part);
        }
        base_buf_free(&files[k]);
    }
}

static char *data_path(const char *name)
{
    char *path = base_sprintf("%s/tests/data/torch/%s", BY_SOURCE_DIR, name);
    assert_non_null(path);
    return path;
}

/* Files that torch.save wrote, beside what safetensors wrote of the same tensors. */
static void test_made_by_torch(void **state)
{
    (void)state;
    static const char *const names[] = {"zip.bin", "stream.bin", "protocol4.bin", "nested.bin"};
    char *path = data_path("expected.safetensors");
    by_weights *expected = by_weights_open(path);
    assert_non_null(expected);
    assert_int_equal(by_weights_count(expected), 10);
    base_free(path);
    for (int k = 0; k < BY_COUNT(names); k++) {
        path = data_path(names[k]);
        by_weights *w = by_weights_open(path);
        if (!w)
            fail_msg("%s", by_error_message());
        assert_int_equal(by_weights_count(w), by_weights_count(expected));
        for (int i = 0; i < by_weights_count(expected); i++) {
            const by_weight *a = by_weights_at(expected, i), *b = by_weights_at(w, i);
            char got[256];
            assert_string_equal(a->name, b->name);
            assert_int_equal(a->dtype, b->dtype);
            assert_int_equal(a->rank, b->rank);
            assert_memory_equal(a->dim, b->dim, sizeof a->dim);
            assert_int_equal(a->bytes, b->bytes);
            assert_true(b->bytes <= sizeof got);
            assert_int_equal(by_weight_read(b, 0, b->bytes / by_dtype_size(b->dtype), got, b->dtype), BY_OK);
            if (a->bytes)
                assert_memory_equal(a->data, got, a->bytes);
        }
        assert_true(io_weight_same(by_weights_find(w, "a"), by_weights_find(w, "tied")));
        by_weights_free(w);
        base_free(path);
    }
    by_weights_free(expected);
    path = data_path("deflated.bin");
    assert_null(by_weights_open(path));
    assert_non_null(strstr(by_error_message(), "compressed"));
    base_free(path);
}

/* Dictionaries as other versions of Python write them, values that are no tensors, and what trainers put
 * around. */
static void test_shapes_of_pickles(void **state)
{
    (void)state;
    base_buf b = {0};
    op(&b, "\x80\x02"
           "ccollections\nOrderedDict\n]("); /* Python 2: OrderedDict([[key, value]]) */
    op(&b, "](");
    op_tensor(&b, &GOOD[0], false);
    op(&b, "ee\x85R.");
    base_buf file = zip_around(&b);
    by_weights *w = open_buf(&file);
    check_values(w, "whole", 12, F, true);
    by_weights_free(w);
    base_buf_free(&file);

    b.size = 0;
    op(&b, "\x80\x02}q"); /* {"model": {tensor, "n": 1, "x": None, "f": 0.5}, "other": [itself]} */
    base_buf_put(&b, "\0(", 2);
    op_text(&b, "model");
    op(&b, "}(");
    op_tensor(&b, &GOOD[0], false);
    op_text(&b, "n");
    op(&b, "K\1");
    op_text(&b, "x");
    op(&b, "N");
    op_text(&b, "f");
    base_buf_put(&b, "G\x3f\xe0\0\0\0\0\0\0u", 10);
    op_text(&b, "other");
    base_buf_put(&b, "]q\1h\1ah\0a", 9);
    op(&b, "u.");
    file = zip_around(&b);
    w = open_buf(&file);
    assert_int_equal(by_weights_count(w), 1);
    by_weights_free(w);
    base_buf_free(&file);

    b.size = 0;
    op(&b, "\x80\x02}(");
    op_text(&b, "p");
    op_global(&b, "torch._utils\n_rebuild_parameter\n");
    op_rebuild(&b, &GOOD[1], false);
    op(&b, "\x88"
           "ccollections\nOrderedDict\n)R\x87Ru.");
    file = zip_around(&b);
    w = open_buf(&file);
    check_values(w, "p", 12, (float[]){0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}, false);
    by_weights_free(w);
    base_buf_free(&file);
    base_buf_free(&b);
}

/* One storage seen as two types; no elements along axes that are huge. */
static void test_odd_views(void **state)
{
    (void)state;
    torch_tensor list[] = {GOOD[0],
                           {"halves", "HalfStorage", "0", 24, 2, 1, {2}, {1}},
                           {"none", "FloatStorage", "0", 12, 0, 3, {0, INT64_MAX, INT64_MAX}, {1, 1, 1}}};
    base_buf file = zip_of(list, 3);
    by_weights *w = open_buf(&file);
    const by_weight *halves = by_weights_find(w, "halves"), *none = by_weights_find(w, "none");
    assert_int_equal(halves->dtype, BY_F16);
    assert_memory_equal(halves->data, &F[1], 4);
    assert_int_equal(none->bytes, 0);
    by_weights_free(w);
    base_buf_free(&file);
}

/* A trainer's checkpoint in the stream format: storages of what is not read have to be passed over. */
static void test_nested_stream(void **state)
{
    (void)state;
    base_buf b = {0};
    op_preamble(&b, true);
    op(&b, "\x80\x02}(");
    op_text(&b, "state_dict");
    op(&b, "}(");
    op_tensor(&b, &GOOD[0], true);
    op(&b, "u");
    op_text(&b, "optimizer");
    op(&b, "](");
    op_rebuild(&b, &GOOD[6], true);
    op(&b, "eu.");
    op(&b, "\x80\x02](");
    op_text(&b, "1");
    op_text(&b, "0");
    op(&b, "e.");
    put_little(&b, 3, 8);
    base_buf_put(&b, I, sizeof I);
    put_little(&b, 12, 8);
    base_buf_put(&b, F, sizeof F);
    by_weights *w = open_buf(&b);
    assert_int_equal(by_weights_count(w), 1);
    check_values(w, "whole", 12, F, true);
    by_weights_free(w);
    base_buf_free(&b);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_nothing_is_executed(void **state)
{
    (void)state;
    REFUSE_PICKLE("\x80\x02"
                  "cos\nsystem\n(X\4\0\0\0true\x85R.",
                  BY_ERR_UNSUPPORTED, "refers to os.system");
    REFUSE_PICKLE("\x80\x02"
                  "cbuiltins\neval\n.",
                  BY_ERR_UNSUPPORTED, "refers to builtins.eval");
    REFUSE_PICKLE("\x80\x02"
                  "ctorch.storage\n_load_from_bytes\n.",
                  BY_ERR_UNSUPPORTED, "torch.storage._load_from_bytes");
    REFUSE_PICKLE("\x80\x02"
                  "ctorch\nComplexFloatStorage\n.",
                  BY_ERR_UNSUPPORTED, "torch.ComplexFloatStorage");
    REFUSE_PICKLE("\x80\x04\x8c\2os\x8c\6system\x93.", BY_ERR_UNSUPPORTED, "refers to os.system");
    REFUSE_PICKLE("\x80\x02"
                  "co\x1b[1ms\nsystem\n.",
                  BY_ERR_UNSUPPORTED, "refers to o?[1ms.system");
    REFUSE_PICKLE("\x80\x02(S'x'\nios\nsystem\n.", BY_ERR_FORMAT, "opcode 0x53 is not allowed");
    REFUSE_PICKLE("\x80\x02\x82\x01.", BY_ERR_FORMAT, "opcode 0x82 is not allowed"); /* an extension */
    REFUSE_PICKLE("\x80\x02P1\n.", BY_ERR_FORMAT, "opcode 0x50 is not allowed");
    REFUSE_PICKLE("\x80\x02}}R.", BY_ERR_FORMAT, "not a function");
}

/* A list of pairs is remembered once and made into dictionaries again and again: memory must not follow. */
static void test_copied_pickle(void **state)
{
    (void)state;
    base_buf b = {0};
    base_buf_puts(&b, "\x80\x02]q\1(");
    for (int i = 0; i < 200; i++)
        base_buf_puts(&b, "K\1K\1\x86");
    base_buf_puts(&b, "e0ccollections\nOrderedDict\nq\2");
    for (int i = 0; i < 200; i++)
        base_buf_puts(&b, "h\2h\1\x85R0");
    base_buf_puts(&b, "0}.");
    refuse_pickle(b.data, b.size, BY_ERR_FORMAT, "too many copies");
    base_buf_free(&b);
}

static void test_bad_pickles(void **state)
{
    (void)state;
    REFUSE_PICKLE("", BY_ERR_FORMAT, "unexpected end");
    REFUSE_PICKLE(".", BY_ERR_FORMAT, "stack underflow");
    REFUSE_PICKLE("\x80\x09}.", BY_ERR_FORMAT, "newer than 5");
    REFUSE_PICKLE("}(.", BY_ERR_FORMAT, "stack underflow"); /* the dictionary is below the mark */
    REFUSE_PICKLE("t.", BY_ERR_FORMAT, "missing mark");
    REFUSE_PICKLE("}(Nu.", BY_ERR_FORMAT, "key without a value");
    REFUSE_PICKLE("]NNs.", BY_ERR_FORMAT, "not a dictionary");
    REFUSE_PICKLE("}Na.", BY_ERR_FORMAT, "not a list");
    REFUSE_PICKLE("(Na.", BY_ERR_FORMAT, "stack underflow");
    REFUSE_PICKLE("Nr\xff\xff\xff\xff.", BY_ERR_FORMAT, "memo index too large");
    REFUSE_PICKLE("h\0.", BY_ERR_FORMAT, "unknown memo index");
    REFUSE_PICKLE("X\xff\xff\xff\xff.", BY_ERR_FORMAT, "unexpected end");
    REFUSE_PICKLE("\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", BY_ERR_FORMAT, "unexpected end");
    REFUSE_PICKLE("\x86.", BY_ERR_FORMAT, "stack underflow");
    REFUSE_PICKLE("ctorch\nSize", BY_ERR_FORMAT, "unterminated");
    REFUSE_PICKLE("ccollections\nOrderedDict\nK\1\x85R.", BY_ERR_FORMAT, "not a list");
    REFUSE_PICKLE("ccollections\nOrderedDict\n]Na\x85R.", BY_ERR_FORMAT, "not a pair");
    REFUSE_PICKLE("].", BY_ERR_UNSUPPORTED, "contains a list, not a dictionary");
    REFUSE_PICKLE("}K\1Ns.", BY_ERR_FORMAT, "name of a tensor is a number");
    REFUSE_PICKLE("}U\2\xc3(]s.", BY_ERR_FORMAT, "not UTF-8");
    REFUSE_PICKLE("}U\1a]s.", BY_ERR_UNSUPPORTED, "\"a\" is a list, not a tensor");
    REFUSE_PICKLE("}U\1actorch\nSize\n)Rs.", BY_ERR_FORMAT, "\"a\": malformed description");
    base_buf deep = {0};
    for (int i = 0; i < 200000; i++)
        op(&deep, "]");
    for (int i = 0; i < 199999; i++)
        op(&deep, "a");
    op(&deep, ".");
    refuse(zip_around(&deep), BY_ERR_UNSUPPORTED, "contains a list");
    base_buf_free(&deep);
}

static void refuse_tensor(torch_tensor t, by_status status, const char *message)
{
    refuse(zip_of(&t, 1), status, message);
    refuse(stream_of((torch_tensor[]){t, GOOD[0], GOOD[6]}, 3, true), status, message);
}

static void test_bad_tensors(void **state)
{
    (void)state;
    torch_tensor t = GOOD[0];
    t.name = "w";
    t.dim[0] = 4;
    refuse_tensor(t, BY_ERR_FORMAT, "\"w\": it extends beyond its storage");
    t.dim[0] = 3;
    t.offset = 1;
    refuse_tensor(t, BY_ERR_FORMAT, "beyond");
    t.offset = INT64_MAX;
    refuse_tensor(t, BY_ERR_FORMAT, "beyond");
    t.offset = -1;
    refuse_tensor(t, BY_ERR_FORMAT, "offset");
    t.offset = 0;
    t.stride[0] = INT64_MAX;
    refuse_tensor(t, BY_ERR_FORMAT, "overflow");
    t.stride[0] = -4;
    refuse_tensor(t, BY_ERR_FORMAT, "invalid size");
    t.stride[0] = 0;
    t.dim[0] = 1000;
    refuse_tensor(t, BY_ERR_UNSUPPORTED, "\"w\" repeats its elements");
    t.dim[0] = INT64_MAX;
    refuse_tensor(t, BY_ERR_FORMAT, "overflows");
    t.dim[0] = -3;
    refuse_tensor(t, BY_ERR_FORMAT, "invalid size");
    t = (torch_tensor){"w", "FloatStorage", "0", 12, 0, 9, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {0}};
    refuse_tensor(t, BY_ERR_UNSUPPORTED, "more than 8 dimensions");
    t = GOOD[0];
    t.count = INT64_MAX;
    refuse_tensor(t, BY_ERR_FORMAT, "larger than the file");
    t.count = -1;
    refuse_tensor(t, BY_ERR_FORMAT, "malformed description");
    t = GOOD[0];
    t.storage = "UntypedStorage";
    refuse_tensor(t, BY_ERR_UNSUPPORTED, "torch.UntypedStorage");
    t.storage = "float32";
    refuse_tensor(t, BY_ERR_FORMAT, "malformed description");
    t = GOOD[0];
    t.key = "7";
    refuse(zip_of(&t, 1), BY_ERR_FORMAT, "storage \"7\" is not in the archive");
    t = GOOD[0];
    t.count = 13;
    refuse(zip_of(&t, 1), BY_ERR_FORMAT, "storage \"0\" is shorter");
    refuse(stream_of((torch_tensor[]){t, GOOD[6]}, 2, true), BY_ERR_FORMAT,
           "has 12 elements in the file, expected 13");
    t.name = "again";
    refuse(zip_of((torch_tensor[]){GOOD[0], t}, 2), BY_ERR_FORMAT, "conflicting sizes");
    refuse(zip_of((torch_tensor[]){GOOD[0], GOOD[0]}, 2), BY_ERR_FORMAT, "two tensors named \"whole\"");
    refuse(stream_of(GOOD, 1, true), BY_ERR_UNSUPPORTED, "contains a storage that no tensor uses");
    refuse(stream_of(GOOD, BY_COUNT(GOOD), false), BY_ERR_UNSUPPORTED, "big-endian");
}

/* Many tensors on one storage: a small file that claims to be a large one. */
static void test_swelling(void **state)
{
    (void)state;
    enum { N = 600 };
    static float large[4096];
    static char names[N][8];
    base_buf pickle = {0};
    static torch_tensor list[N];
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        list[i] = (torch_tensor){names[i], "FloatStorage", "0", 4096, 0, 1, {4096}, {1}};
    }
    op_tensors(&pickle, list, N, false);
    zip_file z = {0};
    zip_add(&z, "a/data.pkl", pickle.data, pickle.size);
    zip_add(&z, "a/data/0", large, sizeof large);
    zip_finish(&z);
    refuse(z.out, BY_ERR_FORMAT, "more than 64 times the size of the file");
    base_buf_free(&pickle);
}

static void test_bad_archives(void **state)
{
    (void)state;
    base_buf pickle = {0};
    op_tensors(&pickle, GOOD, 1, false);
    zip_file z = {.method = 8};
    zip_add(&z, "a/data.pkl", pickle.data, pickle.size);
    zip_finish(&z);
    refuse(z.out, BY_ERR_UNSUPPORTED, "\"a/data.pkl\" is compressed");
    z = (zip_file){.claim = 0xfffffff0};
    zip_add(&z, "a/data.pkl", pickle.data, pickle.size);
    zip_finish(&z);
    refuse(z.out, BY_ERR_UNSUPPORTED, "it claims 4294967280 bytes in");
    z = (zip_file){0};
    zip_add(&z, "a/nothing", "x", 1);
    zip_finish(&z);
    refuse(z.out, BY_ERR_FORMAT, "without data.pkl");
    z = (zip_file){0};
    zip_add(&z, "a/data.pkl", pickle.data, pickle.size);
    zip_add(&z, "a/data.pkl", pickle.data, pickle.size);
    zip_finish(&z);
    refuse(z.out, BY_ERR_FORMAT, "two records named \"a/data.pkl\"");
    z = (zip_file){0};
    zip_add(&z, "a/data.pkl", pickle.data, pickle.size);
    zip_add(&z, "a/byteorder", "big", 3);
    zip_add(&z, "a/data/0", F, sizeof F);
    zip_finish(&z);
    refuse(z.out, BY_ERR_UNSUPPORTED, "big-endian");
    z = (zip_file){0};
    zip_add(&z, "a/data.pkl", pickle.data, pickle.size);
    zip_add(&z, "a/constants.pkl", "x", 1);
    zip_finish(&z);
    refuse(z.out, BY_ERR_UNSUPPORTED, "TorchScript");
    base_buf file = zip_of(GOOD, 1);
    memset(file.data + file.size - 6, 0xff, 4); /* where the directory is */
    refuse(file, BY_ERR_FORMAT, "does not fit");
    file = zip_of(GOOD, 1);
    memset(file.data + file.size - 12, 0xff, 2); /* how many records */
    refuse(file, BY_ERR_FORMAT, "does not fit");
    z = (zip_file){.moved = 1};
    zip_add(&z, "a/data.pkl", pickle.data, pickle.size);
    zip_finish(&z);
    refuse(z.out, BY_ERR_FORMAT, "record \"a/data.pkl\" is not at the offset");
    z = (zip_file){.moved = 1 << 30};
    zip_add(&z, "a/data.pkl", pickle.data, pickle.size);
    zip_finish(&z);
    refuse(z.out, BY_ERR_FORMAT, "record \"a/data.pkl\" is not at the offset");
    z = (zip_file){.longer = 1000};
    zip_add(&z, "a/data.pkl", pickle.data, pickle.size);
    zip_finish(&z);
    refuse(z.out, BY_ERR_FORMAT, "record \"a/data.pkl\" extends beyond");
    base_buf plain = {0};
    op(&plain, "\x80\x02}.");
    refuse(plain, BY_ERR_FORMAT, "not a PyTorch file (a different pickle)");
    base_buf_free(&pickle);
}

/* Every single byte of both kinds of file changed in turn: an error or tensors, never harm. The sanitizers
 * watch. */
static void test_every_byte(void **state)
{
    (void)state;
    base_buf files[] = {zip_of(GOOD, BY_COUNT(GOOD)), stream_of(GOOD, BY_COUNT(GOOD), true)};
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < files[k].size; i++) {
            char *at = files[k].data + i, kept = *at;
            for (int change = 0; change < 3; change++) {
                *at = (char)(change == 0 ? kept + 1 : change == 1 ? 0 : 0xff);
                base_error_clear();
                by_weights *w = by_weights_open_memory(files[k].data, files[k].size, "m");
                assert_true(w || (base_error_status() != BY_OK && *by_error_message()));
                for (int n = 0; w && n < by_weights_count(w); n++) {
                    double v[12];
                    const by_weight *e = by_weights_at(w, n);
                    size_t count = e->bytes / by_dtype_size(e->dtype);
                    assert_int_equal(by_weight_read(e, 0, BY_MIN(count, 12), v, BY_F64), BY_OK);
                }
                by_weights_free(w);
            }
            *at = kept;
        }
        base_buf_free(&files[k]);
    }
}

/* ---- shards ---------------------------------------------------------------------------------- */

static void test_index(void **state)
{
    (void)state;
    char folder[] = "/tmp/banyan-torch-XXXXXX", path[100];
    assert_non_null(mkdtemp(folder));
    base_buf one = zip_of(GOOD, 3), two = stream_of(GOOD + 3, BY_COUNT(GOOD) - 3, true);
    snprintf(path, sizeof path, "%s/1.bin", folder);
    assert_int_equal(base_file_write(path, one.data, one.size), BY_OK);
    snprintf(path, sizeof path, "%s/2.bin", folder);
    assert_int_equal(base_file_write(path, two.data, two.size), BY_OK);
    const char *index = "{\"weight_map\":{\"whole\":\"1.bin\",\"turned\":\"1.bin\",\"ids\":\"2.bin\"}}";
    snprintf(path, sizeof path, "%s/pytorch_model.bin.index.json", folder);
    assert_int_equal(base_file_write(path, index, strlen(index)), BY_OK);
    by_weights *w = by_weights_open(folder);
    assert_non_null(w);
    assert_int_equal(by_weights_count(w), 3);
    assert_int_equal(by_weights_files(w), 2);
    check_values(w, "whole", 12, F, true);
    by_weights_free(w);
    base_buf_free(&one);
    base_buf_free(&two);
    assert_int_equal(base_dir_remove(folder), BY_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_here),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_made_by_torch),
        cmocka_unit_test(test_shapes_of_pickles),
        cmocka_unit_test(test_nested_stream),
        cmocka_unit_test(test_odd_views),
        cmocka_unit_test(test_nothing_is_executed),
        cmocka_unit_test(test_bad_pickles),
        cmocka_unit_test(test_copied_pickle),
        cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_swelling),
        cmocka_unit_test(test_bad_archives),
        cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
