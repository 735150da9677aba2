/* source.h - what the examples of a run of alignment are rendered and tokenized with. */
#ifndef BY_ALIGN_SOURCE_H
#define BY_ALIGN_SOURCE_H

#include "banyan/align_run.h"
#include "chat/chat.h"
#include "train/record.h"

typedef struct align_source {
    by_tokenizer *tokenizer; /* has the chat template, which is saved with it */
    by_chat *chat;           /* NULL: there is none */
} align_source;
/* The tokenizer of the model and the chat template of the spec, else of the model. */
by_status align_source_open(align_source *x, const by_align_spec *s);
void align_source_close(align_source *x); /* the zero state is a no-op */
/* A resumed run has the same template. */
void align_source_record(const align_source *x, train_record *out);

#endif
