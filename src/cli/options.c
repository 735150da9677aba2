/* options.c - parses the command line by a verb's table: names, values, ranges, choices, and suggestions for
 * typos. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "cli/verbs.h"

/* ---- names and suggestions ------------------------------------------------------------------- */

bool cli_name_equal(const char *a, size_t n, const char *b)
{
    for (size_t i = 0; i < n; i++)
        if ((a[i] == '_' ? '-' : a[i]) != b[i])
            return false;
    return b[n] == 0;
}

/* Edits (insert, delete, replace, swap two neighbours) that turn one word into the other, ignoring case; a
 * large number for words too long to be option names. */
static int edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 48 };
    int rows[3][LONGEST + 1], n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST || m > LONGEST)
        return INT_MAX;
    for (int j = 0; j <= m; j++)
        rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = rows[i % 3], *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            int best = BY_MIN(now[j - 1], up[j]) + 1;
            best = BY_MIN(best, up[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]))
                best = BY_MIN(best, up2[j - 2] + 1);
            now[j] = best;
        }
    }
    return rows[n % 3][m];
}

/* Near means: one edit in three letters and at most three, or the beginning of the name. */
void cli_suggest(cli_suggestion *s, const char *candidate)
{
    int n = (int)strlen(s->typed), distance = edit_distance(s->typed, candidate);
    int limit = BY_MIN(3, BY_MAX(1, n / 3));
    if (n >= 3 && strncasecmp(s->typed, candidate, (size_t)n) == 0)
        distance = BY_MIN(distance, 1);
    if (distance > limit || distance >= (int)strlen(candidate) || (s->best && distance >= s->distance))
        return;
    s->best = candidate;
    s->distance = distance;
}

bool cli_word_next(const char **cursor, char separator, cli_word *word)
{
    const char *s = *cursor;
    while (s && *s == separator)
        s++;
    if (!s || !*s)
        return false;
    size_t n = strchr(s, separator) ? (size_t)(strchr(s, separator) - s) : strlen(s);
    *cursor = s + n;
    *word = (cli_word){.text = s, .length = (int)n};
    if (separator == ' ' && *s == '[' && s[n - 1] == ']') {
        word->optional = true;
        word->text++;
        word->length -= 2;
    }
    if (word->length > 3 && memcmp(word->text + word->length - 3, "...", 3) == 0) {
        word->repeated = true;
        word->length -= 3;
    }
    return true;
}

const char *cli_value_name(const cli_option *o)
{
    if (o->kind == CLI_FLAG)
        return NULL;
    if (o->value)
        return o->value;
    if (o->choices)
        return strlen(o->choices) <= 20 ? o->choices : "NAME";
    return o->kind == CLI_INT || o->kind == CLI_INT64 ? "N" : o->kind == CLI_DOUBLE ? "X" : "TEXT";
}

bool cli_value_is_path(const cli_option *o)
{
    static const char *const names[] = {"FILE", "DIR", "PATH", "MODEL"};
    for (int i = 0; i < BY_COUNT(names) && !o->choices && o->value; i++)
        if (strstr(o->value, names[i]))
            return true;
    return false;
}

const char *cli_group(const cli_option *rows, int i)
{
    while (i > 0 && !rows[i].group)
        i--;
    return rows[i].group ? rows[i].group : "Options";
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Index of the text in "a|b|c", or -1. */
static int choice_index(const char *choices, const char *text)
{
    cli_word w;
    for (int i = 0; cli_word_next(&choices, '|', &w); i++)
        if (strlen(text) == (size_t)w.length && memcmp(text, w.text, (size_t)w.length) == 0)
            return i;
    return -1;
}

/* Fails with a list of the choices; `what` is "--device" or the verb's argument. */
static by_status choice_fail(const char *what, const char *choices, const char *text)
{
    base_buf list = {0}, near = {0};
    const char *cursor = choices;
    cli_word w;
    int best = INT_MAX;
    while (cli_word_next(&cursor, '|', &w)) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", w.length, w.text);
        cli_suggestion s = {.typed = text};
        cli_suggest(&s, name);
        if (s.best && s.distance < best) {
            best = s.distance;
            base_buf_free(&near);
            base_buf_printf(&near, "; did you mean %s?", name);
        }
        base_buf_printf(&list, "%s%s", list.size ? ", " : "", name);
    }
    by_status status = base_fail(BY_ERR_ARGUMENT, "%s must be one of %s, got '%s'%s", what,
                                 list.data ? list.data : choices, text, near.data ? near.data : "");
    base_buf_free(&list);
    base_buf_free(&near);
    return status;
}

