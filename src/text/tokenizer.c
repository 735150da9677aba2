/* tokenizer.c - shared by all kinds of tokenizers: dispatch, the files of a model directory, lists of ids. */
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "text/kind.h"
#include "text/pipeline.h"
#include "text/legacy/spiece.h"

#define TARGET_FILE          "target_tokenizer.json" /* a target with its own vocabulary */
#define TOKENIZER_JSON_LIMIT ((size_t)256 << 20)     /* the largest published ones are about 35 MB */

static const tok_text_kind *const kinds[] = {&tok_text_bytes, &tok_text_chars, &tok_text_pipeline};

/* Uses the first kind that matches and reads it. What the simple kinds cannot do is left to the pipeline,
 * which can do everything or reports why not. */
static by_tokenizer *read_kind(const cJSON *root, const char *json, size_t size, const char *name)
{
    for (int k = 0; k < BY_COUNT(kinds); k++) {
        if (!kinds[k]->match(root))
            continue;
        const bool pipeline = kinds[k] == &tok_text_pipeline;
        by_tokenizer *t = kinds[k]->read(root);
        if (!t)
            base_fail_context("%s", name);
        if (t && pipeline && tok_pipeline_keep(t, json, size) != BY_OK) {
            by_tokenizer_free(t);
            return NULL;
        }
        if (t || base_error_status() != BY_ERR_UNSUPPORTED || k == BY_COUNT(kinds) - 1)
            return t;
        base_error_clear();
    }
    base_fail(BY_ERR_FORMAT, "%s: not a JSON object", name);
    return NULL;
}

by_tokenizer *tok_parse(const char *json, size_t size, const char *name)
{
    const char *stop = NULL;
    cJSON *root = base_json_text_tree(json, size, &stop);
    if (!root && base_json_well_formed(json)) {
        base_fail(BY_ERR_MEMORY, "%s: out of memory", name);
        return NULL;
    }
    if (!root) {
        base_fail(BY_ERR_FORMAT, "%s: invalid JSON at byte %zu", name, stop ? (size_t)(stop - json) : 0);
        return NULL;
    }
    by_tokenizer *t = read_kind(root, json, size, name);
    cJSON_Delete(root);
    return t;
}

/* Loads a single file: JSON, otherwise a SentencePiece model. */
static by_tokenizer *load_file(const char *file)
{
    size_t size = 0, i = 0;
    char *bytes = base_file_read(file, TOKENIZER_JSON_LIMIT, &size);
    if (!bytes)
        return NULL;
    while (i < size && strchr(" \t\r\n", bytes[i]))
        i++;
    by_tokenizer *t = NULL;
    tok_spiece model;
    if (i == size || bytes[i] == '{' || bytes[i] == '[' || bytes[i] == '"')
        t = tok_parse(bytes, size, file);
    else if (tok_spiece_parse(&model, bytes, size) != BY_OK || !(t = tok_spiece_tokenizer(&model)))
        base_fail_context("%s: neither JSON nor a SentencePiece model", file);
    base_free(bytes);
    return t;
}

/* Reads a JSON file of the directory; *out stays NULL if it does not exist. A damaged file is an error. */
static by_status read_json(const char *dir, const char *name, cJSON **out)
{
    char *path = base_path_join(dir, name);
    by_status status = path ? BY_OK : BY_ERR_MEMORY;
    if (path && base_file_exists(path)) {
        size_t size = 0;
        char *text = base_file_read(path, TOKENIZER_JSON_LIMIT, &size);
        *out = text ? base_json_tree(text, size, NULL, true) : NULL;
        if (text && !*out)
            status = base_json_well_formed(text) ? base_fail(BY_ERR_MEMORY, "%s: out of memory", path)
                                                 : base_fail(BY_ERR_FORMAT, "%s is not JSON", path);
        else if (!text)
            status = base_error_status();
        base_free(text);
    }
    base_free(path);
    return status;
}

/* Returns the template of tokenizer_config.json: a string, or the "default" in a list of named ones. */
static const char *config_template(const cJSON *config)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(config, "chat_template");
    for (const cJSON *item = cJSON_IsArray(v) ? v->child : NULL; item; item = item->next) {
        const char *name = tok_stage_string(item, "name");
        if (name && strcmp(name, "default") == 0)
            return tok_stage_string(item, "template");
    }
    return cJSON_GetStringValue(v);
}

