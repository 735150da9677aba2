/* help.c - the help text and the man pages, written from the verbs' tables. */
#include "cli/verbs.h"

enum { NARROWEST = 40, WIDEST = 100, INDENT = 2, GAP = 2, COLUMN_MAX = 34 };

/* ---- terminal text --------------------------------------------------------------------------- */

static int columns_of(const char *s, size_t n)
{
    int width = 0;
    for (size_t i = 0; i < n; i++)
        width += ((unsigned char)s[i] & 0xc0) != 0x80;
    return width;
}

/* Write n bytes as words wrapped to `width`. The cursor is at `column`; further lines start at `indent`. Ends
 * the line. */
static void put_wrapped(FILE *out, const char *s, size_t n, int column, int indent, int width)
{
    bool first = true;
    for (size_t i = 0; i < n;) {
        size_t length = 0;
        while (i + length < n && s[i + length] != ' ' && s[i + length] != '\n')
            length++;
        if (length == 0) {
            i++;
            continue;
        }
        int w = columns_of(s + i, length);
        if (!first && column + 1 + w > width) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', out);
            column++;
        }
        fwrite(s + i, 1, length, out);
        column += w;
        i += length;
        first = false;
    }
    fputc('\n', out);
}

/* Call `paragraph` for each run of ordinary lines and `verbatim` for each line that starts with a space; an
 * empty line ends a paragraph and is passed to `verbatim` with n = 0. */
typedef void text_fn(FILE *out, const char *s, size_t n, int width);
static void walk_text(FILE *out, const char *text, int width, text_fn *paragraph, text_fn *verbatim)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (n == 0 || *text == ' ') {
            verbatim(out, text, n, width);
        } else {
            while (text[n] && text[n + 1] && text[n + 1] != '\n' && text[n + 1] != ' ')
                n += 1 + strcspn(text + n + 1, "\n");
            paragraph(out, text, n, width);
        }
        text += n + (text[n] == '\n');
    }
}

static void help_paragraph(FILE *out, const char *s, size_t n, int width)
{
    put_wrapped(out, s, n, 0, 0, width);
}

static void help_verbatim(FILE *out, const char *s, size_t n, int width)
{
    (void)width;
    fprintf(out, "%.*s\n", (int)n, s);
}

/* "-n, --steps N", "    --[no-]shuffle". */
static void format_option(base_buf *b, const cli_option *o)
{
    const char *value = cli_value_name(o);
    bool on = o->kind == CLI_FLAG && o->preset && !strcmp(o->preset, "yes");
    if (o->letter)
        base_buf_printf(b, "-%c, ", o->letter);
    else
        base_buf_puts(b, "    ");
    base_buf_printf(b, "--%s%s%s%s", on ? "[no-]" : "", o->name, value ? " " : "", value ? value : "");
}

/* The help line with additions from the table: choices that did not fit as value name, repetition, alias,
 * default. */
static void format_detail(base_buf *b, const cli_option *o)
{
    base_buf_puts(b, o->help);
    if (o->choices && strcmp(cli_value_name(o), o->choices) != 0) {
        const char *cursor = o->choices;
        cli_word w;
        for (bool first = true; cli_word_next(&cursor, '|', &w); first = false)
            base_buf_printf(b, "%s%.*s", first ? ": " : ", ", w.length, w.text);
    }
    if (o->kind == CLI_LIST)
        base_buf_puts(b, "; may be given several times");
    if (o->alias)
        base_buf_printf(b, "; also --%s", o->alias);
    if (o->preset && *o->preset && o->kind != CLI_FLAG)
        base_buf_printf(b, " (default: %s)", o->preset);
}

static void put_row(FILE *out, const char *left, const char *right, int column, int width)
{
    int used = INDENT + columns_of(left, strlen(left));
    fprintf(out, "%*s%s", INDENT, "", left);
    if (used + GAP > column) {
        fputc('\n', out);
        used = 0;
    }
    fprintf(out, "%*s", column - used, "");
    put_wrapped(out, right, strlen(right), column, column, width);
}

static void put_option(FILE *out, const cli_option *o, int column, int width)
{
    base_buf left = {0}, right = {0};
    format_option(&left, o);
    format_detail(&right, o);
    if (left.data && right.data)
        put_row(out, left.data, right.data, column, width);
    base_buf_free(&left);
    base_buf_free(&right);
}

static const cli_option HELP_ROW = {
    .name = "help", .letter = 'h', .kind = CLI_FLAG, .help = "show this text and exit"};

