/* completion.c - completion scripts for bash, zsh and fish, written from the verbs' tables. */
#include "banyan/finetune.h"
#include "banyan/model.h"
#include "cli/verbs.h"

typedef enum value_class { NOTHING, CHOICES, PATHS } value_class;

/* ---- words for values ------------------------------------------------------------------------ */

static void put_families(FILE *out)
{
    for (int i = 0; by_family_at(i); i++)
        fprintf(out, "%s%s", i ? " " : "", by_family_at(i));
}

/* The presets of all families, each once. */
static void put_presets(FILE *out)
{
    int shown = 0;
    for (int i = 0; by_family_at(i); i++)
        for (int k = 0; by_family_preset(i, k); k++) {
            bool known = false;
            for (int a = 0; a <= i && !known; a++)
                for (int b = 0; by_family_preset(a, b) && !(a == i && b == k) && !known; b++)
                    known = strcmp(by_family_preset(a, b), by_family_preset(i, k)) == 0;
            if (!known)
                fprintf(out, "%s%s", shown++ ? " " : "", by_family_preset(i, k));
        }
}

static void put_recipes(FILE *out)
{
    for (int i = 0; by_recipe_at(i); i++)
        fprintf(out, "%s%s", i ? " " : "", by_recipe_at(i)->name);
}

static void put_devices(FILE *out)
{
    fputs("auto cpu cuda", out);
}

/* The work of by_example_kind_find. */
static void put_tasks(FILE *out)
{
    static const char *const names[] = {"classify", "regress", "tag", "answer",
                                        "choice",   "seq2seq", "mlm", "lm"};
    by_example_kind kind;
    int shown = 0;
    for (int i = 0; i < BY_COUNT(names); i++)
        if (by_example_kind_find(names[i], &kind))
            fprintf(out, "%s%s", shown++ ? " " : "", names[i]);
}

/* Options whose values are known words without being a fixed choice, by name and value name. */
typedef void words_fn(FILE *out);
static words_fn *words_of(const cli_option *o)
{
    static const struct {
        const char *name, *value;
        words_fn *put;
    } known[] = {{"model", "FAMILY", put_families},
                 {"preset", "NAME", put_presets},
                 {"recipe", "NAME", put_recipes},
                 {"device", NULL, put_devices},
                 {"task", "TASK", put_tasks}};
    for (int i = 0; i < BY_COUNT(known); i++)
        if (strcmp(o->name, known[i].name) == 0 &&
            (!known[i].value || (o->value && strcmp(o->value, known[i].value) == 0)))
            return known[i].put;
    return NULL;
}

static value_class class_of(const cli_option *o)
{
    return o->choices || words_of(o) ? CHOICES : cli_value_is_path(o) ? PATHS : NOTHING;
}

/* "a|b|c" as "a b c". */
static void put_choices(FILE *out, const char *choices, int length)
{
    for (int i = 0; i < length; i++)
        fputc(choices[i] == '|' ? ' ' : choices[i], out);
}

static void put_values(FILE *out, const cli_option *o)
{
    if (o->choices)
        put_choices(out, o->choices, (int)strlen(o->choices));
    else
        words_of(o)(out);
}

static void put_verb_names(FILE *out, const cli_verb *const *verbs, int count)
{
    for (int i = 0; i < count; i++)
        fprintf(out, "%s%s", i ? " " : "", verbs[i]->name);
}

static bool is_choice(const cli_word *w)
{
    return memchr(w->text, '|', (size_t)w->length) != NULL;
}

static bool word_is(const cli_word *w, const char *name)
{
    return (size_t)w->length == strlen(name) && memcmp(w->text, name, (size_t)w->length) == 0;
}

/* Whether a positional argument may be a path: anything but choices and command names. */
static bool takes_paths(const cli_verb *verb)
{
    const char *cursor = verb->args ? verb->args : "";
    cli_word w;
    while (cli_word_next(&cursor, ' ', &w))
        if (!is_choice(&w) && !word_is(&w, "COMMAND"))
            return true;
    return false;
}

