/* jinja_value.c - memory, lists, dictionaries and properties of values. */
#include "chat/jinja_value.h"

#include <math.h>

#include "chat/jinja_node.h"

/* Reports an exceeded limit. */
static by_status fail_limit(const chat_heap *h, const char *what)
{
    return h->tree ? chat_fail_at(h->tree, *h->at, BY_ERR_FORMAT, "%s", what)
                   : base_fail(BY_ERR_FORMAT, "%s", what);
}

/* ---- memory ------------------------------------------------------------------------------------- */

void *chat_alloc(chat_heap *h, size_t count, size_t size)
{
    size_t bytes;
    if (!base_mul_size(count, size, &bytes) || bytes > h->left) {
        fail_limit(h, "the values take too much memory");
        return NULL;
    }
    h->left -= bytes;
    return base_arena_alloc(h->arena, bytes);
}

by_status chat_copy_bytes(chat_heap *h, const char *text, size_t size, chat_value *out)
{
    char *copy = chat_alloc(h, size + 1, 1);
    if (!copy)
        return base_error_status();
    if (size)
        memcpy(copy, text, size);
    *out = chat_bytes(copy, size);
    return BY_OK;
}

/* Returns an array with room for one more element. */
static void *grown(chat_heap *h, void *old, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return old;
    const size_t room = *capacity ? *capacity * 2 : 4;
    void *more = chat_alloc(h, room, size);
    if (more && count)
        memcpy(more, old, count * size);
    if (more)
        *capacity = room;
    return more;
}

/* ---- lists -------------------------------------------------------------------------------------- */

static int height_of(const chat_value *v)
{
    switch (v->type) {
    case CHAT_LIST:
    case CHAT_TUPLE:
        return v->list->height + 1;
    case CHAT_DICT:
        return v->dict->height + 1;
    case CHAT_VIEW:
        return v->view->dict->height + 1;
    default:
        return 0;
    }
}

static by_status raise_height(const chat_heap *h, int *height, const chat_value *v)
{
    const int child = height_of(v);
    if (child > CHAT_DEEPEST)
        return fail_limit(h, "the values nest too deeply");
    *height = BY_MAX(*height, child);
    return BY_OK;
}

by_status chat_new_list(chat_heap *h, chat_type type, size_t capacity, chat_value *out)
{
    chat_list *l = chat_alloc(h, 1, sizeof *l);
    if (!l || (capacity && !(l->items = chat_alloc(h, capacity, sizeof *l->items))))
        return base_error_status();
    l->capacity = capacity;
    *out = (chat_value){.type = (uint8_t)type, .list = l};
    return BY_OK;
}

by_status chat_push(chat_heap *h, chat_list *l, chat_value v)
{
    BY_TRY(raise_height(h, &l->height, &v));
    chat_value *items = grown(h, l->items, l->count, &l->capacity, sizeof *items);
    if (!items)
        return base_error_status();
    l->items = items;
    l->items[l->count++] = v;
    return BY_OK;
}

/* ---- dictionaries ------------------------------------------------------------------------------- */

enum { FEW = 8 }; /* up to this many pairs are searched without an index */

bool chat_is_hashable(const chat_value *v)
{
    if (v->type == CHAT_TUPLE) {
        for (size_t i = 0; i < v->list->count; i++)
            if (!chat_is_hashable(&v->list->items[i]))
                return false;
        return true;
    }
    return v->type != CHAT_LIST && v->type != CHAT_DICT && v->type != CHAT_VIEW;
}

/* Equal keys have equal hashes, because numbers are hashed by their value as a double. */
static uint64_t hash_of(const chat_value *v)
{
    double d;
    uint64_t h = v->type;
    if (v->type == CHAT_STRING || v->type == CHAT_BIG)
        return base_hash(v->text, v->size, v->type);
    if (chat_as_double(v, &d)) {
        d += 0.0; /* -0.0 equals 0 */
        return base_hash(&d, sizeof d, CHAT_FLOAT);
    }
    for (size_t i = 0; v->type == CHAT_TUPLE && i < v->list->count; i++)
        h = h * 1000003u ^ hash_of(&v->list->items[i]);
    return h;
}

static bool same_key(const chat_value *a, const chat_value *b)
{
    if (a->type != CHAT_TUPLE || b->type != CHAT_TUPLE)
        return chat_same_scalar(a, b);
    if (a->list->count != b->list->count)
        return false;
    for (size_t i = 0; i < a->list->count; i++)
        if (!same_key(&a->list->items[i], &b->list->items[i]))
            return false;
    return true;
}

