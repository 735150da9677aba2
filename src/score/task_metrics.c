/* task_metrics.c - see task_metrics.h. */
#include "score/task_metrics.h"

#include <math.h>
#include <stdlib.h>

#include "text/unicode.h"

/* How often a label was predicted, was correct, and both. Sufficient for F1 and Matthews' coefficient. */
typedef struct tally {
    int64_t both, predicted, actual;
} tally;

struct score_metrics {
    score_metrics_kind kind;
    const char *const *names;
    int labels;
    int64_t count, right; /* examples, or words for word labels */
    int64_t words;
    tally *each; /* (labels) */
    tally chunks;
    double *guess, *truth; /* kept in full, because ranks need all of them */
    int64_t capacity;
    double exact, overlap; /* sums over answers */
};

score_metrics *score_metrics_new(score_metrics_kind kind, const char *const *names, int labels)
{
    score_metrics *m = base_alloc_zero(1, sizeof *m);
    if (!m)
        return NULL;
    m->kind = kind;
    m->names = names;
    m->labels = labels;
    m->each = base_alloc_zero((size_t)BY_MAX(labels, 1), sizeof *m->each);
    if (!m->each) {
        score_metrics_free(m);
        return NULL;
    }
    return m;
}

void score_metrics_free(score_metrics *m)
{
    if (!m)
        return;
    base_free(m->each);
    base_free(m->guess);
    base_free(m->truth);
    base_free(m);
}

int64_t score_metrics_count(const score_metrics *m)
{
    return m->count;
}

/* ---- labels ---------------------------------------------------------------------------------- */

static void count_label(score_metrics *m, int predicted, int actual)
{
    m->each[predicted].predicted++;
    m->each[actual].actual++;
    if (predicted == actual) {
        m->each[actual].both++;
        m->right++;
    }
    m->words++;
}

void score_metrics_class(score_metrics *m, int predicted, int actual)
{
    count_label(m, predicted, actual);
    m->count++;
}

void score_metrics_each(score_metrics *m, const uint8_t *predicted, const uint8_t *actual)
{
    bool same = true;
    for (int i = 0; i < m->labels; i++) {
        m->each[i].predicted += predicted[i];
        m->each[i].actual += actual[i];
        m->each[i].both += predicted[i] && actual[i];
        same = same && predicted[i] == actual[i];
    }
    m->right += same;
    m->count++;
}

static double f1(tally t)
{
    return t.predicted + t.actual ? 2.0 * (double)t.both / (double)(t.predicted + t.actual) : 0;
}

/* The mean over labels. Labels that never occur are excluded, except in multi-label problems. */
static double macro_f1(const score_metrics *m)
{
    double sum = 0;
    int count = 0;
    for (int i = 0; i < m->labels; i++) {
        if (m->kind != SCORE_METRICS_EACH && !m->each[i].predicted && !m->each[i].actual)
            continue;
        sum += f1(m->each[i]);
        count++;
    }
    return count ? sum / count : 0;
}

static double micro_f1(const score_metrics *m)
{
    tally all = {0, 0, 0};
    for (int i = 0; i < m->labels; i++) {
        all.both += m->each[i].both;
        all.predicted += m->each[i].predicted;
        all.actual += m->each[i].actual;
    }
    return f1(all);
}

/* Gorodkin 2004: the Matthews coefficient for any number of labels. */
static double matthews(const score_metrics *m)
{
    double n = (double)m->words, mixed = 0, guesses = 0, truths = 0;
    for (int i = 0; i < m->labels; i++) {
        double p = (double)m->each[i].predicted, a = (double)m->each[i].actual;
        mixed += p * a;
        guesses += p * p;
        truths += a * a;
    }
    double below = sqrt(n * n - guesses) * sqrt(n * n - truths);
    return below > 0 ? ((double)m->right * n - mixed) / below : 0;
}

/* ---- entities -------------------------------------------------------------------------------- */

