/* marian_pair.c - Marian's pair of SentencePiece models (Junczys-Dowmunt et al. 2018): source.spm and
 * target.spm split the text into pieces, whose ids are those of vocab.json and not the models' own. A text
 * may start with the code of the language to translate into, as in >>fra<<. */
#include "text/legacy/legacy.h"

typedef struct side {
    by_tokenizer *model;
    tok_vocab vocab;
    int32_t *pieces; /* by id of vocab: the model's id for the same piece, or -1 */
} side;

typedef struct marian {
    by_tokenizer base;
    side source, target; /* target.vocab is empty if both share one */
    tok_added special;   /* matched in the text before anything else */
    int32_t unk, end;
} marian;

static const tok_vocab *vocab_of(const marian *m, bool target)
{
    return target && m->target.vocab.count ? &m->target.vocab : &m->source.vocab;
}

/* ---- encoding -------------------------------------------------------------------------------- */

typedef struct job {
    const marian *m;
    const tok_vocab *vocab;
    by_ids *ids;
    tok_spans *spans; /* NULL if not requested */
    size_t base;      /* offset of the part in the text */
} job;

static by_status put_id(const job *j, int32_t id, size_t start, size_t end)
{
    BY_TRY(tok_ids_push(j->ids, id < 0 ? j->m->unk : id));
    return j->spans ? tok_spans_push(j->spans, j->base + start, j->base + end) : BY_OK;
}

static by_status put_piece(void *context, const char *piece, size_t size, tok_at at)
{
    const job *j = context;
    return put_id(j, tok_vocab_find(j->vocab, piece, size), at.start, at.end);
}

static by_status encode_part(job *j, const by_tokenizer *model, const char *text, size_t start, size_t size)
{
    const char *s = text + start;
    j->base = start;
    if (size >= 4 && memcmp(s, ">>", 2) == 0) {
        const char *close = memmem(s, size, "<<", 2);
        size_t n = close ? (size_t)(close - s) + 2 : 0;
        if (n)
            BY_TRY(put_id(j, tok_vocab_find(j->vocab, s, n), 0, n));
        s += n;
        size -= n;
        j->base += n;
    }
    return tok_spiece_each(model, s, size, put_piece, j);
}

static by_status encode_text(const marian *m, const char *text, size_t size, bool target, by_ids *out,
                             tok_spans *spans)
{
    tok_buffer work = {0};
    job j = {m, vocab_of(m, target), out, spans, 0};
    const by_tokenizer *model = target ? m->target.model : m->source.model;
    size_t before = out->count;
    by_status status = tok_added_split(&m->special, false, text, 0, size, &work);
    for (size_t i = 0; i < work.count && status == BY_OK; i++) {
        const tok_piece *p = &work.pieces[i];
        j.base = 0;
        status = p->id >= 0 ? put_id(&j, p->id, p->start, p->start + p->size)
                            : encode_part(&j, model, text, p->start, p->size);
    }
    tok_buffer_free(&work);
    if (status != BY_OK)
        out->count = before;
    return status;
}

static by_status marian_encode(const by_tokenizer *t, const char *text, size_t size, by_ids *out)
{
    return encode_text((const marian *)t, text, size, false, out, NULL);
}