/* Where the right column starts: after the longest option that leaves the right column room enough. */
static int right_column(const cli_verb *verb, int width)
{
    int widest = INDENT + 12;
    for (int i = 0; i < verb->option_count; i++) {
        base_buf b = {0};
        format_option(&b, &verb->options[i]);
        int w = INDENT + columns_of(b.data ? b.data : "", b.size) + GAP;
        if (w <= BY_MIN(COLUMN_MAX, width / 2))
            widest = BY_MAX(widest, w);
        base_buf_free(&b);
    }
    return widest;
}

/* The part of the usage line after "banyan VERB". */
static void format_usage(base_buf *b, const cli_verb *verb)
{
    if (verb->usage)
        base_buf_puts(b, verb->usage);
    else
        base_buf_printf(b, "[options]%s%s", verb->args ? " " : "", verb->args ? verb->args : "");
}

static void put_usage(FILE *out, const cli_verb *verb, int width)
{
    base_buf usage = {0};
    format_usage(&usage, verb);
    int column = fprintf(out, "usage: banyan %s ", verb->name);
    put_wrapped(out, usage.data ? usage.data : "", usage.size, column, column, width);
    base_buf_free(&usage);
}

static void put_indented(FILE *out, const char *text)
{
    while (*text) {
        int n = (int)strcspn(text, "\n");
        fprintf(out, "%*s%.*s\n", n ? INDENT : 0, "", n, text);
        text += n + (text[n] == '\n');
    }
}

static int clamp_width(int width)
{
    return BY_MAX(NARROWEST, BY_MIN(WIDEST, width));
}

void cli_help_write(FILE *out, const cli_verb *verb, int width)
{
    width = clamp_width(width);
    int column = right_column(verb, width);
    fprintf(out, "banyan %s - %s\n\n", verb->name, verb->summary);
    put_usage(out, verb, width);
    if (verb->description) {
        fputc('\n', out);
        walk_text(out, verb->description, width, help_paragraph, help_verbatim);
    }
    const char *group = "";
    for (int i = 0; i < verb->option_count; i++) {
        if (strcmp(group, cli_group(verb->options, i)) != 0)
            fprintf(out, "\n%s\n", group = cli_group(verb->options, i));
        put_option(out, &verb->options[i], column, width);
    }
    fputc('\n', out);
    put_option(out, &HELP_ROW, column, width);
    if (verb->examples) {
        fputs("\nExamples\n", out);
        put_indented(out, verb->examples);
    }
}

void cli_overview_write(FILE *out, const cli_verb *const *verbs, int count, int width)
{
    int column = 0;
    width = clamp_width(width);
    for (int i = 0; i < count; i++)
        column = BY_MAX(column, INDENT + (int)strlen(verbs[i]->name) + GAP);
    fprintf(out, "banyan %s - train and run the transformer family\n\n", by_version());
    fputs("usage: banyan COMMAND [options]\n       banyan --help | --version\n", out);
    for (int i = 0; i < count; i++) {
        if (verbs[i]->group)
            fprintf(out, "\n%s\n", verbs[i]->group);
        put_row(out, verbs[i]->name, verbs[i]->summary, column, width);
    }
    fputs(
        "\nRun 'banyan help COMMAND' for the options and examples of a command, and 'banyan help --aliases'\n"
        "for option names of other programs that work too. Results go to stdout, progress and messages\n"
        "to stderr. The exit status is 0 only if the command succeeded.\n",
        out);
}

/* ---- roff ------------------------------------------------------------------------------------ */

/* Text that roff would take for its own: backslashes, quotes, hyphens that must stay hyphens, a control
 * character at the start of a line. */
static void put_roff(FILE *out, const char *s, size_t n)
{
    bool start = true;
    for (size_t i = 0; i < n; i++) {
        if (start && (s[i] == '.' || s[i] == '\''))
            fputs("\\&", out);
        start = s[i] == '\n';
        switch (s[i]) {
        case '\\':
            fputs("\\e", out);
            break;
        case '-':
            fputs("\\-", out);
            break;
        case '\'':
            fputs("\\(aq", out);
            break;
        case '`':
            fputs("\\(ga", out);
            break;
        case '~':
            fputs("\\(ti", out);
            break;
        case '^':
            fputs("\\(ha", out);
            break;
        default:
            fputc(s[i], out);
        }
    }
}

static void put_roff_string(FILE *out, const char *s)
{
    put_roff(out, s, strlen(s));
}

static void man_paragraph(FILE *out, const char *s, size_t n, int width)
{
    (void)width;
    fputs(".PP\n", out);
    put_roff(out, s, n);
    fputc('\n', out);
}

