/* instruction_forms.c - one JSON object of instruction data as text: finds its form, applies the chat
 * template, and finds the parts that are answers. */
#include "data/instructions.h"

#include <math.h>
#include <stdlib.h>

/* ---- objects ------------------------------------------------------------------------------------------ */

static const chat_value *member(const chat_value *o, const char *key)
{
    const chat_value *v = chat_find_text(o->dict, key);
    return v && v->type != CHAT_NONE ? v : NULL;
}

static const chat_value *text_member(const chat_value *o, const char *key)
{
    const chat_value *v = member(o, key);
    return v && v->type == CHAT_STRING ? v : NULL;
}

static bool is_list(const chat_value *v)
{
    return v && v->type == CHAT_LIST;
}

static by_status new_message(chat_heap *h, const char *role, chat_value content, chat_value *out)
{
    BY_TRY(chat_new_dict(h, CHAT_DICT, out));
    BY_TRY(chat_put(h, out->dict, chat_literal("role"), chat_literal(role)));
    return chat_put(h, out->dict, chat_literal("content"), content);
}

/* A list of one message. */
static by_status one_message(chat_heap *h, const char *role, chat_value content, chat_value *out)
{
    chat_value m;
    BY_TRY(new_message(h, role, content, &m));
    BY_TRY(chat_new_list(h, CHAT_LIST, 1, out));
    return chat_push(h, out->list, m);
}

/* The first `count` messages of a, followed by b (may be NULL). */
static by_status join_messages(chat_heap *h, const chat_value *a, size_t count, const chat_value *b,
                               chat_value *out)
{
    BY_TRY(chat_new_list(h, CHAT_LIST, count + (b ? b->list->count : 0), out));
    for (size_t i = 0; i < count; i++)
        BY_TRY(chat_push(h, out->list, a->list->items[i]));
    for (size_t i = 0; b && i < b->list->count; i++)
        BY_TRY(chat_push(h, out->list, b->list->items[i]));
    return BY_OK;
}

static bool is_answer(const chat_value *message)
{
    const chat_value *role = message->type == CHAT_DICT ? member(message, "role") : NULL;
    return role && chat_is_text(role, "assistant");
}

/* ---- scripts ------------------------------------------------------------------------------------------ */

void data_script_free(data_script *s)
{
    base_buf_free(&s->text);
    base_free(s->spans);
    *s = (data_script){0};
}

static by_status add_span(data_script *s, size_t start, size_t end)
{
    if (s->span_count == s->span_room) {
        const size_t room = s->span_room ? s->span_room * 2 : 8;
        by_chat_span *spans = base_resize(s->spans, room, sizeof *spans);
        if (!spans)
            return BY_ERR_MEMORY;
        s->spans = spans;
        s->span_room = room;
    }
    if (end > start)
        s->spans[s->span_count++] = (by_chat_span){start, end};
    return BY_OK;
}

/* Plain texts end with the end token, which is trained on. */
static by_status plain(const data_instructions *x, const chat_value *prompt, const chat_value *answer,
                       data_script *out)
{
    const size_t end = x->eos ? strlen(x->eos) : 0;
    const bool ends =
        end && answer->size >= end && memcmp(answer->text + answer->size - end, x->eos, end) == 0;
    if (prompt)
        base_buf_put(&out->text, prompt->text, prompt->size);
    base_buf_put(&out->text, answer->text, answer->size);
    if (!ends && end)
        base_buf_puts(&out->text, x->eos);
    out->special = true;
    if (out->text.failed)
        return BY_ERR_MEMORY;
    return add_span(out, prompt && !x->spec.learn_prompts ? prompt->size : 0, out->text.size);
}

/* ---- conversations ------------------------------------------------------------------------------------ */

/* Shared by all renderings of an object. */
typedef struct dialog {
    const by_chat *chat;
    chat_heap *heap;
    chat_conversation what; /* tools and variables; messages are set for each rendering */
} dialog;

