/* test_file.c - reading, mapping, folders, patterns, and replacing files when the disk says no. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "child.h"

static char *dir; /* a fresh folder for the file tests */

static int make_dir(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    dir = base_sprintf("%s/banyan-base-XXXXXX", base && *base ? base : "/tmp");
    return dir && mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    by_status status = base_dir_remove(dir);
    bool gone = !base_dir_exists(dir);
    base_free(dir);
    return status == BY_OK && gone ? 0 : -1;
}

/* dir/name, valid until the next call but three. */
static const char *in_dir(const char *name)
{
    static char path[4][600];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
    return path[turn];
}

static bool file_holds(const char *path, const char *text)
{
    size_t size = 0;
    char *s = base_file_read(path, 1 << 20, &size);
    bool same = s && size == strlen(text) && strcmp(s, text) == 0;
    base_free(s);
    return same;
}

/* No temporary is left beside path. */
static bool no_temp(const char *path)
{
    char *pattern = base_sprintf("%s.tmp-*", path), **found;
    int count;
    by_status status = base_glob(pattern, &found, &count);
    base_free(pattern);
    base_paths_free(found, count);
    return status == BY_ERR_IO;
}

static void test_file_read_and_map(void **state)
{
    (void)state;
    static char text[100001];
    for (int i = 0; i < 100000; i++)
        text[i] = (char)('a' + i % 23);
    const char *path = in_dir("text");
    assert_int_equal(base_file_write(path, text, 100000), BY_OK);
    assert_true(base_file_exists(path) && !base_dir_exists(path));

    size_t size;
    char *s = base_file_read(path, 100000, &size);
    assert_non_null(s);
    assert_int_equal(size, 100000);
    assert_string_equal(s, text);
    base_free(s);
    assert_null(base_file_read(path, 99999, NULL));
    assert_contains(by_error_message(), path);
    assert_null(base_file_read("/dev/zero", 100000, NULL));
    assert_int_equal(base_error_status(), BY_ERR_IO);
    s = base_file_read("/proc/self/stat", 100000, &size); /* claims to be empty */
    assert_true(s && size > 10);
    base_free(s);
    assert_null(base_file_read(in_dir("missing"), 10, NULL));
    assert_contains(by_error_message(), "missing");
    assert_null(base_file_read(dir, 10, NULL));

    base_map m;
    assert_int_equal(base_map_open(&m, path), BY_OK);
    assert_int_equal(m.size, 100000);
    assert_memory_equal(m.data, text, 100000);
    base_map_close(&m);
    assert_true(!m.data && !m.size);
    base_map_close(&m);

    const char *none = in_dir("empty");
    assert_int_equal(base_file_write(none, NULL, 0), BY_OK);
    assert_int_equal(base_map_open(&m, none), BY_OK);
    assert_true(m.data && m.size == 0);
    base_map_close(&m);
    s = base_file_read(none, 0, &size);
    assert_true(s && !*s && size == 0);
    base_free(s);

    m = (base_map){(const uint8_t *)text, 5};
    assert_int_equal(base_map_open(&m, in_dir("missing")), BY_ERR_IO);
    assert_true(!m.data && !m.size);
    assert_contains(by_error_message(), "missing");
    assert_int_equal(base_map_open(&m, dir), BY_ERR_IO);
    const char *pipe_path = in_dir("pipe");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_int_equal(base_map_open(&m, pipe_path), BY_ERR_IO); /* must not wait for a writer */
    assert_null(base_file_read(pipe_path, 100, NULL));
    assert_contains(by_error_message(), "not a regular file");
    assert_null(base_file_read("/dev/zero", 100, NULL));
    assert_contains(by_error_message(), "not a regular file");
    assert_null(base_file_read(dir, 100, NULL));
    assert_contains(by_error_message(), "not a regular file");
}