/* k, M, G are thousands and Ki, Mi, Gi are 1024s, as the standards have it; 0 for anything else. */
static long double suffix_factor(const char *s)
{
    static const char letters[] = "kmgt";
    if (!*s)
        return 1;
    const char *at = strchr(letters, tolower((unsigned char)*s));
    bool binary = s[1] == 'i';
    if (!at || s[1 + binary])
        return 0;
    return powl(binary ? 1024 : 1000, (long double)(at - letters + 1));
}

static bool parse_integer(const char *text, bool suffix, bool bytes, int64_t *out)
{
    char *end, bare[40];
    const char *digits = text + (*text == '-' || *text == '+');
    errno = 0;
    if (!isdigit((unsigned char)*digits))
        return false;
    if (!suffix) {
        *out = strtoll(text, &end, 10);
        return *end == 0 && errno == 0;
    }
    /* long double holds every int64 exactly, so 1.5M and 2Gi need no second path */
    if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X'))
        return false;
    size_t n = strlen(text);
    if (bytes && n > 1 && n < sizeof bare && text[n - 1] == 'B') {
        snprintf(bare, sizeof bare, "%.*s", (int)n - 1, text);
        text = bare;
    }
    long double value = strtold(text, &end);
    value *= suffix_factor(end);
    if ((value == 0 && *end) || value != floorl(value) || fabsl(value) >= 0x1p63L)
        return false;
    *out = (int64_t)value;
    return true;
}

static bool parse_double(const char *text, double *out)
{
    char *end;
    if (!*text || isspace((unsigned char)*text))
        return false;
    *out = strtod(text, &end);
    return *end == 0 && isfinite(*out);
}

static bool parse_bool(const char *text, bool *out)
{
    static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};
    for (int i = 0; i < BY_COUNT(words); i++)
        if (strcasecmp(text, words[i]) == 0) {
            *out = i & 1;
            return true;
        }
    return false;
}

static by_status check_range(const cli_option *o, double value, const char *text)
{
    if (!o->ranged || (value >= o->min && value <= o->max))
        return BY_OK;
    if (o->max == HUGE_VAL)
        return base_fail(BY_ERR_ARGUMENT, "--%s must be at least %.15g, got %s", o->name, o->min, text);
    return base_fail(BY_ERR_ARGUMENT, "--%s must be between %.15g and %.15g, got %s", o->name, o->min, o->max,
                     text);
}

static by_status store_integer(const cli_option *o, void *at, const char *text)
{
    int64_t value;
    if (!parse_integer(text, o->suffix, o->bytes, &value))
        return base_fail(BY_ERR_ARGUMENT, "--%s must be a whole number%s, got '%s'", o->name,
                         o->bytes    ? " of bytes such as 500MB, 5GB or 2GiB"
                         : o->suffix ? " such as 5000, 64k or 1M"
                                     : "",
                         text);
    BY_TRY(check_range(o, (double)value, text));
    if (o->kind == CLI_INT64)
        *(int64_t *)at = value;
    else if (value < INT_MIN || value > INT_MAX)
        return base_fail(BY_ERR_ARGUMENT, "--%s is out of range: %s", o->name, text);
    else
        *(int *)at = (int)value;
    return BY_OK;
}

/* `room` is how many items a list may need in all: the array is allocated once. */
static by_status store_item(cli_list *list, const char *text, int room)
{
    if (!list->items && !(list->items = base_alloc_zero((size_t)room + 1, sizeof *list->items)))
        return BY_ERR_MEMORY;
    list->items[list->count++] = text;
    return BY_OK;
}

