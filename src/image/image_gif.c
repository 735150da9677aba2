/* image_gif.c - the first frame of a GIF file. The decoder is here rather than in a library because this
 * needs only a palette and one LZW stream. */
#include "image/picture.h"

typedef struct gif_reader {
    const uint8_t *at, *end;
} gif_reader;

typedef struct gif_frame {
    int left, top, width, height;
    bool interlaced;
    const uint8_t *palette;
    int colours;
    int transparent; /* index, or -1 */
} gif_frame;

static bool has(const gif_reader *r, size_t n)
{
    return (size_t)(r->end - r->at) >= n;
}

static int word(const uint8_t *p)
{
    return p[0] | p[1] << 8;
}

static by_status fail_truncated(void)
{
    return base_fail(BY_ERR_FORMAT, "the file is truncated");
}

/* Reads the colour table that the flags describe. Without one, *colours stays as it is. */
static by_status read_palette(gif_reader *r, int flags, const uint8_t **palette, int *colours)
{
    if (!(flags & 0x80))
        return BY_OK;
    *colours = 2 << (flags & 7);
    *palette = r->at;
    if (!has(r, 3 * (size_t)*colours))
        return fail_truncated();
    r->at += 3 * *colours;
    return BY_OK;
}

static by_status skip_blocks(gif_reader *r)
{
    while (has(r, 1)) {
        const size_t n = *r->at++;
        if (n == 0)
            return BY_OK;
        if (!has(r, n))
            break;
        r->at += n;
    }
    return fail_truncated();
}

/* Skips an extension. A graphic control extension sets the transparent index. */
static by_status read_extension(gif_reader *r, gif_frame *f)
{
    if (!has(r, 1))
        return fail_truncated();
    const int label = *r->at++;
    if (label == 0xf9 && has(r, 5) && r->at[0] == 4)
        f->transparent = r->at[1] & 1 ? r->at[4] : -1;
    return skip_blocks(r);
}

/* Reads up to the pixels of the first frame. */
static by_status read_frame(gif_reader *r, gif_frame *f)
{
    while (has(r, 1)) {
        const int kind = *r->at++;
        if (kind == 0x21) {
            BY_TRY(read_extension(r, f));
        } else if (kind == 0x2c) {
            if (!has(r, 9))
                return fail_truncated();
            const uint8_t *p = r->at;
            f->left = word(p), f->top = word(p + 2), f->width = word(p + 4), f->height = word(p + 6);
            f->interlaced = p[8] & 0x40;
            r->at += 9;
            return read_palette(r, p[8], &f->palette, &f->colours);
        } else if (kind == 0x3b) {
            return base_fail(BY_ERR_FORMAT, "the file has no picture");
        } else {
            return base_fail(BY_ERR_FORMAT, "unknown block 0x%02x", (unsigned)kind);
        }
    }
    return fail_truncated();
}

/* ---- LZW -------------------------------------------------------------------------------------- */

enum { CODES = 4096, NONE = -1 };

typedef struct lzw {
    gif_reader *r;
    int block; /* bytes left in the current sub-block */
    uint32_t bits;
    int n_bits;
    int16_t before[CODES]; /* code of the string without its last index */
    uint8_t last[CODES];
    uint8_t stack[CODES];
} lzw;

static int next_code(lzw *z, int width)
{
    while (z->n_bits < width) {
        if (z->block == 0 && (!has(z->r, 1) || (z->block = *z->r->at++) == 0))
            return NONE;
        if (!has(z->r, 1))
            return NONE;
        z->bits |= (uint32_t)*z->r->at++ << z->n_bits;
        z->n_bits += 8;
        z->block--;
    }
    const int code = (int)(z->bits & ((1u << width) - 1));
    z->bits >>= width;
    z->n_bits -= width;
    return code;
}

/* Pushes the string of a code on the stack, last index first. Returns its length. */
static int unwind(lzw *z, int code, int clear)
{
    int n = 0;
    for (; code > clear; code = z->before[code])
        z->stack[n++] = z->last[code];
    z->stack[n++] = (uint8_t)code;
    return n;
}

