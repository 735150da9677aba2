/* generated_texts.c - output of `banyan generate` (generating.h): streamed texts, JSON, speeds. */
#include "cli/generating.h"

#include <unistd.h>

#include "base/json.h"
#include "cli/verbs.h"

int cli_texts_each(const cli_generation *j)
{
    return j->o.strategy.beams > 1 ? j->o.strategy.returned : j->o.samples;
}

int64_t cli_texts_all(const cli_generation *j)
{
    return (int64_t)cli_texts_each(j) * j->prompts.count;
}

const cli_prompt *cli_prompt_of(const cli_generation *j, int row)
{
    return &j->prompts.list[(j->first + row) / cli_texts_each(j)];
}

/* Its number among those of the same prompt. */
static int number_of(const cli_generation *j, int row)
{
    return (j->first + row) % cli_texts_each(j) + 1;
}

static void print(cli_generation *j, const char *text, size_t n)
{
    if (!n)
        return;
    fwrite(text, 1, n, stdout);
    j->last = text[n - 1];
}

/* With --lines a text is a line: the line ends in it are written as \n. */
static void print_part(cli_generation *j, const char *text, size_t n)
{
    while (j->o.lines && n > 0) {
        const char *end = memchr(text, '\n', n);
        const size_t k = end ? (size_t)(end - text) : n;
        print(j, text, k);
        if (end)
            print(j, "\\n", 2);
        text += k + (end != NULL);
        n -= k + (end != NULL);
    }
    print(j, text, n);
}

static void print_id(cli_generation *j, int32_t id)
{
    char text[16];
    int n = snprintf(text, sizeof text, "%s%d", j->last && j->last != '\n' ? " " : "", (int)id);
    print(j, text, (size_t)n);
}

/* Printed before each sample; for a streamed one only with its first token, so that an error is printed
 * alone. */
static void print_prompt(cli_generation *j, int row)
{
    const cli_prompt *p = cli_prompt_of(j, row);
    if (!j->o.echo || (j->live && j->echoed))
        return;
    j->echoed = true;
    for (size_t i = 0; !j->tokenizer && i < p->ids.count; i++)
        print_id(j, p->ids.data[i]);
    if (j->tokenizer)
        print_part(j, p->text, p->size);
    if (j->tokenizer && !j->model && !by_ngram_tokens(j->ngram) && j->last && !strchr(" \t\n", j->last))
        print(j, " ", 1); /* words come without one */
}

static void print_fresh(cli_generation *j, cli_generated *s)
{
    const base_buf *text = &s->stream.text;
    if (text->size > s->shown)
        print_part(j, text->data + s->shown, text->size - s->shown);
    s->shown = text->size;
}

void cli_end_line(cli_generation *j)
{
    if (j->last != '\n')
        print(j, "\n", 1);
}

/* New tokens that belong to the text: not those of a stop string, which is not part of it. */
static int tokens_of(const cli_generated *s, const by_generation *g)
{
    return s->stream.stopped ? s->stream.tokens : g->count - g->prompt;
}

/* by_generate's callback for a token. */
bool cli_on_token(void *user, int row, int32_t token, float logprob)
{
    cli_generation *j = user;
    cli_generated *s = &j->samples[row];
    (void)logprob;
    if (j->first_token == 0)
        j->first_token = base_seconds();
    if (j->tokenizer && j->status == BY_OK)
        j->status = gen_stream_put(&s->stream, token);
    if (j->live)
        print_prompt(j, row);
    if (j->live && j->tokenizer)
        print_fresh(j, s);
    else if (j->live)
        print_id(j, token);
    if (j->live && !cli_flush())
        j->status = base_fail(BY_ERR_IO, "cannot write to standard output");
    return j->status == BY_OK && !s->stream.stopped;
}

void cli_on_explain(void *user, const by_explanation *why)
{
    cli_generation *j = user;
    const bool several = j->o.strategy.beams == 1 && cli_texts_all(j) > 1;
    if (j->status == BY_OK)
        j->status = cli_explain(j->tokenizer, why, several ? j->first + why->row : -1, j->o.json);
}

static const char *finish_reason(const by_generation *g, const cli_generated *s)
{
    switch (g->finish) {
    case BY_FINISH_STOP:
        return "eos";
    case BY_FINISH_LENGTH:
        return "length";
    case BY_FINISH_STRING:
        return "stop";
    case BY_FINISH_TIME:
        return "time";
    case BY_FINISH_CALLER:
        return s->stream.stopped ? "stop" : "error";
    case BY_FINISH_NONE:
        break;
    }
    return cli_interrupted() ? "interrupted" : "error";
}

