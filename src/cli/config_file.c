/* config_file.c - see config_file.h. */
#include "cli/config_file.h"

#include <dirent.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/show.h"

/* Options that belong to a single call, not to the run. */
static bool is_passing(const char *name)
{
    static const char *const names[] = {"out",   "overwrite", "config", "resume",    "json",
                                        "quiet", "curve",     "trace",  "show-batch"};
    for (int i = 0; i < BY_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

const cli_option *cli_config_row(const cli_verb *verb, const char *name)
{
    for (int i = 0; i < verb->option_count; i++)
        if (cli_name_equal(name, strlen(name), verb->options[i].name) ||
            (verb->options[i].alias && cli_name_equal(name, strlen(name), verb->options[i].alias)))
            return &verb->options[i];
    return NULL;
}

const cJSON *cli_config_member(const cli_verb *verb, const cJSON *options, const cli_option *o)
{
    for (const cJSON *item = options ? options->child : NULL; item; item = item->next)
        if (!cJSON_IsNull(item) && cli_config_row(verb, item->string) == o)
            return item;
    return NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

bool cli_said_given(const cli_said *s, const char *name)
{
    const cli_option *o = cli_config_row(s->verb, name);
    return o && s->args.given[o - s->verb->options];
}

static const char *text_of(const cli_said *s, const char *name)
{
    const cli_option *o = cli_config_row(s->verb, name);
    return o && cli_said_given(s, name) ? *(const char **)(void *)(s->options + o->offset) : NULL;
}

static by_status push(cli_config *c, const char *fmt, const char *name, const char *value)
{
    if (c->argc >= c->room)
        return base_fail(BY_ERR_ARGUMENT, "too many options");
    c->argv[c->argc] = base_arena_sprintf(c->arena, fmt, name, value);
    return c->argv[c->argc] ? c->argc++, BY_OK : BY_ERR_MEMORY;
}

by_status cli_config_push(cli_config *c, const cli_option *o, const char *value)
{
    return push(c, "--%s=%s", o->name, value);
}

/* The files that a command line draws on. */
typedef struct sources {
    const char *path;     /* of options, or NULL */
    cJSON *file, *run;    /* that file, or run.json of the folder when resuming */
    const cJSON *options; /* in file, or NULL */
    const char *folder;   /* that --resume names, or NULL */
    bool implied;         /* the file was not requested explicitly: an invalid one is ignored */
} sources;

/* One value of an option. */
static by_status push_value(cli_config *c, const sources *f, const cli_option *o, const cJSON *v)
{
    if (cJSON_IsString(v)) {
        const char *text = v->valuestring;
        if (cli_value_is_path(o) && !(text = cli_recorded_path(c->arena, f->file, text)))
            return BY_ERR_MEMORY;
        return cli_config_push(c, o, text);
    }
    if (cJSON_IsBool(v))
        return cli_config_push(c, o, cJSON_IsTrue(v) ? "yes" : "no");
    if (!cJSON_IsNumber(v))
        return base_fail(BY_ERR_FORMAT,
                         "%s: \"%s\" must be a string, a number, true, false or a list of these", f->path,
                         o->name);
    base_buf text = {0};
    by_status s = base_json_print(&text, v, false);
    if (s == BY_OK)
        s = cli_config_push(c, o, text.data);
    base_buf_free(&text);
    return s;
}

static by_status push_option(cli_config *c, const cli_said *s, const sources *f, const cJSON *item)
{
    if (strcmp(item->string, "verb") == 0 || strcmp(item->string, "arguments") == 0 || cJSON_IsNull(item))
        return BY_OK;
    const cli_option *o = cli_config_row(s->verb, item->string);
    if (!o) {
        cli_suggestion near = {.typed = item->string};
        for (int i = 0; i < s->verb->option_count; i++)
            cli_suggest(&near, s->verb->options[i].name);
        return base_fail(BY_ERR_FORMAT, "%s: \"%s\" is not an option of banyan %s%s%s%s", f->path,
                         item->string, s->verb->name, near.best ? "; did you mean \"" : "",
                         near.best ? near.best : "", near.best ? "\"?" : "");
    }
    if (cli_said_given(s, o->name) ||
        (strcmp(o->name, "max-steps") == 0 && cli_said_given(s, "epochs"))) /* which are equivalent */
        return BY_OK;
    if (!cJSON_IsArray(item))
        return push_value(c, f, o, item);
    for (const cJSON *v = item->child; v; v = v->next)
        BY_TRY(push_value(c, f, o, v));
    return BY_OK;
}

/* The object of options in a file. */
static by_status find_options(const cli_said *s, sources *f)
{
    f->options = cJSON_GetObjectItemCaseSensitive(f->file, "options");
    const bool recorded = cJSON_GetObjectItemCaseSensitive(f->file, "banyan") != NULL;
    if (!f->options && recorded && f->implied)
        return BY_OK; /* an older record: the command line has the options, the record has the values */
    if (!f->options && recorded)
        return base_fail(
            BY_ERR_FORMAT,
            "%s was written by a version that recorded no options; repeat the command recorded in it",
            f->path);
    if (!f->options)
        f->options = f->file;
    const cJSON *verb = cJSON_GetObjectItemCaseSensitive(f->options, "verb");
    if (!cJSON_IsObject(f->options))
        return base_fail(BY_ERR_FORMAT, "%s must hold a JSON object of options", f->path);
    if (cJSON_IsString(verb) && strcmp(verb->valuestring, s->verb->name) != 0)
        return base_fail(BY_ERR_ARGUMENT, "%s belongs to banyan %s, not to banyan %s", f->path,
                         verb->valuestring, s->verb->name);
    return BY_OK;
}

static int count_values(const cJSON *options)
{
    int n = 0;
    for (const cJSON *item = options ? options->child : NULL; item; item = item->next)
        n += cJSON_IsArray(item) ? cJSON_GetArraySize(item) : 1;
    return n;
}

static by_status push_arguments(cli_config *c, const sources *f)
{
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(f->options, "arguments");
    for (const cJSON *v = cJSON_IsArray(items) ? items->child : NULL; v; v = v->next) {
        if (!cJSON_IsString(v))
            return base_fail(BY_ERR_FORMAT, "%s: \"arguments\" must be a list of strings", f->path);
        const char *path = cli_recorded_path(c->arena, f->file, v->valuestring);
        BY_TRY(path ? push(c, "%s%s", "", path) : BY_ERR_MEMORY);
    }
    return BY_OK;
}

static by_status expand(const cli_said *s, const sources *f, int argc, char **argv, cli_config *c)
{
    c->room = argc + 2 + count_values(f->options) + CLI_RECORDED_MAX;
    if (!(c->argv = base_arena_alloc(c->arena, ((size_t)c->room + 1) * sizeof *c->argv)))
        return BY_ERR_MEMORY;
    c->argv[c->argc++] = argv[0];
    if (!s->args.count)
        BY_TRY(push_arguments(c, f));
    for (const cJSON *item = f->options ? f->options->child : NULL; item; item = item->next)
        BY_TRY(push_option(c, s, f, item));
    if (f->run)
        BY_TRY(cli_recorded_fill(c, s, f->run, f->options));
    if (f->folder)
        BY_TRY(push(c, "--%s=%s", "out", f->folder));
    for (int i = 1; i < argc; i++)
        c->argv[c->argc++] = argv[i];
    return BY_OK;
}

/* Whether there is something to resume. Folders may have lost the link. */
static bool holds_checkpoint(const char *folder)
{
    DIR *d = opendir(folder);
    bool found = false;
    for (struct dirent *e; d && !found && (e = readdir(d));)
        found = strcmp(e->d_name, "last") == 0 || strncmp(e->d_name, "checkpoint-", 11) == 0;
    if (d)
        closedir(d);
    return found;
}

/* run.json of a folder, as path and contents; *json stays NULL if it cannot be read or does not belong to a
 * run, which the library reports. */
static by_status read_run(base_arena *arena, const char *folder, const char **path, cJSON **json)
{
    *path = base_arena_sprintf(arena, "%s/run.json", folder);
    if (!*path)
        return BY_ERR_MEMORY;
    *json = base_file_exists(*path) ? base_json_load(*path) : NULL;
    if (!*json && base_error_status() == BY_ERR_MEMORY)
        return BY_ERR_MEMORY;
    base_error_clear();
    if (!cJSON_GetObjectItemCaseSensitive(*json, "banyan")) {
        cJSON_Delete(*json);
        *json = NULL;
    }
    return BY_OK;
}

/* Is the command line of a folder with a run in it that of the run? Not that of another verb. */
static bool is_for(const cli_said *s, const cJSON *run)
{
    const cJSON *verb =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(run, "options"), "verb");
    return run && (!cJSON_IsString(verb) || strcmp(verb->valuestring, s->verb->name) == 0);
}

static by_status load(const cli_said *s, sources *f)
{
    f->file = base_json_load(f->path);
    return f->file ? find_options(s, f) : base_error_status();
}

/* Reads the requested options file, or that of the run in the folder, and the run's values. */
static by_status open_sources(const cli_said *s, base_arena *arena, sources *f)
{
    const char *resume = text_of(s, "resume"), *out = text_of(s, "out"), *run_path;
    f->path = text_of(s, "config");
    f->folder = resume;
    if (resume && (f->path || out))
        return base_fail(BY_ERR_ARGUMENT, "--resume DIR sets both the folder and its options; omit --%s",
                         f->path ? "config" : "out");
    if (f->path) {
        BY_TRY(load(s, f));
        const cJSON *named = cli_config_member(s->verb, f->options, cli_config_row(s->verb, "out"));
        out = out ? out : cJSON_IsString(named) ? named->valuestring : NULL;
    }
    const char *folder = resume ? resume : out;
    if (!folder)
        return BY_OK;
    BY_TRY(read_run(arena, folder, &run_path, &f->run));
    if (resume || (!f->path && !cli_said_given(s, "data") && base_file_exists(run_path))) {
        if (!base_file_exists(run_path))
            return base_fail(BY_ERR_ARGUMENT, "%s is not a run folder: it has no run.json", resume);
        f->path = run_path;
        BY_TRY(load(s, f));
    }
    if (cli_said_given(s, "overwrite") || !is_for(s, f->run) || !holds_checkpoint(folder)) {
        cJSON_Delete(f->run);
        f->run = NULL;
    } else if (!f->path) { /* the same command, or part of it */
        f->path = run_path;
        f->implied = true;
        BY_TRY(load(s, f));
    }
    return BY_OK;
}

/* Put the options of the file that a command line names before those it has; the latter win. size: of the
 * verb's options. Without such a file the command line stays as it is. False: return *code at once, after an
 * error has been shown. config_free in every case. */
static bool config_expand(const cli_verb *verb, size_t size, int argc, char **argv, cli_config *c, int *code)
{
    *c = (cli_config){.arena = base_arena_new(), .argc = 0};
    cli_said s = {.verb = verb, .options = base_alloc_zero(1, size)};
    char **copy = c->arena ? base_arena_alloc(c->arena, ((size_t)argc + 1) * sizeof *copy) : NULL;
    sources f = {0};
    by_status status = copy && s.options ? BY_OK : BY_ERR_MEMORY;
    if (status == BY_OK) { /* an error in it will be reported when the whole is parsed */
        memcpy(copy, argv, (size_t)argc * sizeof *copy);
        cli_options_parse(verb, argc, copy, s.options, size, &s.args);
        base_error_clear();
        status = s.args.help ? BY_OK : open_sources(&s, c->arena, &f);
    }
    c->argv = argv;
    if (status == BY_OK && (f.file || f.run))
        status = expand(&s, &f, argc, argv, c);
    else
        c->argc = argc;
    for (int i = 0; i < verb->option_count && f.run; i++)
        c->earlier[i] = !s.args.given[i];
    cJSON_Delete(f.file);
    cJSON_Delete(f.run);
    cli_args_free(&s.args);
    base_free(s.options);
    if (status != BY_OK)
        *code = status == BY_ERR_ARGUMENT ? cli_usage_fail("%s", by_error_message()) : cli_fail(NULL);
    return status == BY_OK;
}

static void config_free(cli_config *c)
{
    base_arena_free(c->arena);
    *c = (cli_config){0};
}

/* ---- writing --------------------------------------------------------------------------------- */

static cJSON *choice_name(const char *choices, int index)
{
    cli_word w;
    for (int i = 0; cli_word_next(&choices, '|', &w); i++)
        if (i == index) {
            char name[64];
            snprintf(name, sizeof name, "%.*s", w.length, w.text);
            return cJSON_CreateString(name);
        }
    return NULL;
}

static cJSON *integer(int64_t value)
{
    char text[24];
    if (value < INT64_C(1) << 53 && value > -(INT64_C(1) << 53))
        return cJSON_CreateNumber((double)value);
    snprintf(text, sizeof text, "%lld", (long long)value);
    return cJSON_CreateString(text);
}

static cJSON *list_of(const char *const *items, int count)
{
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; list && i < count; i++)
        cJSON_AddItemToArray(list, cJSON_CreateString(items[i]));
    return list;
}

cJSON *cli_config_value(const cli_option *o, const void *at)
{
    switch (o->kind) {
    case CLI_FLAG:
        return cJSON_CreateBool(*(const bool *)at);
    case CLI_INT:
    case CLI_ENUM:
        return o->choices ? choice_name(o->choices, *(const int *)at) : integer(*(const int *)at);
    case CLI_INT64:
        return integer(*(const int64_t *)at);
    case CLI_DOUBLE:
        return cJSON_CreateNumber(*(const double *)at);
    case CLI_STRING:
        return cJSON_CreateString(*(const char *const *)at);
    case CLI_LIST:
        return list_of(((const cli_list *)at)->items, ((const cli_list *)at)->count);
    }
    return NULL;
}

static char *record(const cli_config *c, const cli_args *args)
{
    cJSON *json = cJSON_CreateObject();
    bool ok = json && base_json_put(json, "verb", cJSON_CreateString(args->verb->name));
    if (ok && args->count)
        ok = base_json_put(json, "arguments", list_of((const char *const *)args->items, args->count));
    for (int i = 0; i < args->verb->option_count && ok; i++) {
        const cli_option *o = &args->verb->options[i];
        if (args->given[i] && !c->filled[i] && !is_passing(o->name))
            ok = base_json_put(json, o->name, cli_config_value(o, (const char *)args->options + o->offset));
    }
    base_buf text = {0};
    if (ok)
        ok = base_json_print(&text, json, false) == BY_OK;
    cJSON_Delete(json);
    if (!ok)
        base_buf_free(&text);
    return text.data;
}

bool cli_command_open(const cli_verb *verb, void *options, size_t size, int argc, char **argv, cli_command *c,
                      int *code)
{
    *c = (cli_command){.line = cli_command_line(argc, argv)};
    if (!config_expand(verb, size, argc, argv, &c->config, code) ||
        !cli_parse_sized(verb, c->config.argc, c->config.argv, options, size, &c->args, code)) {
        config_free(&c->config);
        base_free(c->line);
        return false;
    }
    c->given = record(&c->config, &c->args);
    return true;
}

void cli_command_close(cli_command *c)
{
    cli_args_free(&c->args);
    config_free(&c->config);
    base_free(c->given);
    base_free(c->line);
}
