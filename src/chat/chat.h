/* chat.h - chat templates within the library: conversations as values (jinja_value.h) instead of JSON text.
 * The public interface is banyan/chat.h. */
#ifndef BY_CHAT_CHAT_H
#define BY_CHAT_CHAT_H

#include "banyan/chat.h"
#include "chat/jinja_value.h"

/* Values from chat_read_json; CHAT_NONE: none. Their memory must outlive the call. */
typedef struct chat_conversation {
    chat_value messages;  /* a list of dictionaries */
    chat_value tools;     /* a list */
    chat_value documents; /* a list */
    chat_value variables; /* a dictionary */
} chat_conversation;

/* Parses a template as by_chat_new does, with the special tokens of a model directory as variables. NULL on
 * failure. */
by_chat *chat_open_with(const char *text, size_t size, const char *name, const char *dir);

/* Like by_chat_render, but without reading the JSON members of `in`. */
by_status chat_render(const by_chat *c, const chat_conversation *what, const by_chat_input *in,
                      by_chat_text *out);

#endif
