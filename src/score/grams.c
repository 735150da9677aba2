/* grams.c - n-grams as numbers (see score.h). The hash table uses open addressing over the pair (number of
 * the (n-1)-gram, next item). It is emptied at each order and at most half full. */
#include "score/score.h"
#include "text/utf8.h"

typedef struct score_gram_slot {
    uint64_t key;    /* (n-1)-gram and item */
    uint32_t number; /* number of the n-gram plus 1; 0: free */
} score_gram_slot;

void score_grams_clear(score_grams *g)
{
    g->count = 0;
    g->sequences = 0;
    g->order = 0;
    g->distinct = 0;
}

void score_grams_free(score_grams *g)
{
    base_free(g->items);
    base_free(g->ends);
    base_free(g->gram);
    base_free(g->ours);
    base_free(g->theirs);
    base_free(g->most);
    base_free(g->slots);
    *g = (score_grams){0};
}

static by_status grow(score_grams *g)
{
    size_t room = BY_MAX(g->room * 2, (size_t)256);
    uint32_t *more = room < UINT32_MAX ? base_resize(g->items, room, sizeof *more) : NULL;
    if (!more)
        return base_fail(BY_ERR_MEMORY, "a text of %zu items is too long", g->count);
    g->items = more;
    g->room = room;
    return BY_OK;
}

by_status score_grams_put(score_grams *g, uint32_t item)
{
    if (g->count == g->room)
        BY_TRY(grow(g));
    g->items[g->count++] = item;
    return BY_OK;
}

by_status score_grams_end(score_grams *g)
{
    if (g->sequences == g->sequences_room) {
        int room = BY_MAX(g->sequences_room * 2, 8);
        size_t *more = base_resize(g->ends, (size_t)room, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        g->ends = more;
        g->sequences_room = room;
    }
    g->ends[g->sequences++] = g->count;
    return BY_OK;
}

static by_status resize(uint32_t **array, size_t count)
{
    uint32_t *more = base_resize(*array, count, sizeof *more);
    if (!more)
        return BY_ERR_MEMORY;
    *array = more;
    return BY_OK;
}

/* Makes room for an n-gram starting at every item. */
static by_status make_room(score_grams *g)
{
    if (!g->room) /* texts without words have arrays too */
        BY_TRY(grow(g));
    if (!g->built || g->built < g->count) {
        BY_TRY(resize(&g->gram, g->room));
        BY_TRY(resize(&g->ours, g->room));
        BY_TRY(resize(&g->theirs, g->room));
        BY_TRY(resize(&g->most, g->room));
        g->built = g->room;
    }
    size_t room = BY_MAX(g->slots_room, (size_t)64);
    while (room < g->count * 2)
        room *= 2;
    if (room > g->slots_room) {
        score_gram_slot *slots = base_resize(g->slots, room, sizeof *slots);
        if (!slots)
            return BY_ERR_MEMORY;
        g->slots = slots;
        g->slots_room = room;
    }
    return BY_OK;
}

/* Uses only as many slots as the current sequences need: emptying a large table for every short text would be
 * slow. */
static size_t table_size(const score_grams *g)
{
    size_t size = 64;
    while (size < g->count * 2)
        size *= 2;
    return size;
}

static uint32_t number(score_grams *g, size_t size, uint64_t key)
{
    uint64_t h = key * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h >> 32) & (size - 1);
    while (g->slots[i].number && g->slots[i].key != key)
        i = (i + 1) & (size - 1);
    if (!g->slots[i].number)
        g->slots[i] = (score_gram_slot){.key = key, .number = (uint32_t)++g->distinct};
    return g->slots[i].number - 1;
}

by_status score_grams_next(score_grams *g)
{
    BY_TRY(make_room(g));
    const size_t n = (size_t)++g->order, size = table_size(g);
    memset(g->slots, 0, size * sizeof *g->slots);
    g->distinct = 0;
    for (int s = 0; s < g->sequences; s++)
        for (size_t i = score_grams_begin(g, s); i + n <= g->ends[s]; i++) {
            uint64_t before = n > 1 ? g->gram[i] : 0;
            g->gram[i] = number(g, size, before << 32 | g->items[i + n - 1]);
        }
    return BY_OK;
}

int64_t score_grams_total(const score_grams *g, int sequence)
{
    int64_t length = (int64_t)score_grams_length(g, sequence);
    return BY_MAX(length - g->order + 1, 0);
}

void score_grams_count(const score_grams *g, int sequence, uint32_t *counts)
{
    memset(counts, 0, g->distinct * sizeof *counts);
    const size_t begin = score_grams_begin(g, sequence), total = (size_t)score_grams_total(g, sequence);
    for (size_t i = begin; i < begin + total; i++)
        counts[g->gram[i]]++;
}

int64_t score_grams_common(const score_grams *g, const uint32_t *a, const uint32_t *b)
{
    int64_t sum = 0;
    for (size_t i = 0; i < g->distinct; i++)
        sum += BY_MIN(a[i], b[i]);
    return sum;
}

/* ---- words as numbers ------------------------------------------------------------------------ */

by_status score_numbers_make(score_numbers *n)
{
    n->names = base_names_new();
    return n->names ? BY_OK : BY_ERR_MEMORY;
}

void score_numbers_free(score_numbers *n)
{
    base_names_free(n->names);
    base_buf_free(&n->word);
    *n = (score_numbers){0};
}

by_status score_numbers_put(score_numbers *n, score_grams *g)
{
    if (n->word.failed)
        return base_fail(BY_ERR_MEMORY, "out of memory while reading a word");
    n->word.size = 0; /* the string stays valid until the next put */
    int value = base_names_find(n->names, n->word.data);
    if (value < 0) {
        BY_TRY(base_names_put(n->names, n->word.data, n->count));
        value = n->count++;
    }
    return score_grams_put(g, (uint32_t)value);
}

by_status score_numbers_points(score_numbers *n, score_grams *g, const uint32_t *c, size_t count)
{
    char utf8[4];
    for (size_t i = 0; i < count; i++)
        base_buf_put(&n->word, utf8, (size_t)tok_utf8_encode(c[i], utf8));
    return score_numbers_put(n, g);
}
