/* verb_score.c - `banyan score`: BLEU, chrF and ROUGE of a file of texts against files of references. */
#include <errno.h>
#include <stdlib.h>

#include "banyan/score.h"
#include "base/file.h"
#include "base/input.h"
#include "cli/common.h"
#include "cli/ngram_verbs.h"
#include "cli/show.h"
#include "cli/verbs.h"

enum { BLEU, CHRF, CHRF_PP, ROUGE, METRICS };

typedef struct score_options {
    const char *metric, *line_break;
    unsigned words, smooth;
    double smooth_value;
    bool lowercase, stem, sentence, each_word, json;
    int width;
} score_options;

static const cli_option options[] = {
    {CLI_AT(score_options, metric), .name = "metric", .letter = 'm', .preset = "bleu", .value = "LIST",
     .help = "comma-separated list of bleu, chrf, chrf++, rouge", .group = "Metrics"},
    {CLI_AT(score_options, lowercase), .name = "lowercase", .help = "BLEU, chrF: ignore case"},
    {CLI_AT(score_options, words), .name = "tokenize", .choices = "13a|none|char|intl", .preset = "13a",
     .help = "BLEU: tokenizer"},
    {CLI_AT(score_options, smooth), .name = "smooth", .choices = "exp|floor|add-k|none", .preset = "exp",
     .help = "BLEU: smoothing of n-gram orders without a match"},
    {CLI_AT(score_options, smooth_value), .name = "smooth-value", CLI_MIN(0),
     .help = "BLEU: value for floor (default: 0.1) and add-k (default: 1)"},
    {CLI_AT(score_options, stem), .name = "stem", .help = "ROUGE: compare stems of words, for English"},
    {CLI_AT(score_options, line_break), .name = "line-break", .value = "TEXT",
     .help = "ROUGE: separator between the sentences of a line, such as \"<n>\""},
    {CLI_AT(score_options, sentence), .name = "sentence", .letter = 's',
     .help = "print scores of each line instead of the whole file", .group = "Output"},
    {CLI_AT(score_options, each_word), .name = "words",
     .help = "n-gram models: also print every word with its id, the length of the n-gram found and log10 p"},
    {CLI_AT(score_options, json), .name = "json", .help = "print JSON objects, with all digits"},
    {CLI_AT(score_options, width), .name = "width", .letter = 'w', CLI_RANGE(0, 15), .preset = "2",
     .help = "decimals of scores"},
};

typedef struct source {
    const char *path;
    FILE *file;
    char *line;
    size_t room;
    int64_t lines;
} source;

typedef struct job {
    score_options o;
    bool wanted[METRICS];
    by_bleu *bleu;
    by_chrf *chrf, *chrf_pp;
    by_rouge *rouge;
    source *sources; /* the hypotheses, then references */
    const char **references;
    int count; /* of sources */
} job;

/* ---- lines ----------------------------------------------------------------------------------- */

static const char *name_of(const source *s)
{
    return strcmp(s->path, "-") == 0 ? "the input" : s->path;
}

static by_status open_sources(job *j, char **paths)
{
    int inputs = 0;
    for (int i = 0; i < j->count; i++) {
        source *s = &j->sources[i];
        s->path = paths[i];
        bool input = strcmp(paths[i], "-") == 0;
        inputs += input;
        s->file = input ? stdin : base_input_open(paths[i]);
        if (!s->file)
            return base_error_status();
    }
    return inputs > 1 ? base_fail(BY_ERR_ARGUMENT, "standard input (-) can be given only once") : BY_OK;
}

/* The next line without its end; *more is false at the end. */
static by_status next_line(source *s, bool *more)
{
    errno = 0;
    ssize_t size = getline(&s->line, &s->room, s->file);
    *more = size >= 0;
    if (size < 0)
        return base_input_check(s->file, s->path);
    s->lines++;
    if (strlen(s->line) != (size_t)size)
        return base_fail(BY_ERR_FORMAT, "%s: line %lld contains a NUL character", name_of(s),
                         (long long)s->lines);
    if (size > 0 && s->line[size - 1] == '\n')
        s->line[--size] = '\0';
    if (size > 0 && s->line[size - 1] == '\r')
        s->line[--size] = '\0';
    return BY_OK;
}

