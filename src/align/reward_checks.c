/* reward_checks.c - rewards computed from the texts alone: exact answers, arithmetic, sorted lists, JSON,
 * regular expressions, lengths (banyan/align_policy.h). */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <math.h>
#include <pcre2.h>
#include <stdlib.h>

#include "align/rewards.h"
#include "base/json.h"

typedef struct check check;
struct check {
    by_status (*measure)(const check *c, const by_judged *a, float *reward);
    const char *name;
    bool partial;
    int length;
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
};

typedef struct span {
    const char *text;
    size_t size;
} span;

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static span trimmed(const char *text)
{
    span s = {text, strlen(text)};
    for (; s.size && is_blank(*s.text); s.text++)
        s.size--;
    while (s.size && is_blank(s.text[s.size - 1]))
        s.size--;
    return s;
}

static bool same(span a, span b)
{
    return a.size == b.size && memcmp(a.text, b.text, a.size) == 0;
}

/* ---- exact, json, length ------------------------------------------------------------------------ */

static by_status no_answer(const check *c)
{
    return base_fail(BY_ERR_ARGUMENT, "the check \"%s\" needs an \"answer\" beside each prompt of the data",
                     c->name);
}

static by_status measure_exact(const check *c, const by_judged *a, float *reward)
{
    if (!a->expected)
        return no_answer(c);
    *reward = same(trimmed(a->answer), trimmed(a->expected));
    return BY_OK;
}

static by_status measure_json(const check *c, const by_judged *a, float *reward)
{
    (void)c;
    *reward = base_json_well_formed(a->answer);
    return BY_OK;
}

static by_status measure_length(const check *c, const by_judged *a, float *reward)
{
    int n = 0;
    for (const char *p = a->answer; *p; p++)
        n += ((unsigned char)*p & 0xc0) != 0x80; /* the first byte of a character */
    *reward = BY_MAX(0.0f, 1 - fabsf((float)(n - c->length)) / (float)c->length);
    return BY_OK;
}

/* ---- regular expressions ------------------------------------------------------------------------ */

enum { MATCH_LIMIT = 1000000 }; /* match limit; an expression that needs more steps is an error */

static by_status bad_pattern(int error)
{
    char why[128] = "";
    pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
    return base_fail(error == PCRE2_ERROR_NOMEMORY ? BY_ERR_MEMORY : BY_ERR_ARGUMENT,
                     "the regular expression: %s", why);
}

static by_status compile_pattern(check *c, const char *pattern)
{
    int error;
    PCRE2_SIZE at;
    c->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &at, NULL);
    if (!c->code)
        return bad_pattern(error);
    c->data = pcre2_match_data_create_from_pattern(c->code, NULL);
    c->context = pcre2_match_context_create(NULL);
    if (!c->data || !c->context)
        return base_fail(BY_ERR_MEMORY, "out of memory for a regular expression");
    pcre2_set_match_limit(c->context, MATCH_LIMIT);
    return BY_OK;
}

/* Invalid UTF-8, which byte-level models may write, matches nothing. */
static by_status measure_regex(const check *c, const by_judged *a, float *reward)
{
    const int found =
        pcre2_match(c->code, (PCRE2_SPTR)a->answer, strlen(a->answer), 0, 0, c->data, c->context);
    const bool broken = found <= PCRE2_ERROR_UTF8_ERR1 && found >= PCRE2_ERROR_UTF8_ERR21;
    *reward = found > 0;
    return found > 0 || found == PCRE2_ERROR_NOMATCH || broken ? BY_OK : bad_pattern(found);
}

/* ---- arithmetic ----------------------------------------------------------------------------------- */

/* sum := product (("+" | "-") product)*, product := factor (("*" | "/") factor)*,
 * factor := number | "(" sum ")" | "-" factor. */
typedef struct calculation {
    const char *at;
    int operators, depth;
    bool failed;
} calculation;

enum { DEEPEST = 64 };

static double sum_of(calculation *c);

static char next_sign(calculation *c)
{
    while (*c->at == ' ')
        c->at++;
    return *c->at;
}

/* Digits with an optional fraction; no exponent, inf or nan. */
static double digits_of(calculation *c)
{
    char text[64];
    size_t n = 0;
    for (; n < sizeof text - 1 && (is_digit(c->at[n]) || (c->at[n] == '.' && n && is_digit(c->at[n + 1])));
         n++)
        text[n] = c->at[n];
    text[n] = '\0';
    c->at += n;
    c->failed = c->failed || n == 0;
    return base_strtod(text, NULL);
}

static double factor_of(calculation *c)
{
    const char sign = next_sign(c);
    double value;
    if (c->failed || ++c->depth > DEEPEST) {
        c->failed = true;
        return 0;
    }
    if (sign == '-') {
        c->at++;
        value = -factor_of(c);
    } else if (sign == '(') {
        c->at++;
        value = sum_of(c);
        c->failed = c->failed || next_sign(c) != ')';
        c->at += !c->failed;
    } else {
        value = digits_of(c);
    }
    c->depth--;
    return value;
}

