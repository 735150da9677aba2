/* labelled.h - labelled examples from files: tables (TSV, CSV), JSON lines, CoNLL columns, SQuAD. A file that is
 * wrong is refused with its name, the line and the reason. */
#ifndef BY_DATA_LABELLED_H
#define BY_DATA_LABELLED_H

#include "banyan/examples.h"
#include "base/base.h"
#include "text/tokenizer.h"

/* An answer: bytes of the pair. */
typedef struct data_answer {
    size_t start, end;
} data_answer;

typedef struct data_example {
    int line;             /* where it begins in its file, from 1; for SQuAD: the number of the question */
    const char *id;       /* or NULL */
    const char *text;     /* of CONLL: the words with a space between them */
    const char *pair;     /* or NULL. Of questions: the text that has the answer */
    const char **labels;  /* as the file has them: one of a text, or several, or one of each word */
    int *values;          /* numbers of the labels; see data_examples_number */
    int n_labels;         /* of choices: 1, the number of the right one */
    by_offset *words;     /* of tagging: n_labels of them, in the text */
    const char **choices; /* continuations */
    int n_choices;
    data_answer *answers; /* none: the text does not answer it */
    int n_answers;
} data_example;

typedef struct data_examples {
    base_arena *arena; /* has everything below */
    const char *path;
    by_examples_spec spec;
    data_example *list;
    int count, capacity;
    char *bytes;          /* of the file: texts are parts of it */
    uint64_t fingerprint; /* of the file */
    const char *columns;  /* where texts and labels were found, in words; or NULL */
    bool header;          /* the first line of a table named its columns */
} data_examples;

by_status data_examples_open(data_examples *e, const char *path, const by_examples_spec *spec);
void data_examples_close(data_examples *e); /* zero state is legal */

/* What was found in the file, in one line or two for people: rows, columns, labels with their counts.
 * Appended to out, which tells whether memory was out. */
void data_examples_describe(const data_examples *e, base_buf *out);

/* ---- labels ---------------------------------------------------------------------------------- */

typedef struct data_labels {
    const char **names; /* in the examples' memory, or the model's */
    int count;
} data_labels;

/* The labels of all examples, each once, sorted: as numbers where all are, else byte by byte. *out is freed
 * with base_free(out->names). */
by_status data_examples_labels(const data_examples *e, data_labels *out);

/* Give every label its number in the list, which may also stand for itself. One that is not there is an
 * error naming its line. */
by_status data_examples_number(data_examples *e, const data_labels *labels);

/* The label of a regression as a number. */
by_status data_example_number(const data_examples *e, const data_example *x, int i, float *out);

/* ---- for the readers ------------------------------------------------------------------------- */

by_status data_examples_fail(const data_examples *e, int line, const char *fmt, ...) BY_PRINTF(3, 4);
data_example *data_examples_add(data_examples *e, int line); /* NULL when memory is out */
/* Cut off and return the next line, without its end; NULL after the last one. Checks that it is UTF-8. */
by_status data_examples_line(data_examples *e, char **cursor, int *line, char **out);
/* Labels of x from one string, cut where the separator is. The string is changed. */
by_status data_example_split(data_examples *e, data_example *x, char *labels);

bool data_label_is_number(const char *label);

by_status data_read_table(data_examples *e, char separator); /* table.c */
by_status data_read_jsonl(data_examples *e);                 /* task_json.c */
by_status data_read_squad(data_examples *e);
by_status data_read_conll(data_examples *e); /* conll.c */

/* The usual names of columns, NULL after the last. */
extern const char *const data_text_names[], *const data_pair_names[], *const data_label_names[],
                                                                          *const data_source_names[],
                                                                              *const data_target_names[];

#endif