/* ---- bash ------------------------------------------------------------------------------------ */

/* A case branch "verb:--name|verb:-n)" for each option with a value. */
static void bash_values(FILE *out, const cli_verb *verb)
{
    for (int i = 0; i < verb->option_count; i++) {
        const cli_option *o = &verb->options[i];
        if (o->kind == CLI_FLAG)
            continue;
        fprintf(out, "    %s:--%s", verb->name, o->name);
        if (o->alias)
            fprintf(out, "|%s:--%s", verb->name, o->alias);
        if (o->letter)
            fprintf(out, "|%s:-%c", verb->name, o->letter);
        fputs(") ", out);
        if (class_of(o) == CHOICES) {
            fputs("words='", out);
            put_values(out, o);
            fputs("' ;;\n", out);
        } else {
            fputs(class_of(o) == PATHS ? "return ;;\n" : "compopt +o default; return ;;\n", out);
        }
    }
}

/* The words that may follow the verb itself: its options, and its arguments where these are known words. */
static void bash_words(FILE *out, const cli_verb *verb, const cli_verb *const *verbs, int count)
{
    const char *cursor = verb->args ? verb->args : "";
    cli_word w;
    fprintf(out, "    %s)\n        options='", verb->name);
    for (int i = 0; i < verb->option_count; i++) {
        const cli_option *o = &verb->options[i];
        fprintf(out, "--%s ", o->name);
        if (o->kind == CLI_FLAG && o->preset)
            fprintf(out, "--no-%s ", o->name);
    }
    fputs("--help'\n        words='", out);
    while (cli_word_next(&cursor, ' ', &w)) {
        if (word_is(&w, "COMMAND"))
            put_verb_names(out, verbs, count);
        else if (is_choice(&w))
            put_choices(out, w.text, w.length);
        else
            continue;
        break;
    }
    fputs("' ;;\n", out);
}

static void write_bash(FILE *out, const cli_verb *const *verbs, int count)
{
    fputs("# bash completion for banyan: eval \"$(banyan completion bash)\"\n"
          "_banyan()\n{\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}\n"
          "    local words='' options='' word\n"
          "    COMPREPLY=()\n"
          "    # bash cuts --name=value into three words\n"
          "    if [[ $cur == '=' ]]; then\n        cur=''\n"
          "    elif [[ $prev == '=' && $COMP_CWORD -gt 2 ]]; then\n        "
          "prev=${COMP_WORDS[COMP_CWORD-2]}\n    fi\n"
          "    if [[ $COMP_CWORD -eq 1 ]]; then\n        prev=''\n        verb=''\n        words='",
          out);
    put_verb_names(out, verbs, count);
    fputs("'\n        options='--help --version'\n    fi\n    case $verb in\n", out);
    for (int i = 0; i < count; i++)
        bash_words(out, verbs[i], verbs, count);
    fputs("    esac\n    case $verb:$prev in\n", out);
    for (int i = 0; i < count; i++)
        bash_values(out, verbs[i]);
    fputs("    esac\n"
          "    [[ $cur == -* ]] && words=$options\n"
          "    while IFS='' read -r word; do\n        COMPREPLY+=(\"$word\")\n"
          "    done < <(compgen -W \"$words\" -- \"$cur\")\n"
          "}\n"
          "complete -o default -F _banyan banyan\n",
          out);
}

/* ---- zsh ------------------------------------------------------------------------------------- */

/* Escapes for '...[here]...': the quote, and characters that _arguments interprets. */
static void put_zsh(FILE *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '\'')
            fputs("'\\''", out);
        else if (strchr("[]:\\", *s))
            fprintf(out, "\\%c", *s);
        else
            fputc(*s, out);
    }
}

