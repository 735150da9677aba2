/* instructions.h - examples for instruction tuning and preference learning: JSON lines in the usual forms, as
 * tokens with a mask of the learned ones, in rows and batches. docs/CHAT.md lists the forms and describes the
 * masks. Errors name the file, the line and the reason. */
#ifndef BY_DATA_INSTRUCTIONS_H
#define BY_DATA_INSTRUCTIONS_H

#include "chat/chat.h"
#include "data/rows.h"

typedef enum data_instruction_kind {
    DATA_TUNING,      /* texts and conversations: every example is one sequence */
    DATA_PREFERENCES, /* two answers to a prompt: a chosen and a rejected sequence, one after the other */
    DATA_JUDGEMENTS /* an answer and whether it is good; two answers to a prompt become a good and a bad one */
} data_instruction_kind;

typedef struct data_instruction_spec {
    data_instruction_kind kind;
    const by_chat *chat; /* template of the model; NULL: none */
    int limit; /* maximum tokens of a sequence; longer ones are truncated at the end. 0: the model's context */
    bool keep_end;      /* truncate at the beginning instead */
    bool learn_prompts; /* train on all tokens; otherwise only on answers, if the form has any */
    bool pack;          /* several examples share a row (DATA_TUNING only) */
} data_instruction_spec;

/* A sequence of tokens. */
typedef struct data_instruction {
    size_t first; /* index in tokens and learned */
    int count;
    int line;     /* line of its example in the file */
    int example;  /* in the order of the file, from 0 */
    bool good;    /* chosen, or judged good */
    float margin; /* pairs: margin of the chosen answer, if the file gives one */
} data_instruction;

typedef struct data_instructions {
    data_instruction_spec spec;
    by_model *model;               /* borrowed */
    const by_tokenizer *tokenizer; /* borrowed */
    const char *path;              /* borrowed */
    by_ids tokens;                 /* of all sequences */
    uint8_t *learned;              /* 1 for a predicted token; never the first of a sequence */
    size_t room;
    data_instruction *list;
    int count, capacity, examples;
    bool margins;         /* some pairs have a margin */
    int shortened;        /* sequences that exceeded the limit */
    int left_out;         /* examples without learned tokens within the limit */
    char *eos;            /* text of the end token, or NULL */
    uint64_t fingerprint; /* of the file */
    /* Training rows, packed or not. Parallel to rows.tokens: */
    data_rows rows;
    uint8_t *row_learned;
    int32_t *row_positions; /* position in its own sequence */
} data_instructions;

/* Reads a file of JSON lines, or one list of objects; plain, .gz or .zst, "-" is standard input. x is
 * overwritten; close it also after a failure. */
by_status data_instructions_open(data_instructions *x, const char *path, by_model *m, const by_tokenizer *t,
                                 const data_instruction_spec *spec);
void data_instructions_close(data_instructions *x); /* closing the zero state is a no-op */

/* Moves a share of the examples, chosen at random but alike in every run, to `out`, which is overwritten;
 * close it also after a failure. Both keep at least one. */
by_status data_instructions_hold_out(data_instructions *x, double share, data_instructions *out);
/* The prompts of x with answers to others: sequence i has the prompt of x's sequence i and the answer of the
 * last one before it that belongs to another example. Made from sequences that share no row. `out` as
 * above. */
by_status data_instructions_mismatch(const data_instructions *x, data_instructions *out);

/* Appends one or two lines about the file: examples, tokens, trained tokens, rows. */
void data_instructions_describe(const data_instructions *x, base_buf *out);

/* A batch of rows, with the arrays
 *   tokens, targets   target t is token t + 1 of the same sequence if it is trained on, otherwise -100
 *   positions         packed rows: from 0 in every sequence
 *   documents         packed rows: attention does not cross sequences
 * Rows up to `height` are padding. Reused by the next call. */
typedef struct data_instruction_batch {
    data_row_batch rows;
    int32_t *cells; /* targets, positions, documents */
    size_t room;
    int64_t counted; /* targets that are not -100 */
} data_instruction_batch;
by_status data_instructions_batch(const data_instructions *x, const int *rows, int count, int height,
                                  data_instruction_batch *out);
void data_instruction_batch_free(data_instruction_batch *b); /* freeing the zero state is a no-op */

/* ---- internal: one example (instruction_forms.c) ------------------------------------------------ */

/* A text and the parts of it to train on. */
typedef struct data_script {
    base_buf text;
    by_chat_span *spans;
    size_t span_count, span_room;
    bool special; /* the tokenizer adds its special tokens, because the text is not from a template */
} data_script;
void data_script_free(data_script *s);

/* The sequences of one JSON object: one, or chosen and rejected (*count is 2). *good as in data_instruction;
 * *margin: NaN if the object has none. */
by_status data_instruction_scripts(const data_instructions *x, chat_heap *h, const chat_value *object,
                                   data_script out[2], int *count, bool *good, float *margin);

/* ---- internal: packing (instruction_batches.c) ----------------------------------------------------- */

/* Arranges the sequences in rows. */
by_status data_instructions_arrange(data_instructions *x);

/* Best fit: `counts` in order of decreasing size go to the row with the least sufficient space. row[i] is the
 * row of item i; returns the number of rows, or -1 if allocation fails. No count exceeds the limit. */
int data_best_fit(const int *counts, int count, int limit, int *row);

#endif
