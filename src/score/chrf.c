/* chrf.c - chrF and chrF++ as computed by sacreBLEU. */
#include "score/score.h"

enum { MOST_ORDERS = 64 };

typedef struct gram_counts {
    int64_t hypothesis, reference, match; /* n-grams of one order */
} gram_counts;

struct by_chrf {
    by_chrf_spec spec;
    int orders; /* orders of characters, then of words */
    gram_counts sum[MOST_ORDERS];
    gram_counts *each; /* one hypothesis: (references, orders) */
    int each_room;
    int references;
    score_points text, spare;
    score_numbers numbers;
    score_grams chars, words;
    base_buf name, signature;
};

by_chrf *by_chrf_new(const by_chrf_spec *spec)
{
    by_chrf_spec s = spec ? *spec : (by_chrf_spec){0};
    s.char_order = s.char_order ? s.char_order : 6;
    s.beta = s.beta ? s.beta : 2;
    if (s.char_order < 0 || s.word_order < 0 || s.char_order > MOST_ORDERS / 2 ||
        s.word_order > MOST_ORDERS / 2 || s.beta < 0 || s.beta > 1000) {
        base_fail(BY_ERR_ARGUMENT, "chrF: orders must be 0 to %d and beta 1 to 1000", MOST_ORDERS / 2);
        return NULL;
    }
    by_chrf *c = base_alloc_zero(1, sizeof *c);
    if (!c)
        return NULL;
    c->spec = s;
    c->orders = s.char_order + s.word_order;
    if (score_numbers_make(&c->numbers) != BY_OK) {
        by_chrf_free(c);
        return NULL;
    }
    return c;
}

void by_chrf_free(by_chrf *c)
{
    if (!c)
        return;
    base_free(c->each);
    score_points_free(&c->text);
    score_points_free(&c->spare);
    score_numbers_free(&c->numbers);
    score_grams_free(&c->chars);
    score_grams_free(&c->words);
    base_buf_free(&c->name);
    base_buf_free(&c->signature);
    base_free(c);
}

void by_chrf_clear(by_chrf *c)
{
    memset(c->sum, 0, sizeof c->sum);
    c->references = 0;
}

/* ---- one text -------------------------------------------------------------------------------- */

static bool is_mark(uint32_t c)
{
    return c < 0x80 && c > ' ' && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", (int)c);
}

/* Adds a word. Splits off a punctuation mark at its end, otherwise one at its start. */
static by_status put_word(by_chrf *c, const uint32_t *word, size_t n)
{
    size_t cut = n < 2 ? n : is_mark(word[n - 1]) ? n - 1 : is_mark(word[0]) ? 1 : n;
    BY_TRY(score_numbers_points(&c->numbers, &c->words, word, cut));
    return cut < n ? score_numbers_points(&c->numbers, &c->words, word + cut, n - cut) : BY_OK;
}

static by_status take(by_chrf *c, const char *text, int reference)
{
    BY_TRY(score_points_read_part(&c->text, text, reference));
    score_points_lower(&c->text, &c->spare);
    if (c->spare.failed)
        return base_fail(BY_ERR_MEMORY, "out of memory while reading a text");
    const score_points *t = c->spec.lowercase ? &c->spare : &c->text;
    for (size_t i = 0; i < t->count; i++)
        if (c->spec.whitespace || !score_space(t->c[i]))
            BY_TRY(score_grams_put(&c->chars, t->c[i]));
    BY_TRY(score_grams_end(&c->chars));
    for (size_t i = 0, end; i < t->count && c->spec.word_order > 0; i = end + 1) {
        for (end = i; end < t->count && !score_space(t->c[end]);)
            end++;
        if (end > i)
            BY_TRY(put_word(c, t->c + i, end - i));
    }
    return score_grams_end(&c->words);
}