/* One spelling of an option: '(-n --steps)--steps=[timed steps]:N:( )'. */
static void zsh_spelling(FILE *out, const cli_option *o, const char *dashes, const char *name)
{
    const char *value = cli_value_name(o);
    fputs(" \\\n            '", out);
    if (o->kind == CLI_LIST) {
        fputc('*', out);
    } else {
        fprintf(out, "(--%s", o->name);
        if (o->letter)
            fprintf(out, " -%c", o->letter);
        if (o->alias)
            fprintf(out, " --%s", o->alias);
        if (o->kind == CLI_FLAG)
            fprintf(out, " --no-%s", o->name);
        fputc(')', out);
    }
    fprintf(out, "%s%s%s[", dashes, name, !value ? "" : dashes[1] ? "=" : "+");
    fputs(o->kind == CLI_FLAG && strncmp(name, "no-", 3) == 0 ? "turn off\\: " : "", out);
    put_zsh(out, o->help);
    fputc(']', out);
    if (value) {
        fputc(':', out);
        put_zsh(out, o->value ? o->value : o->name);
        fputc(':', out);
        if (class_of(o) == CHOICES) {
            fputc('(', out);
            put_values(out, o);
            fputc(')', out);
        } else if (class_of(o) == PATHS) {
            fputs("_files", out);
        }
    }
    fputc('\'', out);
}

static void zsh_option(FILE *out, const cli_option *o)
{
    char letter[2] = {o->letter, 0}, negated[64];
    zsh_spelling(out, o, "--", o->name);
    if (o->alias)
        zsh_spelling(out, o, "--", o->alias);
    if (o->letter)
        zsh_spelling(out, o, "-", letter);
    if (o->kind == CLI_FLAG && o->preset) {
        snprintf(negated, sizeof negated, "no-%s", o->name);
        zsh_spelling(out, o, "--", negated);
    }
}

static void zsh_verb(FILE *out, const cli_verb *verb, const cli_verb *const *verbs, int count)
{
    const char *cursor = verb->args ? verb->args : "";
    cli_word w;
    fprintf(out,
            "    %s)\n        _arguments -s -S \\\n            '(-h --help)'{-h,--help}'[show the help]'",
            verb->name);
    for (int i = 0; i < verb->option_count; i++)
        zsh_option(out, &verb->options[i]);
    for (int i = 1; cli_word_next(&cursor, ' ', &w); i++) {
        if (w.repeated)
            fputs(" \\\n            '*:", out);
        else
            fprintf(out, " \\\n            '%d:%s", i, w.optional ? ":" : "");
        if (word_is(&w, "COMMAND")) {
            fputs("command:(", out);
            put_verb_names(out, verbs, count);
            fputs(")'", out);
        } else if (is_choice(&w)) {
            fputs("what:(", out);
            put_choices(out, w.text, w.length);
            fputs(")'", out);
        } else {
            fprintf(out, "%.*s:_files'", w.length, w.text);
        }
    }
    fputs("\n        ;;\n", out);
}

static void write_zsh(FILE *out, const cli_verb *const *verbs, int count)
{
    fputs("#compdef banyan\n"
          "# zsh completion for banyan: source <(banyan completion zsh), or save as _banyan in a folder of "
          "$fpath\n"
          "_banyan()\n{\n    local -a verbs\n    verbs=(",
          out);
    for (int i = 0; i < count; i++) {
        fprintf(out, "\n        '%s:", verbs[i]->name);
        put_zsh(out, verbs[i]->summary);
        fputc('\'', out);
    }
    fputs("\n    )\n"
          "    if (( CURRENT == 2 )); then\n"
          "        _describe -t commands command verbs\n"
          "        _arguments '(- *)'{-h,--help}'[show the help]' '(- *)'{-V,--version}'[show the version]'\n"
          "        return\n    fi\n"
          "    shift words\n    (( CURRENT-- ))\n"
          "    case $words[1] in\n",
          out);
    for (int i = 0; i < count; i++)
        zsh_verb(out, verbs[i], verbs, count);
    fputs(
        "    esac\n}\n"
        "if [[ $funcstack[1] == _banyan ]]; then\n    _banyan \"$@\"\nelse\n    compdef _banyan banyan\nfi\n",
        out);
}

