/* regex_class.c - character classes: evaluated as Oniguruma does, written for PCRE2. */
#include "text/regex.h"

#define FEW_RANGES 24 /* a set of so few ranges needs no properties */

void by_charclass_free(by_charclass *c)
{
    by_charset_free(&c->exact);
    by_charset_free(&c->native);
    by_charset_free(&c->doubt);
    by_buf_free(&c->hint);
}

void by_charclass_add(by_charclass *c, uint32_t first, uint32_t last)
{
    by_charset_add(&c->exact, first, last);
}

/* Turn "\p{L}" into "\P{L}" and "\s" into "\S". False for a hint of several properties. */
static bool negate_hint(char hint[BY_HINT_ROOM])
{
    if (strchr(hint + 1, '\\'))
        return false;
    hint[1] = (char)(hint[1] - 32);
    return true;
}

/* The complement of several properties has no hint: it comes out as ranges. */
bool by_charclass_add_named(by_charclass *c, by_natives *natives, by_set_kind kind, const char *name,
                            size_t size, bool negate)
{
    char hint[BY_HINT_ROOM];
    by_charset set = {0}, differs = {0}, both = {0};
    bool found = by_charset_named(kind, name, size, &set, hint);
    const by_charset *known = found && hint[0] ? by_natives_find(natives, hint) : NULL;
    if (known) { /* (set or known) minus (set and known) */
        by_charset_unite(&differs, &set);
        by_charset_unite(&both, &set);
        by_charset_unite(&differs, known);
        by_charset_intersect(&both, known);
        by_charset_subtract(&differs, &both);
    }
    if (known && (!negate || negate_hint(hint))) {
        by_charset native = {0};
        by_charset_unite(&native, known);
        if (negate)
            by_charset_invert(&native);
        by_charset_unite(&c->native, &native);
        by_charset_unite(&c->doubt, &differs);
        by_buf_puts(&c->hint, hint);
        by_charset_free(&native);
    }
    if (negate)
        by_charset_invert(&set);
    if (found)
        by_charset_unite(&c->exact, &set);
    by_charset_free(&set);
    by_charset_free(&differs);
    by_charset_free(&both);
    return found;
}

void by_charclass_unite(by_charclass *c, by_charclass *other, bool negate)
{
    if (negate) {
        by_charset_invert(&other->exact);
    } else {
        by_charset_unite(&c->native, &other->native);
        by_charset_unite(&c->doubt, &other->doubt);
        by_buf_put(&c->hint, other->hint.data, other->hint.size);
    }
    by_charset_unite(&c->exact, &other->exact);
    by_charclass_free(other);
}

/* The hint that says more stays; what it says too much is taken away when the class is written. */
void by_charclass_intersect(by_charclass *c, by_charclass *other)
{
    by_charset_intersect(&c->exact, &other->exact);
    if (c->hint.size < other->hint.size) {
        by_charset native = c->native, doubt = c->doubt;
        by_buf hint = c->hint;
        c->native = other->native;
        c->doubt = other->doubt;
        c->hint = other->hint;
        other->native = native;
        other->doubt = doubt;
        other->hint = hint;
    }
    by_charclass_free(other);
}

bool by_charclass_fold(by_charclass *c)
{
    static const uint32_t pairs[][2] = {{'s', 0x17f}, {'k', 0x212a}};
    by_charset above = {0};
    by_charset_cased(&above);
    by_charset_intersect(&above, &c->exact);
    bool simple = above.count == 0;
    by_charset_free(&above);
    for (uint32_t k = 'a'; k <= 'z'; k++)
        if (by_charset_has(&c->exact, k) || by_charset_has(&c->exact, k - 32)) {
            by_charset_add(&c->exact, k, k);
            by_charset_add(&c->exact, k - 32, k - 32);
        }
    for (int i = 0; i < 2; i++)
        if (by_charset_has(&c->exact, pairs[i][0]))
            by_charset_add(&c->exact, pairs[i][1], pairs[i][1]);
    return simple;
}

/* Ranges between brackets. Surrogates are not characters: a range does not begin or end with one. */
static void put_ranges(by_buf *out, const by_charset *s)
{
    for (size_t i = 0; i < s->count; i++) {
        uint32_t first = s->ranges[i].first, last = s->ranges[i].last;
        if (first >= 0xd800 && first <= 0xdfff)
            first = 0xe000;
        if (last >= 0xd800 && last <= 0xdfff)
            last = 0xd7ff;
        if (first == last)
            by_buf_printf(out, "\\x{%x}", first);
        else if (first < last)
            by_buf_printf(out, "\\x{%x}-\\x{%x}", first, last);
    }
}

static void put_bracket(by_buf *out, bool negate, const by_buf *hint, const by_charset *ranges)
{
    by_buf_puts(out, negate ? "[^" : "[");
    if (hint)
        by_buf_put(out, hint->data ? hint->data : "", hint->size);
    put_ranges(out, ranges);
    by_buf_puts(out, "]");
}

/* Is there a character, surrogates apart? */
static bool is_empty(const by_charset *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->ranges[i].first < 0xd800 || s->ranges[i].last > 0xdfff)
            return false;
    return true;
}

void by_charclass_write(const by_charclass *c, bool negate, bool exact, by_buf *out)
{
    by_charset add = {0}, drop = {0}, rest = {0};
    by_charset_unite(&rest, &c->exact);
    by_charset_invert(&rest);
    by_charset_unite(&add, &c->exact);
    by_charset_subtract(&add, &c->native);
    by_charset_unite(&drop, &c->native);
    by_charset_subtract(&drop, &c->exact);
    if (!exact) {
        by_charset_subtract(&add, &c->doubt);
        by_charset_subtract(&drop, &c->doubt);
    }
    if (is_empty(&c->exact) || is_empty(&rest)) {
        by_buf_puts(out, is_empty(&c->exact) == negate ? "(?s:.)" : "(?:(?!))");
    } else if (c->hint.size == 0 || (c->exact.count <= FEW_RANGES && (exact || !is_empty(&drop)))) {
        put_bracket(out, negate, NULL, &c->exact);
    } else if (is_empty(&drop)) {
        put_bracket(out, negate, &c->hint, &add);
    } else {
        by_buf_puts(out, "(?:");
        if (!negate)
            by_buf_puts(out, "(?!");
        put_bracket(out, false, NULL, &drop);
        by_buf_puts(out, negate ? "|" : ")");
        put_bracket(out, negate, &c->hint, &add);
        by_buf_puts(out, ")");
    }
    out->failed = out->failed || add.failed || drop.failed || rest.failed || c->hint.failed ||
                  c->native.failed || c->doubt.failed;
    by_charset_free(&add);
    by_charset_free(&drop);
    by_charset_free(&rest);
}
