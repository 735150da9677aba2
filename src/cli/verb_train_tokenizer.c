/* verb_train_tokenizer.c - `banyan train-tokenizer`: a vocabulary from text files. */
#include "banyan/train_tokenizer.h"
#include "base/file.h"
#include "cli/common.h"
#include "cli/verbs.h"

typedef struct train_tokenizer_options {
    const char *like, *out, *prefix, *suffix, *unknown, *initial;
    by_vocab_kind kind;
    int64_t size, min_frequency;
    int limit, longest, threads;
    double shrinking;
    cli_list special;
    bool byte_level, lowercase, overwrite, json, quiet;
} train_tokenizer_options;

static const cli_option options[] = {
    {CLI_AT(train_tokenizer_options, like), .name = "like", .letter = 'l',
     .choices = "gpt2|roberta|gpt|bert|bert-cased|t5",
     .help = "copy the whole pipeline of that model: normaliser, splitter, kind, special tokens",
     .group = "Vocabulary"},
    {CLI_AT(train_tokenizer_options, kind), .name = "kind", .letter = 'k',
     .choices = "auto|bpe|wordpiece|unigram|word", .preset = "auto",
     .help = "algorithm, if --like is not given; auto is bpe"},
    {CLI_AT(train_tokenizer_options, size), .name = "vocab-size", .letter = 'v', CLI_RANGE(1, 8388608),
     .suffix = true, .preset = "30000", .help = "size of the vocabulary, special tokens included"},
    {CLI_AT(train_tokenizer_options, special), .name = "special", .letter = 's', .value = "A,B,...",
     .help = "special tokens, which get the first ids (default: those of --like)"},
    {CLI_AT(train_tokenizer_options, unknown), .name = "unknown", .value = "TOKEN",
     .help = "token for unknown text (default: <unk>, wordpiece: [UNK])"},

    {CLI_AT(train_tokenizer_options, byte_level), .name = "byte-level",
     .help = "bpe: work on bytes, so that no token is unknown", .group = "Text"},
    {CLI_AT(train_tokenizer_options, lowercase), .name = "lowercase", .help = "convert text to lower case"},
    {CLI_AT(train_tokenizer_options, prefix), .name = "continuing-prefix", .value = "TEXT",
     .help = "bpe, wordpiece: prefix of tokens that continue a word (default for wordpiece: ##)"},
    {CLI_AT(train_tokenizer_options, suffix), .name = "end-of-word-suffix", .value = "TEXT",
     .help = "bpe: suffix of tokens that end a word"},

    {CLI_AT(train_tokenizer_options, min_frequency), .name = "min-frequency", CLI_MIN(1), .suffix = true,
     .help = "bpe, wordpiece: do not merge rarer pairs (default: 2); word: drop rarer words (default: 1)",
     .group = "Limits"},
    {CLI_AT(train_tokenizer_options, limit), .name = "limit-alphabet", CLI_MIN(1),
     .help = "keep only the N most frequent characters"},
    {CLI_AT(train_tokenizer_options, initial), .name = "initial-alphabet", .value = "CHARS",
     .help = "characters to include in any case"},
    {CLI_AT(train_tokenizer_options, longest), .name = "max-token-length", CLI_MIN(1),
     .help = "longest token in characters (default for unigram: 16)"},
    {CLI_AT(train_tokenizer_options, shrinking), .name = "shrinking-factor", CLI_RANGE(0.05, 0.99),
     .preset = "0.75", .help = "unigram: fraction of the candidates kept in each round"},

    {CLI_AT(train_tokenizer_options, out), .name = "out", .letter = 'o', .value = "PATH",
     .help = "directory for tokenizer.json and tokenizer_config.json, or one file NAME.json",
     .group = "Output"},
    {CLI_AT(train_tokenizer_options, overwrite), .name = "overwrite",
     .help = "replace an existing tokenizer"},
    {CLI_AT(train_tokenizer_options, threads), .name = "threads", .letter = 't', CLI_RANGE(0, 256),
     .preset = "0", .help = "CPU threads; 0 uses every core. The result does not depend on it"},
    {CLI_AT(train_tokenizer_options, json), .name = "json", .help = "print the result as one JSON object"},
    {CLI_AT(train_tokenizer_options, quiet), .name = "quiet", .letter = 'q', .help = "show no progress"},
};

