/* jinja_format.c - "%s" % values and "{}".format(...), with the common conversions of Python. */
#include <math.h>

#include "chat/jinja_run.h"

enum { WIDEST = 100000 };

typedef struct layout {
    char fill[4];
    size_t fill_size;
    char align; /* < > ^ =, or 0 */
    char sign;  /* + - space, or 0 */
    bool alternate, comma;
    int64_t width, precision; /* -1: none */
    char type;
} layout;

static by_status fail_format(chat_run *r)
{
    return chat_fail(r, "the format is malformed or not supported");
}

/* ---- one value --------------------------------------------------------------------------------------------- */

/* Inserts separators between groups of three digits in the integer part of the number at text. */
static void put_grouped(base_buf *out, const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    for (size_t i = 0; i < digits; i++) {
        if (i && (digits - i) % 3 == 0)
            base_buf_puts(out, ",");
        base_buf_put(out, text + i, 1);
    }
    base_buf_puts(out, text + digits);
}

/* The digits of a number without its sign. */
static by_status number_digits(chat_run *r, const chat_value *v, const layout *l, char *out, size_t room,
                               bool *minus)
{
    int64_t i;
    double d;
    char format[8] = "%.*f";
    const bool integer = !l->type || strchr("dixXobc", l->type);
    if (integer && chat_as_int(v, &i)) {
        const unsigned long long u = i < 0 ? 0 - (unsigned long long)i : (unsigned long long)i;
        *minus = i < 0;
        if (l->type == 'b') {
            size_t n = 0;
            int bit = 63;
            while (bit > 0 && !(u >> bit & 1))
                bit--;
            for (; bit >= 0; bit--)
                out[n++] = (char)('0' + (u >> bit & 1));
            out[n] = '\0';
        } else {
            base_format(out, room,
                        l->type == 'x'   ? "%llx"
                        : l->type == 'X' ? "%llX"
                        : l->type == 'o' ? "%llo"
                                         : "%llu",
                        u);
        }
        return BY_OK;
    }
    if (!chat_as_double(v, &d) || !l->type || !strchr("eEfFgG%", l->type) || l->precision > 300)
        return fail_format(r);
    *minus = signbit(d) && !isnan(d);
    format[3] = l->type == '%' ? 'f' : l->type;
    base_format(out, room, format, (int)(l->precision < 0 ? 6 : l->precision),
                fabs(l->type == '%' ? d * 100 : d));
    if (l->type == '%')
        strcat(out, "%");
    return BY_OK;
}

static by_status put_padding(chat_run *r, const layout *l, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        BY_TRY(chat_spend(r, 1));
        BY_TRY(chat_put_bytes(r, l->fill, l->fill_size));
    }
    return BY_OK;
}

/* Writes sign and body, padded to the field width. */
static by_status put_field(chat_run *r, const layout *l, const char *sign, const chat_value *body, char align)
{
    const int64_t rest = l->width - (int64_t)strlen(sign) - chat_characters(body->text, body->size);
    const int64_t before = align == '>' ? rest : align == '^' ? rest / 2 : 0;
    if (l->width > WIDEST)
        return fail_format(r);
    BY_TRY(put_padding(r, l, before));
    BY_TRY(chat_put_bytes(r, sign, strlen(sign)));
    if (align == '=')
        BY_TRY(put_padding(r, l, rest));
    BY_TRY(chat_put_bytes(r, body->text, body->size));
    return align == '=' ? BY_OK : put_padding(r, l, rest - before);
}

static by_status put_number(chat_run *r, const chat_value *v, const layout *l)
{
    char digits[800], sign[4];
    bool minus = false;
    chat_value body;
    BY_TRY(number_digits(r, v, l, digits, sizeof digits - 2, &minus));
    const size_t mark = r->out.size;
    if (l->comma)
        put_grouped(&r->out, digits);
    else
        base_buf_puts(&r->out, digits);
    BY_TRY(chat_take_text(r, mark, &body));
    base_format(sign, sizeof sign, "%s%s",
                minus            ? "-"
                : l->sign == '+' ? "+"
                : l->sign == ' ' ? " "
                                 : "",
                !l->alternate    ? ""
                : l->type == 'x' ? "0x"
                : l->type == 'X' ? "0X"
                : l->type == 'o' ? "0o"
                : l->type == 'b' ? "0b"
                                 : "");
    return put_field(r, l, sign, &body, l->align ? l->align : '>');
}

