/* tokens.c - token streams over mapped shards, and the shard writer. Numbers in the files are little-endian,
 * as is every machine this runs on. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/input.h"
#include "data/tokens.h"

/* The header of an llm.c shard: 256 int32, of which magic, version and count are used. */
#define HEADER_WORDS 256
#define HEADER_BYTES (HEADER_WORDS * sizeof(int32_t))
#define MAGIC_U16    20240520
#define VERSION_U16  1
#define MAGIC_U32    20240801
#define VERSION_U32  7

#define CHUNK_BYTES ((size_t)1 << 20)
#define MAX_CHUNKS  64

typedef struct shard {
    base_map map;
    const uint8_t *ids; /* count little-endian numbers, aligned to their width */
    int width;          /* bytes per id: 2 or 4 */
    int64_t start;      /* position of the first id in the stream */
    int64_t count;
} shard;

struct data_tokens {
    shard *shards;
    int shard_count;
    int64_t count;
};

/* Identifies the format of a mapped file and sets ids, width and count. */
static by_status shard_layout(shard *s, const char *path)
{
    int32_t header[3] = {0};
    if (s->map.size >= sizeof(header))
        memcpy(header, s->map.data, sizeof(header));
    bool u16 = header[0] == MAGIC_U16, u32 = header[0] == MAGIC_U32;
    if (!u16 && !u32) {
        if (s->map.size % 2 != 0)
            return base_fail(BY_ERR_FORMAT,
                             "%s: no known header, and %zu bytes are not a list of 16-bit tokens", path,
                             s->map.size);
        s->ids = s->map.data;
        s->width = 2;
        s->count = (int64_t)(s->map.size / 2);
        return BY_OK;
    }
    if (s->map.size < HEADER_BYTES)
        return base_fail(BY_ERR_FORMAT, "%s: truncated inside the header (%zu bytes)", path, s->map.size);
    if (header[1] != (u16 ? VERSION_U16 : VERSION_U32))
        return base_fail(BY_ERR_UNSUPPORTED, "%s: unknown version %d of the token format", path,
                         (int)header[1]);
    s->width = u16 ? 2 : 4;
    s->ids = s->map.data + HEADER_BYTES;
    s->count = header[2];
    size_t body = s->map.size - HEADER_BYTES;
    if (s->count < 0 || (uint64_t)s->count * (uint64_t)s->width != body)
        return base_fail(BY_ERR_FORMAT,
                         "%s: the header declares %lld tokens of %d bytes, but %zu bytes follow", path,
                         (long long)s->count, s->width, body);
    return BY_OK;
}

static uint32_t shard_id(const shard *s, int64_t i)
{
    return s->width == 2 ? ((const uint16_t *)s->ids)[i] : ((const uint32_t *)s->ids)[i];
}

/* Returns the largest id, 0 for an empty shard. Plain loops that compilers vectorise. */
static uint32_t shard_max(const shard *s)
{
    if (s->width == 2) {
        const uint16_t *ids = (const uint16_t *)s->ids;
        uint16_t max = 0;
        for (int64_t i = 0; i < s->count; i++)
            max = ids[i] > max ? ids[i] : max;
        return max;
    }
    const uint32_t *ids = (const uint32_t *)s->ids;
    uint32_t max = 0;
    for (int64_t i = 0; i < s->count; i++)
        max = ids[i] > max ? ids[i] : max;
    return max;
}

/* No id may reach limit (at most 2^31, so that ids fit int32). */
static by_status shard_check(const shard *s, const char *path, int64_t limit)
{
    if ((s->width == 2 && limit > UINT16_MAX) || s->count == 0 || shard_max(s) < limit)
        return BY_OK;
    int64_t i = 0;
    while (i < s->count - 1 && shard_id(s, i) < limit)
        i++;
    return base_fail(
        BY_ERR_FORMAT,
        "%s: token %lld has the id %u, outside the vocabulary of %lld; was it made with another tokenizer?",
        path, (long long)i, (unsigned)shard_id(s, i), (long long)limit);
}

static by_status tokens_add(data_tokens *t, const char *path, int64_t limit)
{
    shard *grown = base_resize(t->shards, (size_t)t->shard_count + 1, sizeof(*grown));
    if (!grown)
        return BY_ERR_MEMORY;
    t->shards = grown;
    shard s = {.start = t->count};
    BY_TRY(base_map_open(&s.map, path));
    by_status status = shard_layout(&s, path);
    if (status == BY_OK)
        status = shard_check(&s, path, limit);
    if (status != BY_OK) {
        base_map_close(&s.map);
        return status;
    }
    t->shards[t->shard_count++] = s;
    t->count += s.count;
    return BY_OK;
}

bool data_tokens_is_shard(const char *path)
{
    const size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".bin") == 0;
}

