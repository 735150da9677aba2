/* tasks.h - labelled examples from files: tables (TSV, CSV), JSON lines, CoNLL columns, SQuAD. A file that is
 * wrong is refused with its name, the line and the reason. */
#ifndef BY_DATA_TASKS_H
#define BY_DATA_TASKS_H

#include "banyan/finetune.h"
#include "base/base.h"
#include "text/tokenizer.h"

/* An answer: bytes of the pair. */
typedef struct by_answer {
    size_t start, end;
} by_answer;

typedef struct by_case {
    int line;             /* where it begins in its file, from 1; for SQuAD: the number of the question */
    const char *id;       /* or NULL */
    const char *text;     /* of CONLL: the words with a space between them */
    const char *pair;     /* or NULL. Of questions: the text that has the answer */
    const char **labels;  /* as the file has them: one of a text, or several, or one of each word */
    int *values;          /* numbers of the labels; see by_cases_number */
    int n_labels;         /* of choices: 1, the number of the right one */
    by_offset *words;     /* of tagging: n_labels of them, in the text */
    const char **choices; /* continuations */
    int n_choices;
    by_answer *answers; /* none: the text does not answer it */
    int n_answers;
} by_case;

typedef struct by_cases {
    by_arena *arena; /* has everything below */
    const char *path;
    by_task_data spec;
    by_case *list;
    int count, capacity;
    char *bytes;          /* of the file: texts are parts of it */
    uint64_t fingerprint; /* of the file */
    const char *columns;  /* where texts and labels were found, in words; or NULL */
} by_cases;

by_status by_cases_open(by_cases *e, const char *path, const by_task_data *spec);
void by_cases_close(by_cases *e); /* zero state is legal */

/* What was found in the file, in one line or two for people: rows, columns, labels with their counts.
 * Appended to out, which tells whether memory was out. */
void by_cases_describe(const by_cases *e, by_buf *out);

/* ---- labels ---------------------------------------------------------------------------------- */

typedef struct by_labels {
    const char **names; /* in the examples' memory, or the model's */
    int count;
} by_labels;

/* The labels of all examples, each once, sorted: as numbers where all are, else byte by byte. *out is freed
 * with by_free(out->names). */
by_status by_cases_labels(const by_cases *e, by_labels *out);

/* Give every label its number in the list, which may also stand for itself. One that is not there is an
 * error naming its line. */
by_status by_cases_number(by_cases *e, const by_labels *labels);

/* The label of a regression as a number. */
by_status by_case_number(const by_cases *e, const by_case *x, int i, float *out);

/* ---- for the readers ------------------------------------------------------------------------- */

by_status by_cases_fail(const by_cases *e, int line, const char *fmt, ...) BY_PRINTF(3, 4);
by_case *by_cases_add(by_cases *e, int line); /* NULL when memory is out */
/* Cut off and return the next line, without its end; NULL after the last one. Checks that it is UTF-8. */
by_status by_cases_line(by_cases *e, char **cursor, int *line, char **out);
/* Labels of x from one string, cut where the separator is. The string is changed. */
by_status by_case_split(by_cases *e, by_case *x, char *labels);

bool by_label_is_number(const char *label);

by_status by_read_table(by_cases *e, char separator); /* table.c */
by_status by_read_jsonl(by_cases *e);                 /* task_json.c */
by_status by_read_squad(by_cases *e);
by_status by_read_conll(by_cases *e); /* conll.c */

/* The usual names of columns, NULL after the last. */
extern const char *const by_text_names[],
    *const by_pair_names[], *const by_label_names[], *const by_source_names[], *const by_target_names[];

#endif