/* A label of the form B-X, I-X, E-X, S-X or O. */
typedef struct mark {
    char place;
    const char *type;
} mark;

static mark mark_of(const score_metrics *m, int label)
{
    const char *name = label < 0 ? "O" : m->names[label];
    return (mark){name[0], name[0] && name[1] == '-' ? name + 2 : name + (name[0] != '\0')};
}

/* Whether an entity ends between two words, and whether one begins. An I that continues nothing begins an
 * entity. */
static bool ends(mark before, mark now)
{
    if (before.place == 'O')
        return false;
    return before.place == 'E' || before.place == 'S' || now.place == 'B' || now.place == 'S' ||
           now.place == 'O' || strcmp(before.type, now.type) != 0;
}

static bool begins(mark before, mark now)
{
    if (now.place == 'O')
        return false;
    return now.place == 'B' || now.place == 'S' || before.place == 'E' || before.place == 'S' ||
           before.place == 'O' || strcmp(before.type, now.type) != 0;
}

/* Walks through both labellings at once. An entity is correct if both begin it at the same word, with the
 * same type, and end it at the same word. */
static void count_chunks(score_metrics *m, const int *predicted, const int *actual, int words)
{
    mark p = mark_of(m, -1), a = p;
    bool together = false; /* both are inside the same entity so far */
    for (int i = 0; i <= words; i++) {
        mark next_p = mark_of(m, i < words ? predicted[i] : -1),
             next_a = mark_of(m, i < words ? actual[i] : -1);
        bool end_p = ends(p, next_p), end_a = ends(a, next_a);
        if (together && end_p && end_a)
            m->chunks.both++;
        together = together && !end_p && !end_a;
        bool begin_p = begins(p, next_p), begin_a = begins(a, next_a);
        m->chunks.predicted += begin_p;
        m->chunks.actual += begin_a;
        if (begin_p || begin_a)
            together = begin_p && begin_a && strcmp(next_p.type, next_a.type) == 0;
        p = next_p;
        a = next_a;
    }
}

void score_metrics_tags(score_metrics *m, const int *predicted, const int *actual, int words)
{
    for (int i = 0; i < words; i++)
        count_label(m, predicted[i], actual[i]);
    if (m->kind == SCORE_METRICS_ENTITIES)
        count_chunks(m, predicted, actual, words);
    m->count++;
}

score_metrics_kind score_metrics_of_tags(const char *const *names, int labels)
{
    for (int i = 0; i < labels; i++)
        if (strncmp(names[i], "B-", 2) == 0 || strncmp(names[i], "I-", 2) == 0)
            return SCORE_METRICS_ENTITIES;
    return SCORE_METRICS_TAGS;
}

/* ---- numbers --------------------------------------------------------------------------------- */

by_status score_metrics_number(score_metrics *m, double predicted, double actual)
{
    if (m->count == m->capacity) {
        int64_t grown = m->capacity ? m->capacity * 2 : 1024;
        double *guess = base_resize(m->guess, (size_t)grown, sizeof *guess);
        m->guess = guess ? guess : m->guess;
        double *truth = base_resize(m->truth, (size_t)grown, sizeof *truth);
        m->truth = truth ? truth : m->truth;
        if (!guess || !truth)
            return BY_ERR_MEMORY;
        m->capacity = grown;
    }
    m->guess[m->count] = predicted;
    m->truth[m->count++] = actual;
    return BY_OK;
}