typedef struct screen {
    cli_progress bar;
    const char *phase;
    bool quiet;
} screen;

/* One bar per phase; text is counted in megabytes. */
static bool on_progress(void *user, const by_vocab_progress *p)
{
    screen *s = user;
    if (cli_interrupted())
        return false;
    if (s->quiet)
        return true;
    bool bytes = strcmp(p->phase, "count words") == 0;
    int64_t unit = bytes ? 1000000 : 1;
    if (!s->phase || strcmp(s->phase, p->phase) != 0) {
        cli_progress_end(&s->bar);
        s->phase = p->phase;
        s->bar = (cli_progress){.label = bytes ? "read, MB" : p->phase, .total = p->total / unit};
        cli_progress_start(&s->bar);
    }
    cli_progress_update(&s->bar, p->done / unit, "%lld words", (long long)p->words);
    return true;
}

/* Split "a,b" and ["a,b", "c"] into one list. The texts are cut in place, in a copy that *keep holds. */
static by_status split_special(const cli_list *given, base_arena *keep, const char ***out, int *count)
{
    size_t most = 1;
    for (int i = 0; i < given->count; i++)
        for (const char *c = given->items[i]; *c; c++)
            most += *c == ',';
    const char **list = base_arena_alloc(keep, (most + (size_t)given->count) * sizeof(*list));
    for (int i = 0; list && i < given->count; i++) {
        char *text = base_arena_strdup(keep, given->items[i]);
        for (char *next; text; text = next) {
            next = strchr(text, ',');
            if (next)
                *next++ = 0;
            if (*text)
                list[(*count)++] = text;
        }
    }
    *out = list;
    return list ? BY_OK : BY_ERR_MEMORY;
}

static bool is_json_file(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".json") == 0 && !base_dir_exists(path);
}

/* An existing tokenizer or model: with another vocabulary, the ids of the model would change their
 * meaning. */
static bool may_write(const char *out)
{
    static const char *const names[] = {
        "config.json", "tokenizer.json", "tokenizer_config.json",   "vocab.json", "vocab.txt",
        "merges.txt",  "spiece.model",   "sentencepiece.bpe.model", "source.spm"};
    if (base_file_exists(out)) {
        base_fail(BY_ERR_ARGUMENT, "%s exists", out);
        return false;
    }
    for (int i = 0; i < BY_COUNT(names); i++) {
        char *path = base_path_join(out, names[i]);
        const bool there = path && base_file_exists(path);
        if (there)
            base_fail(BY_ERR_ARGUMENT, "%s already holds a %s (%s)", out, i == 0 ? "model" : "tokenizer",
                      names[i]);
        base_free(path);
        if (there || !path)
            return false;
    }
    return true;
}

static int print_result(const train_tokenizer_options *o, const by_tokenizer *t, const by_vocab_result *r)
{
    if (o->json) {
        cJSON *j = cJSON_CreateObject();
        cJSON_AddStringToObject(j, "out", o->out);
        cJSON_AddStringToObject(j, "kind", tok_kind(t));
        cJSON_AddNumberToObject(j, "vocab_size", by_tokenizer_vocab_size(t));
        cJSON_AddNumberToObject(j, "alphabet", r->alphabet);
        cJSON_AddNumberToObject(j, "merges", r->merges);
        cJSON_AddNumberToObject(j, "bytes", (double)r->bytes);
        cJSON_AddNumberToObject(j, "lines", (double)r->lines);
        cJSON_AddNumberToObject(j, "words", (double)r->running);
        cJSON_AddNumberToObject(j, "different_words", (double)r->words);
        cJSON_AddNumberToObject(j, "count_seconds", r->count_seconds);
        cJSON_AddNumberToObject(j, "seconds", r->seconds);
        return cli_print_json(j);
    }
    printf("%s of %d tokens, %d of them characters, from %.1f MB with %lld different words, in %.1f s\n%s\n",
           tok_kind(t), by_tokenizer_vocab_size(t), r->alphabet, (double)r->bytes / 1e6, (long long)r->words,
           r->seconds, o->out);
    return CLI_OK;
}