static by_status put_string(chat_run *r, const chat_value *text, const layout *l, char align)
{
    chat_value body = *text;
    if (l->precision >= 0)
        body.size = chat_offset(body.text, body.size, l->precision);
    return put_field(r, l, "", &body, l->align ? l->align : align);
}

/* ---- percent -------------------------------------------------------------------------------------------------- */

typedef struct percent {
    const char *s, *end;
    const chat_value *values;
    size_t next; /* index in a tuple */
} percent;

static by_status next_value(chat_run *r, percent *f, chat_value *out)
{
    if (f->values->type == CHAT_TUPLE) {
        if (f->next >= f->values->list->count)
            return chat_fail(r, "not enough arguments for the format");
        *out = f->values->list->items[f->next];
    } else if (f->next) {
        return chat_fail(r, "not enough arguments for the format");
    } else {
        *out = *f->values;
    }
    f->next++;
    return BY_OK;
}

static by_status take_width(chat_run *r, percent *f, int64_t *out)
{
    chat_value v;
    if (f->s < f->end && *f->s == '*') {
        f->s++;
        BY_TRY(next_value(r, f, &v));
        return chat_param_int(r, &v, 0, out);
    }
    for (*out = 0; f->s < f->end && *f->s >= '0' && *f->s <= '9'; f->s++)
        *out = BY_MIN(*out * 10 + (*f->s - '0'), WIDEST + 1);
    return BY_OK;
}

/* %(name)s */
static by_status named_value(chat_run *r, percent *f, chat_value *out, bool *named)
{
    *named = f->s < f->end && *f->s == '(';
    if (!*named)
        return BY_OK;
    const char *close = memchr(f->s, ')', (size_t)(f->end - f->s));
    if (!close || f->values->type != CHAT_DICT)
        return chat_fail(r, "the format requires a mapping");
    const chat_value key = chat_bytes(f->s + 1, (size_t)(close - f->s - 1));
    const chat_value *v = chat_find(f->values->dict, &key);
    if (!v)
        return chat_fail(r, "the format names a key that is not there");
    *out = *v;
    f->s = close + 1;
    f->next = 1;
    return BY_OK;
}

static by_status put_conversion(chat_run *r, const chat_value *v, layout *l)
{
    chat_value text;
    const size_t mark = r->out.size;
    if (l->type == 'i' || l->type == 'u')
        l->type = 'd';
    if (l->type == 's' || l->type == 'r' || l->type == 'a') {
        BY_TRY(l->type == 's' ? chat_put_text(r, v) : chat_put_repr(r, v));
        BY_TRY(chat_take_text(r, mark, &text));
        return put_string(r, &text, l, '>');
    }
    if (l->type == 'c' && v->type == CHAT_STRING && chat_characters(v->text, v->size) == 1)
        return put_string(r, v, l, '>');
    if (l->type == 'd' && v->type == CHAT_FLOAT && fabs(v->real) < 9e18) {
        const chat_value whole = chat_int((int64_t)v->real);
        return put_number(r, &whole, l);
    }
    if (!l->type || !strchr("dxXoeEfFgG", l->type))
        return fail_format(r);
    return put_number(r, v, l);
}