static void test_dirs(void **state)
{
    (void)state;
    assert_int_equal(base_dir_make(in_dir("a/b//c/")), BY_OK);
    assert_true(base_dir_exists(in_dir("a/b/c")) && !base_file_exists(in_dir("a/b/c")));
    assert_int_equal(base_dir_make(in_dir("a/b/c")), BY_OK);
    assert_int_equal(base_dir_make("/"), BY_OK);
    assert_int_equal(base_file_write(in_dir("a/b/f"), "x", 1), BY_OK);
    assert_int_equal(base_dir_make(in_dir("a/b/f")), BY_ERR_IO);
    assert_contains(by_error_message(), "a/b/f");
    assert_int_equal(base_dir_make(in_dir("a/b/f/g")), BY_ERR_IO);

    /* a link is removed, what it points to is not */
    assert_int_equal(base_file_write(in_dir("kept"), "x", 1), BY_OK);
    assert_int_equal(symlink(in_dir("kept"), in_dir("a/b/c/link")), 0);
    assert_int_equal(symlink(dir, in_dir("a/up")), 0);
    assert_int_equal(base_dir_remove(in_dir("kept")), BY_ERR_IO);
    assert_int_equal(base_dir_remove(in_dir("a")), BY_OK);
    assert_false(base_dir_exists(in_dir("a")));
    assert_true(file_holds(in_dir("kept"), "x"));
    assert_int_equal(base_dir_remove(in_dir("a")), BY_OK);
    assert_int_equal(base_dir_sync(dir), BY_OK);
    assert_int_equal(base_dir_sync(in_dir("a")), BY_ERR_IO);

    static const char *joins[][3] = {{"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {"/", "b", "/b"}};
    for (int i = 0; i < BY_COUNT(joins); i++) {
        char *p = base_path_join(joins[i][0], joins[i][1]);
        assert_string_equal(p, joins[i][2]);
        base_free(p);
    }
    char *p = base_path_join(NULL, "b");
    assert_string_equal(p, "b");
    base_free(p);
}

static void test_rename(void **state)
{
    (void)state;
    assert_int_equal(base_file_write(in_dir("from"), "new", 3), BY_OK);
    assert_int_equal(base_file_write(in_dir("to"), "old", 3), BY_OK);
    assert_int_equal(base_rename(in_dir("from"), in_dir("to")), BY_OK);
    assert_true(file_holds(in_dir("to"), "new") && !base_file_exists(in_dir("from")));
    assert_int_equal(base_rename(in_dir("from"), in_dir("to")), BY_ERR_IO);
    assert_contains(by_error_message(), "/from");
    assert_contains(by_error_message(), "/to");
    assert_true(file_holds(in_dir("to"), "new"));
    assert_int_equal(base_dir_make(in_dir("step-1.tmp")), BY_OK);
    assert_int_equal(base_rename(in_dir("step-1.tmp/"), in_dir("step-1")), BY_OK);
    assert_true(base_dir_exists(in_dir("step-1")));

    /* bare names: the folder is the current one */
    char *old = getcwd(NULL, 0);
    assert_int_equal(chdir(dir), 0);
    assert_int_equal(base_file_write("bare", "b", 1), BY_OK);
    assert_int_equal(base_rename("bare", "bare2"), BY_OK);
    assert_true(file_holds("bare2", "b"));
    assert_int_equal(chdir(old), 0);
    free(old);
}

static void test_glob(void **state)
{
    (void)state;
    static const char *names[] = {"g-b.txt", "g-a.txt", "g-B.txt", "g-10.txt", "g-[x].txt"};
    static const char *sorted[] = {"g-10.txt", "g-B.txt", "g-[x].txt", "g-a.txt", "g-b.txt"};
    for (int i = 0; i < BY_COUNT(names); i++)
        assert_int_equal(base_file_write(in_dir(names[i]), "x", 1), BY_OK);
    assert_int_equal(base_dir_make(in_dir("g-dir.txt")), BY_OK);

    char **found;
    int count;
    assert_int_equal(base_glob(in_dir("g-*.txt"), &found, &count), BY_OK);
    assert_int_equal(count, BY_COUNT(sorted));
    for (int i = 0; i < count; i++)
        assert_string_equal(found[i], in_dir(sorted[i]));
    base_paths_free(found, count);

    assert_int_equal(base_glob(in_dir("g-[x].txt"), &found, &count), BY_OK);
    assert_int_equal(count, 1);
    assert_string_equal(found[0], in_dir("g-[x].txt"));
    base_paths_free(found, count);

    assert_int_equal(base_glob(in_dir("g-missing*"), &found, &count), BY_ERR_IO);
    assert_true(!found && count == 0);
    assert_contains(by_error_message(), "g-missing*");
    assert_int_equal(base_glob(in_dir("g-missing"), &found, &count), BY_ERR_IO);
    assert_int_equal(base_glob(in_dir("g-dir.txt"), &found, &count), BY_ERR_IO);
    assert_contains(by_error_message(), "directory");
    base_paths_free(NULL, 0);
}

static void test_writer(void **state)
{
    (void)state;
    const char *path = in_dir("written");
    base_writer w;
    assert_int_equal(base_writer_open(&w, path), BY_OK);
    assert_int_equal(base_writer_put(&w, "first", 5), BY_OK);
    assert_int_equal(base_writer_put(&w, NULL, 0), BY_OK);
    assert_false(base_file_exists(path)); /* nothing to see before the end */
    assert_int_equal(base_writer_finish(&w), BY_OK);
    assert_true(!w.file && !w.path && !w.temp);
    assert_true(file_holds(path, "first") && no_temp(path));

    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(base_file_write(path, "second", 6), BY_OK);
    assert_true(file_holds(path, "second"));
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);

    assert_int_equal(base_writer_open(&w, path), BY_OK);
    assert_int_equal(base_writer_put(&w, "third", 5), BY_OK);
    base_writer_abort(&w);
    base_writer_abort(&w);
    assert_true(file_holds(path, "second") && no_temp(path));
    assert_int_equal(base_writer_put(&w, "x", 1), BY_ERR_ARGUMENT);
    assert_int_equal(base_writer_finish(&w), BY_ERR_ARGUMENT);

    /* a temporary left behind by a crash, here a link that must not be followed */
    char *temp = base_sprintf("%s.tmp-%ld", path, (long)getpid());
    assert_int_equal(base_file_write(in_dir("victim"), "safe", 4), BY_OK);
    assert_int_equal(symlink(in_dir("victim"), temp), 0);
    base_free(temp);
    assert_int_equal(base_file_write(path, "fourth", 6), BY_OK);
    assert_true(file_holds(path, "fourth") && file_holds(in_dir("victim"), "safe"));

    assert_int_equal(base_writer_open(&w, in_dir("no/such/folder")), BY_ERR_IO);
    assert_contains(by_error_message(), "no/such/folder");
    assert_true(!w.file && !w.path && !w.temp);
    assert_int_equal(base_writer_open(&w, dir), BY_ERR_IO);
    assert_int_equal(base_writer_open(&w, "/dev/null"), BY_ERR_IO);
}

/* Begin to replace "old" at path, with the writer's descriptor redirected to `to`, which stays the caller's.
 */
static void open_redirected(base_writer *w, const char *path, int to)
{
    assert_true(to >= 0);
    assert_int_equal(base_file_write(path, "old", 3), BY_OK);
    assert_int_equal(base_writer_open(w, path), BY_OK);
    assert_true(dup2(to, fileno(w->file)) >= 0);
}

static void check_old_kept(const char *path)
{
    assert_int_equal(base_error_status(), BY_ERR_IO);
    assert_contains(by_error_message(), path);
    assert_true(file_holds(path, "old") && no_temp(path));
}

static void test_writer_failures(void **state)
{
    (void)state;
    const char *path = in_dir("precious");
    static char large[1 << 20];
    base_writer w;
    int full = open("/dev/full", O_WRONLY);
    if (full < 0) {
        print_message("no /dev/full on this machine\n");
        skip();
    }

    /* at the write itself */
    open_redirected(&w, path, full);
    assert_int_equal(base_writer_put(&w, large, sizeof(large)), BY_ERR_IO);
    assert_contains(by_error_message(), strerror(ENOSPC));
    assert_int_equal(base_writer_put(&w, "x", 1), BY_ERR_IO); /* sticks */
    assert_int_equal(base_writer_finish(&w), BY_ERR_IO);
    check_old_kept(path);

    /* at the flush: the bytes fit the buffer of the stream */
    open_redirected(&w, path, full);
    assert_int_equal(base_writer_put(&w, "small", 5), BY_OK);
    assert_int_equal(base_writer_finish(&w), BY_ERR_IO);
    assert_contains(by_error_message(), strerror(ENOSPC));
    check_old_kept(path);
    close(full);

    /* at the sync: a pipe takes the bytes but cannot be synced */
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    open_redirected(&w, path, ends[1]);
    assert_int_equal(base_writer_put(&w, "small", 5), BY_OK);
    assert_int_equal(base_writer_finish(&w), BY_ERR_IO);
    check_old_kept(path);
    close(ends[0]);
    close(ends[1]);

    /* at the rename: a folder came into the way */
    const char *blocked = in_dir("blocked");
    assert_int_equal(base_writer_open(&w, blocked), BY_OK);
    assert_int_equal(base_writer_put(&w, "small", 5), BY_OK);
    assert_int_equal(mkdir(blocked, 0700), 0);
    assert_int_equal(base_writer_finish(&w), BY_ERR_IO);
    assert_contains(by_error_message(), blocked);
    assert_true(base_dir_exists(blocked) && no_temp(blocked));
}

/* A write that stops half way: the limit leaves room for part of it. */
static int exceed_file_size(const char *folder)
{
    char path[600];
    static char large[1 << 20];
    snprintf(path, sizeof(path), "%s/limited", folder);
    signal(SIGXFSZ, SIG_IGN);
    CHECK(base_file_write(path, "old", 3) == BY_OK);
    CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){100000, 100000}) == 0);
    CHECK(base_file_write(path, large, sizeof(large)) == BY_ERR_IO);
    CHECK(strstr(by_error_message(), path) && strstr(by_error_message(), strerror(EFBIG)));
    CHECK(file_holds(path, "old") && no_temp(path));
    CHECK(base_file_write(path, large, 100000) == BY_OK);
    return 0;
}

