/* dataset.c - see dataset.h. Text is tokenised once; the shard stays in the run folder and is reused while
 * names, sizes and dates of the source files and the tokenizer are the same. */
#include "train/dataset.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "model/model.h"
#include "base/json.h"
#include "train/checkpoint.h"
#include "train/pixel_data.h"
#include "train/shard_facts.h"
#include "train/vocabulary.h"

enum { INPUT_PART = 1 << 16 };

/* Of a path, without the part that a new standard input will lose. */
static size_t lasting_length(const char *path)
{
    const size_t n = strlen(path), tail = strlen(TRAIN_FOLDER_NEW_INPUT);
    const bool is_new = n > tail && strcmp(path + n - tail, TRAIN_FOLDER_NEW_INPUT) == 0;
    return is_new ? n - tail + strlen(TRAIN_FOLDER_INPUT) : n;
}

static uint64_t files_hash(char *const *paths, int count, uint64_t seed)
{
    uint64_t h = seed;
    for (int i = 0; i < count; i++) {
        struct stat st;
        h = base_hash(paths[i], lasting_length(paths[i]), h);
        if (stat(paths[i], &st) != 0)
            continue;
        int64_t facts[3] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
        h = base_hash(facts, sizeof facts, h);
    }
    return h;
}

/* Trains a vocabulary on pairs of texts, which are written to a file for this. */
static by_tokenizer *learn_from_pairs(const by_run_spec *spec, const char *asked, data_side side,
                                      const train_dataset *d, const char *dir, const train_items *items)
{
    train_items plain = *items;
    data_parallel_item *list = base_alloc((size_t)items->spec.count * sizeof *list);
    char *path = base_path_join(dir, "text");
    by_tokenizer *t = NULL;
    for (int i = 0; list && i < items->spec.count; i++) {
        list[i] = items->spec.items[i];
        if (items->tokens[0])
            list[i].prefix = list[i].back = "";
    }
    plain.spec.items = list;
    if (list && path && data_parallel_text(&plain.spec, side, path) == BY_OK)
        t = train_vocabulary_learn(spec, asked, d->kind, (const char *const[]){path}, 1, items);
    if (path && base_file_exists(path))
        unlink(path);
    base_free(path);
    base_free(list);
    return t;
}

/* One tokenised text of a run: out/data/NAME.bin, for documents also NAME.docs, and a description
 * NAME.json. */
typedef struct text {
    const char *name;
    char **paths;
    int *languages; /* of each path */
    int count;
    train_items items; /* of pairs of texts */
} text;

static by_status copy_input(const char *path)
{
    base_writer w;
    char *part = base_alloc(INPUT_PART);
    by_status s = part ? base_writer_open(&w, path) : BY_ERR_MEMORY;
    if (s != BY_OK) {
        base_free(part);
        return s;
    }
    for (ssize_t n = 1; n > 0 && s == BY_OK;) {
        n = read(STDIN_FILENO, part, INPUT_PART);
        s = n >= 0 ? base_writer_put(&w, part, (size_t)n)
                   : base_fail(BY_ERR_IO, "cannot read the standard input: %s", strerror(errno));
    }
    base_free(part);
    if (s == BY_OK)
        return base_writer_finish(&w);
    base_writer_abort(&w);
    return s;
}

/* Standard input is needed more than once, also when resuming, so it is kept in the run folder. That of an
 * earlier run is kept until the new run has started: see train_folder_take_input. */
static by_status keep_input(train_folder *folder, bool resuming, char ***found, int *count)
{
    const char *name = !resuming && train_folder_owns(folder, TRAIN_FOLDER_INPUT) ? TRAIN_FOLDER_NEW_INPUT
                                                                                  : TRAIN_FOLDER_INPUT;
    char *path = base_path_join(folder->out, name);
    *found = base_alloc_zero(1, sizeof **found);
    by_status s =
        path && *found ? train_folder_claim_in(folder, "data", strchr(name, '/') + 1) : BY_ERR_MEMORY;
    if (s == BY_OK && !(resuming && base_file_exists(path)))
        s = copy_input(path);
    if (s == BY_OK) {
        **found = path;
        *count = 1;
        return BY_OK;
    }
    base_free(path);
    base_free(*found);
    return s;
}