static by_status open_dialog(const data_instructions *x, chat_heap *h, const chat_value *o, dialog *out)
{
    const chat_value *tools = member(o, "tools"), *variables = member(o, "chat_template_kwargs");
    *out = (dialog){.chat = x->spec.chat, .heap = h};
    out->what = (chat_conversation){chat_none(), tools ? *tools : chat_none(), chat_none(),
                                    variables ? *variables : chat_none()};
    if (!x->spec.chat)
        return base_fail(BY_ERR_ARGUMENT, "the object is a conversation, but the model has no chat template");
    if (tools && tools->type == CHAT_STRING) /* JSON as text */
        return chat_read_json(h, tools->text, tools->size, "tools", &out->what.tools);
    return BY_OK;
}

static by_status render(dialog *d, const chat_value *messages, bool prompt, by_chat_text *out)
{
    d->what.messages = *messages;
    return chat_render(d->chat, &d->what, &(by_chat_input){.add_generation_prompt = prompt}, out);
}

static size_t common_size(const by_chat_text *a, const char *text, size_t size)
{
    size_t n = 0;
    while (n < a->size && n < size && a->text[n] == text[n])
        n++;
    return n;
}

/* The start in the text of the answer to the first `count` messages: after the generation prompt, or after
 * the common prefix if the template renders this prompt differently in a whole conversation. */
static by_status answer_start(dialog *d, const chat_value *messages, size_t count, const base_buf *text,
                              size_t *out)
{
    chat_value before;
    by_chat_text with, without = {0};
    BY_TRY(join_messages(d->heap, messages, count, NULL, &before));
    by_status s = render(d, &before, true, &with);
    if (s == BY_OK && (*out = common_size(&with, text->data, text->size)) < with.size) {
        s = render(d, &before, false, &without);
        if (s == BY_OK && common_size(&without, text->data, *out) < without.size)
            s = base_fail(
                BY_ERR_ARGUMENT,
                "the chat template renders the messages before message %zu otherwise when it follows, so "
                "that its answer cannot be found; use a template that marks answers with {%% generation %%}",
                count + 1);
    }
    by_chat_text_free(&with);
    by_chat_text_free(&without);
    return s;
}

/* The end of the answer that is message `count`: the end of the conversation up to it. A template may add the
 * end token only after the last message. */
static by_status answer_end(const data_instructions *x, dialog *d, const chat_value *messages, size_t count,
                            const base_buf *text, size_t *out)
{
    chat_value before;
    by_chat_text t;
    const size_t end = x->eos ? strlen(x->eos) : 0;
    *out = text->size;
    if (count == messages->list->count)
        return BY_OK;
    BY_TRY(join_messages(d->heap, messages, count, NULL, &before));
    by_status s = render(d, &before, false, &t);
    if (s == BY_OK && common_size(&t, text->data, text->size) < t.size && end && t.size >= end &&
        memcmp(t.text + t.size - end, x->eos, end) == 0)
        t.size -= end;
    if (s == BY_OK && common_size(&t, text->data, text->size) < t.size)
        s = base_fail(BY_ERR_ARGUMENT,
                      "the chat template renders message %zu otherwise when messages follow, so that its end "
                      "cannot be found; use a template that marks answers with {%% generation %%}",
                      count);
    if (s == BY_OK)
        *out = t.size;
    by_chat_text_free(&t);
    return s;
}

static by_status find_answers(const data_instructions *x, dialog *d, const chat_value *messages,
                              data_script *out)
{
    size_t start = 0, end = 0;
    for (size_t i = 0; i < messages->list->count; i++) {
        if (!is_answer(&messages->list->items[i]))
            continue;
        BY_TRY(answer_start(d, messages, i, &out->text, &start));
        BY_TRY(answer_end(x, d, messages, i + 1, &out->text, &end));
        BY_TRY(add_span(out, start, end));
    }
    return BY_OK;
}

/* Renders a conversation as the text of the script. */
static by_status render_script(dialog *d, const chat_value *messages, data_script *out, by_chat_text *t)
{
    BY_TRY(render(d, messages, false, t));
    base_buf_put(&out->text, t->text, t->size);
    return out->text.failed ? BY_ERR_MEMORY : BY_OK;
}

