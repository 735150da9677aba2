/* rouge.c - ROUGE as computed by the rouge_score package. Words are runs of a to z and 0 to 9, in lower
 * case. */
#include "score/score.h"

typedef by_rouge_score scores[BY_ROUGE_COUNT];

struct by_rouge {
    by_rouge_spec spec;
    scores sum;
    int64_t texts;
    int references;
    score_points check;
    score_numbers numbers;
    score_grams grams; /* hypothesis and one reference */
    size_t *ends[2];   /* ends of their sentences */
    int sentences[2], room[2];
    uint32_t *rows; /* two rows of the table of common subsequences */
    size_t rows_room;
    uint8_t *left; /* one bit per cell of that table */
    size_t left_room;
    bool *joined; /* words of a reference sentence that a sentence of the hypothesis shares */
    size_t joined_room;
    base_buf signature;
};

by_rouge *by_rouge_new(const by_rouge_spec *spec)
{
    by_rouge *r = base_alloc_zero(1, sizeof *r);
    if (!r)
        return NULL;
    r->spec = spec ? *spec : (by_rouge_spec){0};
    if (score_numbers_make(&r->numbers) != BY_OK) {
        by_rouge_free(r);
        return NULL;
    }
    return r;
}

void by_rouge_free(by_rouge *r)
{
    if (!r)
        return;
    score_points_free(&r->check);
    score_numbers_free(&r->numbers);
    score_grams_free(&r->grams);
    base_free(r->ends[0]);
    base_free(r->ends[1]);
    base_free(r->rows);
    base_free(r->left);
    base_free(r->joined);
    base_buf_free(&r->signature);
    base_free(r);
}

void by_rouge_clear(by_rouge *r)
{
    memset(r->sum, 0, sizeof r->sum);
    r->texts = 0;
    r->references = 0;
}

/* ---- words and sentences --------------------------------------------------------------------- */

/* Returns the lower-case letter or digit for a character, otherwise 0. Two capitals outside ASCII have ASCII
 * lower-case letters: I with dot above and the Kelvin sign. */
static char letter(uint32_t c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c + 32);
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
        return (char)c;
    return c == 0x130 ? 'i' : c == 0x212a ? 'k' : 0;
}

static by_status put_word(by_rouge *r)
{
    base_buf *w = &r->numbers.word;
    if (w->size == 0)
        return BY_OK;
    if (r->spec.stem && w->size > 3 && !w->failed) {
        w->size = score_porter_stem(w->data, w->size);
        w->data[w->size] = '\0';
    }
    return score_numbers_put(&r->numbers, &r->grams);
}