static by_status read_chat_template(by_tokenizer *t, const char *dir, const cJSON *config)
{
    char *path = base_path_join(dir, "chat_template.jinja");
    if (!path)
        return BY_ERR_MEMORY;
    bool file = base_file_exists(path);
    const char *own = file ? NULL : config_template(config);
    t->chat_template = file  ? base_file_read(path, TOKENIZER_JSON_LIMIT, NULL)
                       : own ? base_strdup(own)
                             : NULL;
    base_free(path);
    return (file || own) && !t->chat_template ? base_error_status() : BY_OK;
}

/* A configuration that goes with an unmodified tokenizer.json is saved with the same bytes. */
static by_status keep_config(by_tokenizer *t, const char *dir, const cJSON *config)
{
    const char *class = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "tokenizer_class"));
    if (!class || strcmp(class, "PreTrainedTokenizerFast") != 0 || t->kept_count || t->config ||
        (t->chat_template && !config_template(config)))
        return BY_OK;
    char *path = base_path_join(dir, "tokenizer_config.json");
    t->config = path ? base_file_read(path, TOKENIZER_JSON_LIMIT, NULL) : NULL;
    base_free(path);
    return t->config ? BY_OK : base_error_status();
}

/* Reads what the other files of the directory add: the end of text, other special tokens and the chat
 * template. */
static by_status read_config(by_tokenizer *t, const char *dir)
{
    cJSON *config = NULL, *map = NULL;
    by_status status = read_json(dir, "tokenizer_config.json", &config);
    if (status == BY_OK)
        status = read_json(dir, "special_tokens_map.json", &map);
    const char *end = tok_special_name(config, "eos_token");
    end = end ? end : tok_special_name(map, "eos_token");
    if (end)
        tok_set_eos(t, end);
    tok_special_read(t, map);
    tok_special_read(t, config);
    tok_special_mark(t, map);
    tok_special_mark(t, config);
    if (status == BY_OK)
        status = read_chat_template(t, dir, config);
    if (status == BY_OK && !map)
        status = keep_config(t, dir, config);
    cJSON_Delete(config);
    cJSON_Delete(map);
    return status;
}

/* Applies the other files of the directory; takes ownership of t, which may be NULL. */
static by_tokenizer *configured(by_tokenizer *t, const char *dir)
{
    if (!t || read_config(t, dir) == BY_OK)
        return t;
    by_tokenizer_free(t);
    return NULL;
}

/* Joins source and target, with the target's own files. */
static by_tokenizer *load_two(by_tokenizer *source, const char *file, const char *dir)
{
    by_tokenizer *target = source ? configured(load_file(file), dir) : NULL;
    by_tokenizer *t = tok_pair(source, target);
    if (target && !t)
        base_fail_context("%s", file);
    return t;
}

by_tokenizer *by_tokenizer_load(const char *path)
{
    if (!path) {
        base_fail_missing("tokenizer path");
        return NULL;
    }
    if (!base_dir_exists(path))
        return load_file(path);
    char *file = base_path_join(path, "tokenizer.json"), *other = base_path_join(path, TARGET_FILE);
    by_tokenizer *t = NULL;
    if (file && other) {
        t = configured(base_file_exists(file) ? load_file(file) : tok_legacy_load(path), path);
        if (base_file_exists(file) && base_file_exists(other))
            t = load_two(t, other, path);
    }
    base_free(file);
    base_free(other);
    return t;
}

const char *by_tokenizer_chat_template(const by_tokenizer *t)
{
    return t->chat_template;
}

by_status tok_set_chat_template(by_tokenizer *t, const char *text)
{
    char *copy = base_strdup(text);
    if (!copy)
        return BY_ERR_MEMORY;
    base_free(t->chat_template);
    base_free(t->config); /* without it */
    t->chat_template = copy;
    t->config = NULL;
    return t->kept_count ? tok_keep(t, "chat_template.jinja", text, strlen(text)) : BY_OK;
}

by_status tok_format(const by_tokenizer *t, base_buf *out)
{
    if (t->kind == &tok_text_spiece)
        return base_fail(
            BY_ERR_UNSUPPORTED,
            "a bare SentencePiece model cannot be written as tokenizer.json; load its model directory");
    t->kind->write(t, out);
    return out->failed ? base_fail(BY_ERR_MEMORY, "out of memory while writing tokenizer.json") : BY_OK;
}

