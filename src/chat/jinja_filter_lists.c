/* jinja_filter_lists.c - filters on lists and dictionaries. */
#include "chat/jinja_run.h"

#define FILTER(name)                                                                                 \
    static by_status name(chat_run *r, const chat_value *v, const chat_args *a, const chat_value *p, \
                          chat_value *out)
#define UNUSED (void)r, (void)a, (void)p

/* ---- parts ---------------------------------------------------------------------------------------------- */

FILTER(filter_list)
{
    UNUSED;
    return chat_to_list(r, v, out);
}

FILTER(filter_items)
{
    UNUSED;
    return chat_new_generator(r, CHAT_LAZY_ITEMS, v, NULL, out);
}

FILTER(filter_first)
{
    chat_iterator i;
    bool more;
    UNUSED;
    BY_TRY(chat_iterate(r, v, &i));
    BY_TRY(chat_next(r, &i, out, &more));
    if (!more)
        *out = chat_absent("no first item, the sequence was empty");
    return BY_OK;
}

/* The items in reverse order. A generator cannot be reversed. */
static by_status reversed(chat_run *r, const chat_value *v, chat_value *out)
{
    chat_value all;
    BY_TRY(chat_to_list(r, v, &all));
    BY_TRY(chat_new_list(&r->heap, CHAT_LIST, all.list->count, out));
    for (size_t i = all.list->count; i-- > 0;)
        BY_TRY(chat_push(&r->heap, out->list, all.list->items[i]));
    return BY_OK;
}

FILTER(filter_last)
{
    chat_value list;
    UNUSED;
    if (v->type == CHAT_GENERATOR)
        return chat_fail(r, "'generator' object is not reversible");
    BY_TRY(reversed(r, v, &list));
    *out = list.list->count ? list.list->items[0] : chat_absent("no last item, the sequence was empty");
    return BY_OK;
}

FILTER(filter_reverse)
{
    const chat_value bounds[3] = {chat_none(), chat_none(), chat_int(-1)};
    chat_value list;
    UNUSED;
    if (v->type == CHAT_STRING)
        return chat_slice(r, v, bounds, out);
    BY_TRY(reversed(r, v, &list));
    if (v->type == CHAT_GENERATOR)
        *out = list;
    else
        return chat_new_generator(r, CHAT_LAZY_LIST, &list, NULL, out);
    return BY_OK;
}

FILTER(filter_batch)
{
    chat_iterator i;
    chat_value item, row, all;
    int64_t size;
    UNUSED;
    BY_TRY(chat_param_int(r, &p[0], 1, &size));
    BY_TRY(chat_iterate(r, v, &i));
    BY_TRY(chat_new_list(&r->heap, CHAT_LIST, 0, &all));
    BY_TRY(chat_new_list(&r->heap, CHAT_LIST, 0, &row));
    for (bool more;;) {
        BY_TRY(chat_next(r, &i, &item, &more));
        if (!more)
            break;
        if ((int64_t)row.list->count == size) {
            BY_TRY(chat_push(&r->heap, all.list, row));
            BY_TRY(chat_new_list(&r->heap, CHAT_LIST, 0, &row));
        }
        BY_TRY(chat_push(&r->heap, row.list, item));
    }
    while (row.list->count && chat_truth(&p[1]) && (int64_t)row.list->count < size) {
        BY_TRY(chat_spend(r, 1));
        BY_TRY(chat_push(&r->heap, row.list, p[1]));
    }
    if (row.list->count)
        BY_TRY(chat_push(&r->heap, all.list, row));
    return chat_new_generator(r, CHAT_LAZY_LIST, &all, NULL, out);
}

