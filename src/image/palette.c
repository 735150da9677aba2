/* palette.c - palettes: learned from pixels by k-means, and searched for the nearest colour. */
#include "image/palette.h"

#include <math.h>
#include <stdlib.h>

/* ---- learning -------------------------------------------------------------------------------- */

/* A distinct colour and its number of occurrences. */
typedef struct spot {
    uint8_t rgb[3];
    int32_t cluster;
    double weight;
    double distance; /* squared distance to the nearest centre */
} spot;

typedef struct centre {
    double at[3];
} centre;

static double squared(const spot *x, const centre *c)
{
    double d = 0;
    for (int i = 0; i < 3; i++)
        d += (x->rgb[i] - c->at[i]) * (x->rgb[i] - c->at[i]);
    return d;
}

static int in_order(const void *a, const void *b)
{
    return memcmp(((const spot *)a)->rgb, ((const spot *)b)->rgb, 3);
}

/* Sorts colours and merges equal ones. Returns the number of distinct colours. */
static int64_t merge(spot *list, int64_t count)
{
    int64_t n = 0;
    qsort(list, (size_t)count, sizeof *list, in_order);
    for (int64_t i = 0; i < count; i++)
        if (n > 0 && in_order(&list[n - 1], &list[i]) == 0)
            list[n - 1].weight += list[i].weight;
        else
            list[n++] = list[i];
    return n;
}

/* The spot at fraction `share` of the cumulative sum of weight times distance. */
static int64_t draw(const spot *list, int64_t count, double share)
{
    double all = 0, sum = 0;
    for (int64_t i = 0; i < count; i++)
        all += list[i].weight * list[i].distance;
    for (int64_t i = 0; i < count; i++) {
        sum += list[i].weight * list[i].distance;
        if (sum > share * all)
            return i;
    }
    return count - 1;
}

/* k-means++ (Arthur and Vassilvitskii 2007): each centre is a colour drawn with probability proportional to
 * its squared distance to the previous centres. */
static void begin(spot *list, int64_t count, centre *centres, int k, uint64_t seed)
{
    base_rng random = base_rng_make(seed, 0);
    for (int64_t i = 0; i < count; i++)
        list[i].distance = 1;
    for (int c = 0; c < k; c++) {
        const spot *x = &list[draw(list, count, base_rng_uniform(&random))];
        for (int i = 0; i < 3; i++)
            centres[c].at[i] = x->rgb[i];
        for (int64_t i = 0; i < count; i++) {
            const double d = squared(&list[i], &centres[c]);
            list[i].distance = c == 0 || d < list[i].distance ? d : list[i].distance;
        }
    }
}

typedef struct assignment {
    spot *list;
    const centre *centres;
    int k;
} assignment;

static void assign_range(void *user, size_t first, size_t end)
{
    const assignment *a = user;
    for (size_t i = first; i < end; i++) {
        spot *x = &a->list[i];
        x->distance = INFINITY;
        for (int c = 0; c < a->k; c++) {
            const double d = squared(x, &a->centres[c]);
            if (d < x->distance) {
                x->distance = d;
                x->cluster = c;
            }
        }
    }
}

/* Moves the centres to the means of their colours, in a fixed order. A centre without colours moves to the
 * colour farthest from its own centre. Returns whether any moved. */
static bool move(spot *list, int64_t count, centre *centres, int k, double *sums)
{
    bool moved = false;
    memset(sums, 0, (size_t)k * 4 * sizeof *sums);
    for (int64_t i = 0; i < count; i++) {
        double *s = sums + 4 * (ptrdiff_t)list[i].cluster;
        s[3] += list[i].weight;
        for (int j = 0; j < 3; j++)
            s[j] += list[i].weight * list[i].rgb[j];
    }
    for (int c = 0; c < k; c++) {
        const double *s = sums + 4 * (ptrdiff_t)c;
        centre to;
        int64_t far = 0;
        for (int64_t i = 1; i < count && s[3] == 0; i++)
            far = list[i].weight * list[i].distance > list[far].weight * list[far].distance ? i : far;
        for (int j = 0; j < 3; j++)
            to.at[j] = s[3] > 0 ? s[j] / s[3] : list[far].rgb[j];
        if (s[3] == 0)
            list[far].distance = 0;
        moved = moved || memcmp(&to, &centres[c], sizeof to) != 0;
        centres[c] = to;
    }
    return moved;
}

static int in_brightness(const void *a, const void *b)
{
    const centre *x = a, *y = b;
    const double p = 299 * x->at[0] + 587 * x->at[1] + 114 * x->at[2];
    const double q = 299 * y->at[0] + 587 * y->at[1] + 114 * y->at[2];
    return p < q ? -1 : p > q ? 1 : memcmp(x, y, sizeof *x);
}

static by_status cluster(spot *list, int64_t count, centre *centres, int k, uint64_t seed, int threads)
{
    enum { ROUNDS = 100 };
    assignment a = {list, centres, k};
    double *sums = base_alloc((size_t)k * 4 * sizeof *sums);
    if (!sums)
        return BY_ERR_MEMORY;
    begin(list, count, centres, k, seed);
    bool moved = true;
    for (int i = 0; i < ROUNDS && moved; i++) {
        base_parallel_ranges(threads, (size_t)count, assign_range, &a);
        moved = move(list, count, centres, k, sums);
    }
    base_free(sums);
    return BY_OK;
}

