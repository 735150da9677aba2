/* ngram_model.c - queries of an n-gram model (banyan/ngram.h). A look-up goes from short n-grams to long ones and stops
 * as soon as no longer one can match: about one memory access for each order. */
#include <math.h>
#include <sys/mman.h>

#include "base/input.h"
#include "ngram/ngram.h"

struct by_ngram {
    const ngram_header *header;
    const ngram_value *unigrams;
    ngram_slot *tables[BY_NGRAM_MAX_ORDER]; /* never written */
    const uint64_t *starts;
    const char *text;
    const ngram_word_slot *index;
    by_ngram_state begin; /* after <s> */
    base_map map;         /* of a binary */
    ngram_image image;    /* made of an ARPA file */
};

static void attach(by_ngram *m, const void *data)
{
    union { /* tables are only read */
        const void *from;
        char *to;
    } at = {data};
    const ngram_header *h = m->header = data;
    m->unigrams = (const ngram_value *)(at.to + h->at[0]);
    for (uint32_t n = 1; n < h->order; n++)
        m->tables[n] = (ngram_slot *)(at.to + h->at[n]);
    m->starts = (const uint64_t *)(at.to + h->starts);
    m->text = at.to + h->text;
    m->index = (const ngram_word_slot *)(at.to + h->index);
}

/* Models of relative frequencies list contexts of several <s>. */
static void find_begin(by_ngram *m)
{
    for (uint32_t i = 1; i < m->header->order; i++)
        by_ngram_score(m, &m->begin, NGRAM_BOS, &m->begin, NULL);
}

/* Damage that would lead outside of the file: starts of words, which lie one after the other, and ids in the index. */
static by_status check_contents(const by_ngram *m)
{
    const ngram_header *h = m->header;
    bool good = m->starts[0] == 0 && m->index[h->index_slots - 1].id == 0;
    for (uint32_t i = 0; i < h->words && good; i++) {
        const uint64_t end = i + 1 < h->words ? m->starts[i + 1] : h->text_bytes;
        good = m->starts[i] < end && end <= h->text_bytes && m->text[end - 1] == '\0';
    }
    for (uint64_t i = 0; i < h->index_slots && good; i++)
        good = m->index[i].id <= h->words && m->index[i].start < h->text_bytes;
    return good ? BY_OK : base_fail(BY_ERR_FORMAT, "the tables are damaged");
}

static by_status open_into(by_ngram *m, const char *path)
{
    if (!ngram_is_binary(path)) {
        BY_TRY(ngram_arpa_read(path, NULL, &m->image));
        attach(m, m->image.header);
        find_begin(m);
        return BY_OK;
    }
    BY_TRY(base_map_open(&m->map, path));
    BY_TRY(ngram_image_check((const ngram_header *)m->map.data, m->map.size));
    attach(m, m->map.data);
    BY_TRY(check_contents(m));
    find_begin(m);
    return BY_OK;
}

by_ngram *by_ngram_open(const char *path)
{
    if (!path) {
        base_fail_missing("path");
        return NULL;
    }
    char *file = ngram_file_of(path);
    by_ngram *m = file ? base_alloc_zero(1, sizeof *m) : NULL;
    if (m && open_into(m, file) != BY_OK) {
        base_fail_context("%s", path);
        by_ngram_free(m);
        m = NULL;
    }
    base_free(file);
    return m;
}

void by_ngram_free(by_ngram *m)
{
    if (!m)
        return;
    base_map_close(&m->map);
    ngram_image_abort(&m->image);
    base_free(m);
}

/* ---- properties ----------------------------------------------------------------------------------- */

int by_ngram_order(const by_ngram *m)
{
    return m ? (int)m->header->order : 0;
}

by_smoothing by_ngram_smoothing(const by_ngram *m)
{
    return m ? (by_smoothing)m->header->smoothing : BY_SMOOTHING_UNKNOWN;
}

const ngram_header *ngram_model_header(const by_ngram *m)
{
    return m->header;
}

int by_ngram_tokens(const by_ngram *m)
{
    return m ? (int)m->header->tokens : 0;
}

int32_t by_ngram_token_word(const by_ngram *m, int32_t token)
{
    if (!m || token < 0 || token >= by_ngram_tokens(m))
        return NGRAM_UNK;
    return token == m->header->eos ? NGRAM_EOS : token + NGRAM_SPECIAL;
}

int64_t by_ngram_count(const by_ngram *m, int order)
{
    return m && order >= 1 && order <= by_ngram_order(m) ? (int64_t)m->header->counts[order - 1] : 0;
}

size_t by_ngram_bytes(const by_ngram *m)
{
    return m ? m->header->bytes : 0;
}

int by_ngram_words(const by_ngram *m)
{
    return m ? (int)m->header->words : 0;
}

const char *by_ngram_word(const by_ngram *m, int32_t id)
{
    return m && id >= 0 && (uint32_t)id < m->header->words ? m->text + m->starts[id] : NULL;
}

void ngram_fetch_word(const by_ngram *m, uint64_t hash)
{
    __builtin_prefetch(m->index + ngram_home(m->header->index_homes, hash));
}