/* The files of each pattern in order. */
static by_status find_text(text *t, const char *name, const char *const *patterns, int n,
                           train_folder *folder, bool resuming)
{
    *t = (text){.name = name};
    for (int i = 0; i < n; i++) {
        char **found, **more;
        int k, *languages;
        BY_TRY(strcmp(patterns[i], "-") == 0 ? keep_input(folder, resuming, &found, &k)
                                             : base_glob(patterns[i], &found, &k));
        languages = base_resize(t->languages, (size_t)(t->count + k), sizeof *languages);
        t->languages = languages ? languages : t->languages;
        more = base_resize(t->paths, (size_t)(t->count + k), sizeof *more);
        t->paths = more ? more : t->paths;
        if (!more || !languages) {
            base_paths_free(found, k);
            return BY_ERR_MEMORY;
        }
        for (int j = 0; j < k; j++)
            languages[t->count + j] = i;
        memcpy(more + t->count, found, (size_t)k * sizeof *found);
        t->count += k;
        base_free(found);
    }
    return BY_OK;
}

static void text_free(text *t)
{
    base_paths_free(t->paths, t->count);
    base_free(t->languages);
    train_items_free(&t->items);
}

/* ---- the tokenizer ---------------------------------------------------------------------------- */

/* A tokenizer by name, for one side of pairs or for all text. */
static by_tokenizer *make_tokenizer(const by_run_spec *spec, const char *asked, data_side side,
                                    const train_dataset *d, const char *data_dir, const text *x)
{
    if (train_vocabulary_asked(asked) && x->items.spec.count)
        return learn_from_pairs(spec, asked, side, d, data_dir, &x->items);
    if (train_vocabulary_asked(asked))
        return train_vocabulary_learn(spec, asked, d->kind, (const char *const *)x->paths, x->count, NULL);
    return train_tokenizer_named(asked, (const char *const *)x->paths, x->count);
}

/* One for each text of a pair. */
static by_tokenizer *make_two(const by_run_spec *spec, const train_dataset *d, const char *data_dir,
                              const text *x)
{
    by_tokenizer *source = make_tokenizer(spec, spec->tokenizer, DATA_SIDE_SOURCE, d, data_dir, x);
    by_tokenizer *target =
        source ? make_tokenizer(spec, spec->target_tokenizer, DATA_SIDE_TARGET, d, data_dir, x) : NULL;
    return tok_pair(source, target);
}

static by_status check_ways(const by_run_spec *spec)
{
    return spec->objective.both_directions
               ? base_fail(BY_ERR_ARGUMENT, "both directions require a shared vocabulary")
               : BY_OK;
}

/* That of the checkpoint `from` when resuming, otherwise that of the spec. */
static by_tokenizer *find_tokenizer(const by_run_spec *spec, const train_dataset *d, const char *data_dir,
                                    const char *from, const text *x)
{
    const char *kind = spec->tokenizer ? spec->tokenizer : spec->init_from ? spec->init_from : "char";
    char *saved = base_path_join(from, "tokenizer_config.json");
    by_tokenizer *t = NULL;
    if (!saved)
        return NULL;
    if (from && base_file_exists(saved))
        t = by_tokenizer_load(from);
    else if (spec->target_tokenizer)
        t = make_two(spec, d, data_dir, x);
    else
        t = make_tokenizer(spec, kind, DATA_SIDE_BOTH, d, data_dir, x);
    base_free(saved);
    if (t && by_tokenizer_target_vocab_size(t) && check_ways(spec) != BY_OK) {
        by_tokenizer_free(t);
        t = NULL;
    }
    return t;
}

/* Checks before any tokenizer is trained. */
static by_status check_two(const train_dataset *d, const by_run_spec *spec)
{
    if (!spec->target_tokenizer)
        return BY_OK;
    if (d->kind != DATA_OBJECTIVE_TRANSLATE)
        return base_fail(BY_ERR_ARGUMENT,
                         "a tokenizer for the target is for the objective \"translate\", not \"%s\"",
                         data_objective_name(d->kind));
    if (spec->init_from || !spec->tokenizer)
        return base_fail(
            BY_ERR_ARGUMENT,
            spec->init_from
                ? "the model to start from has its vocabularies: a target tokenizer cannot be given"
                : "a target tokenizer requires a source tokenizer");
    const arch_family *a = arch_find(spec->family);
    if (!a)
        return base_error_status();
    if (!arch_has(a, ARCH_ROLE_SHARED))
        return base_fail(BY_ERR_ARGUMENT, "%s has one vocabulary for all texts, not two", a->title);
    return check_ways(spec);
}

