/* test_saving.c - what a checkpoint costs: memory that does not grow with the model; and what its checksums
 * find. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "allocations.h"
#include "banyan/banyan.h"
#include "folder.h"
#include "train/checkpoint.h"

static by_device *device;

static int set_up(void **state)
{
    (void)state;
    device = by_device_open("cpu", 1);
    return make_root("saving") && device ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

static by_model *model_of(int vocab, by_dtype dtype)
{
    const by_model_shape shape = {.layers = 1, .heads = 2, .width = 128, .context = 8, .vocab = vocab};
    by_model *m =
        by_model_new(device, "gpt2", &shape, &(by_model_spec){.training = true, .dtype = dtype, .seed = 3});
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

static by_status write_model(void *user, const char *dir)
{
    return train_model_save(user, NULL, dir);
}

/* The most memory that saving took besides what was there. */
static long cost_of_saving(const char *out, by_model *m)
{
    train_folder f;
    const train_run_state s = {.step = 10, .best_eval = NAN};
    assert_int_equal(train_folder_open(&f, out), BY_OK);
    const long before = bytes_peak = bytes_alive;
    if (train_checkpoint_save(&f, &s, true, 1, write_model, m) != BY_OK)
        fail_msg("%s", by_error_message());
    const long cost = bytes_peak - before;
    train_folder_close(&f);
    return cost;
}

static void saving_streams(void **state)
{
    (void)state;
    const by_dtype types[] = {BY_F32, BY_BF16, BY_F64};
    for (int i = 0; i < BY_COUNT(types); i++) {
        char name[32];
        by_model *m = model_of(40000, types[i]); /* embeddings of 20 MB, and moments of as much each */
        snprintf(name, sizeof name, "run-%d", i);
        const long cost = cost_of_saving(in_root(name), m);
        if (cost > 5 << 20)
            fail_msg("saving took %ld bytes, type %d", cost, i);
        by_model_free(m);
    }
}

static void flip(const char *path, long from_end)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -from_end, SEEK_END), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, -from_end, SEEK_END), 0);
    fputc(byte ^ 64, f);
    fclose(f);
}

/* Every byte counts, wherever it lies. */
static void checksums_find_damage(void **state)
{
    (void)state;
    unsigned char bytes[100], copy[100];
    for (int i = 0; i < BY_COUNT(bytes); i++)
        bytes[i] = (unsigned char)(i * 37);
    for (size_t n = 0; n <= sizeof bytes; n++) {
        const uint64_t sum = base_checksum(bytes, n);
        assert_true(n == 0 || sum != base_checksum(bytes, n - 1));
        for (size_t i = 0; i < n; i++)
            for (int bit = 0; bit < 8; bit++) {
                memcpy(copy, bytes, sizeof copy);
                copy[i] ^= (unsigned char)(1 << bit);
                assert_true(base_checksum(copy, n) != sum);
            }
    }
    by_model *m = model_of(300, BY_F32);
    cost_of_saving(in_root("damaged"), m);
    by_model_free(m);
    flip(in_root("damaged/last/optimizer.safetensors"), 3);
    train_folder f;
    char *dir;
    assert_int_equal(train_folder_open(&f, in_root("damaged")), BY_OK);
    assert_int_equal(train_checkpoint_find(&f, &dir), BY_ERR_FORMAT);
    assert_non_null(strstr(by_error_message(), "optimizer.safetensors: tensor \"moment"));
    assert_non_null(strstr(by_error_message(), "checksum"));
    base_free(dir);
    train_folder_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saving_streams),
        cmocka_unit_test(checksums_find_damage),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
