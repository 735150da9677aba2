/* predict_fill.c - candidates for masked tokens (banyan/predict.h). */
#include "infer/predict.h"

typedef struct filling {
    int32_t mask;
    int32_t *pick; /* flat positions of the masks in the current batch */
    int picks, room;
    int *places; /* (top) */
    by_guesses *out;
} filling;

/* ---- masks in texts -------------------------------------------------------------------------- */

/* The text with every run of three or more underscores replaced by the mask token. Heap string. */
static char *with_masks(const char *text, const char *mask)
{
    base_buf out = {0};
    for (const char *at = text; *at;) {
        size_t run = strspn(at, "_");
        if (run >= 3)
            base_buf_puts(&out, mask);
        else
            base_buf_put(&out, at, run ? run : 1);
        at += run ? run : 1;
    }
    base_buf_put(&out, "", 1);
    if (out.failed)
        base_buf_free(&out);
    return out.data; /* the string takes over the buffer's memory */
}

static const char *find_mask(const by_tokenizer *t, int32_t *id)
{
    static const char *const names[] = {"[MASK]", "<mask>", "<special1>"};
    for (int i = 0; i < BY_COUNT(names); i++) {
        *id = by_tokenizer_find(t, names[i]);
        if (*id >= 0)
            return names[i];
    }
    base_fail(BY_ERR_UNSUPPORTED, "the tokenizer has no mask token: neither [MASK] nor <mask>");
    return NULL;
}

static by_status read_texts(by_predictor *p, const char *const *texts, int count, const char *mask,
                            data_rows *rows)
{
    BY_TRY(data_rows_init(rows, p->model, p->tokenizer, &(data_rows_spec){0}));
    by_status s = BY_OK;
    for (int i = 0; i < count && s == BY_OK; i++) {
        char *text = with_masks(texts[i], mask);
        s = text ? data_rows_add(rows, text, NULL) : BY_ERR_MEMORY;
        base_free(text);
    }
    return s;
}

/* Memory for the candidates; one row for each text. */
static by_status make_room(filling *f, const data_rows *rows)
{
    by_guesses *out = f->out;
    int masks = 0;
    out->first = base_alloc_zero((size_t)rows->count + 1, sizeof *out->first);
    if (!out->first)
        return BY_ERR_MEMORY;
    out->count = rows->count;
    for (int i = 0; i < rows->count; i++) {
        const data_row *row = &rows->list[i];
        for (int t = 0; t < row->count; t++)
            masks += rows->tokens.data[row->first + (size_t)t] == f->mask;
        out->first[i + 1] = masks;
    }
    out->list = base_alloc_zero((size_t)BY_MAX(masks, 1) * (size_t)out->top, sizeof *out->list);
    f->places = base_alloc_zero((size_t)out->top, sizeof *f->places);
    return out->list && f->places ? BY_OK : BY_ERR_MEMORY;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Logits are computed only at the masks. Their number is rounded up, so that few shapes occur. */
static by_status prepare(void *user, by_batch *b, const data_rows *rows, const int *list, int count)
{
    (void)rows;
    (void)list;
    filling *f = user;
    const int32_t *tokens = by_batch_ids(b, "tokens");
    int room = 8;
    f->picks = 0;
    for (int i = 0; i < count * b->seq; i++)
        f->picks += tokens[i] == f->mask;
    while (room < f->picks)
        room *= 2;
    if (room > f->room) {
        int32_t *more = base_resize(f->pick, (size_t)room, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        f->pick = more;
        f->room = room;
    }
    memset(f->pick, 0, (size_t)room * sizeof *f->pick);
    for (int i = 0, n = 0; i < count * b->seq; i++)
        if (tokens[i] == f->mask)
            f->pick[n++] = i;
    by_batch_put_ids(b, "pick", room, f->pick);
    return BY_OK;
}

static by_status take(void *user, by_predictor *p, const gen_predicted *b)
{
    filling *f = user;
    const int vocab = by_model_vocab(p->model), top = f->out->top;
    float *logits;
    BY_TRY(gen_predict_read(p, b->pass, by_io_output(b->io, "logits"), 0, &logits));
    BY_TRY(by_pass_finite(p->model, logits, (size_t)f->picks * (size_t)vocab));
    for (int n = 0, mask = 0; n < f->picks; n++) {
        const int row = f->pick[n] / b->batch->seq;
        mask = n > 0 && row == f->pick[n - 1] / b->batch->seq ? mask + 1 : 0;
        float *x = logits + (size_t)n * (size_t)vocab;
        by_guess *to =
            f->out->list + (size_t)(f->out->first[b->rows->list[b->list[row]].example] + mask) * (size_t)top;
        gen_probabilities(x, vocab);
        const int found = gen_places_top(x, vocab, top, f->places);
        for (int k = 0; k < top; k++)
            to[k] = k < found ? (by_guess){f->places[k], x[f->places[k]]} : (by_guess){-1, 0};
    }
    return BY_OK;
}

by_status by_predictor_fill(by_predictor *p, const char *const *texts, int count, int top, by_guesses *out)
{
    static const gen_predict_calls calls = {prepare, take};
    if (!p || !out || (count > 0 && !texts))
        return base_fail_missing(!p ? "predictor" : !out ? "by_guesses" : "text");
    *out = (by_guesses){.top = top};
    if (top < 1)
        return base_fail(BY_ERR_ARGUMENT, "%d candidates for a mask: expected at least 1", top);
    BY_TRY(gen_predict_check(p->model, BY_TASK_MLM));
    filling f = {.out = out};
    const char *name = find_mask(p->tokenizer, &f.mask);
    data_rows rows = {0};
    by_status s = name ? read_texts(p, texts, count, name, &rows) : base_error_status();
    if (s == BY_OK)
        s = make_room(&f, &rows);
    if (s == BY_OK)
        s = gen_predict_run(p, &rows, &calls, &f);
    data_rows_free(&rows);
    base_free(f.pick);
    base_free(f.places);
    if (s != BY_OK)
        by_guesses_free(out);
    return s;
}

void by_guesses_free(by_guesses *g)
{
    base_free(g->list);
    base_free(g->first);
    *g = (by_guesses){0};
}
