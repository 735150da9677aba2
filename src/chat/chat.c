/* chat.c - see banyan/chat.h: opens the templates of a model directory and renders conversations. */
#include "chat/chat.h"

#include <stdio.h>
#include <time.h>

#include "base/file.h"
#include "base/json.h"
#include "chat/jinja_run.h"

#define TEMPLATE_LIMIT ((size_t)16 << 20)
#define STEP_LIMIT     50000000
#define BYTE_LIMIT     ((size_t)256 << 20)

enum { MOST_TEMPLATES = 32 };

static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

struct by_chat {
    chat_heap heap; /* holds names and tokens */
    struct {
        const char *name;
        chat_tree *tree;
    } list[MOST_TEMPLATES];
    int count;
    chat_variable tokens[BY_COUNT(token_names)];
    int token_count;
};

/* ---- opening ----------------------------------------------------------------------------------------------- */

static by_chat *new_chat(void)
{
    by_chat *c = base_alloc_zero(1, sizeof *c);
    if (!c)
        return NULL;
    c->heap = (chat_heap){.arena = base_arena_new(), .left = TEMPLATE_LIMIT};
    if (c->heap.arena)
        return c;
    base_free(c);
    return NULL;
}

void by_chat_free(by_chat *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->count; i++)
        chat_tree_free(c->list[i].tree);
    base_arena_free(c->heap.arena);
    base_free(c);
}

static chat_tree *find_template(const by_chat *c, const char *name)
{
    for (int i = 0; i < c->count; i++)
        if (strcmp(c->list[i].name, name) == 0)
            return c->list[i].tree;
    return NULL;
}

/* Ignores a template whose name is already taken. */
static by_status add_template(by_chat *c, const char *name, const char *text, size_t size, const char *where)
{
    if (find_template(c, name))
        return BY_OK;
    if (c->count == MOST_TEMPLATES)
        return base_fail(BY_ERR_FORMAT, "%s: more than %d chat templates", where, MOST_TEMPLATES);
    const char *copy = base_arena_strdup(c->heap.arena, name);
    chat_tree *tree = copy ? chat_parse(text, size, where) : NULL;
    if (!tree)
        return base_error_status();
    c->list[c->count].name = copy;
    c->list[c->count++].tree = tree;
    return BY_OK;
}

static by_status add_file(by_chat *c, const char *name, const char *path)
{
    size_t size;
    char *text = base_file_read(path, TEMPLATE_LIMIT, &size);
    if (!text)
        return base_error_status();
    by_status s = add_template(c, name, text, size, path);
    base_free(text);
    return s;
}

/* "chat_template": a text, or a list of objects with name and template. */
static by_status add_configured(by_chat *c, const cJSON *config, const char *path)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(config, "chat_template"), *item;
    if (cJSON_IsString(v))
        return add_template(c, "default", v->valuestring, strlen(v->valuestring), path);
    cJSON_ArrayForEach(item, v)
    {
        const char *name, *text;
        BY_TRY(base_json_string(item, "name", NULL, &name));
        BY_TRY(base_json_string(item, "template", NULL, &text));
        if (!name || !text)
            return base_fail(BY_ERR_FORMAT, "%s: a chat template needs a name and a template", path);
        BY_TRY(add_template(c, name, text, strlen(text), path));
    }
    return BY_OK;
}

/* A token is a string, or an object with its content. */
static by_status add_tokens(by_chat *c, const cJSON *config)
{
    for (int i = 0; i < BY_COUNT(token_names); i++) {
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(config, token_names[i]);
        if (cJSON_IsObject(v))
            v = cJSON_GetObjectItemCaseSensitive(v, "content");
        bool there = !cJSON_IsString(v);
        for (int k = 0; k < c->token_count; k++)
            there = there || chat_is_text(&c->tokens[k].name, token_names[i]);
        if (there)
            continue;
        chat_variable *token = &c->tokens[c->token_count++];
        token->name = chat_literal(token_names[i]);
        BY_TRY(chat_copy_bytes(&c->heap, v->valuestring, strlen(v->valuestring), &token->value));
    }
    return BY_OK;
}