/* Formats one conversion; f->s is after the percent sign. */
static by_status convert(chat_run *r, percent *f, bool markup)
{
    layout l = {.fill = " ", .fill_size = 1, .precision = -1};
    chat_value v;
    bool named;
    BY_TRY(named_value(r, f, &v, &named));
    for (; f->s < f->end && strchr("-+ 0#", *f->s) && *f->s; f->s++) {
        if (*f->s == '-')
            l.align = '<';
        else if (*f->s == '0' && l.align != '<')
            l.align = '=', l.fill[0] = '0';
        else if (*f->s == '#')
            l.alternate = true;
        else if (*f->s != '0' && l.sign != '+')
            l.sign = *f->s;
    }
    BY_TRY(take_width(r, f, &l.width));
    if (f->s < f->end && *f->s == '.') {
        f->s++;
        BY_TRY(take_width(r, f, &l.precision));
    }
    if (f->s == f->end)
        return fail_format(r);
    l.type = *f->s++;
    if (l.type == '%')
        return chat_put_bytes(r, "%", 1);
    if (!named)
        BY_TRY(next_value(r, f, &v));
    if (v.type == CHAT_STRING && l.align == '=')
        l.align = 0, l.fill[0] = ' ';
    if (markup && v.type == CHAT_STRING && !v.markup) {
        const size_t mark = r->out.size;
        chat_put_escaped(&r->out, v.text, v.size);
        BY_TRY(chat_take_text(r, mark, &v));
    }
    return put_conversion(r, &v, &l);
}

by_status chat_format_percent(chat_run *r, const chat_value *format, const chat_value *values,
                              chat_value *out)
{
    percent f = {format->text, format->text + format->size, values, 0};
    const size_t mark = r->out.size;
    while (f.s < f.end) {
        const char *sign = memchr(f.s, '%', (size_t)(f.end - f.s));
        const size_t plain = (size_t)((sign ? sign : f.end) - f.s);
        BY_TRY(chat_put_bytes(r, f.s, plain));
        f.s += plain;
        if (!sign)
            break;
        f.s++;
        BY_TRY(convert(r, &f, format->markup));
    }
    if (values->type == CHAT_TUPLE ? f.next < values->list->count
                                   : !f.next && values->type != CHAT_DICT && values->type != CHAT_LIST &&
                                         values->type != CHAT_UNDEFINED)
        return chat_fail(r, "not all arguments were converted");
    BY_TRY(chat_take_text(r, mark, out));
    out->markup = format->markup;
    return BY_OK;
}

/* ---- braces ------------------------------------------------------------------------------------------------------ */

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static by_status parse_layout(chat_run *r, const char *s, const char *end, layout *l)
{
    *l = (layout){.fill = " ", .fill_size = 1, .precision = -1};
    const size_t first = chat_offset(s, (size_t)(end - s), 1);
    if (s < end && s + first < end && strchr("<>^=", s[first]) && s[first]) {
        memcpy(l->fill, s, first);
        l->fill_size = first;
        l->align = s[first];
        s += first + 1;
    } else if (s < end && *s && strchr("<>^=", *s)) {
        l->align = *s++;
    }
    if (s < end && *s && strchr("+- ", *s))
        l->sign = *s++;
    if (s < end && *s == '#')
        l->alternate = *s++ == '#';
    if (s < end && *s == '0' && !l->align) {
        l->align = '=';
        l->fill[0] = '0';
        s++;
    }
    for (; s < end && *s >= '0' && *s <= '9'; s++)
        l->width = BY_MIN(l->width * 10 + (*s - '0'), WIDEST + 1);
    if (s < end && *s == ',')
        l->comma = *s++ == ',';
    if (s < end && *s == '.')
        for (s++, l->precision = 0; s < end && *s >= '0' && *s <= '9'; s++)
            l->precision = BY_MIN(l->precision * 10 + (*s - '0'), WIDEST + 1);
    if (s < end)
        l->type = *s++;
    return s == end ? BY_OK : fail_format(r);
}

/* Fields are numbered explicitly or automatically, never both. */
typedef struct fields {
    const chat_args *args;
    size_t next;
    bool automatic, manual;
} fields;

/* A number of at most 17 digits. */
static bool take_index(const char *s, const char *end, int64_t *out)
{
    *out = 0;
    if (s == end || end - s > 17)
        return false;
    for (; s < end; s++) {
        if (*s < '0' || *s > '9')
            return false;
        *out = *out * 10 + (*s - '0');
    }
    return true;
}