/* Some file has ended and another has not: count what is left, to say how many lines there are. */
static by_status uneven(job *j)
{
    for (int i = 0; i < j->count; i++)
        for (bool more = true; more && !cli_interrupted();)
            BY_TRY(next_line(&j->sources[i], &more));
    const source *a = &j->sources[0], *b = a + 1;
    while (b->lines == a->lines && b < j->sources + j->count - 1)
        b++;
    return base_fail(BY_ERR_FORMAT, "%s has %lld lines, %s has %lld", name_of(a), (long long)a->lines,
                     name_of(b), (long long)b->lines);
}

/* One line of every file. */
static by_status next_lines(job *j, bool *more)
{
    int ended = 0;
    for (int i = 0; i < j->count; i++) {
        BY_TRY(next_line(&j->sources[i], more));
        ended += !*more;
        if (i > 0)
            j->references[i - 1] = j->sources[i].line;
    }
    *more = ended == 0;
    if (ended != 0 && ended != j->count)
        return uneven(j);
    if (ended && j->sources[0].lines == 0)
        return base_fail(BY_ERR_FORMAT, "%s has no lines", name_of(&j->sources[0]));
    return BY_OK;
}

/* Replaces the line separator by newlines, in place, which never lengthens the text. */
static void break_lines(char *line, const char *mark)
{
    const size_t n = strlen(mark);
    char *out = line;
    for (const char *in = line; *in;) {
        bool is = strncmp(in, mark, n) == 0;
        *out++ = is ? '\n' : *in;
        in += is ? n : 1;
    }
    *out = '\0';
}

/* ---- metrics --------------------------------------------------------------------------------- */

static by_status choose_metrics(job *j)
{
    static const char *const names[] = {"bleu", "chrf", "chrf++", "rouge"};
    const char *at = j->o.metric;
    while (*at) {
        size_t n = strcspn(at, ",");
        int k = 0;
        while (k < METRICS && (strlen(names[k]) != n || strncmp(names[k], at, n) != 0))
            k++;
        if (k == METRICS)
            return base_fail(BY_ERR_ARGUMENT, "--metric: \"%.*s\" is not one of bleu, chrf, chrf++, rouge",
                             (int)n, at);
        j->wanted[k] = true;
        at += n + (at[n] == ',');
    }
    return at == j->o.metric ? base_fail(BY_ERR_ARGUMENT, "--metric is empty") : BY_OK;
}

static by_status make_metrics(job *j)
{
    const score_options *o = &j->o;
    by_bleu_spec bleu = {.words = (by_bleu_words)o->words,
                         .smooth = (by_bleu_smooth)o->smooth,
                         .smooth_value = o->smooth_value,
                         .lowercase = o->lowercase,
                         .effective_order = o->sentence};
    by_chrf_spec chrf = {.lowercase = o->lowercase};
    by_chrf_spec chrf_pp = {.lowercase = o->lowercase, .word_order = 2};
    by_rouge_spec rouge = {.stem = o->stem};
    if ((j->wanted[BLEU] && !(j->bleu = by_bleu_new(&bleu))) ||
        (j->wanted[CHRF] && !(j->chrf = by_chrf_new(&chrf))) ||
        (j->wanted[CHRF_PP] && !(j->chrf_pp = by_chrf_new(&chrf_pp))) ||
        (j->wanted[ROUGE] && !(j->rouge = by_rouge_new(&rouge))))
        return base_error_status();
    return BY_OK;
}

