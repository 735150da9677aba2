/* recorded.c - options of a continued run, from its run.json (config_file.h). */
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "banyan/train.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/config_file.h"

/* ---- values ---------------------------------------------------------------------------------- */

/* Which member of run.json holds the value of an option. */
typedef struct recorded {
    const char *option, *key;
    const char *absent; /* the default when records did not have it yet, or NULL */
    const char *by;     /* another option from which the value follows, or NULL */
} recorded;

static const recorded table[] = {{"layers", "layers", NULL, "preset"},
                                 {"decoder-layers", "decoder_layers", NULL, "layers"},
                                 {"heads", "heads", NULL, "preset"},
                                 {"kv-heads", "kv_heads", NULL, "preset"},
                                 {"memory", "memory", NULL, "preset"},
                                 {"attention", "attention", NULL, "preset"},
                                 {"cell", "cell", NULL, "preset"},
                                 {"decoder", "decoder", NULL, NULL},
                                 {"upscale", "upscale", NULL, NULL},
                                 {"attention-mode", "attention_mode", NULL, "preset"},
                                 {"stride", "stride", NULL, "preset"},
                                 {"summary", "summary", NULL, "preset"},
                                 {"hash-rounds", "hash_rounds", NULL, "preset"},
                                 {"width", "width", NULL, "preset"},
                                 {"inner", "inner", NULL, "preset"},
                                 {"context", "context", NULL, "preset"},
                                 {"colours", "colours", NULL, NULL},
                                 {"dropout", "dropout", NULL, NULL},
                                 {"init-std", "init_std", NULL, "preset"},
                                 {"pre-norm", "pre_norm", "no", NULL},
                                 {"batch-size", "batch", NULL, NULL},
                                 {"batch-tokens", "batch_tokens", NULL, NULL},
                                 {"seq", "seq", NULL, "context"},
                                 {"gradient-accumulation-steps", "accumulate", NULL, NULL},
                                 {"max-steps", "steps", NULL, "epochs"},
                                 {"label-smoothing", "label_smoothing", "0", NULL},
                                 {"optimizer", "optimizer", NULL, NULL},
                                 {"learning-rate", "learning_rate", NULL, NULL},
                                 {"min-learning-rate", "min_learning_rate", NULL, NULL},
                                 {"lr-scheduler", "schedule", NULL, NULL},
                                 {"warmup-steps", "warmup_steps", NULL, "warmup-ratio"},
                                 {"adam-beta1", "beta1", NULL, NULL},
                                 {"adam-beta2", "beta2", NULL, NULL},
                                 {"adam-epsilon", "eps", NULL, NULL},
                                 {"momentum", "momentum", NULL, NULL},
                                 {"weight-decay", "weight_decay", NULL, NULL},
                                 {"max-grad-norm", "max_grad_norm", NULL, NULL},
                                 {"layer-decay", "layer_decay", NULL, NULL},
                                 {"eval-fraction", "eval_fraction", NULL, NULL},
                                 {"eval-batches", "eval_batches", "0", NULL},
                                 {"mask-share", "mask_share", NULL, NULL},
                                 {"mask-span", "mask_span", NULL, NULL}};
_Static_assert(BY_COUNT(table) <= CLI_RECORDED_MAX, "CLI_RECORDED_MAX is too small");

/* The values that a command line is compared with. */
typedef struct view {
    const cli_said *said;
    const cJSON *options; /* of the file that the command line draws on, or NULL */
    const cJSON *before;  /* that the run recorded, or NULL */
} view;

/* The requested value, or NULL; the caller deletes it. */
static cJSON *asked(const view *v, const cli_option *o)
{
    if (cli_said_given(v->said, o->name))
        return cli_config_value(o, v->said->options + o->offset);
    const cJSON *item = cli_config_member(v->said->verb, v->options, o);
    return item ? cJSON_Duplicate(item, true) : NULL;
}

/* Whether another value is requested than the run was started with. */
static bool is_changed(const view *v, const char *name)
{
    const cli_option *o = cli_config_row(v->said->verb, name);
    cJSON *now = o ? asked(v, o) : NULL;
    const bool changed = now && !cJSON_Compare(cli_config_member(v->said->verb, v->before, o), now, true);
    cJSON_Delete(now);
    return changed;
}