/* Returns true if the segment ids of a pair distinguish the two texts. */
static bool has_segments(const by_tokenizer *t)
{
    if (t->kind != &tok_text_pipeline)
        return false;
    by_encoding e;
    bool found = false;
    by_encode_spec spec = {.special = true, .whole = true, .pair = "a", .pair_size = 1};
    if (by_tokenizer_encode_with(t, "a", 1, &spec, &e) != BY_OK)
        base_error_clear();
    for (size_t i = 0; i < e.ids.count; i++)
        found = found || e.types[i];
    by_encoding_free(&e);
    return found;
}

/* Makes the reference library's AutoTokenizer use tokenizer.json unmodified. */
static by_status format_config(const by_tokenizer *t, base_buf *out)
{
    if (t->config) {
        base_buf_puts(out, t->config);
        return out->failed ? base_fail(BY_ERR_MEMORY, "out of memory while writing tokenizer_config.json")
                           : BY_OK;
    }
    base_buf_puts(out, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n");
    if (t->eos_text) {
        base_buf_puts(out, "  \"eos_token\": ");
        tok_json_put_string(out, t->eos_text, strlen(t->eos_text));
        base_buf_puts(out, ",\n");
    }
    if (t->chat_template) {
        base_buf_puts(out, "  \"chat_template\": ");
        tok_json_put_string(out, t->chat_template, strlen(t->chat_template));
        base_buf_puts(out, ",\n");
    }
    tok_special_write(t, out);
    if (has_segments(t)) /* otherwise the reference omits them */
        base_buf_puts(out,
                      "  \"model_input_names\": [\"input_ids\", \"token_type_ids\", \"attention_mask\"],\n");
    base_buf_puts(out, "  \"clean_up_tokenization_spaces\": false\n}\n");
    return out->failed ? base_fail(BY_ERR_MEMORY, "out of memory while writing tokenizer_config.json")
                       : BY_OK;
}

static by_status save_file(const by_tokenizer *t, const char *dir, const char *name,
                           by_status (*format)(const by_tokenizer *, base_buf *))
{
    base_buf text = {0};
    char *path = base_path_join(dir, name);
    by_status status = path ? format(t, &text) : BY_ERR_MEMORY;
    if (status == BY_OK)
        status = base_file_write(path, text.data, text.size);
    base_buf_free(&text);
    base_free(path);
    return status;
}

by_status by_tokenizer_write(const by_tokenizer *t, const char *path)
{
    if (!t || !path)
        return base_fail_missing(t ? "output path" : "tokenizer");
    if (t->kept_count || t->target_size)
        return base_fail(BY_ERR_UNSUPPORTED, "this tokenizer has no tokenizer.json: save it as a directory");
    return save_file(t, NULL, path, tok_format);
}

by_status tok_keep(by_tokenizer *t, const char *name, const void *bytes, size_t size)
{
    for (int i = 0; i < t->kept_count; i++)
        if (strcmp(t->kept[i].name, name) == 0)
            return BY_OK;
    tok_kept_file *kept = base_resize(t->kept, (size_t)t->kept_count + 1, sizeof(*kept));
    if (!kept)
        return BY_ERR_MEMORY;
    t->kept = kept;
    tok_kept_file f = {base_strdup(name), base_alloc(size + 1), size};
    if (f.bytes && size)
        memcpy(f.bytes, bytes, size);
    kept[t->kept_count++] = f;
    return f.name && f.bytes ? BY_OK : BY_ERR_MEMORY;
}

by_status tok_keep_file(by_tokenizer *t, const char *dir, const char *name)
{
    char *path = base_path_join(dir, name);
    by_status status = path ? BY_OK : BY_ERR_MEMORY;
    if (path && base_file_exists(path)) {
        size_t size = 0;
        char *bytes = base_file_read(path, TOKENIZER_JSON_LIMIT, &size);
        status = bytes ? tok_keep(t, name, bytes, size) : base_error_status();
        base_free(bytes);
    }
    base_free(path);
    return status;
}

/* The files it came from. A tokenizer.json of another tokenizer would be read instead of them. */
static by_status save_kept(const by_tokenizer *t, const char *dir)
{
    char *path = base_path_join(dir, "tokenizer.json");
    if (!path)
        return BY_ERR_MEMORY;
    by_status status =
        base_file_exists(path)
            ? base_fail(BY_ERR_ARGUMENT, "%s already exists and belongs to another tokenizer", path)
            : BY_OK;
    base_free(path);
    for (int i = 0; i < t->kept_count && status == BY_OK; i++) {
        path = base_path_join(dir, t->kept[i].name);
        status = path ? base_file_write(path, t->kept[i].bytes, t->kept[i].size) : BY_ERR_MEMORY;
        base_free(path);
    }
    return status;
}

/* The target file of another tokenizer would be mistaken for this one's. */
static by_status remove_target(const char *dir)
{
    char *path = base_path_join(dir, TARGET_FILE);
    by_status status = path ? BY_OK : BY_ERR_MEMORY;
    if (path && base_file_exists(path) && unlink(path) != 0)
        status = base_fail(BY_ERR_IO, "%s belongs to another tokenizer and cannot be removed", path);
    base_free(path);
    return status;
}

by_status by_tokenizer_save(const by_tokenizer *t, const char *dir)
{
    if (!t || !dir)
        return base_fail_missing(t ? "output directory" : "tokenizer");
    BY_TRY(base_dir_make(dir));
    if (t->kept_count)
        return save_kept(t, dir);
    const by_tokenizer *source = tok_side(t, false), *target = tok_side(t, true);
    BY_TRY(target == source ? remove_target(dir) : save_file(target, dir, TARGET_FILE, tok_format));
    BY_TRY(save_file(source, dir, "tokenizer.json", tok_format));
    return save_file(source, dir, "tokenizer_config.json", format_config);
}

void by_tokenizer_free(by_tokenizer *t)
{
    if (!t)
        return;
    base_free(t->chat_template);
    base_free(t->config);
    for (int i = 0; i < t->kept_count; i++) {
        base_free(t->kept[i].name);
        base_free(t->kept[i].bytes);
    }
    base_free(t->kept);
    t->kind->free(t);
}

const char *tok_kind(const by_tokenizer *t)
{
    return t->kind == &tok_text_pipeline ? tok_pipeline_type(t) : t->kind->name;
}

uint64_t tok_hash(const by_tokenizer *t)
{
    base_buf text = {0};
    t->kind->write(t, &text);
    uint64_t hash = base_hash(text.data ? text.data : "", text.size, 0);
    base_buf_free(&text);
    return hash;
}

uint64_t tok_target_hash(const by_tokenizer *t)
{
    return tok_hash(tok_side(t, true));
}

int32_t by_tokenizer_find(const by_tokenizer *t, const char *token)
{
    const char *text;
    if (t->kind->find)
        return t->kind->find(t, token, &text);
    return t->eos_text && strcmp(token, t->eos_text) == 0 ? t->eos : -1;
}

void tok_set_eos(by_tokenizer *t, const char *token)
{
    const char *text = NULL;
    int32_t id = t->kind->find ? t->kind->find(t, token, &text) : -1;
    if (id >= 0) {
        t->eos = id;
        t->eos_text = text;
    }
}

int by_tokenizer_vocab_size(const by_tokenizer *t)
{
    return t->vocab_size;
}

int by_tokenizer_target_vocab_size(const by_tokenizer *t)
{
    return t->target_size;
}

int tok_ids(const by_tokenizer *t)
{
    return BY_MAX(t->vocab_size, t->target_size);
}

int by_tokenizer_eos(const by_tokenizer *t)
{
    return t->eos;
}

int by_tokenizer_source_eos(const by_tokenizer *t)
{
    return tok_side(t, false)->eos;
}

by_status tok_encode(const by_tokenizer *t, const char *text, size_t size, by_ids *out)
{
    return t->kind->encode(t, text, size, out);
}

/* ---- decoding -------------------------------------------------------------------------------- */

struct tok_decoding {
    const by_tokenizer *tokenizer;
    tok_decode_spec spec;
    void *state;
    size_t count;
    bool ended;
};

tok_decoding *tok_decoding_new(const by_tokenizer *t, const tok_decode_spec *spec)
{
    tok_decoding *d = base_alloc_zero(1, sizeof(*d) + t->kind->state_size);
    if (!d)
        return NULL;
    d->tokenizer = t;
    d->spec = *spec;
    d->state = d + 1;
    return d;
}

by_status tok_decoding_put(tok_decoding *d, int32_t id, base_buf *out)
{
    const by_tokenizer *t = d->tokenizer;
    const int size = t->target_size && !d->spec.source ? t->target_size : t->vocab_size;
    if (id < 0 || id >= size)
        return base_fail(BY_ERR_ARGUMENT, "id %d at position %zu is outside the vocabulary of %d", (int)id,
                         d->count, size);
    d->count++;
    return t->kind->put(t, d->state, &d->spec, id, out);
}

by_status tok_decoding_end(tok_decoding *d, base_buf *out)
{
    by_status status =
        d->ended || !d->tokenizer->kind->end ? BY_OK : d->tokenizer->kind->end(d->tokenizer, d->state, out);
    d->ended = true;
    return status == BY_OK && out->failed
               ? base_fail(BY_ERR_MEMORY, "out of memory while decoding %zu ids", d->count)
               : status;
}

void tok_decoding_free(tok_decoding *d)
{
    base_buf rest = {0};
    if (d)
        tok_decoding_end(d, &rest);
    base_buf_free(&rest);
    base_free(d);
}

static by_status decode_all(const by_tokenizer *t, const int32_t *ids, size_t count,
                            const tok_decode_spec *spec, base_buf *out)
{
    tok_decoding *d = tok_decoding_new(t, spec);
    by_status status = d ? BY_OK : BY_ERR_MEMORY;
    size_t before = out->size;
    for (size_t i = 0; i < count && status == BY_OK; i++)
        status = tok_decoding_put(d, ids[i], out);
    if (status == BY_OK)
        status = tok_decoding_end(d, out);
    if (status != BY_OK)
        out->size = before;
    tok_decoding_free(d);
    return status;
}

by_status tok_decode_with(const by_tokenizer *t, const int32_t *ids, size_t count,
                          const tok_decode_spec *spec, base_buf *out)
{
    if (!spec->lossy)
        return decode_all(t, ids, count, spec, out);
    base_buf raw = {0};
    by_status status = decode_all(t, ids, count, spec, &raw);
    if (status == BY_OK && raw.size)
        tok_put_lossy(out, raw.data, raw.size);
    base_buf_free(&raw);
    return status == BY_OK && out->failed
               ? base_fail(BY_ERR_MEMORY, "out of memory while decoding %zu ids", count)
               : status;
}

by_status tok_decode(const by_tokenizer *t, const int32_t *ids, size_t count, base_buf *out)
{
    return decode_all(t, ids, count, &(tok_decode_spec){0}, out);
}

/* ---- encoding -------------------------------------------------------------------------------- */

by_status tok_encoding_fill(by_encoding *e, const tok_spans *spans, size_t own)
{
    size_t n = e->ids.count;
    e->types = base_alloc_zero(n + 1, 1);
    e->special = base_alloc_zero(n + 1, 1);
    e->parts = base_alloc_zero(n + 1, 1);
    e->offsets = spans ? base_alloc_zero(n + 1, sizeof(*e->offsets)) : NULL;
    if (!e->types || !e->special || !e->parts || (spans && !e->offsets))
        return BY_ERR_MEMORY;
    memset(e->special + own, 1, n - own);
    memset(e->parts + own, BY_FROM_NEITHER, n - own);
    for (size_t i = 0; spans && i < spans->count; i++)
        e->offsets[i] = (by_offset){spans->data[i].start, spans->data[i].end};
    return BY_OK;
}

/* For kinds where each id represents some bytes of the text and nothing else. */
static by_status encode_plain(const by_tokenizer *t, const char *text, size_t size,
                              const by_encode_spec *spec, by_encoding *out)
{
    if (spec->pair)
        return base_fail(BY_ERR_UNSUPPORTED, "a %s tokenizer does not support pairs of texts", tok_kind(t));
    BY_TRY(t->kind->encode(t, text, size, &out->ids));
    tok_spans spans = {0};
    base_buf piece = {0};
    by_status status = BY_OK;
    size_t at = 0;
    for (size_t i = 0; i < out->ids.count && spec->offsets && status == BY_OK; i++) {
        piece.size = 0;
        status = tok_decode(t, &out->ids.data[i], 1, &piece);
        if (status == BY_OK)
            status = tok_spans_push(&spans, at, at + piece.size);
        at += piece.size;
    }
    if (status == BY_OK)
        status = tok_encoding_fill(out, spec->offsets ? &spans : NULL, out->ids.count);
    base_buf_free(&piece);
    base_free(spans.data);
    return status;
}

by_status by_tokenizer_encode_with(const by_tokenizer *t, const char *text, size_t size,
                                   const by_encode_spec *spec, by_encoding *out)
{
    if (!t || !spec || !out || (!text && size))
        return base_fail_missing(t ? "text, by_encode_spec or encoding" : "tokenizer");
    *out = (by_encoding){0};
    return (t->kind->encode_with ? t->kind->encode_with : encode_plain)(t, text, size, spec, out);
}

/* Texts are distributed one by one, so that a long one does not delay the others. The error reported is that
 * of the first text that has one, independent of the order of execution. */
by_status by_tokenizer_encode_many(const by_tokenizer *t, const by_texts *texts, const by_encode_spec *spec,
                                   int threads, by_encoding *out)
{
    size_t failed = SIZE_MAX;
    by_status status = BY_OK;
    char message[1024] = "";
    threads = base_team(threads > 0 ? threads : base_cores());
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1 && texts->count > 1)
    for (size_t i = 0; i < texts->count; i++) {
        by_encode_spec own = *spec;
        own.pair = texts->pairs ? texts->pairs[i] : NULL;
        own.pair_size = own.pair ? texts->pair_sizes[i] : 0;
        by_status s = by_tokenizer_encode_with(t, texts->texts[i], texts->sizes[i], &own, &out[i]);
        if (s == BY_OK)
            continue;
#pragma omp critical(tok_encode_many)
        if (i < failed) {
            failed = i;
            status = s;
            base_format(message, sizeof(message), "%s", by_error_message());
        }
    }
    return status == BY_OK ? BY_OK : base_fail(status, "text %zu: %s", failed + 1, message);
}