/* Tokens per second once the prompt is read: the first token belongs to the prompt's time. */
static double speed(int64_t rows_begun, int64_t tokens, double seconds)
{
    return tokens > rows_begun && seconds > 0 ? (double)(tokens - rows_begun) / seconds : (double)NAN;
}

static int print_json(cli_generation *j, int row, const by_generation *g, const by_generate_result *result)
{
    const cli_generated *s = &j->samples[row];
    const base_buf *text = &s->stream.text;
    int n = tokens_of(s, g);
    cJSON *o = cJSON_CreateObject(), *ids = cJSON_CreateIntArray(g->tokens + g->prompt, n);
    bool ok = o && ids;
    if (ok && j->o.lines)
        ok = cJSON_AddNumberToObject(o, "line", (double)(cli_prompt_of(j, row) - j->prompts.list) + 1);
    ok = ok && cJSON_AddNumberToObject(o, "sample", number_of(j, row));
    if (ok && j->tokenizer)
        ok = base_json_add_bytes(o, "text", text->data ? text->data : "", text->size);
    ok = ok && cJSON_AddItemToObject(o, "ids", ids);
    if (ok && j->o.strategy.beams > 1)
        ok = cJSON_AddNumberToObject(o, "score", (double)g->score);
    ok = ok && cJSON_AddStringToObject(o, "finish_reason", finish_reason(g, s)) &&
         cJSON_AddNumberToObject(o, "prompt_tokens", g->prompt) && cJSON_AddNumberToObject(o, "tokens", n) &&
         cJSON_AddNumberToObject(o, "tokens_per_s", speed(1, g->count - g->prompt, result->decode_seconds)) &&
         cJSON_AddNumberToObject(o, "seed", (double)j->o.seed);
    if (!ok && o && !cJSON_GetObjectItem(o, "ids"))
        cJSON_Delete(ids);
    if (!ok) {
        cJSON_Delete(o);
        o = NULL;
    }
    return cli_print_json(o);
}

static void print_text(cli_generation *j, int row, const by_generation *g)
{
    if (!j->live && !j->o.lines && j->o.strategy.beams > 1)
        printf("--- text %d, score %.4f ---\n", number_of(j, row), (double)g->score);
    else if (!j->live && !j->o.lines)
        printf("--- sample %d ---\n", number_of(j, row));
    if (!j->live)
        j->last = '\n';
    print_prompt(j, row);
    if (j->tokenizer)
        print_fresh(j, &j->samples[row]);
    for (int i = g->prompt; !j->live && !j->tokenizer && i < g->count; i++)
        print_id(j, g->tokens[i]);
    if (j->o.lines)
        print(j, "\n", 1); /* of an empty text too */
    else
        cli_end_line(j);
}

int cli_print_generated(cli_generation *j, const by_generate_result *result)
{
    int code = CLI_OK;
    for (int row = 0; row < result->count && code == CLI_OK; row++) {
        const by_generation *g = &result->rows[row];
        if (!g->tokens)
            continue;
        if (gen_stream_end(&j->samples[row].stream) != BY_OK)
            return cli_fail(NULL);
        j->new_tokens += tokens_of(&j->samples[row], g);
        if (j->o.json)
            code = print_json(j, row, g, result);
        else
            print_text(j, row, g);
    }
    return cli_flush() ? code : CLI_FAILED;
}

void cli_report_generated(const cli_generation *j)
{
    char rate[32] = "";
    double tokens_per_s = speed(cli_texts_all(j), j->decoded, j->decode_seconds);
    if (!(j->o.verbose || cli_is_terminal(STDERR_FILENO)) || j->first_token == 0)
        return;
    if (!isnan(tokens_per_s))
        snprintf(rate, sizeof rate, ", %.1f tok/s", tokens_per_s);
    cli_note(
        "%lld prompt tokens in %.2f s, %lld new in %.2f s%s, first token %.2f s after the start, seed %lld",
        (long long)j->prompt_tokens, j->prompt_seconds, (long long)j->new_tokens, j->decode_seconds, rate,
        j->first_token - j->started, (long long)j->o.seed);
}
