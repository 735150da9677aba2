/* policy_options.c - see policy_options.h. */
#include "cli/policy_options.h"

#include <stdlib.h>

#include "cli/common.h"
#include "cli/report.h"

/* Turns "\\n" and "\\t" into the characters that they stand for. */
static void unescape(char *text)
{
    static const char marks[] = "nt\\", meanings[] = "\n\t\\";
    char *to = text;
    for (const char *p = text; *p; p++) {
        const char *mark = *p == '\\' && p[1] ? strchr(marks, p[1]) : NULL;
        *to++ = mark ? meanings[mark - marks] : *p;
        p += mark != NULL;
    }
    *to = '\0';
}

static bool read_weights(cli_policy_options *o)
{
    const char *p = o->weights;
    for (int i = 0; p && i < o->rewards.count; i++) {
        char *end;
        o->sources[i].weight = base_strtod(p, &end);
        const bool last = i + 1 == o->rewards.count;
        if (end == p || o->sources[i].weight == 0 || *end != (last ? '\0' : ',')) {
            cli_usage_fail("--reward-weights %s: not %d numbers other than 0, separated by commas",
                           o->weights, o->rewards.count);
            return false;
        }
        p = end + 1;
    }
    return true;
}

static bool read_stops(cli_policy_options *o, by_policy_run *out)
{
    o->texts = base_alloc_zero((size_t)o->stops.count + 1, sizeof *o->texts);
    for (int i = 0; o->texts && i < o->stops.count; i++) {
        if (!(o->texts[i] = base_strdup(o->stops.items[i])))
            return false;
        unescape(o->texts[i]);
        if (!*o->texts[i]) {
            cli_usage_fail("--stop needs a text");
            return false;
        }
    }
    out->stops = (const char *const *)o->texts;
    out->stop_count = o->stops.count;
    return o->texts != NULL;
}

/* Run folders mean the models in them. Returns false on error. */
static bool find_models(cli_policy_options *o, by_policy_run *out)
{
    o->models = base_alloc_zero((size_t)o->rewards.count + 1, sizeof *o->models);
    for (int i = 0; o->models && i < o->rewards.count; i++) {
        if (strncmp(o->rewards.items[i], "model:", 6) != 0)
            continue;
        char *dir = cli_model_dir(o->rewards.items[i] + 6);
        o->models[i] = dir ? base_sprintf("model:%s", dir) : NULL;
        base_free(dir);
        if (!o->models[i])
            return false;
        o->sources[i].what = o->models[i];
    }
    if (out->value_model && !(out->value_model = o->critic = cli_model_dir(out->value_model)))
        return false;
    return o->models != NULL;
}

bool cli_policy_read(cli_policy_options *o, const cli_args *args, by_policy_run *out)
{
    o->sources = base_alloc_zero((size_t)o->rewards.count + 1, sizeof *o->sources);
    if (!o->sources)
        return false;
    for (int i = 0; i < o->rewards.count; i++)
        o->sources[i].what = o->rewards.items[i];
    if (!find_models(o, out)) {
        cli_fail(NULL);
        return false;
    }
    out->rewards = o->sources;
    out->reward_count = o->rewards.count;
    out->judging.text = strcmp(o->format, "text") == 0;
    out->judging.retries = o->retries > 0 ? o->retries : -1;
    out->judging.fallback = cli_given(args, &o->fallback) ? &o->fallback : NULL;
    out->third = strcmp(o->estimator, "k3") == 0;
    return read_weights(o) && read_stops(o, out);
}

void cli_policy_free(cli_policy_options *o)
{
    for (int i = 0; o->texts && i < o->stops.count; i++)
        base_free(o->texts[i]);
    for (int i = 0; o->models && i < o->rewards.count; i++)
        base_free(o->models[i]);
    base_free(o->models);
    base_free(o->critic);
    base_free(o->texts);
    base_free(o->sources);
}