static void man_verbatim(FILE *out, const char *s, size_t n, int width)
{
    (void)width;
    if (n == 0)
        return;
    fputs(".br\n", out);
    size_t space = strspn(s, " ");
    fprintf(out, "\\&%*s", (int)space, ""); /* a leading space would cause an extra line break */
    put_roff(out, s + space, n - space);
    fputc('\n', out);
}

/* "label texts" as "Label texts." */
static void man_sentence(FILE *out, const char *s)
{
    fputc(*s >= 'a' && *s <= 'z' ? *s - 'a' + 'A' : *s, out);
    put_roff_string(out, s + (*s != 0));
    fputs(".\n", out);
}

static void man_option(FILE *out, const cli_option *o)
{
    base_buf detail = {0};
    const char *value = cli_value_name(o);
    fputs(".TP\n", out);
    if (o->letter)
        fprintf(out, "\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB\\-\\-", out);
    if (o->kind == CLI_FLAG && o->preset && !strcmp(o->preset, "yes"))
        fputs("[no\\-]", out);
    put_roff_string(out, o->name);
    fputs("\\fR", out);
    if (value) {
        fputs(" \\fI", out);
        put_roff_string(out, value);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    format_detail(&detail, o);
    put_roff_string(out, detail.data ? detail.data : o->help);
    fputc('\n', out);
    base_buf_free(&detail);
}

static void man_title(FILE *out, const char *verb, const char *summary)
{
    fputs(".TH BANYAN", out);
    for (const char *s = verb ? verb : ""; *s; s++)
        fprintf(out, "%s%c", s == verb ? "\\-" : "", *s >= 'a' && *s <= 'z' ? *s - 'a' + 'A' : *s);
    fprintf(out, " 1 \"\" \"banyan %s\" \"User Commands\"\n.SH NAME\nbanyan", by_version());
    if (verb) {
        fputs("\\-", out);
        put_roff_string(out, verb);
    }
    fputs(" \\- ", out);
    put_roff_string(out, summary);
    fputs("\n.SH SYNOPSIS\n", out);
}

static void man_exit_status(FILE *out)
{
    fputs(".SH EXIT STATUS\n"
          ".TP\n0\nsuccess\n.TP\n1\nfailure; the reason is on standard error\n"
          ".TP\n2\nwrong command line\n.TP\n130\ninterrupted\n",
          out);
}

void cli_man_write(FILE *out, const cli_verb *verb)
{
    base_buf usage = {0};
    man_title(out, verb->name, verb->summary);
    format_usage(&usage, verb);
    fputs(".B banyan ", out);
    put_roff_string(out, verb->name);
    fputc('\n', out);
    put_roff_string(out, usage.data ? usage.data : "");
    fputs("\n.SH DESCRIPTION\n", out);
    man_sentence(out, verb->summary);
    if (verb->description)
        walk_text(out, verb->description, 0, man_paragraph, man_verbatim);
    fputs(".SH OPTIONS\n", out);
    const char *group = "Options";
    for (int i = 0; i < verb->option_count; i++) {
        if (strcmp(group, cli_group(verb->options, i)) != 0) {
            fputs(".SS ", out);
            put_roff_string(out, group = cli_group(verb->options, i));
            fputc('\n', out);
        }
        man_option(out, &verb->options[i]);
    }
    man_option(out, &HELP_ROW);
    if (verb->examples) {
        fputs(".SH EXAMPLES\n.nf\n", out);
        put_roff_string(out, verb->examples);
        fputs(verb->examples[strlen(verb->examples) - 1] == '\n' ? ".fi\n" : "\n.fi\n", out);
    }
    man_exit_status(out);
    fputs(".SH SEE ALSO\n.BR banyan (1)\n", out);
    base_buf_free(&usage);
}

void cli_man_overview_write(FILE *out, const cli_verb *const *verbs, int count)
{
    man_title(out, NULL, "train and run the transformer family");
    fputs(".B banyan\n.I COMMAND\n[options]\n.br\n.B banyan\n\\-\\-help | \\-\\-version\n.SH COMMANDS\n",
          out);
    for (int i = 0; i < count; i++) {
        fputs(".TP\n.B ", out);
        put_roff_string(out, verbs[i]->name);
        fputc('\n', out);
        put_roff_string(out, verbs[i]->summary);
        fputc('\n', out);
    }
    fputs(".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nif set and not empty, turns colours off\n", out);
    man_exit_status(out);
    fputs(".SH SEE ALSO\n", out);
    for (int i = 0; i < count; i++) {
        fputs(".BR banyan\\-", out);
        put_roff_string(out, verbs[i]->name);
        fputs(i + 1 < count ? " (1),\n" : " (1)\n", out);
    }
}
