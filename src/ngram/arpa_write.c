/* arpa_write.c - writes ARPA files (see arpa.c), plain or compressed. Threads turn n-grams into text, some
 * thousands at a time. */
#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "base/input.h"
#include "ngram/ngram.h"

#ifdef BY_HAVE_ZLIB
#include <zlib.h>
#endif

/* ---- the file ---------------------------------------------------------------------------------------- */

enum { MOST_THREADS = 64, NUMBER = 24 /* characters of a number at most */ };

/* The output of a thread. */
typedef struct text {
    char *data;
    size_t size, room;
} text;

typedef struct writer {
    base_writer plain;
#ifdef BY_HAVE_ZLIB
    gzFile packed;
#endif
    const char *path;
    char *temp;
    const ngram_listing *list;
    text texts[MOST_THREADS]; /* of each thread */
    int n;                    /* order */
    const uint32_t *entries;  /* that are being turned into text */
    size_t count;
} writer;

static by_status put_bytes(writer *w, const char *bytes, size_t n)
{
#ifdef BY_HAVE_ZLIB
    if (w->packed)
        return n == 0 || gzwrite(w->packed, bytes, (unsigned)n) > 0
                   ? BY_OK
                   : base_fail(BY_ERR_IO, "%s: %s", w->temp, strerror(errno));
#endif
    return base_writer_put(&w->plain, bytes, n);
}

/* "ngram 2=17", or the title of an order where count is negative. */
static by_status put_line(writer *w, int n, int64_t count)
{
    char line[64];
    const int size = count < 0 ? base_format(line, sizeof line, "\\%d-grams:\n", n)
                               : base_format(line, sizeof line, "ngram %d=%lld\n", n, (long long)count);
    return put_bytes(w, line, (size_t)size);
}

static by_status open_writer(writer *w)
{
    const char *path = w->path;
    const size_t stem = base_input_stem(path);
    const bool packs = stem != strlen(path);
    if (packs && strcmp(path + stem, ".gz") != 0)
        return base_fail(BY_ERR_UNSUPPORTED, "%s: ARPA files are written plain or as .gz", path);
#ifdef BY_HAVE_ZLIB
    if (packs) {
        w->temp = base_sprintf("%s.tmp-%ld", path, (long)getpid());
        w->packed = w->temp ? gzopen(w->temp, "wb6") : NULL;
        return w->packed ? BY_OK : base_fail(BY_ERR_IO, "%s: %s", path, strerror(errno));
    }
#else
    if (packs)
        return base_fail(BY_ERR_UNSUPPORTED, "%s: this program was built without zlib", path);
#endif
    return base_writer_open(&w->plain, path);
}

#ifdef BY_HAVE_ZLIB
static by_status close_packed(writer *w, by_status s)
{
    if (gzclose(w->packed) != Z_OK && s == BY_OK)
        s = base_fail(BY_ERR_IO, "%s: %s", w->path, strerror(errno));
    if (s == BY_OK)
        return base_rename(w->temp, w->path);
    unlink(w->temp);
    return s;
}
#endif

static by_status close_writer(writer *w, by_status s)
{
#ifdef BY_HAVE_ZLIB
    if (w->packed)
        return close_packed(w, s);
#endif
    if (s == BY_OK)
        return base_writer_finish(&w->plain);
    base_writer_abort(&w->plain);
    return s;
}

/* ---- text -------------------------------------------------------------------------------------------- */

/* `places` digits of n, with zeros in front. */
static char *put_digits(char *out, uint64_t n, int places)
{
    for (int i = places - 1; i >= 0; i--, n /= 10)
        out[i] = (char)('0' + n % 10);
    return out + places;
}

