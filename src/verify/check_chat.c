/* check_chat.c - cases of kind "chat": renders every recorded conversation with every recorded template, and
 * compares the text byte for byte, the spans of the assistant, and exceptions. */
#include <math.h>

#include "base/file.h"
#include "base/json.h"
#include "chat/chat.h"
#include "verify/check.h"

#define JSON_LIMIT ((size_t)64 << 20)

typedef struct chat_record {
    verify_case *c;
    chat_heap heap;
    chat_value conversations;
    const char *now, *name; /* of the template */
    by_chat *chat;
    chat_value tokens; /* a dictionary of special tokens */
} chat_record;

/* Reads a JSON file; the text stays in the arena. */
static by_status read_file(chat_record *k, const char *folder, const char *file, chat_value *out)
{
    char *dir = base_path_join(k->c->dir, folder), *path = dir ? base_path_join(dir, file) : NULL;
    size_t size = 0;
    char *text = path ? base_file_read(path, JSON_LIMIT, &size) : NULL;
    chat_value copy;
    by_status s = text ? chat_copy_bytes(&k->heap, text, size, &copy) : base_error_status();
    if (s == BY_OK)
        s = chat_read_json(&k->heap, copy.text, copy.size, path, out);
    base_free(text);
    base_free(path);
    base_free(dir);
    return s;
}

/* A member of a dictionary; none if it is absent. */
static chat_value member(const chat_value *v, const char *key)
{
    const chat_value *there = v->type == CHAT_DICT ? chat_find_text(v->dict, key) : NULL;
    return there ? *there : chat_none();
}

/* ---- one conversation --------------------------------------------------------------------------------- */

/* Special tokens and the conversation's own variables. */
static by_status join_variables(chat_record *k, const chat_value *own, chat_value *out)
{
    const chat_value *parts[] = {&k->tokens, own};
    BY_TRY(chat_new_dict(&k->heap, CHAT_DICT, out));
    for (int i = 0; i < 2; i++)
        for (size_t j = 0; parts[i]->type == CHAT_DICT && j < parts[i]->dict->count; j++)
            BY_TRY(
                chat_put(&k->heap, out->dict, parts[i]->dict->pairs[j].key, parts[i]->dict->pairs[j].value));
    return BY_OK;
}

static by_status render(chat_record *k, const chat_value *conversation, bool prompt, by_chat_text *out)
{
    const chat_value own = member(conversation, "kwargs");
    chat_conversation what = {member(conversation, "messages"), member(conversation, "tools"),
                              member(conversation, "documents"), chat_none()};
    BY_TRY(join_variables(k, &own, &what.variables));
    return chat_render(k->chat, &what, &(by_chat_input){.add_generation_prompt = prompt, .now = k->now}, out);
}

static bool same_spans(const chat_value *expected, const by_chat_text *here)
{
    if (expected->type != CHAT_LIST || expected->list->count != here->span_count)
        return false;
    for (size_t i = 0; i < here->span_count; i++) {
        const chat_value *pair = &expected->list->items[i];
        if (pair->type != CHAT_LIST || pair->list->count != 2 ||
            pair->list->items[0].integer != (int64_t)here->spans[i].start ||
            pair->list->items[1].integer != (int64_t)here->spans[i].end)
            return false;
    }
    return true;
}

/* The error of a rendering that succeeded, or NULL. */
static const char *text_problem(const chat_value *expected, const by_chat_text *here, char *note, size_t room)
{
    const chat_value text = expected->type == CHAT_STRING ? *expected : member(expected, "text");
    const chat_value spans = member(expected, "generation_bytes");
    size_t same = 0;
    if (text.type != CHAT_STRING)
        return "rendered, but the reference fails";
    while (same < text.size && same < here->size && text.text[same] == here->text[same])
        same++;
    if (same < text.size || same < here->size) {
        base_format(note, room, "byte %zu: \"%.20s\" instead of \"%.*s\"", same, here->text + same,
                    (int)BY_MIN(text.size - same, 20), text.text + same);
        return note;
    }
    return spans.type != CHAT_NONE && !same_spans(&spans, here) ? "the spans of the assistant differ" : NULL;
}

