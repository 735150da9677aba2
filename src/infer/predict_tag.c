/* predict_tag.c - labels of tokens, and the entities they form (banyan/predict.h). */
#include "infer/predict.h"

typedef struct tagging {
    by_tags *out;
    size_t *at; /* by row: index of its first token */
} tagging;

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Whether token t of a row is counted: special tokens and those repeated by a window are not. `repeated`
 * counts the tokens of the row so far. */
static bool counts(const data_rows *rows, const data_row *row, int t, int *repeated)
{
    const by_offset at = rows->offsets[row->first + (size_t)t];
    if (at.end == at.start)
        return false;
    return (*repeated)++ >= row->repeated;
}

/* Rows come in the order of their texts, and their tokens do too. */
static by_status place_rows(tagging *g, const data_rows *rows)
{
    by_tags *out = g->out;
    size_t n = 0;
    g->at = base_alloc_zero((size_t)rows->count + 1, sizeof *g->at);
    out->first_token = base_alloc_zero((size_t)rows->examples + 1, sizeof *out->first_token);
    out->first_entity = base_alloc_zero((size_t)rows->examples + 1, sizeof *out->first_entity);
    if (!g->at || !out->first_token || !out->first_entity)
        return BY_ERR_MEMORY;
    for (int i = 0; i < rows->count; i++) {
        int repeated = 0;
        g->at[i] = n;
        for (int t = 0; t < rows->list[i].count; t++)
            n += counts(rows, &rows->list[i], t, &repeated);
        out->first_token[rows->list[i].example + 1] = n;
    }
    out->count = rows->examples;
    out->tokens = base_alloc_zero(BY_MAX(n, (size_t)1), sizeof *out->tokens);
    out->entities = base_alloc_zero(BY_MAX(n, (size_t)1), sizeof *out->entities);
    return out->tokens && out->entities ? BY_OK : BY_ERR_MEMORY;
}

static by_status take(void *user, by_predictor *p, const gen_predicted *b)
{
    tagging *g = user;
    const int labels = by_model_labels(p->model);
    float *logits;
    BY_TRY(gen_predict_read(p, b->pass, by_io_output(b->io, "logits"), 0, &logits));
    for (int i = 0; i < b->count; i++) {
        const data_row *row = &b->rows->list[b->list[i]];
        by_tagged *to = g->out->tokens + g->at[b->list[i]];
        const int seq = b->batch->seq, first = data_rows_start(b->rows, b->list[i], seq);
        int repeated = 0;
        for (int t = 0; t < row->count; t++) {
            float *x = logits + ((size_t)i * (size_t)seq + (size_t)(first + t)) * (size_t)labels;
            if (!counts(b->rows, row, t, &repeated))
                continue;
            BY_TRY(by_pass_finite(p->model, x, (size_t)labels));
            gen_probabilities(x, labels);
            int best;
            gen_places_top(x, labels, 1, &best);
            *to++ = (by_tagged){b->rows->offsets[row->first + (size_t)t], best, x[best]};
        }
    }
    return BY_OK;
}

/* ---- entities -------------------------------------------------------------------------------- */

/* A label without its B- or I-, and whether it begins an entity. NULL for "O". */
static const char *name_of(const by_model *m, int label, bool *begins)
{
    const char *name = by_model_label_name(m, label);
    *begins = strncmp(name, "B-", 2) == 0;
    return *begins || strncmp(name, "I-", 2) == 0 ? name + 2 : strcmp(name, "O") == 0 ? NULL : name;
}

static bool is_wordly(uint8_t c)
{
    return c >= 0x80 || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

/* Whether a token continues the word of the previous token, whose label then applies. */
static bool is_inside_word(const char *text, const by_tagged *before, const by_tagged *now)
{
    return before && before->at.end == now->at.start && is_wordly((uint8_t)text[now->at.start]) &&
           is_wordly((uint8_t)text[now->at.start - 1]);
}

/* The entities among n tokens of a text. Returns their number, n at most. */
static size_t find_entities(const by_model *m, const char *text, const by_tagged *tokens, size_t n,
                            by_entity *out)
{
    size_t count = 0;
    int words = 0; /* words of the open entity; 0: none */
    for (size_t i = 0; i <= n; i++) {
        const by_tagged *now = i < n ? &tokens[i] : NULL;
        by_entity *e = &out[count];
        bool begins = false;
        const char *name = now ? name_of(m, now->label, &begins) : NULL;
        if (now && is_inside_word(text, i > 0 ? now - 1 : NULL, now)) {
            if (words)
                e->at.end = now->at.end;
            continue;
        }
        if (words && (!name || begins || strcmp(name, e->name) != 0)) {
            e->score /= (float)words;
            words = 0;
            e = &out[++count];
        }
        if (!name)
            continue;
        if (words++ == 0)
            *e = (by_entity){.name = name, .at = now->at};
        e->at.end = now->at.end;
        e->score += now->score;
    }
    return count;
}

by_status by_predictor_tag(by_predictor *p, const char *const *texts, int count, by_tags *out)
{
    static const gen_predict_calls calls = {NULL, take};
    if (!p || !out || (count > 0 && !texts))
        return base_fail_missing(!p ? "predictor" : !out ? "by_tags" : "text");
    *out = (by_tags){0};
    BY_TRY(gen_predict_check(p->model, BY_TASK_TAG));
    tagging g = {.out = out};
    data_rows rows = {0};
    by_status s =
        gen_predict_rows(p, &(data_rows_spec){.offsets = true, .windows = true}, texts, NULL, count, &rows);
    if (s == BY_OK)
        s = place_rows(&g, &rows);
    if (s == BY_OK)
        s = gen_predict_run(p, &rows, &calls, &g);
    for (int i = 0; s == BY_OK && i < count; i++) {
        const size_t first = out->first_token[i];
        out->first_entity[i + 1] =
            out->first_entity[i] + find_entities(p->model, texts[i], out->tokens + first,
                                                 out->first_token[i + 1] - first,
                                                 out->entities + out->first_entity[i]);
    }
    data_rows_free(&rows);
    base_free(g.at);
    if (s != BY_OK)
        by_tags_free(out);
    return s;
}

void by_tags_free(by_tags *t)
{
    base_free(t->tokens);
    base_free(t->entities);
    base_free(t->first_token);
    base_free(t->first_entity);
    *t = (by_tags){0};
}
