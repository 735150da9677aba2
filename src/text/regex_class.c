/* regex_class.c - character classes: evaluated as in Oniguruma, written for PCRE2. */
#include "text/regex.h"

#define FEW_RANGES 24 /* a set with at most this many ranges needs no properties */

void tok_charclass_free(tok_charclass *c)
{
    tok_charset_free(&c->exact);
    tok_charset_free(&c->native);
    tok_charset_free(&c->doubt);
    base_buf_free(&c->hint);
}

void tok_charclass_add(tok_charclass *c, uint32_t first, uint32_t last)
{
    tok_charset_add(&c->exact, first, last);
}

/* Turns "\p{L}" into "\P{L}" and "\s" into "\S". Returns false for a hint with several properties. */
static bool negate_hint(char hint[TOK_HINT_ROOM])
{
    if (strchr(hint + 1, '\\'))
        return false;
    hint[1] = (char)(hint[1] - 32);
    return true;
}

/* The complement of several properties has no hint and is written as ranges. */
bool tok_charclass_add_named(tok_charclass *c, tok_natives *natives, tok_set_kind kind, const char *name,
                             size_t size, bool negate)
{
    char hint[TOK_HINT_ROOM];
    tok_charset set = {0}, differs = {0}, both = {0};
    bool found = tok_charset_named(kind, name, size, &set, hint);
    const tok_charset *known = found && hint[0] ? tok_natives_find(natives, hint) : NULL;
    if (known) { /* (set or known) minus (set and known) */
        tok_charset_unite(&differs, &set);
        tok_charset_unite(&both, &set);
        tok_charset_unite(&differs, known);
        tok_charset_intersect(&both, known);
        tok_charset_subtract(&differs, &both);
    }
    if (known && (!negate || negate_hint(hint))) {
        tok_charset native = {0};
        tok_charset_unite(&native, known);
        if (negate)
            tok_charset_invert(&native);
        tok_charset_unite(&c->native, &native);
        tok_charset_unite(&c->doubt, &differs);
        base_buf_puts(&c->hint, hint);
        tok_charset_free(&native);
    }
    if (negate)
        tok_charset_invert(&set);
    if (found)
        tok_charset_unite(&c->exact, &set);
    tok_charset_free(&set);
    tok_charset_free(&differs);
    tok_charset_free(&both);
    return found;
}

void tok_charclass_unite(tok_charclass *c, tok_charclass *other, bool negate)
{
    if (negate) {
        tok_charset_invert(&other->exact);
    } else {
        tok_charset_unite(&c->native, &other->native);
        tok_charset_unite(&c->doubt, &other->doubt);
        base_buf_put(&c->hint, other->hint.data, other->hint.size);
    }
    tok_charset_unite(&c->exact, &other->exact);
    tok_charclass_free(other);
}

/* Keeps the larger hint; its surplus is removed when the class is written. */
void tok_charclass_intersect(tok_charclass *c, tok_charclass *other)
{
    tok_charset_intersect(&c->exact, &other->exact);
    if (c->hint.size < other->hint.size) {
        tok_charset native = c->native, doubt = c->doubt;
        base_buf hint = c->hint;
        c->native = other->native;
        c->doubt = other->doubt;
        c->hint = other->hint;
        other->native = native;
        other->doubt = doubt;
        other->hint = hint;
    }
    tok_charclass_free(other);
}

bool tok_charclass_fold(tok_charclass *c)
{
    static const uint32_t pairs[][2] = {{'s', 0x17f}, {'k', 0x212a}};
    tok_charset above = {0};
    tok_charset_cased(&above);
    tok_charset_intersect(&above, &c->exact);
    bool simple = above.count == 0;
    tok_charset_free(&above);
    for (uint32_t k = 'a'; k <= 'z'; k++)
        if (tok_charset_has(&c->exact, k) || tok_charset_has(&c->exact, k - 32)) {
            tok_charset_add(&c->exact, k, k);
            tok_charset_add(&c->exact, k - 32, k - 32);
        }
    for (int i = 0; i < 2; i++)
        if (tok_charset_has(&c->exact, pairs[i][0]))
            tok_charset_add(&c->exact, pairs[i][1], pairs[i][1]);
    return simple;
}

/* Writes ranges between brackets. Surrogates are not characters: no range starts or ends with one. */
static void put_ranges(base_buf *out, const tok_charset *s)
{
    for (size_t i = 0; i < s->count; i++) {
        uint32_t first = s->ranges[i].first, last = s->ranges[i].last;
        if (first >= 0xd800 && first <= 0xdfff)
            first = 0xe000;
        if (last >= 0xd800 && last <= 0xdfff)
            last = 0xd7ff;
        if (first == last)
            base_buf_printf(out, "\\x{%x}", first);
        else if (first < last)
            base_buf_printf(out, "\\x{%x}-\\x{%x}", first, last);
    }
}

static void put_bracket(base_buf *out, bool negate, const base_buf *hint, const tok_charset *ranges)
{
    base_buf_puts(out, negate ? "[^" : "[");
    if (hint)
        base_buf_put(out, hint->data ? hint->data : "", hint->size);
    put_ranges(out, ranges);
    base_buf_puts(out, "]");
}

/* Returns true if the set has no characters besides surrogates. */
static bool is_empty(const tok_charset *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->ranges[i].first < 0xd800 || s->ranges[i].last > 0xdfff)
            return false;
    return true;
}

void tok_charclass_write(const tok_charclass *c, bool negate, bool exact, base_buf *out)
{
    tok_charset add = {0}, drop = {0}, rest = {0};
    tok_charset_unite(&rest, &c->exact);
    tok_charset_invert(&rest);
    tok_charset_unite(&add, &c->exact);
    tok_charset_subtract(&add, &c->native);
    tok_charset_unite(&drop, &c->native);
    tok_charset_subtract(&drop, &c->exact);
    if (!exact) {
        tok_charset_subtract(&add, &c->doubt);
        tok_charset_subtract(&drop, &c->doubt);
    }
    if (is_empty(&c->exact) || is_empty(&rest)) {
        base_buf_puts(out, is_empty(&c->exact) == negate ? "(?s:.)" : "(?:(?!))");
    } else if (c->hint.size == 0 || (c->exact.count <= FEW_RANGES && (exact || !is_empty(&drop)))) {
        put_bracket(out, negate, NULL, &c->exact);
    } else if (is_empty(&drop)) {
        put_bracket(out, negate, &c->hint, &add);
    } else {
        base_buf_puts(out, "(?:");
        if (!negate)
            base_buf_puts(out, "(?!");
        put_bracket(out, false, NULL, &drop);
        base_buf_puts(out, negate ? "|" : ")");
        put_bracket(out, negate, &c->hint, &add);
        base_buf_puts(out, ")");
    }
    out->failed = out->failed || add.failed || drop.failed || rest.failed || c->hint.failed ||
                  c->native.failed || c->doubt.failed;
    tok_charset_free(&add);
    tok_charset_free(&drop);
    tok_charset_free(&rest);
}
