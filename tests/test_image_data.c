/* test_image_data.c - datasets of pictures: folders, lists, IDX and CIFAR files, what is wrong with them, and their parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/picture_set.h"
#include "folder.h"

static int make_folder(void **state)
{
    (void)state;
    return make_root("pictures") ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

static by_picture_set *open_one(const char *path, by_example_kind kind)
{
    return by_picture_set_open(&path, 1, &(by_picture_set_spec){.kind = kind, .format = BY_PIXELS_NATIVE});
}

static void assert_fails(const char *path, by_example_kind kind, const char *message)
{
    by_picture_set *p = open_one(path, kind);
    if (p || !strstr(by_error_message(), message))
        fail_msg("\"%s\" is not the error, but \"%s\"", message, p ? "none" : by_error_message());
}

/* ---- IDX --------------------------------------------------------------------------------------- */

static void put_number(base_buf *b, uint32_t v)
{
    const uint8_t bytes[] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
    base_buf_put(b, bytes, 4);
}

/* An IDX file with these axes whose elements are first, first + 1, ...; `extra` bytes too many or too few. */
static const char *write_idx(const char *name, int axes, const uint32_t *length, uint8_t first, int extra)
{
    base_buf b = {0};
    int n = 1;
    base_buf_put(&b, "\0\0\x08", 3);
    base_buf_put(&b, &(uint8_t){(uint8_t)axes}, 1);
    for (int i = 0; i < axes; i++) {
        put_number(&b, length[i]);
        n *= (int)length[i];
    }
    for (int i = 0; i < n + extra; i++)
        base_buf_put(&b, &(uint8_t){(uint8_t)(first + i)}, 1);
    assert_int_equal(base_file_write(in_root(name), b.data, b.size), BY_OK);
    base_buf_free(&b);
    return in_root(name);
}

static void test_idx(void **state)
{
    (void)state;
    const char *path = write_idx("a-images-idx3-ubyte", 3, (uint32_t[]){3, 2, 4}, 10, 0);
    assert_fails(path, BY_EXAMPLE_IMAGE_CLASSIFY, "no label file");
    write_idx("a-labels-idx1-ubyte", 1, (uint32_t[]){3}, 5, 0);
    by_picture_set *p = open_one(path, BY_EXAMPLE_IMAGE_CLASSIFY);
    int height, width;
    assert_non_null(p);
    assert_int_equal(by_picture_set_count(p), 3);
    assert_int_equal(by_picture_set_channels(p), 1);
    assert_int_equal(by_picture_set_classes(p), 8); /* labels 5, 6, 7 */
    assert_string_equal(by_picture_set_class(p, 7), "7");
    assert_null(by_picture_set_class(p, 8));
    by_picture_set_size(p, &height, &width);
    assert_int_equal(height, 2);
    assert_int_equal(width, 4);
    for (int i = 0; i < 3; i++) {
        by_image *m = by_picture_set_get(p, i);
        assert_non_null(m);
        assert_int_equal(m->format, BY_PIXELS_GREY);
        assert_int_equal(((uint8_t *)m->pixels)[7], 10 + 8 * i + 7);
        assert_int_equal(by_picture_set_label(p, i), 5 + i);
        by_image_free(m);
    }
    assert_null(by_picture_set_get(p, 3));
    by_picture_set_free(p);
    p = by_picture_set_open(&path, 1, &(by_picture_set_spec){.kind = BY_EXAMPLE_IMAGE_CLASSIFY}); /* as RGB */
    by_image *m = by_picture_set_get(p, 1);
    assert_int_equal(m->channels, 3);
    assert_int_equal(((uint8_t *)m->pixels)[5], 10 + 8 + 1);
    by_image_free(m);
    by_picture_set_free(p);
}

