/* jinja_tests.c - tests: x is NAME. */
#include <math.h>

#include "chat/jinja_run.h"
#include "text/unicode.h"

#define TEST(name) static by_status name(chat_run *r, const chat_value *v, const chat_value *p, bool *out)
#define UNUSED     (void)r, (void)p

TEST(is_defined)
{
    UNUSED;
    *out = v->type != CHAT_UNDEFINED;
    return BY_OK;
}

TEST(is_undefined)
{
    UNUSED;
    *out = v->type == CHAT_UNDEFINED;
    return BY_OK;
}

TEST(is_none)
{
    UNUSED;
    *out = v->type == CHAT_NONE;
    return BY_OK;
}

TEST(is_boolean)
{
    UNUSED;
    *out = v->type == CHAT_BOOL;
    return BY_OK;
}

TEST(is_true)
{
    UNUSED;
    *out = v->type == CHAT_BOOL && v->truth;
    return BY_OK;
}

TEST(is_false)
{
    UNUSED;
    *out = v->type == CHAT_BOOL && !v->truth;
    return BY_OK;
}

TEST(is_integer)
{
    UNUSED;
    *out = v->type == CHAT_INT || v->type == CHAT_BIG;
    return BY_OK;
}

TEST(is_float)
{
    UNUSED;
    *out = v->type == CHAT_FLOAT;
    return BY_OK;
}

TEST(is_number)
{
    UNUSED;
    *out = chat_is_number(v) || v->type == CHAT_BIG;
    return BY_OK;
}

TEST(is_string)
{
    UNUSED;
    *out = v->type == CHAT_STRING;
    return BY_OK;
}

TEST(is_mapping)
{
    UNUSED;
    *out = v->type == CHAT_DICT;
    return BY_OK;
}

TEST(is_iterable)
{
    UNUSED;
    *out = chat_is_iterable(v) || v->type == CHAT_LOOP;
    return BY_OK;
}

TEST(is_sequence)
{
    UNUSED;
    *out = v->type == CHAT_UNDEFINED || v->type == CHAT_STRING || v->type == CHAT_LIST ||
           v->type == CHAT_TUPLE || v->type == CHAT_DICT || v->type == CHAT_RANGE;
    return BY_OK;
}

/* An undefined value has a __call__ method, which fails. */
TEST(is_callable)
{
    UNUSED;
    *out = v->type == CHAT_MACRO || v->type == CHAT_METHOD || v->type == CHAT_FUNCTION ||
           v->type == CHAT_UNDEFINED || v->type == CHAT_LOOP;
    return BY_OK;
}

TEST(is_escaped)
{
    UNUSED;
    *out = v->type == CHAT_STRING && v->markup;
    return BY_OK;
}

/* str.isupper, str.islower: there are cased characters and all have this case. */
static by_status has_case(chat_run *r, const chat_value *v, bool upper, bool *out)
{
    chat_value text;
    bool any = false, other = false;
    uint32_t c;
    BY_TRY(chat_to_text(r, v, &text));
    for (size_t at = 0; at < text.size;) {
        at += (size_t)tok_utf8_next(text.text + at, text.size - at, &c);
        const bool high = utf8proc_isupper((utf8proc_int32_t)c), low = utf8proc_islower((utf8proc_int32_t)c);
        any = any || (upper ? high : low);
        other =
            other || (upper ? low : high) || utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LT;
    }
    *out = any && !other;
    return BY_OK;
}

TEST(is_upper)
{
    UNUSED;
    return has_case(r, v, true, out);
}

TEST(is_lower)
{
    UNUSED;
    return has_case(r, v, false, out);
}

/* v % number == rest */
static by_status remainder_is(chat_run *r, const chat_value *v, const chat_value *number, int64_t rest,
                              bool *out)
{
    chat_value left;
    const chat_value wanted = chat_int(rest);
    BY_TRY(chat_binary(r, '%', v, number, &left));
    return chat_equal(r, &left, &wanted, out);
}

