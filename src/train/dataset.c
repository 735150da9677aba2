/* dataset.c - see dataset.h. Text is tokenised once; the shard stays in the run folder and is used again as
 * long as the files it came from keep their names, sizes and dates and the tokenizer is the same. */
#include "train/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "io/json.h"

static bool is_shard(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".bin") == 0;
}

/* One list of paths for all patterns. */
static by_status expand(const char *const *patterns, int n, char ***paths, int *count)
{
    *paths = NULL;
    *count = 0;
    for (int i = 0; i < n; i++) {
        char **found, **more;
        int k;
        BY_TRY(by_glob(patterns[i], &found, &k));
        more = by_resize(*paths, (size_t)(*count + k), sizeof **paths);
        if (!more) {
            by_paths_free(found, k);
            return BY_ERR_MEMORY;
        }
        *paths = more;
        memcpy(*paths + *count, found, (size_t)k * sizeof *found);
        *count += k;
        by_free(found);
    }
    return BY_OK;
}

static uint64_t files_hash(char *const *paths, int count, uint64_t seed)
{
    uint64_t h = seed;
    for (int i = 0; i < count; i++) {
        struct stat st;
        h = by_hash(paths[i], strlen(paths[i]), h);
        if (stat(paths[i], &st) != 0)
            continue;
        int64_t facts[3] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
        h = by_hash(facts, sizeof facts, h);
    }
    return h;
}

/* A character vocabulary is that of all the text, the held-out part included. */
static by_tokenizer *train_chars(char *const *paths, int count)
{
    by_map *maps = by_alloc_zero((size_t)count + 1, sizeof *maps);
    const char **texts = by_alloc_zero((size_t)count + 1, sizeof *texts);
    size_t *sizes = by_alloc_zero((size_t)count + 1, sizeof *sizes);
    by_tokenizer *t = NULL;
    bool ok = maps && texts && sizes;
    for (int i = 0; i < count && ok; i++) {
        ok = by_map_open(&maps[i], paths[i]) == BY_OK;
        texts[i] = (const char *)maps[i].data;
        sizes[i] = maps[i].size;
    }
    if (ok)
        t = by_tokenizer_new_chars(texts, sizes, count);
    for (int i = 0; maps && i < count; i++)
        by_map_close(&maps[i]);
    by_free(maps);
    by_free(texts);
    by_free(sizes);
    return t;
}

/* The tokenizer: what a run that goes on has already, or what the spec asks for. */
static by_tokenizer *find_tokenizer(const by_run_spec *spec, const char *data_dir, bool resuming,
                                    char *const *paths, int count)
{
    const char *kind = spec->tokenizer ? spec->tokenizer : spec->init_from ? spec->init_from : "char";
    char *saved = by_path_join(data_dir, "tokenizer.json");
    by_tokenizer *t = NULL;
    if (!saved)
        return NULL;
    if (resuming && by_file_exists(saved))
        t = by_tokenizer_load(saved);
    else if (strcmp(kind, "char") == 0)
        t = train_chars(paths, count);
    else if (strcmp(kind, "byte") == 0)
        t = by_tokenizer_new_bytes();
    else
        t = by_tokenizer_load(kind);
    by_free(saved);
    return t;
}

typedef struct facts {
    uint64_t source;
    int64_t bytes, tokens;
} facts;

static by_status write_facts(const char *path, const facts *f)
{
    by_buf text = {0};
    by_buf_printf(&text, "{\n  \"source\": \"%016llx\",\n  \"bytes\": %lld,\n  \"tokens\": %lld\n}\n",
                  (unsigned long long)f->source, (long long)f->bytes, (long long)f->tokens);
    by_status s = text.failed ? BY_ERR_MEMORY : by_file_write(path, text.data, text.size);
    by_buf_free(&text);
    return s;
}

/* False when there are none, or none that can be read: the shard is then made anew. */
static bool read_facts(const char *path, facts *f)
{
    cJSON *json = by_file_exists(path) ? by_json_load(path) : NULL;
    const char *source = NULL;
    bool ok = json && by_json_string(json, "source", NULL, &source) == BY_OK && source &&
              by_json_int(json, "bytes", 0, 0, INT64_C(1) << 52, &f->bytes) == BY_OK &&
              by_json_int(json, "tokens", 0, 0, INT64_C(1) << 52, &f->tokens) == BY_OK;
    if (ok)
        f->source = strtoull(source, NULL, 16);
    cJSON_Delete(json);
    by_error_clear();
    return ok;
}