static by_status first_part(chat_run *r, const char *s, const char *end, fields *f, chat_value *out)
{
    int64_t index;
    const bool number = s == end || take_index(s, end, &index);
    const chat_value name = chat_bytes(s, (size_t)(end - s));
    if (s == end)
        index = (int64_t)f->next++;
    f->automatic = f->automatic || s == end;
    f->manual = f->manual || (number && s < end);
    if (f->automatic && f->manual)
        return chat_fail(r, "a format cannot mix numbered and unnumbered fields");
    if (number && (size_t)index < f->args->count) {
        *out = f->args->list[index];
        return BY_OK;
    }
    for (size_t i = 0; !number && i < f->args->named_count; i++)
        if (chat_same_bytes(&f->args->named[i].key, &name)) {
            *out = f->args->named[i].value;
            return BY_OK;
        }
    return chat_fail(r, "the format names an argument that is not there");
}

/* name.attribute[key] */
static by_status find_field(chat_run *r, const char *s, const char *end, fields *f, chat_value *out)
{
    const char *stop = s;
    while (stop < end && *stop != '.' && *stop != '[')
        stop++;
    BY_TRY(first_part(r, s, stop, f, out));
    while (stop < end) {
        const bool item = *stop == '[';
        const char *from = stop + 1;
        int64_t index;
        for (stop = from; stop < end && (item ? *stop != ']' : *stop != '.' && *stop != '[');)
            stop++;
        chat_value key = chat_bytes(from, (size_t)(stop - from));
        const chat_value v = *out;
        if (item && take_index(from, stop, &index))
            key = chat_int(index);
        BY_TRY(item ? chat_item(r, &v, &key, out) : chat_attribute(r, &v, &key, out));
        stop += item && stop < end;
    }
    return BY_OK;
}

static by_status put_braced(chat_run *r, const char *s, const char *end, fields *f)
{
    const char *colon = memchr(s, ':', (size_t)(end - s)), *stop = colon ? colon : end;
    const char *mark = memchr(s, '!', (size_t)(stop - s));
    const size_t at = r->out.size;
    layout l;
    chat_value v, text;
    BY_TRY(find_field(r, s, mark ? mark : stop, f, &v));
    if (mark && (stop - mark != 2 || !strchr("sr", mark[1])))
        return fail_format(r);
    BY_TRY(parse_layout(r, colon ? colon + 1 : end, end, &l));
    if (!mark && (chat_is_number(&v) && v.type != CHAT_BOOL) && (l.type != 0 || v.type == CHAT_INT))
        return put_number(r, &v, &l);
    BY_TRY(mark && mark[1] == 'r' ? chat_put_repr(r, &v) : chat_put_text(r, &v));
    BY_TRY(chat_take_text(r, at, &text));
    if (l.type != 0 && l.type != 's')
        return fail_format(r);
    return put_string(r, &text, &l, chat_is_number(&v) && !mark ? '>' : '<');
}

by_status chat_format_braces(chat_run *r, const chat_value *format, const chat_args *a, chat_value *out)
{
    const char *s = format->text, *end = s + format->size;
    const size_t mark = r->out.size;
    fields f = {.args = a};
    while (s < end) {
        const char *brace = s;
        while (brace < end && *brace != '{' && *brace != '}')
            brace++;
        BY_TRY(chat_put_bytes(r, s, (size_t)(brace - s)));
        if (brace == end)
            break;
        s = brace + 1;
        if (s < end && *s == *brace) {
            BY_TRY(chat_put_bytes(r, s++, 1));
            continue;
        }
        const char *close = *brace == '{' ? memchr(s, '}', (size_t)(end - s)) : NULL;
        if (!close || memchr(s, '{', (size_t)(close - s)))
            return fail_format(r);
        BY_TRY(put_braced(r, s, close, &f));
        s = close + 1;
    }
    BY_TRY(chat_take_text(r, mark, out));
    out->markup = format->markup;
    return BY_OK;
}
