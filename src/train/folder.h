/* folder.h - the folder of a run. One process at a time trains into it. The run owns the paths that it listed
 * in owned.json before it created them, and deletes nothing else. */
#ifndef BY_TRAIN_FOLDER_H
#define BY_TRAIN_FOLDER_H

#include "banyan/train.h"
#include "base/base.h"

#define TRAIN_FOLDER_STAGE "unfinished-checkpoint"

/* Saved standard input, and that of a run that is about to replace an earlier one. */
#define TRAIN_FOLDER_INPUT     "data/input"
#define TRAIN_FOLDER_NEW_INPUT "data/input.new"

typedef struct train_folder {
    char *out;
    char **names; /* owned paths, relative to out; a name that ends in '/' is a directory with all it holds */
    int count, capacity;
    base_arena *arena; /* has the names */
    bool held;         /* the folder held a run when it was opened */
    bool made_lock;    /* .lock did not exist before */
    char *made;        /* the first directory of the path `out` that did not exist before, or NULL */
    int lock;
    void (*report)(void *user, const by_report *r); /* receives warnings, may be NULL */
    void *user;
} train_folder;

/* Creates the folder, locks it, reads the owned paths, and removes temporary files of a crashed run. A folder
 * of a version without a list gets one. Another process that trains into the folder is an error. Call
 * train_folder_close in every case. */
by_status train_folder_open(train_folder *f, const char *out);
void train_folder_close(train_folder *f); /* zero state is legal */

/* Removes everything that a run that could not start has created. A run that was in the folder is kept. The
 * error message is kept. */
void train_folder_abandon(train_folder *f);

/* How a run uses a folder. */
typedef struct train_folder_use {
    const char *out;
    bool overwrite;    /* an earlier run will be replaced */
    bool averages;     /* there will be out/averaged */
    bool leaves_model; /* `out` itself will hold a model */
    const char *model; /* that is read, or NULL */
    struct {
        const char *const *paths;
        int count;
    } inputs[3]; /* other files that are read */
    void (*report)(void *user, const by_report *r);
    void *user;
} train_folder_use;

/* train_folder_open, plus early checks for errors that would otherwise occur hours later: required names that
 * are taken, inputs that would be replaced. Removes nothing of an earlier run: see train_folder_forget. */
by_status train_folder_enter(train_folder *f, const train_folder_use *use);

bool train_folder_owns(const train_folder *f, const char *name);

/* List paths as owned before they are created. Something that exists and is not owned is an error naming it.
 */
by_status train_folder_claim(train_folder *f, const char *const *names, int count);
/* The same for one file of a directory of the folder, which is made when it does not exist. */
by_status train_folder_claim_in(train_folder *f, const char *dir, const char *name);
/* The check alone. */
by_status train_folder_check_free(const train_folder *f, const char *name);
/* List paths without that check. */
by_status train_folder_list(train_folder *f, const char *const *names, int count);
/* List a path that was created as a new one. */
by_status train_folder_add(train_folder *f, const char *name);

/* Remove an owned path. Of a directory, the owned files; others stay, and the directory with them. */
by_status train_folder_drop(train_folder *f, const char *name);

/* Remove the directory `copy`, which holds copies of the owned files of `name`; the name stays owned. */
by_status train_folder_drop_copy(train_folder *f, const char *name, const char *copy);
/* Rename an owned directory; the run then owns the files it holds. The old name stays owned. */
by_status train_folder_move(train_folder *f, const char *from, const char *to);

/* An empty directory to write to, which train_folder_place then turns into out/name, in the place of an owned
 * one of that name. *path is a heap string. */
by_status train_folder_stage(train_folder *f, char **path);
by_status train_folder_place(train_folder *f, const char *name);
/* Or: move the files of the stage into out/dir (NULL: out itself) one by one. Files of models and tokenizers
 * that the run placed there before, and that are not among them, are removed. */
by_status train_folder_place_files(train_folder *f, const char *dir);
void train_folder_unstage(train_folder *f); /* remove the stage; keeps the error message */

/* Forget an earlier run: checkpoints, logs, averaged/. Data that were tokenised stay; they are used again or
 * replaced. */
by_status train_folder_forget(train_folder *f);
/* A new standard input, if there is one, takes the place of the old one. */
by_status train_folder_take_input(train_folder *f);

/* The files of a directory and its subdirectories, sorted, each after "prefix/" unless prefix is NULL.
 * Directories are among them, each before what it holds. base_paths_free in every case. */
by_status train_folder_files(const char *dir, const char *prefix, char ***names, int *count);

/* Send a warning to the caller of the run. */
void train_folder_warn(const train_folder *f, const char *fmt, ...) BY_PRINTF(2, 3);

/* Whether this is the name of a file of a model directory: configuration, weights, tokenizer. */
bool train_folder_is_model_file(const char *name);

/* List what a run of a version without owned.json has made (adopt.c). */
by_status train_folder_adopt(train_folder *f);

#endif
