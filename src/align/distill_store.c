/* distill_store.c - see distill_store.h. The file is a header and records, which are only ever appended:
 *
 *   header   "BYLOGITS", version, top, fingerprint of the teacher
 *   record   key of the row, words, check; then words of 4 bytes
 *
 * A row of a model of tokens has for each position its logits, or with `top` the ids and logits of the
 * highest and one value that all others share, with which the probabilities add up. Positions of padding are
 * left out. */
#include "align/distill_store.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "banyan/graph.h"

enum { VERSION = 1 };

typedef struct header {
    char magic[8];
    uint32_t version, top;
    uint64_t fingerprint;
} header;

typedef struct record {
    uint64_t key, check;
    uint64_t words;
} record;

typedef struct place {
    uint64_t key; /* 0: a free entry */
    int64_t at;   /* offset of the words */
    uint64_t words;
} place;

/* The shape of a batch of teacher outputs. */
typedef struct layout {
    int64_t rows, positions, width; /* positions 1: one for each row, not for each token */
    int together;                   /* token rows for each row of logits (choices) */
    bool second;
} layout;

struct distill_store {
    by_model *teacher; /* borrowed */
    by_passes *passes;
    FILE *file;
    char *path;
    int top;
    int64_t end; /* end of the file */
    place *places;
    size_t used, slots;
    float *logits, *second;
    int32_t *words;
    size_t logits_room, second_room, words_room;
    int64_t read, computed;
};

/* ---- the index --------------------------------------------------------------------------------- */

static place *find(const distill_store *s, uint64_t key)
{
    size_t i = key & (s->slots - 1);
    while (s->places[i].key && s->places[i].key != key)
        i = (i + 1) & (s->slots - 1);
    return &s->places[i];
}

static by_status grow(distill_store *s)
{
    distill_store larger = *s;
    larger.slots = s->slots ? 2 * s->slots : 1024;
    larger.places = base_alloc_zero(larger.slots, sizeof *larger.places);
    if (!larger.places)
        return BY_ERR_MEMORY;
    for (size_t i = 0; i < s->slots; i++)
        if (s->places[i].key)
            *find(&larger, s->places[i].key) = s->places[i];
    base_free(s->places);
    s->places = larger.places;
    s->slots = larger.slots;
    return BY_OK;
}

static by_status note(distill_store *s, const record *r, int64_t at)
{
    if (2 * (s->used + 1) > s->slots)
        BY_TRY(grow(s));
    place *p = find(s, r->key);
    s->used += p->key == 0;
    *p = (place){r->key, at, r->words};
    return BY_OK;
}

/* ---- the file ---------------------------------------------------------------------------------- */

static by_status file_failed(const distill_store *s)
{
    return base_fail(BY_ERR_IO, "%s: %s", s->path, errno ? strerror(errno) : "the file ends too early");
}

static by_status reserve(void **p, size_t *room, size_t n, size_t size)
{
    if (n <= *room)
        return BY_OK;
    void *more = base_resize(*p, n, size);
    if (!more)
        return BY_ERR_MEMORY;
    *p = more;
    *room = n;
    return BY_OK;
}

/* Reads the words of a record at the current offset. Returns false if the record is incomplete. */
static bool read_words(distill_store *s, const record *r)
{
    if (r->words > (uint64_t)1 << 32 ||
        reserve((void **)&s->words, &s->words_room, (size_t)r->words, 4) != BY_OK)
        return false;
    return fread(s->words, 4, (size_t)r->words, s->file) == r->words &&
           base_hash(s->words, 4 * (size_t)r->words, r->key) == r->check;
}

static by_status scan(distill_store *s)
{
    record r;
    s->end = (int64_t)sizeof(header);
    while (fread(&r, sizeof r, 1, s->file) == 1 && r.key && read_words(s, &r)) {
        BY_TRY(note(s, &r, s->end + (int64_t)sizeof r));
        s->end += (int64_t)(sizeof r + 4 * r.words);
    }
    errno = 0;
    return ftruncate(fileno(s->file), (off_t)s->end) == 0 && fseek(s->file, (long)s->end, SEEK_SET) == 0
               ? BY_OK
               : file_failed(s);
}