static double pearson(const double *x, const double *y, int64_t n)
{
    double mean_x = 0, mean_y = 0, xx = 0, yy = 0, xy = 0;
    for (int64_t i = 0; i < n; i++) {
        mean_x += x[i] / (double)n;
        mean_y += y[i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        double a = x[i] - mean_x, b = y[i] - mean_y;
        xx += a * a;
        yy += b * b;
        xy += a * b;
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx) / sqrt(yy) : (double)NAN;
}

typedef struct ranked {
    double value;
    int64_t at;
} ranked;

static int smaller(const void *a, const void *b)
{
    double x = ((const ranked *)a)->value, y = ((const ranked *)b)->value;
    return (x > y) - (x < y);
}

/* Ranks from 1; equal values share their mean rank. Returns NULL if allocation fails. */
static double *ranks(const double *values, int64_t n)
{
    ranked *order = base_alloc_zero((size_t)n + 1, sizeof *order);
    double *out = base_alloc_zero((size_t)n + 1, sizeof *out);
    for (int64_t i = 0; order && i < n; i++)
        order[i] = (ranked){values[i], i};
    if (order && out)
        qsort(order, (size_t)n, sizeof *order, smaller);
    for (int64_t i = 0, end; order && out && i < n; i = end) {
        for (end = i + 1; end < n && order[end].value == order[i].value;)
            end++;
        for (int64_t k = i; k < end; k++)
            out[order[k].at] = (double)(i + end + 1) / 2;
    }
    base_free(order);
    return out;
}

static double spearman(const score_metrics *m)
{
    double *a = ranks(m->guess, m->count), *b = ranks(m->truth, m->count);
    double r = a && b ? pearson(a, b, m->count) : (double)NAN;
    base_free(a);
    base_free(b);
    return r;
}

static double squared_error(const score_metrics *m)
{
    double sum = 0;
    for (int64_t i = 0; i < m->count; i++)
        sum += (m->guess[i] - m->truth[i]) * (m->guess[i] - m->truth[i]);
    return m->count ? sum / (double)m->count : (double)NAN;
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool is_word(uint32_t c)
{
    tok_char_class k = tok_class(c);
    return k == TOK_CHAR_LETTER || k == TOK_CHAR_NUMBER || c == '_';
}

/* Converts to lower case and drops ASCII punctuation. */
static void simplify(const char *s, base_buf *out)
{
    for (size_t i = 0, n = strlen(s); i < n;) {
        uint32_t c;
        char bytes[4];
        i += (size_t)tok_utf8_next(s + i, n - i, &c);
        if (!tok_is_ascii_punctuation(c))
            base_buf_put(out, bytes, (size_t)tok_utf8_encode(tok_lower(c), bytes));
    }
}

static bool is_article(const char *s, size_t n)
{
    static const char *const articles[] = {"a", "an", "the"};
    for (int i = 0; i < BY_COUNT(articles); i++)
        if (n == strlen(articles[i]) && memcmp(s, articles[i], n) == 0)
            return true;
    return false;
}

/* Joins the words with single spaces and drops articles: a, an and the without an adjacent letter or
 * digit. */
static void normalise(const char *answer, base_buf *out)
{
    base_buf text = {0};
    bool gap = false;
    simplify(answer, &text);
    base_buf_puts(out, "");
    for (size_t i = 0, end; i < text.size; i = end) {
        uint32_t c;
        size_t k = (size_t)tok_utf8_next(text.data + i, text.size - i, &c);
        end = i + k;
        while (is_word(c) && end < text.size) { /* to the end of the word */
            uint32_t next;
            k = (size_t)tok_utf8_next(text.data + end, text.size - end, &next);
            if (!is_word(next))
                break;
            end += k;
        }
        if (tok_is_space(c) || is_article(text.data + i, end - i)) {
            gap = true;
            continue;
        }
        if (gap && out->size)
            base_buf_puts(out, " ");
        gap = false;
        base_buf_put(out, text.data + i, end - i);
    }
    out->failed = out->failed || text.failed;
    base_buf_free(&text);
}

/* Counts the words of a, with repetition, that are also in b. Words of b are struck out as they are
 * matched. */
static int64_t common_words(const char *a, char *b, int64_t *in_a, int64_t *in_b)
{
    int64_t both = 0;
    *in_a = *in_b = 0;
    for (const char *at = b; *at; at += strcspn(at, " "), at += *at == ' ')
        ++*in_b;
    for (const char *at = a; *at;) {
        size_t n = strcspn(at, " ");
        ++*in_a;
        for (char *w = b; *w;) {
            size_t k = strcspn(w, " ");
            if (k == n && memcmp(w, at, n) == 0) {
                memset(w, '\x01', k);
                both++;
                break;
            }
            w += k;
            w += *w == ' ';
        }
        at += n;
        at += *at == ' ';
    }
    return both;
}

static double answer_f1(const char *predicted, char *actual)
{
    int64_t p, a;
    if (!*predicted || !*actual)
        return strcmp(predicted, actual) == 0;
    int64_t both = common_words(predicted, actual, &p, &a);
    return 2.0 * (double)both / (double)(p + a);
}

by_status score_metrics_answer(score_metrics *m, const char *predicted, const char *const *actual, int count)
{
    base_buf guess = {0}, truth = {0};
    double exact = 0, overlap = 0;
    normalise(predicted, &guess);
    for (int i = 0; i < BY_MAX(count, 1); i++) {
        truth.size = 0;
        normalise(count ? actual[i] : "", &truth);
        if (guess.failed || truth.failed)
            break;
        const double same = strcmp(guess.data, truth.data) == 0, near = answer_f1(guess.data, truth.data);
        exact = BY_MAX(exact, same);
        overlap = BY_MAX(overlap, near);
    }
    bool failed = guess.failed || truth.failed;
    base_buf_free(&guess);
    base_buf_free(&truth);
    m->exact += exact;
    m->overlap += overlap;
    m->count++;
    return failed ? base_fail(BY_ERR_MEMORY, "out of memory while comparing answers") : BY_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

static double share(double a, int64_t b)
{
    return b ? a / (double)b : (double)NAN;
}

int score_metrics_read(const score_metrics *m, by_metric out[BY_METRICS_MAX])
{
    int n = 0;
    switch (m->kind) {
    case SCORE_METRICS_CLASSES:
        out[n++] = (by_metric){"accuracy", share((double)m->right, m->words)};
        if (m->labels == 2)
            out[n++] = (by_metric){"f1", f1(m->each[1])};
        out[n++] = (by_metric){"macro_f1", macro_f1(m)};
        out[n++] = (by_metric){"matthews", matthews(m)};
        break;
    case SCORE_METRICS_EACH:
        out[n++] = (by_metric){"micro_f1", micro_f1(m)};
        out[n++] = (by_metric){"macro_f1", macro_f1(m)};
        out[n++] = (by_metric){"accuracy", share((double)m->right, m->count)};
        break;
    case SCORE_METRICS_NUMBERS:
        out[n++] = (by_metric){"pearson", pearson(m->guess, m->truth, m->count)};
        out[n++] = (by_metric){"spearman", spearman(m)};
        out[n++] = (by_metric){"mse", squared_error(m)};
        break;
    case SCORE_METRICS_ENTITIES:
        out[n++] = (by_metric){"f1", f1(m->chunks)};
        out[n++] = (by_metric){"precision",
                               m->chunks.predicted ? share((double)m->chunks.both, m->chunks.predicted) : 0};
        out[n++] =
            (by_metric){"recall", m->chunks.actual ? share((double)m->chunks.both, m->chunks.actual) : 0};
        out[n++] = (by_metric){"accuracy", share((double)m->right, m->words)};
        break;
    case SCORE_METRICS_TAGS:
        out[n++] = (by_metric){"accuracy", share((double)m->right, m->words)};
        out[n++] = (by_metric){"macro_f1", macro_f1(m)};
        break;
    case SCORE_METRICS_ANSWERS:
        out[n++] = (by_metric){"f1", share(100 * m->overlap, m->count)};
        out[n++] = (by_metric){"exact_match", share(100 * m->exact, m->count)};
        break;
    }
    return n;
}