/* An operator counts only if an operand follows. A trailing sign is not part of the expression. */
static bool operand_follows(const calculation *c)
{
    const char *p = c->at + 1;
    while (*p == ' ')
        p++;
    return is_digit(*p) || *p == '(' || *p == '-';
}

static double product_of(calculation *c)
{
    double value = factor_of(c);
    for (char sign = next_sign(c); !c->failed && (sign == '*' || sign == '/') && operand_follows(c);
         sign = next_sign(c)) {
        c->at++;
        c->operators++;
        const double other = factor_of(c);
        value = sign == '*' ? value * other : value / other;
    }
    return value;
}

static double sum_of(calculation *c)
{
    double value = product_of(c);
    for (char sign = next_sign(c); !c->failed && (sign == '+' || sign == '-') && operand_follows(c);
         sign = next_sign(c)) {
        c->at++;
        c->operators++;
        const double other = product_of(c);
        value += sign == '+' ? other : -other;
    }
    return value;
}

/* The first expression with an operator. */
static bool find_expression(const char *text, double *out)
{
    for (const char *p = text; *p; p++) {
        calculation c = {.at = p};
        if (!is_digit(*p) && *p != '(' && *p != '-')
            continue;
        if (p > text && is_digit(*p) && (is_digit(p[-1]) || p[-1] == '.'))
            continue;
        *out = sum_of(&c);
        if (!c.failed && c.operators && isfinite(*out))
            return true;
    }
    return false;
}

static bool find_last_number(const char *text, double *out)
{
    bool found = false;
    for (const char *p = text; *p;) {
        if (!is_digit(*p)) {
            p++;
            continue;
        }
        calculation c = {.at = p};
        const bool negative = p > text && p[-1] == '-' && !(p - 1 > text && is_digit(p[-2]));
        *out = digits_of(&c) * (negative ? -1 : 1);
        found = true;
        p = c.at;
    }
    return found;
}

static by_status measure_arithmetic(const check *c, const by_judged *a, float *reward)
{
    double want, have;
    if (a->expected ? !find_last_number(a->expected, &want) : !find_expression(a->prompt, &want))
        return base_fail(BY_ERR_ARGUMENT, "the check \"%s\" finds no %s in \"%.60s\"", c->name,
                         a->expected ? "number" : "expression", a->expected ? a->expected : a->prompt);
    *reward = find_last_number(a->answer, &have) && fabs(have - want) <= 1e-6 * BY_MAX(1, fabs(want));
    return BY_OK;
}

/* ---- sorted lists ----------------------------------------------------------------------------------- */

/* The items of a list: numbers, the digits of a single number, or words. */
typedef enum item_kind { NUMBERS, DIGITS, WORDS } item_kind;

typedef struct items {
    span *list;
    int count, capacity;
    bool junk; /* letters among numbers */
} items;

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
}

static size_t item_size(item_kind kind, const char *p, bool start)
{
    calculation c = {.at = p};
    size_t n = 0;
    if (kind == WORDS) {
        while (is_letter(p[n]))
            n++;
        return n;
    }
    if (kind == DIGITS)
        return is_digit(*p);
    if (*p == '-' && start && is_digit(p[1]))
        c.at++;
    if (!is_digit(*c.at))
        return 0;
    digits_of(&c);
    return (size_t)(c.at - p);
}

