/* ngram_eval.c - n-gram models in `eval` and `score` (ngram_verbs.h). */
#include "cli/ngram_verbs.h"

#include <math.h>

#include "base/input.h"
#include "base/json.h"
#include "cli/eval_perplexity.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/show.h"
#include "text/tokenizer.h"

by_status cli_ngram_open(cli_ngram *n, const char *path)
{
    *n = (cli_ngram){.model = by_ngram_open(path)};
    n->tokenizer = n->model ? by_ngram_tokenizer(n->model, path) : NULL;
    return n->tokenizer ? BY_OK : base_error_status();
}

void cli_ngram_close(cli_ngram *n)
{
    by_tokenizer_free(n->tokenizer);
    by_ngram_free(n->model);
    *n = (cli_ngram){0};
}

by_status cli_mix_open(const cli_mix_options *o, const by_tokenizer *t, by_ngram **model, by_ngram_mix *mix)
{
    *model = o->path ? by_ngram_open(o->path) : NULL;
    *mix = (by_ngram_mix){.model = *model, .weight = o->weight};
    if (!o->path)
        return BY_OK;
    if (!*model)
        return base_error_status();
    return !t || by_ngram_check_tokenizer(*model, t) == BY_OK ? BY_OK
                                                              : base_fail_context("--ngram %s", o->path);
}

/* ---- eval -------------------------------------------------------------------------------------------- */

static void print_text(const by_ngram *m, const by_perplexity_result *r, const by_ngram_sum *sum)
{
    cli_loss_print(r);
    if (!by_ngram_tokens(m))
        printf("perplexity without unknown words %.4f   unknown words %lld of %lld\n",
               by_ngram_perplexity(sum, true), (long long)sum->unknown,
               (long long)(sum->words - sum->sentences));
    printf("%lld tokens", (long long)r->tokens);
    if (!by_ngram_tokens(m))
        printf(" in %lld sentences, </s> included", (long long)sum->sentences);
    printf(", order %d, %.1f s, %.0f tokens per second\n", by_ngram_order(m), r->seconds,
           (double)r->tokens / r->seconds);
}

static int print_json(const char *path, const by_ngram *m, const by_perplexity_result *r,
                      const by_ngram_sum *sum)
{
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "model", path);
    cli_loss_json(j, r);
    cli_json_number(j, "perplexity_known", by_ngram_perplexity(sum, true));
    cJSON_AddNumberToObject(j, "unknown", (double)sum->unknown);
    cJSON_AddNumberToObject(j, "sentences", (double)sum->sentences);
    cJSON_AddNumberToObject(j, "order", by_ngram_order(m));
    cJSON_AddNumberToObject(j, "seconds", r->seconds);
    cli_json_number(j, "tokens_per_s", (double)r->tokens / r->seconds);
    return cli_print_json(j);
}

int cli_ngram_evaluate(const cli_ngram_eval *e)
{
    cli_ngram n;
    cli_progress bar = {.label = "eval", .quiet = e->quiet};
    by_perplexity_result r;
    by_ngram_sum sum;
    by_status s = cli_ngram_open(&n, e->path);
    cli_progress_start(&bar);
    if (s == BY_OK)
        s = by_ngram_evaluate(n.model, n.tokenizer, e->data, e->count,
                              &(by_perplexity_spec){.max_tokens = e->max_tokens,
                                                    .progress = cli_perplexity_progress,
                                                    .cancelled = cli_poll,
                                                    .user = &bar},
                              NULL, &r, &sum);
    cli_progress_end(&bar);
    int code = s == BY_OK ? CLI_OK : cli_fail(NULL);
    if (s == BY_OK && e->json)
        code = print_json(e->path, n.model, &r, &sum);
    else if (s == BY_OK)
        print_text(n.model, &r, &sum);
    cli_ngram_close(&n);
    return code;
}

/* ---- score ------------------------------------------------------------------------------------------- */

typedef struct scoring {
    const cli_ngram_score *options;
    cli_ngram n;
    cJSON *words; /* of the present line, with --json and --words */
    by_ids ids;
} scoring;

