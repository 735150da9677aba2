/* input.c - see input.h. Compressed files, pipes and standard input are read through a custom stream. */
#include "base/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef BY_HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef BY_HAVE_ZSTD
#include <zstd.h>
#endif

enum { CHUNK = 64 * 1024, HEAD = 6 };

/* Text shrinks by a factor of 3 to 50. Beyond RATIO, a file that unpacks to more than FREE bytes is treated
 * as an attack. */
#define FREE  ((uint64_t)64 << 20)
#define RATIO 250

/* errno values for errors that the system has no name for */
enum { DAMAGED = EBADMSG, CUT_OFF = ENODATA, TOO_MUCH = EFBIG };

typedef enum packing { PLAIN, GZIP, ZSTD } packing;

typedef struct input {
    int fd;
    packing packing;
    uint8_t in[CHUNK];
    size_t at, end;   /* range of unread bytes in `in` */
    bool ended, open; /* end of file reached; inside a compressed frame */
    uint64_t taken, given;
#ifdef BY_HAVE_ZLIB
    z_stream gzip;
#endif
#ifdef BY_HAVE_ZSTD
    ZSTD_DStream *zstd;
#endif
} input;

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads more bytes after those already in the buffer. */
static bool fill(input *i)
{
    if (i->at == i->end)
        i->at = i->end = 0;
    ssize_t n = read(i->fd, i->in + i->end, CHUNK - i->end);
    if (n < 0)
        return false;
    i->ended = n == 0;
    i->end += (size_t)n;
    i->taken += (uint64_t)n;
    return true;
}

/* Calls the decompressor once and advances *out. Returns false with errno set. */
static bool unpack(input *i, char **out, size_t room)
{
#ifdef BY_HAVE_ZLIB
    if (i->packing == GZIP) {
        z_stream *z = &i->gzip;
        if (!i->open && inflateReset(z) != Z_OK) {
            errno = ENOMEM;
            return false;
        }
        z->next_in = i->in + i->at;
        z->avail_in = (uInt)(i->end - i->at);
        z->next_out = (Bytef *)*out;
        z->avail_out = (uInt)room;
        const int rc = inflate(z, Z_NO_FLUSH);
        i->at = i->end - z->avail_in;
        *out = (char *)z->next_out;
        i->open = rc != Z_STREAM_END;
        errno = rc == Z_MEM_ERROR ? ENOMEM : DAMAGED;
        return rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR;
    }
#endif
#ifdef BY_HAVE_ZSTD
    if (i->packing == ZSTD) {
        ZSTD_inBuffer from = {i->in + i->at, i->end - i->at, 0};
        ZSTD_outBuffer to = {*out, room, 0};
        const size_t rc = ZSTD_decompressStream(i->zstd, &to, &from);
        i->at += from.pos;
        *out += to.pos;
        i->open = rc != 0;
        errno = DAMAGED;
        return !ZSTD_isError(rc);
    }
#endif
    const size_t n = BY_MIN(room, i->end - i->at);
    memcpy(*out, i->in + i->at, n);
    *out += n;
    i->at += n;
    return true;
}

/* Like read(2). Returns what a pipe has available, so that lines can be processed as they arrive. */
static ssize_t take(void *cookie, char *out, size_t room)
{
    input *i = cookie;
    char *to = out;
    while (to == out) {
        if (i->at < i->end || i->open) { /* the decompressor may still hold output */
            const size_t before = i->at;
            if (!unpack(i, &to, room))
                return -1;
            if (to > out || i->at > before)
                continue;
        }
        if (i->ended) {
            errno = CUT_OFF;
            return i->open ? -1 : 0;
        }
        if (!fill(i))
            return -1;
    }
    i->given += (uint64_t)(to - out);
    if (i->packing != PLAIN && i->given > FREE && i->given / RATIO > i->taken) {
        errno = TOO_MUCH;
        return -1;
    }
    return to - out;
}

static int drop(void *cookie)
{
    input *i = cookie;
#ifdef BY_HAVE_ZLIB
    if (i->packing == GZIP)
        inflateEnd(&i->gzip);
#endif
#ifdef BY_HAVE_ZSTD
    ZSTD_freeDStream(i->zstd);
#endif
    if (i->fd != STDIN_FILENO)
        close(i->fd);
    base_free(i);
    return 0;
}

/* ---- file types ------------------------------------------------------------------------------ */