data_tokens *data_tokens_open(const char *const *patterns, int count, int64_t vocab_size)
{
    const int64_t int32_limit = (int64_t)INT32_MAX + 1;
    int64_t limit = vocab_size > 0 ? BY_MIN(vocab_size, int32_limit) : int32_limit;
    data_tokens *t = base_alloc_zero(1, sizeof(*t));
    by_status status = t ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; i < count && status == BY_OK; i++) {
        char **paths = NULL;
        int path_count = 0;
        status = base_glob(patterns[i], &paths, &path_count);
        for (int j = 0; j < path_count && status == BY_OK; j++)
            status = tokens_add(t, paths[j], limit);
        base_paths_free(paths, path_count);
    }
    if (status == BY_OK)
        return t;
    data_tokens_free(t);
    return NULL;
}

void data_tokens_free(data_tokens *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->shard_count; i++)
        base_map_close(&t->shards[i].map);
    base_free(t->shards);
    base_free(t);
}

int64_t data_tokens_count(const data_tokens *t)
{
    return t->count;
}

/* Returns the index of the shard that contains position 0 <= at < t->count: the last one that starts at or
 * before it. */
static int shard_find(const data_tokens *t, int64_t at)
{
    int low = 0, high = t->shard_count - 1;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (t->shards[middle].start <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static bool range_inside(const data_tokens *t, int64_t start, int64_t count)
{
    return start >= 0 && count >= 0 && start <= t->count && count <= t->count - start;
}

by_status data_tokens_read(const data_tokens *t, int64_t start, int64_t count, int32_t *out)
{
    if (!range_inside(t, start, count))
        return base_fail(BY_ERR_ARGUMENT, "cannot read %lld tokens from position %lld; there are only %lld",
                         (long long)count, (long long)start, (long long)t->count);
    while (count > 0) {
        const shard *s = &t->shards[shard_find(t, start)];
        int64_t first = start - s->start;
        int64_t n = BY_MIN(count, s->count - first);
        if (s->width == 4)
            memcpy(out, s->ids + first * 4, (size_t)n * 4);
        else
            for (int64_t i = 0; i < n; i++)
                out[i] = ((const uint16_t *)s->ids)[first + i];
        out += n;
        start += n;
        count -= n;
    }
    return BY_OK;
}

void data_tokens_prefetch(const data_tokens *t, int64_t start, int64_t count)
{
    long page = sysconf(_SC_PAGESIZE);
    if (page <= 0 || !range_inside(t, start, count))
        return;
    while (count > 0) {
        const shard *s = &t->shards[shard_find(t, start)];
        int64_t first = start - s->start;
        int64_t n = BY_MIN(count, s->count - first);
        uintptr_t from = (uintptr_t)s->ids + (uintptr_t)(first * s->width);
        uintptr_t skew = from % (uintptr_t)page;
        madvise((void *)(from - skew), (size_t)(n * s->width) + skew, MADV_WILLNEED);
        start += n;
        count -= n;
    }
}

/* ---- building -------------------------------------------------------------------------------- */

/* Writes the header; called with count 0 to reserve space and again at the end. */
static by_status put_header(data_shard_writer *w, int64_t count)
{
    int32_t header[HEADER_WORDS] = {
        w->width == 2 ? MAGIC_U16 : MAGIC_U32,
        w->width == 2 ? VERSION_U16 : VERSION_U32,
        (int32_t)count,
    };
    return base_writer_put(&w->writer, header, sizeof(header));
}

by_status data_shard_begin(data_shard_writer *w, const char *path, int vocab_size)
{
    *w = (data_shard_writer){.width = vocab_size <= UINT16_MAX + 1 ? 2 : 4};
    BY_TRY(base_writer_open(&w->writer, path));
    return put_header(w, 0);
}

/* Packs 16-bit ids in place: id i is written before id i + 1 is read. */
by_status data_shard_put(data_shard_writer *w, by_ids *ids)
{
    size_t n = ids->count;
    if ((int64_t)n > INT32_MAX - w->tokens)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "a shard cannot hold more than %d tokens; build several from parts of the text",
                         (int)INT32_MAX);
    if (w->width == 2) {
        for (size_t i = 0; i < n; i++) {
            uint16_t id = (uint16_t)ids->data[i];
            memcpy((char *)ids->data + 2 * i, &id, 2);
        }
    }
    w->tokens += (int64_t)n;
    ids->count = 0;
    return base_writer_put(&w->writer, ids->data, n * (size_t)w->width);
}

by_status data_shard_finish(data_shard_writer *w)
{
    if (fseek(w->writer.file, 0, SEEK_SET) != 0) {
        base_fail(BY_ERR_IO, "%s: %s", w->writer.path, strerror(errno));
        data_shard_abort(w);
        return BY_ERR_IO;
    }
    by_status status = put_header(w, w->tokens);
    if (status == BY_OK)
        return base_writer_finish(&w->writer);
    data_shard_abort(w);
    return status;
}

void data_shard_abort(data_shard_writer *w)
{
    base_writer_abort(&w->writer);
}

/* A part of the text, processed by one thread. */
typedef struct chunk {
    char *text; /* CHUNK_BYTES */
    size_t size;
    int64_t offset; /* of text[0] in the file */
    by_ids ids;
    by_status status;
    char message[512];
} chunk;

typedef struct builder {
    const by_tokenizer *tokenizer;
    data_shard_writer shard;
    by_ids ids; /* ids to be written next */
    chunk chunks[MAX_CHUNKS];
    int chunk_count; /* one per core */
    int64_t bytes;
} builder;

/* Fills one chunk after the remainder of the previous one (*rest bytes at left), and leaves over what must
 * not be separated from text that follows. */
static by_status fill_chunk(builder *b, chunk *c, FILE *file, const char *path, const char **left,
                            size_t *rest, bool *end)
{
    if (*rest)
        memmove(c->text, *left, *rest);
    size_t have = *rest + fread(c->text + *rest, 1, CHUNK_BYTES - *rest, file);
    BY_TRY(base_input_check(file, path));
    *end = have < CHUNK_BYTES;
    c->size = *end ? have : tok_cut(b->tokenizer, c->text, have);
    if (c->size == 0 && !*end)
        return base_fail(BY_ERR_UNSUPPORTED, "%s: no place to split the text within %zu bytes", path,
                         CHUNK_BYTES);
    *left = c->text + c->size;
    *rest = have - c->size;
    return BY_OK;
}

/* Encodes all chunks in parallel. Where the text is cut does not depend on their number. */
static void encode_chunks(builder *b, int count)
{
    const int threads = base_team(b->chunk_count);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (count > 1)
    for (int i = 0; i < count; i++) {
        chunk *c = &b->chunks[i];
        c->ids.count = 0;
        c->status = tok_encode(b->tokenizer, c->text, c->size, &c->ids);
        if (c->status != BY_OK)
            base_format(c->message, sizeof(c->message), "%s", by_error_message());
    }
}

static by_status put_chunk(builder *b, chunk *c, const char *path)
{
    if (c->status != BY_OK) {
        base_fail(c->status, "%s", c->message);
        return c->offset == 0
                   ? base_fail_context("%s", path)
                   : base_fail_context("%s, offsets counted from byte %lld", path, (long long)c->offset);
    }
    if (b->ids.count) /* ids waiting from before */
        BY_TRY(data_shard_put(&b->shard, &b->ids));
    return data_shard_put(&b->shard, &c->ids);
}

/* Tokenises one open file, a few chunks at a time. */
static by_status add_stream(builder *b, FILE *file, const char *path)
{
    int64_t offset = 0;
    const char *left = NULL;
    size_t rest = 0;
    for (bool end = false; !end;) {
        int count = 0;
        while (count < b->chunk_count && !end) {
            chunk *c = &b->chunks[count++];
            BY_TRY(fill_chunk(b, c, file, path, &left, &rest, &end));
            c->offset = offset;
            offset += (int64_t)c->size;
        }
        BY_TRY(base_cancel_check());
        encode_chunks(b, count);
        for (int i = 0; i < count; i++)
            BY_TRY(put_chunk(b, &b->chunks[i], path));
    }
    b->bytes += offset;
    return BY_OK;
}

static by_status add_file(builder *b, const char *path)
{
    FILE *file = base_input_open(path);
    if (!file)
        return base_error_status();
    by_status status = add_stream(b, file, path);
    base_input_close(file);
    return status;
}

static by_status add_patterns(builder *b, const char *const *patterns, int count)
{
    int eos = by_tokenizer_eos(b->tokenizer);
    bool first = true;
    by_status status = BY_OK;
    for (int i = 0; i < count && status == BY_OK; i++) {
        char **paths = NULL;
        int path_count = 0;
        status = base_glob(patterns[i], &paths, &path_count);
        for (int j = 0; j < path_count && status == BY_OK; j++) {
            if (!first && eos >= 0)
                status = tok_ids_push(&b->ids, eos);
            first = false;
            if (status == BY_OK)
                status = add_file(b, paths[j]);
        }
        base_paths_free(paths, path_count);
    }
    return status;
}

/* Does everything between opening the shard and finishing it. */
static by_status build(builder *b, const char *const *patterns, int count)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    b->chunk_count = (int)BY_MAX(1, BY_MIN(cores, MAX_CHUNKS));
    for (int i = 0; i < b->chunk_count; i++)
        if (!(b->chunks[i].text = base_alloc(CHUNK_BYTES)))
            return BY_ERR_MEMORY;
    return add_patterns(b, patterns, count);
}

by_status data_tokens_build(const by_tokenizer *t, const char *const *patterns, int count, const char *path,
                            int64_t *bytes_out, int64_t *tokens_out)
{
    builder b = {.tokenizer = t};
    by_status status = data_shard_begin(&b.shard, path, by_tokenizer_vocab_size(t));
    if (status == BY_OK)
        status = build(&b, patterns, count);
    if (status == BY_OK)
        status = data_shard_finish(&b.shard);
    else
        data_shard_abort(&b.shard);
    for (int i = 0; i < b.chunk_count; i++) {
        base_free(b.chunks[i].text);
        tok_ids_free(&b.chunks[i].ids);
    }
    tok_ids_free(&b.ids);
    if (status != BY_OK)
        return status;
    if (bytes_out)
        *bytes_out = b.bytes;
    if (tokens_out)
        *tokens_out = b.shard.tokens;
    return BY_OK;
}