/* Reads a JSON file of the directory, if it exists. */
static by_status add_json(by_chat *c, const char *dir, const char *file, bool tokens, bool templates)
{
    char *path = base_path_join(dir, file);
    by_status s = path ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK && base_file_exists(path)) {
        cJSON *config = base_json_load(path);
        s = config ? BY_OK : base_error_status();
        if (s == BY_OK && tokens)
            s = add_tokens(c, config);
        if (s == BY_OK && templates)
            s = add_configured(c, config, path);
        cJSON_Delete(config);
    }
    base_free(path);
    return s;
}

/* additional_chat_templates/NAME.jinja */
static by_status add_others(by_chat *c, const char *dir)
{
    char **paths = NULL, *folder = base_path_join(dir, "additional_chat_templates"), *pattern = NULL;
    int count = 0;
    by_status s = folder ? BY_OK : BY_ERR_MEMORY;
    if (folder && base_dir_exists(folder)) {
        pattern = base_path_join(folder, "*.jinja");
        s = pattern ? BY_OK : BY_ERR_MEMORY;
        if (pattern && base_glob(pattern, &paths, &count) != BY_OK)
            base_error_clear(); /* an empty folder */
    }
    for (int i = 0; i < count && s == BY_OK; i++) {
        const char *file = strrchr(paths[i], '/') + 1;
        char *name = base_sprintf("%.*s", (int)(strlen(file) - strlen(".jinja")), file);
        s = name ? add_file(c, name, paths[i]) : BY_ERR_MEMORY;
        base_free(name);
    }
    base_paths_free(paths, count);
    base_free(pattern);
    base_free(folder);
    return s;
}

static by_status open_dir(by_chat *c, const char *dir)
{
    char *own = base_path_join(dir, "chat_template.jinja");
    by_status s = own ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK && base_file_exists(own))
        s = add_file(c, "default", own);
    base_free(own);
    BY_TRY(s);
    BY_TRY(add_others(c, dir));
    BY_TRY(add_json(c, dir, "tokenizer_config.json", true, true));
    BY_TRY(add_json(c, dir, "chat_template.json", false, true));
    BY_TRY(add_json(c, dir, "special_tokens_map.json", true, false));
    return c->count ? BY_OK : base_fail(BY_ERR_FORMAT, "%s: the model has no chat template", dir);
}

static by_status open_file(by_chat *c, const char *path)
{
    const size_t n = strlen(path);
    if (n < 5 || strcmp(path + n - 5, ".json") != 0)
        return add_file(c, "default", path);
    BY_TRY(add_json(c, NULL, path, true, true));
    return c->count ? BY_OK
                    : base_fail(BY_ERR_FORMAT,
                                base_file_exists(path) ? "%s: no chat template" : "%s: no such file", path);
}

by_chat *by_chat_open(const char *path)
{
    if (!path) {
        base_fail_missing("path of the chat template");
        return NULL;
    }
    by_chat *c = new_chat();
    if (c && (base_dir_exists(path) ? open_dir(c, path) : open_file(c, path)) != BY_OK) {
        by_chat_free(c);
        return NULL;
    }
    return c;
}

by_chat *by_chat_new(const char *text, size_t size, const char *name)
{
    if (!text) {
        base_fail_missing("chat template");
        return NULL;
    }
    by_chat *c = new_chat();
    if (c && add_template(c, "default", text, size, name ? name : "chat template") != BY_OK) {
        by_chat_free(c);
        return NULL;
    }
    return c;
}

by_chat *chat_open_with(const char *text, size_t size, const char *name, const char *dir)
{
    by_chat *c = by_chat_new(text, size, name);
    if (c && (add_json(c, dir, "tokenizer_config.json", true, false) != BY_OK ||
              add_json(c, dir, "special_tokens_map.json", true, false) != BY_OK)) {
        by_chat_free(c);
        return NULL;
    }
    return c;
}

bool by_chat_has_generation(const by_chat *c)
{
    bool any = false;
    for (int i = 0; c && i < c->count; i++)
        any = any || c->list[i].tree->generation;
    return any;
}

/* ---- variables ----------------------------------------------------------------------------------------------- */

/* Newer templates read the reasoning of a message as reasoning_content, some as thinking. Both are set from
 * the first of three names that the message has. */
