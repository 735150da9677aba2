/* predict_words.c - sentences and distributions of an n-gram model (banyan/ngram.h). */
#include <math.h>

#include "ngram/ngram.h"
#include "text/tokenizer.h"

/* ---- distributions ---------------------------------------------------------------------------------- */

void by_ngram_distribution(const by_ngram *m, const by_ngram_state *state, double *out)
{
    if (!m || !state || !out)
        return;
    for (int32_t w = 0; w < by_ngram_words(m); w++)
        out[w] = w == NGRAM_BOS ? -INFINITY : by_ngram_score(m, state, w, NULL, NULL);
}

/* The probability of all words that are tokens. */
static double share_of_tokens(const by_ngram *m, const by_ngram_state *state)
{
    double rest = pow(10, by_ngram_score(m, state, NGRAM_UNK, NULL, NULL));
    if (ngram_model_header(m)->eos < 0)
        rest += pow(10, by_ngram_score(m, state, NGRAM_EOS, NULL, NULL));
    else /* the word of the end-of-text token never occurs; </s> represents it */
        rest += pow(10, by_ngram_score(m, state, ngram_model_header(m)->eos + NGRAM_SPECIAL, NULL, NULL));
    return fmax(1 - rest, 1e-30);
}

double by_ngram_token_score(const by_ngram *m, const by_ngram_state *state, int32_t token,
                            by_ngram_state *next)
{
    if (!m || !state)
        return (double)NAN;
    const double all = share_of_tokens(m, state);
    const int32_t word = by_ngram_token_word(m, token);
    const double p = by_ngram_score(m, state, word, next, NULL) * M_LN10 - log(all);
    if (next && word == NGRAM_EOS)
        *next = by_ngram_begin(m);
    return fmin(p, 0);
}

enum { BATCH = 32 };

/* Some tokens at once, so that they wait for memory together: tokens, or those from `first` on where that is
 * NULL. */
static void score_batch(const by_ngram *m, const by_ngram_state *state, const int32_t *tokens, int first,
                        int count, double all, float *out)
{
    uint32_t words[BATCH], history[BY_NGRAM_MAX_ORDER] = {0};
    uint64_t keys[BATCH][BY_NGRAM_MAX_ORDER];
    by_ngram_state unused;
    for (int i = 0; i < state->length; i++)
        history[BY_NGRAM_MAX_ORDER - 2 - i] = (uint32_t)state->words[i];
    for (int i = 0; i < count; i++) {
        words[i] = (uint32_t)by_ngram_token_word(m, tokens ? tokens[i] : first + i);
        history[BY_NGRAM_MAX_ORDER - 1] = words[i];
        ngram_fetch(m, history + BY_NGRAM_MAX_ORDER - 1, keys[i]);
    }
    for (int i = 0; i < count; i++) {
        const double p = ngram_look_up(m, state, words[i], keys[i], &unused, NULL) * M_LN10 - all;
        out[i] = words[i] == NGRAM_UNK ? -INFINITY : (float)fmin(p, 0);
    }
}

void by_ngram_token_scores(const by_ngram *m, const by_ngram_state *state, const int32_t *tokens, int count,
                           float *out)
{
    if (!m || !state || !tokens || !out)
        return;
    const double all = log(share_of_tokens(m, state));
    for (int at = 0; at < count; at += BATCH)
        score_batch(m, state, tokens + at, 0, BY_MIN(BATCH, count - at), all, out + at);
}

void by_ngram_token_distribution(const by_ngram *m, const by_ngram_state *state, float *out)
{
    if (!m || !state || !out)
        return;
    const double all = log(share_of_tokens(m, state));
    for (int at = 0; at < by_ngram_tokens(m); at += BATCH)
        score_batch(m, state, NULL, at, BY_MIN(BATCH, by_ngram_tokens(m) - at), all, out + at);
}

by_ngram_state by_ngram_after(const by_ngram *m, const int32_t *tokens, int count)
{
    const int order = by_ngram_order(m);
    by_ngram_state s = count < order - 1 ? by_ngram_begin(m) : by_ngram_nothing(m);
    for (int i = BY_MAX(count - order + 1, 0); i < count; i++) {
        const int32_t word = by_ngram_token_word(m, tokens[i]);
        by_ngram_score(m, &s, word, &s, NULL);
        if (word == NGRAM_EOS)
            s = by_ngram_begin(m);
    }
    return s;
}

/* ---- sentences --------------------------------------------------------------------------------------- */

typedef struct sentence {
    const by_ngram *model;
    by_ngram_state states[2]; /* before and after a word, in turn */
    int now;
    by_ngram_word_fn *each; /* NULL: nobody listens */
    void *user;
    by_ngram_sum *sum;
    /* Some words at once, so that they wait for memory together. */
    int count;
    const char *texts[BATCH];
    size_t sizes[BATCH];
    uint64_t hashes[BATCH];
    uint32_t ids[BY_NGRAM_MAX_ORDER + BATCH]; /* after the words before them */
    uint64_t keys[BATCH][BY_NGRAM_MAX_ORDER];
} sentence;

