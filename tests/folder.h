/* folder.h - a folder that a test program has for itself. Included after cmocka.h. */
#ifndef BY_TESTS_FOLDER_H
#define BY_TESTS_FOLDER_H

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"

static char root[300];

/* Makes it; false when that cannot be done. base_dir_remove(root) in the end. */
static inline bool make_root(const char *name)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/banyan-%s-XXXXXX", tmp && *tmp ? tmp : "/tmp", name);
    return mkdtemp(root) != NULL;
}

/* The path of something in it, good for the next 31 calls. */
static inline const char *in_root(const char *name)
{
    static char paths[32][400];
    static int next;
    char *path = paths[next++ % 32];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static inline const char *write_text(const char *name, const char *text)
{
    const char *path = in_root(name);
    assert_int_equal(base_file_write(path, text, strlen(text)), BY_OK);
    return path;
}

#endif
