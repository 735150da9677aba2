/* verb_tokenize.c - `banyan tokenize`: text to token ids and back, line by line. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/common.h"
#include "cli/verbs.h"
#include "base/json.h"

#define READ_BYTES ((size_t)1 << 20)

typedef struct tokenize_options {
    bool jsonl, no_special, decode, offsets, fit, target;
    int threads;
} tokenize_options;

static const cli_option options[] = {
    {CLI_AT(tokenize_options, jsonl), .name = "jsonl",
     .help = "read and print JSON lines: {\"text\": ...} (and \"pair\") gives {\"ids\": [...]}; with "
             "--decode the reverse"},
    {CLI_AT(tokenize_options, no_special), .name = "no-special",
     .help = "add no special tokens; with --decode, print none"},
    {CLI_AT(tokenize_options, decode), .name = "decode", .letter = 'd', .help = "convert ids to text"},
    {CLI_AT(tokenize_options, offsets), .name = "offsets", .help = "print the byte range of each token"},
    {CLI_AT(tokenize_options, fit), .name = "fit",
     .help = "apply the truncation and padding of tokenizer.json"},
    {CLI_AT(tokenize_options, target), .name = "target",
     .help = "tokenize target-language text, for tokenizers with two vocabularies (Marian)"},
    {CLI_AT(tokenize_options, threads), .name = "threads", .letter = 't', CLI_RANGE(0, 4096), .preset = "0",
     .help = "CPU threads; 0 uses every core. The output does not depend on it"},
};

/* One line, in and out. */
typedef struct job {
    const tokenize_options *o;
    const by_tokenizer *tokenizer;
    char *line;
    size_t size;
    base_buf out;
    by_status status;
    char message[512];
} job;

/* ---- text to ids ------------------------------------------------------------------------------ */

static void put_plain(job *j, const by_encoding *e)
{
    for (size_t i = 0; i < e->ids.count; i++) {
        base_buf_printf(&j->out, i ? " %d" : "%d", (int)e->ids.data[i]);
        if (j->o->offsets)
            base_buf_printf(&j->out, ":%u-%u", e->offsets[i].start, e->offsets[i].end);
    }
    base_buf_puts(&j->out, "\n");
}

static void put_json(job *j, const by_encoding *e)
{
    base_buf_puts(&j->out, "{\"ids\":[");
    for (size_t i = 0; i < e->ids.count; i++)
        base_buf_printf(&j->out, i ? ",%d" : "%d", (int)e->ids.data[i]);
    base_buf_puts(&j->out, "]");
    for (size_t i = 0; i < e->ids.count && j->o->offsets; i++)
        base_buf_printf(&j->out, i ? ",[%u,%u]" : ",\"offsets\":[[%u,%u]", e->offsets[i].start,
                        e->offsets[i].end);
    base_buf_puts(&j->out, j->o->offsets && e->ids.count ? "]}\n" : "}\n");
}

static by_status encode(job *j, const char *text, size_t size, const char *pair)
{
    by_encode_spec spec = {.special = !j->o->no_special,
                           .offsets = j->o->offsets,
                           .whole = !j->o->fit,
                           .target = j->o->target,
                           .pair = pair,
                           .pair_size = pair ? strlen(pair) : 0};
    by_encoding e;
    by_status s = by_tokenizer_encode_with(j->tokenizer, text, size, &spec, &e);
    if (s == BY_OK && j->o->jsonl)
        put_json(j, &e);
    else if (s == BY_OK)
        put_plain(j, &e);
    by_encoding_free(&e);
    return s;
}

/* ---- ids to text ------------------------------------------------------------------------------ */

static by_status decode(job *j, const by_ids *ids)
{
    tok_decode_spec spec = {.skip_special = j->o->no_special, .lossy = j->o->jsonl};
    base_buf text = {0};
    by_status s = tok_decode_with(j->tokenizer, ids->data, ids->count, &spec, &text);
    if (s == BY_OK && j->o->jsonl) {
        base_buf_puts(&j->out, "{\"text\":");
        base_json_quote_bytes(&j->out, text.data ? text.data : "", text.size);
        base_buf_puts(&j->out, "}\n");
    } else if (s == BY_OK) {
        base_buf_put(&j->out, text.data ? text.data : "", text.size);
        base_buf_puts(&j->out, "\n");
    }
    base_buf_free(&text);
    return s;
}

