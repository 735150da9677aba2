/* eval_perplexity.c - see eval_perplexity.h. */
#include "cli/eval_perplexity.h"

#include <math.h>
#include <stdio.h>

#include "cli/progress.h"
#include "cli/report.h"
#include "cli/show.h"

static double loss_of(const by_perplexity_result *r)
{
    return r->nats / (double)r->tokens;
}

static double bits_per_byte(const by_perplexity_result *r)
{
    return r->bytes ? r->nats / log(2) / (double)r->bytes : (double)NAN;
}

static double speed_of(const by_perplexity_result *r)
{
    return (double)r->tokens / r->seconds;
}

/* Without the cache or the n-gram model. */
static double plain_perplexity(const by_perplexity_result *r)
{
    return exp(r->plain_nats / (double)r->tokens);
}

static double bin_loss(const by_perplexity_spec *s, int i)
{
    return s->bin_tokens[i] ? s->bin_nats[i] / (double)s->bin_tokens[i] : (double)NAN;
}

void cli_perplexity_progress(void *user, const by_perplexity_result *r, int64_t total)
{
    cli_progress *bar = user;
    bar->total = total;
    cli_progress_update(bar, r->tokens, "loss %.4f  %.0f tok/s", loss_of(r), speed_of(r));
}

/* ---- text -------------------------------------------------------------------------------------------- */

void cli_loss_print(const by_perplexity_result *r)
{
    const double loss = loss_of(r);
    printf("loss %.4f   perplexity %.4f   bits per token %.4f", loss, exp(loss), loss / log(2));
    if (isfinite(bits_per_byte(r)))
        printf("   bits per byte %.4f", bits_per_byte(r));
    printf("\n");
}

void cli_perplexity_print(const cli_perplexity *p, const by_perplexity_result *r)
{
    const by_perplexity_spec *s = p->spec;
    cli_loss_print(r);
    printf("%lld tokens in %s of %d", (long long)r->tokens, r->carried ? "segments" : "windows", r->seq);
    if (r->memory)
        printf(" with a memory of %d", r->memory);
    printf(", %.1f s, %.0f tokens per second\n", r->seconds, speed_of(r));
    for (int i = 0; i < s->bins; i++)
        printf("part %d of %d   loss %.4f\n", i + 1, s->bins, bin_loss(s, i));
    if (s->cache.size)
        printf("cache of %d, theta %.4g, lambda %.4g; without it perplexity %.4f\n", s->cache.size,
               s->cache.theta, s->cache.lambda, plain_perplexity(r));
    if (p->ngram)
        printf("n-gram model %s, weight %.4g; without it perplexity %.4f\n", p->ngram, s->ngram.weight,
               plain_perplexity(r));
}

/* ---- JSON -------------------------------------------------------------------------------------------- */

void cli_loss_json(cJSON *j, const by_perplexity_result *r)
{
    const double loss = loss_of(r);
    cli_json_number(j, "loss", loss);
    cli_json_number(j, "perplexity", exp(loss));
    cli_json_number(j, "bits_per_token", loss / log(2));
    cli_json_number(j, "bits_per_byte", bits_per_byte(r));
    cJSON_AddNumberToObject(j, "tokens", (double)r->tokens);
    cli_json_number(j, "bytes", r->bytes ? (double)r->bytes : (double)NAN);
}

static void add_windows(cJSON *j, const by_perplexity_spec *s, const by_perplexity_result *r)
{
    cJSON_AddNumberToObject(j, "seq", r->seq);
    cJSON_AddNumberToObject(j, "stride", r->stride);
    cJSON_AddNumberToObject(j, "windows", (double)r->windows);
    if (r->memory)
        cJSON_AddNumberToObject(j, "memory", r->memory);
    cJSON *list = s->bins > 0 ? cJSON_AddArrayToObject(j, "loss_by_position") : NULL;
    for (int i = 0; list && i < s->bins; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber(bin_loss(s, i)));
}

int cli_perplexity_json(const cli_perplexity *p, const by_perplexity_result *r)
{
    const by_continuous_cache *cache = &p->spec->cache;
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "model", p->model);
    cli_loss_json(j, r);
    add_windows(j, p->spec, r);
    cJSON_AddStringToObject(j, "dtype", by_dtype_name(p->dtype));
    if (p->weights)
        cJSON_AddStringToObject(j, "weights", p->weights);
    if (cache->size) {
        cJSON_AddNumberToObject(j, "cache_size", cache->size);
        cli_json_number(j, "cache_theta", cache->theta);
        cli_json_number(j, "cache_lambda", cache->lambda);
    }
    if (p->ngram) {
        cJSON_AddStringToObject(j, "ngram", p->ngram);
        cli_json_number(j, "ngram_weight", p->spec->ngram.weight);
    }
    if (cache->size || p->ngram)
        cli_json_number(j, "plain_perplexity", plain_perplexity(r));
    cJSON_AddNumberToObject(j, "seconds", r->seconds);
    cli_json_number(j, "tokens_per_s", speed_of(r));
    return cli_print_json(j);
}