static by_status check_header(const distill_store *s, const header *h, const header *wanted)
{
    if (memcmp(h->magic, wanted->magic, sizeof h->magic) != 0 || h->version != wanted->version)
        return base_fail(BY_ERR_FORMAT, "%s is not a file of stored logits of this version", s->path);
    if (h->fingerprint != wanted->fingerprint)
        return base_fail(BY_ERR_ARGUMENT,
                         "%s has the logits of another teacher; remove it, or use another run folder",
                         s->path);
    if (h->top != wanted->top)
        return base_fail(
            BY_ERR_ARGUMENT,
            "%s keeps %u logits of a position (0: all), not %u; remove it, or use another run folder",
            s->path, h->top, wanted->top);
    return BY_OK;
}

static by_status open_file(distill_store *s, uint64_t fingerprint)
{
    const header wanted = {"BYLOGITS", VERSION, (uint32_t)s->top, fingerprint};
    header h;
    errno = 0;
    s->file = fopen(s->path, "r+b");
    if (s->file && fread(&h, sizeof h, 1, s->file) == 1) {
        BY_TRY(check_header(s, &h, &wanted));
        return scan(s);
    }
    if (!s->file)
        s->file = fopen(s->path, "w+b");
    if (!s->file)
        return file_failed(s);
    rewind(s->file);
    if (fwrite(&wanted, sizeof wanted, 1, s->file) != 1)
        return file_failed(s);
    return scan(s);
}

static by_status append(distill_store *s, uint64_t key, size_t words)
{
    const record r = {key, base_hash(s->words, 4 * words, key), words};
    errno = 0;
    if (fseek(s->file, (long)s->end, SEEK_SET) != 0 || fwrite(&r, sizeof r, 1, s->file) != 1 ||
        fwrite(s->words, 4, words, s->file) != words || fflush(s->file) != 0)
        return file_failed(s);
    BY_TRY(note(s, &r, s->end + (int64_t)sizeof r));
    s->end += (int64_t)(sizeof r + 4 * words);
    return BY_OK;
}

static by_status fetch(distill_store *s, const place *p)
{
    errno = 0;
    BY_TRY(reserve((void **)&s->words, &s->words_room, (size_t)p->words, 4));
    if (fseek(s->file, (long)p->at, SEEK_SET) != 0 ||
        fread(s->words, 4, (size_t)p->words, s->file) != p->words)
        return file_failed(s);
    return BY_OK;
}

distill_store *distill_store_open(const char *path, by_model *teacher, uint64_t fingerprint, int top)
{
    distill_store *s = base_alloc_zero(1, sizeof *s);
    if (!s)
        return NULL;
    s->teacher = teacher;
    s->top = top;
    s->path = base_strdup(path);
    s->passes = by_passes_new(teacher, &(by_pass_spec){.grads = BY_GRAD_NONE}, 24);
    by_status status = s->path && s->passes ? grow(s) : base_error_status();
    if (status == BY_OK)
        status = open_file(s, fingerprint);
    if (status == BY_OK)
        return s;
    distill_store_free(s);
    return NULL;
}

void distill_store_free(distill_store *s)
{
    if (!s)
        return;
    if (s->file)
        fclose(s->file);
    by_passes_free(s->passes);
    base_free(s->path);
    base_free(s->places);
    base_free(s->logits);
    base_free(s->second);
    base_free(s->words);
    base_free(s);
}

void distill_store_counts(const distill_store *s, int64_t *read, int64_t *computed)
{
    *read = s ? s->read : 0;
    *computed = s ? s->computed : 0;
}

/* ---- rows -------------------------------------------------------------------------------------- */

/* Tokens of row b without padding. Without a mask, and with one output for each row, the text ends at the
 * first padding. */
static int length_of(const distill_store *s, const by_batch *b, const layout *l, int row)
{
    const int32_t *mask = by_batch_ids(b, "mask"), *tokens = by_batch_ids(b, "tokens");
    const size_t at = (size_t)row * (size_t)b->seq;
    int n = b->seq;
    if (mask)
        while (n > 1 && !mask[at + (size_t)n - 1])
            n--;
    else if (l->positions == 1)
        while (n > 1 && tokens[at + (size_t)n - 1] == by_model_pad(s->teacher))
            n--;
    return n;
}