by_status chat_new_dict(chat_heap *h, chat_type type, chat_value *out)
{
    chat_dict *d = chat_alloc(h, 1, sizeof *d);
    if (!d)
        return base_error_status();
    *out = (chat_value){.type = (uint8_t)type, .dict = d};
    return BY_OK;
}

static chat_pair *find_pair(const chat_dict *d, const chat_value *key)
{
    if (!d->index) {
        for (size_t i = 0; i < d->count; i++)
            if (same_key(&d->pairs[i].key, key))
                return &d->pairs[i];
        return NULL;
    }
    for (size_t at = hash_of(key) & (d->slots - 1); d->index[at]; at = (at + 1) & (d->slots - 1))
        if (same_key(&d->pairs[d->index[at] - 1].key, key))
            return &d->pairs[d->index[at] - 1];
    return NULL;
}

const chat_value *chat_find(const chat_dict *d, const chat_value *key)
{
    const chat_pair *p = find_pair(d, key);
    return p ? &p->value : NULL;
}

const chat_value *chat_find_text(const chat_dict *d, const char *key)
{
    const chat_value k = chat_literal(key);
    return chat_find(d, &k);
}

static void enter_index(chat_dict *d, size_t i)
{
    size_t at = hash_of(&d->pairs[i].key) & (d->slots - 1);
    while (d->index[at])
        at = (at + 1) & (d->slots - 1);
    d->index[at] = (uint32_t)(i + 1);
}

/* Keeps the index less than half full. */
static by_status grow_index(chat_heap *h, chat_dict *d)
{
    if (d->count < FEW || d->count * 2 < d->slots)
        return BY_OK;
    const size_t slots = d->slots ? d->slots * 2 : 4 * FEW;
    uint32_t *index = chat_alloc(h, slots, sizeof *index);
    if (!index)
        return base_error_status();
    d->index = index;
    d->slots = slots;
    for (size_t i = 0; i < d->count; i++)
        enter_index(d, i);
    return BY_OK;
}

by_status chat_put(chat_heap *h, chat_dict *d, chat_value key, chat_value value)
{
    BY_TRY(raise_height(h, &d->height, &value));
    BY_TRY(raise_height(h, &d->height, &key));
    chat_pair *p = find_pair(d, &key);
    if (p) {
        p->value = value;
        return BY_OK;
    }
    BY_TRY(grow_index(h, d));
    chat_pair *pairs = grown(h, d->pairs, d->count, &d->capacity, sizeof *pairs);
    if (!pairs)
        return base_error_status();
    d->pairs = pairs;
    d->pairs[d->count++] = (chat_pair){key, value};
    if (d->index)
        enter_index(d, d->count - 1);
    return BY_OK;
}

/* ---- properties --------------------------------------------------------------------------------- */

bool chat_is_number(const chat_value *v)
{
    return v->type == CHAT_BOOL || v->type == CHAT_INT || v->type == CHAT_FLOAT;
}

bool chat_as_int(const chat_value *v, int64_t *out)
{
    if (v->type != CHAT_BOOL && v->type != CHAT_INT)
        return false;
    *out = v->type == CHAT_BOOL ? v->truth : v->integer;
    return true;
}

bool chat_as_double(const chat_value *v, double *out)
{
    int64_t i;
    if (v->type == CHAT_FLOAT)
        *out = v->real;
    else if (chat_as_int(v, &i))
        *out = (double)i;
    else
        return false;
    return true;
}

bool chat_length(const chat_value *v, int64_t *out)
{
    switch (v->type) {
    case CHAT_UNDEFINED:
        *out = 0;
        return true;
    case CHAT_STRING:
        *out = chat_characters(v->text, v->size);
        return true;
    case CHAT_LIST:
    case CHAT_TUPLE:
        *out = (int64_t)v->list->count;
        return true;
    case CHAT_DICT:
        *out = (int64_t)v->dict->count;
        return true;
    case CHAT_VIEW:
        *out = (int64_t)v->view->dict->count;
        return true;
    case CHAT_RANGE:
        *out = v->range->count;
        return true;
    default:
        return false;
    }
}

