/* fuzz_cifar.c - any bytes as a file of CIFAR-10 or CIFAR-100. Records are long: the input is repeated to the size that its first
 * bytes choose. Whatever is accepted can be read to its last picture. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "banyan/picture_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[64];
    static uint8_t bytes[8 * 3074 + 8];
    if (size < 3)
        return 0;
    snprintf(path, sizeof path, "/tmp/fuzz-cifar-%d.bin", (int)getpid());
    const size_t wanted = (size_t)(data[0] % 8) * (data[1] % 2 ? 3073 : 3074) + data[1] / 2 % 3;
    for (size_t i = 0; i < wanted; i++)
        bytes[i] = data[2 + i % (size - 2)];
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, wanted, f) != wanted)
        abort();
    fclose(f);
    const char *paths[] = {path};
    by_picture_set *p = by_picture_set_open(paths, 1,
                                            &(by_picture_set_spec){.kind = BY_EXAMPLE_IMAGE_CLASSIFY,
                                                                   .coarse = data[1] >= 128,
                                                                   .max_bytes = 1 << 16});
    for (int64_t i = 0; p && i < by_picture_set_count(p); i++) {
        by_image *m = by_picture_set_get(p, i);
        if (!m || m->width != 32 || by_picture_set_label(p, i) >= by_picture_set_classes(p))
            abort();
        by_image_free(m);
    }
    by_picture_set_free(p);
    unlink(path);
    return 0;
}
