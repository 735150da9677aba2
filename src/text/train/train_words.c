/* train_words.c - counts the words of files. Threads take turns reading chunks of whole lines and split them
 * independently. Each thread counts in a small table that stays in its cache; when it is full, it is added to
 * the table of all words, which has parts so that threads rarely wait for each other. */
#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>

#include "base/input.h"
#include "text/train/train.h"

#define CHUNK     ((size_t)1 << 20)  /* bytes read at a time */
#define LINE_MOST ((size_t)16 << 20) /* a longer line is split, so that memory stays bounded */
#define PARTS     TOK_WORD_PARTS     /* parts of the table of all words */
#define NEAR_SIZE ((size_t)1 << 14)  /* slots of a thread's own table */
#define NEAR_TEXT ((size_t)1 << 19)  /* bytes of its words */

typedef struct table {
    pthread_mutex_t lock;
    tok_word *items;
    size_t count, capacity;
    uint32_t *slots; /* index + 1 */
    size_t mask;
    char *room; /* rest of the block to which words are copied */
    size_t left;
    base_arena *text;
} table;

typedef struct near_word {
    uint64_t count;
    uint32_t start, size, hash, next; /* next: next word of the same part */
} near_word;

typedef struct near_table {
    near_word *items;
    uint32_t *slots; /* index + 1 */
    char *text;
    size_t used, text_used;
} near_table;

typedef struct counter {
    const tok_cutter *cutter;
    const by_vocab_spec *spec;
    const char *const *files;
    int file_count, next; /* next: the file to open next */
    FILE *file;           /* the open file, or NULL */
    int64_t total;        /* bytes of all files */
    base_buf carry;       /* an incomplete last line */
    pthread_mutex_t lock; /* protects reading */
    _Atomic int64_t bytes, lines, running, words;
    _Atomic bool stop;
    table parts[PARTS];
} counter;

/* ---- the table of all words ------------------------------------------------------------------ */

static by_status grow_slots(table *t)
{
    size_t size = t->slots ? (t->mask + 1) * 2 : 256;
    uint32_t *slots = base_alloc_zero(size, sizeof(*slots));
    if (!slots)
        return BY_ERR_MEMORY;
    base_free(t->slots);
    t->slots = slots;
    t->mask = size - 1;
    for (size_t i = 0; i < t->count; i++) {
        size_t at = t->items[i].hash & t->mask;
        while (slots[at])
            at = (at + 1) & t->mask;
        slots[at] = (uint32_t)i + 1;
    }
    return BY_OK;
}

static by_status grow_items(table *t)
{
    if (t->count >= UINT32_MAX / 2)
        return base_fail(BY_ERR_MEMORY, "too many distinct words");
    size_t capacity = BY_MAX(t->capacity + t->capacity / 2, (size_t)64);
    tok_word *items = base_resize(t->items, capacity, sizeof(*items));
    if (!items)
        return BY_ERR_MEMORY;
    t->items = items;
    t->capacity = capacity;
    return BY_OK;
}

static char *copy_text(table *t, const char *text, size_t size)
{
    if (size > t->left) {
        size_t block = BY_MAX(size, (size_t)1 << 13);
        t->room = base_arena_alloc(t->text, block);
        t->left = t->room ? block : 0;
        if (!t->room)
            return NULL;
    }
    char *copy = t->room;
    memcpy(copy, text, size);
    t->room += size;
    t->left -= size;
    return copy;
}

static by_status add_word(counter *c, table *t, const char *text, uint32_t size, uint32_t hash,
                          uint64_t count)
{
    if (!t->slots || t->count * 4 >= (t->mask + 1) * 3)
        BY_TRY(grow_slots(t));
    size_t at = hash & t->mask;
    for (; t->slots[at]; at = (at + 1) & t->mask) {
        tok_word *w = &t->items[t->slots[at] - 1];
        if (w->hash == hash && w->size == size && memcmp(w->text, text, size) == 0) {
            w->count += count;
            return BY_OK;
        }
    }
    if (t->count == t->capacity)
        BY_TRY(grow_items(t));
    char *copy = copy_text(t, text, size);
    if (!copy)
        return BY_ERR_MEMORY;
    t->items[t->count++] = (tok_word){copy, count, size, hash};
    t->slots[at] = (uint32_t)t->count;
    atomic_fetch_add_explicit(&c->words, 1, memory_order_relaxed);
    return BY_OK;
}