/* ---- fish ------------------------------------------------------------------------------------ */

static void put_fish(FILE *out, const char *s)
{
    fputc('\'', out);
    for (; *s; s++)
        fprintf(out, *s == '\'' || *s == '\\' ? "\\%c" : "%c", *s);
    fputc('\'', out);
}

static void fish_option(FILE *out, const cli_verb *verb, const cli_option *o)
{
    fprintf(out, "complete -c banyan -n '__banyan_verb %s' -l %s", verb->name, o->name);
    if (o->alias)
        fprintf(out, " -l %s", o->alias);
    if (o->letter)
        fprintf(out, " -s %c", o->letter);
    if (o->kind != CLI_FLAG)
        fputs(class_of(o) == PATHS ? " -r -F" : " -x", out);
    if (class_of(o) == CHOICES) {
        fputs(" -a '", out);
        put_values(out, o);
        fputc('\'', out);
    }
    fputs(" -d ", out);
    put_fish(out, o->help);
    fputc('\n', out);
    if (o->kind == CLI_FLAG && o->preset)
        fprintf(out, "complete -c banyan -n '__banyan_verb %s' -l no-%s -d 'turn off'\n", verb->name,
                o->name);
}

static void fish_arguments(FILE *out, const cli_verb *verb, const cli_verb *const *verbs, int count)
{
    const char *cursor = verb->args ? verb->args : "";
    cli_word w;
    if (takes_paths(verb))
        fprintf(out, "complete -c banyan -n '__banyan_verb %s' -F\n", verb->name);
    while (cli_word_next(&cursor, ' ', &w)) {
        if (!word_is(&w, "COMMAND") && !is_choice(&w))
            continue;
        fprintf(out, "complete -c banyan -n '__banyan_verb %s' -a '", verb->name);
        if (is_choice(&w))
            put_choices(out, w.text, w.length);
        else
            put_verb_names(out, verbs, count);
        fputs("'\n", out);
    }
}

static void write_fish(FILE *out, const cli_verb *const *verbs, int count)
{
    fputs("# fish completion for banyan: banyan completion fish | source\n"
          "# is the command argv[1], or still to come when there is no argv[1]? (bench train is not train)\n"
          "function __banyan_verb\n"
          "    set -l words (commandline -opc)\n"
          "    test \"$words[2]\" = \"$argv[1]\"\n"
          "end\n"
          "complete -c banyan -f\n"
          "complete -c banyan -s h -l help -d 'show the help'\n"
          "complete -c banyan -n __banyan_verb -s V -l version -d 'show the version'\n",
          out);
    for (int i = 0; i < count; i++) {
        fprintf(out, "complete -c banyan -n __banyan_verb -a %s -d ", verbs[i]->name);
        put_fish(out, verbs[i]->summary);
        fputc('\n', out);
    }
    for (int i = 0; i < count; i++) {
        fish_arguments(out, verbs[i], verbs, count);
        for (int j = 0; j < verbs[i]->option_count; j++)
            fish_option(out, verbs[i], &verbs[i]->options[j]);
    }
}

bool cli_completion_write(FILE *out, const char *shell, const cli_verb *const *verbs, int count)
{
    static const struct {
        const char *name;
        void (*write)(FILE *out, const cli_verb *const *verbs, int count);
    } shells[] = {{"bash", write_bash}, {"zsh", write_zsh}, {"fish", write_fish}};
    for (int i = 0; i < BY_COUNT(shells); i++)
        if (strcmp(shell, shells[i].name) == 0) {
            shells[i].write(out, verbs, count);
            return true;
        }
    return false;
}