/* Settings that determine how pairs of texts are read. */
static uint64_t items_hash(const train_items *items, uint64_t h)
{
    for (int i = 0; i < items->spec.count; i++) {
        const data_parallel_item *x = &items->spec.items[i];
        const char *parts[] = {x->prefix, x->back, items->spec.text, items->spec.label, items->spec.words};
        for (int k = 0; k < BY_COUNT(parts); k++)
            h = base_hash(parts[k] ? parts[k] : "", parts[k] ? strlen(parts[k]) + 1 : 0, h + (uint64_t)k);
    }
    return h;
}

static by_status build_docs(const by_tokenizer *t, const text *x, const by_run_spec *spec, train_dataset *d,
                            const char *bin, const char *index, train_facts *f)
{
    data_parallel_spec pairs = x->items.spec;
    pairs.found = &d->found;
    if (pairs.count)
        return data_parallel_build(t, &pairs, bin, index, &f->bytes, &f->tokens);
    data_docs_file *files = base_alloc_zero((size_t)x->count, sizeof *files);
    if (!files)
        return BY_ERR_MEMORY;
    for (int i = 0; i < x->count; i++)
        files[i] = (data_docs_file){x->paths[i], spec->objective.language_count ? x->languages[i] : 0};
    data_docs_spec docs = {files, x->count, d->kind == DATA_OBJECTIVE_TLM};
    by_status s = data_docs_build(t, &docs, bin, index, &f->bytes, &f->tokens);
    base_free(files);
    return s;
}

/* Tokenises a text into dir, unless that was done before, and opens it. The tokenizer is already saved in
 * dir. */
static by_status open_parts(train_dataset *d, const by_run_spec *spec, const char *dir, const text *x,
                            train_facts *f, data_tokens **tokens, data_docs *docs)
{
    const bool lm = d->kind == DATA_OBJECTIVE_LM;
    const int vocab = tok_ids(d->tokenizer);
    char *bin = base_sprintf("%s/%s.bin", dir, x->name), *note = base_sprintf("%s/%s.json", dir, x->name);
    char *index = base_sprintf("%s/%s.docs", dir, x->name);
    by_status s = bin && note && index ? BY_OK : base_error_status();
    if (s == BY_OK) {
        uint64_t source = files_hash(x->paths, x->count, tok_hash(d->tokenizer));
        if (!lm) /* other settings that affect how the text is split */
            source = base_hash(&(int[2]){d->kind == DATA_OBJECTIVE_TLM, spec->objective.language_count},
                               sizeof(int[2]), source);
        source = items_hash(&x->items, source);
        if (!train_facts_read(note, f) || f->source != source || !base_file_exists(bin) ||
            (!lm && !base_file_exists(index)) ||
            (f->sum && f->sum != train_facts_sum(bin, lm ? NULL : index))) {
            f->source = source;
            s = lm ? data_tokens_build(d->tokenizer, (const char *const *)x->paths, x->count, bin, &f->bytes,
                                       &f->tokens)
                   : build_docs(d->tokenizer, x, spec, d, bin, index, f);
            f->sum = s == BY_OK ? train_facts_sum(bin, lm ? NULL : index) : 0;
            if (s == BY_OK)
                s = train_facts_write(note, f);
        }
    }
    if (s == BY_OK && !lm) {
        s = data_docs_open(docs, bin, index, vocab);
    } else if (s == BY_OK) {
        *tokens = data_tokens_open((const char *const[]){bin}, 1, vocab);
        s = *tokens ? BY_OK : base_error_status();
    }
    base_free(bin);
    base_free(note);
    base_free(index);
    return s;
}

/* A hash of sixteen positions of a stream and of its length. */
static uint64_t stream_hash(const data_tokens *t, uint64_t seed)
{
    int64_t n = data_tokens_count(t);
    uint64_t h = base_hash(&n, sizeof n, seed);
    for (int i = 0; i < 16 && n > 0; i++) {
        int32_t ids[64];
        int64_t start = n / 16 * i, count = BY_MIN(64, n - start);
        if (data_tokens_read(t, start, count, ids) == BY_OK)
            h = base_hash(ids, (size_t)count * sizeof *ids, h);
    }
    return h;
}