by_status by_palette_learn(const uint8_t *rgb, int64_t count, const by_palette_spec *spec, float *palette,
                           int *colours)
{
    if (!rgb || !spec || !palette || !colours)
        return base_fail_missing(rgb ? "by_palette_spec, palette or number of colours" : "pixels");
    if (count < 1 || spec->colours < 1 || spec->colours > BY_MAX_COLOURS)
        return base_fail(BY_ERR_ARGUMENT, "a palette of %d colours from %lld pixels is not possible",
                         spec->colours, (long long)count);
    spot *list = base_alloc_zero((size_t)count, sizeof *list);
    centre *centres = base_alloc_zero((size_t)spec->colours, sizeof *centres);
    by_status s = list && centres ? BY_OK : BY_ERR_MEMORY;
    for (int64_t i = 0; i < count && s == BY_OK; i++) {
        memcpy(list[i].rgb, rgb + 3 * i, 3);
        list[i].weight = 1;
    }
    count = s == BY_OK ? merge(list, count) : 0;
    *colours = (int)BY_MIN(count, spec->colours);
    if (s == BY_OK && count > spec->colours)
        s = cluster(list, count, centres, *colours, spec->seed, spec->threads);
    else
        for (int64_t i = 0; i < count; i++)
            for (int j = 0; j < 3; j++)
                centres[i].at[j] = list[i].rgb[j];
    if (s == BY_OK)
        qsort(centres, (size_t)*colours, sizeof *centres, in_brightness);
    for (int i = 0; i < 3 * *colours && s == BY_OK; i++)
        palette[i] = (float)(centres[i / 3].at[i % 3] / 127.5 - 1);
    base_free(list);
    base_free(centres);
    return s;
}

/* ---- searching ------------------------------------------------------------------------------- */

/* Colours are looked up in cubes of 16 x 16 x 16. Each lists the palette entries that can be nearest to a
 * colour in it. */
enum { SHIFT = 4, SIDE = 256 >> SHIFT, CELLS = SIDE * SIDE * SIDE };

struct image_palette {
    int colours;
    const float *at;
    int32_t *first;      /* (CELLS + 1) */
    uint16_t *candidate; /* in increasing order */
};

static float scaled(int byte)
{
    return (float)(byte * (1 / 127.5)) - 1; /* scaled as in transformers */
}

/* Squared distances of the nearest and the farthest point of a cell from a colour. */
static void bounds(const int *cell, const float *colour, double *least, double *most)
{
    *least = *most = 0;
    for (int c = 0; c < 3; c++) {
        const double low = (double)colour[c] - (double)scaled(cell[c] << SHIFT);
        const double high = (double)colour[c] - (double)scaled((cell[c] << SHIFT) + (1 << SHIFT) - 1);
        const double outside = low < 0 ? -low : high > 0 ? high : 0, across = BY_MAX(fabs(low), fabs(high));
        *least += outside * outside;
        *most += across * across;
    }
}

/* Lists the palette entries that may be nearest in a cell. With `out` NULL only counts them. */
static int list_cell(const image_palette *p, int number, uint16_t *out)
{
    const int cell[3] = {number / SIDE / SIDE, number / SIDE % SIDE, number % SIDE};
    double limit = INFINITY, least, most;
    int n = 0;
    for (int k = 0; k < p->colours; k++) {
        bounds(cell, p->at + 3 * k, &least, &most);
        limit = BY_MIN(limit, most);
    }
    for (int k = 0; k < p->colours; k++) {
        bounds(cell, p->at + 3 * k, &least, &most);
        if (least > limit * (1 + 1e-9))
            continue;
        if (out)
            out[n] = (uint16_t)k;
        n++;
    }
    return n;
}

image_palette *image_palette_new(const float *at, int colours)
{
    image_palette *p = base_alloc_zero(1, sizeof *p);
    if (!p)
        return NULL;
    *p = (image_palette){.colours = colours, .at = at};
    p->first = base_alloc_zero(CELLS + 1, sizeof *p->first);
    for (int i = 0; p->first && i < CELLS; i++)
        p->first[i + 1] = p->first[i] + list_cell(p, i, NULL);
    p->candidate = p->first ? base_alloc_zero((size_t)p->first[CELLS], sizeof *p->candidate) : NULL;
    for (int i = 0; p->candidate && i < CELLS; i++)
        list_cell(p, i, p->candidate + p->first[i]);
    if (p->candidate)
        return p;
    image_palette_free(p);
    return NULL;
}

void image_palette_free(image_palette *p)
{
    if (!p)
        return;
    base_free(p->first);
    base_free(p->candidate);
    base_free(p);
}

int32_t image_palette_nearest(const image_palette *p, const uint8_t *rgb)
{
    const int cell = ((rgb[0] >> SHIFT) * SIDE + (rgb[1] >> SHIFT)) * SIDE + (rgb[2] >> SHIFT);
    const double x[3] = {(double)scaled(rgb[0]), (double)scaled(rgb[1]), (double)scaled(rgb[2])};
    double best = INFINITY;
    int32_t id = 0;
    for (int32_t i = p->first[cell]; i < p->first[cell + 1]; i++) {
        const float *at = p->at + 3 * p->candidate[i];
        double d = 0;
        for (int c = 0; c < 3; c++)
            d += (x[c] - (double)at[c]) * (x[c] - (double)at[c]);
        if (d < best) {
            best = d;
            id = p->candidate[i];
        }
    }
    return id;
}
