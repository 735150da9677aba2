/* labelled.h - labelled examples from files: tables (TSV, CSV), JSON lines, CoNLL columns, SQuAD. Errors name
 * the file, the line and the reason. */
#ifndef BY_DATA_LABELLED_H
#define BY_DATA_LABELLED_H

#include "banyan/examples.h"
#include "base/base.h"
#include "text/tokenizer.h"

/* An answer: a byte range of the pair. */
typedef struct data_answer {
    size_t start, end;
} data_answer;

typedef struct data_example {
    int line;             /* first line in its file, from 1; for SQuAD, the index of the question */
    const char *id;       /* or NULL */
    const char *text;     /* for CoNLL, the words joined by spaces */
    const char *pair;     /* or NULL. For questions: the text that contains the answer */
    const char **labels;  /* as in the file: one or several of the text, or one per word */
    int *values;          /* indices of the labels; see data_examples_number */
    int n_labels;         /* for choices: 1, the index of the right one */
    by_offset *words;     /* tagging: n_labels byte ranges in the text */
    const char **choices; /* continuations */
    int n_choices;
    data_answer *answers; /* none: the text has no answer */
    int n_answers;
} data_example;

typedef struct data_examples {
    base_arena *arena; /* owns everything below */
    const char *path;
    by_examples_spec spec;
    data_example *list;
    int count, capacity;
    char *bytes;          /* the file, into which texts point */
    uint64_t fingerprint; /* of the file */
    const char *columns;  /* where texts and labels were found, in words; or NULL */
    bool header;          /* the first line of a table named its columns */
} data_examples;

by_status data_examples_open(data_examples *e, const char *path, const by_examples_spec *spec);
void data_examples_close(data_examples *e); /* the zero state is a no-op */

/* Appends a description of the file in one or two lines: rows, columns, labels with their counts. Allocation
 * failure is recorded in out. */
void data_examples_describe(const data_examples *e, base_buf *out);

/* ---- labels ---------------------------------------------------------------------------------- */

typedef struct data_labels {
    const char **names; /* owned by the examples or the model */
    int count;
} data_labels;

/* Collects the distinct labels of all examples, sorted: numerically if all are numbers, otherwise byte by
 * byte. Free with base_free(out->names). */
by_status data_examples_labels(const data_examples *e, data_labels *out);

/* Sorts names: numerically if all are numbers, otherwise byte by byte. */
void data_labels_sort(data_labels *l);
/* The index of a label: by its name in `names`, or itself if it is such an index. -1: it is unknown. */
int data_label_find(const base_names *names, const data_labels *labels, const char *label);

/* Sets the index of every label in the list. A label may also be given as its index. An unknown label is an
 * error that names its line. */
by_status data_examples_number(data_examples *e, const data_labels *labels);

/* Parses the label of a regression as a number. */
by_status data_example_number(const data_examples *e, const data_example *x, int i, float *out);

/* ---- for the readers ------------------------------------------------------------------------- */

by_status data_examples_fail(const data_examples *e, int line, const char *fmt, ...) BY_PRINTF(3, 4);
data_example *data_examples_add(data_examples *e, int line); /* NULL if allocation fails */
/* Terminates and returns the next line, without its end; NULL after the last one. Checks that it is UTF-8. */
by_status data_examples_line(data_examples *e, char **cursor, int *line, char **out);
/* Sets the labels of x from one string, split at the separator. The string is modified. */
by_status data_example_split(data_examples *e, data_example *x, char *labels);

bool data_label_is_number(const char *label);

by_status data_read_table(data_examples *e, char separator); /* table_file.c */
by_status data_read_jsonl(data_examples *e);                 /* labelled_json.c */
by_status data_read_squad(data_examples *e);
by_status data_read_conll(data_examples *e); /* conll.c */

/* The two columns of a kind of examples: their conventional names (NULL-terminated), their names in messages,
 * and their options. */
typedef struct data_columns {
    const char *const *texts, *const *labels;
    const char *text, *label, *text_option, *label_option;
    bool two; /* without a header the label is in the second column, and there is no pair */
} data_columns;
const data_columns *data_columns_of(by_example_kind kind);
extern const char *const data_pair_names[]; /* NULL-terminated */

bool data_kind_is_picture(by_example_kind kind); /* the text is the name of a picture file */

#endif