static void test_idx_damage(void **state)
{
    (void)state;
    static const uint32_t shape[] = {3, 2, 4}, wide[] = {3, 2, 4, 5};
    write_idx("b-labels-idx1-ubyte", 1, (uint32_t[]){2}, 0, 0);
    const char *path = write_idx("b-images-idx3-ubyte", 3, shape, 0, 0);
    assert_fails(path, BY_EXAMPLE_IMAGE_CLASSIFY, "b-labels-idx1-ubyte: 2 labels for 3 pictures");
    write_idx("b-images-idx3-ubyte", 3, shape, 0, -1);
    assert_fails(path, BY_EXAMPLE_IMAGE_CLASSIFY, "b-images-idx3-ubyte: the file is truncated");
    write_idx("b-images-idx3-ubyte", 3, shape, 0, 1);
    assert_fails(path, BY_EXAMPLE_IMAGE_CLASSIFY, "more bytes than its header says");
    write_idx("b-labels-idx1-ubyte", 2, (uint32_t[]){3, 1}, 0, 0);
    write_idx("b-images-idx3-ubyte", 3, shape, 0, 0);
    assert_fails(path, BY_EXAMPLE_IMAGE_CLASSIFY,
                 "b-labels-idx1-ubyte: the file has 2 axes; labels have one");
    write_idx("b-images-idx3-ubyte", 3, (uint32_t[]){3, 0, 4}, 0, 0);
    assert_fails(path, BY_EXAMPLE_IMAGE, "pictures of 4 x 0 pixels are empty");
    assert_int_equal(base_file_write(path, "\0\0\x0d\3\0\0\0\1", 8), BY_OK);
    assert_fails(path, BY_EXAMPLE_IMAGE, "not an IDX file of bytes");
    write_idx("b-images-idx3-ubyte", 4, wide, 0, 0);
    assert_fails(path, BY_EXAMPLE_IMAGE, "the file has 4 axes");
    write_idx("b-images-idx3-ubyte", 3, shape, 0, 0);
    assert_fails(path, BY_EXAMPLE_CAPTION, "no captions");
}

/* Headers that promise more than may be, or can be, are refused before memory is allocated. */
static void test_idx_limits(void **state)
{
    (void)state;
    const char *path = write_idx("c-images-idx3-ubyte", 3, (uint32_t[]){0, 2, 4}, 0, 0);
    char *bytes = base_file_read(path, 100, NULL);
    memset(bytes + 4, 0xff, 12);
    assert_int_equal(base_file_write(path, bytes, 16), BY_OK);
    assert_fails(path, BY_EXAMPLE_IMAGE, "pictures of 4294967295 x 4294967295 pixels");
    memcpy(bytes + 4, "\0\1\0\0\0\0\1\0\0\0\1\0", 12); /* 65536 of 256 x 256: 4 GiB */
    assert_int_equal(base_file_write(path, bytes, 16), BY_OK);
    assert_fails(path, BY_EXAMPLE_IMAGE, "more than the file can hold");
    base_free(bytes);
    path = write_idx("c-images-idx3-ubyte", 3, (uint32_t[]){3, 2, 4}, 0, 0);
    const by_picture_set_spec spec = {.kind = BY_EXAMPLE_IMAGE, .max_bytes = 23},
                              small = {.kind = BY_EXAMPLE_IMAGE, .max_pixels = 7};
    assert_null(by_picture_set_open(&path, 1, &spec));
    assert_non_null(strstr(by_error_message(), "need 24 bytes of memory; at most 23"));
    assert_null(by_picture_set_open(&path, 1, &small));
    assert_non_null(strstr(by_error_message(), "at most 7 pixels"));
}

/* ---- CIFAR ------------------------------------------------------------------------------------- */

static const char *write_cifar(const char *name, int count, int class_bytes, const uint8_t *labels)
{
    base_buf b = {0};
    for (int i = 0; i < count; i++) {
        base_buf_put(&b, labels + i * class_bytes, (size_t)class_bytes);
        for (int k = 0; k < 3072; k++)
            base_buf_put(&b, &(uint8_t){(uint8_t)(k / 1024 * 80 + i)}, 1);
    }
    assert_int_equal(base_file_write(in_root(name), b.data, b.size), BY_OK);
    base_buf_free(&b);
    return in_root(name);
}