/* The high bits of the hash select the part, the low bits the slot. */
static inline uint32_t part_of(uint32_t hash)
{
    return hash >> 26;
}

static by_status add_shared(counter *c, const char *text, size_t size, uint32_t hash)
{
    table *t = &c->parts[part_of(hash)];
    if (size > UINT32_MAX)
        return base_fail(BY_ERR_FORMAT, "a word of %zu bytes is too long", size);
    pthread_mutex_lock(&t->lock);
    by_status s = add_word(c, t, text, (uint32_t)size, hash, 1);
    pthread_mutex_unlock(&t->lock);
    return s;
}

/* ---- a thread's own table -------------------------------------------------------------------- */

static by_status near_open(near_table *n)
{
    n->items = base_alloc(NEAR_SIZE * sizeof(*n->items));
    n->slots = base_alloc_zero(NEAR_SIZE, sizeof(*n->slots));
    n->text = base_alloc(NEAR_TEXT);
    return n->items && n->slots && n->text ? BY_OK : BY_ERR_MEMORY;
}

static void near_close(near_table *n)
{
    base_free(n->items);
    base_free(n->slots);
    base_free(n->text);
}

/* Flushes part by part, so that each lock is taken once. */
static by_status near_flush(counter *c, near_table *n)
{
    uint32_t heads[PARTS] = {0};
    for (uint32_t i = 0; i < n->used; i++) {
        uint32_t *head = &heads[part_of(n->items[i].hash)];
        n->items[i].next = *head;
        *head = i + 1;
    }
    by_status s = BY_OK;
    for (int p = 0; p < PARTS && s == BY_OK; p++) {
        pthread_mutex_lock(&c->parts[p].lock);
        for (uint32_t i = heads[p]; i && s == BY_OK; i = n->items[i - 1].next) {
            const near_word *w = &n->items[i - 1];
            s = add_word(c, &c->parts[p], n->text + w->start, w->size, w->hash, w->count);
        }
        pthread_mutex_unlock(&c->parts[p].lock);
    }
    memset(n->slots, 0, NEAR_SIZE * sizeof(*n->slots));
    n->used = n->text_used = 0;
    return s;
}