static const struct magic {
    const char *bytes;
    size_t size;
    const char *name, *remedy; /* %s: the path */
} magics[] = {
    [PLAIN] = {"", 0, NULL, NULL},
    [GZIP] = {"\x1f\x8b", 2, "compressed with gzip, and this program was built without zlib",
              "decompress it with `gunzip -k %s`"},
    [ZSTD] = {"\x28\xb5\x2f\xfd", 4, "compressed with zstd, and this program was built without libzstd",
              "decompress it with `zstd -d %s`"},
    {"\xfd\x37zXZ", 6, "compressed with xz", "decompress it with `xz -dk %s`"},
    {"BZh", 3, "compressed with bzip2", "decompress it with `bunzip2 -k %s`"},
    {"PK\x03\x04", 4, "a zip archive or an office document",
     "unpack it with `unzip %s`, or save the table as CSV"},
    {"PAR1", 4, "Parquet",
     "convert it with `python3 -c \"import sys, pandas; pandas.read_parquet(sys.argv[1]).to_json("
     "sys.argv[1] + '.jsonl', orient='records', lines=True)\" %s`"},
};

/* Identifies the format from the first bytes, in i->in. Reads more from a pipe only while the bytes are a
 * prefix of a magic number. */
static bool find_packing(input *i, int *out)
{
    *out = PLAIN;
    for (;;) {
        bool begun = false;
        for (int k = 1; k < BY_COUNT(magics); k++) {
            const size_t n = BY_MIN(magics[k].size, i->end);
            if (n && memcmp(i->in, magics[k].bytes, n) != 0)
                continue;
            if (n == magics[k].size) {
                *out = k;
                return true;
            }
            begun = true;
        }
        if (!begun || i->ended)
            return true;
        if (!fill(i))
            return false;
    }
}

static bool can_unpack(int kind)
{
#ifdef BY_HAVE_ZLIB
    if (kind == GZIP)
        return true;
#endif
#ifdef BY_HAVE_ZSTD
    if (kind == ZSTD)
        return true;
#endif
    return kind == PLAIN;
}

static by_status begin(input *i, int kind, const char *path)
{
    if (!can_unpack(kind)) {
        char remedy[320];
        base_format(remedy, sizeof remedy, magics[kind].remedy, strcmp(path, "-") == 0 ? "FILE" : path);
        return base_fail(BY_ERR_FORMAT, "%s is %s: %s", base_input_name(path), magics[kind].name, remedy);
    }
    bool ok = true;
#ifdef BY_HAVE_ZLIB
    if (kind == GZIP)
        ok = inflateInit2(&i->gzip, 15 + 32) == Z_OK;
#endif
#ifdef BY_HAVE_ZSTD
    if (kind == ZSTD)
        ok = (i->zstd = ZSTD_createDStream()) != NULL;
#endif
    if (!ok)
        return base_fail(BY_ERR_MEMORY, "out of memory while decompressing %s", path);
    i->packing = (packing)kind;
    return BY_OK;
}

static by_status fail_io(const char *path)
{
    return base_fail(BY_ERR_IO, "cannot read %s: %s", base_input_name(path), strerror(errno));
}

static by_status start(input *i, const char *path)
{
    struct stat st;
    int kind;
    if (fstat(i->fd, &st) != 0)
        return fail_io(path);
    if (S_ISDIR(st.st_mode))
        return base_fail(BY_ERR_IO, "%s is a directory, not a file", path);
    if (!find_packing(i, &kind))
        return fail_io(path);
    return begin(i, kind, path);
}

/* Opens a file without waiting indefinitely for a writer of a pipe: polls the cancellation hook meanwhile.
 * Returns -1 on failure and sets an error. */
static int open_file(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0) {
        base_fail(BY_ERR_IO, "cannot open %s: %s", path, strerror(errno));
        return -1;
    }
    struct pollfd writer = {.fd = fd, .events = POLLIN};
    while (S_ISFIFO(st.st_mode) && poll(&writer, 1, 100) <= 0)
        if (base_cancel_check() != BY_OK) {
            close(fd);
            return -1;
        }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

FILE *base_input_open(const char *path)
{
    input *i = base_alloc_zero(1, sizeof *i);
    if (!i)
        return NULL;
    i->fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open_file(path);
    if (i->fd < 0) {
        base_free(i);
        return NULL;
    }
    FILE *f = NULL;
    if (start(i, path) == BY_OK) {
        f = fopencookie(i, "r", (cookie_io_functions_t){.read = take, .close = drop});
        if (!f)
            base_fail(BY_ERR_MEMORY, "out of memory while reading %s", path);
    }
    if (!f)
        drop(i);
    return f;
}

