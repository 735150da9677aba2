/* fuzz_model.c - any bytes as a model directory: config.json up to the first NUL, model.safetensors behind
 * it. It is refused with a message, or it opens, computes, and comes back the same from a copy. Nothing may
 * be allocated that the file does not pay for. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "graph/graph.h"
#include "model/model.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__asan_default_options(void);

static by_device *device;
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
    by_device_free(device);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    snprintf(dir, sizeof dir, "%s/banyan-fuzz-XXXXXX", base_dir_exists("/dev/shm") ? "/dev/shm" : "/tmp");
    require(mkdtemp(dir) != NULL);
    snprintf(copy, sizeof copy, "%s/copy", dir);
    device = by_device_open("cpu:generic", 1);
    require(device != NULL);
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

static void compute(by_model *m)
{
    int32_t zero = 0;
    by_graph *g = by_graph_new(&(by_graph_spec){.params = by_model_params(m)});
    require(g != NULL);
    by_tensor *tokens = by_input(g, "tokens", BY_I32, 2, (int64_t[]){1, 1});
    by_tensor *pick = by_input(g, "pick", BY_I32, 1, (int64_t[]){1});
    by_model_io io = {0};
    by_io_feed(&io, "tokens", tokens);
    by_io_feed(&io, "pick", pick);
    by_model_build(m, g, &io);
    by_output(g, "logits", by_io_output(&io, "logits"));
    by_program *p = by_compile(g, &(by_compile_spec){0});
    require(p != NULL);
    require(by_write(p, tokens, &zero, sizeof zero) == BY_OK &&
            by_write(p, pick, &zero, sizeof zero) == BY_OK);
    require(by_run(p) == BY_OK);
    by_program_free(p);
}

static void save_and_compare(const by_model *m, const by_model_spec *spec)
{
    require(by_model_save(m, copy, BY_F32) == BY_OK);
    by_model *again = by_model_open(device, copy, spec);
    require(again && again->params->count == m->params->count && again->task == m->task);
    for (int i = 0; i < m->params->count; i++) {
        size_t bytes = (size_t)m->params->list[i].count * sizeof(float);
        float *a = base_alloc(bytes), *b = base_alloc(bytes);
        require(a && b && by_params_get(m->params, i, BY_SLOT_VALUE, a) == BY_OK);
        require(by_params_get(again->params, i, BY_SLOT_VALUE, b) == BY_OK);
        for (int64_t k = 0; k < m->params->list[i].count; k++)
            require(a[k] == b[k] || (a[k] != a[k] && b[k] != b[k]));
        base_free(a);
        base_free(b);
    }
    by_model_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t config = nul ? (size_t)(nul - data) : size;
    put("config.json", data, config);
    put("model.safetensors", data + config + (nul != NULL), size - config - (nul != NULL));
    by_model_spec specs[] = {{.dtype = BY_F32},
                             {.dtype = BY_BF16, .training = true},
                             {.dtype = BY_F32, .new_head = true, .task = BY_TASK_CLASSIFY, .labels = 2}};
    for (int i = 0; i < BY_COUNT(specs); i++) {
        base_error_clear();
        by_model *m = by_model_open(device, dir, &specs[i]);
        require(m || (base_error_status() != BY_OK && base_error_status() != BY_ERR_MEMORY &&
                      *by_error_message()));
        if (!m)
            continue;
        compute(m);
        if (i == 0)
            save_and_compare(m, &specs[i]);
        by_model_free(m);
    }
    return 0;
}
