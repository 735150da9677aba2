/* word_list.c - words between white space, of a vocabulary that the caller holds. tokenizer.json has it as a WordLevel model. */
#include "text/kind.h"

typedef struct words {
    by_tokenizer base;
    tok_word_list list;
} words;

static const tok_word_list *list_of(const by_tokenizer *t)
{
    return &((const words *)t)->list;
}

by_tokenizer *tok_new_words(const tok_word_list *list)
{
    words *w = base_alloc_zero(1, sizeof *w);
    if (!w)
        return NULL;
    w->list = *list;
    w->base = (by_tokenizer){.kind = &tok_text_words,
                             .vocab_size = list->count,
                             .eos = list->end,
                             .eos_text = list->end >= 0 ? list->name(list->user, list->end) : NULL};
    return &w->base;
}

static void words_free(by_tokenizer *t)
{
    base_free(t);
}

static void put_string(base_buf *out, const char *text)
{
    base_buf_puts(out, "\"");
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == '"' || *text == '\\')
            base_buf_printf(out, "\\u%04x", (unsigned char)*text);
        else
            base_buf_put(out, text, 1);
    base_buf_puts(out, "\"");
}

static void words_write(const by_tokenizer *t, base_buf *out)
{
    const tok_word_list *l = list_of(t);
    base_buf_puts(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
                       "  \"added_tokens\": [],\n  \"normalizer\": null,\n"
                       "  \"pre_tokenizer\": { \"type\": \"WhitespaceSplit\" },\n"
                       "  \"post_processor\": null,\n  \"decoder\": null,\n"
                       "  \"model\": {\n    \"type\": \"WordLevel\",\n    \"unk_token\": ");
    put_string(out, l->name(l->user, l->unknown));
    base_buf_puts(out, ",\n    \"vocab\": {");
    for (int32_t id = 0; id < l->count; id++) {
        base_buf_puts(out, id ? ",\n      " : "\n      ");
        put_string(out, l->name(l->user, id));
        base_buf_printf(out, ": %d", (int)id);
    }
    base_buf_puts(out, "\n    }\n  }\n}\n");
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\0';
}

static by_status words_encode(const by_tokenizer *t, const char *text, size_t size, by_ids *out)
{
    const tok_word_list *l = list_of(t);
    const size_t before = out->count;
    by_status s = BY_OK;
    for (size_t at = 0; at < size && s == BY_OK;) {
        while (at < size && is_space(text[at]))
            at++;
        const size_t begin = at;
        while (at < size && !is_space(text[at]))
            at++;
        if (at > begin)
            s = tok_ids_push(out, l->find(l->user, text + begin, at - begin));
    }
    if (s != BY_OK)
        out->count = before;
    return s;
}

static by_status words_put(const by_tokenizer *t, void *state, const tok_decode_spec *spec, int32_t id,
                           base_buf *out)
{
    const tok_word_list *l = list_of(t);
    bool *begun = state;
    if (spec->skip_special && id == l->end)
        return BY_OK;
    base_buf_puts(out, *begun ? " " : "");
    base_buf_puts(out, l->name(l->user, id));
    *begun = true;
    return BY_OK;
}

/* Up to the last white space: a word may go on. */
static size_t words_cut(const by_tokenizer *t, const char *text, size_t size)
{
    (void)t;
    while (size && !is_space(text[size - 1]))
        size--;
    return size;
}

static int32_t words_find(const by_tokenizer *t, const char *token, const char **text)
{
    const tok_word_list *l = list_of(t);
    const int32_t id = l->find(l->user, token, strlen(token));
    *text = l->name(l->user, id);
    return strcmp(*text, token) == 0 ? id : -1;
}

const tok_text_kind tok_text_words = {
    .name = "word",
    .write = words_write,
    .encode = words_encode,
    .state_size = sizeof(bool),
    .put = words_put,
    .cut = words_cut,
    .find = words_find,
    .free = words_free,
};
