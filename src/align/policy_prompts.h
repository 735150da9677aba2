/* policy_prompts.h - prompts for reinforcement learning, from JSON lines, a JSON list or lines of text. */
#ifndef BY_ALIGN_POLICY_PROMPTS_H
#define BY_ALIGN_POLICY_PROMPTS_H

#include "banyan/chat.h"
#include "banyan/model.h"
#include "base/base.h"
#include "text/tokenizer.h"

typedef struct align_prompt {
    const int32_t *tokens;
    int count;
    const char *text;     /* as reward sources see it: of a conversation, its last message */
    const char *expected; /* or NULL */
    const char *messages; /* a conversation as a JSON list; otherwise NULL */
} align_prompt;

typedef struct align_prompts {
    base_arena *arena; /* owns everything below */
    align_prompt *list;
    int count, capacity;
    int longest;          /* tokens */
    int left_out;         /* prompts over the length limit */
    uint64_t fingerprint; /* hash of the lines */
} align_prompts;

typedef struct align_prompts_spec {
    const by_tokenizer *tokenizer;
    const by_chat *chat; /* for conversations; NULL: none */
    int limit;           /* maximum number of tokens of a prompt; longer ones are left out */
    int start;           /* first token of an empty prompt; negative: an empty prompt is an error */
} align_prompts_spec;

/* Reads lines of text, one JSON object per line, or a JSON list of objects. An object has "prompt" (a text or
 * a list of messages) or "messages", and optionally "answer" (also "expected", "solution", "completion"; a
 * text or a number). A final message of the assistant is the expected answer. *x is overwritten; close it
 * even after a failure. Errors name the file and the line. */
by_status align_prompts_open(align_prompts *x, const char *path, const align_prompts_spec *spec);
void align_prompts_close(align_prompts *x); /* the zero state is a no-op */

#endif
