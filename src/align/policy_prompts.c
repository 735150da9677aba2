/* policy_prompts.c - see policy_prompts.h. */
#include "align/policy_prompts.h"

#include "base/input.h"
#include "base/json.h"

/* ---- one prompt --------------------------------------------------------------------------------- */

/* Keeps the special tokens that a tokenizer puts before a text, and removes an end token after it. */
static by_status encode(align_prompts *x, const align_prompts_spec *spec, const char *text, size_t size,
                        bool special, align_prompt *out)
{
    by_encoding e;
    const int eos = by_tokenizer_eos(spec->tokenizer);
    by_status s = by_tokenizer_encode_with(spec->tokenizer, text, size,
                                           &(by_encode_spec){.special = special, .whole = true}, &e);
    size_t count = e.ids.count;
    if (s == BY_OK && special && count && e.special && e.special[count - 1] && e.ids.data[count - 1] == eos)
        count--;
    if (s == BY_OK && count == 0 && spec->start < 0)
        s = base_fail(BY_ERR_FORMAT, "the prompt is empty, and the model has no token that begins a text");
    if (s == BY_OK && count > 1 << 24)
        s = base_fail(BY_ERR_FORMAT, "the prompt is too long");
    int32_t *ids = s == BY_OK ? base_arena_alloc(x->arena, BY_MAX(count, 1) * sizeof *ids) : NULL;
    if (s == BY_OK && !ids)
        s = BY_ERR_MEMORY;
    if (s == BY_OK && count)
        memcpy(ids, e.ids.data, count * sizeof *ids);
    else if (s == BY_OK)
        ids[0] = spec->start;
    out->tokens = ids;
    out->count = (int)BY_MAX(count, 1);
    by_encoding_free(&e);
    return s;
}

static by_status put(align_prompts *x, const align_prompts_spec *spec, const align_prompt *one)
{
    if (one->count > spec->limit) {
        x->left_out++;
        return BY_OK;
    }
    if (x->count == x->capacity) {
        const int grown = x->capacity ? 2 * x->capacity : 256;
        align_prompt *more = base_resize(x->list, (size_t)grown, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        x->list = more;
        x->capacity = grown;
    }
    x->list[x->count++] = *one;
    x->longest = BY_MAX(x->longest, one->count);
    return BY_OK;
}

static by_status keep_text(align_prompts *x, const char *text, const char **out)
{
    *out = base_arena_strdup(x->arena, text);
    return *out ? BY_OK : BY_ERR_MEMORY;
}

/* ---- conversations -------------------------------------------------------------------------------- */

static const char *member_text(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsString(v) ? v->valuestring : NULL;
}

/* Removes a final message of the assistant, which is the expected answer. */
static by_status take_expected(align_prompts *x, cJSON *messages, align_prompt *out)
{
    const int last = cJSON_GetArraySize(messages) - 1;
    const cJSON *m = cJSON_GetArrayItem(messages, last);
    const char *role = m ? member_text(m, "role") : NULL, *content = m ? member_text(m, "content") : NULL;
    if (!role || strcmp(role, "assistant") != 0 || last == 0)
        return BY_OK;
    if (!out->expected && content)
        BY_TRY(keep_text(x, content, &out->expected));
    cJSON_DeleteItemFromArray(messages, last);
    return BY_OK;
}

static by_status render(align_prompts *x, const align_prompts_spec *spec, const cJSON *object,
                        cJSON *messages, align_prompt *out)
{
    const cJSON *tools = cJSON_GetObjectItemCaseSensitive(object, "tools"),
                *variables = cJSON_GetObjectItemCaseSensitive(object, "chat_template_kwargs");
    base_buf json = {0}, tool_text = {0}, variable_text = {0};
    by_chat_text text = {0};
    by_status s = take_expected(x, messages, out);
    const cJSON *last = cJSON_GetArrayItem(messages, cJSON_GetArraySize(messages) - 1);
    const char *content = last ? member_text(last, "content") : NULL;
    if (s == BY_OK && !spec->chat)
        s = base_fail(BY_ERR_ARGUMENT, "the prompt is a conversation, but the model has no chat template");
    if (s == BY_OK)
        s = keep_text(x, content ? content : "", &out->text);
    if (s == BY_OK)
        s = base_json_print(&json, messages, false);
    if (s == BY_OK)
        s = keep_text(x, json.data, &out->messages);
    if (s == BY_OK && cJSON_IsString(tools))
        base_buf_puts(&tool_text, tools->valuestring);
    else if (s == BY_OK && tools)
        s = base_json_print(&tool_text, tools, false);
    if (s == BY_OK && variables)
        s = base_json_print(&variable_text, variables, false);
    if (s == BY_OK && tool_text.failed)
        s = BY_ERR_MEMORY;
    if (s == BY_OK)
        s = by_chat_render(spec->chat,
                           &(by_chat_input){.messages = json.data,
                                            .messages_size = json.size,
                                            .tools = tools ? tool_text.data : NULL,
                                            .variables = variables ? variable_text.data : NULL,
                                            .add_generation_prompt = true},
                           &text);
    if (s == BY_OK)
        s = encode(x, spec, text.text, text.size, false, out);
    by_chat_text_free(&text);
    base_buf_free(&json);
    base_buf_free(&tool_text);
    base_buf_free(&variable_text);
    return s;
}

/* ---- lines ------------------------------------------------------------------------------------------ */

static by_status read_expected(align_prompts *x, const cJSON *object, align_prompt *out)
{
    static const char *const keys[] = {"answer", "expected", "solution", "completion"};
    for (int i = 0; i < BY_COUNT(keys); i++) {
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, keys[i]);
        base_buf text = {0};
        if (!v || cJSON_IsNull(v))
            continue;
        if (cJSON_IsString(v))
            return keep_text(x, v->valuestring, &out->expected);
        by_status s = base_json_print(&text, v, false);
        if (s == BY_OK)
            s = keep_text(x, text.data, &out->expected);
        base_buf_free(&text);
        return s;
    }
    return BY_OK;
}