static by_status claim_data(train_folder *folder, const text *train, const text *held)
{
    static const char *const ends[] = {"bin", "docs", "json"};
    BY_TRY(train_folder_claim_in(folder, "data", "text"));
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < BY_COUNT(ends) && (i == 0 || held->count); k++) {
            char name[32];
            base_format(name, sizeof name, "%s.%s", i ? held->name : train->name, ends[k]);
            BY_TRY(train_folder_claim_in(folder, "data", name));
        }
    return BY_OK;
}

static by_status open_text(train_dataset *d, const by_run_spec *spec, train_folder *folder, const char *from,
                           const text *train, const text *held)
{
    char *dir = base_path_join(spec->out, "data");
    train_facts f = {0}, fe = {0};
    by_status s = dir ? claim_data(folder, train, held) : BY_ERR_MEMORY;
    if (s == BY_OK) {
        d->tokenizer = find_tokenizer(spec, d, dir, from, train);
        s = d->tokenizer ? train_checkpoint_place(folder, "data", NULL, d->tokenizer, NULL)
                         : base_error_status();
    }
    if (s == BY_OK)
        s = open_parts(d, spec, dir, train, &f, &d->train, &d->docs);
    if (s == BY_OK && held->count)
        s = open_parts(d, spec, dir, held, &fe, &d->eval, &d->eval_docs);
    base_free(dir);
    d->bytes_per_token = f.tokens > 0 ? (double)f.bytes / (double)f.tokens : NAN;
    return s;
}

static by_status open_shards(train_dataset *d, const by_run_spec *spec)
{
    const char *kind = spec->tokenizer ? spec->tokenizer : spec->init_from;
    if (kind && strcmp(kind, "byte") == 0)
        d->tokenizer = tok_new_bytes();
    else if (kind && base_dir_exists(kind))
        d->tokenizer = by_tokenizer_load(kind);
    if (kind && !d->tokenizer && strcmp(kind, "char") != 0 && spec->tokenizer)
        return base_error_status();
    base_error_clear();
    int vocab = d->tokenizer ? by_tokenizer_vocab_size(d->tokenizer) : spec->shape.vocab;
    d->train = data_tokens_open(spec->data, spec->data_count, vocab);
    if (d->train && spec->eval_count)
        d->eval = data_tokens_open(spec->eval_data, spec->eval_count, vocab);
    d->bytes_per_token = NAN;
    return d->train && (d->eval || !spec->eval_count) ? BY_OK : base_error_status();
}

/* Documents: the held-out part, and the unigram cross-entropy of the text. */
static by_status part_docs(train_dataset *d, const by_run_spec *spec)
{
    bool parallel = d->kind == DATA_OBJECTIVE_TLM || d->kind == DATA_OBJECTIVE_TRANSLATE,
         apart = d->eval_docs.count > 0;
    data_docs_part none = {0};
    by_status s = data_docs_split(&d->docs, apart ? 0 : spec->eval_fraction, parallel, &d->train_part,
                                  apart ? &none : &d->eval_part);
    if (s == BY_OK && apart) {
        data_docs_part_free(&none);
        s = data_docs_split(&d->eval_docs, 0, parallel, &d->eval_part, &none);
    }
    data_docs_part_free(&none);
    d->train_tokens = d->train_part.tokens;
    d->eval_tokens = d->eval_part.tokens;
    d->fingerprint = stream_hash(
        d->docs.tokens, base_hash(d->docs.starts, (size_t)d->docs.sentences * sizeof *d->docs.starts, 0));
    if (s == BY_OK && !by_tokenizer_target_vocab_size(d->tokenizer)) /* otherwise ids would be ambiguous */
        s = data_docs_entropy(&d->train_part, tok_ids(d->tokenizer), &d->entropy);
    return s;
}

static void part_stream(train_dataset *d, const by_run_spec *spec)
{
    d->train_end = data_tokens_count(d->train);
    d->fingerprint = stream_hash(d->train, 0);
    if (d->eval) {
        d->eval_end = data_tokens_count(d->eval);
    } else if (spec->eval_fraction > 0) {
        d->eval = d->train;
        d->eval_end = d->train_end;
        d->train_end = d->eval_begin = (int64_t)floor((double)d->eval_end * (1 - spec->eval_fraction));
    }
    d->train_tokens = d->train_end - d->train_begin;
    d->eval_tokens = d->eval_end - d->eval_begin;
}