/* Counts n-grams of orders 1 to `orders` against every reference; `first` is the index of order 1. */
static by_status compare(by_chrf *c, score_grams *g, int orders, int first)
{
    for (int n = 0; n < orders; n++) {
        BY_TRY(score_grams_next(g));
        score_grams_count(g, 0, g->ours);
        for (int r = 1; r < g->sequences; r++) {
            gram_counts *f = &c->each[(r - 1) * c->orders + first + n];
            score_grams_count(g, r, g->theirs);
            f->reference = score_grams_total(g, r);
            f->hypothesis = f->reference ? score_grams_total(g, 0) : 0; /* nothing to compare with */
            f->match = score_grams_common(g, g->ours, g->theirs);
        }
    }
    return BY_OK;
}

/* Computes the score from the counts of all orders. Precision and recall are means over the orders that both
 * texts reach; with eps_smooth, the result is the mean of the F-scores of all orders. */
static double f_score(const by_chrf *c, const gram_counts *f)
{
    const double eps = 1e-16, weight = (double)c->spec.beta * c->spec.beta;
    double precision = 0, recall = 0, sum = 0;
    int reached = 0;
    for (int i = 0; i < c->orders; i++) {
        double match = (double)f[i].match;
        double p = f[i].hypothesis > 0 ? match / (double)f[i].hypothesis : eps;
        double r = f[i].reference > 0 ? match / (double)f[i].reference : eps;
        double under = weight * p + r;
        sum += under > 0 ? (1 + weight) * p * r / under : eps;
        if (f[i].hypothesis > 0 && f[i].reference > 0) {
            precision += p;
            recall += r;
            reached++;
        }
    }
    if (c->spec.eps_smooth)
        return 100 * sum / c->orders;
    if (precision + recall == 0)
        return 0;
    precision /= reached;
    recall /= reached;
    return 100 * ((1 + weight) * precision * recall / (weight * precision + recall));
}

by_status by_chrf_add(by_chrf *c, const char *hypothesis, const char *const *references, int count)
{
    BY_TRY(score_check(hypothesis, references, count));
    if (count > c->each_room) {
        gram_counts *more = base_resize(c->each, (size_t)count, (size_t)c->orders * sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        c->each = more;
        c->each_room = count;
    }
    score_grams_clear(&c->chars);
    score_grams_clear(&c->words);
    BY_TRY(take(c, hypothesis, -1));
    for (int i = 0; i < count; i++)
        BY_TRY(take(c, references[i], i));
    BY_TRY(compare(c, &c->chars, c->spec.char_order, 0));
    BY_TRY(compare(c, &c->words, c->spec.word_order, c->spec.char_order));
    const gram_counts *best = c->each;
    for (int i = 1; i < count; i++)
        if (f_score(c, c->each + i * c->orders) > f_score(c, best))
            best = c->each + i * c->orders;
    for (int i = 0; i < c->orders; i++) {
        c->sum[i].hypothesis += best[i].hypothesis;
        c->sum[i].reference += best[i].reference;
        c->sum[i].match += best[i].match;
    }
    c->references = score_references(c->references, count);
    return BY_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

double by_chrf_read(const by_chrf *c)
{
    return f_score(c, c->sum);
}

const char *by_chrf_name(by_chrf *c)
{
    c->name.size = 0;
    base_buf_printf(&c->name, "chrF%d", c->spec.beta);
    for (int i = 0; i < c->spec.word_order; i++)
        base_buf_puts(&c->name, "+");
    return c->name.failed ? "" : c->name.data;
}

const char *by_chrf_signature(by_chrf *c)
{
    c->signature.size = 0;
    score_put_references(&c->signature, c->references);
    base_buf_printf(&c->signature, "case:%s|eff:%s|nc:%d|nw:%d|space:%s|version:banyan-" BY_VERSION,
                    c->spec.lowercase ? "lc" : "mixed", c->spec.eps_smooth ? "no" : "yes", c->spec.char_order,
                    c->spec.word_order, c->spec.whitespace ? "yes" : "no");
    return c->signature.failed ? "" : c->signature.data;
}
