/* unigram.c - the unigram language model (Kudo 2018): of all ways to segment a word into tokens, finds the
 * one with the greatest sum of scores, by dynamic programming over its bytes. */
#include <stdio.h>

#include "text/pipeline.h"
#include "text/trie.h"
#include "text/utf8.h"

#define UNKNOWN_PENALTY 10.0

typedef struct unigram {
    tok_text_model base;
    tok_trie trie;
    double *scores; /* by id */
    int32_t unk;    /* -1: none */
    double unk_score;
    bool byte_fallback;
    int32_t bytes[256];
} unigram;

/* The best segmentation up to some byte: the start and the id of its last token. */
typedef struct best {
    double score;
    uint32_t start; /* UINT32_MAX: not reached */
    int32_t id;
} best;

static inline void improve(best *b, double score, size_t start, int32_t id)
{
    if (b->start == UINT32_MAX || score > b->score)
        *b = (best){score, (uint32_t)start, id};
}

static by_status forward(const unigram *u, const char *text, size_t size, best *b)
{
    b[0] = (best){0, UINT32_MAX, -1};
    for (size_t i = 1; i <= size; i++)
        b[i].start = UINT32_MAX;
    for (size_t i = 0; i < size;) {
        uint32_t c;
        size_t n = BY_MAX((size_t)tok_utf8_decode((const uint8_t *)text + i, size - i, &c), (size_t)1);
        double here = i ? b[i].score : 0;
        bool single = false;
        int32_t node = 0;
        for (size_t k = i; k < size && (node = tok_trie_step(&u->trie, node, (uint8_t)text[k])) >= 0; k++) {
            int32_t id = u->trie.nodes[node].id;
            if (id < 0)
                continue;
            improve(&b[k + 1], u->scores[id] + here, i, id);
            single = single || k + 1 == i + n;
        }
        if (!single) {
            if (u->unk < 0)
                return base_fail(BY_ERR_ARGUMENT,
                                 "a character at byte %zu of \"%.*s\" is not in the vocabulary, which has no "
                                 "unknown token",
                                 i, (int)BY_MIN(size, (size_t)40), text);
            improve(&b[i + n], u->unk_score + here, i, u->unk);
        }
        i += n;
    }
    return BY_OK;
}

/* Emits a run of unknown characters: as a token with that spelling, as its bytes, or as the unknown token. */
static by_status put_unknown(const unigram *u, const char *text, size_t start, size_t end, by_ids *out,
                             tok_spans *spans)
{
    int32_t id = tok_vocab_find(&u->base.vocab, text + start, end - start);
    bool bytes = id < 0 && u->byte_fallback;
    for (size_t i = start; bytes && i < end; i++)
        bytes = u->bytes[(uint8_t)text[i]] >= 0;
    if (!bytes) {
        BY_TRY(tok_ids_push(out, id < 0 ? u->unk : id));
        return spans ? tok_spans_push(spans, start, end) : BY_OK;
    }
    for (size_t i = start; i < end; i++) {
        BY_TRY(tok_ids_push(out, u->bytes[(uint8_t)text[i]]));
        if (spans)
            BY_TRY(tok_spans_push(spans, start, end));
    }
    return BY_OK;
}