static by_status check_languages(const train_dataset *d, const by_run_spec *spec)
{
    const int n = d->kind == DATA_OBJECTIVE_TRANSLATE ? 0 : spec->objective.language_count;
    if (n && (n != spec->data_count || (spec->eval_count && n != spec->eval_count)))
        return base_fail(BY_ERR_ARGUMENT, "%d languages require as many items of data, not %d", n,
                         spec->eval_count && n == spec->data_count ? spec->eval_count : spec->data_count);
    return BY_OK;
}

static by_status open_data(train_dataset *d, const by_run_spec *spec, train_folder *folder, const char *from,
                           const text *train, const text *held)
{
    int shards = 0;
    for (int i = 0; i < train->count; i++)
        shards += data_tokens_is_shard(train->paths[i]);
    if (shards != 0 && shards != train->count)
        return base_fail(BY_ERR_ARGUMENT, "text files and .bin shards cannot be mixed");
    if (shards && d->kind != DATA_OBJECTIVE_LM)
        return base_fail(BY_ERR_ARGUMENT,
                         "%s: token shards have no sentence boundaries; the objective \"%s\" needs text",
                         train->paths[0], data_objective_name(d->kind));
    BY_TRY(shards ? open_shards(d, spec) : open_text(d, spec, folder, from, train, held));
    if (d->kind != DATA_OBJECTIVE_LM)
        return part_docs(d, spec);
    part_stream(d, spec);
    return BY_OK;
}

/* Standard input can be given only once. */
static by_status check_input(const by_run_spec *spec)
{
    int inputs = 0;
    for (int i = 0; i < spec->data_count; i++)
        inputs += strcmp(spec->data[i], "-") == 0;
    for (int i = 0; i < spec->eval_count; i++)
        inputs += strcmp(spec->eval_data[i], "-") == 0;
    return inputs <= 1 ? BY_OK : base_fail(BY_ERR_ARGUMENT, "the standard input (-) can be read only once");
}

by_status train_dataset_open(train_dataset *d, const by_run_spec *spec, train_folder *folder,
                             const char *from)
{
    text train = {0}, held = {0};
    *d = (train_dataset){.entropy = NAN};
    if (spec->data_count < 1)
        return base_fail(BY_ERR_ARGUMENT, "no data was given");
    BY_TRY(train_objective_choose(spec, &d->kind));
    BY_TRY(check_languages(d, spec));
    BY_TRY(check_two(d, spec));
    BY_TRY(check_input(spec));
    if (d->kind == DATA_OBJECTIVE_PIXELS) {
        const by_status opened = train_pixels_open(d, spec, folder, from);
        if (opened != BY_OK)
            train_dataset_close(d);
        return opened;
    }
    by_status s = find_text(&train, "train", spec->data, spec->data_count, folder, from != NULL);
    if (s == BY_OK)
        s = find_text(&held, "eval", spec->eval_data, spec->eval_count, folder, from != NULL);
    if (s == BY_OK && d->kind == DATA_OBJECTIVE_TRANSLATE)
        s = train_items_make(&train.items, spec, train.paths, train.count);
    if (s == BY_OK && d->kind == DATA_OBJECTIVE_TRANSLATE && held.count)
        s = train_items_make(&held.items, spec, held.paths, held.count);
    if (s == BY_OK)
        s = open_data(d, spec, folder, from, &train, &held);
    text_free(&train);
    text_free(&held);
    if (s != BY_OK)
        train_dataset_close(d);
    return s;
}

void train_dataset_close(train_dataset *d)
{
    data_objective_free(d->rows);
    data_objective_free(d->eval_rows);
    data_docs_part_free(&d->train_part);
    data_docs_part_free(&d->eval_part);
    data_docs_close(&d->docs);
    data_docs_close(&d->eval_docs);
    if (d->eval != d->train)
        data_tokens_free(d->eval);
    data_tokens_free(d->train);
    by_tokenizer_free(d->tokenizer);
    by_processor_free(d->processor);
    base_buf_free(&d->found);
    memset(d, 0, sizeof *d);
}