static by_status put_item(items *x, span one)
{
    if (x->count == x->capacity) {
        const int grown = x->capacity ? 2 * x->capacity : 32;
        span *more = base_resize(x->list, (size_t)grown, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        x->list = more;
        x->capacity = grown;
    }
    x->list[x->count++] = one;
    return BY_OK;
}

static by_status read_items(const char *text, item_kind kind, items *out)
{
    *out = (items){0};
    for (const char *p = text; *p;) {
        const size_t n = item_size(kind, p, p == text || !(is_digit(p[-1]) || is_letter(p[-1])));
        if (n)
            BY_TRY(put_item(out, (span){p, n}));
        else
            out->junk = out->junk || (kind != WORDS && is_letter(*p));
        p += n ? n : 1;
    }
    return BY_OK;
}

static double value_of(const span *s)
{
    const bool negative = *s->text == '-';
    calculation c = {.at = s->text + negative};
    return digits_of(&c) * (negative ? -1 : 1);
}

static int compare_numbers(const void *a, const void *b)
{
    const double u = value_of(a), v = value_of(b);
    return (u > v) - (u < v);
}

static int compare_digits(const void *a, const void *b)
{
    return *((const span *)a)->text - *((const span *)b)->text;
}

static int compare_words(const void *a, const void *b)
{
    const span *x = a, *y = b;
    const int c = memcmp(x->text, y->text, BY_MIN(x->size, y->size));
    return c ? c : (x->size > y->size) - (x->size < y->size);
}

typedef int (*comparison)(const void *a, const void *b);
static const comparison comparisons[] = {
    [NUMBERS] = compare_numbers, [DIGITS] = compare_digits, [WORDS] = compare_words};

/* The expected items of a prompt, sorted: its numbers, the digits of its only number, or its words. */
static by_status wanted_items(const char *prompt, item_kind *kind, items *out)
{
    *kind = NUMBERS;
    BY_TRY(read_items(prompt, NUMBERS, out));
    if (out->count < 2) {
        *kind = out->count ? DIGITS : WORDS;
        base_free(out->list);
        BY_TRY(read_items(prompt, *kind, out));
    }
    if (out->count)
        qsort(out->list, (size_t)out->count, sizeof *out->list, comparisons[*kind]);
    return BY_OK;
}

static float share_right(const items *want, const items *have, item_kind kind, bool partial)
{
    int right = 0;
    for (int i = 0; i < BY_MIN(want->count, have->count); i++)
        right += comparisons[kind](&want->list[i], &have->list[i]) == 0;
    const int most = BY_MAX(BY_MAX(want->count, have->count), 1);
    return have->junk ? 0 : partial ? (float)right / (float)most : right == most;
}

static by_status measure_sorted(const check *c, const by_judged *a, float *reward)
{
    items want, have = {0};
    item_kind kind;
    by_status s = wanted_items(a->prompt, &kind, &want);
    if (s == BY_OK && want.count < 2)
        s = base_fail(BY_ERR_ARGUMENT, "the check \"%s\" finds no list in the prompt \"%.60s\"", c->name,
                      a->prompt);
    if (s == BY_OK)
        s = read_items(a->answer, kind, &have);
    if (s == BY_OK)
        *reward = share_right(&want, &have, kind, c->partial);
    base_free(want.list);
    base_free(have.list);
    return s;
}

/* ---- open and close --------------------------------------------------------------------------------- */

static by_status score(void *self, const by_judged *answers, int count, float *rewards)
{
    const check *c = self;
    for (int i = 0; i < count; i++)
        BY_TRY(c->measure(c, &answers[i], &rewards[i]));
    return BY_OK;
}

static void close_check(void *self)
{
    check *c = self;
    pcre2_match_context_free(c->context);
    pcre2_match_data_free(c->data);
    pcre2_code_free(c->code);
    base_free(c);
}

static by_status read_length(check *c, const char *text)
{
    char *end;
    const long n = strtol(text, &end, 10);
    if (!*text || *end || n < 1 || n > 1 << 24)
        return base_fail(BY_ERR_ARGUMENT, "\"%s\" is not a length in characters", text);
    c->length = (int)n;
    return BY_OK;
}

static by_status read_partial(check *c, const char *text)
{
    c->partial = strcmp(text, "partial") == 0;
    return c->partial
               ? BY_OK
               : base_fail(BY_ERR_ARGUMENT, "\"sorted:%s\" is neither sorted nor sorted:partial", text);
}

static const struct {
    const char *name;
    by_status (*measure)(const check *c, const by_judged *a, float *reward);
    by_status (*read)(check *c, const char *argument); /* NULL: takes no argument */
    bool optional;                                     /* the argument is optional */
} checks[] = {{"exact", measure_exact, NULL, true},
              {"arithmetic", measure_arithmetic, NULL, true},
              {"sorted", measure_sorted, read_partial, true},
              {"json", measure_json, NULL, true},
              {"regex", measure_regex, compile_pattern, false},
              {"length", measure_length, read_length, false}};

by_status align_check_open(const char *what, align_judge *out)
{
    const char *colon = strchr(what, ':'), *argument = colon ? colon + 1 : NULL;
    const size_t n = colon ? (size_t)(colon - what) : strlen(what);
    int i = 0;
    while (i < BY_COUNT(checks) && (strlen(checks[i].name) != n || strncmp(checks[i].name, what, n) != 0))
        i++;
    if (i == BY_COUNT(checks) || (argument && !checks[i].read) || (!argument && !checks[i].optional))
        return base_fail(BY_ERR_ARGUMENT,
                         "unknown reward \"%s\"; available: exact, arithmetic, sorted, sorted:partial, json, "
                         "regex:PATTERN, length:N, command:COMMAND or model:DIR",
                         what);
    check *c = base_alloc_zero(1, sizeof *c);
    if (!c)
        return BY_ERR_MEMORY;
    c->measure = checks[i].measure;
    c->name = checks[i].name;
    *out = (align_judge){.score = score, .self = c, .close = close_check};
    return argument ? checks[i].read(c, argument) : BY_OK;
}