static void add_word(sentence *s, int i)
{
    const uint32_t id = s->ids[BY_NGRAM_MAX_ORDER + i];
    int matched;
    const double p =
        ngram_look_up(s->model, &s->states[s->now], id, s->keys[i], &s->states[!s->now], &matched);
    s->now = !s->now;
    s->sum->log10 += p;
    s->sum->words++;
    if (id == NGRAM_UNK)
        s->sum->unknown++;
    else
        s->sum->log10_known += p;
    if (s->each)
        s->each(s->user, s->texts[i], s->sizes[i], (int32_t)id, matched, p);
}

static void add_words(sentence *s)
{
    for (int i = 0; i < s->count; i++)
        ngram_fetch_name(s->model, s->hashes[i]);
    for (int i = 0; i < s->count; i++) {
        uint32_t *id = &s->ids[BY_NGRAM_MAX_ORDER + i];
        *id = ngram_find_hashed(s->model, s->texts[i], s->sizes[i], s->hashes[i]);
        ngram_fetch(s->model, id, s->keys[i]);
    }
    for (int i = 0; i < s->count; i++)
        add_word(s, i);
    memmove(s->ids, s->ids + s->count, BY_NGRAM_MAX_ORDER * sizeof *s->ids);
    s->count = 0;
}

static void take_word(sentence *s, const char *word, size_t n)
{
    if (s->count == BATCH)
        add_words(s);
    const int i = s->count++;
    s->texts[i] = word;
    s->sizes[i] = n;
    s->hashes[i] = ngram_words_hash(word, n);
    ngram_fetch_word(s->model, s->hashes[i]);
}

by_status by_ngram_sentence_words(const by_ngram *m, const char *text, size_t bytes, by_ngram_word_fn *each,
                                  void *user, by_ngram_sum *sum)
{
    sentence s;
    if (!m || (!text && bytes) || !sum)
        return base_fail_missing(m ? "text or place for the sum" : "model");
    s.model = m;
    s.states[0] = by_ngram_begin(m);
    s.now = s.count = 0;
    s.each = each;
    s.user = user;
    s.sum = sum;
    for (int i = 0; i < BY_NGRAM_MAX_ORDER; i++)
        s.ids[i] = NGRAM_BOS;
    for (size_t at = 0; at < bytes;) {
        while (at < bytes && ngram_is_space(text[at]))
            at++;
        const size_t begin = at;
        while (at < bytes && !ngram_is_space(text[at]))
            at++;
        if (at > begin)
            take_word(&s, text + begin, at - begin);
    }
    take_word(&s, "</s>", 4);
    add_words(&s);
    sum->sentences++;
    return BY_OK;
}

by_status by_ngram_sentence(const by_ngram *m, const char *text, size_t bytes, by_ngram_sum *sum)
{
    return by_ngram_sentence_words(m, text, bytes, NULL, NULL, sum);
}

double by_ngram_perplexity(const by_ngram_sum *s, bool without_unknown)
{
    if (!s)
        return NAN;
    const double words = (double)(without_unknown ? s->words - s->unknown : s->words);
    return words > 0 ? pow(10, -(without_unknown ? s->log10_known : s->log10) / words) : NAN;
}

/* ---- words as tokens --------------------------------------------------------------------------------- */

static int32_t find_word(const void *user, const char *word, size_t n)
{
    return by_ngram_find(user, word, n);
}

static const char *name_word(const void *user, int32_t id)
{
    return by_ngram_word(user, id);
}

by_status by_ngram_check_tokenizer(const by_ngram *m, const by_tokenizer *t)
{
    if (!m || !t)
        return base_fail_missing(m ? "tokenizer" : "model");
    const int own = by_ngram_tokens(m), target = by_tokenizer_target_vocab_size(t);
    const int other = target ? target : by_tokenizer_vocab_size(t);
    if (!own)
        return base_fail(BY_ERR_ARGUMENT,
                         "the n-gram model predicts words; estimate a model with this tokenizer");
    if (own != other || ngram_model_header(m)->tokenizer != tok_target_hash(t))
        return base_fail(BY_ERR_ARGUMENT,
                         "the n-gram model was estimated with another tokenizer of %d tokens, not %d; "
                         "estimate it with this tokenizer",
                         own, other);
    return BY_OK;
}

by_tokenizer *by_ngram_tokenizer(const by_ngram *m, const char *path)
{
    if (!m || (by_ngram_tokens(m) && !path)) {
        base_fail_missing(m ? "directory of the tokenizer" : "model");
        return NULL;
    }
    if (by_ngram_tokens(m) && !base_dir_exists(path)) {
        base_fail(BY_ERR_ARGUMENT, "%s: a model of tokens requires its tokenizer: give the model directory",
                  path);
        return NULL;
    }
    if (by_ngram_tokens(m))
        return by_tokenizer_load(path);
    return tok_new_words(&(tok_word_list){.count = by_ngram_words(m),
                                          .unknown = NGRAM_UNK,
                                          .end = NGRAM_EOS,
                                          .find = find_word,
                                          .name = name_word,
                                          .user = m});
}
