/* examples.h - files of labelled examples: their tasks and formats. */
#ifndef BANYAN_EXAMPLES_H
#define BANYAN_EXAMPLES_H

#include "banyan/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The task that examples are for. */
typedef enum by_example_kind {
    BY_EXAMPLE_CLASSIFY,       /* one or more labels for a text or a pair of texts */
    BY_EXAMPLE_REGRESS,        /* one or more numbers */
    BY_EXAMPLE_TAG,            /* a label for every word */
    BY_EXAMPLE_ANSWER,         /* the span of a text that answers a question */
    BY_EXAMPLE_CHOICE,         /* the best of several continuations */
    BY_EXAMPLE_SEQ2SEQ,        /* generate a text from another: source and target */
    BY_EXAMPLE_IMAGE_CLASSIFY, /* the class of a picture: a file and a label */
    BY_EXAMPLE_CAPTION,        /* a picture and a caption */
    BY_EXAMPLE_MLM,            /* masked tokens of plain text */
    BY_EXAMPLE_LM,             /* next tokens of plain text */
    BY_EXAMPLE_IMAGE           /* pictures only */
} by_example_kind;
/* Parses "classify", ..., "image-classify", ..., "answer" or "qa". */
BY_API bool by_example_kind_find(const char *name, by_example_kind *out);

/* AUTO: by the file extension, otherwise by the task. */
typedef enum by_file_format {
    BY_FORMAT_AUTO,
    BY_FORMAT_TSV,
    BY_FORMAT_CSV,
    BY_FORMAT_JSONL, /* one object per line, or one array of objects */
    BY_FORMAT_CONLL,
    BY_FORMAT_SQUAD,
    BY_FORMAT_TEXT /* one text per line */
} by_file_format;

/* Whether the first line of a table names its columns. AUTO: yes if it contains a conventional name or one
 * given in the spec. A first line that looks like a header with other names is then an error. */
typedef enum by_header { BY_HEADER_AUTO, BY_HEADER_YES, BY_HEADER_NO } by_header;

/* How to read a file of examples. Files may be compressed with gzip or zstd; "-" is standard input. Columns
 * are given by name or by number from 1. NULL: the conventional names; without a header, the first column is
 * the text, the last is the label, and one between them is the pair. */
typedef struct by_examples_spec {
    by_example_kind kind;
    by_file_format format;
    const char *text, *pair, *label; /* pair "": no pair */
    const char *choices;             /* column names, separated by commas */
    const char *separator;           /* separates several labels of a text; NULL: one label per text */
    by_header header;
} by_examples_spec;

#ifdef __cplusplus
}
#endif
#endif
