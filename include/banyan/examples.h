/* examples.h - files of labelled examples: the tasks they are for and how they are read. */
#ifndef BANYAN_EXAMPLES_H
#define BANYAN_EXAMPLES_H

#include "banyan/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What examples are for. */
typedef enum by_example_kind {
    BY_EXAMPLE_CLASSIFY, /* a label, or several, of a text or a pair of texts */
    BY_EXAMPLE_REGRESS,  /* a number, or several */
    BY_EXAMPLE_TAG,      /* a label for every word */
    BY_EXAMPLE_ANSWER,   /* the part of a text that answers a question */
    BY_EXAMPLE_CHOICE,   /* the best of several continuations */
    BY_EXAMPLE_SEQ2SEQ,  /* a text to be written from another: source and target */
    BY_EXAMPLE_MLM,      /* hidden tokens of plain text */
    BY_EXAMPLE_LM        /* next tokens of plain text */
} by_example_kind;
BY_API bool by_example_kind_find(const char *name,
                                 by_example_kind *out); /* "classify", ..., "answer" or "qa" */

typedef enum by_file_format { /* AUTO: by the ending; then by what the kind of work needs */
                              BY_FORMAT_AUTO,
                              BY_FORMAT_TSV,
                              BY_FORMAT_CSV,
                              BY_FORMAT_JSONL, /* an object a line, or one list of objects */
                              BY_FORMAT_CONLL,
                              BY_FORMAT_SQUAD,
                              BY_FORMAT_TEXT /* a line, a text */
} by_file_format;

/* Whether the first line of a table names its columns. AUTO: when it has a usual name or one that was given.
 * A first line that looks like a header of other names is then an error. */
typedef enum by_header { BY_HEADER_AUTO, BY_HEADER_YES, BY_HEADER_NO } by_header;

/* How a file of examples is read. Files may be packed with gzip or zstd; "-" is the standard input. Columns
 * by name or by number from 1. NULL: the usual names; without a header the first column is the text, the last
 * the label, one between them the pair. */
typedef struct by_examples_spec {
    by_example_kind kind;
    by_file_format format;
    const char *text, *pair, *label; /* pair "": there is none */
    const char *choices;             /* names of columns, with commas */
    const char *separator;           /* between several labels of a text; NULL: it has one */
    by_header header;
} by_examples_spec;

#ifdef __cplusplus
}
#endif
#endif
