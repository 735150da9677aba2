/* chat.h - chat templates, which convert a conversation to the text format of a model. */
#ifndef BANYAN_CHAT_H
#define BANYAN_CHAT_H

#include "banyan/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_chat by_chat;

/* Opens the chat template of a model directory, or of a single file: chat_template.jinja,
 * tokenizer_config.json or any other template file. A directory may have several: chat_template.jinja or that
 * of tokenizer_config.json is the default; others are named there or are files of additional_chat_templates/.
 * The special tokens of tokenizer_config.json become variables of the template (bos_token, eos_token, ...).
 * Returns NULL on failure; a syntax error names line and column. */
BY_API by_chat *by_chat_open(const char *path);

/* Creates a template from text. name is used in error messages. */
BY_API by_chat *by_chat_new(const char *text, size_t size, const char *name);
BY_API void by_chat_free(by_chat *c);

/* Returns true if the template marks the text of the assistant with {% generation %}. */
BY_API bool by_chat_has_generation(const by_chat *c);

/* The input of a template. Strings are JSON; NULL: none. */
typedef struct by_chat_input {
    const char *messages;  /* a list of objects {"role": ..., "content": ...} */
    size_t messages_size;  /* 0: strlen */
    const char *tools;     /* a list of objects */
    const char *documents; /* a list of objects */
    const char *variables; /* an object of further variables; they replace those of the directory */
    bool add_generation_prompt;
    const char *template_name; /* NULL: tool_use if there are tools and it exists, otherwise the default */
    /* The time for strftime_now, "2026-01-05 09:07:03". NULL: now, in local time. */
    const char *now;
    /* Limits; 0: 50 million steps, 256 MiB of memory and of text. Exceeding one is an error. */
    int64_t max_steps;
    size_t max_bytes;
} by_chat_input;

/* A byte range [start, end) of the text. */
typedef struct by_chat_span {
    size_t start, end;
} by_chat_span;

typedef struct by_chat_text {
    char *text; /* NUL-terminated; may also contain NUL bytes */
    size_t size;
    by_chat_span *spans; /* {% generation %} blocks, in the order in which they end */
    size_t span_count;
    char *exception; /* message of raise_exception after a failure; otherwise NULL */
} by_chat_text;

/* Renders exactly as the transformers library does. *out is overwritten; the caller frees it, also after a
 * failure. raise_exception in the template and a failing expression are BY_ERR_ARGUMENT. Several threads may
 * render with one template. */
BY_API by_status by_chat_render(const by_chat *c, const by_chat_input *in, by_chat_text *out);
BY_API void by_chat_text_free(by_chat_text *t);

#ifdef __cplusplus
}
#endif
#endif
