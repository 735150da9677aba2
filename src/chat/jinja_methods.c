/* jinja_methods.c - string methods that search, split, strip and join. Methods that change or describe
 * characters are in jinja_shapes.c. */
#include "chat/jinja_run.h"
#include "text/unicode.h"

#define METHOD(name)                                                                                    \
    static by_status name(chat_run *r, const chat_value *self, const chat_args *a, const chat_value *p, \
                          chat_value *out)
#define UNUSED (void)r, (void)a, (void)p

/* A part of a string. It keeps the safe mark. */
static chat_value part_of(const chat_value *s, size_t start, size_t size)
{
    chat_value v = chat_bytes(s->text + start, size);
    v.markup = s->markup;
    return v;
}

static by_status push_part(chat_run *r, chat_value *list, const chat_value *s, size_t start, size_t end)
{
    BY_TRY(chat_spend(r, 1));
    return chat_push(&r->heap, list->list, part_of(s, start, end - start));
}

/* ---- strip ------------------------------------------------------------------------------------------------- */

static bool has_character(const chat_value *set, const char *c, size_t size)
{
    return chat_find_bytes(set->text, set->size, c, size, 0) != SIZE_MAX;
}

static size_t last_character(const char *text, size_t size)
{
    size_t at = size - 1;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

/* sides: 1 left, 2 right, 3 both. chars: None or absent for white space. */
by_status chat_strip(chat_run *r, const chat_value *self, const chat_value *chars, int sides, chat_value *out)
{
    size_t start = 0, end = self->size;
    BY_TRY(chat_spend(r, self->size / 16));
    if (chars->type == CHAT_MISSING || chars->type == CHAT_NONE) {
        if (sides & 2)
            end = chat_strip_right(self->text, end);
        if (sides & 1)
            start = chat_strip_left(self->text, end);
    } else if (chars->type == CHAT_STRING) {
        for (size_t n; sides & 1 && start < end; start += n)
            if (!has_character(chars, self->text + start,
                               n = chat_offset(self->text + start, end - start, 1)))
                break;
        for (size_t at; sides & 2 && start < end; end = at) {
            at = last_character(self->text, end);
            if (!has_character(chars, self->text + at, end - at))
                break;
        }
    } else {
        return chat_fail(r, "the characters to strip must be None or a string");
    }
    *out = part_of(self, start, end - start);
    return BY_OK;
}

METHOD(method_strip)
{
    UNUSED;
    return chat_strip(r, self, &p[0], 3, out);
}

METHOD(method_lstrip)
{
    UNUSED;
    return chat_strip(r, self, &p[0], 1, out);
}

METHOD(method_rstrip)
{
    UNUSED;
    return chat_strip(r, self, &p[0], 2, out);
}

/* ---- split -------------------------------------------------------------------------------------------------- */

static by_status split_space(chat_run *r, const chat_value *s, int64_t most, chat_value *out)
{
    size_t at = chat_strip_left(s->text, s->size);
    uint32_t c;
    while (at < s->size) {
        size_t end = at;
        if (most == 0) /* the rest, without trailing white space */
            return push_part(r, out, s, at, chat_strip_right(s->text, s->size));
        for (int k; end < s->size; end += (size_t)k) {
            k = tok_utf8_next(s->text + end, s->size - end, &c);
            if (chat_is_space(c))
                break;
        }
        BY_TRY(push_part(r, out, s, at, end));
        at = end + chat_strip_left(s->text + end, s->size - end);
        most--;
    }
    return BY_OK;
}

static by_status split_at(chat_run *r, const chat_value *s, const chat_value *by, int64_t most,
                          chat_value *out)
{
    size_t at = 0, found;
    for (; most != 0 && (found = chat_find_bytes(s->text, s->size, by->text, by->size, at)) != SIZE_MAX;
         most--) {
        BY_TRY(push_part(r, out, s, at, found));
        at = found + by->size;
    }
    return push_part(r, out, s, at, s->size);
}

/* Splits from the right: the parts are found in reverse order. */
static by_status rsplit_parts(chat_run *r, const chat_value *s, const chat_value *by, int64_t most,
                              chat_value *out)
{
    size_t end = s->size, found;
    if (by) {
        for (; most != 0 && (found = chat_find_last(s->text, end, by->text, by->size)) != SIZE_MAX; most--) {
            BY_TRY(push_part(r, out, s, found + by->size, end));
            end = found;
        }
        return push_part(r, out, s, 0, end);
    }
    for (end = chat_strip_right(s->text, end); end > 0; end = chat_strip_right(s->text, end)) {
        size_t start = end;
        uint32_t c;
        if (most-- == 0)
            return push_part(r, out, s, chat_strip_left(s->text, end), end);
        for (size_t at; start > 0; start = at) {
            at = last_character(s->text, start);
            tok_utf8_next(s->text + at, start - at, &c);
            if (chat_is_space(c))
                break;
        }
        BY_TRY(push_part(r, out, s, start, end));
        end = start;
    }
    return BY_OK;
}

static by_status split(chat_run *r, const chat_value *self, const chat_value *p, bool right, chat_value *out)
{
    int64_t most;
    const bool space = p[0].type == CHAT_MISSING || p[0].type == CHAT_NONE;
    BY_TRY(chat_param_int(r, &p[1], -1, &most));
    if (!space && (p[0].type != CHAT_STRING || p[0].size == 0))
        return chat_fail(r, "the separator must be None or a string that is not empty");
    BY_TRY(chat_spend(r, self->size / 16));
    BY_TRY(chat_new_list(&r->heap, CHAT_LIST, 0, out));
    if (!right)
        return space ? split_space(r, self, most, out) : split_at(r, self, &p[0], most, out);
    BY_TRY(rsplit_parts(r, self, space ? NULL : &p[0], most, out));
    for (size_t i = 0, k = out->list->count; i + 1 < k--; i++) {
        const chat_value v = out->list->items[i];
        out->list->items[i] = out->list->items[k];
        out->list->items[k] = v;
    }
    return BY_OK;
}

METHOD(method_split)
{
    UNUSED;
    return split(r, self, p, false, out);
}

METHOD(method_rsplit)
{
    UNUSED;
    return split(r, self, p, true, out);
}

/* Python's line ends: \n, \r, \r\n, \v, \f, \x1c to \x1e, \x85, U+2028, U+2029. */
static size_t line_end(const char *s, size_t n)
{
    uint32_t c;
    const int k = tok_utf8_next(s, n, &c);
    if (c == '\r' && n > 1 && s[1] == '\n')
        return 2;
    return (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029
               ? (size_t)k
               : 0;
}

by_status chat_split_lines(chat_run *r, const chat_value *s, bool keep_ends, chat_value *out)
{
    size_t start = 0, at = 0;
    BY_TRY(chat_spend(r, s->size / 4));
    BY_TRY(chat_new_list(&r->heap, CHAT_LIST, 0, out));
    while (at < s->size) {
        const size_t end = line_end(s->text + at, s->size - at);
        if (!end) {
            at++;
            continue;
        }
        BY_TRY(push_part(r, out, s, start, at + (keep_ends ? end : 0)));
        start = at += end;
    }
    return start < s->size ? push_part(r, out, s, start, s->size) : BY_OK;
}

METHOD(method_splitlines)
{
    UNUSED;
    return chat_split_lines(r, self, chat_truth(&p[0]), out);
}

static by_status partition(chat_run *r, const chat_value *self, const chat_value *by, bool last,
                           chat_value *out)
{
    if (by->type != CHAT_STRING || !by->size)
        return chat_fail(r, "the separator must be a string that is not empty");
    const size_t found = last ? chat_find_last(self->text, self->size, by->text, by->size)
                              : chat_find_bytes(self->text, self->size, by->text, by->size, 0);
    const size_t at = found == SIZE_MAX ? (last ? 0 : self->size) : found,
                 n = found == SIZE_MAX ? 0 : by->size;
    BY_TRY(chat_new_list(&r->heap, CHAT_TUPLE, 3, out));
    BY_TRY(push_part(r, out, self, 0, at));
    BY_TRY(push_part(r, out, self, at, at + n));
    return push_part(r, out, self, at + n, self->size);
}

METHOD(method_partition)
{
    UNUSED;
    return partition(r, self, &p[0], false, out);
}

METHOD(method_rpartition)
{
    UNUSED;
    return partition(r, self, &p[0], true, out);
}

/* ---- search ---------------------------------------------------------------------------------------------------- */

/* The part of the string between start and end. */
static by_status selected(chat_run *r, const chat_value *self, const chat_value *p, chat_value *out,
                          int64_t *start)
{
    const chat_value bounds[3] = {p[0].type == CHAT_MISSING ? chat_none() : p[0],
                                  p[1].type == CHAT_MISSING ? chat_none() : p[1], chat_none()};
    int64_t first = 0;
    *start = 0;
    *out = *self;
    if (bounds[0].type == CHAT_NONE && bounds[1].type == CHAT_NONE)
        return BY_OK;
    BY_TRY(chat_slice(r, self, bounds, out));
    if (chat_as_int(&bounds[0], &first)) {
        const int64_t count = chat_characters(self->text, self->size);
        *start = first < 0 ? BY_MAX(first + count, 0) : BY_MIN(first, count);
    }
    return BY_OK;
}

/* The position of p[0] in characters; -1: not found. */
static by_status find(chat_run *r, const chat_value *self, const chat_value *p, bool last, int64_t *out)
{
    chat_value part;
    int64_t start;
    if (p[0].type != CHAT_STRING)
        return chat_fail(r, "expected a string, not '%s'", chat_type_name(&p[0]));
    BY_TRY(selected(r, self, p + 1, &part, &start));
    BY_TRY(chat_spend(r, self->size / 16));
    const size_t at = last ? chat_find_last(part.text, part.size, p[0].text, p[0].size)
                           : chat_find_bytes(part.text, part.size, p[0].text, p[0].size, 0);
    *out = at == SIZE_MAX ? -1 : start + chat_characters(part.text, at);
    return BY_OK;
}

static by_status find_or_fail(chat_run *r, const chat_value *self, const chat_value *p, bool last, bool fail,
                              chat_value *out)
{
    int64_t at = -1;
    BY_TRY(find(r, self, p, last, &at));
    if (at < 0 && fail)
        return chat_fail(r, "substring not found");
    *out = chat_int(at);
    return BY_OK;
}

METHOD(method_find)
{
    UNUSED;
    return find_or_fail(r, self, p, false, false, out);
}

METHOD(method_rfind)
{
    UNUSED;
    return find_or_fail(r, self, p, true, false, out);
}

METHOD(method_index)
{
    UNUSED;
    return find_or_fail(r, self, p, false, true, out);
}

METHOD(method_rindex)
{
    UNUSED;
    return find_or_fail(r, self, p, true, true, out);
}

METHOD(method_count)
{
    chat_value part;
    int64_t start, count = 0;
    UNUSED;
    if (p[0].type != CHAT_STRING)
        return chat_fail(r, "expected a string, not '%s'", chat_type_name(&p[0]));
    BY_TRY(selected(r, self, p + 1, &part, &start));
    BY_TRY(chat_spend(r, part.size / 16));
    if (p[0].size == 0)
        count = chat_characters(part.text, part.size) + 1;
    for (size_t at = 0; p[0].size; at += p[0].size, count++)
        if ((at = chat_find_bytes(part.text, part.size, p[0].text, p[0].size, at)) == SIZE_MAX)
            break;
    *out = chat_int(count);
    return BY_OK;
}

static bool has_affix(const chat_value *s, const chat_value *affix, bool end)
{
    return s->size >= affix->size &&
           memcmp(s->text + (end ? s->size - affix->size : 0), affix->text, affix->size) == 0;
}

/* The affix is a string or a tuple of strings. */
static by_status affix(chat_run *r, const chat_value *self, const chat_value *p, bool end, chat_value *out)
{
    chat_value part;
    int64_t start;
    BY_TRY(selected(r, self, p + 1, &part, &start));
    const chat_value *list = p[0].type == CHAT_TUPLE ? p[0].list->items : &p[0];
    const size_t count = p[0].type == CHAT_TUPLE ? p[0].list->count : 1;
    *out = chat_bool(false);
    for (size_t i = 0; i < count && !out->truth; i++) {
        if (list[i].type != CHAT_STRING)
            return chat_fail(r, "expected a string or a tuple of strings, not '%s'",
                             chat_type_name(&list[i]));
        out->truth = has_affix(&part, &list[i], end);
    }
    return BY_OK;
}

METHOD(method_startswith)
{
    UNUSED;
    return affix(r, self, p, false, out);
}

METHOD(method_endswith)
{
    UNUSED;
    return affix(r, self, p, true, out);
}

METHOD(method_removeprefix)
{
    chat_value prefix;
    UNUSED;
    BY_TRY(chat_param_text(r, &p[0], NULL, &prefix));
    const size_t n = has_affix(self, &prefix, false) ? prefix.size : 0;
    *out = part_of(self, n, self->size - n);
    return BY_OK;
}

METHOD(method_removesuffix)
{
    chat_value suffix;
    UNUSED;
    BY_TRY(chat_param_text(r, &p[0], NULL, &suffix));
    *out = part_of(self, 0, self->size - (has_affix(self, &suffix, true) ? suffix.size : 0));
    return BY_OK;
}

/* ---- join and replace --------------------------------------------------------------------------------------------- */

METHOD(method_join)
{
    chat_value all;
    UNUSED;
    BY_TRY(chat_to_list(r, &p[0], &all));
    const size_t mark = r->out.size;
    for (size_t i = 0; i < all.list->count; i++) {
        const chat_value *v = &all.list->items[i];
        if (i)
            BY_TRY(chat_put_bytes(r, self->text, self->size));
        if (self->markup && !(v->type == CHAT_STRING && v->markup)) {
            chat_value text;
            BY_TRY(chat_to_text(r, v, &text));
            chat_put_escaped(&r->out, text.text, text.size);
        } else if (v->type != CHAT_STRING) {
            return chat_fail(r, "join expects strings, not '%s'", chat_type_name(v));
        } else {
            BY_TRY(chat_put_bytes(r, v->text, v->size));
        }
    }
    BY_TRY(chat_take_text(r, mark, out));
    out->markup = self->markup;
    return BY_OK;
}

/* An empty string matches before every character and at the end. */
by_status chat_replace(chat_run *r, const chat_value *s, const chat_value *old, const chat_value *with,
                       int64_t count, chat_value *out)
{
    const size_t mark = r->out.size;
    size_t at = 0, found;
    for (; count != 0 && (found = chat_find_bytes(s->text, s->size, old->text, old->size, at)) != SIZE_MAX;
         count--) {
        size_t next = found + old->size;
        BY_TRY(chat_spend(r, 1));
        BY_TRY(chat_put_bytes(r, s->text + at, found - at));
        BY_TRY(chat_put_bytes(r, with->text, with->size));
        if (old->size == 0) {
            next = found + chat_offset(s->text + found, s->size - found, 1);
            BY_TRY(chat_put_bytes(r, s->text + found, next - found));
        }
        at = next;
        if (old->size == 0 && found == s->size)
            break;
    }
    BY_TRY(chat_put_bytes(r, s->text + at, s->size - at));
    BY_TRY(chat_take_text(r, mark, out));
    out->markup = s->markup;
    return BY_OK;
}

METHOD(method_replace)
{
    chat_value old, with;
    int64_t count;
    UNUSED;
    BY_TRY(chat_param_text(r, &p[0], NULL, &old));
    BY_TRY(chat_param_text(r, &p[1], NULL, &with));
    BY_TRY(chat_param_int(r, &p[2], -1, &count));
    if (self->markup && !with.markup) {
        const size_t mark = r->out.size;
        chat_put_escaped(&r->out, with.text, with.size);
        BY_TRY(chat_take_text(r, mark, &with));
    }
    return chat_replace(r, self, &old, &with, count, out);
}

METHOD(method_format)
{
    UNUSED;
    return chat_format_braces(r, self, a, out);
}

const chat_method_row chat_string_methods[] = {
    {"strip", "0?", method_strip},
    {"lstrip", "0?", method_lstrip},
    {"rstrip", "0?", method_rstrip},
    {"split", "sep? maxsplit?", method_split},
    {"rsplit", "sep? maxsplit?", method_rsplit},
    {"splitlines", "keepends?", method_splitlines},
    {"partition", "0", method_partition},
    {"rpartition", "0", method_rpartition},
    {"find", "0 1? 2?", method_find},
    {"rfind", "0 1? 2?", method_rfind},
    {"index", "0 1? 2?", method_index},
    {"rindex", "0 1? 2?", method_rindex},
    {"count", "0 1? 2?", method_count},
    {"startswith", "0 1? 2?", method_startswith},
    {"endswith", "0 1? 2?", method_endswith},
    {"removeprefix", "0", method_removeprefix},
    {"removesuffix", "0", method_removesuffix},
    {"join", "0", method_join},
    {"replace", "0 1 2?", method_replace},
    {"format", NULL, method_format},
    {NULL, NULL, NULL},
};