/* `slices` columns of nearly equal length, longer ones first. */
FILTER(filter_slice)
{
    chat_value seq, all, part;
    int64_t slices;
    size_t at = 0;
    UNUSED;
    BY_TRY(chat_param_int(r, &p[0], 1, &slices));
    BY_TRY(chat_to_list(r, v, &seq));
    if (slices == 0 || slices > 1000000)
        return chat_fail(r, "slice: bad number of slices");
    BY_TRY(chat_new_list(&r->heap, CHAT_LIST, 0, &all));
    for (int64_t k = 0; k < slices; k++) {
        const bool extra = k < (int64_t)seq.list->count % slices;
        const size_t count = seq.list->count / (size_t)slices + extra;
        BY_TRY(chat_spend(r, 1));
        BY_TRY(chat_new_list(&r->heap, CHAT_LIST, count, &part));
        for (size_t i = 0; i < count; i++)
            BY_TRY(chat_push(&r->heap, part.list, seq.list->items[at++]));
        if (!extra && p[1].type != CHAT_MISSING && p[1].type != CHAT_NONE)
            BY_TRY(chat_push(&r->heap, part.list, p[1]));
        BY_TRY(chat_push(&r->heap, all.list, part));
    }
    return chat_new_generator(r, CHAT_LAZY_LIST, &all, NULL, out);
}

/* ---- map and select ------------------------------------------------------------------------------------------ */

FILTER(filter_map)
{
    UNUSED;
    return chat_new_generator(r, CHAT_LAZY_MAP, v, a, out);
}

static by_status select(chat_run *r, const chat_value *v, const chat_args *a, bool negate, bool attribute,
                        chat_value *out)
{
    BY_TRY(chat_new_generator(r, CHAT_LAZY_SELECT, v, a, out));
    out->generator->negate = negate;
    out->generator->attribute = attribute;
    return BY_OK;
}

FILTER(filter_select)
{
    UNUSED;
    return select(r, v, a, false, false, out);
}

FILTER(filter_reject)
{
    UNUSED;
    return select(r, v, a, true, false, out);
}

FILTER(filter_selectattr)
{
    UNUSED;
    return select(r, v, a, false, true, out);
}

FILTER(filter_rejectattr)
{
    UNUSED;
    return select(r, v, a, true, true, out);
}

/* ---- join and sum -------------------------------------------------------------------------------------------- */

/* The item itself, or the requested attribute. */
static by_status attribute_of(chat_run *r, const chat_value *item, const chat_value *path, chat_value *out)
{
    *out = *item;
    return path->type == CHAT_MISSING ? BY_OK : chat_path(r, item, path, out);
}

FILTER(filter_join)
{
    chat_iterator i;
    chat_value between, all, item;
    UNUSED;
    BY_TRY(p[0].type == CHAT_MISSING ? chat_copy_bytes(&r->heap, "", 0, &between)
                                     : chat_to_text(r, &p[0], &between));
    BY_TRY(chat_iterate(r, v, &i));
    BY_TRY(chat_new_list(&r->heap, CHAT_LIST, 0, &all));
    for (bool more;;) {
        BY_TRY(chat_next(r, &i, &item, &more));
        if (!more)
            break;
        BY_TRY(attribute_of(r, &item, &p[1], &item));
        BY_TRY(chat_push(&r->heap, all.list, item));
    }
    const size_t mark = r->out.size;
    for (size_t k = 0; k < all.list->count; k++) {
        if (k)
            BY_TRY(chat_put_bytes(r, between.text, between.size));
        BY_TRY(chat_put_text(r, &all.list->items[k]));
    }
    return chat_take_text(r, mark, out);
}

FILTER(filter_sum)
{
    chat_iterator i;
    chat_value item, before;
    UNUSED;
    *out = p[1].type == CHAT_MISSING ? chat_int(0) : p[1];
    if (out->type == CHAT_STRING)
        return chat_fail(r, "sum cannot add strings");
    BY_TRY(chat_iterate(r, v, &i));
    for (bool more;;) {
        BY_TRY(chat_next(r, &i, &item, &more));
        if (!more)
            return BY_OK;
        BY_TRY(attribute_of(r, &item, &p[0], &item));
        before = *out;
        BY_TRY(chat_binary(r, '+', &before, &item, out));
    }
}

/* ---- order -------------------------------------------------------------------------------------------------------- */