/* Takes ownership of the object. */
static by_status add_object(align_prompts *x, const align_prompts_spec *spec, cJSON *object)
{
    align_prompt one = {0};
    cJSON *prompt = cJSON_GetObjectItemCaseSensitive(object, "prompt"),
          *messages = cJSON_IsArray(prompt) ? prompt : cJSON_GetObjectItemCaseSensitive(object, "messages");
    by_status s = read_expected(x, object, &one);
    if (s == BY_OK && cJSON_IsString(prompt)) {
        s = keep_text(x, prompt->valuestring, &one.text);
        if (s == BY_OK)
            s = encode(x, spec, one.text, strlen(one.text), true, &one);
    } else if (s == BY_OK && cJSON_IsArray(messages)) {
        s = render(x, spec, object, messages, &one);
    } else if (s == BY_OK) {
        s = base_fail(BY_ERR_FORMAT,
                      cJSON_IsObject(object)
                          ? "the object needs a \"prompt\" (a text or messages) or \"messages\""
                          : "not a JSON object");
    }
    cJSON_Delete(object);
    return s == BY_OK ? put(x, spec, &one) : s;
}

static by_status read_object(align_prompts *x, const align_prompts_spec *spec, const char *line, size_t size)
{
    cJSON *object = base_json_parse(line, size, "the line");
    return object ? add_object(x, spec, object) : base_error_status();
}

static by_status read_text(align_prompts *x, const align_prompts_spec *spec, const char *line, size_t size)
{
    align_prompt one = {0};
    for (size_t i = 0, n; i < size; i += n)
        if (!line[i] || !(n = base_json_utf8(line + i, size - i)))
            return base_fail(BY_ERR_FORMAT, "the prompt is not UTF-8 text (byte %zu)", i + 1);
    BY_TRY(keep_text(x, line, &one.text));
    BY_TRY(encode(x, spec, line, size, true, &one));
    return put(x, spec, &one);
}

static bool is_blank(const char *line)
{
    return line[strspn(line, " \t\r")] == '\0';
}

/* The contents of a file, by its first non-blank line. */
typedef enum contents { TEXTS, OBJECTS, LIST } contents;

static contents contents_of(const char *line)
{
    line += strspn(line, " \t");
    if (*line != '[')
        return *line == '{' ? OBJECTS : TEXTS;
    line += 1 + strspn(line + 1, " \t\r");
    return *line == '{' || *line == '\0' ? LIST : TEXTS; /* a prompt may also begin with a bracket */
}

/* A list of objects. Its first line has been read already. */
static by_status read_list(align_prompts *x, const align_prompts_spec *spec, base_lines *lines)
{
    base_buf text = {0};
    by_status s = BY_OK;
    for (bool more = true; s == BY_OK && more;) {
        base_buf_put(&text, lines->text, lines->size);
        base_buf_puts(&text, "\n");
        s = text.failed ? BY_ERR_MEMORY : base_lines_next(lines, &more);
    }
    x->fingerprint = s == BY_OK ? base_hash(text.data, text.size, 1) : 0;
    cJSON *all = s == BY_OK ? base_json_parse(text.data, text.size, base_input_name(lines->path)) : NULL;
    base_buf_free(&text);
    if (s == BY_OK && !all)
        s = base_error_status();
    for (int i = 1; s == BY_OK && cJSON_GetArraySize(all) > 0; i++) {
        s = base_cancel_check();
        if (s == BY_OK && (s = add_object(x, spec, cJSON_DetachItemFromArray(all, 0))) != BY_OK)
            base_fail_context("%s, object %d", base_input_name(lines->path), i);
    }
    cJSON_Delete(all);
    return s;
}

static by_status read_lines(align_prompts *x, const align_prompts_spec *spec, base_lines *lines)
{
    bool more, known = false;
    contents has = TEXTS;
    while (true) {
        BY_TRY(base_cancel_check());
        BY_TRY(base_lines_next(lines, &more));
        if (!more)
            return BY_OK;
        if (is_blank(lines->text))
            continue;
        if (!known)
            has = contents_of(lines->text);
        if (has == LIST)
            return read_list(x, spec, lines);
        known = true;
        x->fingerprint = base_hash(lines->text, lines->size, x->fingerprint + 1);
        if ((has == OBJECTS ? read_object : read_text)(x, spec, lines->text, lines->size) != BY_OK)
            return base_fail_context("%s, line %lld", base_input_name(lines->path), (long long)lines->number);
    }
}

by_status align_prompts_open(align_prompts *x, const char *path, const align_prompts_spec *spec)
{
    base_lines lines = {0};
    *x = (align_prompts){.arena = base_arena_new()};
    by_status s = x->arena ? base_lines_open(&lines, path) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = read_lines(x, spec, &lines);
    base_lines_close(&lines);
    if (s == BY_OK && !x->count)
        s = base_fail(BY_ERR_FORMAT, x->left_out ? "%s: no prompt has at most %d tokens" : "%s: no prompts",
                      base_input_name(path), spec->limit);
    return s;
}

void align_prompts_close(align_prompts *x)
{
    base_free(x->list);
    base_arena_free(x->arena);
    *x = (align_prompts){0};
}
