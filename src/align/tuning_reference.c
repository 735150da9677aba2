/* tuning_reference.c - log-probabilities of answers under the reference, and the file that caches them
 * (tuning.h). */
#include "align/tuning.h"
#include "banyan/adapter.h"
#include "banyan/weights.h"
#include "base/file.h"

enum { FEW_PASSES = 24 };

by_status align_reference_make(align_reference *r, by_model *m, bool bare, by_memory **memory)
{
    const by_pass_spec spec = {
        .grads = BY_GRAD_NONE, .loss_alone = true, .loss = by_likelihood_loss, .memory = memory};
    r->model = m;
    r->bare = bare;
    r->passes = by_passes_new(m, &spec, FEW_PASSES);
    return r->passes ? BY_OK : base_error_status();
}

void align_reference_free(align_reference *r)
{
    by_passes_free(r->passes);
    by_model_free(r->own);
    *r = (align_reference){0};
}

by_status align_reference_run(align_reference *r, const by_batch *b, float *out)
{
    by_adapter *a = by_model_adapter(r->model);
    if (r->bare)
        by_model_use(r->model, NULL);
    by_pass *p = by_passes_get(r->passes, b);
    by_status s = p ? by_pass_run(p, b) : base_error_status();
    if (s == BY_OK)
        s = by_pass_read(p, by_io_output(by_pass_io(p), "logps"), out);
    by_model_use(r->model, a);
    return s == BY_OK ? by_pass_finite(r->model, out, (size_t)b->batch) : s;
}

/* ---- all sequences ------------------------------------------------------------------------------- */

/* The lists of a cache: training and evaluation, each plain and mismatched. Absent lists are empty. */
typedef struct cached {
    const char *name;
    const data_instructions *list;
    float **logps;
} cached;
enum { LISTS = 4 };

static void lists_of(const align_cache *c, cached out[LISTS])
{
    static const char *const names[LISTS] = {"train", "train.mismatched", "eval", "eval.mismatched"};
    for (int i = 0; i < LISTS; i++) {
        align_part *p = i < 2 ? c->train : c->eval;
        out[i] = (cached){names[i],
                          !p      ? NULL
                          : i % 2 ? &p->mismatched
                                  : &p->list,
                          !p      ? NULL
                          : i % 2 ? &p->ref_mismatched
                                  : &p->ref_logps};
        if (p && !out[i].list->count)
            out[i].list = NULL;
    }
}

/* A hash of the tokens and of the mask of answers. */
static uint64_t fingerprint(const data_instructions *x, uint64_t seed)
{
    uint64_t h = seed;
    for (int i = 0; i < x->count; i++) {
        const data_instruction *one = &x->list[i];
        h = base_hash(&one->count, sizeof one->count, h);
        h = base_hash(x->tokens.data + one->first, (size_t)one->count * sizeof *x->tokens.data, h);
        h = base_hash(x->learned + one->first, (size_t)one->count, h);
    }
    return h;
}

static void describe(const cached lists[LISTS], char text[32])
{
    uint64_t h = 0;
    for (int i = 0; i < LISTS; i++)
        h = lists[i].list ? fingerprint(lists[i].list, h + 1) : h + 1;
    base_format(text, 32, "%016llx", (unsigned long long)h);
}

static by_status run_list(const align_cache *c, align_reference *r, const cached *l)
{
    data_row_groups groups = {0};
    data_instruction_batch batch = {0};
    float *values = base_alloc_zero((size_t)c->rows + 1, sizeof *values);
    const int each = l->list->rows.spec.together;
    by_status s = values ? data_rows_by_length(&l->list->rows, BY_MAX(c->rows / each, 1) * each, &groups)
                         : BY_ERR_MEMORY;
    for (int g = 0; g < groups.count && s == BY_OK; g++) {
        const int *rows = groups.rows + groups.first[g], count = groups.first[g + 1] - groups.first[g];
        if (c->cancelled && c->cancelled(c->user))
            s = base_fail(BY_ERR_CANCELLED, "stopped before the first step");
        if (s == BY_OK)
            s = data_instructions_batch(l->list, rows, count, count, &batch);
        if (s == BY_OK)
            s = align_reference_run(r, &batch.rows.batch, values);
        for (int i = 0; i < count && s == BY_OK; i++)
            (*l->logps)[rows[i]] = values[i];
    }
    data_row_groups_free(&groups);
    data_instruction_batch_free(&batch);
    base_free(values);
    return s;
}

static by_status write_lists(const align_cache *c, const cached lists[LISTS])
{
    by_weight entries[LISTS];
    char text[32];
    int n = 0;
    for (int i = 0; i < LISTS; i++)
        if (lists[i].list)
            entries[n++] = (by_weight){.name = lists[i].name,
                                       .dtype = BY_F32,
                                       .rank = 1,
                                       .dim = {lists[i].list->count},
                                       .data = *lists[i].logps,
                                       .bytes = (size_t)lists[i].list->count * sizeof(float)};
    describe(lists, text);
    return by_weights_write(c->path, entries, n, (const char *const[]){"fingerprint", text, NULL});
}

by_status align_cache_make(const align_cache *c, align_reference *r)
{
    cached lists[LISTS];
    lists_of(c, lists);
    for (int i = 0; i < LISTS; i++) {
        if (!lists[i].list)
            continue;
        base_free(*lists[i].logps);
        *lists[i].logps = base_alloc_zero((size_t)lists[i].list->count, sizeof(float));
        BY_TRY(*lists[i].logps ? run_list(c, r, &lists[i]) : BY_ERR_MEMORY);
    }
    return write_lists(c, lists);
}

static bool read_list(const by_weights *file, const cached *l)
{
    const by_weight *w = by_weights_find(file, l->name);
    const size_t n = (size_t)l->list->count;
    if (!w || w->dtype != BY_F32 || w->bytes != n * sizeof(float))
        return false;
    base_free(*l->logps);
    *l->logps = base_alloc(n * sizeof(float));
    return *l->logps && by_weight_read(w, 0, n, *l->logps, BY_F32) == BY_OK;
}

bool align_cache_read(const align_cache *c)
{
    cached lists[LISTS];
    char text[32];
    by_weights *file = base_file_exists(c->path) ? by_weights_open(c->path) : NULL;
    const char *made = file ? by_weights_metadata(file, "fingerprint") : NULL;
    lists_of(c, lists);
    describe(lists, text);
    bool same = made && strcmp(made, text) == 0;
    for (int i = 0; i < LISTS && same; i++)
        same = !lists[i].list || read_list(file, &lists[i]);
    by_weights_free(file);
    base_error_clear();
    return same;
}