/* Encodes text, pair and the end of text. */
static by_status marian_encode_with(const by_tokenizer *t, const char *text, size_t size,
                                    const by_encode_spec *spec, by_encoding *out)
{
    const marian *m = (const marian *)t;
    tok_spans spans = {0}, *places = spec->offsets ? &spans : NULL;
    by_status status = encode_text(m, text, size, spec->target, &out->ids, places);
    if (status == BY_OK && spec->pair)
        status = encode_text(m, spec->pair, spec->pair_size, spec->target, &out->ids, places);
    size_t own = out->ids.count;
    if (status == BY_OK && spec->special)
        status = tok_ids_push(&out->ids, m->end);
    if (status == BY_OK)
        status = tok_encoding_fill(out, places, own);
    base_free(spans.data);
    return status;
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* Special tokens separate texts that the model decodes independently. The result has no spaces at its ends:
 * leading spaces are dropped, others are held back until something follows. */
typedef struct decoding {
    tok_piece_state part;
    size_t spaces;
    bool begun;
} decoding;

static by_status put_stripped(decoding *d, base_buf *text, base_buf *out)
{
    for (size_t i = 0; i < text->size; i++) {
        if (text->data[i] == ' ') {
            d->spaces += d->begun;
            continue;
        }
        for (; d->spaces; d->spaces--)
            base_buf_puts(out, " ");
        base_buf_put(out, text->data + i, 1);
        d->begun = true;
    }
    bool failed = text->failed || out->failed;
    base_buf_free(text);
    return failed ? base_fail(BY_ERR_MEMORY, "out of memory while decoding") : BY_OK;
}

static by_status marian_put(const by_tokenizer *t, void *state, const tok_decode_spec *spec, int32_t id,
                            base_buf *out)
{
    const marian *m = (const marian *)t;
    decoding *d = state;
    const side *s = m->target.vocab.count && !spec->source ? &m->target : &m->source;
    const tok_added_token *special = tok_added_find(&m->special, id);
    base_buf text = {0};
    if (special && spec->skip_special && special->special)
        return BY_OK;
    if (special) {
        BY_TRY(tok_spiece_end(&d->part, &text));
        base_buf_put(&text, special->content, special->size);
        base_buf_puts(&text, " ");
    } else if (id < s->vocab.count && s->vocab.tokens[id].text) {
        BY_TRY(tok_spiece_put(s->model, &d->part, s->pieces[id], &s->vocab.tokens[id], &text));
    }
    return put_stripped(d, &text, out);
}

static by_status marian_end(const by_tokenizer *t, void *state, base_buf *out)
{
    decoding *d = state;
    base_buf text = {0};
    (void)t;
    by_status status = tok_spiece_end(&d->part, &text);
    by_status put = put_stripped(d, &text, out);
    return status == BY_OK ? put : status;
}

/* ---- the rest of the kind -------------------------------------------------------------------- */

static size_t marian_cut(const by_tokenizer *t, const char *text, size_t size)
{
    return tok_cut(((const marian *)t)->source.model, text, size);
}

static bool marian_match(const cJSON *root)
{
    (void)root;
    return false; /* these are not saved as tokenizer.json */
}

static by_tokenizer *marian_read(const cJSON *root)
{
    (void)root;
    base_fail(BY_ERR_UNSUPPORTED, "Marian's pair of models cannot be written as tokenizer.json");
    return NULL;
}

static void marian_write(const by_tokenizer *t, base_buf *out)
{
    for (int i = 0; i < t->kept_count; i++)
        base_buf_put(out, t->kept[i].bytes, t->kept[i].size);
}

static int32_t marian_find(const by_tokenizer *t, const char *token, const char **text)
{
    const tok_vocab *v = &((const marian *)t)->source.vocab;
    int32_t id = tok_vocab_find(v, token, strlen(token));
    *text = id >= 0 ? v->tokens[id].text : NULL;
    return id;
}

static void side_free(side *s)
{
    by_tokenizer_free(s->model);
    tok_vocab_free(&s->vocab);
    base_free(s->pieces);
}

static void marian_free(by_tokenizer *t)
{
    marian *m = (marian *)t;
    side_free(&m->source);
    side_free(&m->target);
    tok_added_free(&m->special);
    base_free(m);
}

const tok_text_kind tok_text_marian = {
    .name = "Marian",
    .match = marian_match,
    .read = marian_read,
    .write = marian_write,
    .encode = marian_encode,
    .encode_with = marian_encode_with,
    .state_size = sizeof(decoding),
    .put = marian_put,
    .end = marian_end,
    .cut = marian_cut,
    .find = marian_find,
    .free = marian_free,
};

/* ---- loading --------------------------------------------------------------------------------- */

static by_status load_model(const tok_legacy *l, const char *name, side *s)
{
    size_t size = 0;
    char *bytes = tok_legacy_file(l, name, &size);
    tok_spiece model;
    if (!bytes)
        return base_error_status();
    by_status status = tok_spiece_parse(&model, bytes, size);
    base_free(bytes);
    if (status == BY_OK)
        s->model = tok_spiece_tokenizer(&model);
    return s->model ? BY_OK : base_fail_context("%s/%s", l->dir, name);
}

static by_status load_vocab(const tok_legacy *l, const char *name, side *s)
{
    cJSON *json = NULL;
    BY_TRY(tok_legacy_read_json(l, name, &json));
    if (!json)
        return base_fail(BY_ERR_IO, "%s/%s does not exist", l->dir, name);
    by_status status = tok_vocab_read(&s->vocab, json);
    cJSON_Delete(json);
    return status == BY_OK ? BY_OK : base_fail_context("%s/%s", l->dir, name);
}

static by_status match_pieces(side *s)
{
    s->pieces = base_alloc(((size_t)s->vocab.count + 1) * sizeof(*s->pieces));
    if (!s->pieces)
        return BY_ERR_MEMORY;
    for (int id = 0; id < s->vocab.count; id++)
        s->pieces[id] = s->vocab.tokens[id].text ? by_tokenizer_find(s->model, s->vocab.tokens[id].text) : -1;
    return BY_OK;
}

static by_status add_special(marian *m, const char *content, bool special)
{
    const tok_vocab *v = &m->source.vocab;
    int32_t id = tok_vocab_find(v, content, strlen(content));
    for (int i = 0; i < m->special.count; i++)
        if (m->special.items[i].id == id)
            return BY_OK;
    if (id < 0)
        return base_fail(BY_ERR_FORMAT, "vocab.json does not have the token \"%.60s\"", content);
    tok_added_token *items = base_resize(m->special.items, (size_t)m->special.count + 1, sizeof(*items));
    if (!items)
        return BY_ERR_MEMORY;
    m->special.items = items;
    items[m->special.count] = (tok_added_token){
        .id = id, .content = base_strdup(content), .size = (uint32_t)strlen(content), .special = special};
    return items[m->special.count++].content ? BY_OK : BY_ERR_MEMORY;
}

/* Decoding omits the tokens with a role and those of these lists; others are text. */
static by_status add_listed(marian *m, const cJSON *config)
{
    const cJSON *item;
    for (int i = 0; i < BY_COUNT(tok_special_lists); i++)
        cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(config, tok_special_lists[i]))
        {
            const char *text = tok_special_text(item);
            if (text && tok_vocab_find(&m->source.vocab, text, strlen(text)) >= 0)
                BY_TRY(add_special(m, text, true));
        }
    return BY_OK;
}