bool chat_truth(const chat_value *v)
{
    switch (v->type) {
    case CHAT_MISSING:
    case CHAT_UNDEFINED:
    case CHAT_NONE:
        return false;
    case CHAT_BOOL:
        return v->truth;
    case CHAT_INT:
        return v->integer != 0;
    case CHAT_FLOAT:
        return v->real != 0;
    case CHAT_STRING:
        return v->size > 0;
    case CHAT_LIST:
    case CHAT_TUPLE:
        return v->list->count > 0;
    case CHAT_DICT:
        return v->dict->count > 0;
    case CHAT_VIEW:
        return v->view->dict->count > 0;
    case CHAT_RANGE:
        return v->range->count > 0;
    default:
        return true;
    }
}

const char *chat_type_name(const chat_value *v)
{
    static const char *const names[] = {
        [CHAT_MISSING] = "missing",
        [CHAT_UNDEFINED] = "Undefined",
        [CHAT_NONE] = "NoneType",
        [CHAT_BOOL] = "bool",
        [CHAT_INT] = "int",
        [CHAT_BIG] = "int",
        [CHAT_FLOAT] = "float",
        [CHAT_STRING] = "str",
        [CHAT_LIST] = "list",
        [CHAT_TUPLE] = "tuple",
        [CHAT_DICT] = "dict",
        [CHAT_VIEW] = "dict view",
        [CHAT_RANGE] = "range",
        [CHAT_GENERATOR] = "generator",
        [CHAT_NAMESPACE] = "Namespace",
        [CHAT_MACRO] = "Macro",
        [CHAT_METHOD] = "method",
        [CHAT_FUNCTION] = "function",
        [CHAT_LOOP] = "LoopContext",
    };
    return names[v->type];
}

/* Integers and doubles are compared exactly: 2^53 + 1 does not equal 2^53. */
static int order_mixed(int64_t i, double d)
{
    if (isnan(d))
        return 2;
    if (d >= 9223372036854775808.0)
        return -1;
    if (d < -9223372036854775808.0)
        return 1;
    const int64_t whole = (int64_t)d;
    if (i != whole)
        return i < whole ? -1 : 1;
    const double rest = d - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

static int order_big(const chat_value *a, const chat_value *b)
{
    const bool minus = a->text[0] == '-';
    if (minus != (b->text[0] == '-'))
        return minus ? -1 : 1;
    int c = a->size != b->size ? (a->size < b->size ? -1 : 1) : memcmp(a->text, b->text, a->size);
    c = c < 0 ? -1 : c > 0;
    return minus ? -c : c;
}

static int order_numbers(const chat_value *a, const chat_value *b)
{
    int64_t i, j;
    if (a->type == CHAT_BIG && b->type == CHAT_BIG)
        return order_big(a, b);
    if (a->type == CHAT_BIG) /* beyond every 64-bit integer: its sign decides, even against a float */
        return a->text[0] == '-' ? -1 : 1;
    if (b->type == CHAT_BIG)
        return b->text[0] == '-' ? 1 : -1;
    const bool first = chat_as_int(a, &i), second = chat_as_int(b, &j);
    if (first && second)
        return i < j ? -1 : i > j;
    if (first)
        return order_mixed(i, b->real);
    if (second) {
        const int c = order_mixed(j, a->real);
        return c == 2 ? 2 : -c;
    }
    if (isnan(a->real) || isnan(b->real))
        return 2;
    return a->real < b->real ? -1 : a->real > b->real;
}

bool chat_order_scalars(const chat_value *a, const chat_value *b, int *out)
{
    if ((chat_is_number(a) || a->type == CHAT_BIG) && (chat_is_number(b) || b->type == CHAT_BIG)) {
        *out = order_numbers(a, b);
        return true;
    }
    if (a->type != CHAT_STRING || b->type != CHAT_STRING)
        return false;
    /* UTF-8 sorts in code point order. */
    const int c = memcmp(a->text, b->text, BY_MIN(a->size, b->size));
    *out = c ? (c < 0 ? -1 : 1) : a->size < b->size ? -1 : a->size > b->size;
    return true;
}

bool chat_same_scalar(const chat_value *a, const chat_value *b)
{
    int c;
    if (chat_order_scalars(a, b, &c))
        return c == 0;
    if (a->type != b->type)
        return false;
    switch (a->type) {
    case CHAT_UNDEFINED:
    case CHAT_NONE:
        return true;
    case CHAT_RANGE:
        return a->range->count == b->range->count &&
               (a->range->count == 0 || (a->range->start == b->range->start &&
                                         (a->range->count == 1 || a->range->step == b->range->step)));
    default: /* the same object */
        return a->dict == b->dict;
    }
}