void by_encoding_free(by_encoding *e)
{
    for (size_t i = 0; i < e->overflow_count; i++)
        by_encoding_free(&e->overflow[i]);
    base_free(e->overflow);
    tok_ids_free(&e->ids);
    base_free(e->offsets);
    base_free(e->types);
    base_free(e->special);
    base_free(e->parts);
    *e = (by_encoding){0};
}

size_t tok_cut(const by_tokenizer *t, const char *text, size_t size)
{
    return t->kind->cut(t, text, size);
}

by_status tok_ids_reserve(by_ids *v, size_t extra)
{
    size_t need;
    if (!base_add_size(v->count, extra, &need))
        return base_fail(BY_ERR_MEMORY, "a list of ids is too long");
    if (need <= v->capacity && v->data)
        return BY_OK;
    size_t capacity = BY_MAX(BY_MAX(need, v->capacity + v->capacity / 2), (size_t)64);
    int32_t *data = base_resize(v->data, capacity, sizeof(*data));
    if (!data)
        return BY_ERR_MEMORY;
    v->data = data;
    v->capacity = capacity;
    return BY_OK;
}

by_status tok_ids_push(by_ids *v, int32_t id)
{
    BY_TRY(tok_ids_reserve(v, 1));
    v->data[v->count++] = id;
    return BY_OK;
}

