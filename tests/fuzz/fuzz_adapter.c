/* fuzz_adapter.c - any bytes as a folder with an adapter: adapter_config.json up to the first NUL, adapter_model.safetensors behind
 * it. It is refused with a message, or it opens over a small model, computes, and comes back the same from a copy. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "banyan/adapter.h"
#include "banyan/pass.h"
#include "base/file.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__asan_default_options(void);

static by_device *device;
static by_model *model;
static char dir[64], copy[80];

/* A single large allocation ends the process, and with it the fuzzing. */
const char *__asan_default_options(void)
{
    return "max_allocation_size_mb=64";
}

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void clean_up(void)
{
    base_dir_remove(dir);
    by_model_free(model);
    by_device_free(device);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const by_model_shape shape = {
        .layers = 1, .heads = 2, .width = 8, .context = 8, .vocab = 16, .dropout = 0};
    (void)argc, (void)argv;
    snprintf(dir, sizeof dir, "%s/banyan-fuzz-XXXXXX", base_dir_exists("/dev/shm") ? "/dev/shm" : "/tmp");
    require(mkdtemp(dir) != NULL);
    snprintf(copy, sizeof copy, "%s/copy", dir);
    device = by_device_open("cpu:generic", 1);
    require(device != NULL);
    model = by_model_new(device, "gpt2", &shape, &(by_model_spec){.seed = 1});
    require(model != NULL);
    atexit(clean_up);
    return 0;
}

static void put(const char *name, const uint8_t *data, size_t size)
{
    char path[100];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    require(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static void compute(void)
{
    const int32_t zero = 0;
    by_batch b = by_batch_of(1, 1, &zero);
    by_pass *p = by_pass_new(model, &b, &(by_pass_spec){0});
    require(p && by_pass_run(p, &b) == BY_OK);
    by_pass_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    const size_t config = nul ? (size_t)(nul - data) : size;
    put("adapter_config.json", data, config);
    put("adapter_model.safetensors", data + config + (nul != NULL), size - config - (nul != NULL));
    base_error_clear();
    by_adapter *a = by_adapter_open(model, dir, false);
    require(a ||
            (base_error_status() != BY_OK && base_error_status() != BY_ERR_MEMORY && *by_error_message()));
    if (!a)
        return 0;
    compute();
    require(by_adapter_save(a, copy) == BY_OK);
    by_adapter *again = by_adapter_open(model, copy, false);
    require(again && by_adapter_layers(again) == by_adapter_layers(a));
    by_adapter_free(again);
    by_adapter_free(a);
    return 0;
}
