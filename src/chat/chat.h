/* chat.h - chat templates inside the library: conversations as values (jinja_value.h) instead of JSON text. The public
 * interface is banyan/chat.h. */
#ifndef BY_CHAT_CHAT_H
#define BY_CHAT_CHAT_H

#include "banyan/chat.h"
#include "chat/jinja_value.h"

/* Values that were read with chat_read_json; CHAT_NONE: none. Their memory must last until the call returns. */
typedef struct chat_conversation {
    chat_value messages;  /* a list of dictionaries */
    chat_value tools;     /* a list */
    chat_value documents; /* a list */
    chat_value variables; /* a dictionary */
} chat_conversation;

/* A template as by_chat_new has it, with the special tokens of a model directory as variables. NULL on failure. */
by_chat *chat_open_with(const char *text, size_t size, const char *name, const char *dir);

/* As by_chat_render; the JSON members of `in` are not read. */
by_status chat_render(const by_chat *c, const chat_conversation *what, const by_chat_input *in,
                      by_chat_text *out);

#endif