static by_status end_sentence(by_rouge *r, int side)
{
    if (r->sentences[side] == r->room[side]) {
        int room = BY_MAX(r->room[side] * 2, 16);
        size_t *more = base_resize(r->ends[side], (size_t)room, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        r->ends[side] = more;
        r->room[side] = room;
    }
    r->ends[side][r->sentences[side]++] = r->grams.count;
    return BY_OK;
}

/* The dot of a capital I with dot above remains as a separate character, which ends the word. */
static by_status take(by_rouge *r, const char *text, int reference)
{
    const int side = reference >= 0;
    BY_TRY(score_points_read_part(&r->check, text, reference));
    r->sentences[side] = 0;
    r->numbers.word.size = 0;
    for (size_t i = 0; i < r->check.count; i++) {
        uint32_t c = r->check.c[i];
        char small = letter(c);
        if (small)
            base_buf_put(&r->numbers.word, &small, 1);
        if (!small || c == 0x130)
            BY_TRY(put_word(r));
        if (c == '\n')
            BY_TRY(end_sentence(r, side));
    }
    BY_TRY(put_word(r));
    BY_TRY(end_sentence(r, side));
    return score_grams_end(&r->grams);
}

/* ---- common subsequences --------------------------------------------------------------------- */

/* Fills the table of a[0, n) and b[0, m) row by row and computes the length of the longest common
 * subsequence. With `left`, a bit for each cell says that the path back from it goes to the left. */
static by_status longest(by_rouge *r, const uint32_t *a, size_t n, const uint32_t *b, size_t m, bool left,
                         uint32_t *length)
{
    size_t row_bytes = m / 8 + 1, bits;
    if (m + 1 > r->rows_room) {
        uint32_t *more = base_resize(r->rows, (m + 1) * 2, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        r->rows = more;
        r->rows_room = m + 1;
    }
    if (left) {
        if (!base_mul_size(n, row_bytes, &bits))
            return base_fail(BY_ERR_MEMORY, "sentences of %zu and %zu words are too long", n, m);
        if (bits >= r->left_room) {
            uint8_t *more = base_resize(r->left, bits + 1, 1);
            if (!more)
                return BY_ERR_MEMORY;
            r->left = more;
            r->left_room = bits + 1;
        }
        memset(r->left, 0, bits);
    }
    uint32_t *above = r->rows, *row = r->rows + m + 1;
    memset(above, 0, (m + 1) * sizeof *above);
    for (size_t i = 0; i < n; i++) {
        row[0] = 0;
        for (size_t j = 0; j < m; j++) {
            row[j + 1] = a[i] == b[j] ? above[j] + 1 : BY_MAX(above[j + 1], row[j]);
            if (left && row[j] > above[j + 1])
                r->left[i * row_bytes + j / 8] |= (uint8_t)(1u << j % 8);
        }
        uint32_t *t = above;
        above = row;
        row = t;
    }
    *length = above[m];
    return BY_OK;
}

/* Marks the words of a[0, n) that are in the subsequence. */
static void walk_back(by_rouge *r, const uint32_t *a, size_t n, const uint32_t *b, size_t m)
{
    const size_t row_bytes = m / 8 + 1;
    for (size_t i = n, j = m; i > 0 && j > 0;) {
        if (a[i - 1] == b[j - 1]) {
            r->joined[i - 1] = true;
            i--;
            j--;
        } else if (r->left[(i - 1) * row_bytes + (j - 1) / 8] >> (j - 1) % 8 & 1) {
            j--;
        } else {
            i--;
        }
    }
}

/* ---- one hypothesis and one reference -------------------------------------------------------- */

static by_rouge_score score_of(double hits, double ours, double theirs)
{
    by_rouge_score s = {.precision = ours > 0 ? hits / ours : 0, .recall = theirs > 0 ? hits / theirs : 0};
    double sum = s.precision + s.recall;
    s.f1 = sum > 0 ? 2 * s.precision * s.recall / sum : 0;
    return s;
}

static by_status grams_in_common(by_rouge *r, by_rouge_score *out)
{
    score_grams *g = &r->grams;
    BY_TRY(score_grams_next(g));
    score_grams_count(g, 0, g->ours);
    score_grams_count(g, 1, g->theirs);
    *out = score_of((double)score_grams_common(g, g->ours, g->theirs), (double)score_grams_total(g, 0),
                    (double)score_grams_total(g, 1));
    return BY_OK;
}

/* Counts the words of a reference sentence that are shared with the hypothesis, each at most as often as both
 * texts still have it. g->gram is of order 1; ours and theirs are its counts and are decremented. */
static by_status sentence_hits(by_rouge *r, size_t begin, size_t end, double *hits)
{
    score_grams *g = &r->grams;
    const size_t n = end - begin;
    if (n >= r->joined_room) {
        bool *more = base_resize(r->joined, n + 1, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        r->joined = more;
        r->joined_room = n + 1;
    }
    memset(r->joined, 0, n * sizeof *r->joined);
    for (int i = 0; i < r->sentences[0]; i++) {
        size_t from = i > 0 ? r->ends[0][i - 1] : 0, m = r->ends[0][i] - from;
        uint32_t length;
        BY_TRY(longest(r, g->items + begin, n, g->items + from, m, true, &length));
        walk_back(r, g->items + begin, n, g->items + from, m);
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t k = g->gram[begin + i];
        if (r->joined[i] && g->ours[k] && g->theirs[k]) {
            g->ours[k]--;
            g->theirs[k]--;
            (*hits)++;
        }
    }
    return BY_OK;
}

static by_status score_sentences(by_rouge *r, by_rouge_score *out)
{
    score_grams *g = &r->grams;
    double hits = 0;
    score_grams_count(g, 0, g->ours);
    score_grams_count(g, 1, g->theirs);
    for (int i = 0; i < r->sentences[1]; i++)
        BY_TRY(sentence_hits(r, i > 0 ? r->ends[1][i - 1] : g->ends[0], r->ends[1][i], &hits));
    *out = score_of(hits, (double)score_grams_length(g, 0), (double)score_grams_length(g, 1));
    return BY_OK;
}

static by_status compare(by_rouge *r, const char *hypothesis, const char *text, int reference, scores out)
{
    score_grams *g = &r->grams;
    score_grams_clear(g);
    BY_TRY(take(r, hypothesis, -1));
    BY_TRY(take(r, text, reference));
    BY_TRY(grams_in_common(r, &out[BY_ROUGE_1]));
    BY_TRY(score_sentences(r, &out[BY_ROUGE_L_SUM]));
    BY_TRY(grams_in_common(r, &out[BY_ROUGE_2]));
    const size_t n = score_grams_length(g, 1), m = score_grams_length(g, 0);
    uint32_t length;
    BY_TRY(longest(r, g->items + g->ends[0], n, g->items, m, false, &length));
    out[BY_ROUGE_L] = score_of((double)length, (double)m, (double)n);
    return BY_OK;
}

by_status by_rouge_add(by_rouge *r, const char *hypothesis, const char *const *references, int count)
{
    BY_TRY(score_check(hypothesis, references, count));
    scores best, one;
    for (int i = 0; i < count; i++) {
        BY_TRY(compare(r, hypothesis, references[i], i, one));
        for (int k = 0; k < BY_ROUGE_COUNT; k++)
            if (i == 0 || one[k].f1 > best[k].f1)
                best[k] = one[k];
    }
    for (int k = 0; k < BY_ROUGE_COUNT; k++) {
        r->sum[k].precision += best[k].precision;
        r->sum[k].recall += best[k].recall;
        r->sum[k].f1 += best[k].f1;
    }
    r->texts++;
    r->references = score_references(r->references, count);
    return BY_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

void by_rouge_read(const by_rouge *r, by_rouge_score out[BY_ROUGE_COUNT])
{
    const double n = (double)BY_MAX(r->texts, 1);
    for (int k = 0; k < BY_ROUGE_COUNT; k++)
        out[k] = (by_rouge_score){r->sum[k].precision / n, r->sum[k].recall / n, r->sum[k].f1 / n};
}

const char *by_rouge_name(by_rouge_kind kind)
{
    static const char *const names[] = {"rouge1", "rouge2", "rougeL", "rougeLsum"};
    return (unsigned)kind < BY_ROUGE_COUNT ? names[kind] : "?";
}

const char *by_rouge_signature(by_rouge *r)
{
    r->signature.size = 0;
    score_put_references(&r->signature, r->references);
    base_buf_printf(&r->signature, "stem:%s|version:banyan-" BY_VERSION, r->spec.stem ? "yes" : "no");
    return r->signature.failed ? "" : r->signature.data;
}