/* The same for one that failed. Only the message of raise_exception is compared: others are Python's. */
static const char *failure_problem(const chat_value *expected, const by_chat_text *here)
{
    const chat_value error = member(expected, "error"), message = member(expected, "message");
    if (error.type != CHAT_STRING)
        return by_error_message();
    if (!chat_is_text(&error, "TemplateError"))
        return here->exception ? "the template refuses it, but the reference fails otherwise" : NULL;
    if (!here->exception || !chat_is_text(&message, here->exception))
        return "the message of the exception differs";
    return NULL;
}

static by_status compare(chat_record *k, const chat_pair *expected)
{
    char name[200], note[200];
    const chat_value key = {.type = CHAT_STRING, .text = expected->key.text, .size = expected->key.size - 1};
    const chat_value *conversation = expected->key.size ? chat_find(k->conversations.dict, &key) : NULL;
    by_chat_text here = {0};
    if (!conversation)
        return base_fail(BY_ERR_FORMAT, "%s: no conversation %.*s", k->name, (int)key.size, key.text);
    base_format(name, sizeof name, "%s.%.*s", k->name, (int)expected->key.size, expected->key.text);
    const by_status s = render(k, conversation, key.text[key.size] == '+', &here);
    const char *problem = s == BY_OK ? text_problem(&expected->value, &here, note, sizeof note)
                                     : failure_problem(&expected->value, &here);
    verify_say(k->c, &(by_weight){.name = name}, &(verify_rule){BY_MEASURE_DIFFERENT, 0, 0},
               problem ? INFINITY : 0, problem);
    by_chat_text_free(&here);
    return s == BY_ERR_MEMORY ? s : BY_OK;
}

/* ---- the case ----------------------------------------------------------------------------------------- */

static by_chat *open_template(const chat_record *k, const char *file)
{
    char *dir = base_path_join(k->c->dir, "templates"), *path = dir ? base_path_join(dir, file) : NULL;
    by_chat *chat = path ? by_chat_open(path) : NULL;
    base_free(path);
    base_free(dir);
    return chat;
}

static by_status check_file(chat_record *k, const char *path)
{
    const char *file = strrchr(path, '/') + 1;
    char name[120], template[160];
    chat_value expected;
    base_format(name, sizeof name, "%.*s", (int)(strlen(file) - strlen(".json")), file);
    base_format(template, sizeof template, "%s.jinja", name);
    BY_TRY(read_file(k, "expected", file, &expected));
    const chat_value rendered = member(&expected, "rendered");
    if (rendered.type != CHAT_DICT || k->conversations.type != CHAT_DICT)
        return base_fail(BY_ERR_FORMAT, "%s: nothing is recorded", file);
    k->name = name;
    k->tokens = member(&expected, "special_tokens");
    if (!(k->chat = open_template(k, template)))
        return base_error_status();
    by_status s = BY_OK;
    for (size_t i = 0; i < rendered.dict->count && s == BY_OK; i++)
        s = compare(k, &rendered.dict->pairs[i]);
    by_chat_free(k->chat);
    return s;
}

static by_status check_all(chat_record *k)
{
    char **paths = NULL, *pattern;
    int count = 0;
    BY_TRY(base_json_string(k->c->settings, "strftime_now", NULL, &k->now));
    BY_TRY(read_file(k, "", "conversations.json", &k->conversations));
    if (!(pattern = base_path_join(k->c->dir, "expected/*.json")))
        return BY_ERR_MEMORY;
    by_status s = base_glob(pattern, &paths, &count);
    for (int i = 0; i < count && s == BY_OK; i++)
        s = check_file(k, paths[i]);
    base_paths_free(paths, count);
    base_free(pattern);
    return s;
}

by_status verify_chat(verify_case *c)
{
    chat_record k = {.c = c, .heap = {.arena = base_arena_new(), .left = SIZE_MAX}};
    if (!k.heap.arena)
        return BY_ERR_MEMORY;
    by_status s = check_all(&k);
    base_arena_free(k.heap.arena);
    return s;
}
