/* captions.c - see captions.h. */
#include "train/captions.h"

#include <unistd.h>

#include "base/file.h"
#include "train/vocabulary.h"

/* ---- tokens ---------------------------------------------------------------------------------- */

typedef struct growing {
    int32_t *ids;
    int64_t count, capacity;
} growing;

static by_status append(growing *g, const int32_t *ids, int64_t n)
{
    if (g->count + n > g->capacity) {
        const int64_t room = BY_MAX(g->capacity * 2, g->count + n + 1024);
        int32_t *more = base_resize(g->ids, (size_t)room, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        g->ids = more;
        g->capacity = room;
    }
    memcpy(g->ids + g->count, ids, (size_t)n * sizeof *ids);
    g->count += n;
    return BY_OK;
}

int train_caption_end(const by_tokenizer *t)
{
    return by_tokenizer_eos(t) >= 0 ? by_tokenizer_eos(t) : by_tokenizer_special(t, BY_SPECIAL_SEP);
}

/* Appends the end token, which the tokenizers of decoders do not add. */
static by_status add_caption(growing *g, const by_tokenizer *t, const char *text, int limit)
{
    const int32_t end = train_caption_end(t);
    by_encoding e;
    by_status s = by_tokenizer_encode_with(t, text, strlen(text),
                                           &(by_encode_spec){.special = true, .whole = true}, &e);
    const int64_t n = s == BY_OK ? (int64_t)e.ids.count : 0;
    const bool ended = n > 0 && e.ids.data[n - 1] == end;
    int64_t kept = ended ? n - 1 : n;
    if (limit > 0)
        kept = BY_MIN(kept, limit - 1);
    if (s == BY_OK)
        s = append(g, e.ids.data, kept);
    if (s == BY_OK)
        s = append(g, &end, 1);
    by_encoding_free(&e);
    return s;
}

by_status train_captions_open(train_captions *c, const by_picture_set *set, const by_tokenizer *t, int limit)
{
    const int64_t n = by_picture_set_count(set);
    growing g = {0};
    *c = (train_captions){.first = base_alloc_zero((size_t)n + 1, sizeof *c->first)};
    by_status s = c->first ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK && train_caption_end(t) < 0)
        s = base_fail(
            BY_ERR_ARGUMENT,
            "captions need a tokenizer with an end token, such as word:10000, bpe:8000 or a model's own");
    for (int64_t i = 0; i < n && s == BY_OK; i++) {
        s = add_caption(&g, t, by_picture_set_caption(set, i), limit);
        c->first[i + 1] = g.count;
        c->longest = BY_MAX(c->longest, (int)(g.count - c->first[i]));
    }
    c->ids = g.ids;
    return s;
}

void train_captions_close(train_captions *c)
{
    base_free(c->ids);
    base_free(c->first);
    *c = (train_captions){0};
}

/* ---- tokenizers ------------------------------------------------------------------------------ */

static by_status write_captions(const by_picture_set *set, const char *path)
{
    base_writer w;
    BY_TRY(base_writer_open(&w, path));
    by_status s = BY_OK;
    for (int64_t i = 0; i < by_picture_set_count(set) && s == BY_OK; i++) {
        const char *text = by_picture_set_caption(set, i);
        s = base_writer_put(&w, text, strlen(text));
        if (s == BY_OK)
            s = base_writer_put(&w, "\n", 1);
    }
    if (s == BY_OK)
        return base_writer_finish(&w);
    base_writer_abort(&w);
    return s;
}

static by_tokenizer *learn(const by_run_spec *spec, const char *asked, const by_picture_set *set)
{
    char *dir = base_dir_temporary("captions"), *path = dir ? base_path_join(dir, "captions.txt") : NULL;
    by_tokenizer *t = NULL;
    if (path && write_captions(set, path) == BY_OK) {
        const char *files[] = {path};
        t = train_vocabulary_learn(spec, asked, DATA_OBJECTIVE_TRANSLATE, files, 1, NULL);
    }
    if (dir)
        base_dir_remove(dir);
    base_free(path);
    base_free(dir);
    return t;
}

by_tokenizer *train_caption_tokenizer(const by_run_spec *spec, const by_picture_set *set)
{
    const char *asked = spec->tokenizer ? spec->tokenizer : "word:10000";
    if (train_vocabulary_asked(asked))
        return learn(spec, asked, set);
    if (base_dir_exists(asked) || base_file_exists(asked))
        return by_tokenizer_load(asked);
    base_fail(BY_ERR_IO, "tokenizer %s: no such directory; or use word:N, bpe:N, unigram:N or wordpiece:N",
              asked);
    return NULL;
}