/* A number to nine digits, which give the same float again; never -0. */
static char *put_number(char *out, float value)
{
    static const double powers[] = {1e7, 1e8, 1e9, 1e10, 1e11, 1e12};
    const double size = fabs((double)value);
    int places = 7; /* decimal places */
    if (value < 0)
        *out++ = '-';
    if (size == 0 || size >= 100 || size < 1e-4)
        return out + base_format(out, NUMBER, "%.9g", size);
    for (double bound = 10; size < bound && places < 12; bound /= 10)
        places++;
    uint64_t n = (uint64_t)(size * powers[places - 7] + 0.5), unit = 1;
    for (; places && n % 10 == 0; places--)
        n /= 10;
    for (int i = 0; i < places; i++)
        unit *= 10;
    const uint64_t whole = n / unit;
    out = put_digits(out, whole, whole >= 10 ? 2 : 1);
    if (places == 0)
        return out;
    *out++ = '.';
    return put_digits(out, n % unit, places);
}

static size_t length_of(const ngram_listing *l, uint32_t word)
{
    return (word + 1 < l->words ? l->starts[word + 1] : l->text_bytes) - l->starts[word] - 1;
}

static by_status make_room(text *t, size_t n)
{
    if (t->room - t->size >= n)
        return BY_OK;
    const size_t room = 2 * t->room + n + 4096;
    char *data = base_resize(t->data, room, 1);
    if (!data)
        return BY_ERR_MEMORY;
    t->data = data;
    t->room = room;
    return BY_OK;
}

static by_status put_entry(const writer *w, text *t, const uint32_t *entry)
{
    const ngram_listing *l = w->list;
    const ngram_value value = {entry[0], entry[1]};
    size_t room = 2 * NUMBER + 8;
    for (int i = 0; i < w->n; i++)
        room += length_of(l, entry[2 + i]) + 1;
    BY_TRY(make_room(t, room));
    char *out = put_number(t->data + t->size, BY_MAX(ngram_probability(value), -99));
    for (int i = 0; i < w->n; i++) {
        const size_t n = length_of(l, entry[2 + i]);
        *out++ = i ? ' ' : '\t';
        memcpy(out, l->text + l->starts[entry[2 + i]], n);
        out += n;
    }
    if (w->n < l->order) {
        *out++ = '\t';
        out = put_number(out, BY_MAX(ngram_weight(value), -99));
    }
    *out++ = '\n';
    t->size = (size_t)(out - t->data);
    return BY_OK;
}

static by_status put_part(void *user, int index)
{
    writer *w = user;
    const size_t threads = (size_t)w->list->threads;
    const size_t begin = w->count * (size_t)index / threads, end = w->count * ((size_t)index + 1) / threads;
    w->texts[index].size = 0;
    for (size_t i = begin; i < end; i++)
        BY_TRY(put_entry(w, &w->texts[index], w->entries + i * ((size_t)w->n + 2)));
    return BY_OK;
}

static by_status write_order(writer *w, const ngram_listing *l, int n)
{
    w->n = n;
    BY_TRY(put_line(w, n, -1));
    BY_TRY(l->begin(l->user, n));
    for (;;) {
        const void *entries;
        BY_TRY(l->next(l->user, n, &entries, &w->count));
        if (w->count == 0)
            return put_bytes(w, "\n", 1);
        w->entries = entries;
        BY_TRY(base_parallel(l->threads, put_part, w));
        for (int i = 0; i < l->threads; i++)
            BY_TRY(put_bytes(w, w->texts[i].data, w->texts[i].size));
    }
}

static by_status write_all(writer *w, const ngram_listing *l)
{
    BY_TRY(put_bytes(w, "\\data\\\n", 7));
    for (int n = 1; n <= l->order; n++)
        BY_TRY(put_line(w, n, l->counts[n - 1]));
    BY_TRY(put_bytes(w, "\n", 1));
    for (int n = 1; n <= l->order; n++)
        BY_TRY(write_order(w, l, n));
    return put_bytes(w, "\\end\\\n", 6);
}

by_status ngram_arpa_write(const char *path, const ngram_listing *list)
{
    ngram_listing l = *list;
    writer w = {.path = path, .list = &l};
    l.threads = BY_MAX(1, BY_MIN(l.threads, MOST_THREADS));
    by_status s = open_writer(&w);
    if (s == BY_OK)
        s = close_writer(&w, write_all(&w, &l));
    for (int i = 0; i < l.threads; i++)
        base_free(w.texts[i].data);
    base_free(w.temp);
    return s;
}