static by_status without_case(chat_run *r, chat_value *v)
{
    if (v->type != CHAT_STRING)
        return BY_OK;
    const size_t mark = r->out.size;
    BY_TRY(chat_spend(r, v->size / 4));
    BY_TRY(chat_change_case(v->text, v->size, CHAT_LOWER, &r->out));
    return chat_take_text(r, mark, v);
}

/* The sort key of an item: the item or an attribute, in lower case unless case matters. */
static by_status key_of(chat_run *r, const chat_value *item, const chat_value *path, bool exact,
                        chat_value *out)
{
    BY_TRY(attribute_of(r, item, path, out));
    return exact ? BY_OK : without_case(r, out);
}

/* The key of the sort filter: the item, or a list of comma-separated attributes. */
static by_status sort_key(chat_run *r, const chat_value *item, const chat_value *paths, bool exact,
                          chat_value *out)
{
    chat_value part, key;
    BY_TRY(chat_new_list(&r->heap, CHAT_LIST, 1, out));
    if (paths->type != CHAT_STRING) {
        BY_TRY(key_of(r, item, paths, exact, &key));
        return chat_push(&r->heap, out->list, key);
    }
    for (size_t at = 0; at <= paths->size;) {
        const size_t comma = chat_find_bytes(paths->text, paths->size, ",", 1, at);
        const size_t end = comma == SIZE_MAX ? paths->size : comma;
        part = chat_bytes(paths->text + at, end - at);
        BY_TRY(key_of(r, item, &part, exact, &key));
        BY_TRY(chat_push(&r->heap, out->list, key));
        at = end + 1;
    }
    return BY_OK;
}

/* Merges two sorted runs of pairs (key, item). Equal keys keep their order, even in reverse. */
static by_status merge(chat_run *r, const chat_pair *a, size_t n, const chat_pair *b, size_t m, bool reverse,
                       chat_pair *out)
{
    size_t i = 0, k = 0;
    while (i < n || k < m) {
        bool second = i == n;
        if (i < n && k < m)
            BY_TRY(reverse ? chat_compare(r, '<', &a[i].key, &b[k].key, &second)
                           : chat_compare(r, '<', &b[k].key, &a[i].key, &second));
        *out++ = second ? b[k++] : a[i++];
    }
    return BY_OK;
}

static by_status sort_pairs(chat_run *r, chat_pair *pairs, size_t count, bool reverse)
{
    chat_pair *other = chat_alloc(&r->heap, count + 1, sizeof *other);
    if (!other)
        return base_error_status();
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t at = 0; at < count; at += 2 * width) {
            const size_t n = BY_MIN(width, count - at), m = BY_MIN(width, count - at - n);
            BY_TRY(merge(r, pairs + at, n, pairs + at + n, m, reverse, other + at));
        }
        memcpy(pairs, other, count * sizeof *pairs);
    }
    return BY_OK;
}

/* Sorts the items of a list by precomputed keys. */
static by_status sort_list(chat_run *r, const chat_list *l, chat_pair *pairs, bool reverse, chat_value *out)
{
    BY_TRY(sort_pairs(r, pairs, l->count, reverse));
    BY_TRY(chat_new_list(&r->heap, CHAT_LIST, l->count, out));
    for (size_t i = 0; i < l->count; i++)
        BY_TRY(chat_push(&r->heap, out->list, pairs[i].value));
    return BY_OK;
}

FILTER(filter_sort)
{
    chat_value all;
    UNUSED;
    BY_TRY(chat_to_list(r, v, &all));
    chat_pair *pairs = chat_alloc(&r->heap, all.list->count + 1, sizeof *pairs);
    if (!pairs)
        return base_error_status();
    for (size_t i = 0; i < all.list->count; i++) {
        pairs[i].value = all.list->items[i];
        BY_TRY(sort_key(r, &pairs[i].value, &p[2], chat_truth(&p[1]), &pairs[i].key));
    }
    return sort_list(r, all.list, pairs, chat_truth(&p[0]), out);
}

