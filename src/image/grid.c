/* grid.c - arranges pictures of one size in a grid. */
#include "image/picture.h"

enum { GAP = 2, MOST_PIXELS = 1 << 28 };

/* Copies an enlarged picture to (left, top) of the page. */
static void put(by_image *page, const by_image *m, int left, int top, int scale)
{
    for (int y = 0; y < m->height * scale; y++)
        for (int x = 0; x < m->width * scale; x++) {
            const uint8_t *from =
                (const uint8_t *)m->pixels + ((ptrdiff_t)(y / scale) * m->width + x / scale) * m->channels;
            uint8_t *to =
                (uint8_t *)page->pixels + ((ptrdiff_t)(top + y) * page->width + left + x) * page->channels;
            for (int c = 0; c < page->channels; c++)
                to[c] = from[m->channels == 1 ? 0 : c];
        }
}

by_image *by_image_grid(const by_image *const *list, int count, int columns, int scale)
{
    bool grey = true, alike = list && count > 0 && columns > 0 && scale > 0;
    for (int i = 0; alike && i < count; i++) {
        alike = list[i] && (list[i]->format == BY_PIXELS_GREY || list[i]->format == BY_PIXELS_RGB) &&
                list[i]->width == list[0]->width && list[i]->height == list[0]->height;
        grey = grey && alike && list[i]->format == BY_PIXELS_GREY;
    }
    if (!alike) {
        base_fail(BY_ERR_ARGUMENT, "a grid needs grey or RGB pictures of one size");
        return NULL;
    }
    columns = BY_MIN(columns, count);
    const int64_t across = (int64_t)list[0]->width * scale + GAP,
                  down = (int64_t)list[0]->height * scale + GAP;
    const int64_t rows = (count + columns - 1) / columns, width = across * columns + GAP,
                  height = down * rows + GAP;
    if (width > 1 << 16 || height > 1 << 16 || width * height > MOST_PIXELS) {
        base_fail(BY_ERR_ARGUMENT, "a grid of %lld x %lld pixels is too large", (long long)width,
                  (long long)height);
        return NULL;
    }
    by_image *page = by_image_new((int)width, (int)height, grey ? BY_PIXELS_GREY : BY_PIXELS_RGB);
    if (!page)
        return NULL;
    memset(page->pixels, 255, (size_t)(width * height) * (size_t)page->channels);
    for (int i = 0; i < count; i++)
        put(page, list[i], (int)(GAP + i % columns * across), (int)(GAP + i / columns * down), scale);
    return page;
}
