/* jinja_operators.c - arithmetic, comparison, membership and slices with Python's type rules. */
#include <math.h>
#include <stdlib.h>

#include "chat/jinja_run.h"

static const char *operator_name(int op)
{
    switch (op) {
    case '+':
        return "+";
    case '-':
        return "-";
    case '*':
        return "*";
    case '/':
        return "/";
    case '%':
        return "%";
    case '<':
        return "<";
    case '>':
        return ">";
    case CHAT_TOKEN_FLOOR:
        return "//";
    case CHAT_TOKEN_POWER:
        return "**";
    default:
        return op == CHAT_TOKEN_LESS_EQUAL ? "<=" : ">=";
    }
}

static by_status fail_types(chat_run *r, int op, const chat_value *a, const chat_value *b)
{
    if (a->type == CHAT_UNDEFINED || b->type == CHAT_UNDEFINED)
        return chat_fail_undefined(r, a->type == CHAT_UNDEFINED ? a : b);
    return chat_fail(r, "unsupported operand types for %s: '%s' and '%s'", operator_name(op),
                     chat_type_name(a), chat_type_name(b));
}

static by_status fail_size(chat_run *r)
{
    return chat_fail(r, "integers beyond 64 bits are not supported");
}

/* ---- strings and lists ------------------------------------------------------------------------------ */

/* Addition to a string marked safe escapes the other string. */
by_status chat_join_strings(chat_run *r, const chat_value *a, const chat_value *b, chat_value *out)
{
    const bool markup = a->markup || b->markup;
    const size_t mark = r->out.size;
    const chat_value *parts[] = {a, b};
    for (int i = 0; i < 2; i++) {
        if (markup && !parts[i]->markup)
            chat_put_escaped(&r->out, parts[i]->text, parts[i]->size);
        else
            BY_TRY(chat_put_bytes(r, parts[i]->text, parts[i]->size));
    }
    BY_TRY(chat_take_text(r, mark, out));
    out->markup = markup;
    return BY_OK;
}

static by_status join_lists(chat_run *r, const chat_value *a, const chat_value *b, chat_value *out)
{
    BY_TRY(chat_spend(r, a->list->count + b->list->count));
    BY_TRY(chat_new_list(&r->heap, a->type, a->list->count + b->list->count, out));
    for (size_t i = 0; i < a->list->count; i++)
        BY_TRY(chat_push(&r->heap, out->list, a->list->items[i]));
    for (size_t i = 0; i < b->list->count; i++)
        BY_TRY(chat_push(&r->heap, out->list, b->list->items[i]));
    return BY_OK;
}

static by_status repeat(chat_run *r, const chat_value *v, int64_t times, chat_value *out)
{
    const size_t mark = r->out.size;
    times = BY_MAX(times, 0);
    if (v->type == CHAT_STRING) {
        for (int64_t i = 0; i < times && v->size; i++) {
            BY_TRY(chat_spend(r, 1));
            BY_TRY(chat_put_bytes(r, v->text, v->size));
        }
        BY_TRY(chat_take_text(r, mark, out));
        out->markup = v->markup;
        return BY_OK;
    }
    BY_TRY(chat_new_list(&r->heap, v->type, 0, out));
    for (int64_t i = 0; i < times && v->list->count; i++)
        for (size_t k = 0; k < v->list->count; k++) {
            BY_TRY(chat_spend(r, 1));
            BY_TRY(chat_push(&r->heap, out->list, v->list->items[k]));
        }
    return BY_OK;
}

static bool is_sequence(const chat_value *v)
{
    return v->type == CHAT_STRING || v->type == CHAT_LIST || v->type == CHAT_TUPLE;
}

/* ---- numbers -------------------------------------------------------------------------------------------- */

static by_status power(chat_run *r, int64_t a, int64_t b, chat_value *out)
{
    int64_t result = 1;
    if (b < 0) {
        if (a == 0)
            return chat_fail(r, "zero cannot be raised to a negative power");
        *out = chat_float(pow((double)a, (double)b));
        return BY_OK;
    }
    if (a == 0 || a == 1 || a == -1)
        b = a == -1 ? b % 2 : BY_MIN(b, 1);
    for (; b > 0; b--)
        if (__builtin_mul_overflow(result, a, &result))
            return fail_size(r);
    *out = chat_int(result);
    return BY_OK;
}