static by_status add_id(by_ids *ids, double value)
{
    if (value < 0 || value > INT32_MAX || value != (double)(int32_t)value)
        return base_fail(BY_ERR_FORMAT, "%g is not a token id", value);
    return tok_ids_push(ids, (int32_t)value);
}

/* Numbers with spaces or commas between them. */
static by_status decode_plain(job *j, const char *line)
{
    by_ids ids = {0};
    by_status s = tok_ids_reserve(&ids, 1);
    for (const char *at = line + strspn(line, " \t,"); *at && s == BY_OK; at += strspn(at, " \t,")) {
        char *end;
        double value = strtod(at, &end);
        s = end == at ? base_fail(BY_ERR_FORMAT, "\"%.20s\" is not a token id", at) : add_id(&ids, value);
        at = end;
    }
    if (s == BY_OK)
        s = decode(j, &ids);
    tok_ids_free(&ids);
    return s;
}

/* ---- lines ------------------------------------------------------------------------------------ */

static by_status json_object(job *j, const cJSON *o)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "ids"), *item;
    if (!j->o->decode) {
        const char *text = NULL, *pair = NULL;
        BY_TRY(base_json_string(o, "text", NULL, &text));
        BY_TRY(base_json_string(o, "pair", NULL, &pair));
        return text ? encode(j, text, strlen(text), pair) : base_fail(BY_ERR_FORMAT, "missing \"text\"");
    }
    if (!cJSON_IsArray(list))
        return base_fail(BY_ERR_FORMAT, "missing list \"ids\"");
    by_ids ids = {0};
    by_status s = tok_ids_reserve(&ids, 1);
    cJSON_ArrayForEach(item, list) if (s == BY_OK) s =
        cJSON_IsNumber(item) ? add_id(&ids, item->valuedouble)
                             : base_fail(BY_ERR_FORMAT, "\"ids\" must hold numbers");
    if (s == BY_OK)
        s = decode(j, &ids);
    tok_ids_free(&ids);
    return s;
}

static by_status one_line(job *j)
{
    if (!j->o->jsonl)
        return j->o->decode ? decode_plain(j, j->line) : encode(j, j->line, j->size, NULL);
    cJSON *o = base_json_parse(j->line, j->size, "the line");
    if (!o)
        return base_error_status();
    by_status s =
        cJSON_IsObject(o) ? json_object(j, o) : base_fail(BY_ERR_FORMAT, "the line is not a JSON object");
    cJSON_Delete(o);
    return s;
}

/* Input lines that are already available, processed together and written in order. */
typedef struct batch {
    const tokenize_options *o;
    const by_tokenizer *tokenizer;
    job *jobs;
    size_t count, capacity;
    int64_t done; /* lines before these */
} batch;

static by_status add_line(batch *b, char *line, size_t size)
{
    if (b->count == b->capacity) {
        size_t capacity = BY_MAX(b->capacity * 2, (size_t)256);
        job *jobs = base_resize(b->jobs, capacity, sizeof(*jobs));
        if (!jobs)
            return BY_ERR_MEMORY;
        memset(jobs + b->capacity, 0, (capacity - b->capacity) * sizeof(*jobs));
        b->jobs = jobs;
        b->capacity = capacity;
    }
    job *j = &b->jobs[b->count++];
    base_buf out = j->out;
    out.size = 0;
    *j = (job){.o = b->o, .tokenizer = b->tokenizer, .line = line, .size = size, .out = out};
    return BY_OK;
}

static void run_jobs(batch *b)
{
    int threads = base_team(b->o->threads > 0 ? b->o->threads : base_cores());
#pragma omp parallel for schedule(dynamic, 16) num_threads(threads) if (b->count > 64)
    for (size_t i = 0; i < b->count; i++) {
        job *j = &b->jobs[i];
        j->status = one_line(j);
        if (j->status == BY_OK && j->out.failed)
            j->status = base_fail(BY_ERR_MEMORY, "out of memory");
        if (j->status != BY_OK)
            snprintf(j->message, sizeof(j->message), "%s", by_error_message());
    }
}

/* Do the lines and write them, up to the first that fails. */
static int flush_batch(batch *b)
{
    run_jobs(b);
    for (size_t i = 0; i < b->count; i++) {
        job *j = &b->jobs[i];
        if (j->status != BY_OK) {
            cli_flush();
            base_fail(j->status, "line %lld: %s", (long long)(b->done + (int64_t)i + 1), j->message);
            return cli_fail(NULL);
        }
        if (fwrite(j->out.data ? j->out.data : "", 1, j->out.size, stdout) != j->out.size)
            return CLI_FAILED;
    }
    b->done += (int64_t)b->count;
    b->count = 0;
    return cli_flush() ? CLI_OK : CLI_FAILED;
}