static by_status alias_reasoning(chat_heap *h, const chat_value *message, chat_value *out)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const chat_value *reasoning = NULL;
    for (int i = 0; i < 3 && (!reasoning || reasoning->type == CHAT_NONE); i++)
        reasoning = chat_find_text(message->dict, names[i]);
    *out = *message;
    if (!reasoning || reasoning->type == CHAT_NONE)
        return BY_OK;
    BY_TRY(chat_new_dict(h, CHAT_DICT, out));
    BY_TRY(chat_put(h, out->dict, chat_literal("thinking"), *reasoning));
    for (size_t i = 0; i < message->dict->count; i++)
        BY_TRY(chat_put(h, out->dict, message->dict->pairs[i].key, message->dict->pairs[i].value));
    return chat_put(h, out->dict, chat_literal("reasoning_content"), *reasoning);
}

static by_status prepare_messages(chat_heap *h, const chat_value *messages, chat_value *out)
{
    chat_value m;
    if (messages->type != CHAT_LIST)
        return base_fail(BY_ERR_ARGUMENT, "the messages of a conversation must be a JSON list");
    BY_TRY(chat_new_list(h, CHAT_LIST, messages->list->count, out));
    for (size_t i = 0; i < messages->list->count; i++) {
        if (messages->list->items[i].type != CHAT_DICT)
            return base_fail(BY_ERR_ARGUMENT, "message %zu of the conversation is not an object", i + 1);
        BY_TRY(alias_reasoning(h, &messages->list->items[i], &m));
        BY_TRY(chat_push(h, out->list, m));
    }
    return BY_OK;
}

static by_status check_objects(const chat_value *v, const char *what)
{
    if (v->type == CHAT_NONE)
        return BY_OK;
    if (v->type != CHAT_LIST)
        return base_fail(BY_ERR_ARGUMENT, "%s must be a JSON list", what);
    for (size_t i = 0; i < v->list->count; i++)
        if (v->list->items[i].type != CHAT_DICT)
            return base_fail(BY_ERR_ARGUMENT, "%s must be a list of objects", what);
    return BY_OK;
}

static by_status set_variables(chat_run *r, const by_chat *c, const chat_conversation *what, bool prompt)
{
    static const char *const reserved[] = {"messages", "tools", "documents", "add_generation_prompt"};
    chat_value values[4] = {chat_none(), what->tools, what->documents, chat_bool(prompt)};
    BY_TRY(prepare_messages(&r->heap, &what->messages, &values[0]));
    BY_TRY(check_objects(&what->tools, "tools"));
    BY_TRY(check_objects(&what->documents, "documents"));
    for (int i = 0; i < c->token_count; i++)
        BY_TRY(chat_set(r, r->frame, c->tokens[i].name, c->tokens[i].value));
    if (what->variables.type != CHAT_NONE && what->variables.type != CHAT_DICT)
        return base_fail(BY_ERR_ARGUMENT, "the variables of a chat template must be a JSON object");
    for (size_t i = 0; what->variables.type == CHAT_DICT && i < what->variables.dict->count; i++)
        BY_TRY(
            chat_set(r, r->frame, what->variables.dict->pairs[i].key, what->variables.dict->pairs[i].value));
    for (int i = 0; i < 4; i++)
        BY_TRY(chat_set(r, r->frame, chat_literal(reserved[i]), values[i]));
    return BY_OK;
}

/* ---- time ----------------------------------------------------------------------------------------------------- */

/* Sets the day of the week and of the year. */
static by_status set_time(chat_run *r, const char *now)
{
    struct timespec t;
    if (!now) {
        clock_gettime(CLOCK_REALTIME, &t);
        localtime_r(&t.tv_sec, &r->now);
        r->microseconds = (int)(t.tv_nsec / 1000);
        return BY_OK;
    }
    struct tm *n = &r->now;
    if (sscanf(now, "%4d-%2d-%2d %2d:%2d:%2d", &n->tm_year, &n->tm_mon, &n->tm_mday, &n->tm_hour, &n->tm_min,
               &n->tm_sec) != 6)
        return base_fail(BY_ERR_ARGUMENT, "\"%.40s\" is not a time such as 2026-01-05 09:07:03", now);
    n->tm_year -= 1900;
    n->tm_mon--;
    timegm(n);
    n->tm_isdst = -1;
    return BY_OK;
}

/* ---- rendering ------------------------------------------------------------------------------------------------- */