/* Division rounds towards minus infinity, and the remainder has the sign of the divisor. */
static by_status divide_integers(chat_run *r, int op, int64_t a, int64_t b, chat_value *out)
{
    if (b == 0)
        return chat_fail(r, "division by zero");
    if (op == '/') {
        *out = chat_float((double)a / (double)b);
        return BY_OK;
    }
    if (b == -1) { /* the quotient of the smallest integer does not fit */
        if (op == CHAT_TOKEN_FLOOR && a == INT64_MIN)
            return fail_size(r);
        *out = chat_int(op == '%' ? 0 : -a);
        return BY_OK;
    }
    int64_t quotient = a / b, rest = a % b;
    if (rest && (rest < 0) != (b < 0)) {
        quotient--;
        rest += b;
    }
    *out = chat_int(op == '%' ? rest : quotient);
    return BY_OK;
}

static by_status compute_integers(chat_run *r, int op, int64_t a, int64_t b, chat_value *out)
{
    int64_t v = 0;
    bool overflow = false;
    switch (op) {
    case '+':
        overflow = __builtin_add_overflow(a, b, &v);
        break;
    case '-':
        overflow = __builtin_sub_overflow(a, b, &v);
        break;
    case '*':
        overflow = __builtin_mul_overflow(a, b, &v);
        break;
    case CHAT_TOKEN_POWER:
        return power(r, a, b, out);
    default:
        return divide_integers(r, op, a, b, out);
    }
    if (overflow)
        return fail_size(r);
    *out = chat_int(v);
    return BY_OK;
}

static by_status compute_floats(chat_run *r, int op, double a, double b, chat_value *out)
{
    double rest;
    if (b == 0 && (op == '/' || op == CHAT_TOKEN_FLOOR || op == '%'))
        return chat_fail(r, "division by zero");
    switch (op) {
    case '+':
        *out = chat_float(a + b);
        break;
    case '-':
        *out = chat_float(a - b);
        break;
    case '*':
        *out = chat_float(a * b);
        break;
    case '/':
        *out = chat_float(a / b);
        break;
    case CHAT_TOKEN_POWER:
        if ((a == 0 && b < 0) || (a < 0 && b != floor(b)))
            return chat_fail(r, "the power is not a real number");
        *out = chat_float(pow(a, b));
        break;
    default:
        rest = fmod(a, b);
        if (rest != 0 && (rest < 0) != (b < 0))
            rest += b;
        else if (rest == 0)
            rest = copysign(0, b);
        *out = chat_float(op == '%' ? rest : floor((a - rest) / b + 0.5));
    }
    return BY_OK;
}

static by_status compute(chat_run *r, int op, const chat_value *a, const chat_value *b, chat_value *out)
{
    int64_t i, j;
    double x, y;
    if (a->type == CHAT_BIG || b->type == CHAT_BIG)
        return fail_size(r);
    if (chat_as_int(a, &i) && chat_as_int(b, &j))
        return compute_integers(r, op, i, j, out);
    chat_as_double(a, &x);
    chat_as_double(b, &y);
    return compute_floats(r, op, x, y, out);
}

by_status chat_binary(chat_run *r, int op, const chat_value *a, const chat_value *b, chat_value *out)
{
    int64_t times;
    const bool first = chat_is_number(a) || a->type == CHAT_BIG,
               second = chat_is_number(b) || b->type == CHAT_BIG;
    if (first && second)
        return compute(r, op, a, b, out);
    if (op == '+' && a->type == CHAT_STRING && b->type == CHAT_STRING)
        return chat_join_strings(r, a, b, out);
    if (op == '+' && a->type == b->type && (a->type == CHAT_LIST || a->type == CHAT_TUPLE))
        return join_lists(r, a, b, out);
    if (op == '*' && is_sequence(a) && chat_as_int(b, &times))
        return repeat(r, a, times, out);
    if (op == '*' && is_sequence(b) && chat_as_int(a, &times))
        return repeat(r, b, times, out);
    if (op == '%' && a->type == CHAT_STRING)
        return chat_format_percent(r, a, b, out);
    return fail_types(r, op, a, b);
}