TEST(is_odd)
{
    const chat_value two = chat_int(2);
    UNUSED;
    return remainder_is(r, v, &two, 1, out);
}

TEST(is_even)
{
    const chat_value two = chat_int(2);
    UNUSED;
    return remainder_is(r, v, &two, 0, out);
}

TEST(is_divisible)
{
    return remainder_is(r, v, &p[0], 0, out);
}

TEST(is_in)
{
    return chat_contains(r, v, &p[0], out);
}

/* Identity: small values are one object in Python; containers are identical only to themselves. */
TEST(is_same)
{
    UNUSED;
    if (v->type != p[0].type)
        *out = false;
    else if (v->type == CHAT_LIST || v->type == CHAT_TUPLE || v->type == CHAT_DICT)
        *out = v->list == p[0].list;
    else
        return chat_equal(r, v, &p[0], out);
    return BY_OK;
}

TEST(is_equal)
{
    return chat_equal(r, v, &p[0], out);
}

TEST(is_different)
{
    BY_TRY(chat_equal(r, v, &p[0], out));
    *out = !*out;
    return BY_OK;
}

TEST(is_greater)
{
    return chat_compare(r, '>', v, &p[0], out);
}

TEST(is_less)
{
    return chat_compare(r, '<', v, &p[0], out);
}

TEST(is_greater_equal)
{
    return chat_compare(r, CHAT_TOKEN_GREATER_EQUAL, v, &p[0], out);
}

TEST(is_less_equal)
{
    return chat_compare(r, CHAT_TOKEN_LESS_EQUAL, v, &p[0], out);
}

TEST(is_filter)
{
    UNUSED;
    if (!chat_is_hashable(v))
        return chat_fail(r, "unhashable type: '%s'", chat_type_name(v));
    *out = chat_has_filter(v);
    return BY_OK;
}

static const struct {
    const char *name, *params;
    by_status (*test)(chat_run *r, const chat_value *v, const chat_value *p, bool *out);
} tests[] = {
    {"defined", "", is_defined},
    {"undefined", "", is_undefined},
    {"none", "", is_none},
    {"boolean", "", is_boolean},
    {"true", "", is_true},
    {"false", "", is_false},
    {"integer", "", is_integer},
    {"float", "", is_float},
    {"number", "", is_number},
    {"string", "", is_string},
    {"mapping", "", is_mapping},
    {"iterable", "", is_iterable},
    {"sequence", "", is_sequence},
    {"callable", "", is_callable},
    {"escaped", "", is_escaped},
    {"upper", "", is_upper},
    {"lower", "", is_lower},
    {"odd", "", is_odd},
    {"even", "", is_even},
    {"divisibleby", "num", is_divisible},
    {"in", "seq", is_in},
    {"sameas", "other", is_same},
    {"filter", "", is_filter},
    {"==", "0", is_equal},
    {"eq", "0", is_equal},
    {"equalto", "0", is_equal},
    {"!=", "0", is_different},
    {"ne", "0", is_different},
    {">", "0", is_greater},
    {"gt", "0", is_greater},
    {"greaterthan", "0", is_greater},
    {">=", "0", is_greater_equal},
    {"ge", "0", is_greater_equal},
    {"<", "0", is_less},
    {"lt", "0", is_less},
    {"lessthan", "0", is_less},
    {"<=", "0", is_less_equal},
    {"le", "0", is_less_equal},
};

by_status chat_test(chat_run *r, const chat_value *name, const chat_value *v, const chat_args *a, bool *out)
{
    chat_value p[CHAT_MOST_PARAMS];
    BY_TRY(chat_spend(r, 1));
    for (int i = 0; i < BY_COUNT(tests); i++)
        if (chat_is_text(name, tests[i].name)) {
            BY_TRY(chat_bind(r, tests[i].name, tests[i].params, a, p));
            return tests[i].test(r, v, p, out);
        }
    if (name->type != CHAT_STRING)
        return chat_fail(r, "the name of a test must be a string");
    return chat_fail(r, "no test named '%.*s'", (int)BY_MIN(name->size, 40), name->text);
}
