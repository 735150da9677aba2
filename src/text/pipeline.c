/* pipeline.c - a tokenizer.json as a kind of tokenizer: reads it, decodes with it, and finds where a stream
 * of text can be cut. */
#include "text/pipeline.h"
#include "text/unicode.h"

static by_status pipeline_encode(const by_tokenizer *t, const char *text, size_t size, by_ids *out)
{
    return tok_pipeline_encode((const tok_pipeline *)t, text, size, out, NULL);
}

/* ---- decoding -------------------------------------------------------------------------------- */

static by_status pipeline_put(const by_tokenizer *t, void *state, const tok_decode_spec *spec, int32_t id,
                              base_buf *out)
{
    const tok_pipeline *p = (const tok_pipeline *)t;
    tok_unfolding **c = state;
    if (!*c && !(*c = tok_unfolding_new(p->decoders)))
        return BY_ERR_MEMORY;
    const tok_token *token = &p->texts[id];
    return token->text && !(spec->skip_special && p->specials[id]) ? tok_unfolding_put(*c, token, out)
                                                                   : BY_OK;
}

static by_status pipeline_end(const by_tokenizer *t, void *state, base_buf *out)
{
    tok_unfolding **c = state;
    (void)t;
    by_status status = *c ? tok_unfolding_end(*c, out) : BY_OK;
    tok_unfolding_free(*c);
    *c = NULL;
    return status;
}

/* ---- cutting a stream of text ---------------------------------------------------------------- */

/* Returns true if an added token may span text[i], or extend over the spaces after it. */
static bool token_across(const tok_added *a, const char *text, size_t size, size_t i)
{
    for (int k = 0; k < a->count; k++) {
        const tok_added_token *t = &a->items[k];
        if (t->rstrip && i >= t->size && memcmp(text + i - t->size, t->content, t->size) == 0)
            return true;
        if (!memchr(t->content, ' ', t->size))
            continue;
        for (size_t before = 1; before < t->size && before <= i; before++) {
            size_t n = BY_MIN((size_t)t->size, size - (i - before));
            if (memcmp(text + i - before, t->content, n) == 0)
                return true;
        }
    }
    return false;
}

/* Returns true if the first splitter starts a new piece at every space after a character that is not a space.
 * Regular expressions may keep punctuation together with what follows it. */
static bool splits_at_spaces(const tok_pipeline *p)
{
    static const char *const types[] = {"ByteLevel", "BertPreTokenizer", "Whitespace", "WhitespaceSplit",
                                        "Metaspace"};
    for (int i = 0; i < BY_COUNT(types) && p->splitters.count; i++)
        if (strcmp(p->splitters.items[0].type, types[i]) == 0)
            return true;
    return false;
}

/* Cuts before a space that starts a new piece. After letters and numbers, a space does so in every published
 * splitter. A text without such a position is cut between characters, which splits one word of the size of a
 * chunk. */
static size_t pipeline_cut(const by_tokenizer *t, const char *text, size_t size)
{
    const tok_pipeline *p = (const tok_pipeline *)t;
    bool any = splits_at_spaces(p);
    for (size_t i = size; i-- > 1;) {
        if (text[i] != ' ')
            continue;
        size_t before = i - 1;
        while (before > 0 && i - before < 4 && ((uint8_t)text[before] & 0xc0) == 0x80)
            before--;
        uint32_t c;
        tok_utf8_next(text + before, i - before, &c);
        bool word = c < 0x80 && tok_class(c) != TOK_CHAR_OTHER && tok_class(c) != TOK_CHAR_SPACE;
        if ((word || (any && !tok_is_space(c))) && !token_across(&p->added, text, size, i))
            return i;
    }
    return tok_utf8_cut((const uint8_t *)text, size);
}

/* ---- reading and writing --------------------------------------------------------------------- */

static void pipeline_free(by_tokenizer *t)
{
    tok_pipeline *p = (tok_pipeline *)t;
    tok_pool_free(&p->pool);
    base_free(p->json);
    base_free(p->texts);
    base_free(p->specials);
    tok_added_free(&p->added);
    tok_stages_free(&p->normalizers);
    tok_stages_free(&p->splitters);
    tok_text_model_free(p->model);
    tok_post_free(&p->post);
    tok_decoders_free(p->decoders);
    base_free(p);
}

static by_status read_size(const cJSON *json, const char *key, int fallback, int *out)
{
    const cJSON *n = cJSON_GetObjectItemCaseSensitive(json, key);
    *out = fallback;
    if (!n || cJSON_IsNull(n))
        return BY_OK;
    if (!cJSON_IsNumber(n) || !(n->valuedouble >= 0 && n->valuedouble < (1 << 30)))
        return base_fail(BY_ERR_FORMAT, "\"%s\" is not an integer", key);
    *out = (int)n->valuedouble;
    return BY_OK;
}