static by_status load_parts(marian *m, const tok_legacy *l)
{
    bool apart = tok_legacy_setting(l, "separate_vocabs", false);
    BY_TRY(load_model(l, "source.spm", &m->source));
    BY_TRY(load_model(l, "target.spm", &m->target));
    BY_TRY(load_vocab(l, "vocab.json", &m->source));
    if (apart)
        BY_TRY(load_vocab(l, "target_vocab.json", &m->target));
    BY_TRY(match_pieces(&m->source));
    BY_TRY(match_pieces(&m->target));
    static const int roles[] = {TOK_ROLE_EOS, TOK_ROLE_UNK, ARCH_ROLE_PAD};
    for (int i = 0; i < BY_COUNT(roles); i++)
        BY_TRY(add_special(m, tok_legacy_role(l, roles[i]), true));
    BY_TRY(add_listed(m, l->map));
    BY_TRY(add_listed(m, l->config));
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(l->config, "added_tokens_decoder");
    for (const cJSON *item = cJSON_IsObject(list) ? list->child : NULL; item; item = item->next)
        if (tok_stage_string(item, "content"))
            BY_TRY(add_special(m, tok_stage_string(item, "content"), false));
    m->base.vocab_size = m->source.vocab.count;
    m->base.target_size = m->target.vocab.count;
    m->unk = by_tokenizer_find(&m->base, tok_legacy_role(l, TOK_ROLE_UNK));
    m->end = by_tokenizer_find(&m->base, tok_legacy_role(l, TOK_ROLE_EOS));
    return tok_added_prepare(&m->special, &(tok_stages){0});
}

by_tokenizer *tok_marian_load(tok_legacy *l)
{
    static const char *const files[] = {"source.spm",
                                        "target.spm",
                                        "vocab.json",
                                        "target_vocab.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json"};
    marian *m = base_alloc_zero(1, sizeof(*m));
    if (!m)
        return NULL;
    m->base = (by_tokenizer){.kind = &tok_text_marian, .eos = -1};
    by_status status = load_parts(m, l);
    for (int i = 0; i < BY_COUNT(files) && status == BY_OK; i++)
        status = tok_keep_file(&m->base, l->dir, files[i]);
    if (status == BY_OK)
        return &m->base;
    by_tokenizer_free(&m->base);
    return NULL;
}