by_status chat_unary(chat_run *r, int op, const chat_value *a, chat_value *out)
{
    int64_t i;
    if (a->type == CHAT_UNDEFINED)
        return chat_fail_undefined(r, a);
    if (a->type == CHAT_FLOAT) {
        *out = chat_float(op == '-' ? -a->real : a->real);
        return BY_OK;
    }
    if (!chat_as_int(a, &i))
        return chat_fail(r, "bad operand type for unary %c: '%s'", op, chat_type_name(a));
    if (op == '-' && i == INT64_MIN)
        return fail_size(r);
    *out = chat_int(op == '-' ? -i : i);
    return BY_OK;
}

/* ---- comparison ----------------------------------------------------------------------------------------- */

static by_status equal_lists(chat_run *r, const chat_list *a, const chat_list *b, bool *out)
{
    *out = a->count == b->count;
    for (size_t i = 0; *out && i < a->count; i++)
        BY_TRY(chat_equal(r, &a->items[i], &b->items[i], out));
    return BY_OK;
}

static by_status equal_dicts(chat_run *r, const chat_dict *a, const chat_dict *b, bool *out)
{
    *out = a->count == b->count;
    for (size_t i = 0; *out && i < a->count; i++) {
        const chat_value *there = chat_find(b, &a->pairs[i].key);
        *out = there != NULL;
        if (there)
            BY_TRY(chat_equal(r, &a->pairs[i].value, there, out));
    }
    return BY_OK;
}

by_status chat_equal(chat_run *r, const chat_value *a, const chat_value *b, bool *out)
{
    BY_TRY(chat_spend(r, 1));
    if (a->type == b->type && (a->type == CHAT_LIST || a->type == CHAT_TUPLE))
        return equal_lists(r, a->list, b->list, out);
    if (a->type == CHAT_DICT && b->type == CHAT_DICT)
        return equal_dicts(r, a->dict, b->dict, out);
    *out = chat_same_scalar(a, b);
    return BY_OK;
}

static bool holds(int op, int order)
{
    if (order == 2) /* NaN */
        return false;
    return op == '<'                     ? order < 0
           : op == '>'                   ? order > 0
           : op == CHAT_TOKEN_LESS_EQUAL ? order <= 0
                                         : order >= 0;
}

by_status chat_compare(chat_run *r, int op, const chat_value *a, const chat_value *b, bool *out)
{
    int order;
    bool same;
    BY_TRY(chat_spend(r, 1));
    if (chat_order_scalars(a, b, &order)) {
        *out = holds(op, order);
        return BY_OK;
    }
    if (a->type != b->type || (a->type != CHAT_LIST && a->type != CHAT_TUPLE))
        return fail_types(r, op, a, b);
    for (size_t i = 0; i < a->list->count && i < b->list->count; i++) {
        BY_TRY(chat_equal(r, &a->list->items[i], &b->list->items[i], &same));
        if (!same)
            return chat_compare(r, op, &a->list->items[i], &b->list->items[i], out);
    }
    *out = holds(op, a->list->count < b->list->count ? -1 : a->list->count > b->list->count);
    return BY_OK;
}

by_status chat_contains(chat_run *r, const chat_value *item, const chat_value *in, bool *out)
{
    chat_iterator i;
    chat_value v;
    *out = false;
    if (in->type == CHAT_STRING) {
        if (item->type != CHAT_STRING)
            return chat_fail(r, "'in <string>' requires a string as left operand, not %s",
                             chat_type_name(item));
        BY_TRY(chat_spend(r, in->size / 16));
        *out = chat_find_bytes(in->text, in->size, item->text, item->size, 0) != SIZE_MAX;
        return BY_OK;
    }
    if (in->type == CHAT_DICT) {
        if (!chat_is_hashable(item))
            return chat_fail(r, "unhashable type: '%s'", chat_type_name(item));
        *out = chat_find(in->dict, item) != NULL;
        return BY_OK;
    }
    if (!chat_is_iterable(in))
        return chat_fail(r, "argument of type '%s' is not iterable", chat_type_name(in));
    BY_TRY(chat_iterate(r, in, &i));
    for (bool more; !*out;) {
        BY_TRY(chat_next(r, &i, &v, &more));
        if (!more)
            break;
        BY_TRY(chat_equal(r, &v, item, out));
    }
    return BY_OK;
}

