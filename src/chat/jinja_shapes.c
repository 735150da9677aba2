/* jinja_shapes.c - string methods that change case, pad, or classify characters. */
#include "chat/jinja_run.h"
#include "text/unicode.h"

#define METHOD(name)                                                                                    \
    static by_status name(chat_run *r, const chat_value *self, const chat_args *a, const chat_value *p, \
                          chat_value *out)
#define UNUSED (void)r, (void)a, (void)p

/* ---- case --------------------------------------------------------------------------------------------------- */

static by_status change(chat_run *r, const chat_value *self, chat_case how, chat_value *out)
{
    const size_t mark = r->out.size;
    BY_TRY(chat_spend(r, self->size / 4));
    BY_TRY(chat_change_case(self->text, self->size, how, &r->out));
    BY_TRY(chat_take_text(r, mark, out));
    out->markup = self->markup;
    return BY_OK;
}

METHOD(method_upper)
{
    UNUSED;
    return change(r, self, CHAT_UPPER, out);
}

METHOD(method_lower)
{
    UNUSED;
    return change(r, self, CHAT_LOWER, out);
}

METHOD(method_title)
{
    UNUSED;
    return change(r, self, CHAT_TITLE, out);
}

METHOD(method_capitalize)
{
    UNUSED;
    return change(r, self, CHAT_CAPITALIZE, out);
}

METHOD(method_swapcase)
{
    UNUSED;
    return change(r, self, CHAT_SWAP, out);
}

/* ---- padding -------------------------------------------------------------------------------------------------- */

static by_status put_fill(chat_run *r, const chat_value *fill, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        BY_TRY(chat_spend(r, 1));
        BY_TRY(chat_put_bytes(r, fill->text, fill->size));
    }
    return BY_OK;
}

/* side: < left, > right, ^ centre. The extra space of a centred string goes to the left if the width is odd,
 * as in Python. */
static by_status pad(chat_run *r, const chat_value *self, const chat_value *p, char side, chat_value *out)
{
    int64_t width;
    chat_value fill;
    BY_TRY(chat_param_int(r, &p[0], 0, &width));
    BY_TRY(chat_param_text(r, &p[1], " ", &fill));
    if (chat_characters(fill.text, fill.size) != 1)
        return chat_fail(r, "the fill character must be exactly one character long");
    const int64_t rest = width - chat_characters(self->text, self->size);
    const int64_t left = rest <= 0 || side == '<' ? 0 : side == '>' ? rest : rest / 2 + (rest & width & 1);
    const size_t mark = r->out.size;
    BY_TRY(put_fill(r, &fill, left));
    BY_TRY(chat_put_bytes(r, self->text, self->size));
    BY_TRY(put_fill(r, &fill, rest - left));
    BY_TRY(chat_take_text(r, mark, out));
    out->markup = self->markup;
    return BY_OK;
}

METHOD(method_ljust)
{
    UNUSED;
    return pad(r, self, p, '<', out);
}

METHOD(method_rjust)
{
    UNUSED;
    return pad(r, self, p, '>', out);
}

METHOD(method_center)
{
    UNUSED;
    return pad(r, self, p, '^', out);
}

METHOD(method_zfill)
{
    int64_t width;
    const chat_value zero = chat_literal("0");
    const size_t mark = r->out.size, sign = self->size && (self->text[0] == '-' || self->text[0] == '+');
    UNUSED;
    BY_TRY(chat_param_int(r, &p[0], 0, &width));
    BY_TRY(chat_put_bytes(r, self->text, sign));
    BY_TRY(put_fill(r, &zero, width - chat_characters(self->text, self->size)));
    BY_TRY(chat_put_bytes(r, self->text + sign, self->size - sign));
    BY_TRY(chat_take_text(r, mark, out));
    out->markup = self->markup;
    return BY_OK;
}

/* ---- classification
 * ---------------------------------------------------------------------------------------------- */

static utf8proc_category_t category(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c);
}

static bool is_alpha(uint32_t c)
{
    return tok_class(c) == TOK_CHAR_LETTER;
}

static bool is_decimal(uint32_t c)
{
    return category(c) == UTF8PROC_CATEGORY_ND;
}

/* Superscripts and other digits are also in category No. isdigit accepts those with a single digit. */
static bool is_digit(uint32_t c)
{
    return is_decimal(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 ||
           (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) ||
           (c >= 0x2474 && c <= 0x247c) || (c >= 0x2488 && c <= 0x2490) || (c >= 0x2776 && c <= 0x277e) ||
           (c >= 0x2780 && c <= 0x2788) || (c >= 0x278a && c <= 0x2792);
}

static bool is_numeric(uint32_t c)
{
    return tok_class(c) == TOK_CHAR_NUMBER;
}

static bool is_alnum(uint32_t c)
{
    return is_alpha(c) || is_numeric(c);
}

static bool is_ascii(uint32_t c)
{
    return c < 0x80;
}

/* Whether all characters have a property. */
static by_status all_are(chat_run *r, const chat_value *self, bool (*property)(uint32_t), bool empty,
                         chat_value *out)
{
    bool all = self->size || empty;
    uint32_t c;
    BY_TRY(chat_spend(r, self->size / 4));
    for (size_t at = 0; at < self->size && all;) {
        at += (size_t)tok_utf8_next(self->text + at, self->size - at, &c);
        all = property(c);
    }
    *out = chat_bool(all);
    return BY_OK;
}

METHOD(method_isalpha)
{
    UNUSED;
    return all_are(r, self, is_alpha, false, out);
}

METHOD(method_isdecimal)
{
    UNUSED;
    return all_are(r, self, is_decimal, false, out);
}

METHOD(method_isdigit)
{
    UNUSED;
    return all_are(r, self, is_digit, false, out);
}

METHOD(method_isnumeric)
{
    UNUSED;
    return all_are(r, self, is_numeric, false, out);
}

METHOD(method_isalnum)
{
    UNUSED;
    return all_are(r, self, is_alnum, false, out);
}

METHOD(method_isspace)
{
    UNUSED;
    return all_are(r, self, chat_is_space, false, out);
}

METHOD(method_isascii)
{
    UNUSED;
    return all_are(r, self, is_ascii, true, out);
}

static by_status answer_of(chat_run *r, const chat_value *self, const char *name, chat_value *out)
{
    const chat_value test = chat_literal(name);
    bool result;
    BY_TRY(chat_test(r, &test, self, &(chat_args){0}, &result));
    *out = chat_bool(result);
    return BY_OK;
}

METHOD(method_isupper)
{
    UNUSED;
    return answer_of(r, self, "upper", out);
}

METHOD(method_islower)
{
    UNUSED;
    return answer_of(r, self, "lower", out);
}

const chat_method_row chat_string_shapes[] = {
    {"upper", "", method_upper},
    {"lower", "", method_lower},
    {"title", "", method_title},
    {"capitalize", "", method_capitalize},
    {"swapcase", "", method_swapcase},
    {"ljust", "0 1?", method_ljust},
    {"rjust", "0 1?", method_rjust},
    {"center", "0 1?", method_center},
    {"zfill", "0", method_zfill},
    {"isalpha", "", method_isalpha},
    {"isdecimal", "", method_isdecimal},
    {"isdigit", "", method_isdigit},
    {"isnumeric", "", method_isnumeric},
    {"isalnum", "", method_isalnum},
    {"isspace", "", method_isspace},
    {"isascii", "", method_isascii},
    {"isupper", "", method_isupper},
    {"islower", "", method_islower},
    {NULL, NULL, NULL},
};