static by_status choose_tree(const by_chat *c, const chat_conversation *what, const char *name,
                             const chat_tree **out)
{
    *out = NULL;
    if (name) {
        *out = find_template(c, name);
    } else {
        if (what->tools.type != CHAT_NONE)
            *out = find_template(c, "tool_use");
        if (!*out)
            *out = find_template(c, "default");
        if (!*out && c->count == 1)
            *out = c->list[0].tree;
    }
    if (!*out)
        return base_fail(BY_ERR_ARGUMENT, "no chat template %.60s",
                         name ? name : "default; name one of them");
    return BY_OK;
}

static by_status run_tree(chat_run *r, const by_chat *c, const chat_conversation *what,
                          const by_chat_input *in)
{
    if (!r->heap.arena || !(r->frame = chat_push_frame(r, NULL, NULL)))
        return base_error_status();
    BY_TRY(set_time(r, in->now));
    BY_TRY(set_variables(r, c, what, in->add_generation_prompt));
    if (!(r->frame = chat_push_frame(r, r->frame, r->tree->hidden)))
        return base_error_status();
    BY_TRY(chat_execute(r, r->tree->body));
    base_buf_put(&r->out, "", 0); /* a final NUL, even for an empty text */
    return chat_check_output(r);
}

/* Converts character positions to bytes. Spans are in order, except those of nested blocks. */
static void spans_to_bytes(chat_run *r)
{
    size_t at = 0, characters = 0;
    for (size_t i = 0; i < 2 * r->span_count; i++) {
        size_t *p = i % 2 ? &r->spans[i / 2].end : &r->spans[i / 2].start;
        if (*p < characters)
            at = characters = 0;
        at += chat_offset(r->out.data + at, r->out.size - at, (int64_t)(*p - characters));
        characters = *p;
        *p = at;
    }
}

by_status chat_render(const by_chat *c, const chat_conversation *what, const by_chat_input *in,
                      by_chat_text *out)
{
    chat_run r = {.heap = {.arena = base_arena_new(), .left = in->max_bytes ? in->max_bytes : BYTE_LIMIT},
                  .steps = in->max_steps ? in->max_steps : STEP_LIMIT,
                  .out_limit = in->max_bytes ? in->max_bytes : BYTE_LIMIT};
    *out = (by_chat_text){0};
    by_status s = choose_tree(c, what, in->template_name, &r.tree);
    r.heap.tree = r.tree;
    r.heap.at = &r.at;
    if (s == BY_OK)
        s = run_tree(&r, c, what, in);
    if (s == BY_OK) {
        spans_to_bytes(&r);
        *out = (by_chat_text){r.out.data, r.out.size, r.spans, r.span_count, NULL};
    } else {
        if (r.exception.type == CHAT_STRING)
            out->exception = base_sprintf("%.*s", (int)BY_MIN(r.exception.size, 100000), r.exception.text);
        base_buf_free(&r.out);
        base_free(r.spans);
    }
    base_arena_free(r.heap.arena);
    return s;
}

static by_status read_member(chat_heap *h, const char *text, size_t size, const char *what, chat_value *out)
{
    *out = chat_none();
    return text ? chat_read_json(h, text, size ? size : strlen(text), what, out) : BY_OK;
}

by_status by_chat_render(const by_chat *c, const by_chat_input *in, by_chat_text *out)
{
    if (!c || !in || !out || !in->messages)
        return base_fail_missing(c ? "by_chat_input, its messages or by_chat_text" : "chat template");
    chat_heap h = {.arena = base_arena_new(), .left = SIZE_MAX};
    chat_conversation what;
    *out = (by_chat_text){0};
    if (!h.arena)
        return BY_ERR_MEMORY;
    by_status s = read_member(&h, in->messages, in->messages_size, "messages", &what.messages);
    if (s == BY_OK)
        s = read_member(&h, in->tools, 0, "tools", &what.tools);
    if (s == BY_OK)
        s = read_member(&h, in->documents, 0, "documents", &what.documents);
    if (s == BY_OK)
        s = read_member(&h, in->variables, 0, "variables", &what.variables);
    if (s == BY_OK)
        s = chat_render(c, &what, in, out);
    base_arena_free(h.arena);
    return s;
}

void by_chat_text_free(by_chat_text *t)
{
    if (!t)
        return;
    base_free(t->text);
    base_free(t->spans);
    base_free(t->exception);
    *t = (by_chat_text){0};
}
