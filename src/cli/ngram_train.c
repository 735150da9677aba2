/* ngram_train.c - `banyan train --model ngram`: estimates an n-gram model (ngram_verbs.h). */
#include "cli/ngram_verbs.h"

#include <stdlib.h>

#include "base/file.h"
#include "cli/common.h"
#include "cli/format.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/show.h"
#include "train/record.h"
#include "train/vocabulary.h"

typedef struct job {
    const cli_ngram_run *run;
    cli_progress bar;
    int prune[BY_NGRAM_MAX_ORDER];
    by_ngram_spec spec;
    by_tokenizer *tokenizer; /* NULL: words */
    by_ngram_result result;
    bool evaluated;
    by_perplexity_result held_out;
    by_ngram_sum sum;
} job;

/* ---- options ----------------------------------------------------------------------------------------- */

static bool read_number(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0';
}

static by_status read_prune(job *j)
{
    const cli_list *l = &j->run->options->prune;
    double value;
    if (l->count > BY_NGRAM_MAX_ORDER)
        return base_fail(BY_ERR_ARGUMENT, "--prune has %d numbers; the highest order is %d", l->count,
                         BY_NGRAM_MAX_ORDER);
    for (int i = 0; i < l->count; i++) {
        if (!read_number(l->items[i], &value) || value < 0 || value > 1e9 || value != (int)value)
            return base_fail(BY_ERR_ARGUMENT, "--prune: %s is not a count", l->items[i]);
        j->prune[i] = (int)value;
    }
    j->spec.prune = j->prune;
    j->spec.prune_count = l->count;
    return BY_OK;
}

static by_status read_fallback(job *j)
{
    const cli_list *l = &j->run->options->fallback;
    if (l->count && l->count != 3)
        return base_fail(BY_ERR_ARGUMENT, "--fallback-discounts has %d numbers, expected three", l->count);
    for (int i = 0; i < l->count; i++)
        if (!read_number(l->items[i], &j->spec.fallback[i]))
            return base_fail(BY_ERR_ARGUMENT, "--fallback-discounts: %s is not a number", l->items[i]);
    j->spec.discount_fallback = j->spec.discount_fallback || l->count;
    return BY_OK;
}

static void on_progress(void *user, const char *stage, int64_t done)
{
    cli_progress_update(&((job *)user)->bar, done, "%s", stage);
}

static bool on_poll(void *user)
{
    (void)user;
    return cli_interrupted();
}

static by_status fill_spec(job *j)
{
    const cli_ngram_options *o = j->run->options;
    j->spec = (by_ngram_spec){.order = o->order,
                              .smoothing = (by_smoothing)o->smoothing,
                              .k = o->k,
                              .discount_fallback = o->discount_fallback,
                              .plain_unigrams = !o->interpolate_unigrams,
                              .skip_symbols = o->skip_symbols,
                              .lines = o->lines,
                              .memory = (size_t)j->run->memory,
                              .temporary = o->temporary,
                              .threads = j->run->threads,
                              .progress = on_progress,
                              .cancelled = on_poll,
                              .user = j};
    BY_TRY(read_prune(j));
    return read_fallback(j);
}

/* ---- results ----------------------------------------------------------------------------------------- */

static void print_orders(const job *j)
{
    const by_ngram_result *r = &j->result;
    const bool discounts = j->spec.smoothing == BY_SMOOTHING_KNESER_NEY, prunes = j->spec.prune_count > 0;
    printf("order        n-grams%s%s\n", prunes ? "     before pruning" : "",
           discounts ? "   discounts of 1, 2, 3+" : "");
    for (int n = 0; n < r->order; n++) {
        printf("%5d %14s", n + 1, cli_count_text(r->ngrams[n]).s);
        if (prunes)
            printf(" %18s", cli_count_text(n ? r->unpruned[n] : r->ngrams[n]).s);
        if (discounts)
            printf("   %.4f %.4f %.4f%s", r->discounts[n][0], r->discounts[n][1], r->discounts[n][2],
                   r->fell_back[n] ? " (fallback)" : "");
        printf("\n");
    }
}

static void print_text(const job *j)
{
    const by_ngram_result *r = &j->result;
    print_orders(j);
    printf("%s %s in %s %s, vocabulary of %s, %.1f s\n", cli_count_text(r->tokens).s,
           j->tokenizer ? "tokens" : "words", cli_count_text(r->sentences).s,
           j->tokenizer ? "texts" : "sentences", cli_count_text(r->words).s, r->seconds);
    if (j->evaluated)
        printf("held-out perplexity %.4f, without unknown words %.4f\n", by_ngram_perplexity(&j->sum, false),
               by_ngram_perplexity(&j->sum, true));
    printf("model: %s\n", j->run->out);
}

