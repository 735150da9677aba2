/* policy_prompts.h - the prompts of reinforcement learning: JSON lines, a list of objects, or lines of text. */
#ifndef BY_ALIGN_POLICY_PROMPTS_H
#define BY_ALIGN_POLICY_PROMPTS_H

#include "banyan/chat.h"
#include "banyan/model.h"
#include "base/base.h"
#include "text/tokenizer.h"

typedef struct align_prompt {
    const int32_t *tokens;
    int count;
    const char *text;     /* for those who judge answers: of a conversation, its last message */
    const char *expected; /* or NULL */
    const char *messages; /* of a conversation: a JSON list; otherwise NULL */
} align_prompt;

typedef struct align_prompts {
    base_arena *arena; /* owns all below */
    align_prompt *list;
    int count, capacity;
    int longest;          /* tokens */
    int left_out;         /* longer than the limit */
    uint64_t fingerprint; /* of the lines */
} align_prompts;

typedef struct align_prompts_spec {
    const by_tokenizer *tokenizer;
    const by_chat *chat; /* for conversations; NULL: there is no template */
    int limit;           /* tokens of a prompt at most; longer ones are left out */
    int start;           /* what an empty prompt begins with; negative: it is an error */
} align_prompts_spec;

/* The file has lines of text, or objects: one a line, or a list of them. An object has "prompt" (a text or a list of messages) or
 * "messages", and optionally "answer" (also "expected", "solution", "completion"; a text or a number). A final message of the assistant
 * is the expected answer. *x is overwritten; close it also after a failure. Errors name the file and the line. */
by_status align_prompts_open(align_prompts *x, const char *path, const align_prompts_spec *spec);
void align_prompts_close(align_prompts *x); /* the zero state is a no-op */

#endif