/* Finds the index of a name among the known ones, the first of which is the default. */
static by_status read_name(const cJSON *json, const char *what, const char *key, const char *const *names,
                           int count, int *out)
{
    const char *name = tok_stage_string(json, key);
    *out = 0;
    for (int i = 0; name && i < count; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = i;
            return BY_OK;
        }
    return name ? base_fail(BY_ERR_UNSUPPORTED, "%s with the unknown %s \"%.40s\"", what, key, name) : BY_OK;
}

static const char *const directions[] = {"Right", "Left"};

static by_status read_truncation(const cJSON *json, tok_pipeline *p)
{
    static const char *const keys[] = {"direction", "max_length", "strategy", "stride"};
    static const char *const strategies[] = {"LongestFirst", "OnlyFirst", "OnlySecond"};
    int strategy, direction;
    if (!json || cJSON_IsNull(json))
        return BY_OK;
    BY_TRY(tok_json_only(json, "truncation", keys, BY_COUNT(keys)));
    BY_TRY(read_name(json, "truncation", "strategy", strategies, BY_COUNT(strategies), &strategy));
    BY_TRY(read_name(json, "truncation", "direction", directions, BY_COUNT(directions), &direction));
    p->truncate = true;
    p->truncation.strategy = (by_truncate)strategy;
    p->truncation.left = direction == 1;
    BY_TRY(read_size(json, "stride", 0, &p->truncation.stride));
    return read_size(json, "max_length", 0, &p->truncation.max_length);
}

static by_status read_padding(const cJSON *json, tok_pipeline *p)
{
    static const char *const keys[] = {"strategy", "direction",   "pad_to_multiple_of",
                                       "pad_id",   "pad_type_id", "pad_token"};
    static const char *const strategies[] = {"BatchLongest"}, *const fixed[] = {"Fixed"};
    int direction, strategy;
    if (!json || cJSON_IsNull(json))
        return BY_OK;
    BY_TRY(tok_json_only(json, "padding", keys, BY_COUNT(keys)));
    BY_TRY(read_name(json, "padding", "direction", directions, BY_COUNT(directions), &direction));
    BY_TRY(read_name(json, "padding", "strategy", strategies, BY_COUNT(strategies), &strategy));
    const cJSON *how = cJSON_GetObjectItemCaseSensitive(json, "strategy");
    if (cJSON_IsObject(how))
        BY_TRY(tok_json_only(how, "padding's strategy", fixed, 1));
    p->pad = true;
    p->padding.left = direction == 1;
    BY_TRY(read_size(how, "Fixed", 0, &p->padding.length));
    BY_TRY(read_size(json, "pad_to_multiple_of", 0, &p->padding.multiple));
    BY_TRY(read_size(json, "pad_type_id", 0, &p->padding.type_id));
    if (p->padding.type_id > UINT8_MAX)
        return base_fail(BY_ERR_FORMAT, "a pad_type_id of %d is too large", p->padding.type_id);
    return read_size(json, "pad_id", 0, &p->padding.id);
}

/* Collects the text of each id and whether it is special, for decoding. Added tokens take precedence over the
 * model's. */
static by_status collect_texts(tok_pipeline *p)
{
    int count = p->model->vocab.count;
    for (int i = 0; i < p->added.count; i++)
        count = BY_MAX(count, p->added.items[i].id + 1);
    count = p->pad ? BY_MAX(count, p->padding.id + 1) : count;
    if (count > (1 << 24))
        return base_fail(BY_ERR_FORMAT, "a vocabulary of %d ids is too large", count);
    p->texts = base_alloc_zero((size_t)count + 1, sizeof(*p->texts));
    p->specials = base_alloc_zero((size_t)count + 1, 1);
    if (!p->texts || !p->specials)
        return BY_ERR_MEMORY;
    if (p->model->vocab.count)
        memcpy(p->texts, p->model->vocab.tokens, (size_t)p->model->vocab.count * sizeof(*p->texts));
    for (int i = 0; i < p->added.count; i++) {
        const tok_added_token *t = &p->added.items[i];
        p->texts[t->id] = (tok_token){t->pattern, t->pattern_size};
        p->specials[t->id] = t->special;
    }
    p->base.vocab_size = count;
    return BY_OK;
}

static by_status check_ids(const tok_pipeline *p, const tok_template *t)
{
    for (int i = 0; i < t->count; i++)
        for (int k = 0; k < t->items[i].count; k++)
            if (t->items[i].ids[k] >= p->base.vocab_size)
                return base_fail(BY_ERR_FORMAT, "a post-processor adds the unknown id %d",
                                 t->items[i].ids[k]);
    return BY_OK;
}

/* Byte-level BPE with nothing before its splitter needs no stages. */
static void find_short_cut(tok_pipeline *p)
{
    const tok_stage *s = p->splitters.items;
    if (p->normalizers.count || p->splitters.count != 1 || strcmp(s->type, "ByteLevel") != 0)
        return;
    p->bytes_direct = tok_bpe_takes_bytes(p->model);
    p->prefix_space = s->flags[0];
    p->words = s->flags[1];
}