/* Decodes `count` indices. */
static by_status inflate_indices(lzw *z, uint8_t *out, size_t count)
{
    if (!has(z->r, 1))
        return fail_truncated();
    const int depth = *z->r->at++;
    if (depth < 1 || depth > 8)
        return base_fail(BY_ERR_FORMAT, "LZW codes of %d bits", depth);
    const int clear = 1 << depth;
    int width = depth + 1, next = clear + 2, previous = NONE;
    for (size_t done = 0; done < count;) {
        const int code = next_code(z, width);
        if (code == NONE || code == clear + 1)
            return fail_truncated();
        if (code == clear) {
            width = depth + 1, next = clear + 2, previous = NONE;
            continue;
        }
        if (code > next || (code == next && previous == NONE) || (previous == NONE && code > clear))
            return base_fail(BY_ERR_FORMAT, "LZW code %d before it is defined", code);
        const bool own = code == next; /* the string that this code defines itself */
        int n = unwind(z, own ? previous : code, clear);
        const uint8_t first = z->stack[n - 1];
        while (n > 0 && done < count)
            out[done++] = z->stack[--n];
        if (own && done < count)
            out[done++] = first;
        if (previous != NONE && next < CODES) {
            z->before[next] = (int16_t)previous;
            z->last[next++] = first;
            width += next == 1 << width && width < 12;
        }
        previous = code;
    }
    return BY_OK;
}

/* ---- the picture ----------------------------------------------------------------------------- */

/* The picture row that is stored as row i of an interlaced picture. */
static int interlaced_row(int i, int height)
{
    static const int first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
    for (int pass = 0; pass < 4; pass++) {
        const int rows = height > first[pass] ? (height - first[pass] + step[pass] - 1) / step[pass] : 0;
        if (i < rows)
            return first[pass] + i * step[pass];
        i -= rows;
    }
    return 0;
}

static void put_index(const image_source *s, const gif_frame *f, int index, uint8_t *out)
{
    if (index < f->colours)
        memcpy(out, f->palette + 3 * index, 3);
    if (s->alpha)
        out[3] = index == f->transparent ? 0 : 255;
}

/* Pixels outside the frame have the transparent index, or the first colour. */
static void paint(const image_source *s, const gif_frame *f, const uint8_t *indices, by_image *m)
{
    const size_t pixels = (size_t)m->width * (size_t)m->height;
    for (size_t i = 0; i < pixels; i++)
        put_index(s, f, BY_MAX(f->transparent, 0), (uint8_t *)m->pixels + i * (size_t)m->channels);
    for (int i = 0; i < f->height; i++) {
        const int y = f->top + (f->interlaced ? interlaced_row(i, f->height) : i);
        for (int x = 0; x < f->width; x++)
            put_index(s, f, indices[(size_t)i * (size_t)f->width + (size_t)x],
                      image_row(m, y) + (size_t)(f->left + x) * (size_t)m->channels);
    }
}

by_image *image_gif_decode(const image_source *s)
{
    gif_reader r = {s->bytes, s->bytes + s->size};
    gif_frame f = {.transparent = -1};
    if (!has(&r, 13)) {
        fail_truncated();
        return NULL;
    }
    int width = word(r.at + 6), height = word(r.at + 8);
    const int flags = r.at[10];
    r.at += 13;
    if (read_palette(&r, flags, &f.palette, &f.colours) != BY_OK || read_frame(&r, &f) != BY_OK)
        return NULL;
    width = BY_MAX(width, f.left + f.width); /* a canvas grows to hold its first frame */
    height = BY_MAX(height, f.top + f.height);
    if (image_check_size(width, height, s->max_pixels) != BY_OK ||
        image_check_size(f.width, f.height, s->max_pixels) != BY_OK)
        return NULL;
    const size_t count = (size_t)f.width * (size_t)f.height;
    lzw *z = base_alloc_zero(1, sizeof *z);
    uint8_t *indices = base_alloc(count);
    by_image *m = NULL;
    if (z && indices) {
        z->r = &r;
        if (inflate_indices(z, indices, count) == BY_OK &&
            (m = by_image_new(width, height, s->alpha ? BY_PIXELS_RGBA : BY_PIXELS_RGB)))
            paint(s, &f, indices, m);
    }
    base_free(z);
    base_free(indices);
    return m;
}