static by_status conversation(const data_instructions *x, dialog *d, const chat_value *messages,
                              data_script *out)
{
    by_chat_text t;
    by_status s = render_script(d, messages, out, &t);
    if (s == BY_OK && x->spec.learn_prompts) {
        s = add_span(out, 0, out->text.size);
    } else if (s == BY_OK && by_chat_has_generation(d->chat)) {
        for (size_t i = 0; i < t.span_count && s == BY_OK; i++)
            s = add_span(out, t.spans[i].start, t.spans[i].end);
    } else if (s == BY_OK) {
        s = find_answers(x, d, messages, out);
    }
    by_chat_text_free(&t);
    return s;
}

/* Messages of a prompt and of its answer. */
static by_status prompted(const data_instructions *x, dialog *d, const chat_value *prompt,
                          const chat_value *answer, data_script *out)
{
    chat_value all;
    by_chat_text t;
    size_t start = 0;
    BY_TRY(join_messages(d->heap, prompt, prompt->list->count, answer, &all));
    by_status s = render_script(d, &all, out, &t);
    by_chat_text_free(&t);
    if (s == BY_OK && !x->spec.learn_prompts)
        s = answer_start(d, &all, prompt->list->count, &out->text, &start);
    return s == BY_OK ? add_span(out, start, out->text.size) : s;
}

/* ---- forms -------------------------------------------------------------------------------------------- */

/* A prompt and an answer are both texts or both messages. A text that answers messages becomes a message. */
static by_status pair_script(const data_instructions *x, chat_heap *h, const chat_value *o,
                             const chat_value *prompt, const chat_value *answer, data_script *out)
{
    dialog d;
    chat_value message;
    if (prompt->type == CHAT_STRING && answer->type == CHAT_STRING)
        return plain(x, prompt, answer, out);
    if (!is_list(prompt) || (!is_list(answer) && answer->type != CHAT_STRING))
        return base_fail(BY_ERR_FORMAT, "the prompt and its answer must be texts or lists of messages");
    BY_TRY(open_dialog(x, h, o, &d));
    if (answer->type == CHAT_STRING) {
        BY_TRY(one_message(h, "assistant", *answer, &message));
        answer = &message;
    }
    return prompted(x, &d, prompt, answer, out);
}

/* The text of an instruction: with its input, or in the words of Alpaca (Taori et al. 2023) for models
 * without a template. */
static by_status instruction_prompt(const data_instructions *x, chat_heap *h, const chat_value *o,
                                    chat_value *out)
{
    const chat_value *instruction = text_member(o, "instruction"), *input = text_member(o, "input");
    base_buf text = {0};
    chat_value content;
    const bool has_input = input && input->size;
    if (!input && member(o, "input") && member(o, "input")->type != CHAT_NONE)
        return base_fail(BY_ERR_FORMAT, "\"input\" is not a text");
    if (!x->spec.chat)
        base_buf_puts(
            &text,
            has_input
                ? "Below is an instruction that describes a task, paired with an input that provides further "
                  "context. Write a response that appropriately completes the request.\n\n### Instruction:\n"
                : "Below is an instruction that describes a task. Write a response that appropriately "
                  "completes the request.\n\n### Instruction:\n");
    base_buf_put(&text, instruction->text, instruction->size);
    if (has_input) {
        base_buf_puts(&text, x->spec.chat ? "\n\n" : "\n\n### Input:\n");
        base_buf_put(&text, input->text, input->size);
    }
    if (!x->spec.chat)
        base_buf_puts(&text, "\n\n### Response:\n");
    by_status s = text.failed ? BY_ERR_MEMORY : chat_copy_bytes(h, text.data, text.size, &content);
    base_buf_free(&text);
    if (s == BY_OK && x->spec.chat)
        return one_message(h, "user", content, out);
    *out = content;
    return s;
}

/* ShareGPT: {"conversations": [{"from": "human", "value": ...}, ...]}. Messages with a role are taken as they
 * are. */