static by_status store(const cli_option *o, void *options, const char *text, int room)
{
    void *at = (char *)options + o->offset;
    if (!*text && cli_value_is_path(o))
        return base_fail(BY_ERR_ARGUMENT, "--%s is empty; it needs a value (%s)", o->name, cli_value_name(o));
    if (o->choices) {
        int index = choice_index(o->choices, text);
        char what[64];
        snprintf(what, sizeof what, "--%s", o->name);
        if (index < 0)
            return choice_fail(what, o->choices, text);
        if (o->kind == CLI_INT || o->kind == CLI_ENUM) {
            *(int *)at = index;
            return BY_OK;
        }
    }
    switch (o->kind) {
    case CLI_FLAG:
        if (!parse_bool(text, at))
            return base_fail(BY_ERR_ARGUMENT, "--%s takes yes or no, not '%s'", o->name, text);
        return BY_OK;
    case CLI_INT:
    case CLI_INT64:
        return store_integer(o, at, text);
    case CLI_DOUBLE:
        if (!parse_double(text, at))
            return base_fail(BY_ERR_ARGUMENT, "--%s must be a number, got '%s'", o->name, text);
        return check_range(o, *(double *)at, text);
    case CLI_STRING:
        *(const char **)at = text;
        return BY_OK;
    case CLI_LIST:
        return store_item(at, text, room);
    case CLI_ENUM:
        break; /* only with choices */
    }
    return base_fail(BY_ERR_UNSUPPORTED, "table: --%s has no kind", o->name);
}

/* ---- the table itself ------------------------------------------------------------------------ */

static bool rows_clash(const cli_option *a, const cli_option *b)
{
    return (a->letter && a->letter == b->letter) || !strcmp(a->name, b->name) ||
           (a->alias && !strcmp(a->alias, b->name)) ||
           (b->alias && (!strcmp(b->alias, a->name) || (a->alias && !strcmp(a->alias, b->alias))));
}

by_status cli_verb_check(const cli_verb *verb)
{
    if (verb->option_count > CLI_MAX_OPTIONS)
        return base_fail(BY_ERR_UNSUPPORTED, "table: more than %d options", CLI_MAX_OPTIONS);
    for (int i = 0; i < verb->option_count; i++) {
        const cli_option *o = &verb->options[i];
        if (!o->name || !o->help || !o->kind || (o->kind == CLI_ENUM && !o->choices))
            return base_fail(BY_ERR_UNSUPPORTED, "table: row %d is incomplete", i);
        if (o->letter == 'h' || !strcmp(o->name, "help"))
            return base_fail(BY_ERR_UNSUPPORTED, "table: --%s takes the place of --help", o->name);
        for (int j = 0; j < i; j++)
            if (rows_clash(o, &verb->options[j]))
                return base_fail(BY_ERR_UNSUPPORTED, "table: --%s and --%s share a name",
                                 verb->options[j].name, o->name);
        union {
            int64_t integer;
            double real;
            const char *text;
        } scratch;
        cli_option alone = *o;
        alone.offset = 0;
        if (o->preset && o->kind != CLI_LIST && store(&alone, &scratch, o->preset, 0) != BY_OK)
            return base_fail(BY_ERR_UNSUPPORTED, "table: default of --%s: %s", o->name, by_error_message());
    }
    return BY_OK;
}

/* Defaults in place of zeroes. A list's default is one item, taken out again when the user gives the option.
 */
static by_status store_presets(const cli_verb *verb, void *options, int room)
{
    for (int i = 0; i < verb->option_count; i++)
        if (verb->options[i].preset)
            BY_TRY(store(&verb->options[i], options, verb->options[i].preset, room));
    return BY_OK;
}

/* ---- parsing --------------------------------------------------------------------------------- */

typedef struct parser {
    const cli_verb *verb;
    cli_args *args;
    void *options;
    char **argv;
    int argc, next; /* argv[next] is the next to parse */
} parser;

static const cli_option *find_long(const cli_verb *verb, const char *name, size_t n)
{
    for (int i = 0; i < verb->option_count; i++) {
        const cli_option *o = &verb->options[i];
        if (cli_name_equal(name, n, o->name) || (o->alias && cli_name_equal(name, n, o->alias)))
            return o;
    }
    return NULL;
}