void base_input_close(FILE *f)
{
    if (f)
        fclose(f);
}

by_status base_input_check(FILE *f, const char *path)
{
    if (!ferror(f))
        return BY_OK;
    const char *name = base_input_name(path);
    if (errno == DAMAGED)
        return base_fail(BY_ERR_FORMAT,
                         "%s: the compressed data is damaged; download or compress the file again", name);
    if (errno == CUT_OFF)
        return base_fail(BY_ERR_FORMAT,
                         "%s: the compressed data is truncated; download or compress the file again", name);
    if (errno == TOO_MUCH)
        return base_fail(
            BY_ERR_FORMAT,
            "%s decompresses to more than %d times its size, which is not plausible for text; if it is "
            "correct, decompress it first and pass the decompressed file",
            name, RATIO);
    return fail_io(path);
}

/* ---- whole files and lines ------------------------------------------------------------------- */

static by_status read_all(FILE *f, const char *path, size_t limit, base_buf *out)
{
    base_buf_put(out, "", 0);
    for (size_t n = 1; n > 0 && !out->failed;) {
        char part[16 * 1024];
        n = fread(part, 1, sizeof part, f);
        BY_TRY(base_input_check(f, path));
        if (n > limit - out->size)
            return base_fail(BY_ERR_IO, "%s exceeds the limit of %zu bytes", base_input_name(path), limit);
        base_buf_put(out, part, n);
    }
    return out->failed ? base_fail_context("%s", path) : BY_OK;
}

char *base_input_read(const char *path, size_t limit, size_t *size)
{
    base_buf b = {0};
    FILE *f = base_input_open(path);
    if (!f)
        return NULL;
    by_status s = read_all(f, path, limit, &b);
    base_input_close(f);
    if (s != BY_OK) {
        base_buf_free(&b);
        return NULL;
    }
    if (size)
        *size = b.size;
    return b.data;
}

by_status base_lines_open(base_lines *l, const char *path)
{
    *l = (base_lines){.path = path, .file = base_input_open(path)};
    return l->file ? BY_OK : base_error_status();
}

by_status base_lines_raw(base_lines *l, bool *more)
{
    ssize_t n = getline(&l->text, &l->room, l->file);
    *more = n >= 0;
    if (n < 0 && !feof(l->file) && !ferror(l->file))
        return base_fail(BY_ERR_MEMORY, "%s: out of memory for line %lld", l->path, (long long)l->number + 1);
    if (n < 0)
        return base_input_check(l->file, l->path);
    l->number++;
    l->size = (size_t)n;
    /* What came before a failure is no line: it would be judged by its contents. */
    return l->text[n - 1] == '\n' ? BY_OK : base_input_check(l->file, l->path);
}

by_status base_lines_next(base_lines *l, bool *more)
{
    BY_TRY(base_lines_raw(l, more));
    if (!*more)
        return BY_OK;
    size_t n = l->size;
    if (n > 0 && l->text[n - 1] == '\n')
        n--;
    if (n > 0 && l->text[n - 1] == '\r')
        n--;
    if (l->number == 1 && n >= 3 && memcmp(l->text, "\xef\xbb\xbf", 3) == 0)
        memmove(l->text, l->text + 3, n -= 3);
    l->text[n] = '\0';
    l->size = n;
    return BY_OK;
}

void base_lines_close(base_lines *l)
{
    base_input_close(l->file);
    free(l->text); /* allocated by getline */
    *l = (base_lines){0};
}

/* ---- names ----------------------------------------------------------------------------------- */

const char *base_input_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

static bool ends_at(const char *path, size_t n, const char *ending)
{
    const size_t k = strlen(ending);
    return n >= k && memcmp(path + n - k, ending, k) == 0;
}

size_t base_input_stem(const char *path)
{
    static const char *const endings[] = {".gz", ".zst", ".xz", ".bz2"};
    const size_t n = strlen(path);
    for (int i = 0; i < BY_COUNT(endings); i++)
        if (ends_at(path, n, endings[i]))
            return n - strlen(endings[i]);
    return n;
}

bool base_input_ends(const char *path, const char *ending)
{
    return ends_at(path, base_input_stem(path), ending);
}