static by_status add(job *j)
{
    const char *text = j->sources[0].line;
    const int n = j->count - 1;
    by_status s = BY_OK;
    if (j->o.sentence) {
        if (j->bleu)
            by_bleu_clear(j->bleu);
        if (j->chrf)
            by_chrf_clear(j->chrf);
        if (j->chrf_pp)
            by_chrf_clear(j->chrf_pp);
        if (j->rouge)
            by_rouge_clear(j->rouge);
    }
    if (j->bleu)
        s = by_bleu_add(j->bleu, text, j->references, n);
    if (s == BY_OK && j->chrf)
        s = by_chrf_add(j->chrf, text, j->references, n);
    if (s == BY_OK && j->chrf_pp)
        s = by_chrf_add(j->chrf_pp, text, j->references, n);
    for (int i = 0; i < j->count && j->o.line_break && *j->o.line_break; i++)
        break_lines(j->sources[i].line, j->o.line_break);
    if (s == BY_OK && j->rouge)
        s = by_rouge_add(j->rouge, text, j->references, n);
    return s == BY_OK ? s : base_fail_context("line %lld", (long long)j->sources[0].lines);
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_bleu(job *j)
{
    by_bleu_score s;
    by_bleu_read(j->bleu, &s);
    printf("BLEU|%s = %.*f", by_bleu_signature(j->bleu), j->o.width, s.score);
    for (int n = 0; n < BY_BLEU_ORDER; n++)
        printf("%c%.1f", n ? '/' : ' ', s.precision[n]);
    printf(" (BP = %.3f ratio = %.3f hyp_len = %lld ref_len = %lld)\n", s.brevity, s.ratio,
           (long long)s.hypothesis_words, (long long)s.reference_words);
}

static void print_chrf(const job *j, by_chrf *c)
{
    printf("%s|%s = %.*f\n", by_chrf_name(c), by_chrf_signature(c), j->o.width, by_chrf_read(c));
}

static void print_rouge(job *j)
{
    by_rouge_score s[BY_ROUGE_COUNT];
    by_rouge_read(j->rouge, s);
    for (int k = 0; k < BY_ROUGE_COUNT; k++)
        printf("%s|%s = %.*f (P = %.*f R = %.*f)\n", by_rouge_name((by_rouge_kind)k),
               by_rouge_signature(j->rouge), j->o.width, 100 * s[k].f1, j->o.width, 100 * s[k].precision,
               j->o.width, 100 * s[k].recall);
}

static void json_bleu(job *j, cJSON *o)
{
    by_bleu_score s;
    by_bleu_read(j->bleu, &s);
    cli_json_number(o, "score", s.score);
    cJSON_AddItemToObject(o, "precisions", cJSON_CreateDoubleArray(s.precision, BY_BLEU_ORDER));
    cli_json_number(o, "bp", s.brevity);
    cli_json_number(o, "ratio", s.ratio);
    cli_json_number(o, "hyp_len", (double)s.hypothesis_words);
    cli_json_number(o, "ref_len", (double)s.reference_words);
    cJSON_AddStringToObject(o, "signature", by_bleu_signature(j->bleu));
}

static void json_chrf(by_chrf *c, cJSON *o)
{
    cli_json_number(o, "score", by_chrf_read(c));
    cJSON_AddStringToObject(o, "signature", by_chrf_signature(c));
}

static void json_rouge(job *j, cJSON *o)
{
    by_rouge_score s[BY_ROUGE_COUNT];
    by_rouge_read(j->rouge, s);
    for (int k = 0; k < BY_ROUGE_COUNT; k++) {
        cJSON *one = cJSON_AddObjectToObject(o, by_rouge_name((by_rouge_kind)k));
        cli_json_number(one, "precision", s[k].precision);
        cli_json_number(one, "recall", s[k].recall);
        cli_json_number(one, "f1", s[k].f1);
    }
    cJSON_AddStringToObject(o, "signature", by_rouge_signature(j->rouge));
}

static bool print_json(job *j)
{
    cJSON *o = cJSON_CreateObject();
    if (j->bleu)
        json_bleu(j, cJSON_AddObjectToObject(o, "bleu"));
    if (j->chrf)
        json_chrf(j->chrf, cJSON_AddObjectToObject(o, "chrf"));
    if (j->chrf_pp)
        json_chrf(j->chrf_pp, cJSON_AddObjectToObject(o, "chrf++"));
    if (j->rouge)
        json_rouge(j, cJSON_AddObjectToObject(o, "rouge"));
    return cli_print_json(o) == CLI_OK;
}

/* False when nothing more can be written. */
static bool print(job *j)
{
    if (j->o.json)
        return print_json(j);
    if (j->bleu)
        print_bleu(j);
    if (j->chrf)
        print_chrf(j, j->chrf);
    if (j->chrf_pp)
        print_chrf(j, j->chrf_pp);
    if (j->rouge)
        print_rouge(j);
    return ferror(stdout) == 0;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static by_status prepare(job *j, const cli_args *args)
{
    j->count = args->count;
    j->sources = base_alloc_zero((size_t)j->count, sizeof *j->sources);
    j->references = base_alloc_zero((size_t)j->count, sizeof *j->references);
    if (!j->sources || !j->references)
        return BY_ERR_MEMORY;
    BY_TRY(choose_metrics(j));
    BY_TRY(make_metrics(j));
    return open_sources(j, args->items);
}

static void close_job(job *j)
{
    for (int i = 0; i < j->count && j->sources; i++) {
        if (j->sources[i].file && j->sources[i].file != stdin)
            fclose(j->sources[i].file);
        free(j->sources[i].line);
    }
    base_free(j->sources);
    base_free(j->references);
    by_bleu_free(j->bleu);
    by_chrf_free(j->chrf);
    by_chrf_free(j->chrf_pp);
    by_rouge_free(j->rouge);
}

/* Lines of text under an n-gram model. */
static int score_ngram(const score_options *o, const cli_args *args)
{
    static const char *const names[] = {"words", "sentence", "json", "width", NULL};
    const cli_option *other = cli_given_beyond(args, names, NULL);
    if (other)
        return cli_usage_fail("--%s is not for n-gram models", other->name);
    return cli_ngram_scores(&(cli_ngram_score){.path = args->items[0],
                                               .files = args->items + 1,
                                               .count = args->count - 1,
                                               .words = o->each_word,
                                               .json = o->json,
                                               .width = cli_given(args, &o->width) ? o->width : 6});
}

/* A usage error, or CLI_OK. */
static int check_usage(const score_options *o, const cli_args *args)
{
    if (base_dir_exists(args->items[0]))
        return cli_usage_fail("%s is a directory, but not an n-gram model: give files of texts, or `banyan "
                              "eval` for a neural model",
                              args->items[0]);
    if (args->count < 2)
        return cli_usage_fail("missing REFERENCES (see banyan score --help)");
    return o->each_word ? cli_usage_fail("--words is for n-gram models") : CLI_OK;
}

static int run(int argc, char **argv)
{
    job j = {0};
    cli_args args;
    int code;
    if (!cli_parse(&cli_score, argc, argv, &j.o, &args, &code))
        return code;
    const bool ngram = cli_model_kind(args.items[0]) == CLI_MODEL_NGRAM;
    if (ngram || (code = check_usage(&j.o, &args)) != CLI_OK) {
        code = ngram ? score_ngram(&j.o, &args) : code;
        cli_args_free(&args);
        return code;
    }
    cli_interrupt_install();
    bool more = true, written = true;
    by_status s = prepare(&j, &args);
    while (s == BY_OK && more && written && !cli_interrupted()) {
        s = next_lines(&j, &more);
        if (s == BY_OK && more)
            s = add(&j);
        if (s == BY_OK && (j.o.sentence ? more : !more))
            written = print(&j);
    }
    code = s != BY_OK ? cli_fail(NULL) : cli_interrupted() ? CLI_INTERRUPTED : written ? CLI_OK : CLI_FAILED;
    close_job(&j);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_score = {
    .name = "score",
    .summary = "compute BLEU, chrF and ROUGE against references, or log-probabilities of lines",
    .usage = "[options] HYPOTHESES REFERENCES... | NGRAM-MODEL [FILE...]",
    .args = "HYPOTHESES [REFERENCES...]",
    .description =
        "All files hold one text per line and have the same number of lines; - is standard input. Each "
        "REFERENCES file adds a reference for every text. Scores equal those of sacreBLEU and rouge_score to "
        "the last digit. ROUGE is printed in per cent: F1, precision and recall, averaged over lines.\n"
        "\n"
        "If the first argument is an n-gram model (a directory, a binary or an ARPA file), it scores the "
        "lines of the files or of standard input: the total log10 p of each line, as KenLM's query prints "
        "it, and with --words that of every word.",
    .examples = "banyan score output.de test.de\n"
                "banyan score --metric bleu,chrf,chrf++ --json output.de test.de test.2.de\n"
                "banyan score --metric rouge --stem --line-break \"<n>\" summaries.txt highlights.txt\n"
                "banyan score --words lm.arpa.gz sentences.txt\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
