/* tasks.h - labelled examples from files: tables (TSV, CSV), JSON lines, CoNLL columns, SQuAD. A file that is
 * wrong is refused with its name, the line and the reason. */
#ifndef BY_DATA_TASKS_H
#define BY_DATA_TASKS_H

#include "base/base.h"
#include "text/tokenizer.h"

/* What examples are for. */
typedef enum by_work_kind {
    BY_WORK_CLASSIFY, /* a label, or several, of a text or a pair of texts */
    BY_WORK_REGRESS,  /* a number, or several */
    BY_WORK_TAG,      /* a label for every word */
    BY_WORK_ANSWER,   /* the part of a text that answers a question */
    BY_WORK_CHOICE,   /* the best of several continuations */
    BY_WORK_MLM,      /* hidden tokens of plain text */
    BY_WORK_LM        /* next tokens of plain text */
} by_work_kind;

typedef enum by_file_format { /* AUTO: by the ending; then by what the kind of work needs */
                              BY_FORMAT_AUTO,
                              BY_FORMAT_TSV,
                              BY_FORMAT_CSV,
                              BY_FORMAT_JSONL,
                              BY_FORMAT_CONLL,
                              BY_FORMAT_SQUAD,
                              BY_FORMAT_TEXT /* a line, a text */
} by_file_format;

/* An answer: bytes of the pair. */
typedef struct by_answer {
    size_t start, end;
} by_answer;

typedef struct by_case {
    int line;             /* where it begins in its file, from 1; of SQuAD: the how-manyeth question */
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

typedef struct by_cases_spec {
    by_work_kind kind;
    by_file_format format;
    /* Columns by name or, of files without a header, by number from 1. NULL: the usual names; without a
     * header the first column is the text, the last the label and one between them the pair. */
    const char *text, *pair, *label;
    const char *choices;   /* names of columns, with commas */
    const char *separator; /* between several labels of a text; NULL: it has one */
} by_cases_spec;

typedef struct by_cases {
    by_arena *arena; /* has everything below */
    const char *path;
    by_cases_spec spec;
    by_case *list;
    int count, capacity;
    char *bytes; /* of the file: texts are parts of it */
} by_cases;

by_status by_cases_open(by_cases *e, const char *path, const by_cases_spec *spec);
void by_cases_close(by_cases *e); /* zero state is legal */

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

by_status by_read_table(by_cases *e, char separator); /* table.c */
by_status by_read_jsonl(by_cases *e);                 /* task_json.c */
by_status by_read_squad(by_cases *e);
by_status by_read_conll(by_cases *e); /* conll.c */

/* The usual names of columns, NULL behind the last. */
extern const char *const by_text_names[], *const by_pair_names[], *const by_label_names[];

#endif