/* The complete lines of text[0, size); with `all`, also the rest. Returns the bytes consumed. */
static size_t take_lines(batch *b, char *text, size_t size, bool all, by_status *status)
{
    size_t at = 0;
    while (at < size && *status == BY_OK) {
        char *end = memchr(text + at, '\n', size - at);
        if (!end && !all)
            break;
        size_t n = end ? (size_t)(end - (text + at)) : size - at;
        text[at + n] = '\0';
        *status = add_line(b, text + at, n);
        at += n + 1;
    }
    return BY_MIN(at, size);
}

static int from_input(batch *b)
{
    size_t room = READ_BYTES, size = 0;
    char *text = base_alloc(room + 1);
    by_status status = text ? BY_OK : BY_ERR_MEMORY;
    int code = CLI_OK;
    for (bool end = false; !end && status == BY_OK && code == CLI_OK && !cli_interrupted();) {
        if (room - size < READ_BYTES / 2) {
            char *more = base_resize(text, room * 2 + 1, 1);
            if (!more) {
                status = BY_ERR_MEMORY;
                break;
            }
            text = more;
            room *= 2;
        }
        ssize_t got = read(STDIN_FILENO, text + size, room - size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            status = base_fail(BY_ERR_IO, "cannot read the input: %s", strerror(errno));
        end = got <= 0;
        size += got > 0 ? (size_t)got : 0;
        size_t taken = status == BY_OK ? take_lines(b, text, size, end, &status) : 0;
        if (b->count && status == BY_OK)
            code = flush_batch(b);
        memmove(text, text + taken, size - taken);
        size -= taken;
    }
    if (status != BY_OK)
        code = cli_fail(NULL);
    base_free(text);
    return code == CLI_OK && cli_interrupted() ? CLI_INTERRUPTED : code;
}

static int from_arguments(batch *b, char **texts, int count)
{
    int code = CLI_OK;
    for (int i = 0; i < count && code == CLI_OK; i++)
        if (add_line(b, texts[i], strlen(texts[i])) != BY_OK)
            code = cli_fail(NULL);
    return code == CLI_OK ? flush_batch(b) : code;
}

/* Of a model directory or a run folder, or else of a folder or file that has nothing but a tokenizer. */
static by_tokenizer *open_tokenizer(const char *path)
{
    if (!base_dir_exists(path) && !base_file_exists(path)) {
        cli_fail_absent(path);
        return NULL;
    }
    char *dir = base_dir_exists(path) ? cli_model_dir(path) : NULL;
    base_error_clear();
    by_tokenizer *t = dir ? cli_tokenizer(path) : by_tokenizer_load(path);
    base_free(dir);
    return t;
}

static int run(int argc, char **argv)
{
    tokenize_options o = {0};
    cli_args args;
    int code;
    if (!cli_parse(&cli_tokenize, argc, argv, &o, &args, &code))
        return code;
    cli_interrupt_install();
    by_tokenizer *tokenizer = open_tokenizer(args.items[0]);
    batch b = {.o = &o, .tokenizer = tokenizer};
    if (!tokenizer)
        code = cli_fail(NULL);
    else
        code = args.count > 1 ? from_arguments(&b, args.items + 1, args.count - 1) : from_input(&b);
    for (size_t i = 0; i < b.capacity; i++)
        base_buf_free(&b.jobs[i].out);
    base_free(b.jobs);
    by_tokenizer_free(tokenizer);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_tokenize = {
    .name = "tokenize",
    .group = "Models and files",
    .summary = "convert text to token ids and back",
    .args = "PATH [TEXT...]",
    .description = "PATH is a model directory, a run folder, a tokenizer.json or a SentencePiece model. "
                   "Prints one line of ids for each TEXT or, without TEXT, for each line of the input. "
                   "Special tokens are added where the tokenizer asks for them. Nothing is truncated or "
                   "padded without --fit. A bare spiece.model has no special tokens.\n"
                   "\n"
                   "With --offsets a token is printed as ID:START-END, in bytes of the text.",
    .examples = "banyan tokenize gpt2 \"Hello, world!\"\n"
                "banyan tokenize bert-base-cased --jsonl < texts.jsonl > ids.jsonl\n"
                "echo 15496 11 995 0 | banyan tokenize gpt2 --decode\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