static void on_word(void *user, const char *word, size_t bytes, int32_t id, int matched, double log10)
{
    scoring *s = user;
    if (!s->options->json) {
        printf("%.*s=%d %d %.*f\t", (int)bytes, word, (int)id, matched, s->options->width, log10);
        return;
    }
    cJSON *one = cJSON_CreateObject();
    base_json_add_bytes(one, "word", word, bytes);
    cJSON_AddNumberToObject(one, "id", id);
    cJSON_AddNumberToObject(one, "order", matched);
    cli_json_number(one, "log10", log10);
    cJSON_AddItemToArray(s->words, one);
}

/* A line of tokens, each as a word. */
static by_status score_tokens(scoring *s, const base_lines *l, by_ngram_sum *sum)
{
    const by_ngram *m = s->n.model;
    by_ngram_state state = by_ngram_begin(m);
    base_buf text = {0};
    s->ids.count = 0;
    by_status status = tok_encode(s->n.tokenizer, l->text, l->size, &s->ids);
    for (size_t i = 0; i < s->ids.count && status == BY_OK; i++) {
        int matched;
        const int32_t token = s->ids.data[i];
        by_ngram_score(m, &state, by_ngram_token_word(m, token), NULL, &matched);
        const double p = by_ngram_token_score(m, &state, token, &state) / M_LN10;
        sum->log10 += p;
        sum->words++;
        text.size = 0;
        status = tok_decode(s->n.tokenizer, &token, 1, &text);
        if (s->options->words && status == BY_OK)
            on_word(s, text.data ? text.data : "", text.size, token, matched, p);
    }
    base_buf_free(&text);
    return status;
}

static bool print_line(scoring *s, const by_ngram_sum *sum)
{
    if (!s->options->json) {
        printf("Total: %.*f OOV: %lld\n", s->options->width, sum->log10, (long long)sum->unknown);
        return ferror(stdout) == 0;
    }
    cJSON *o = cJSON_CreateObject();
    cli_json_number(o, "log10", sum->log10);
    cJSON_AddNumberToObject(o, "words", (double)sum->words);
    cJSON_AddNumberToObject(o, "unknown", (double)sum->unknown);
    if (s->options->words)
        cJSON_AddItemToObject(o, "scores", s->words);
    s->words = NULL;
    return cli_print_json(o) == CLI_OK;
}

static by_status score_line(scoring *s, const base_lines *l)
{
    by_ngram_sum sum = {0};
    if (s->options->json && s->options->words && !(s->words = cJSON_CreateArray()))
        return BY_ERR_MEMORY;
    BY_TRY(by_ngram_tokens(s->n.model)
               ? score_tokens(s, l, &sum)
               : by_ngram_sentence_words(s->n.model, l->text, l->size, s->options->words ? on_word : NULL, s,
                                         &sum));
    return print_line(s, &sum) ? BY_OK : base_fail(BY_ERR_IO, "cannot write to standard output");
}

static by_status score_file(scoring *s, const char *path)
{
    base_lines l;
    bool more = true;
    BY_TRY(base_lines_open(&l, path));
    by_status status = base_lines_next(&l, &more);
    while (status == BY_OK && more && !cli_interrupted()) {
        status = score_line(s, &l);
        if (status == BY_OK)
            status = base_lines_next(&l, &more);
    }
    base_lines_close(&l);
    return status;
}

int cli_ngram_scores(const cli_ngram_score *options)
{
    scoring s = {.options = options};
    static char *const input[] = {"-"};
    char *const *files = options->count ? options->files : input;
    by_status status = cli_ngram_open(&s.n, options->path);
    cli_interrupt_install();
    for (int i = 0; i < BY_MAX(options->count, 1) && status == BY_OK && !cli_interrupted(); i++)
        status = score_file(&s, files[i]);
    const int code = status != BY_OK ? cli_fail(NULL) : cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
    cJSON_Delete(s.words);
    tok_ids_free(&s.ids);
    cli_ngram_close(&s.n);
    return code;
}