/* Compares the content of a token, which may contain NUL, with a name, which does not. */
static bool is_named(const tok_added_token *t, const char *name)
{
    return t->size == strlen(name) && memcmp(t->content, name, t->size) == 0;
}

static void find_end(tok_pipeline *p)
{
    static const char *const names[] = {"<|endoftext|>", "</s>", "<eos>", "<|end_of_text|>"};
    for (int k = 0; k < BY_COUNT(names); k++)
        for (int i = 0; i < p->added.count; i++)
            if (p->base.eos < 0 && is_named(&p->added.items[i], names[k]))
                tok_set_eos(&p->base, names[k]);
}

static by_status read_parts(tok_pipeline *p, const cJSON *root)
{
    static const char *const keys[] = {"version",        "truncation", "padding",
                                       "added_tokens",   "normalizer", "pre_tokenizer",
                                       "post_processor", "decoder",    "model"};
    BY_TRY(tok_json_only(root, "tokenizer.json", keys, BY_COUNT(keys)));
    const char *version = tok_stage_string(root, "version");
    if (version && strcmp(version, "1.0") != 0)
        return base_fail(BY_ERR_UNSUPPORTED, "version \"%.20s\" of tokenizer.json is not supported", version);
    p->model = tok_text_model_read(cJSON_GetObjectItemCaseSensitive(root, "model"));
    if (!p->model)
        return base_error_status();
    BY_TRY(tok_normalizers_read(cJSON_GetObjectItemCaseSensitive(root, "normalizer"), &p->normalizers));
    BY_TRY(tok_splitters_read(cJSON_GetObjectItemCaseSensitive(root, "pre_tokenizer"), &p->splitters));
    BY_TRY(tok_post_read(cJSON_GetObjectItemCaseSensitive(root, "post_processor"), &p->post));
    BY_TRY(tok_added_read(cJSON_GetObjectItemCaseSensitive(root, "added_tokens"), &p->added));
    BY_TRY(read_truncation(cJSON_GetObjectItemCaseSensitive(root, "truncation"), p));
    BY_TRY(read_padding(cJSON_GetObjectItemCaseSensitive(root, "padding"), p));
    p->decoders = tok_decoders_read(cJSON_GetObjectItemCaseSensitive(root, "decoder"));
    if (!p->decoders)
        return base_error_status();
    BY_TRY(tok_added_prepare(&p->added, &p->normalizers));
    BY_TRY(collect_texts(p));
    BY_TRY(check_ids(p, &p->post.forms[0][1]));
    return check_ids(p, &p->post.forms[1][1]);
}

static by_tokenizer *pipeline_read(const cJSON *root)
{
    tok_pipeline *p = base_alloc_zero(1, sizeof(*p));
    if (!p)
        return NULL;
    p->base = (by_tokenizer){.kind = &tok_text_pipeline, .eos = -1};
    if (read_parts(p, root) != BY_OK) {
        pipeline_free(&p->base);
        return NULL;
    }
    find_short_cut(p);
    p->keep_places = tok_splitters_need_places(&p->splitters, p->normalizers.count > 0);
    find_end(p);
    return &p->base;
}

static bool pipeline_match(const cJSON *root)
{
    return cJSON_IsObject(root);
}

static void pipeline_write(const by_tokenizer *t, base_buf *out)
{
    const tok_pipeline *p = (const tok_pipeline *)t;
    base_buf_put(out, p->json, p->json_size);
}

by_status tok_pipeline_keep(by_tokenizer *t, const char *json, size_t size)
{
    tok_pipeline *p = (tok_pipeline *)t;
    p->json = base_alloc(size + 1);
    if (!p->json)
        return BY_ERR_MEMORY;
    memcpy(p->json, json, size);
    p->json_size = size;
    return BY_OK;
}

const char *tok_pipeline_type(const by_tokenizer *t)
{
    return ((const tok_pipeline *)t)->model->type;
}

/* Returns the id of a token, added or of the model, or -1. */
static int32_t pipeline_find(const by_tokenizer *t, const char *token, const char **text)
{
    const tok_pipeline *p = (const tok_pipeline *)t;
    for (int i = 0; i < p->added.count; i++)
        if (is_named(&p->added.items[i], token)) {
            *text = p->added.items[i].content;
            return p->added.items[i].id;
        }
    int32_t id = tok_vocab_find(&p->model->vocab, token, strlen(token));
    *text = id >= 0 ? p->model->vocab.tokens[id].text : NULL;
    return id;
}

const tok_text_kind tok_text_pipeline = {
    .name = "pipeline",
    .match = pipeline_match,
    .read = pipeline_read,
    .write = pipeline_write,
    .encode = pipeline_encode,
    .encode_with = tok_pipeline_encode_with,
    .state_size = sizeof(tok_unfolding *),
    .put = pipeline_put,
    .end = pipeline_end,
    .cut = pipeline_cut,
    .find = pipeline_find,
    .free = pipeline_free,
};