static uint64_t key_of(const distill_store *s, const by_batch *b, const layout *l, int64_t row)
{
    const int32_t *tokens = by_batch_ids(b, "tokens"), *segments = by_batch_ids(b, "segments");
    uint64_t key = (uint64_t)by_model_task(s->teacher) + 1;
    for (int k = 0; k < l->together; k++) {
        const int r = (int)row * l->together + k, n = length_of(s, b, l, r);
        const size_t at = (size_t)r * (size_t)b->seq;
        key = base_hash(tokens + at, (size_t)n * sizeof *tokens, key);
        if (segments)
            key = base_hash(segments + at, (size_t)n * sizeof *segments, key ^ 1);
    }
    return key ? key : 1;
}

static bool is_cut(const distill_store *s, const layout *l)
{
    return s->top > 0 && l->width > 2 * s->top + 1;
}

/* The highest logits of a position: ids, logits, and the value that all others share. */
static void pack_top(const float *x, int64_t width, int top, int32_t *out)
{
    float *high = (float *)(out + top), low = 0;
    int n = 0;
    double all = 0, kept = 0;
    for (int64_t v = 0; v < width; v++) {
        if (n == top && !(x[v] > low))
            continue;
        int k = n < top ? n++ : top - 1;
        for (; k > 0 && high[k - 1] < x[v]; k--) {
            high[k] = high[k - 1];
            out[k] = out[k - 1];
        }
        high[k] = x[v];
        out[k] = (int32_t)v;
        low = high[n - 1];
    }
    for (int64_t v = 0; v < width; v++)
        all += exp((double)x[v] - (double)high[0]);
    for (int k = 0; k < top; k++)
        kept += exp((double)high[k] - (double)high[0]);
    const double rest = fmax(all - kept, 1e-30) / (double)(width - top);
    high[top] = (float)((double)high[0] + log(rest));
}

static void unpack_top(const int32_t *in, int64_t width, int top, float *x)
{
    const float *high = (const float *)(in + top);
    for (int64_t v = 0; v < width; v++)
        x[v] = high[top];
    for (int k = 0; k < top; k++)
        x[in[k]] = high[k];
}

/* Words for each position, and positions of a row that are stored. */
static size_t words_of(const distill_store *s, const layout *l)
{
    return is_cut(s, l) ? 2 * (size_t)s->top + 1 : (size_t)l->width;
}

static int64_t kept_of(const distill_store *s, const by_batch *b, const layout *l, int64_t row)
{
    return l->positions == 1 ? 1 : length_of(s, b, l, (int)row);
}

static by_status pack(distill_store *s, const by_batch *b, const layout *l, int64_t row, size_t *count)
{
    const int64_t kept = kept_of(s, b, l, row);
    const size_t each = words_of(s, l), n = (size_t)kept * each;
    *count = n * (l->second ? 2 : 1);
    BY_TRY(reserve((void **)&s->words, &s->words_room, *count, 4));
    for (int64_t t = 0; t < kept; t++) {
        const float *x = s->logits + (row * l->positions + t) * l->width;
        if (is_cut(s, l))
            pack_top(x, l->width, s->top, s->words + (size_t)t * each);
        else
            memcpy(s->words + (size_t)t * each, x, each * sizeof *x);
    }
    if (l->second)
        memcpy(s->words + n, s->second + row * l->positions, n * sizeof(float));
    return BY_OK;
}

static by_status unpack(distill_store *s, const by_batch *b, const layout *l, int64_t row, size_t count)
{
    const int64_t kept = kept_of(s, b, l, row);
    const size_t each = words_of(s, l), n = (size_t)kept * each;
    if (count != n * (l->second ? 2 : 1))
        return base_fail(BY_ERR_FORMAT, "%s: a row has %zu words, not %zu; remove the file", s->path, count,
                         n * (l->second ? 2 : 1));
    float *x = s->logits + row * l->positions * l->width;
    memset(x, 0, (size_t)(l->positions * l->width) * sizeof *x);
    for (int64_t t = 0; t < kept; t++, x += l->width)
        if (is_cut(s, l))
            unpack_top(s->words + (size_t)t * each, l->width, s->top, x);
        else
            memcpy(x, s->words + (size_t)t * each, each * sizeof *x);
    if (l->second) {
        memset(s->second + row * l->positions, 0, (size_t)l->positions * sizeof(float));
        memcpy(s->second + row * l->positions, s->words + n, n * sizeof(float));
    }
    return BY_OK;
}