static by_status shared_messages(chat_heap *h, const chat_value *list, chat_value *out)
{
    static const char *const roles[][2] = {
        {"human", "user"},          {"user", "user"},        {"gpt", "assistant"},
        {"chatgpt", "assistant"},   {"bing", "assistant"},   {"bard", "assistant"},
        {"assistant", "assistant"}, {"model", "assistant"},  {"system", "system"},
        {"tool", "tool"},           {"observation", "tool"}, {"function_response", "tool"}};
    chat_value m;
    BY_TRY(chat_new_list(h, CHAT_LIST, list->list->count, out));
    for (size_t i = 0; i < list->list->count; i++) {
        const chat_value *item = &list->list->items[i];
        const chat_value *from = item->type == CHAT_DICT ? text_member(item, "from") : NULL;
        const chat_value *value = from ? text_member(item, "value") : NULL;
        const char *role = NULL;
        if (item->type == CHAT_DICT && text_member(item, "role") && !member(item, "from")) {
            BY_TRY(chat_push(h, out->list, *item));
            continue;
        }
        for (int k = 0; value && k < BY_COUNT(roles); k++)
            if (chat_is_text(from, roles[k][0]))
                role = roles[k][1];
        if (!role)
            return base_fail(BY_ERR_FORMAT,
                             "message %zu of \"conversations\" needs \"from\" (human, gpt, system, tool) and "
                             "\"value\", or \"role\"",
                             i + 1);
        BY_TRY(new_message(h, role, *value, &m));
        BY_TRY(chat_push(h, out->list, m));
    }
    return BY_OK;
}

static const char *type_of(const chat_value *v)
{
    switch (v->type) {
    case CHAT_STRING:
        return "text";
    case CHAT_LIST:
        return "list";
    case CHAT_DICT:
        return "object";
    case CHAT_BOOL:
        return "true or false";
    case CHAT_NONE:
        return "null";
    default:
        return "number";
    }
}

static by_status fail_form(const chat_value *o, const char *wanted)
{
    base_buf keys = {0};
    for (size_t i = 0; i < o->dict->count && i < 8; i++) {
        const chat_pair *p = &o->dict->pairs[i];
        base_buf_printf(&keys, "%s\"%.*s\" (%s)", i ? ", " : "", (int)BY_MIN(p->key.size, 30), p->key.text,
                        type_of(&p->value));
    }
    by_status s =
        base_fail(BY_ERR_FORMAT, "the object needs %s; it has %s", wanted, keys.data ? keys.data : "no keys");
    base_buf_free(&keys);
    return s;
}

static by_status tuning_script(const data_instructions *x, chat_heap *h, const chat_value *o,
                               data_script *out)
{
    const chat_value *messages = member(o, "messages"), *shared = member(o, "conversations");
    const chat_value *prompt = member(o, "prompt"), *completion = member(o, "completion");
    const chat_value *answer =
        text_member(o, "output") ? text_member(o, "output") : text_member(o, "response");
    chat_value made;
    dialog d;
    if (is_list(messages) || is_list(shared)) {
        BY_TRY(open_dialog(x, h, o, &d));
        if (!is_list(messages))
            BY_TRY(shared_messages(h, shared, &made));
        return conversation(x, &d, is_list(messages) ? messages : &made, out);
    }
    if (prompt && completion)
        return pair_script(x, h, o, prompt, completion, out);
    if (text_member(o, "instruction") && answer) {
        BY_TRY(instruction_prompt(x, h, o, &made));
        return pair_script(x, h, o, &made, answer, out);
    }
    if (text_member(o, "text"))
        return plain(x, NULL, text_member(o, "text"), out);
    return fail_form(o, "\"messages\", \"prompt\" and \"completion\", \"instruction\" and \"output\", "
                        "\"conversations\" or \"text\"");
}

/* ---- preferences -------------------------------------------------------------------------------------- */

static bool is_same(const chat_value *a, const chat_value *b);

/* Whether b has every member of a. Null members count as absent. */
static bool has_members(const chat_value *a, const chat_value *b)
{
    for (size_t i = 0; i < a->dict->count; i++) {
        const chat_pair *p = &a->dict->pairs[i];
        const chat_value *other = chat_find(b->dict, &p->key);
        if (other ? !is_same(&p->value, other) : p->value.type != CHAT_NONE)
            return false;
    }
    return true;
}

static bool is_same(const chat_value *a, const chat_value *b)
{
    if (a->type == CHAT_DICT && b->type == CHAT_DICT)
        return has_members(a, b) && has_members(b, a);
    if (!is_list(a) || !is_list(b))
        return chat_same_scalar(a, b);
    bool same = a->list->count == b->list->count;
    for (size_t i = 0; same && i < a->list->count; i++)
        same = is_same(&a->list->items[i], &b->list->items[i]);
    return same;
}