/* Tokenise files into dir/name.bin unless that was done, and open it. The tokenizer has been saved in dir. */
static by_tokens *shard(const by_tokenizer *t, const char *dir, const char *name, char *const *paths,
                        int count, facts *f)
{
    const char *const *patterns = (const char *const *)paths;
    char *bin = by_sprintf("%s/%s.bin", dir, name), *note = by_sprintf("%s/%s.json", dir, name);
    char *saved = by_path_join(dir, "tokenizer.json");
    size_t size = 0;
    char *text = saved ? by_file_read(saved, (size_t)1 << 30, &size) : NULL;
    by_tokens *tokens = NULL;
    uint64_t source = text ? files_hash(paths, count, by_hash(text, size, 0)) : 0;
    if (bin && note && text) {
        by_status s = BY_OK;
        if (!read_facts(note, f) || f->source != source || !by_file_exists(bin)) {
            f->source = source;
            s = by_tokens_build(t, patterns, count, bin, &f->bytes, &f->tokens);
            if (s == BY_OK)
                s = write_facts(note, f);
        }
        if (s == BY_OK)
            tokens = by_tokens_open((const char *const[]){bin}, 1, by_tokenizer_vocab_size(t));
    }
    by_free(bin);
    by_free(note);
    by_free(saved);
    by_free(text);
    return tokens;
}

/* A hash of sixteen places of a stream and of its length. */
static uint64_t stream_hash(const by_tokens *t, uint64_t seed)
{
    int64_t n = by_tokens_count(t);
    uint64_t h = by_hash(&n, sizeof n, seed);
    for (int i = 0; i < 16 && n > 0; i++) {
        int32_t ids[64];
        int64_t start = n / 16 * i, count = BY_MIN(64, n - start);
        if (by_tokens_read(t, start, count, ids) == BY_OK)
            h = by_hash(ids, (size_t)count * sizeof *ids, h);
    }
    return h;
}

static by_status open_text(by_dataset *d, const by_run_spec *spec, bool resuming, char *const *paths,
                           int count, char *const *eval_paths, int eval_count)
{
    char *dir = by_path_join(spec->out, "data");
    facts f = {0}, fe = {0};
    if (!dir || by_dir_make(dir) != BY_OK) {
        by_free(dir);
        return by_error_status();
    }
    d->tokenizer = find_tokenizer(spec, dir, resuming, paths, count);
    if (d->tokenizer && by_tokenizer_save(d->tokenizer, dir) == BY_OK)
        d->train = shard(d->tokenizer, dir, "train", paths, count, &f);
    if (d->train && eval_count)
        d->eval = shard(d->tokenizer, dir, "eval", eval_paths, eval_count, &fe);
    by_free(dir);
    if (!d->train || (eval_count && !d->eval))
        return by_error_status();
    d->bytes_per_token = f.tokens > 0 ? (double)f.bytes / (double)f.tokens : NAN;
    return BY_OK;
}

static by_status open_shards(by_dataset *d, const by_run_spec *spec)
{
    const char *kind = spec->tokenizer ? spec->tokenizer : spec->init_from;
    if (kind && strcmp(kind, "byte") == 0)
        d->tokenizer = by_tokenizer_new_bytes();
    else if (kind && by_dir_exists(kind))
        d->tokenizer = by_tokenizer_load(kind);
    if (kind && !d->tokenizer && strcmp(kind, "char") != 0 && spec->tokenizer)
        return by_error_status();
    by_error_clear();
    int vocab = d->tokenizer ? by_tokenizer_vocab_size(d->tokenizer) : spec->shape.vocab;
    d->train = by_tokens_open(spec->data, spec->data_count, vocab);
    if (d->train && spec->eval_count)
        d->eval = by_tokens_open(spec->eval_data, spec->eval_count, vocab);
    d->bytes_per_token = NAN;
    return d->train && (d->eval || !spec->eval_count) ? BY_OK : by_error_status();
}

by_status by_dataset_open(by_dataset *d, const by_run_spec *spec, bool resuming)
{
    memset(d, 0, sizeof *d);
    if (spec->data_count < 1)
        return by_fail(BY_ERR_ARGUMENT, "no data was given");
    char **paths, **eval_paths = NULL;
    int count, eval_count = 0, shards = 0;
    by_status s = expand(spec->data, spec->data_count, &paths, &count);
    if (s == BY_OK && spec->eval_count)
        s = expand(spec->eval_data, spec->eval_count, &eval_paths, &eval_count);
    for (int i = 0; i < count && s == BY_OK; i++)
        shards += is_shard(paths[i]);
    if (s == BY_OK && shards != 0 && shards != count)
        s = by_fail(BY_ERR_ARGUMENT, "text files and .bin shards cannot be mixed");
    if (s == BY_OK)
        s = shards ? open_shards(d, spec)
                   : open_text(d, spec, resuming, paths, count, eval_paths, eval_count);
    by_paths_free(paths, count);
    by_paths_free(eval_paths, eval_count);
    if (s != BY_OK) {
        by_dataset_close(d);
        return s;
    }
    d->train_end = by_tokens_count(d->train);
    d->fingerprint = stream_hash(d->train, 0);
    if (d->eval) {
        d->eval_end = by_tokens_count(d->eval);
    } else if (spec->eval_fraction > 0) {
        d->eval = d->train;
        d->eval_end = d->train_end;
        d->train_end = d->eval_begin = (int64_t)floor((double)d->eval_end * (1 - spec->eval_fraction));
    }
    return BY_OK;
}

void by_dataset_close(by_dataset *d)
{
    if (d->eval != d->train)
        by_tokens_free(d->eval);
    by_tokens_free(d->train);
    by_tokenizer_free(d->tokenizer);
    memset(d, 0, sizeof *d);
}
