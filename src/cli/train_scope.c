/* train_scope.c - see train_scope.h. */
#include "cli/train_scope.h"

#include "cli/learning.h"
#include "cli/report.h"
#include "model/model.h"
#include "train/dataset.h"

/* Kinds of runs: objectives of texts, pixels, and pictures with classes or captions. */
#define KIND(name) (1u << DATA_OBJECTIVE_##name)
enum {
    CLASSES = 1 << DATA_OBJECTIVE_COUNT,
    CAPTIONS = CLASSES << 1,
    PIXELS = KIND(PIXELS),
    TEXTS = PIXELS - 1,
    MASKS = KIND(MLM) | KIND(NSP) | KIND(SOP) | KIND(TLM),
    CUTS = KIND(SPANS) | KIND(INFILL) | KIND(FIM)
};

static const cli_scope scopes[] = {
    {"masking", MASKS, "mlm, nsp, sop and tlm"},
    {"mask-copies", MASKS, "mlm, nsp, sop and tlm"},
    {"whole-words", MASKS, "mlm, nsp, sop and tlm"},
    {"mask-words", MASKS | KIND(PLM), "mlm, nsp, sop, tlm and plm"},
    {"mask-share", MASKS | CUTS | KIND(PLM), "objectives that mask or cut"},
    {"mask-span", KIND(SPANS) | KIND(INFILL), "spans and infill"},
    {"suffix-first", KIND(FIM), "fim"},
    {"permuted-block", KIND(PLM), "plm"},
    {"reuse", KIND(PLM), "plm"},
    {"one-way", KIND(PLM), "plm"},
    {"languages", TEXTS, "texts"},
    {"parallel", KIND(TLM), "tlm"},
    {"both-directions", KIND(TRANSLATE), "translate"},
    {"prefix", KIND(TRANSLATE), "translate"},
    {"source-column", KIND(TRANSLATE), "translate"},
    {"target-column", KIND(TRANSLATE), "translate"},
    {"target-tokenizer", TEXTS, "translate"},
    {"batch-tokens", KIND(TRANSLATE), "translate"},
    {"batch-size", ~KIND(TRANSLATE), "rows of one length (translate: --batch-tokens)"},
    {"scheduled-sampling", TEXTS, "texts"},
    {"tokenizer", ~PIXELS, "texts and captions"}, /* classifiers refuse it themselves */
    {"seq", TEXTS | PIXELS, "texts"},
    {"show-batch", TEXTS, "texts"},
    {"eval-batches", TEXTS | PIXELS, "texts and pixel models"},
    {"average", TEXTS | PIXELS, "texts and pixel models (classes and captions: --average-decay)"},
    {"classes", CLASSES, "classes of pictures"},
    {"coarse", CLASSES, "classes of pictures"},
    {"label-column", CLASSES | CAPTIONS, "classes of pictures and captions"},
    {"file-column", CLASSES | CAPTIONS | PIXELS, "pictures"},
    {"image-size", CLASSES | CAPTIONS | PIXELS, "pictures"},
    {"workers", CLASSES | CAPTIONS, "pictures that are read in every epoch"},
    {"colours", PIXELS, "pixel models"},
    {"palette", PIXELS, "pixel models"},
};

/* Options of the shape of a new model. */
static const char *const shape[] = {
    "preset",       "layers",      "decoder-layers", "heads",          "kv-heads",
    "memory",       "attention",   "cell",           "attention-mode", "stride",
    "summary",      "hash-rounds", "width",          "inner",          "context",
    "pre-norm",     "patch",       "channels",       "mixtures",       "coordinates",
    "distribution", "query-block", "local-memory",   "upscale",        "decoder",
    "init-std",     NULL};

static bool fits_kind(const by_run_spec *s, const arch_family *a, const cli_args *own)
{
    data_objective_kind kind = DATA_OBJECTIVE_LM;
    if (!a->pictures && train_objective_choose(s, &kind) != BY_OK) {
        base_error_clear();
        return true;
    }
    const uint32_t bit = !a->pictures ? 1u << kind : a->pretrained == BY_TASK_CLASSIFY ? CLASSES : CAPTIONS;
    const cli_scope *row = cli_given_outside(own, scopes, BY_COUNT(scopes), bit);
    if (row && a->pictures)
        cli_usage_fail("--%s is for %s, not for %s", row->option, row->names, a->title);
    else if (row)
        cli_usage_fail("--%s is for %s, not for the objective \"%s\"", row->option, row->names,
                       data_objective_name(kind));
    return !row;
}

bool cli_shape_fits(const arch_family *a, const cli_args *own)
{
    static const struct {
        const char *option;
        arch_role role;
        const char *lacks;
    } all[] = {{"heads", ARCH_ROLE_HEADS, "has no attention heads"},
               {"decoder-layers", ARCH_ROLE_DECODER_LAYERS, "has no decoder with layers of its own"},
               {"inner", ARCH_ROLE_INNER, "has no feed-forward width of its own"},
               {"context", ARCH_ROLE_CONTEXT, "has no context but its pictures"},
               {"memory", ARCH_ROLE_MEMORY, "has no memory of earlier segments"},
               {"pre-norm", ARCH_ROLE_PRE_NORM, "has its norms in one place"}};
    for (int i = 0; i < BY_COUNT(all); i++)
        if (!arch_has(a, all[i].role) && cli_given_among(own, (const char *const[]){all[i].option, NULL})) {
            cli_usage_fail("--%s: %s %s", all[i].option, a->title, all[i].lacks);
            return false;
        }
    return true;
}

static bool fits_family(const by_run_spec *s, const arch_family *a, const cli_args *own)
{
    const cli_option *of_shape = s->init_from ? cli_given_among(own, shape) : NULL;
    if (of_shape)
        cli_usage_fail("--%s is for new models; the model of --init-from keeps its shape", of_shape->name);
    else if (s->init_from && cli_given(own, &s->family) && strcmp(s->family, a->family) != 0)
        cli_usage_fail("--model %s: the model of --init-from is of the family %s", s->family, a->family);
    else
        return s->init_from || cli_shape_fits(a, own);
    return false;
}

bool cli_train_fits(const by_run_spec *s, const cli_args *own)
{
    const arch_family *a = s->init_from ? model_family_of(s->init_from, NULL) : arch_find(s->family);
    if (!a) {
        base_error_clear();
        return true;
    }
    if (cli_given(own, &s->images.soft_teacher) && !s->images.teacher) {
        cli_usage_fail("--distillation needs --teacher");
        return false;
    }
    if (cli_given(own, &s->eval_fraction) && s->eval_count) {
        cli_usage_fail("--eval-fraction and --eval-data exclude each other");
        return false;
    }
    return fits_family(s, a, own) && fits_kind(s, a, own) &&
           cli_optimizer_fits(s->optimizer.kind, s->schedule.kind, own);
}