void tok_ids_free(by_ids *v)
{
    base_free(v->data);
    *v = (by_ids){0};
}

/* ---- whole texts, for users of the library --------------------------------------------------- */

int32_t *by_encode(const by_tokenizer *t, const char *text, size_t size, size_t *count)
{
    if (!t || !count || (!text && size)) {
        base_fail_missing(t ? "text" : "tokenizer");
        return NULL;
    }
    by_ids ids = {0};
    if (tok_ids_reserve(&ids, 1) != BY_OK || tok_encode(t, text, size, &ids) != BY_OK) {
        tok_ids_free(&ids);
        return NULL;
    }
    *count = ids.count;
    return ids.data;
}

char *by_decode(const by_tokenizer *t, const int32_t *ids, size_t count, size_t *size)
{
    if (!t || (!ids && count)) {
        base_fail_missing(t ? "array of ids" : "tokenizer");
        return NULL;
    }
    return tok_decode_text(t, ids, count, &(tok_decode_spec){0}, size);
}

char *tok_decode_text(const by_tokenizer *t, const int32_t *ids, size_t count, const tok_decode_spec *spec,
                      size_t *size)
{
    base_buf text = {0};
    base_buf_puts(&text, "");
    by_status s = tok_decode_with(t, ids, count, spec, &text);
    if (s == BY_OK && (text.failed || !text.data))
        s = base_fail(BY_ERR_MEMORY, "out of memory while decoding %zu ids", count);
    if (s != BY_OK) {
        base_buf_free(&text);
        return NULL;
    }
    if (size)
        *size = text.size;
    return text.data;
}

void by_release(void *memory)
{
    base_free(memory);
}