void ngram_fetch_name(const by_ngram *m, uint64_t hash)
{
    __builtin_prefetch(m->text + m->index[ngram_home(m->header->index_homes, hash)].start);
}

uint32_t ngram_find_hashed(const by_ngram *m, const char *word, size_t n, uint64_t hash)
{
    const ngram_word_slot *s = m->index + ngram_home(m->header->index_homes, hash);
    const uint64_t end = m->header->text_bytes;
    for (; s->id; s++) {
        const char *name = m->text + s->start;
        if (s->tag == (uint32_t)hash && n < end - s->start && memcmp(name, word, n) == 0 && name[n] == '\0')
            return s->id - 1;
    }
    return NGRAM_UNK;
}

int32_t by_ngram_find(const by_ngram *m, const char *word, size_t bytes)
{
    if (!m || (!word && bytes))
        return NGRAM_UNK;
    return (int32_t)ngram_find_hashed(m, word, bytes, ngram_words_hash(word, bytes));
}

/* ---- queries ---------------------------------------------------------------------------------------- */

void ngram_fetch(const by_ngram *m, const uint32_t *last, uint64_t *keys)
{
    const ngram_header *h = m->header;
    uint64_t key = ngram_key(0, *last);
    for (uint32_t n = 1; n < h->order; n++) {
        key = ngram_key(key, last[-(int)n]);
        keys[n - 1] = key;
        __builtin_prefetch(m->tables[n] + ngram_home(h->homes[n], key));
    }
}

/* Stupid back-off: contexts that are not listed have a weight too, and nothing may be forgotten. */
static int keep_all(const ngram_header *h, const by_ngram_state *from, int n, by_ngram_state *to)
{
    const int keep = BY_MIN(from->length + 1, (int)h->order - 1);
    for (int i = n; i < keep; i++)
        to->backoffs[i] = h->missing;
    return keep;
}

double ngram_look_up(const by_ngram *m, const by_ngram_state *from, uint32_t word, const uint64_t *keys,
                     by_ngram_state *to, int *matched)
{
    const ngram_header *h = m->header;
    const int most = BY_MIN(from->length, (int)h->order - 1);
    ngram_value v = m->unigrams[word];
    uint64_t key = ngram_key(0, word);
    int n = 1, length = v.weight & NGRAM_BEGINS && h->order > 1;
    to->backoffs[0] = ngram_weight(v);
    while (n <= most && v.probability & NGRAM_EXTENDS) {
        key = keys ? keys[n - 1] : ngram_key(key, (uint32_t)from->words[n - 1]);
        const ngram_slot *s = ngram_slot_of(m->tables[n], h->homes[n], key + (key == 0));
        if (!s->key)
            break;
        v = s->value;
        if (++n == (int)h->order)
            break;
        to->backoffs[n - 1] = ngram_weight(v);
        length = v.weight & NGRAM_BEGINS ? n : length;
    }
    double sum = (double)ngram_probability(v);
    for (int i = n - 1; i < from->length; i++)
        sum += (double)from->backoffs[i];
    if (h->missing < 0)
        length = keep_all(h, from, n, to);
    to->length = length;
    to->words[0] = (int32_t)word;
    for (int i = 1; i < length; i++)
        to->words[i] = from->words[i - 1];
    if (matched)
        *matched = n;
    return fabs(sum) < -(double)NGRAM_NEVER ? sum : -INFINITY; /* also where a damaged file has no number */
}

double by_ngram_score(const by_ngram *m, const by_ngram_state *state, int32_t word, by_ngram_state *next,
                      int *matched)
{
    by_ngram_state to;
    if (!m || !state)
        return NAN;
    const double p = ngram_look_up(m, state, (uint32_t)word < m->header->words ? (uint32_t)word : NGRAM_UNK,
                                   NULL, &to, matched);
    if (next)
        *next = to;
    return p;
}

bool by_ngram_entry(const by_ngram *m, const int32_t *words, int count, double *probability, double *weight)
{
    if (!m || !words || !probability || !weight || count < 1 || count > (int)m->header->order)
        return false;
    const ngram_value *v = &m->unigrams[(uint32_t)words[0] < m->header->words ? words[0] : NGRAM_UNK];
    if (count > 1) {
        uint64_t key = 0;
        for (int i = count - 1; i >= 0; i--)
            key = ngram_key(key, (uint32_t)words[i]);
        const ngram_slot *s =
            ngram_slot_of(m->tables[count - 1], m->header->homes[count - 1], key + (key == 0));
        if (!s->key)
            return false;
        v = &s->value;
    }
    *probability = (double)ngram_probability(*v);
    *weight = count == (int)m->header->order && count > 1 ? 0 : (double)ngram_weight(*v);
    return true;
}

by_ngram_state by_ngram_nothing(const by_ngram *m)
{
    (void)m;
    return (by_ngram_state){.length = 0};
}

by_ngram_state by_ngram_begin(const by_ngram *m)
{
    return m ? m->begin : (by_ngram_state){.length = 0};
}
