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
    const uint32_t *index;
    base_map map;      /* of a binary */
    ngram_image image; /* made of an ARPA file */
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
    m->index = (const uint32_t *)(at.to + h->index);
}

/* Damage that would lead outside of the file: starts of words, ids in the index, tables without a free slot. */
static by_status check_contents(const by_ngram *m)
{
    const ngram_header *h = m->header;
    bool good = true;
    uint64_t free = 0;
    for (uint32_t i = 0; i < h->words; i++)
        good = good && m->starts[i] < h->text_bytes;
    for (uint64_t i = 0; i < h->index_slots; i++) {
        good = good && m->index[i] <= h->words;
        free += m->index[i] == 0;
    }
    for (uint32_t n = 1; n < h->order && good && free; n++) {
        free = 0;
        for (uint64_t i = 0; i < h->slots[n] && !free; i++)
            free += m->tables[n][i].key == 0;
    }
    return good && free ? BY_OK : base_fail(BY_ERR_FORMAT, "the tables are damaged");
}

static by_status open_into(by_ngram *m, const char *path)
{
    if (!ngram_is_binary(path)) {
        BY_TRY(ngram_arpa_read(path, NULL, &m->image));
        attach(m, m->image.header);
        return BY_OK;
    }
    BY_TRY(base_map_open(&m->map, path));
    BY_TRY(ngram_image_check((const ngram_header *)m->map.data, m->map.size));
    attach(m, m->map.data);
    return check_contents(m);
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

int32_t by_ngram_find(const by_ngram *m, const char *word, size_t bytes)
{
    if (!m || (!word && bytes))
        return NGRAM_UNK;
    const ngram_header *h = m->header;
    uint64_t at = base_hash(word, bytes, 0) % h->index_slots;
    for (; m->index[at]; at = at + 1 < h->index_slots ? at + 1 : 0) {
        const uint64_t start = m->starts[m->index[at] - 1];
        const char *name = m->text + start;
        if (bytes < h->text_bytes - start && memcmp(name, word, bytes) == 0 && name[bytes] == '\0')
            return (int32_t)(m->index[at] - 1);
    }
    return NGRAM_UNK;
}

/* ---- queries ---------------------------------------------------------------------------------------- */

static float probability_of(const ngram_value *v)
{
    const uint32_t bits = v->probability | 0x80000000u;
    float p;
    memcpy(&p, &bits, 4);
    return p;
}

static float weight_of(const ngram_value *v)
{
    const uint32_t bits = v->weight & ~1u;
    float b;
    memcpy(&b, &bits, 4);
    return b;
}

double by_ngram_score(const by_ngram *m, const by_ngram_state *state, int32_t word, by_ngram_state *next,
                      int *matched)
{
    if (!m || !state)
        return NAN;
    const ngram_header *h = m->header;
    const by_ngram_state from = *state;
    const int order = (int)h->order, keep = from.length + 1 < order ? from.length + 1 : order - 1;
    word = (uint32_t)word < h->words ? word : NGRAM_UNK;
    const ngram_value *v = &m->unigrams[word];
    uint64_t key = ngram_key(0, (uint32_t)word);
    by_ngram_state to = {.length = 0};
    float p = probability_of(v);
    int n = 1;
    for (;; n++) {
        if (n < order) {
            to.backoffs[n - 1] = weight_of(v);
            to.length = v->weight & 1 ? n : to.length;
        }
        if (n > from.length || n == order || !(v->probability & 0x80000000u))
            break;
        key = ngram_key(key, (uint32_t)from.words[n - 1]);
        const ngram_slot *s = ngram_slot_of(m->tables[n], h->slots[n], key + (key == 0));
        if (!s->key)
            break;
        v = &s->value;
        p = probability_of(v);
    }
    double sum = (double)p;
    for (int i = n - 1; i < from.length; i++)
        sum += (double)from.backoffs[i];
    if (sum <= (double)NGRAM_NEVER)
        sum = -INFINITY;
    if (h->missing < 0) { /* contexts that are not listed have a weight too: nothing may be forgotten */
        for (int i = n; i < keep; i++)
            to.backoffs[i] = h->missing;
        to.length = keep;
    }
    if (matched)
        *matched = n;
    if (next) {
        for (int i = 0; i < to.length; i++)
            to.words[i] = i ? from.words[i - 1] : word;
        *next = to;
    }
    return sum;
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
            ngram_slot_of(m->tables[count - 1], m->header->slots[count - 1], key + (key == 0));
        if (!s->key)
            return false;
        v = &s->value;
    }
    *probability = (double)probability_of(v);
    *weight = (double)weight_of(v);
    return true;
}

by_ngram_state by_ngram_nothing(const by_ngram *m)
{
    (void)m;
    return (by_ngram_state){.length = 0};
}

by_ngram_state by_ngram_begin(const by_ngram *m)
{
    by_ngram_state s = {.length = 0};
    for (uint32_t i = 1; m && i < m->header->order;
         i++) /* models of relative frequencies list contexts of several <s> */
        by_ngram_score(m, &s, NGRAM_BOS, &s, NULL);
    return s;
}
