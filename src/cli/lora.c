/* lora.c - see lora.h. */
#include "cli/lora.h"

static by_status bad(const char *part, size_t n)
{
    return base_fail(
        BY_ERR_ARGUMENT,
        "--lora: \"%.*s\" is none of r=N, alpha=N, dropout=P, targets=..., save=..., bias=..., layers=..., "
        "dora, rslora",
        (int)n, part);
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

/* A part with its key; the text of the value ends with the part. */
static by_status take(by_adapter_spec *s, const char *key, const char *value, const char ***list)
{
    static const char *const names[] = {"targets", "save", "layers"};
    const char **lists[] = {&s->targets, &s->save, &s->layers};
    double rank = s->rank;
    *list = NULL;
    for (int i = 0; i < BY_COUNT(names); i++)
        if (strcmp(key, names[i]) == 0) {
            *lists[i] = value;
            *list = lists[i];
            return *value ? BY_OK : bad(key, strlen(key));
        }
    if (strcmp(key, "bias") == 0) {
        s->bias = value;
        return BY_OK;
    }
    if (strcmp(key, "alpha") == 0)
        return read_number(key, value, 1e-6, 1e6, &s->alpha);
    if (strcmp(key, "dropout") == 0)
        return read_number(key, value, 0, 0.99, &s->dropout);
    if (strcmp(key, "r") != 0)
        return bad(key, strlen(key));
    BY_TRY(read_number(key, value, 1, 1 << 16, &rank));
    s->rank = (int)rank;
    return rank == s->rank ? BY_OK : base_fail(BY_ERR_ARGUMENT, "--lora: r=%s is not a whole number", value);
}

by_status cli_lora_parse(const char *text, cli_lora *out)
{
    const char **list = NULL;
    *out = (cli_lora){.text = base_strdup(text)};
    if (!out->text)
        return BY_ERR_MEMORY;
    for (char *part = out->text, *next; part; part = next) {
        const size_t n = strcspn(part, ",");
        char *equals = memchr(part, '=', n);
        next = part[n] ? part + n + 1 : NULL;
        const bool dora = is(part, n, "dora"), rslora = is(part, n, "rslora");
        if (!equals && !dora && !rslora && list && n > 0) {
            part[-1] = ','; /* the list goes on */
            part[n] = '\0';
            continue;
        }
        part[n] = '\0';
        out->spec.dora |= dora;
        out->spec.rslora |= rslora;
        if (!equals && !dora && !rslora)
            return bad(part, n);
        if (equals) {
            *equals = '\0';
            BY_TRY(take(&out->spec, part, equals + 1, &list));
        } else {
            list = NULL;
        }
    }
    return BY_OK;
}

void cli_lora_free(cli_lora *l)
{
    base_free(l->text);
    *l = (cli_lora){0};
}