static by_status unigram_encode(const tok_text_model *m, tok_scratch *s, const char *text, size_t size,
                                by_ids *out, tok_spans *spans)
{
    const unigram *u = (const unigram *)m;
    if (size >= UINT32_MAX / 2)
        return base_fail(BY_ERR_ARGUMENT, "a word of %zu bytes is too long to encode", size);
    best *b = tok_scratch_memory(s, (size + 1) * sizeof(*b));
    if (!b)
        return BY_ERR_MEMORY;
    BY_TRY(forward(u, text, size, b));
    size_t next = size; /* reverse the links: b[i].start becomes the end of the token that starts at i */
    int32_t id = -1;
    for (size_t at = size; at > 0;) {
        size_t start = b[at].start;
        int32_t own = b[at].id;
        b[at].start = (uint32_t)next;
        b[at].id = id;
        next = at;
        id = own;
        at = start;
    }
    b[0].start = (uint32_t)next;
    b[0].id = id;
    for (size_t at = 0; at < size;) {
        size_t end = b[at].start;
        if (b[at].id != u->unk) {
            BY_TRY(tok_ids_push(out, b[at].id));
            if (spans)
                BY_TRY(tok_spans_push(spans, at, end));
            at = end;
            continue;
        }
        while (end < size && b[end].id == u->unk)
            end = b[end].start;
        BY_TRY(put_unknown(u, text, at, end, out, spans));
        at = end;
    }
    return BY_OK;
}

static void unigram_free(tok_text_model *m)
{
    unigram *u = (unigram *)m;
    tok_trie_free(&u->trie);
    base_free(u->scores);
}

/* [["token", score], ...]; the index is the id. */
static by_status read_vocab(unigram *u, const cJSON *json)
{
    if (!cJSON_IsArray(json))
        return base_fail(BY_ERR_FORMAT, "a Unigram model has no \"vocab\" list");
    u->scores = base_alloc_zero((size_t)cJSON_GetArraySize(json) + 1, sizeof(*u->scores));
    if (!u->scores)
        return BY_ERR_MEMORY;
    double least = 1e300;
    int id = 0;
    for (const cJSON *item = json->child; item; item = item->next, id++) {
        const cJSON *token = cJSON_IsArray(item) ? item->child : NULL, *score = token ? token->next : NULL;
        if (!cJSON_IsString(token) || !cJSON_IsNumber(score))
            return base_fail(BY_ERR_FORMAT, "entry %d of a Unigram vocabulary is not a token and a score",
                             id);
        BY_TRY(tok_vocab_put_json(&u->base.vocab, token->valuestring, id));
        u->scores[id] = score->valuedouble;
        least = BY_MIN(least, score->valuedouble);
    }
    u->unk_score = least - UNKNOWN_PENALTY;
    return BY_OK;
}

static by_status read_model(unigram *u, const cJSON *json)
{
    static const char *const keys[] = {"type", "unk_id", "vocab", "byte_fallback"};
    BY_TRY(tok_json_only(json, "a Unigram model", keys, BY_COUNT(keys)));
    BY_TRY(read_vocab(u, cJSON_GetObjectItemCaseSensitive(json, "vocab")));
    BY_TRY(tok_stage_bool(json, "byte_fallback", false, &u->byte_fallback));
    const cJSON *unk = cJSON_GetObjectItemCaseSensitive(json, "unk_id");
    u->unk = -1;
    if (cJSON_IsNumber(unk)) {
        if (!(unk->valuedouble >= 0 && unk->valuedouble < u->base.vocab.count))
            return base_fail(BY_ERR_FORMAT, "the unk_id %g is outside the vocabulary of %d", unk->valuedouble,
                             u->base.vocab.count);
        u->unk = (int32_t)unk->valuedouble;
        u->base.surface = u->unk + 1;
    }
    for (int i = 0; i < 256; i++) {
        char text[8];
        int n = base_format(text, sizeof(text), "<0x%02X>", (unsigned)i);
        u->bytes[i] = tok_vocab_find(&u->base.vocab, text, (size_t)n);
    }
    return tok_trie_build(&u->trie, &u->base.vocab, NULL);
}

tok_text_model *tok_unigram_read(const cJSON *json)
{
    unigram *u = base_alloc_zero(1, sizeof(*u));
    if (!u)
        return NULL;
    u->base = (tok_text_model){.type = "Unigram", .encode = unigram_encode, .free = unigram_free};
    if (read_model(u, json) == BY_OK)
        return &u->base;
    tok_text_model_free(&u->base);
    return NULL;
}
