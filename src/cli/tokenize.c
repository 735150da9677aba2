/* tokenize.c - `banyan tokenize`: text to token ids and back, line by line. */
#include <errno.h>
#include <stdlib.h>

#include "base/file.h"
#include "cli/common.h"
#include "cli/verbs.h"
#include "io/json.h"

typedef struct tokenize_options {
    bool jsonl, no_special, decode, offsets;
} tokenize_options;

static const cli_option options[] = {
    {CLI_AT(tokenize_options, jsonl), .name = "jsonl",
     .help = "lines are JSON: {\"text\": ...} (and \"pair\") gives {\"ids\": [...]}, and with --decode the "
             "other way"},
    {CLI_AT(tokenize_options, no_special), .name = "no-special",
     .help = "no special tokens around the text; with --decode, none in it"},
    {CLI_AT(tokenize_options, decode), .name = "decode", .letter = 'd', .help = "ids to text"},
    {CLI_AT(tokenize_options, offsets), .name = "offsets",
     .help = "also the bytes of the text that each token stands for"},
};

typedef struct job {
    tokenize_options o;
    by_tokenizer *tokenizer;
    by_buf out;
    int64_t line;
} job;

/* ---- text to ids ------------------------------------------------------------------------------ */

static void put_plain(job *j, const by_encoding *e)
{
    for (size_t i = 0; i < e->ids.count; i++) {
        by_buf_printf(&j->out, i ? " %d" : "%d", (int)e->ids.data[i]);
        if (j->o.offsets)
            by_buf_printf(&j->out, ":%u-%u", e->offsets[i].start, e->offsets[i].end);
    }
    by_buf_puts(&j->out, "\n");
}

static void put_json(job *j, const by_encoding *e)
{
    by_buf_puts(&j->out, "{\"ids\":[");
    for (size_t i = 0; i < e->ids.count; i++)
        by_buf_printf(&j->out, i ? ",%d" : "%d", (int)e->ids.data[i]);
    by_buf_puts(&j->out, "]");
    for (size_t i = 0; i < e->ids.count && j->o.offsets; i++)
        by_buf_printf(&j->out, i ? ",[%u,%u]" : ",\"offsets\":[[%u,%u]", e->offsets[i].start,
                      e->offsets[i].end);
    by_buf_puts(&j->out, j->o.offsets && e->ids.count ? "]}\n" : "}\n");
}

static by_status encode(job *j, const char *text, size_t size, const char *pair)
{
    by_encode_spec spec = {.special = !j->o.no_special,
                           .offsets = j->o.offsets,
                           .whole = true,
                           .pair = pair,
                           .pair_size = pair ? strlen(pair) : 0};
    by_encoding e;
    by_status s = by_tokenizer_encode_with(j->tokenizer, text, size, &spec, &e);
    if (s == BY_OK && j->o.jsonl)
        put_json(j, &e);
    else if (s == BY_OK)
        put_plain(j, &e);
    by_encoding_free(&e);
    return s;
}

/* ---- ids to text ------------------------------------------------------------------------------ */

static by_status decode(job *j, const by_ids *ids)
{
    by_decode_spec spec = {.skip_special = j->o.no_special, .lossy = j->o.jsonl};
    by_buf text = {0};
    by_status s = by_tokenizer_decode_with(j->tokenizer, ids->data, ids->count, &spec, &text);
    if (s == BY_OK && j->o.jsonl) {
        by_buf_puts(&j->out, "{\"text\":");
        by_json_quote(&j->out, text.data ? text.data : "");
        by_buf_puts(&j->out, "}\n");
    } else if (s == BY_OK) {
        by_buf_put(&j->out, text.data ? text.data : "", text.size);
        by_buf_puts(&j->out, "\n");
    }
    by_buf_free(&text);
    return s;
}

static by_status add_id(by_ids *ids, double value)
{
    if (value < 0 || value > INT32_MAX || value != (double)(int32_t)value)
        return by_fail(BY_ERR_FORMAT, "%g is not a token id", value);
    return by_ids_push(ids, (int32_t)value);
}

/* Numbers with spaces or commas between them. */
static by_status decode_plain(job *j, const char *line)
{
    by_ids ids = {0};
    by_status s = by_ids_reserve(&ids, 1);
    for (const char *at = line + strspn(line, " \t,"); *at && s == BY_OK; at += strspn(at, " \t,")) {
        char *end;
        double value = strtod(at, &end);
        s = end == at ? by_fail(BY_ERR_FORMAT, "\"%.20s\" is not a token id", at) : add_id(&ids, value);
        at = end;
    }
    if (s == BY_OK)
        s = decode(j, &ids);
    by_ids_free(&ids);
    return s;
}

/* ---- lines ------------------------------------------------------------------------------------ */

