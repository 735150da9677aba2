/* bleu.c - BLEU as computed by sacreBLEU. */
#include <math.h>
#include <stdlib.h>

#include "score/score.h"

struct by_bleu {
    by_bleu_spec spec;
    int64_t correct[BY_BLEU_ORDER], total[BY_BLEU_ORDER], hypothesis_words, reference_words;
    int references; /* references per text; -1: varies */
    score_points text, spare;
    score_numbers numbers;
    score_grams grams;
    base_buf signature;
};

static const double smooth_values[] = {[BY_BLEU_FLOOR] = 0.1, [BY_BLEU_ADD_K] = 1, [BY_BLEU_ZERO] = 0};

by_bleu *by_bleu_new(const by_bleu_spec *spec)
{
    by_bleu_spec s = spec ? *spec : (by_bleu_spec){0};
    if ((unsigned)s.words > BY_BLEU_INTL || (unsigned)s.smooth > BY_BLEU_ZERO || !(s.smooth_value >= 0)) {
        base_fail(BY_ERR_ARGUMENT, "BLEU: unknown tokenisation or smoothing method");
        return NULL;
    }
    by_bleu *b = base_alloc_zero(1, sizeof *b);
    if (!b)
        return NULL;
    b->spec = s;
    if (b->spec.smooth_value == 0)
        b->spec.smooth_value = smooth_values[s.smooth];
    if (score_numbers_make(&b->numbers) != BY_OK) {
        by_bleu_free(b);
        return NULL;
    }
    return b;
}

void by_bleu_free(by_bleu *b)
{
    if (!b)
        return;
    score_points_free(&b->text);
    score_points_free(&b->spare);
    score_numbers_free(&b->numbers);
    score_grams_free(&b->grams);
    base_buf_free(&b->signature);
    base_free(b);
}

void by_bleu_clear(by_bleu *b)
{
    memset(b->correct, 0, sizeof b->correct);
    memset(b->total, 0, sizeof b->total);
    b->hypothesis_words = b->reference_words = 0;
    b->references = 0;
}

/* ---- one text -------------------------------------------------------------------------------- */

/* Reads the words of a text as a sequence of numbers. */
static by_status take(by_bleu *b, const char *text, int reference)
{
    score_points *t = &b->text;
    b->spare.failed = false;
    BY_TRY(score_points_read_part(t, text, reference));
    if (b->spec.lowercase) {
        score_points_lower(t, &b->spare);
        score_points lowered = b->spare;
        b->spare = *t;
        *t = lowered;
    }
    score_bleu_part(b->spec.words, t, &b->spare);
    if (t->failed || b->spare.failed)
        return base_fail(BY_ERR_MEMORY, "out of memory while reading a text");
    for (size_t i = 0; i < t->count;) {
        size_t end = i;
        while (end < t->count && !score_space(t->c[end]))
            end++;
        if (end > i)
            BY_TRY(score_numbers_points(&b->numbers, &b->grams, t->c + i, end - i));
        i = end + 1;
    }
    return score_grams_end(&b->grams);
}

/* Returns the reference length closest to that of the hypothesis; if two are equally close, the shorter. */
static int64_t nearest(const score_grams *g)
{
    int64_t own = (int64_t)score_grams_length(g, 0), best = (int64_t)score_grams_length(g, 1);
    for (int i = 2; i < g->sequences; i++) {
        int64_t n = (int64_t)score_grams_length(g, i), far = llabs(own - n), least = llabs(own - best);
        if (far < least || (far == least && n < best))
            best = n;
    }
    return best;
}

/* Counts the matches of the current order: an n-gram counts at most as often as in the reference that has it
 * most often. */
static int64_t matches(score_grams *g)
{
    memset(g->most, 0, g->distinct * sizeof *g->most);
    score_grams_count(g, 0, g->ours);
    for (int i = 1; i < g->sequences; i++) {
        score_grams_count(g, i, g->theirs);
        for (size_t k = 0; k < g->distinct; k++)
            g->most[k] = BY_MAX(g->most[k], g->theirs[k]);
    }
    return score_grams_common(g, g->ours, g->most);
}