/* The same by a name that other programs have for it. */
static const cli_option *find_synonym(const cli_verb *verb, const char *name, size_t n)
{
    const char *cursor = cli_synonym(name, n);
    const cli_option *o = NULL;
    cli_word w;
    while (cursor && !o && cli_word_next(&cursor, '|', &w))
        o = find_long(verb, w.text, (size_t)w.length);
    return o;
}

static const cli_option *find_letter(const cli_verb *verb, char letter)
{
    for (int i = 0; i < verb->option_count; i++)
        if (verb->options[i].letter == letter && letter)
            return &verb->options[i];
    return NULL;
}

/* The switch that --no-NAME turns off, or NULL. */
static const cli_option *find_negated(const cli_verb *verb, const char *name, size_t n)
{
    const cli_option *o = n > 3 && cli_name_equal(name, 3, "no-") ? find_long(verb, name + 3, n - 3) : NULL;
    return o && o->kind == CLI_FLAG ? o : NULL;
}

static by_status unknown_option(const cli_verb *verb, const char *typed)
{
    char name[64];
    const char *start = typed + strspn(typed, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(start, "="), start);
    for (char *c = name; *c; c++)
        if (*c == '_')
            *c = '-';
    bool negated = strncmp(name, "no-", 3) == 0;
    cli_suggestion whole = {.typed = name}, bare = {.typed = name + 3};
    cli_suggest(&whole, "help");
    for (int i = 0; i < verb->option_count; i++) {
        const cli_option *o = &verb->options[i];
        cli_suggest(&whole, o->name);
        if (o->alias)
            cli_suggest(&whole, o->alias);
        if (negated && o->kind == CLI_FLAG)
            cli_suggest(&bare, o->name);
    }
    int shown = (int)strcspn(typed, "=");
    if (negated && bare.best && (!whole.best || bare.distance < whole.distance))
        return base_fail(BY_ERR_ARGUMENT, "unknown option %.*s; did you mean --no-%s?", shown, typed,
                         bare.best);
    if (whole.best)
        return base_fail(BY_ERR_ARGUMENT, "unknown option %.*s; did you mean --%s?", shown, typed,
                         whole.best);
    return base_fail(BY_ERR_ARGUMENT, "unknown option %.*s (see banyan %s --help)", shown, typed, verb->name);
}

/* An argument that is certainly an option of this verb, and so not the value of the option before it. */
static bool looks_like_option(const cli_verb *verb, const char *s)
{
    if (s[0] != '-')
        return false;
    if (s[1] == '-')
        return !s[2] || find_long(verb, s + 2, strcspn(s + 2, "=")) ||
               find_synonym(verb, s + 2, strcspn(s + 2, "=")) || find_negated(verb, s + 2, strlen(s + 2));
    return s[1] && !s[2] && find_letter(verb, s[1]);
}

static by_status take(parser *p, const cli_option *o, const char *value)
{
    int row = (int)(o - p->verb->options);
    if (o->kind == CLI_LIST && !p->args->given[row])
        ((cli_list *)(void *)((char *)p->options + o->offset))->count = 0;
    p->args->given[row] = true;
    return store(o, p->options, value, p->argc);
}

/* The option's value is the next argument. `shown` is the option as typed, for the message. */
static by_status take_next(parser *p, const cli_option *o, const char *shown)
{
    if (p->next >= p->argc)
        return base_fail(BY_ERR_ARGUMENT, "%s needs a value (%s)", shown, cli_value_name(o));
    const char *value = p->argv[p->next++];
    if (looks_like_option(p->verb, value))
        return base_fail(BY_ERR_ARGUMENT,
                         "%s needs a value (%s), but %s follows; write --%s=%s if that is the value", shown,
                         cli_value_name(o), value, o->name, value);
    BY_TRY(take(p, o, value));
    /* For a verb without arguments, words after a list option belong to the list. */
    while (o->kind == CLI_LIST && !p->verb->args && p->next < p->argc && p->argv[p->next][0] != '-')
        BY_TRY(take(p, o, p->argv[p->next++]));
    return BY_OK;
}

