/* test_npz.c - archives of NumPy arrays: types, shapes, both orders, and every way they can be wrong; and tensors that get other names
 * when a file is converted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "folder.h"
#include "io/weights.h"
#include "torch_file.h"

static const float F[6] = {0, 1, 2, 3, 4, 5};

/* A .npy file: magic, version, length of the header, header, elements. */
static base_buf array_of(const char *header, int version, const void *data, size_t size)
{
    base_buf b = {0};
    base_buf_put(&b, "\x93NUMPY", 6);
    put_little(&b, (uint64_t)version, 2);
    put_little(&b, strlen(header), version == 1 ? 2 : 4);
    base_buf_puts(&b, header);
    base_buf_put(&b, data, size);
    return b;
}

static base_buf archive_of(const char *name, const char *header, int version, const void *data, size_t size)
{
    zip_file z = {0};
    base_buf one = array_of("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 1, F + 5, 4);
    base_buf two = array_of(header, version, data, size);
    zip_add(&z, "scalar.npy", one.data, one.size);
    zip_add(&z, name, two.data, two.size);
    zip_finish(&z);
    base_buf_free(&one);
    base_buf_free(&two);
    return z.out;
}

/* Opens the archive and compares the array with these numbers. */
static void expect(const char *header, int version, const void *data, size_t size, int rank,
                   const int64_t *dim, const float *values)
{
    base_buf file = archive_of("a.b.npy", header, version, data, size);
    by_weights *s = by_weights_open_memory(file.data, file.size, "input");
    if (!s)
        fail_msg("%s", by_error_message());
    assert_string_equal(by_weights_format(s), "NumPy npz");
    assert_int_equal(by_weights_count(s), 2);
    const by_weight *w = by_weights_find(s, "a.b"), *scalar = by_weights_find(s, "scalar");
    assert_non_null(w);
    assert_int_equal(w->rank, rank);
    size_t count = 1;
    for (int i = 0; i < rank; i++) {
        assert_int_equal(w->dim[i], dim[i]);
        count *= (size_t)dim[i];
    }
    float found[6], last;
    assert_int_equal(by_weight_read(w, 0, count, found, BY_F32), BY_OK);
    assert_memory_equal(found, values, count * sizeof *found);
    assert_int_equal(scalar->rank, 0);
    assert_int_equal(by_weight_read(scalar, 0, 1, &last, BY_F32), BY_OK);
    assert_true(last == 5);
    by_weights_free(s);
    base_buf_free(&file);
}

static void test_arrays(void **state)
{
    (void)state;
    const int64_t two[] = {2, 3}, one[] = {6}, none[] = {0, 3};
    const float columns[] = {0, 2, 4, 1, 3, 5};
    const double wide[] = {0, 1, 2, 3, 4, 5};
    const uint8_t bytes[] = {0, 1, 2, 3, 4, 5};
    expect("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }     \n", 1, F, sizeof F, 2, two, F);
    expect("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 2, F, sizeof F, 2, two, columns);
    expect("{'shape': (6,), 'descr': '<f8', 'fortran_order': False}", 3, wide, sizeof wide, 1, one, F);
    expect("{'descr': '|u1', 'fortran_order': True, 'shape': (6,), }", 1, bytes, sizeof bytes, 1, one, F);
    expect("{'descr': '<f4', 'fortran_order': True, 'shape': (0, 3), }", 1, F, 0, 2, none, F);
}

static void refuse(const char *name, const char *header, size_t size, by_status status, const char *message)
{
    base_buf file = archive_of(name, header, 1, F, size);
    assert_null(by_weights_open_memory(file.data, file.size, "input"));
    assert_int_equal(base_error_status(), status);
    if (!strstr(by_error_message(), message))
        fail_msg("\"%s\" instead of \"%s\"", by_error_message(), message);
    base_buf_free(&file);
}

static void test_refusals(void **state)
{
    (void)state;
    refuse("a.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", sizeof F - 1,
           BY_ERR_FORMAT, "fewer elements");
    refuse("a.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 16), }",
           sizeof F, BY_ERR_FORMAT, "fewer elements");
    refuse("a.npy", "{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }", sizeof F,
           BY_ERR_UNSUPPORTED, "\"|O\"");
    refuse("a.npy", "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }", sizeof F,
           BY_ERR_UNSUPPORTED, "\">f4\"");
    refuse("a.npy", "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2, 3), }", sizeof F,
           BY_ERR_FORMAT, "malformed");
    refuse("a.npy", "{'fortran_order': False, 'shape': (2, 3), }", sizeof F, BY_ERR_FORMAT, "malformed");
    refuse("a.npy", "{'descr': '<f4', 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1), }", sizeof F, BY_ERR_FORMAT,
           "malformed");
    refuse("a.npy", "{'descr': '<f4', 'shape': (-1,), }", sizeof F, BY_ERR_FORMAT, "malformed");
    refuse("a.npy", "{'descr': '<f4', 'shape': (1,)", sizeof F, BY_ERR_FORMAT, "malformed");
    refuse("a.npy", "{'descr': '<f4', 'eval': __import__('os'), }", sizeof F, BY_ERR_FORMAT, "malformed");
    refuse("a.txt", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", sizeof F, BY_ERR_FORMAT,
           "\"a.txt\" is not an array");
    refuse("scalar.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", sizeof F,
           BY_ERR_FORMAT, "scalar");
    zip_file z = {.method = 8};
    base_buf one = array_of("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 1, F, 4);
    zip_add(&z, "a.npy", one.data, one.size);
    zip_finish(&z);
    assert_null(by_weights_open_memory(z.out.data, z.out.size, "input"));
    assert_non_null(strstr(by_error_message(), "compressed"));
    for (size_t n = 0; n < z.out.size; n += 3) /* truncated anywhere */
        assert_null(by_weights_open_memory(z.out.data, n, "input"));
    base_buf_free(&z.out);
    base_buf_free(&one);
}

/* ---- converting ---------------------------------------------------------------------------------- */

static void test_renaming(void **state)
{
    (void)state;
    base_buf file =
        archive_of("a.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 1, F, sizeof F);
    assert_true(make_root("npz"));
    FILE *f = fopen(in_root("x.npz"), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(file.data, 1, file.size, f), file.size);
    assert_int_equal(fclose(f), 0);
    base_buf_free(&file);
    char *in = strdup(in_root("x.npz")), *out = strdup(in_root("x.safetensors"));
    const char *const swap[] = {"a=scalar", "scalar=a"};
    by_convert_spec spec = {.renames = swap, .rename_count = 2};
    if (by_weights_convert(in, out, &spec, NULL) != BY_OK)
        fail_msg("%s", by_error_message());
    by_weights *s = by_weights_open(out);
    assert_non_null(s);
    assert_int_equal(by_weights_find(s, "scalar")->rank, 2);
    assert_int_equal(by_weights_find(s, "a")->rank, 0);
    by_weights_free(s);
    static const struct {
        const char *rename, *message;
    } wrong[] = {{"b=c", "b=c: no tensor"},
                 {"a=scalar", "two tensors named \"scalar\""},
                 {"a=", "not OLD=NEW"},
                 {"a", "not OLD=NEW"}};
    for (int i = 0; i < BY_COUNT(wrong); i++) {
        spec = (by_convert_spec){.renames = &wrong[i].rename, .rename_count = 1};
        assert_int_equal(by_weights_convert(in, out, &spec, NULL), BY_ERR_ARGUMENT);
        if (!strstr(by_error_message(), wrong[i].message))
            fail_msg("%s", by_error_message());
    }
    free(in);
    free(out);
    assert_int_equal(base_dir_remove(root), BY_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_renaming),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
