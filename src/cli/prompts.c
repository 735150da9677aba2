/* prompts.c - see prompts.h. */
#include "cli/prompts.h"

#include "base/input.h"
#include "cli/common.h"
#include "cli/strategy.h"

#define LIMIT ((size_t)64 << 20)

static by_status gather(const char *text, char *const *words, int n_words, base_buf *out)
{
    base_buf_puts(out, text ? text : "");
    for (int i = 0; i < n_words; i++)
        base_buf_printf(out, "%s%s", i ? " " : "", words[i]);
    return out->failed ? base_fail(BY_ERR_MEMORY, "out of memory for the prompt") : BY_OK;
}

/* The line that begins at `at`; returns where the next one does. */
static size_t cut_line(char *bytes, size_t size, size_t at, cli_prompt *out)
{
    const char *end = memchr(bytes + at, '\n', size - at);
    size_t n = end ? (size_t)(end - bytes) - at : size - at;
    *out = (cli_prompt){.text = bytes + at, .size = n - (n && bytes[at + n - 1] == '\r')};
    return at + n + (end != NULL);
}

static by_status cut_lines(cli_prompts *p, size_t size, const char *name)
{
    size_t lines = 1;
    for (size_t i = 0; i < size; i++)
        lines += p->bytes[i] == '\n';
    p->list = base_alloc_zero(lines, sizeof *p->list);
    if (!p->list)
        return BY_ERR_MEMORY;
    for (size_t at = 0; at < size;)
        at = cut_line(p->bytes, size, at, &p->list[p->count++]);
    return p->count ? BY_OK : base_fail(BY_ERR_FORMAT, "%s has no lines", name);
}

by_status cli_prompts_read(cli_prompts *p, const char *text, char *const *words, int n_words,
                           const char *file, bool piped, bool lines)
{
    base_buf given = {0};
    size_t size = 0;
    *p = (cli_prompts){0};
    file = file ? file : piped ? "-" : NULL;
    by_status s = BY_OK;
    if (file) {
        p->bytes = base_input_read(file, LIMIT, &size);
        s = p->bytes ? BY_OK : base_error_status();
    } else {
        s = gather(text, words, n_words, &given);
        p->bytes = given.data;
        size = given.size;
    }
    if (s != BY_OK)
        return s;
    if (file && lines)
        return cut_lines(p, size, base_input_name(file));
    p->list = base_alloc_zero(1, sizeof *p->list);
    if (!p->list)
        return BY_ERR_MEMORY;
    p->count = 1;
    if (file && size && p->bytes[size - 1] == '\n')
        p->bytes[--size] = '\0';
    p->list[0] = (cli_prompt){.text = p->bytes, .size = size};
    return BY_OK;
}

static by_status encode(cli_prompt *p, const by_tokenizer *t, bool special)
{
    BY_TRY(tok_ids_reserve(&p->ids, 1));
    if (!t) {
        char *numbers = base_sprintf("%.*s", (int)p->size, p->text);
        by_status s = numbers ? cli_parse_ids("--ids", numbers, &p->ids) : BY_ERR_MEMORY;
        base_free(numbers);
        return s;
    }
    by_encoding e = {0};
    const by_encode_spec spec = {.special = special, .whole = true}; /* a source ends as in training */
    by_status s = BY_OK;
    if (p->size || special)
        s = by_tokenizer_encode_with(t, p->text, p->size, &spec, &e);
    for (size_t i = 0; i < e.ids.count && s == BY_OK; i++)
        s = tok_ids_push(&p->ids, e.ids.data[i]);
    by_encoding_free(&e);
    if (s == BY_OK && p->ids.count >= INT32_MAX)
        s = base_fail(BY_ERR_ARGUMENT, "too long");
    return s;
}

by_status cli_prompts_encode(cli_prompts *p, const by_tokenizer *t, bool special)
{
    for (int i = 0; i < p->count; i++)
        if (encode(&p->list[i], t, special) != BY_OK)
            return !t             ? base_error_status()
                   : p->count > 1 ? base_fail_context("the prompt in line %d", i + 1)
                                  : base_fail_context("the prompt");
    return BY_OK;
}

void cli_prompts_free(cli_prompts *p)
{
    for (int i = 0; i < p->count; i++)
        tok_ids_free(&p->list[i].ids);
    base_free(p->list);
    base_free(p->bytes);
    *p = (cli_prompts){0};
}