/* The common prompt of both answers: messages, or text up to a space before the first difference. */
static by_status common_prompt(chat_heap *h, const chat_value *a, const chat_value *b, chat_value *prompt,
                               chat_value rest[2])
{
    size_t n = 0;
    if (a->type == CHAT_STRING && b->type == CHAT_STRING) {
        while (n < a->size && n < b->size && a->text[n] == b->text[n])
            n++;
        while (n > 0 && n < a->size && ((unsigned char)a->text[n] & 0xc0) == 0x80)
            n--;
        n -= n > 0 && a->text[n - 1] == ' ';
        *prompt = chat_bytes(a->text, n);
        rest[0] = chat_bytes(a->text + n, a->size - n);
        rest[1] = chat_bytes(b->text + n, b->size - n);
        return BY_OK;
    }
    if (!is_list(a) || !is_list(b))
        return base_fail(BY_ERR_FORMAT, "\"chosen\" and \"rejected\" must be texts or lists of messages");
    while (n < a->list->count && n < b->list->count && is_same(&a->list->items[n], &b->list->items[n]))
        n++;
    BY_TRY(join_messages(h, a, n, NULL, prompt));
    const chat_value *all[2] = {a, b};
    for (int k = 0; k < 2; k++) {
        BY_TRY(chat_new_list(h, CHAT_LIST, 0, &rest[k]));
        for (size_t i = n; i < all[k]->list->count; i++)
            BY_TRY(chat_push(h, rest[k].list, all[k]->list->items[i]));
    }
    return BY_OK;
}

static by_status preference_scripts(const data_instructions *x, chat_heap *h, const chat_value *o,
                                    data_script out[2])
{
    const chat_value *given = member(o, "prompt"), *chosen = member(o, "chosen"),
                     *rejected = member(o, "rejected");
    chat_value prompt, answers[2];
    if (!chosen || !rejected)
        return fail_form(
            o, "\"chosen\" and \"rejected\", and a \"prompt\" or \"instruction\" unless both begin with it");
    answers[0] = *chosen;
    answers[1] = *rejected;
    if (given)
        prompt = *given;
    else if (text_member(o, "instruction"))
        BY_TRY(instruction_prompt(x, h, o, &prompt));
    else
        BY_TRY(common_prompt(h, chosen, rejected, &prompt, answers));
    for (int k = 0; k < 2; k++)
        BY_TRY(pair_script(x, h, o, &prompt, &answers[k], &out[k]));
    return BY_OK;
}

static by_status judged_script(const data_instructions *x, chat_heap *h, const chat_value *o,
                               data_script *out, bool *good)
{
    const chat_value *prompt = member(o, "prompt"), *completion = member(o, "completion"),
                     *label = member(o, "label");
    int64_t value;
    if (!prompt || !completion || !label || !chat_as_int(label, &value))
        return fail_form(
            o, "\"prompt\", \"completion\" and \"label\" (true or false), or \"chosen\" and \"rejected\"");
    *good = value != 0;
    return pair_script(x, h, o, prompt, completion, out);
}

static by_status read_margin(const chat_value *o, float *out)
{
    const chat_value *margin = member(o, "margin");
    double value = 0;
    if (margin && (!chat_as_double(margin, &value) || !isfinite((float)value)))
        return base_fail(BY_ERR_FORMAT, "\"margin\" is not a number");
    *out = margin ? (float)value : NAN;
    return BY_OK;
}

by_status data_instruction_scripts(const data_instructions *x, chat_heap *h, const chat_value *object,
                                   data_script out[2], int *count, bool *good, float *margin)
{
    *good = true;
    *margin = NAN;
    *count = 1;
    if (object->type != CHAT_DICT)
        return base_fail(BY_ERR_FORMAT, "not a JSON object");
    if (x->spec.kind == DATA_TUNING)
        return tuning_script(x, h, object, &out[0]);
    if (x->spec.kind == DATA_JUDGEMENTS && !(member(object, "chosen") && member(object, "rejected")))
        return judged_script(x, h, object, &out[0], good);
    *count = 2;
    BY_TRY(read_margin(object, margin));
    return preference_scripts(x, h, object, out);
}
