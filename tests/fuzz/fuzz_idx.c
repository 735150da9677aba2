/* fuzz_idx.c - any bytes as an IDX file of pictures and as its labels. Whatever is accepted can be read to its last picture. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "banyan/picture_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(const char *path, const uint8_t *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size)
        abort();
    fclose(f);
}

static void read_all(const char *path, by_example_kind kind)
{
    by_picture_set *p = by_picture_set_open(
        &path, 1,
        &(by_picture_set_spec){
            .kind = kind, .format = BY_PIXELS_NATIVE, .max_pixels = 1 << 16, .max_bytes = 1 << 20});
    int height = 0, width = 0;
    if (p) /* 0 and 0: the bytes were a list of files */
        by_picture_set_size(p, &height, &width);
    for (int64_t i = 0; height && i < by_picture_set_count(p); i++) {
        by_image *m = by_picture_set_get(p, i);
        if (!m || (int64_t)m->width * m->height > 1 << 16 ||
            by_picture_set_label(p, i) >= by_picture_set_classes(p))
            abort();
        by_image_free(m);
    }
    by_picture_set_free(p);
}

static char dir[64], images[96], labels[96];

static void clean(void)
{
    unlink(images);
    unlink(labels);
    rmdir(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!*dir) {
        atexit(clean);
        snprintf(dir, sizeof dir, "/tmp/fuzz-idx-%d", (int)getpid());
        if (mkdir(dir, 0700) != 0)
            abort();
        snprintf(images, sizeof images, "%s/x-images-idx3-ubyte", dir);
        snprintf(labels, sizeof labels, "%s/x-labels-idx1-ubyte", dir);
    }
    /* the first byte says how many of the others belong to the labels */
    const size_t tail = size ? data[0] : 0, body = size ? size - 1 : 0,
                 split = tail < body ? body - tail : body;
    put(images, data + (size > 0), split);
    put(labels, data + (size > 0) + split, body - split);
    read_all(images, BY_EXAMPLE_IMAGE_CLASSIFY);
    unlink(labels);
    read_all(images, BY_EXAMPLE_IMAGE);
    return 0;
}