/* ---- batches ----------------------------------------------------------------------------------- */

/* The inputs of the teacher in a batch. */
static by_batch question(const distill_store *s, const by_batch *b)
{
    const int32_t *own = by_batch_ids(b, "segments"), *other = by_batch_ids(b, "teacher_segments");
    by_batch q = by_batch_of(b->batch, b->seq, by_batch_ids(b, "tokens"));
    q.choices = b->choices;
    by_batch_put_tokens(&q, "mask", by_batch_ids(b, "mask"));
    by_batch_put_tokens(&q, "segments", by_model_segments(s->teacher) ? (own ? own : other) : NULL);
    return q;
}

static layout layout_of(const distill_store *s, const by_batch *b, const by_tensor *logits)
{
    const by_task task = by_model_task(s->teacher);
    const int rank = by_rank(logits);
    const bool tokens = rank == 3 || task == BY_TASK_ANSWER;
    return (layout){.rows = by_dim(logits, 0),
                    .positions = tokens ? by_dim(logits, 1) : 1,
                    .width = rank == 3 ? by_dim(logits, 2)
                             : tokens  ? 1
                                       : by_dim(logits, 1),
                    .together = task == BY_TASK_CHOICE ? BY_MAX(b->choices, 1) : 1,
                    .second = task == BY_TASK_ANSWER};
}

static by_status compute(distill_store *s, by_pass *p, const by_batch *q, const layout *l)
{
    BY_TRY(by_pass_run(p, q));
    BY_TRY(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), s->logits));
    return l->second ? by_pass_read(p, by_io_output(by_pass_io(p), "second"), s->second) : BY_OK;
}

/* Reads the rows of a batch that the file has. If any is missing, computes the whole batch and appends the
 * missing rows. */
static by_status fill(distill_store *s, by_pass *p, const by_batch *q, const layout *l)
{
    bool missing = false;
    for (int64_t i = 0; i < l->rows && !missing; i++)
        missing = !find(s, key_of(s, q, l, i))->key;
    BY_TRY(missing ? compute(s, p, q, l) : BY_OK);
    for (int64_t i = 0; i < l->rows; i++) {
        const uint64_t key = key_of(s, q, l, i);
        const place *at = find(s, key);
        size_t words = (size_t)at->words;
        if (at->key) {
            BY_TRY(fetch(s, at));
            s->read++;
        } else {
            BY_TRY(pack(s, q, l, i, &words));
            BY_TRY(append(s, key, words));
            s->computed++;
        }
        BY_TRY(unpack(s, q, l, i, words));
    }
    return BY_OK;
}

by_status distill_store_teach(distill_store *s, by_batch *b, bool compiles)
{
    const by_batch q = question(s, b);
    by_pass *p = by_passes_get(s->passes, &q);
    if (!p)
        return base_error_status();
    const by_tensor *logits = by_io_output(by_pass_io(p), "logits");
    if (!logits || by_rank(logits) < 2)
        return base_fail(BY_ERR_UNSUPPORTED, "the teacher has no logits that can be stored");
    const layout l = layout_of(s, b, logits);
    BY_TRY(reserve((void **)&s->logits, &s->logits_room, (size_t)by_elements(logits), sizeof(float)));
    BY_TRY(reserve((void **)&s->second, &s->second_room, (size_t)(l.rows * l.positions), sizeof(float)));
    if (!compiles)
        BY_TRY(fill(s, p, &q, &l));
    int64_t shape[3];
    for (int k = 0; k < by_rank(logits); k++)
        shape[k] = by_dim(logits, k);
    by_batch_put(b, "teacher_logits", BY_F32, by_rank(logits), shape, s->logits);
    if (l.second)
        by_batch_put(b, "teacher_second", BY_F32, 2, shape, s->second);
    return BY_OK;
}