FILTER(filter_dictsort)
{
    chat_value items, all, by;
    UNUSED;
    if (v->type != CHAT_DICT)
        return v->type == CHAT_UNDEFINED
                   ? chat_fail_undefined(r, v)
                   : chat_fail(r, "dictsort requires a mapping, not '%s'", chat_type_name(v));
    BY_TRY(chat_param_text(r, &p[1], "key", &by));
    if (!chat_is_text(&by, "key") && !chat_is_text(&by, "value"))
        return chat_fail(r, "dictsort sorts by key or value");
    BY_TRY(chat_new_generator(r, CHAT_LAZY_ITEMS, v, NULL, &items));
    BY_TRY(chat_to_list(r, &items, &all));
    chat_pair *pairs = chat_alloc(&r->heap, all.list->count + 1, sizeof *pairs);
    if (!pairs)
        return base_error_status();
    const chat_value whole = {.type = CHAT_MISSING};
    for (size_t i = 0; i < all.list->count; i++) {
        pairs[i].value = all.list->items[i];
        BY_TRY(
            key_of(r, &pairs[i].value.list->items[by.size == 5], &whole, chat_truth(&p[0]), &pairs[i].key));
    }
    return sort_list(r, all.list, pairs, chat_truth(&p[2]), out);
}

FILTER(filter_unique)
{
    chat_value all, kept, seen, key;
    UNUSED;
    BY_TRY(chat_to_list(r, v, &all));
    BY_TRY(chat_new_list(&r->heap, CHAT_LIST, 0, &kept));
    BY_TRY(chat_new_dict(&r->heap, CHAT_DICT, &seen));
    for (size_t i = 0; i < all.list->count; i++) {
        BY_TRY(key_of(r, &all.list->items[i], &p[1], chat_truth(&p[0]), &key));
        if (!chat_is_hashable(&key))
            return chat_fail(r, "unhashable type: '%s'", chat_type_name(&key));
        if (chat_find(seen.dict, &key))
            continue;
        BY_TRY(chat_put(&r->heap, seen.dict, key, chat_none()));
        BY_TRY(chat_push(&r->heap, kept.list, all.list->items[i]));
    }
    return chat_new_generator(r, CHAT_LAZY_LIST, &kept, NULL, out);
}

static by_status extreme(chat_run *r, const chat_value *v, const chat_value *p, int op, chat_value *out)
{
    chat_iterator i;
    chat_value item, key, best;
    bool more, better;
    *out = chat_absent("no item, the sequence was empty");
    BY_TRY(chat_iterate(r, v, &i));
    for (bool first = true;; first = false) {
        BY_TRY(chat_next(r, &i, &item, &more));
        if (!more)
            return BY_OK;
        BY_TRY(key_of(r, &item, &p[1], chat_truth(&p[0]), &key));
        better = first;
        if (!first)
            BY_TRY(chat_compare(r, op, &key, &best, &better));
        if (better) {
            best = key;
            *out = item;
        }
    }
}

FILTER(filter_min)
{
    UNUSED;
    return extreme(r, v, p, '<', out);
}

FILTER(filter_max)
{
    UNUSED;
    return extreme(r, v, p, '>', out);
}

const chat_filter_row chat_list_filters[] = {
    {"batch", "linecount fill_with?", filter_batch},
    {"dictsort", "case_sensitive? by? reverse?", filter_dictsort},
    {"first", "", filter_first},
    {"items", "", filter_items},
    {"join", "d? attribute?", filter_join},
    {"last", "", filter_last},
    {"list", "", filter_list},
    {"map", NULL, filter_map},
    {"max", "case_sensitive? attribute?", filter_max},
    {"min", "case_sensitive? attribute?", filter_min},
    {"reject", NULL, filter_reject},
    {"rejectattr", NULL, filter_rejectattr},
    {"reverse", "", filter_reverse},
    {"select", NULL, filter_select},
    {"selectattr", NULL, filter_selectattr},
    {"slice", "slices fill_with?", filter_slice},
    {"sort", "reverse? case_sensitive? attribute?", filter_sort},
    {"sum", "attribute? start?", filter_sum},
    {"unique", "case_sensitive? attribute?", filter_unique},
    {NULL, NULL, NULL},
};
