/* source.h - the tokenizer and chat template of an alignment run. */
#ifndef BY_ALIGN_SOURCE_H
#define BY_ALIGN_SOURCE_H

#include "banyan/align_run.h"
#include "chat/chat.h"
#include "train/record.h"

typedef struct align_source {
    by_tokenizer *tokenizer; /* holds the chat template, which is saved with it */
    by_chat *chat;           /* NULL: none */
} align_source;
/* Opens the model's tokenizer, and the chat template of the spec or else of the model. */
by_status align_source_open(align_source *x, const by_align_spec *s);
void align_source_close(align_source *x); /* closing the zero state is a no-op */
/* Records the template, which a resumed run must share. */
void align_source_record(const align_source *x, train_record *out);

#endif
