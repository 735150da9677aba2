/* fuzz_npz.c - libFuzzer target: any bytes as an array inside a sound archive of NumPy, and as its header. What opens must have all its
 * elements inside the file; the rest is refused with a message. */
#include <stdint.h>
#include <stdlib.h>

#include "../torch_file.h"
#include "io/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void check(const base_buf *array)
{
    zip_file z = {0};
    zip_add(&z, "a.npy", array->data ? array->data : "", array->size);
    zip_finish(&z);
    base_error_clear();
    by_weights *s = by_weights_open_memory(z.out.data, z.out.size, "input");
    require(s || (base_error_status() != BY_OK && *by_error_message()));
    for (int i = 0; s && i < by_weights_count(s); i++) {
        const by_weight *w = by_weights_at(s, i);
        const size_t elements = w->bytes / by_dtype_size(w->dtype);
        double part[64];
        for (size_t at = 0; at < elements && at < 1 << 16; at += 64)
            require(by_weight_read(w, at, BY_MIN(elements - at, 64), part, BY_F64) == BY_OK);
        require(elements == 0 || by_weight_read(w, elements - 1, 1, part, BY_F64) == BY_OK);
    }
    by_weights_free(s);
    base_buf_free(&z.out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    base_buf whole = {0}, header = {0};
    base_buf_put(&whole, data, size);
    check(&whole);
    base_buf_put(&header, "\x93NUMPY\1\0", 8);
    put_little(&header, BY_MIN(size, UINT16_MAX), 2);
    base_buf_put(&header, data, BY_MIN(size, UINT16_MAX));
    put_little(&header, 0, 64);
    check(&header);
    base_buf_free(&whole);
    base_buf_free(&header);
    return 0;
}
