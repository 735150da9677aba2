/* fuzz_image.c - any bytes as a picture, in each of the formats. Whatever is accepted can be resized. */
#include <stdlib.h>

#include "banyan/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const by_pixels formats[] = {BY_PIXELS_NATIVE, BY_PIXELS_RGBA};
    for (int i = 0; i < 2; i++) {
        by_image *m = by_image_decode(
            data, size, &(by_image_spec){.format = formats[i], .upright = i == 1, .max_pixels = 1 << 16});
        if (m && (int64_t)m->width * m->height > 1 << 16)
            abort();
        if (m && m->format != BY_PIXELS_GREY16)
            by_image_free(by_image_resize(m, 5, 3, BY_FILTER_LANCZOS));
        by_image_free(m);
    }
    return 0;
}