/* ---- slices ----------------------------------------------------------------------------------------------- */

/* Bounds as Python's slice.indices computes them. */
static by_status slice_bounds(chat_run *r, const chat_value bounds[3], int64_t count, int64_t out[3])
{
    int64_t v[3] = {0, 0, 1};
    for (int i = 0; i < 3; i++)
        if (bounds[i].type != CHAT_NONE && !chat_as_int(&bounds[i], &v[i]))
            return chat_fail(r, "slice indices must be integers or None");
    /* A larger step also takes only one item. */
    const int64_t step = BY_MAX(BY_MIN(v[2], count + 1), -count - 1);
    if (step == 0)
        return chat_fail(r, "slice step cannot be zero");
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? count - 1 : count;
    for (int i = 0; i < 2; i++) {
        const bool first = (i == 0) == (step > 0);
        if (bounds[i].type == CHAT_NONE)
            out[i] = first ? low : high;
        else if (v[i] < 0)
            out[i] = BY_MAX(v[i] < -count ? -1 : v[i] + count, low);
        else
            out[i] = BY_MIN(v[i], high);
    }
    out[2] = step;
    return BY_OK;
}

static int64_t slice_count(const int64_t b[3])
{
    if (b[2] > 0)
        return b[0] < b[1] ? (b[1] - b[0] - 1) / b[2] + 1 : 0;
    return b[0] > b[1] ? (b[0] - b[1] - 1) / -b[2] + 1 : 0;
}

static by_status slice_string(chat_run *r, const chat_value *v, const int64_t b[3], chat_value *out)
{
    const int64_t count = slice_count(b);
    const size_t mark = r->out.size;
    BY_TRY(chat_spend(r, v->size / 16));
    if (b[2] == 1 || count == 0) {
        const size_t start = count ? chat_offset(v->text, v->size, b[0]) : 0;
        *out = chat_bytes(v->text + start, count ? chat_offset(v->text + start, v->size - start, count) : 0);
        out->markup = v->markup;
        return BY_OK;
    }
    const char **starts = chat_alloc(&r->heap, v->size + 1, sizeof *starts);
    size_t n = 0;
    if (!starts)
        return base_error_status();
    for (size_t at = 0; at < v->size; at += chat_offset(v->text + at, v->size - at, 1))
        starts[n++] = v->text + at;
    starts[n] = v->text + v->size;
    for (int64_t i = 0, at = b[0]; i < count; i++, at += b[2])
        BY_TRY(chat_put_bytes(r, starts[at], (size_t)(starts[at + 1] - starts[at])));
    BY_TRY(chat_take_text(r, mark, out));
    out->markup = v->markup;
    return BY_OK;
}

static by_status slice_range(chat_run *r, const chat_range *from, const int64_t b[3], chat_value *out)
{
    chat_range *range = chat_alloc(&r->heap, 1, sizeof *range);
    if (!range)
        return base_error_status();
    *range = (chat_range){from->start + b[0] * from->step, from->start + b[1] * from->step, from->step * b[2],
                          slice_count(b)};
    *out = (chat_value){.type = CHAT_RANGE, .range = range};
    return BY_OK;
}

by_status chat_slice(chat_run *r, const chat_value *v, const chat_value bounds[3], chat_value *out)
{
    int64_t count, b[3];
    if (v->type == CHAT_UNDEFINED)
        return chat_fail_undefined(r, v);
    if (!is_sequence(v) && v->type != CHAT_RANGE)
        return chat_fail(r, "'%s' object cannot be sliced", chat_type_name(v));
    chat_length(v, &count);
    BY_TRY(slice_bounds(r, bounds, count, b));
    if (v->type == CHAT_STRING)
        return slice_string(r, v, b, out);
    if (v->type == CHAT_RANGE)
        return slice_range(r, v->range, b, out);
    count = slice_count(b);
    BY_TRY(chat_spend(r, (size_t)count));
    BY_TRY(chat_new_list(&r->heap, v->type, (size_t)count, out));
    for (int64_t i = 0, at = b[0]; i < count; i++, at += b[2])
        BY_TRY(chat_push(&r->heap, out->list, v->list->items[at]));
    return BY_OK;
}