by_status by_bleu_add(by_bleu *b, const char *hypothesis, const char *const *references, int count)
{
    BY_TRY(score_check(hypothesis, references, count));
    score_grams *g = &b->grams;
    score_grams_clear(g);
    BY_TRY(take(b, hypothesis, -1));
    for (int i = 0; i < count; i++)
        BY_TRY(take(b, references[i], i));
    int64_t correct[BY_BLEU_ORDER], total[BY_BLEU_ORDER];
    for (int n = 0; n < BY_BLEU_ORDER; n++) {
        BY_TRY(score_grams_next(g));
        correct[n] = matches(g);
        total[n] = score_grams_total(g, 0);
    }
    for (int n = 0; n < BY_BLEU_ORDER; n++) {
        b->correct[n] += correct[n];
        b->total[n] += total[n];
    }
    b->hypothesis_words += (int64_t)score_grams_length(g, 0);
    b->reference_words += nearest(g);
    b->references = score_references(b->references, count);
    return BY_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Computes the precisions in percent. Returns the number of orders that count. */
static int precisions(const by_bleu *b, double out[BY_BLEU_ORDER])
{
    int orders = BY_BLEU_ORDER;
    double halves = 1;
    for (int n = 0; n < BY_BLEU_ORDER; n++) {
        double more = b->spec.smooth == BY_BLEU_ADD_K && n > 0 ? b->spec.smooth_value : 0;
        double correct = (double)b->correct[n] + more, total = (double)b->total[n] + more;
        if (total == 0)
            break;
        if (b->spec.effective_order)
            orders = n + 1;
        if (correct > 0)
            out[n] = 100 * correct / total;
        else if (b->spec.smooth == BY_BLEU_EXP)
            out[n] = 100 / ((halves *= 2) * total);
        else if (b->spec.smooth == BY_BLEU_FLOOR)
            out[n] = 100 * b->spec.smooth_value / total;
    }
    return orders;
}

void by_bleu_read(const by_bleu *b, by_bleu_score *out)
{
    const double own = (double)b->hypothesis_words, theirs = (double)b->reference_words;
    *out = (by_bleu_score){.hypothesis_words = b->hypothesis_words, .reference_words = b->reference_words};
    memcpy(out->correct, b->correct, sizeof out->correct);
    memcpy(out->total, b->total, sizeof out->total);
    out->brevity = own >= theirs ? 1 : own > 0 ? exp(1 - theirs / own) : 0;
    out->ratio = theirs > 0 ? own / theirs : 0;
    bool any = false;
    for (int n = 0; n < BY_BLEU_ORDER; n++)
        any = any || b->correct[n] > 0;
    if (!any)
        return;
    int orders = precisions(b, out->precision);
    double sum = 0;
    for (int n = 0; n < orders; n++)
        sum += out->precision[n] > 0 ? log(out->precision[n]) : -INFINITY;
    out->score = out->brevity * exp(sum / orders);
}

const char *by_bleu_signature(by_bleu *b)
{
    static const char *const words[] = {"13a", "none", "char", "intl"};
    static const char *const smooth[] = {"exp", "floor", "add-k", "none"};
    b->signature.size = 0;
    score_put_references(&b->signature, b->references);
    base_buf_printf(&b->signature, "case:%s|eff:%s|tok:%s|smooth:%s", b->spec.lowercase ? "lc" : "mixed",
                    b->spec.effective_order ? "yes" : "no", words[b->spec.words], smooth[b->spec.smooth]);
    if (b->spec.smooth == BY_BLEU_FLOOR || b->spec.smooth == BY_BLEU_ADD_K)
        base_buf_printf(&b->signature, "[%.2f]", b->spec.smooth_value);
    base_buf_puts(&b->signature, "|version:banyan-" BY_VERSION);
    return b->signature.failed ? "" : b->signature.data;
}