/* Does a recipe that the run did not begin with set an option? */
static bool recipe_sets(const view *v, const cli_option *o)
{
    const cli_option *recipe = cli_config_row(v->said->verb, "recipe");
    if (!recipe || !is_changed(v, "recipe"))
        return false;
    cJSON *name = asked(v, recipe);
    const by_recipe *r = by_recipe_find(cJSON_GetStringValue(name));
    char plain[64], negated[64];
    cJSON_Delete(name);
    base_error_clear();
    base_format(plain, sizeof plain, "--%s ", o->name);
    base_format(negated, sizeof negated, "--no-%s ", o->name);
    return r && (strstr(r->options, plain) || strstr(r->options, negated));
}

/* A number as an option is given it; false: the option cannot have that value. */
static bool number_text(const cli_option *o, double value, char *text, size_t size)
{
    if (o->kind == CLI_FLAG)
        return base_format(text, size, "%s", value != 0 ? "yes" : "no"), true;
    if (o->choices) {
        const char *choices = o->choices;
        cli_word w;
        for (int i = 0; cli_word_next(&choices, '|', &w); i++)
            if (i == value)
                return base_format(text, size, "%.*s", w.length, w.text), true;
        return false;
    }
    base_format(text, size, "%.17g", value);
    return !o->ranged || (value >= o->min && value <= o->max);
}

by_status cli_recorded_fill(cli_config *c, const cli_said *s, const cJSON *record, const cJSON *options)
{
    const view v = {s, options, cJSON_GetObjectItemCaseSensitive(record, "options")};
    for (int i = 0; i < BY_COUNT(table); i++) {
        const recorded *r = &table[i];
        const cli_option *o = cli_config_row(s->verb, r->option);
        if (!o || cli_said_given(s, o->name) || cli_config_member(s->verb, options, o) ||
            recipe_sets(&v, o) || (r->by && is_changed(&v, r->by)))
            continue;
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(record, r->key);
        const char *value = cJSON_IsString(item) ? item->valuestring : item ? NULL : r->absent;
        char text[64];
        if (value && !*value) /* the model has nothing of the kind */
            continue;
        if (cJSON_IsNumber(item) && number_text(o, item->valuedouble, text, sizeof text))
            value = text;
        if (!value || (!*value && o->choices)) /* a choice that the family does not have */
            continue;
        c->filled[o - s->verb->options] = true;
        BY_TRY(cli_config_push(c, o, value));
    }
    return BY_OK;
}

/* ---- paths ----------------------------------------------------------------------------------- */

/* Iterates over the parts of "a.txt,b.txt", each relative to the current directory. */
static const char *join_parts(base_arena *arena, const char *directory, const char *path)
{
    const char *text = "";
    for (const char *p = path, *end; p && text; p = end ? end + 1 : NULL) {
        end = strchr(p, ',');
        const int n = (int)(end ? end - p : (ptrdiff_t)strlen(p));
        const bool apart = *p == '/' || (n == 1 && *p == '-');
        text = base_arena_sprintf(arena, "%s%s%s%s%.*s", text, *text ? "," : "", apart ? "" : directory,
                                  apart ? "" : "/", n, p);
    }
    return text;
}

/* Does a path, a pattern or a list of them name anything? */
static bool names_something(const char *path)
{
    char **found;
    int count;
    struct stat st;
    if (stat(path, &st) == 0)
        return true;
    char *first = base_sprintf("%.*s", (int)strcspn(path, ","), path);
    const bool any = first && base_glob(first, &found, &count) == BY_OK;
    if (any)
        base_paths_free(found, count);
    base_free(first);
    base_error_clear();
    return any;
}

const char *cli_recorded_path(base_arena *arena, const cJSON *record, const char *path)
{
    const cJSON *directory = cJSON_GetObjectItemCaseSensitive(record, "directory");
    char here[PATH_MAX];
    if (!cJSON_IsString(directory) || *path == '/' || strcmp(path, "-") == 0 || !getcwd(here, sizeof here) ||
        strcmp(here, directory->valuestring) == 0)
        return base_arena_strdup(arena, path);
    const char *plain = base_arena_sprintf(arena, "%s/%s", directory->valuestring, path);
    struct stat st;
    if (plain && stat(plain, &st) == 0)
        return plain;
    const char *joined = join_parts(arena, directory->valuestring, path);
    return !joined || names_something(joined) ? joined : base_arena_strdup(arena, path);
}