static by_status json_object(job *j, const cJSON *o)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "ids"), *item;
    if (!j->o.decode) {
        const char *text = NULL, *pair = NULL;
        BY_TRY(by_json_string(o, "text", NULL, &text));
        BY_TRY(by_json_string(o, "pair", NULL, &pair));
        return text ? encode(j, text, strlen(text), pair) : by_fail(BY_ERR_FORMAT, "there is no \"text\"");
    }
    if (!cJSON_IsArray(list))
        return by_fail(BY_ERR_FORMAT, "there is no list \"ids\"");
    by_ids ids = {0};
    by_status s = by_ids_reserve(&ids, 1);
    cJSON_ArrayForEach(item, list) if (s == BY_OK) s =
        cJSON_IsNumber(item) ? add_id(&ids, item->valuedouble)
                             : by_fail(BY_ERR_FORMAT, "\"ids\" holds something that is no number");
    if (s == BY_OK)
        s = decode(j, &ids);
    by_ids_free(&ids);
    return s;
}

static by_status one_line(job *j, char *line, size_t size)
{
    if (size && line[size - 1] == '\n')
        line[--size] = '\0';
    if (!j->o.jsonl)
        return j->o.decode ? decode_plain(j, line) : encode(j, line, size, NULL);
    cJSON *o = by_json_parse(line, size, "the line");
    if (!o)
        return by_error_status();
    by_status s =
        cJSON_IsObject(o) ? json_object(j, o) : by_fail(BY_ERR_FORMAT, "the line is not a JSON object");
    cJSON_Delete(o);
    return s;
}

/* Write what there is; false when nobody takes it. */
static bool flush(job *j)
{
    bool ok = !j->out.failed && fwrite(j->out.data ? j->out.data : "", 1, j->out.size, stdout) == j->out.size;
    if (j->out.failed)
        by_fail(BY_ERR_MEMORY, "out of memory");
    j->out.size = 0;
    return ok;
}

static int from_input(job *j)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    int code = CLI_OK;
    while (code == CLI_OK && !cli_interrupted() && (size = getline(&line, &room, stdin)) >= 0) {
        j->line++;
        if (one_line(j, line, (size_t)size) != BY_OK) {
            by_fail_context("line %lld", (long long)j->line);
            code = cli_fail(NULL);
        } else if (!flush(j) || (j->line % 64 == 0 && !cli_flush())) {
            code = CLI_FAILED;
        }
    }
    if (code == CLI_OK && ferror(stdin)) {
        by_fail(BY_ERR_IO, "cannot read the input: %s", strerror(errno));
        code = cli_fail(NULL);
    }
    free(line);
    return code == CLI_OK && cli_interrupted() ? CLI_INTERRUPTED : code;
}

static int from_arguments(job *j, char **texts, int count)
{
    for (int i = 0; i < count; i++)
        if (one_line(j, texts[i], strlen(texts[i])) != BY_OK)
            return cli_fail(NULL);
        else if (!flush(j))
            return CLI_FAILED;
    return CLI_OK;
}

/* Of a model directory or a run folder, or else of a folder or file that has nothing but a tokenizer. */
static by_tokenizer *open_tokenizer(const char *path)
{
    char *dir = by_dir_exists(path) ? cli_model_dir(path) : NULL;
    by_error_clear();
    by_tokenizer *t = dir ? cli_tokenizer(path) : by_tokenizer_load(path);
    by_free(dir);
    return t;
}

static int run(int argc, char **argv)
{
    job j = {.line = 0};
    cli_args args;
    int code;
    if (!cli_parse(&cli_tokenize, argc, argv, &j.o, &args, &code))
        return code;
    cli_interrupt_install();
    j.tokenizer = open_tokenizer(args.items[0]);
    if (!j.tokenizer)
        code = cli_fail(NULL);
    else
        code = args.count > 1 ? from_arguments(&j, args.items + 1, args.count - 1) : from_input(&j);
    by_tokenizer_free(j.tokenizer);
    by_buf_free(&j.out);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_tokenize = {
    .name = "tokenize",
    .summary = "text to token ids and back",
    .args = "PATH [TEXT...]",
    .description =
        "PATH is a model directory, a run folder, or a file: a tokenizer.json, vocab.json, vocab.txt "
        "or spiece.model. Each TEXT, or "
        "else each line of the input, gives one line of ids; special tokens are put around it "
        "where the tokenizer asks for "
        "them, and nothing is cut off or padded. A bare spiece.model has no special tokens.\n\n"
        "With --offsets a token is printed as ID:START-END, in bytes of the text.",
    .examples = "banyan tokenize gpt2 \"Hello, world!\"\n"
                "banyan tokenize bert-base-cased --jsonl < texts.jsonl > ids.jsonl\n"
                "echo 15496 11 995 0 | banyan tokenize gpt2 --decode\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
