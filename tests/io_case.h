/* io_case.h - a folder around every test, and assertions on errors. Included after cmocka.h. */
#ifndef BY_TESTS_IO_CASE_H
#define BY_TESTS_IO_CASE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

#ifndef BY_SOURCE_DIR
#define BY_SOURCE_DIR "."
#endif

static char folder[512]; /* made and removed around every test */

static inline int make_folder(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/banyan-io-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    return base_dir_remove(folder) == BY_OK ? 0 : -1;
}

static inline const char *in_folder(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* The last call failed with this status and a message that holds the text. */
static inline void assert_failed(by_status status, const char *text)
{
    if (base_error_status() != status || !strstr(by_error_message(), text))
        fail_msg("expected status %d and \"%s\", got %d: %s", (int)status, text, (int)base_error_status(),
                 by_error_message());
}

static inline void write_text(const char *name, const char *text)
{
    assert_int_equal(base_file_write(in_folder(name), text, strlen(text)), BY_OK);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

#endif