static by_status parse_long(parser *p, const char *arg)
{
    const char *name = arg + 2;
    size_t n = strcspn(name, "=");
    const char *value = name[n] ? name + n + 1 : NULL;
    const cli_option *o = find_long(p->verb, name, n);
    if (!o)
        o = find_synonym(p->verb, name, n);
    const cli_option *negated = o ? NULL : find_negated(p->verb, name, n);
    if (cli_name_equal(name, n, "help")) {
        p->args->help = true;
        return BY_OK;
    }
    if (negated && value)
        return base_fail(BY_ERR_ARGUMENT, "%.*s takes no value", (int)n + 2, arg);
    if (negated)
        return take(p, negated, "no");
    if (!o)
        return unknown_option(p->verb, arg);
    if (value)
        return take(p, o, value);
    return o->kind == CLI_FLAG ? take(p, o, "yes") : take_next(p, o, arg);
}

/* -n 5, -n5, -n=5, and switches written together: -vn 5. */
static by_status parse_letters(parser *p, const char *arg)
{
    for (const char *s = arg + 1; *s && !p->args->help; s++) {
        const cli_option *o = find_letter(p->verb, *s);
        char shown[3] = {'-', *s, 0};
        if (!o && *s == 'h') {
            p->args->help = true;
        } else if (!o) {
            return unknown_option(p->verb, s == arg + 1 ? arg : shown);
        } else if (o->kind == CLI_FLAG) {
            BY_TRY(take(p, o, "yes"));
        } else {
            return s[1] ? take(p, o, s + 1 + (s[1] == '=')) : take_next(p, o, shown);
        }
    }
    return BY_OK;
}

/* Count the positionals against "MODEL [TEXT...]", and look up those that are choices. */
static by_status check_positionals(const cli_verb *verb, const cli_args *args)
{
    const char *cursor = verb->args ? verb->args : "";
    cli_word w;
    int i = 0;
    bool more = false;
    for (; cli_word_next(&cursor, ' ', &w); i++) {
        if (i >= args->count && !w.optional)
            return base_fail(BY_ERR_ARGUMENT, "missing %.*s (see banyan %s --help)", w.length, w.text,
                             verb->name);
        more = more || w.repeated;
        if (i >= args->count || !memchr(w.text, '|', (size_t)w.length))
            continue;
        char choices[256];
        snprintf(choices, sizeof choices, "%.*s", w.length, w.text);
        if (choice_index(choices, args->items[i]) < 0)
            return choice_fail("the argument", choices, args->items[i]);
    }
    if (args->count > i && !more)
        return base_fail(BY_ERR_ARGUMENT, "unexpected argument '%s' (see banyan %s --help)", args->items[i],
                         verb->name);
    return BY_OK;
}

by_status cli_options_parse(const cli_verb *verb, int argc, char **argv, void *options, size_t size,
                            cli_args *args)
{
    parser p = {.verb = verb, .args = args, .options = options, .argv = argv, .argc = argc, .next = 1};
    bool plain = false; /* after "--" */
    *args = (cli_args){.items = argv, .verb = verb, .options = options};
    memset(options, 0, size);
    BY_TRY(cli_verb_check(verb));
    BY_TRY(store_presets(verb, options, argc));
    while (p.next < argc && !args->help) {
        char *arg = argv[p.next++];
        /* "-" is stdin and "-5" a number, unless 5 is a letter of this verb */
        bool number = (isdigit((unsigned char)arg[1]) || arg[1] == '.') && !find_letter(verb, arg[1]);
        if (plain || arg[0] != '-' || !arg[1] || number)
            args->items[args->count++] = arg;
        else if (strcmp(arg, "--") == 0)
            plain = true;
        else
            BY_TRY(arg[1] == '-' ? parse_long(&p, arg) : parse_letters(&p, arg));
    }
    if (args->help)
        return BY_OK;
    args->items[args->count] = NULL;
    return check_positionals(verb, args);
}

bool cli_parse_sized(const cli_verb *verb, int argc, char **argv, void *options, size_t size, cli_args *args,
                     int *code)
{
    by_status status = cli_options_parse(verb, argc, argv, options, size, args);
    if (status == BY_OK && !args->help)
        return true;
    if (status == BY_OK) {
        cli_help_write(stdout, verb, cli_width(STDOUT_FILENO));
        *code = CLI_OK;
    } else {
        *code = status == BY_ERR_ARGUMENT ? cli_usage_fail("%s", by_error_message()) : cli_fail(NULL);
    }
    cli_args_free(args);
    return false;
}

