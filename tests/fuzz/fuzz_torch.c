/* fuzz_torch.c - libFuzzer target: any bytes as a PyTorch file, and as the pickle inside a sound one. What
 * opens must have all its elements inside the file; the rest is refused with a message. */
#include <stdint.h>
#include <stdlib.h>

#include "../torch_file.h"
#include "io/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__asan_default_options(void);

/* Memory must be paid for by bytes of the file: a single large allocation ends the process. */
const char *__asan_default_options(void)
{
    return "max_allocation_size_mb=64";
}

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void check(const void *bytes, size_t size)
{
    base_error_clear();
    by_weights *s = by_weights_open_memory(bytes, size, "input");
    if (!s) {
        require(base_error_status() != BY_OK && base_error_status() != BY_ERR_MEMORY && *by_error_message());
        return;
    }
    for (int i = 0; i < by_weights_count(s); i++) {
        const by_weight *w = by_weights_at(s, i);
        size_t elements = w->bytes / by_dtype_size(w->dtype);
        double part[64];
        require(by_weights_find(s, w->name) == w);
        for (size_t at = 0; at < elements && at < 1 << 16; at += 64) /* the sanitiser sees any byte outside */
            require(by_weight_read(w, at, BY_MIN(elements - at, 64), part, BY_F64) == BY_OK);
        require(elements == 0 || by_weight_read(w, elements - 1, 1, part, BY_F64) == BY_OK);
    }
    by_weights_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t storage[64];
    check(data, size);
    zip_file z = {0};
    zip_add(&z, "archive/data.pkl", data, size);
    zip_add(&z, "archive/data/0", storage, sizeof storage);
    zip_add(&z, "archive/data/1", storage, 8);
    zip_finish(&z);
    check(z.out.data, z.out.size);
    base_buf_free(&z.out);
    return 0;
}
