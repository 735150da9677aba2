/* source.c - see source.h. */
#include "align/source.h"

#include <math.h>

#include "base/file.h"
#include "text/tokenizer.h"

#define TEMPLATE_LIMIT ((size_t)16 << 20)

static by_status open_template(align_source *x, const by_align_spec *s)
{
    size_t size;
    char *text = base_file_read(s->chat_template, TEMPLATE_LIMIT, &size);
    x->chat = text ? chat_open_with(text, size, s->chat_template, s->model) : NULL;
    by_status status = x->chat ? tok_set_chat_template(x->tokenizer, text) : base_error_status();
    base_free(text);
    return status;
}

by_status align_source_open(align_source *x, const by_align_spec *s)
{
    x->tokenizer = by_tokenizer_load(s->model);
    if (!x->tokenizer)
        return base_error_status();
    if (s->chat_template)
        return open_template(x, s);
    if (!by_tokenizer_chat_template(x->tokenizer))
        return BY_OK;
    x->chat = by_chat_open(s->model);
    return x->chat ? BY_OK : base_error_status();
}

void align_source_close(align_source *x)
{
    by_chat_free(x->chat);
    by_tokenizer_free(x->tokenizer);
    *x = (align_source){0};
}

void align_source_record(const align_source *x, train_record *out)
{
    const char *text = by_tokenizer_chat_template(x->tokenizer);
    const uint64_t sum = text ? base_hash(text, strlen(text), 0) >> 12 : 0; /* exact as a double */
    train_record_newer(out, "chat_template_fingerprint", (double)sum, NAN);
}
