/* reorder.c - copies rows of a key-value cache to other rows of their group, in place. A part of every row of
 * a group is read before any of the group is overwritten. */
#include "cpu/kernels/kernel.h"
#include "cpu/kernels/team.h"

enum { PIECE = 1024, MOST = 64 * 1024 }; /* bytes of a row at a time; of all pieces of a group */

/* Shared by the rows of both caches. Sizes in bytes. */
typedef struct shape {
    const int32_t *from, *past, *pages; /* pages: NULL: row b is page b */
    int64_t groups, beams;
    size_t row, position, piece;
} shape;

static bool stays(const shape *s, int64_t group)
{
    for (int64_t b = group * s->beams; b < (group + 1) * s->beams; b++)
        if (s->from[b] != b)
            return false;
    return true;
}

/* Bytes of the part of row b that starts at `at`. */
static size_t part_of(const shape *s, int64_t b, size_t at)
{
    const size_t held = (size_t)s->past[b] * s->position;
    return held > at ? BY_MIN(held - at, s->piece) : 0;
}

static char *row_of(const shape *s, char *cache, int64_t b)
{
    return cache + (size_t)(s->pages ? s->pages[b] : b) * s->row;
}

static void move_piece(const shape *s, char *cache, size_t at, char *space)
{
    for (int64_t group = 0; group < s->groups; group++) {
        const int64_t first = group * s->beams;
        if (stays(s, group))
            continue;
        for (int64_t i = 0; i < s->beams; i++)
            memcpy(space + (size_t)i * s->piece, row_of(s, cache, s->from[first + i]) + at,
                   part_of(s, first + i, at));
        for (int64_t i = 0; i < s->beams; i++)
            if (s->from[first + i] != first + i)
                memcpy(row_of(s, cache, first + i) + at, space + (size_t)i * s->piece,
                       part_of(s, first + i, at));
    }
}

static by_status check_rows(const shape *s, int64_t room, int64_t pages)
{
    for (int64_t b = 0; b < s->groups * s->beams; b++) {
        if (s->pages && (s->pages[b] < 0 || s->pages[b] >= pages))
            return base_fail(BY_ERR_ARGUMENT, "reorder: row %lld has page %d of %lld", (long long)b,
                             (int)s->pages[b], (long long)pages);
        if (s->from[b] < b / s->beams * s->beams || s->from[b] >= (b / s->beams + 1) * s->beams)
            return base_fail(BY_ERR_ARGUMENT,
                             "reorder: row %lld cannot copy row %d, which is not in its group", (long long)b,
                             (int)s->from[b]);
        if (s->past[b] < 0 || s->past[b] > room)
            return base_fail(BY_ERR_ARGUMENT,
                             "reorder: row %lld has %d positions, but the cache has room for %lld",
                             (long long)b, (int)s->past[b], (long long)room);
    }
    return BY_OK;
}

by_status KERNEL(reorder)(gr_exec *e, gr_node *n)
{
    const by_tensor *keys = n->in[0];
    const int64_t beams = ((const gr_reorder_attr *)n->attr)->beams, rows = by_elements(n->in[2]);
    shape s = {.from = n->in[2]->data, .past = n->in[3]->data, .groups = rows / beams, .beams = beams};
    s.pages = n->in[4] ? n->in[4]->data : NULL;
    s.position = (size_t)keys->dim[2] * by_dtype_size(keys->type);
    s.row = (size_t)keys->dim[1] * s.position;
    s.piece = BY_MAX(BY_MIN(PIECE, MOST / (size_t)beams), 64);
    BY_TRY(check_rows(&s, keys->dim[1], keys->dim[0]));
    bool still = true;
    size_t most = 0; /* bytes of the longest row */
    for (int64_t b = 0; b < rows; b++) {
        still = still && s.from[b] == b;
        most = BY_MAX(most, (size_t)s.past[b] * s.position);
    }
    if (still) {
        BY_BRANCH("reorder, nothing moves");
        return BY_OK;
    }
    BY_BRANCH("reorder");
    const int64_t pieces = (int64_t)((most + s.piece - 1) / s.piece);
    char *space = base_alloc((size_t)e->threads * (size_t)beams * s.piece);
    if (!space)
        return BY_ERR_MEMORY;
#pragma omp parallel for schedule(static) \
    num_threads(e->threads) if (pieces * rows * (int64_t)s.piece >= 4 * BY_FORK_ELEMENTS)
    for (int64_t p = 0; p < 2 * pieces; p++)
        move_piece(&s, p < pieces ? keys->data : n->in[1]->data, (size_t)(p % pieces) * s.piece,
                   space + (size_t)cpu_team_thread() * (size_t)beams * s.piece);
    base_free(space);
    return BY_OK;
}