/* A disk of 64 KiB that fills up, in a mount namespace of this child alone. Needs root. */
static int fill_disk(const char *folder)
{
    char path[600];
    static char large[1 << 20];
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", folder, "tmpfs", 0, "size=64k") != 0)
        return CHILD_SKIPPED;
    snprintf(path, sizeof(path), "%s/file", folder);
    CHECK(base_file_write(path, "old", 3) == BY_OK);
    CHECK(base_file_write(path, large, sizeof(large)) == BY_ERR_IO);
    CHECK(strstr(by_error_message(), path) && strstr(by_error_message(), strerror(ENOSPC)));
    CHECK(file_holds(path, "old") && no_temp(path));

    /* not a page left: the put is buffered, the flush finds out */
    char filler[600];
    snprintf(filler, sizeof(filler), "%s/filler", folder);
    FILE *f = fopen(filler, "wb");
    CHECK(f);
    setvbuf(f, NULL, _IONBF, 0);
    while (fwrite(large, 1, 4096, f) == 4096)
        ;
    fclose(f);
    base_writer w;
    CHECK(base_writer_open(&w, path) == BY_OK);
    CHECK(base_writer_put(&w, "small", 5) == BY_OK);
    CHECK(base_writer_finish(&w) == BY_ERR_IO);
    CHECK(strstr(by_error_message(), strerror(ENOSPC)));
    CHECK(file_holds(path, "old") && no_temp(path));
    CHECK(unlink(filler) == 0);
    CHECK(base_file_write(path, "new", 3) == BY_OK && file_holds(path, "new"));
    return 0;
}

static void test_writer_limits(void **state)
{
    (void)state;
    assert_true(in_child(exceed_file_size, dir));
    if (!in_child(fill_disk, dir))
        print_message("cannot mount a small disk here: that part is skipped\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_read_and_map),
        cmocka_unit_test(test_dirs),
        cmocka_unit_test(test_rename),
        cmocka_unit_test(test_glob),
        cmocka_unit_test(test_writer),
        cmocka_unit_test(test_writer_failures),
        cmocka_unit_test(test_writer_limits),
    };
    return cmocka_run_group_tests_name("file", tests, make_dir, remove_dir);
}
