/* pair.c - joins two tokenizers, for models whose source and target have separate vocabularies. spec->target
 * selects the side for encoding; decoding uses the target unless the source is requested. Padding and unknown tokens
 * have the same ids in both; each side has its own closing token. A directory stores them as tokenizer.json and target_tokenizer.json. */
#include "text/kind.h"
#include "text/legacy/spiece.h"

typedef struct pair {
    by_tokenizer base;
    by_tokenizer *sides[2]; /* source, target; owned */
} pair;

static const by_tokenizer *side_of(const by_tokenizer *t, bool target)
{
    return ((const pair *)t)->sides[target];
}

static by_status pair_encode(const by_tokenizer *t, const char *text, size_t size, by_ids *out)
{
    return tok_encode(side_of(t, false), text, size, out);
}

static by_status pair_encode_with(const by_tokenizer *t, const char *text, size_t size,
                                  const by_encode_spec *spec, by_encoding *out)
{
    return by_tokenizer_encode_with(side_of(t, spec->target), text, size, spec, out);
}

/* The state belongs to the selected tokenizer and is created with the first id. */
static by_status pair_put(const by_tokenizer *t, void *state, const tok_decode_spec *spec, int32_t id,
                          base_buf *out)
{
    tok_decoding **d = state;
    if (!*d && !(*d = tok_decoding_new(side_of(t, !spec->source), spec)))
        return BY_ERR_MEMORY;
    return tok_decoding_put(*d, id, out);
}

static by_status pair_end(const by_tokenizer *t, void *state, base_buf *out)
{
    tok_decoding **d = state;
    (void)t;
    by_status status = *d ? tok_decoding_end(*d, out) : BY_OK;
    tok_decoding_free(*d);
    *d = NULL;
    return status;
}

static size_t pair_cut(const by_tokenizer *t, const char *text, size_t size)
{
    return tok_cut(side_of(t, false), text, size);
}

static int32_t pair_find(const by_tokenizer *t, const char *token, const char **text)
{
    *text = NULL;
    return by_tokenizer_find(side_of(t, false), token);
}

static bool pair_match(const cJSON *root)
{
    (void)root;
    return false; /* no tokenizer.json can represent both */
}

static by_tokenizer *pair_read(const cJSON *root)
{
    (void)root;
    base_fail(BY_ERR_UNSUPPORTED, "two tokenizers cannot be written as one tokenizer.json");
    return NULL;
}

static void pair_write(const by_tokenizer *t, base_buf *out)
{
    for (int i = 0; i < 2; i++)
        side_of(t, i)->kind->write(side_of(t, i), out);
}

static void pair_free(by_tokenizer *t)
{
    pair *p = (pair *)t;
    by_tokenizer_free(p->sides[0]);
    by_tokenizer_free(p->sides[1]);
    base_free(p);
}

const tok_text_kind tok_text_pair = {
    .name = "two tokenizers",
    .match = pair_match,
    .read = pair_read,
    .write = pair_write,
    .encode = pair_encode,
    .encode_with = pair_encode_with,
    .state_size = sizeof(tok_decoding *),
    .put = pair_put,
    .end = pair_end,
    .cut = pair_cut,
    .find = pair_find,
    .free = pair_free,
};

/* A model has one id for these, on either side. */
static by_status check_same(const char *what, int source, int target)
{
    if (source == target)
        return BY_OK;
    return base_fail(BY_ERR_ARGUMENT,
                     "the %s token has id %d in the source and %d in the target vocabulary (-1: missing); "
                     "two tokenizers of one model must agree",
                     what, source, target);
}

static by_status check_sides(const by_tokenizer *source, const by_tokenizer *target)
{
    const by_tokenizer *sides[] = {source, target};
    for (int i = 0; i < 2; i++)
        if (sides[i]->kept_count || sides[i]->target_size || sides[i]->kind == &tok_text_spiece)
            return base_fail(BY_ERR_UNSUPPORTED,
                             "the %s tokenizer (%s) has no tokenizer.json, so it cannot be one of two",
                             i ? "target" : "source", tok_kind(sides[i]));
    static const struct {
        const char *name;
        by_special which;
    } specials[] = {{"padding", BY_SPECIAL_PAD}, {"unknown", BY_SPECIAL_UNKNOWN}};
    for (int i = 0; i < BY_COUNT(specials); i++)
        BY_TRY(check_same(specials[i].name, by_tokenizer_special(source, specials[i].which),
                          by_tokenizer_special(target, specials[i].which)));
    return BY_OK;
}

by_tokenizer *tok_pair(by_tokenizer *source, by_tokenizer *target)
{
    pair *p =
        source && target && check_sides(source, target) == BY_OK ? base_alloc_zero(1, sizeof(*p)) : NULL;
    if (!p) {
        by_tokenizer_free(source);
        by_tokenizer_free(target);
        return NULL;
    }
    p->base = (by_tokenizer){.kind = &tok_text_pair,
                             .vocab_size = source->vocab_size,
                             .target_size = target->vocab_size,
                             .eos = target->eos,
                             .eos_text = target->eos_text};
    memcpy(p->base.special, source->special, sizeof(p->base.special));
    p->sides[0] = source;
    p->sides[1] = target;
    return &p->base;
}

const by_tokenizer *tok_side(const by_tokenizer *t, bool target)
{
    return t->kind == &tok_text_pair ? side_of(t, target) : t;
}