/* The next word of a text with single spaces; NULL after the last. */
static char *next_word(char **text)
{
    char *word = *text + strspn(*text, " ");
    char *end = word + strcspn(word, " ");
    *text = *end ? end + 1 : end;
    *end = '\0';
    return *word ? word : NULL;
}

by_status cli_options_add(cli_args *args, char *text)
{
    bool given[CLI_MAX_OPTIONS];
    memcpy(given, args->given, sizeof given);
    for (char *word; (word = next_word(&text));) {
        const char *name = word + 2;
        const cli_option *o = find_long(args->verb, name, strlen(name));
        const char *value = "yes";
        if (!o) {
            o = find_negated(args->verb, name, strlen(name));
            value = "no";
        } else if (o->kind != CLI_FLAG) {
            value = next_word(&text);
        }
        if (!o || !value)
            return base_fail(BY_ERR_UNSUPPORTED, "unknown option %s in the recipe", word);
        const int row = (int)(o - args->verb->options);
        if (given[row])
            continue;
        args->given[row] = true;
        BY_TRY(store(o, args->options, value, 1));
    }
    return BY_OK;
}

void cli_args_free(cli_args *args)
{
    for (int i = 0; args->verb && i < args->verb->option_count; i++) {
        const cli_option *o = &args->verb->options[i];
        if (o->kind != CLI_LIST)
            continue;
        cli_list *list = (void *)((char *)args->options + o->offset);
        base_free(list->items);
        *list = (cli_list){0};
    }
    *args = (cli_args){0};
}

static bool is_listed(const char *name, const char *const *names)
{
    for (; names && *names; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

const cli_option *cli_given_beyond(const cli_args *args, const char *const *names, const char *const *more)
{
    for (int i = 0; i < args->verb->option_count; i++) {
        const cli_option *o = &args->verb->options[i];
        if (args->given[i] && !is_listed(o->name, names) && !is_listed(o->name, more))
            return o;
    }
    return NULL;
}

const cli_option *cli_given_among(const cli_args *args, const char *const *names)
{
    for (int i = 0; i < args->verb->option_count; i++)
        if (args->given[i] && is_listed(args->verb->options[i].name, names))
            return &args->verb->options[i];
    return NULL;
}

const cli_scope *cli_given_outside(const cli_args *args, const cli_scope *rows, int count, uint32_t kind)
{
    for (int i = 0; i < count; i++)
        if (!(rows[i].kinds & kind) && cli_given_among(args, (const char *const[]){rows[i].option, NULL}))
            return &rows[i];
    return NULL;
}

cli_args cli_args_own(const cli_args *args, const bool *earlier)
{
    cli_args own = *args;
    for (int i = 0; i < CLI_MAX_OPTIONS; i++)
        own.given[i] = own.given[i] && !earlier[i];
    return own;
}

bool cli_given(const cli_args *args, const void *field)
{
    for (int i = 0; args->verb && i < args->verb->option_count; i++)
        if ((const char *)args->options + args->verb->options[i].offset == field && args->given[i])
            return true;
    return false;
}

void cli_options_default(const cli_args *args, void *part, const void *usual, size_t size)
{
    static const size_t sizes[] = {
        [CLI_FLAG] = sizeof(bool),     [CLI_INT] = sizeof(int),       [CLI_INT64] = sizeof(int64_t),
        [CLI_ENUM] = sizeof(unsigned), [CLI_DOUBLE] = sizeof(double), [CLI_STRING] = sizeof(char *)};
    const size_t begin = (size_t)((char *)part - (char *)args->options);
    for (int i = 0; i < args->verb->option_count; i++) {
        const cli_option *o = &args->verb->options[i];
        if (!args->given[i] && o->kind != CLI_LIST && o->offset >= begin && o->offset < begin + size)
            memcpy((char *)part + o->offset - begin, (const char *)usual + o->offset - begin, sizes[o->kind]);
    }
}
