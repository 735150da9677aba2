/* fuzz_safetensors.c - libFuzzer target: any bytes either open as a container whose tensors lie inside it, or
 * are refused with a message. */
#include <stdint.h>
#include <stdlib.h>

#include "base/base.h"
#include "io/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    base_error_clear();
    by_weights *s = by_weights_open_memory(data, size, "input");
    if (!s) {
        if (base_error_status() == BY_OK || !*by_error_message())
            abort();
        return 0;
    }
    unsigned sum = 0;
    for (int i = 0; i < by_weights_count(s); i++) {
        const by_weight *e = by_weights_at(s, i);
        if (by_weights_find(s, e->name) != e)
            abort();
        for (size_t j = 0; j < e->bytes; j++)
            sum += ((const uint8_t *)e->data)[j]; /* the sanitiser sees any byte outside */
    }
    volatile unsigned keep = sum;
    (void)keep;
    by_weights_metadata(s, "format");
    by_weights_free(s);
    return 0;
}