static by_status count_word(counter *c, near_table *n, const char *text, size_t size)
{
    uint64_t wide = tok_bytes_hash(text, size);
    uint32_t hash = (uint32_t)(wide ^ (wide >> 32));
    if (size > NEAR_TEXT / 16)
        return add_shared(c, text, size, hash);
    size_t at = hash & (NEAR_SIZE - 1);
    for (; n->slots[at]; at = (at + 1) & (NEAR_SIZE - 1)) {
        near_word *w = &n->items[n->slots[at] - 1];
        if (w->hash == hash && w->size == size && memcmp(n->text + w->start, text, size) == 0) {
            w->count++;
            return BY_OK;
        }
    }
    if (n->used >= NEAR_SIZE / 4 * 3 || n->text_used + size > NEAR_TEXT) {
        BY_TRY(near_flush(c, n));
        at = hash & (NEAR_SIZE - 1);
    }
    memcpy(n->text + n->text_used, text, size);
    n->items[n->used] = (near_word){1, (uint32_t)n->text_used, (uint32_t)size, hash, 0};
    n->slots[at] = (uint32_t)++n->used;
    n->text_used += size;
    return BY_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Adds up the sizes of all files, which also checks early that they exist. */
static by_status measure_files(counter *c)
{
    for (int i = 0; i < c->file_count; i++) {
        struct stat info;
        if (stat(c->files[i], &info) != 0)
            return base_fail(BY_ERR_IO, "cannot open %s: %s", c->files[i], strerror(errno));
        if (S_ISDIR(info.st_mode))
            return base_fail(BY_ERR_IO, "%s is a directory, not a text file", c->files[i]);
        c->total += info.st_size;
    }
    return BY_OK;
}

/* Returns the end of the last complete line of s, or 0. A line above the limit is split at a space, or
 * between two characters. */
static size_t whole_lines(const char *s, size_t n)
{
    const char *end = memrchr(s, '\n', n);
    if (end || n < LINE_MOST)
        return end ? (size_t)(end - s) + 1 : 0;
    const char *space = memrchr(s, ' ', n);
    return space && space > s ? (size_t)(space - s) : tok_utf8_cut((const uint8_t *)s, n);
}

/* Reads at most CHUNK bytes after the contents of the buffer. *ended: end of file. */
static by_status read_more(counter *c, base_buf *out, bool *ended)
{
    const char *name = c->files[c->next];
    if (!c->file && !(c->file = base_input_open(name)))
        return base_error_status();
    char *bigger =
        out->capacity < out->size + CHUNK + 1 ? base_resize(out->data, out->size + CHUNK + 1, 1) : out->data;
    if (!bigger)
        return BY_ERR_MEMORY;
    out->capacity = bigger == out->data ? out->capacity : out->size + CHUNK + 1;
    out->data = bigger;
    size_t n = fread(out->data + out->size, 1, CHUNK, c->file);
    BY_TRY(base_input_check(c->file, name));
    out->size += n;
    *ended = n == 0;
    if (*ended) {
        base_input_close(c->file);
        c->file = NULL;
        c->next++;
    }
    return BY_OK;
}

/* Takes some complete lines; out->size is 0 if there are no more. Called with the lock held. The end of a
 * file ends its last line. */
static by_status take_lines(counter *c, base_buf *out)
{
    out->size = 0;
    base_buf_put(out, c->carry.data ? c->carry.data : "", c->carry.size);
    c->carry.size = 0;
    while (c->next < c->file_count && !out->failed) {
        bool ended = false;
        BY_TRY(read_more(c, out, &ended));
        size_t whole = ended ? out->size : whole_lines(out->data, out->size);
        if (!whole)
            continue;
        base_buf_put(&c->carry, out->data + whole, out->size - whole);
        out->size = whole;
        break;
    }
    return out->failed || c->carry.failed ? base_fail(BY_ERR_MEMORY, "out of memory while reading text")
                                          : BY_OK;
}

/* ---- splitting ------------------------------------------------------------------------------- */

static by_status count_raw(counter *c, near_table *n, base_buf *joined, const char *line, size_t size)
{
    if (c->cutter->prefix_space && line[0] != ' ') {
        joined->size = 0;
        base_buf_puts(joined, " ");
        base_buf_put(joined, line, size);
        if (joined->failed)
            return base_fail(BY_ERR_MEMORY, "out of memory while splitting a line");
        line = joined->data;
        size++;
    }
    int64_t words = 0;
    for (size_t i = 0, end; i < size; i = end, words++) {
        end = tok_gpt2_word((const uint8_t *)line, i, size);
        BY_TRY(count_word(c, n, line + i, end - i));
    }
    atomic_fetch_add_explicit(&c->running, words, memory_order_relaxed);
    return BY_OK;
}

static by_status count_staged(counter *c, near_table *n, tok_buffer *work, tok_buffer *spare,
                              const char *line, size_t size)
{
    tok_buffer_clear(work, false);
    tok_buffer_clear(spare, false);
    BY_TRY(tok_buffer_fill(work, line, size));
    tok_buffer_piece(work, 0, work->size, -1);
    BY_TRY(tok_stages_run(&c->cutter->normalizers, work, spare));
    BY_TRY(tok_stages_run(&c->cutter->splitters, work, spare));
    for (size_t i = 0; i < work->count; i++)
        BY_TRY(count_word(c, n, work->text + work->pieces[i].start, work->pieces[i].size));
    atomic_fetch_add_explicit(&c->running, (int64_t)work->count, memory_order_relaxed);
    return BY_OK;
}

typedef struct worker {
    near_table near;
    tok_buffer work, spare;
    base_buf chunk, joined;
} worker;

static by_status count_lines(counter *c, worker *w)
{
    int64_t lines = 0;
    for (size_t i = 0, end; i < w->chunk.size; i = end, lines++) {
        const char *line = w->chunk.data + i, *stop = memchr(line, '\n', w->chunk.size - i);
        end = stop ? (size_t)(stop - w->chunk.data) + 1 : w->chunk.size;
        BY_TRY(c->cutter->raw ? count_raw(c, &w->near, &w->joined, line, end - i)
                              : count_staged(c, &w->near, &w->work, &w->spare, line, end - i));
    }
    atomic_fetch_add(&c->lines, lines);
    return BY_OK;
}

static by_status count_chunks(counter *c, worker *w, int index)
{
    while (!atomic_load(&c->stop)) {
        pthread_mutex_lock(&c->lock);
        by_status s = take_lines(c, &w->chunk);
        pthread_mutex_unlock(&c->lock);
        BY_TRY(s);
        if (!w->chunk.size)
            break;
        BY_TRY(count_lines(c, w));
        int64_t bytes = atomic_fetch_add(&c->bytes, (int64_t)w->chunk.size) + (int64_t)w->chunk.size;
        if (index == 0)
            BY_TRY(tok_train_progress(c->spec, "count words", bytes, BY_MAX(c->total, bytes),
                                      atomic_load(&c->words)));
    }
    return near_flush(c, &w->near);
}

static by_status count_work(void *user, int index)
{
    counter *c = user;
    worker w = {0};
    by_status s = near_open(&w.near);
    if (s == BY_OK)
        s = count_chunks(c, &w, index);
    if (s != BY_OK)
        atomic_store(&c->stop, true);
    near_close(&w.near);
    tok_buffer_free(&w.work);
    tok_buffer_free(&w.spare);
    base_buf_free(&w.chunk);
    base_buf_free(&w.joined);
    return s;
}

/* ---- counting -------------------------------------------------------------------------------- */

/* Collects all words in one list; the texts are not copied. */
static by_status gather(counter *c, tok_words *out)
{
    size_t count = 0;
    for (int p = 0; p < PARTS; p++)
        count += c->parts[p].count;
    out->items = base_alloc((count + 1) * sizeof(*out->items));
    if (!out->items)
        return BY_ERR_MEMORY;
    for (int p = 0; p < PARTS; p++) {
        table *t = &c->parts[p];
        if (t->count)
            memcpy(out->items + out->count, t->items, t->count * sizeof(*t->items));
        out->count += t->count;
        base_free(t->items);
        base_free(t->slots);
        t->items = NULL;
        t->slots = NULL;
    }
    return BY_OK;
}

static by_status count_files(counter *c, tok_words *out)
{
    BY_TRY(measure_files(c));
    for (int p = 0; p < PARTS; p++)
        if (!(c->parts[p].text = out->text[p] = base_arena_new()))
            return BY_ERR_MEMORY;
    BY_TRY(base_parallel(c->spec->threads, count_work, c));
    out->bytes = c->bytes;
    out->lines = c->lines;
    out->running = c->running;
    BY_TRY(tok_train_progress(c->spec, "count words", c->bytes, c->bytes, c->words));
    return gather(c, out);
}

by_status tok_words_count(const tok_cutter *cutter, const char *const *files, int count,
                          const by_vocab_spec *spec, tok_words *out)
{
    *out = (tok_words){.raw = cutter->raw};
    counter *c = base_alloc_zero(1, sizeof(*c));
    if (!c)
        return BY_ERR_MEMORY;
    c->cutter = cutter;
    c->spec = spec;
    c->files = files;
    c->file_count = count;
    pthread_mutex_init(&c->lock, NULL);
    for (int p = 0; p < PARTS; p++)
        pthread_mutex_init(&c->parts[p].lock, NULL);
    by_status s = count_files(c, out);
    for (int p = 0; p < PARTS; p++) {
        pthread_mutex_destroy(&c->parts[p].lock);
        base_free(c->parts[p].items);
        base_free(c->parts[p].slots);
    }
    pthread_mutex_destroy(&c->lock);
    base_input_close(c->file);
    base_buf_free(&c->carry);
    base_free(c);
    return s;
}

void tok_words_free(tok_words *w)
{
    for (int p = 0; p < PARTS; p++)
        base_arena_free(w->text[p]);
    base_free(w->items);
    *w = (tok_words){0};
}