static int print_json(const job *j)
{
    const by_ngram_result *r = &j->result;
    cJSON *o = cJSON_CreateObject(), *orders = cJSON_AddArrayToObject(o, "orders");
    cJSON_AddStringToObject(o, "out", j->run->out);
    cJSON_AddNumberToObject(o, "tokens", (double)r->tokens);
    cJSON_AddNumberToObject(o, "sentences", (double)r->sentences);
    cJSON_AddNumberToObject(o, "vocabulary", r->words);
    for (int n = 0; orders && n < r->order; n++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddNumberToObject(one, "ngrams", (double)r->ngrams[n]);
        cJSON_AddNumberToObject(one, "unpruned", (double)r->unpruned[n]);
        if (j->spec.smoothing == BY_SMOOTHING_KNESER_NEY)
            cJSON_AddItemToObject(one, "discounts", cJSON_CreateDoubleArray(r->discounts[n], 3));
        cJSON_AddBoolToObject(one, "fallback", r->fell_back[n]);
        cJSON_AddItemToArray(orders, one);
    }
    if (j->evaluated) {
        cli_json_number(o, "eval_perplexity", by_ngram_perplexity(&j->sum, false));
        cli_json_number(o, "eval_perplexity_known", by_ngram_perplexity(&j->sum, true));
    }
    cJSON_AddNumberToObject(o, "seconds", r->seconds);
    return cli_print_json(o);
}

static by_status write_record(const job *j)
{
    const cli_ngram_run *r = j->run;
    train_record record = {.options = r->given, .data = r->data, .data_count = r->data_count};
    train_record_text(&record, "banyan", by_version(), TRAIN_FREE);
    train_record_text(&record, "command", r->command, TRAIN_FREE);
    train_record_text(&record, "tokenizer", r->tokenizer ? r->tokenizer : "", TRAIN_PATH);
    train_record_text(&record, "smoothing", by_smoothing_name(j->spec.smoothing), TRAIN_SAME);
    train_record_number(&record, "order", j->result.order, TRAIN_SAME);
    train_record_number(&record, "train_tokens", (double)j->result.tokens, TRAIN_FREE);
    if (j->evaluated)
        train_record_number(&record, "eval_perplexity", by_ngram_perplexity(&j->sum, false), TRAIN_FREE);
    train_record_number(&record, "seconds", j->result.seconds, TRAIN_FREE);
    return train_record_write(r->out, &record);
}

/* ---- the run ----------------------------------------------------------------------------------------- */

static by_status evaluate(job *j)
{
    by_ngram *m = by_ngram_open(j->run->out);
    const by_perplexity_spec spec = {.cancelled = cli_poll};
    by_status s = m ? by_ngram_evaluate(m, j->tokenizer, j->run->eval_data, j->run->eval_count, &spec, NULL,
                                        &j->held_out, &j->sum)
                    : base_error_status();
    by_ngram_free(m);
    j->evaluated = s == BY_OK;
    return s;
}

/* A run folder means the model in it. */
static by_tokenizer *open_tokenizer(const cli_ngram_run *r)
{
    char *dir = base_dir_exists(r->tokenizer) ? cli_model_dir(r->tokenizer) : NULL;
    base_error_clear();
    by_tokenizer *t =
        dir ? cli_tokenizer(r->tokenizer) : train_tokenizer_named(r->tokenizer, r->data, r->data_count);
    base_free(dir);
    if (t && by_tokenizer_target_vocab_size(t)) {
        by_tokenizer_free(t);
        base_fail(BY_ERR_ARGUMENT,
                  "%s has separate vocabularies for source and target; name one file: tokenizer.json or "
                  "target_tokenizer.json",
                  r->tokenizer);
        return NULL;
    }
    return t;
}

static by_status estimate(job *j)
{
    const cli_ngram_run *r = j->run;
    if (r->tokenizer && !(j->tokenizer = open_tokenizer(r)))
        return base_error_status();
    BY_TRY(by_ngram_train_folder(r->data, r->data_count, j->tokenizer, &j->spec, r->out, r->options->arpa,
                                 r->overwrite, &j->result));
    if (r->eval_count)
        BY_TRY(evaluate(j));
    return write_record(j);
}

/* What may help. */
static const char *hint_for(by_status s)
{
    const char *message = by_error_message();
    if (s == BY_ERR_FORMAT && strstr(message, "discounts of order"))
        return "--discount-fallback uses fallback discounts, and --smoothing add-k needs none";
    if (s == BY_ERR_FORMAT && strstr(message, "skip such symbols"))
        return "--skip-symbols treats them as white space";
    if (s == BY_ERR_ARGUMENT && strstr(message, "overwrite it"))
        return "--overwrite replaces it";
    return NULL;
}

int cli_ngram_train(const cli_ngram_run *r)
{
    job j = {.run = r, .bar = {.label = "ngram", .quiet = r->quiet}};
    if (fill_spec(&j) != BY_OK)
        return cli_usage_fail("%s", by_error_message());
    cli_interrupt_install();
    cli_progress_start(&j.bar);
    const by_status s = estimate(&j);
    cli_progress_end(&j.bar);
    by_tokenizer_free(j.tokenizer);
    if (s != BY_OK)
        return hint_for(s) ? cli_fail("%s", hint_for(s)) : cli_fail(NULL);
    if (r->json)
        return print_json(&j);
    print_text(&j);
    return CLI_OK;
}
