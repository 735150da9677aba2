/* confusion.h - a confusion matrix as a picture: a row for each actual class, a column for each predicted one. */
#ifndef BY_REPORT_CONFUSION_H
#define BY_REPORT_CONFUSION_H

#include "report/page.h"

typedef struct report_confusion {
    const char *title; /* or NULL */
    const char *const *names;
    const int64_t *counts; /* (classes, classes) */
    int classes;
} report_confusion;

/* Appends a complete file to out. Squares are as dark as their share of the row; with up to 40 classes they have their counts in them. */
by_status report_confusion_write(base_buf *out, report_picture kind, const report_confusion *c);

#endif