static void test_cifar(void **state)
{
    (void)state;
    const char *ten = write_cifar("batch.bin", 2, 1, (uint8_t[]){9, 4}),
               *hundred = write_cifar("train100.bin", 2, 2, (uint8_t[]){19, 99, 0, 1});
    by_picture_set *p = open_one(ten, BY_EXAMPLE_IMAGE_CLASSIFY);
    assert_non_null(p);
    assert_int_equal(by_picture_set_classes(p), 10);
    assert_int_equal(by_picture_set_label(p, 1), 4);
    by_image *m = by_picture_set_get(p, 1);
    assert_memory_equal(m->pixels, "\x01\x51\xa1\x01", 4); /* planes become pixels */
    by_image_free(m);
    char name[400];
    by_picture_set_name(p, 1, name, sizeof name);
    assert_non_null(strstr(name, "batch.bin:1"));
    by_picture_set_free(p);
    for (int coarse = 0; coarse < 2; coarse++) {
        p = by_picture_set_open(
            &hundred, 1, &(by_picture_set_spec){.kind = BY_EXAMPLE_IMAGE_CLASSIFY, .coarse = coarse == 1});
        assert_int_equal(by_picture_set_classes(p), coarse ? 20 : 100);
        assert_int_equal(by_picture_set_label(p, 0), coarse ? 19 : 99);
        by_picture_set_free(p);
    }
    assert_fails(write_cifar("bad.bin", 1, 1, (uint8_t[]){10}), BY_EXAMPLE_IMAGE_CLASSIFY,
                 "not a file of CIFAR-10");
    write_text("batches.meta.txt", "plane\ncar\n\nbird\r\n");
    p = open_one(ten, BY_EXAMPLE_IMAGE_CLASSIFY);
    assert_string_equal(by_picture_set_class(p, 2), "bird");
    assert_string_equal(by_picture_set_class(p, 3), "3");
    by_picture_set_free(p);
    const by_picture_set_spec two = {.kind = BY_EXAMPLE_IMAGE_CLASSIFY, .classes = "a,b"};
    assert_null(by_picture_set_open(&ten, 1, &two));
    assert_non_null(strstr(by_error_message(), "has the class 9, but only 2 classes are named"));
}

/* ---- files ------------------------------------------------------------------------------------- */

static bool writes_png(void)
{
    return strstr(by_image_formats(), "png") != NULL;
}

static void write_picture(const char *name, uint8_t value)
{
    by_image *m = by_image_new(4, 3, BY_PIXELS_GREY);
    memset(m->pixels, value, 12);
    char *path = base_strdup(in_root(name));
    *strrchr(path, '/') = '\0';
    assert_int_equal(base_dir_make(path), BY_OK);
    assert_int_equal(by_image_write_png(m, in_root(name)), BY_OK);
    base_free(path);
    by_image_free(m);
}

static void test_folder(void **state)
{
    (void)state;
    if (!writes_png())
        skip();
    write_picture("set/cat/2.png", 2);
    write_picture("set/cat/deep/1.PNG", 1);
    write_picture("set/ant/3.png", 3);
    write_text("set/cat/notes.txt", "not a picture");
    by_picture_set *p = open_one(in_root("set"), BY_EXAMPLE_IMAGE_CLASSIFY);
    assert_non_null(p);
    assert_int_equal(by_picture_set_count(p), 3);
    assert_int_equal(by_picture_set_channels(p), 3);
    assert_string_equal(by_picture_set_class(p, 0), "ant");
    assert_int_equal(by_picture_set_label(p, 0), 0);
    assert_int_equal(by_picture_set_label(p, 2), 1);
    by_image *m = by_picture_set_get(p, 2);
    assert_int_equal(((uint8_t *)m->pixels)[0], 1); /* cat/deep after cat/2.png */
    by_image_free(m);
    const uint64_t before = by_picture_set_fingerprint(p);
    /* numbered by a model's classes: by name, then as numbers */
    assert_int_equal(by_picture_set_number(p, (const char *[]){"dog", "cat", "ant"}, 3), BY_OK);
    assert_int_equal(by_picture_set_label(p, 0), 2);
    assert_int_equal(by_picture_set_number(p, (const char *[]){"dog", "cat"}, 2), BY_ERR_FORMAT);
    assert_non_null(strstr(by_error_message(), "\"ant\" is not one of the model's 2 classes"));
    by_picture_set_free(p);
    write_picture("set/loose.png", 3);
    assert_fails(in_root("set"), BY_EXAMPLE_IMAGE_CLASSIFY,
                 "loose.png: the picture is not in a sub-directory");
    p = open_one(in_root("set"), BY_EXAMPLE_IMAGE);
    assert_int_equal(by_picture_set_count(p), 4);
    assert_int_equal(by_picture_set_label(p, 0), -1);
    assert_true(by_picture_set_fingerprint(p) != before);
    by_picture_set_free(p);
    write_text("set/cat/broken.png", "x");
    p = open_one(in_root("set/cat"), BY_EXAMPLE_IMAGE);
    assert_null(by_picture_set_get(p, 1)); /* 2.png, broken.png, deep/1.PNG */
    assert_non_null(strstr(by_error_message(), "set/cat/broken.png: "));
    by_picture_set_free(p);
}

