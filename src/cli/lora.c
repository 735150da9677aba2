/* lora.c - see lora.h. */
#include "cli/lora.h"

#include <stdlib.h>

static const char *option_of(const by_adapter_spec *s)
{
    return s->ia3 ? "--ia3" : "--lora";
}

static by_status bad(const by_adapter_spec *s, const char *part, size_t n)
{
    return base_fail(BY_ERR_ARGUMENT, "%s: \"%.*s\" is not one of %s", option_of(s), (int)n, part,
                     s->ia3 ? "default, targets=..., feedforward=..., save=..."
                            : "r=N, alpha=N, dropout=P, targets=..., save=..., bias=..., layers=..., "
                              "tokens=..., dora, rslora");
}

static bool is(const char *part, size_t n, const char *word)
{
    return strlen(word) == n && strncmp(part, word, n) == 0;
}

static by_status read_number(const char *key, const char *value, double low, double high, double *out)
{
    char *end;
    *out = base_strtod(value, &end);
    return end > value && !*end && *out >= low && *out <= high
               ? BY_OK
               : base_fail(BY_ERR_ARGUMENT, "--lora: %s=%s must be a number from %g to %g", key, value, low,
                           high);
}

/* The list that a key names; NULL: none. */
static const char **list_of(by_adapter_spec *s, const char *key)
{
    const struct {
        const char *key, **list;
        bool lora, ia3;
    } lists[] = {{"targets", &s->targets, true, true},
                 {"save", &s->save, true, true},
                 {"layers", &s->layers, true, false},
                 {"tokens", &s->tokens, true, false},
                 {"feedforward", &s->feedforward, false, true}};
    for (int i = 0; i < BY_COUNT(lists); i++)
        if (strcmp(key, lists[i].key) == 0 && (s->ia3 ? lists[i].ia3 : lists[i].lora))
            return lists[i].list;
    return NULL;
}

/* A part with its key; the text of the value ends with the part. */
static by_status take(by_adapter_spec *s, const char *key, const char *value, const char ***list)
{
    double rank = s->rank;
    *list = list_of(s, key);
    if (*list) {
        **list = value;
        return *value || *list == &s->feedforward
                   ? BY_OK
                   : base_fail(BY_ERR_ARGUMENT, "%s: %s= is empty", option_of(s), key);
    }
    if (s->ia3)
        return bad(s, key, strlen(key));
    if (strcmp(key, "bias") == 0) {
        s->bias = value;
        return BY_OK;
    }
    if (strcmp(key, "alpha") == 0)
        return read_number(key, value, 1e-6, 1e6, &s->alpha);
    if (strcmp(key, "dropout") == 0)
        return read_number(key, value, 0, 0.99, &s->dropout);
    if (strcmp(key, "r") != 0)
        return bad(s, key, strlen(key));
    BY_TRY(read_number(key, value, 1, 1 << 16, &rank));
    s->rank = (int)rank;
    return rank == s->rank ? BY_OK : base_fail(BY_ERR_ARGUMENT, "--lora: r=%s is not a whole number", value);
}

/* A part without a value. */
static bool take_switch(by_adapter_spec *s, const char *part, size_t n)
{
    const bool dora = !s->ia3 && is(part, n, "dora"), rslora = !s->ia3 && is(part, n, "rslora");
    s->dora |= dora;
    s->rslora |= rslora;
    return dora || rslora || (s->ia3 && is(part, n, "default"));
}

static by_status read_parts(cli_lora *out)
{
    const char **list = NULL;
    for (char *part = out->text, *next; part; part = next) {
        const size_t n = strcspn(part, ",");
        char *equals = memchr(part, '=', n);
        next = part[n] ? part + n + 1 : NULL;
        if (equals) {
            *equals = part[n] = '\0';
            BY_TRY(take(&out->spec, part, equals + 1, &list));
        } else if (take_switch(&out->spec, part, n)) {
            part[n] = '\0';
            list = NULL;
        } else if (list && n > 0) {
            part[-1] = ','; /* the list goes on */
            part[n] = '\0';
        } else {
            return bad(&out->spec, part, n);
        }
    }
    return BY_OK;
}

static by_status read_positions(const char *option, const char *text, int *out)
{
    char *end;
    const long n = strtol(text, &end, 10);
    if (end == text || *end || n < 1 || n > 1 << 12)
        return base_fail(BY_ERR_ARGUMENT, "--%s %s: not a number of positions from 1 to %d", option, text,
                         1 << 12);
    *out = (int)n;
    return BY_OK;
}

by_status cli_lora_parse(const cli_adapter_words *words, cli_lora *out)
{
    const struct {
        const char *option, *words;
    } all[] = {{"lora", words->lora},
               {"ia3", words->ia3},
               {"prefix-tuning", words->prefix},
               {"prompt-tuning", words->prompt}};
    const char *given = NULL;
    *out = (cli_lora){.spec.ia3 = words->ia3 != NULL};
    for (int i = 0; i < BY_COUNT(all); i++) {
        if (all[i].words && given)
            return base_fail(BY_ERR_ARGUMENT,
                             "--%s and --%s exclude each other: only one adapter is trained at a time", given,
                             all[i].option);
        given = all[i].words ? all[i].option : given;
        out->words = all[i].words ? all[i].words : out->words;
    }
    if (words->prefix)
        return read_positions(given, words->prefix, &out->spec.prefix);
    if (words->prompt)
        return read_positions(given, words->prompt, &out->spec.prompt);
    if (!out->words)
        return BY_OK;
    out->text = base_strdup(out->words);
    return out->text ? read_parts(out) : BY_ERR_MEMORY;
}

void cli_lora_free(cli_lora *l)
{
    base_free(l->text);
    *l = (cli_lora){0};
}