/* What may help. */
static const char *hint_for(void)
{
    if (!strstr(by_error_message(), "too small"))
        return NULL;
    return "a larger --vocab-size (bytes alone are 256 tokens), or --limit-alphabet to leave rare characters "
           "out";
}

static int train(const train_tokenizer_options *o, const by_vocab_spec *spec, char **files, int count)
{
    by_vocab_result result;
    by_tokenizer *t = by_tokenizer_train(spec, (const char *const *)files, count, &result);
    cli_progress_end(&((screen *)spec->user)->bar);
    if (!t) {
        const char *hint = hint_for();
        return hint ? cli_fail("%s", hint) : cli_fail(NULL);
    }
    by_status s = is_json_file(o->out) ? by_tokenizer_write(t, o->out) : by_tokenizer_save(t, o->out);
    int code = s == BY_OK ? print_result(o, t, &result) : cli_fail(NULL);
    if (s == BY_OK && !o->quiet && result.size < spec->size)
        cli_note("the text yields only %d of the %d tokens asked for", result.size, spec->size);
    by_tokenizer_free(t);
    return code;
}

static int run(int argc, char **argv)
{
    train_tokenizer_options o;
    cli_args args;
    int code;
    if (!cli_parse(&cli_train_tokenizer, argc, argv, &o, &args, &code))
        return code;
    base_arena *keep = base_arena_new();
    screen s = {.quiet = o.quiet};
    by_vocab_spec spec = {
        .like = o.like,
        .kind = o.kind,
        .size = (int)o.size,
        .min_frequency = o.min_frequency,
        .unknown = o.unknown,
        .byte_level = o.byte_level,
        .lowercase = o.lowercase,
        .prefix = o.prefix,
        .suffix = o.suffix,
        .limit_alphabet = o.limit,
        .initial_alphabet = o.initial,
        .max_token_length = o.longest,
        .shrinking_factor = o.shrinking,
        .threads = o.threads,
        .progress = on_progress,
        .user = &s,
    };
    const char **special = NULL;
    cli_interrupt_install();
    if (!o.out)
        code = cli_usage_fail("no output: give --out DIR or --out NAME.json");
    else if (!o.overwrite && !may_write(o.out))
        code = cli_fail("use --overwrite to replace it, or another --out");
    else if (!keep ||
             (o.special.count && split_special(&o.special, keep, &special, &spec.special_count) != BY_OK))
        code = cli_fail(NULL);
    else {
        spec.special = special;
        code = train(&o, &spec, args.items, args.count);
    }
    base_arena_free(keep);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_train_tokenizer = {
    .name = "train-tokenizer",
    .summary = "train a BPE, WordPiece, Unigram or word-level tokenizer from text",
    .args = "FILE...",
    .description =
        "Reads text files line by line and writes a tokenizer that banyan and the HuggingFace libraries load "
        "with the same ids. Memory grows with the number of distinct words, not with the size of the text.\n"
        "\n"
        "--like selects a whole pipeline:\n"
        "  gpt2        bytes, BPE, <|endoftext|>\n"
        "  roberta     bytes, BPE, <s> <pad> </s> <unk> <mask>\n"
        "  gpt         lower case, BPE with </w> at word ends\n"
        "  bert        lower case without accents, WordPiece, [PAD] [UNK] [CLS] [SEP] [MASK]\n"
        "  bert-cased  the same with case and accents\n"
        "  t5          Unigram with a visible space, <pad> </s> <unk>, and 100 <extra_id_N> after the "
        "vocabulary\n"
        "\n"
        "Without --like, --kind selects the algorithm. BPE then works on bytes (--byte-level), with the "
        "given suffix at word ends or prefix inside words, or otherwise with a visible space before words. "
        "BPE produces the merges of the reference trainer in the same order. word keeps the most frequent "
        "words, split at spaces, with the line end as a word; all others are unknown.",
    .examples = "banyan train-tokenizer --like gpt2 --vocab-size 32000 corpus/*.txt --out my-tokenizer\n"
                "banyan train-tokenizer --kind unigram --vocab-size 8000 --special '<s>,</s>' text.txt --out "
                "unigram.json\n"
                "banyan train --data text.txt --tokenizer my-tokenizer --out runs/x\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