static void test_lists(void **state)
{
    (void)state;
    if (!writes_png())
        skip();
    write_picture("list/a.png", 1);
    write_picture("list/b.png", 2);
    const char *table = write_text("list/x.tsv", "file\tlabel\na.png\t10\nb.png\t9\n");
    by_picture_set *p = open_one(table, BY_EXAMPLE_IMAGE_CLASSIFY);
    assert_non_null(p);
    assert_string_equal(by_picture_set_class(p, 0), "9"); /* numbers sort as numbers */
    assert_int_equal(by_picture_set_label(p, 0), 1);
    by_image *m = by_picture_set_get(p, 0);
    assert_non_null(m);
    by_image_free(m);
    by_picture_set_free(p);
    const char *lines =
        write_text("list/metadata.jsonl", "{\"file_name\": \"b.png\", \"text\": \"two, b\"}\n");
    p = open_one(lines, BY_EXAMPLE_CAPTION);
    assert_string_equal(by_picture_set_caption(p, 0), "two, b");
    by_picture_set_free(p);
    p = open_one(in_root("list"), BY_EXAMPLE_CAPTION); /* the directory has it too */
    assert_int_equal(by_picture_set_count(p), 1);
    by_picture_set_free(p);
    const char *plain = write_text("list/names.txt", "a.png\nb.png\n");
    p = open_one(plain, BY_EXAMPLE_IMAGE);
    assert_int_equal(by_picture_set_count(p), 2);
    by_picture_set_free(p);
    const char *missing = write_text("list/y.csv", "a.png,x\nnone.png,y\n");
    assert_fails(missing, BY_EXAMPLE_IMAGE_CLASSIFY, "y.csv, line 2: ");
    assert_fails(missing, BY_EXAMPLE_IMAGE_CLASSIFY, "none.png: no such file");
    assert_fails(in_root("nothing"), BY_EXAMPLE_IMAGE, "nothing");
}

/* ---- parts ------------------------------------------------------------------------------------- */

static void test_split(void **state)
{
    (void)state;
    const char *path = write_idx("d-images-idx3-ubyte", 3, (uint32_t[]){100, 1, 1}, 0, 0);
    by_picture_set *p = open_one(path, BY_EXAMPLE_IMAGE);
    data_picture_part train, held, other;
    int seen[100] = {0}, same = 0;
    assert_int_equal(data_picture_set_split(p, 0.2, 7, &train, &held), BY_OK);
    assert_int_equal(train.count, 80);
    assert_int_equal(held.count, 20);
    for (int i = 0; i < 80; i++)
        seen[data_picture_part_at(&train, i)]++;
    for (int i = 0; i < 20; i++)
        seen[data_picture_part_at(&held, i)]++;
    for (int i = 0; i < 100; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(data_picture_set_split(p, 0.2, 8, &train, &other), BY_OK);
    for (int i = 0; i < 20; i++)
        same += data_picture_part_at(&held, i) == data_picture_part_at(&other, i);
    assert_true(same < 10);
    assert_int_equal(data_picture_set_split(p, 0, 7, &train, &held), BY_OK);
    assert_int_equal(held.count, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(data_picture_part_at(&train, i), i);
    assert_int_equal(data_picture_set_split(p, 1, 7, &train, &held), BY_ERR_ARGUMENT);
    by_picture_set_free(p);
}

/* The real thing, where the package dataset-fashion-mnist is installed. */
static void test_fashion(void **state)
{
    static const char *const path = "/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz";
    (void)state;
    if (!base_file_exists(path))
        skip();
    by_picture_set *p = open_one(path, BY_EXAMPLE_IMAGE_CLASSIFY);
    assert_non_null(p);
    assert_int_equal(by_picture_set_count(p), 10000);
    assert_int_equal(by_picture_set_classes(p), 10);
    assert_int_equal(by_picture_set_label(p, 0), 9);
    int counts[10] = {0};
    for (int i = 0; i < 10000; i++)
        counts[by_picture_set_label(p, i)]++;
    for (int i = 0; i < 10; i++)
        assert_int_equal(counts[i], 1000);
    by_picture_set_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idx),   cmocka_unit_test(test_idx_damage), cmocka_unit_test(test_idx_limits),
        cmocka_unit_test(test_cifar), cmocka_unit_test(test_folder),     cmocka_unit_test(test_lists),
        cmocka_unit_test(test_split), cmocka_unit_test(test_fashion),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
