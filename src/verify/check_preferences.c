/* check_preferences.c - losses of preferences (see check_align.h). */
#include "verify/check_align.h"

#include "base/json.h"

/* The rows, chosen ones first, with the masks of texts and answers. */
static by_status take_texts(verify_align *a, const char *prefix, verify_texts *t, by_batch *b)
{
    char ids[40], mask[40], completion[40];
    base_format(ids, sizeof ids, "%sinput_ids", prefix);
    base_format(mask, sizeof mask, "%sattention_mask", prefix);
    base_format(completion, sizeof completion, "%scompletion_mask", prefix);
    t->tokens = verify_align_ids(a, ids, &t->rows, &t->cols);
    t->mask = verify_align_ids(a, mask, NULL, NULL);
    t->completion = verify_align_ids(a, completion, NULL, NULL);
    return t->mask ? verify_align_batch(a, t, b) : base_error_status();
}

/* ---- supervised tuning -------------------------------------------------------------------------- */

static by_status check_sft(verify_align *a, const char *variant, const by_batch *b)
{
    const by_likelihood_spec spec = {.dynamic = strcmp(variant, "dft") == 0};
    by_pass *p = verify_align_pass(a, a->model, b, by_likelihood_loss, &spec, true);
    double loss;
    by_status s = p ? verify_align_loss(a, p, &loss) : base_error_status();
    if (s == BY_OK)
        s = verify_align_number_is(a, variant, "loss", loss);
    if (s == BY_OK)
        s = verify_align_grads(a, variant, "", a->model);
    by_pass_free(p);
    return s;
}

by_status verify_sft(verify_align *a)
{
    verify_texts t = {0};
    by_batch b;
    BY_TRY(take_texts(a, "", &t, &b));
    BY_TRY(check_sft(a, "nll", &b));
    return check_sft(a, "dft", &b);
}

/* ---- what preferences share ---------------------------------------------------------------------- */

static void put_numbers(by_batch *b, const char *name, int64_t count, const float *values)
{
    by_batch_put(b, name, BY_F32, 1, &count, values);
}

/* Compares the two halves of rewards, and their differences. */
static by_status compare_rewards(verify_align *a, const char *variant, const float *rewards, int pairs)
{
    float *margins = verify_align_room(a, (size_t)pairs, sizeof *margins);
    double sum = 0, right = 0;
    if (!rewards || !margins)
        return base_error_status();
    for (int i = 0; i < pairs; i++) {
        margins[i] = rewards[i] - rewards[pairs + i];
        sum += (double)margins[i];
        right += margins[i] > 0;
    }
    BY_TRY(verify_align_values(a, variant, "chosen_rewards", rewards));
    BY_TRY(verify_align_values(a, variant, "rejected_rewards", rewards + pairs));
    BY_TRY(verify_align_values(a, variant, "margins", margins));
    BY_TRY(verify_align_number_is(a, variant, "margins_mean", sum / pairs));
    return verify_align_number_is(a, variant, "accuracies_mean", right / pairs);
}

/* ---- DPO -------------------------------------------------------------------------------------- */

enum { DPO_TERMS = 4 };

/* The losses that "loss_type" names, or the variant itself. */
static by_status read_terms(const verify_align *a, const char *variant, by_dpo_term *terms, int *count)
{
    const char *names = verify_align_word(a, variant, "loss_type"),
               *weights = verify_align_word(a, variant, "loss_weights");
    for (*count = 0; *names && *count < DPO_TERMS; (*count)++) {
        char name[40], *end = NULL;
        const size_t n = strcspn(names, ",");
        base_format(name, sizeof name, "%.*s", (int)n, names);
        if (!by_dpo_find(name, &terms[*count].kind))
            return base_fail(BY_ERR_UNSUPPORTED, "unknown loss \"%s\"", name);
        terms[*count].weight = *weights ? base_strtod(weights, &end) : 1;
        weights = *weights ? end + (*end == ',') : weights;
        names += n + (names[n] == ',');
    }
    if (*count || strcmp(variant, "smoothed") == 0 || by_dpo_find(variant, &terms[0].kind))
        return BY_OK;
    return base_fail(BY_ERR_UNSUPPORTED, "unknown variant \"%s\"", variant);
}

static by_status check_dpo(verify_align *a, const char *variant, const by_batch *b, int pairs)
{
    by_dpo_term terms[DPO_TERMS] = {{BY_DPO_SIGMOID, 1}};
    by_dpo_spec spec = {.beta = verify_align_number(a, variant, "beta", 0),
                        .label_smoothing = verify_align_number(a, variant, "label_smoothing", 0),
                        .terms = terms,
                        .divergence_alpha = verify_align_number(a, variant, "f_alpha_divergence_coef", 0),
                        .weighted = verify_align_number(a, variant, "use_weighting", 0) != 0};
    BY_TRY(read_terms(a, variant, terms, &spec.term_count));
    spec.kind = terms[0].kind;
    spec.term_count = spec.term_count > 1 ? spec.term_count : 0;
    by_divergence_find(verify_align_word(a, variant, "f_divergence_type"), &spec.divergence);
    const bool gradients = verify_align_has_grads(a, variant);
    by_pass *p = verify_align_pass(a, a->model, b, by_dpo_loss, &spec, gradients);
    double loss = 0;
    by_status s = p ? verify_align_loss(a, p, &loss) : base_error_status();
    if (s == BY_OK)
        s = verify_align_number_is(a, variant, "loss", loss);
    if (s == BY_OK)
        s = verify_align_values(a, variant, "losses", verify_align_output(a, p, "losses"));
    if (s == BY_OK)
        s = compare_rewards(a, variant, verify_align_output(a, p, "rewards"), pairs);
    if (s == BY_OK && gradients)
        s = verify_align_grads(a, variant, "", a->model);
    by_pass_free(p);
    return s;
}

/* Log-probabilities of tokens have no column for the first. */
static by_status check_token_logps(verify_align *a, const by_batch *b, const verify_texts *t)
{
    by_pass *p = verify_align_pass(a, a->model, b, by_likelihood_loss, NULL, false);
    const float *all = p ? verify_align_output(a, p, "token_logps") : NULL;
    float *less = verify_align_room(a, (size_t)t->rows * (size_t)t->cols, sizeof *less);
    for (int i = 0; all && less && i < t->rows * (t->cols - 1); i++)
        less[i] = all[i / (t->cols - 1) * t->cols + i % (t->cols - 1)];
    by_status s =
        all && less ? verify_align_values(a, "output", "per_token_logps", less) : base_error_status();
    if (s == BY_OK)
        s = verify_align_values(a, "output", "logps", verify_align_output(a, p, "logps"));
    by_pass_free(p);
    return s;
}

by_status verify_dpo(verify_align *a)
{
    const cJSON *variants = cJSON_GetObjectItemCaseSensitive(a->c->settings, "variants"), *v;
    verify_texts t = {0};
    by_batch b;
    float *ref;
    BY_TRY(take_texts(a, "", &t, &b));
    BY_TRY(check_token_logps(a, &b, &t));
    BY_TRY(verify_align_logps(a, a->other, &b, &ref));
    BY_TRY(verify_align_values(a, "output", "ref_logps", ref));
    put_numbers(&b, "ref_logps", t.rows, ref);
    const int mine = a->n_arrays;
    cJSON_ArrayForEach(v, variants)
    {
        BY_TRY(check_dpo(a, v->string, &b, t.rows / 2));
        verify_align_drop(a, mine);
    }
    return BY_OK;
}

/* ---- KTO -------------------------------------------------------------------------------------- */

static by_status check_kto(verify_align *a, const char *variant, const by_batch *texts,
                           const by_batch *mismatched)
{
    const bool swapped = strcmp(variant, "swapped") == 0, gradients = verify_align_has_grads(a, variant);
    by_model *policy = swapped ? a->other : a->model, *reference = swapped ? a->model : a->other;
    const by_kto_spec spec = {.beta = verify_align_number(a, variant, "beta", 0),
                              .desirable_weight = verify_align_number(a, variant, "desirable_weight", 0),
                              .undesirable_weight = verify_align_number(a, variant, "undesirable_weight", 0),
                              .unpaired = strcmp(variant, "apo_zero_unpaired") == 0};
    by_batch b = *texts;
    float *ref, *kl_logps, *ref_kl_logps;
    double loss = 0;
    BY_TRY(verify_align_logps(a, reference, texts, &ref));
    BY_TRY(verify_align_logps(a, policy, mismatched, &kl_logps));
    BY_TRY(verify_align_logps(a, reference, mismatched, &ref_kl_logps));
    const float kl = spec.unpaired ? 0 : by_kto_kl(kl_logps, ref_kl_logps, mismatched->batch);
    put_numbers(&b, "ref_logps", b.batch, ref);
    put_numbers(&b, "kl", 1, &kl);
    by_pass *p = verify_align_pass(a, policy, &b, by_kto_loss, &spec, gradients);
    by_status s = p ? verify_align_loss(a, p, &loss) : base_error_status();
    const struct {
        const char *name;
        const float *values;
    } rows[] = {{"ref_logps", ref}, {"kl_logps", kl_logps}, {"ref_kl_logps", ref_kl_logps}, {"kl", &kl}};
    for (int i = 0; i < BY_COUNT(rows) && s == BY_OK; i++)
        s = verify_align_values(a, variant, rows[i].name, rows[i].values);
    if (s == BY_OK)
        s = verify_align_number_is(a, variant, "loss", loss);
    if (s == BY_OK)
        s = verify_align_values(a, variant, "logps", verify_align_output(a, p, "logps"));
    if (s == BY_OK)
        s = verify_align_values(a, variant, "rewards", verify_align_output(a, p, "rewards"));
    if (s == BY_OK && gradients)
        s = verify_align_grads(a, variant, "", policy);
    by_pass_free(p);
    return s;
}

by_status verify_kto(verify_align *a)
{
    const cJSON *variants = cJSON_GetObjectItemCaseSensitive(a->c->settings, "variants"), *v;
    verify_texts t = {0}, other = {0};
    by_batch b, mismatched;
    BY_TRY(take_texts(a, "", &t, &b));
    BY_TRY(take_texts(a, "KL_", &other, &mismatched));
    const float *label = verify_align_floats(a, "label");
    if (!label)
        return base_error_status();
    put_numbers(&b, "label", t.rows, label);
    const int mine = a->n_arrays;
    cJSON_ArrayForEach(v, variants)
    {
        BY_TRY(check_kto(a, v->string, &b, &mismatched));
        verify_align_drop(a, mine);
    }
    return BY_OK;
}

/* ---- CPO, SimPO, ORPO ------------------------------------------------------------------------- */

static by_cpo_spec cpo_spec(const verify_align *a, const char *variant)
{
    const char *type = verify_align_word(a, variant, "loss_type");
    return (by_cpo_spec){.kind = strcmp(variant, "orpo") == 0 ? BY_CPO_ORPO
                                 : strcmp(type, "simpo") == 0 ? BY_CPO_SIMPO
                                 : strcmp(type, "hinge") == 0 ? BY_CPO_HINGE
                                                              : BY_CPO_SIGMOID,
                         .beta = verify_align_number(a, variant, "beta", 0),
                         .alpha = verify_align_number(a, variant, "cpo_alpha", 0),
                         .gamma = verify_align_number(a, variant, "simpo_gamma", 0),
                         .label_smoothing = verify_align_number(a, variant, "label_smoothing", 0)};
}

/* The reference records the term of the odds ratio with the other sign, and its means. */
static by_status compare_odds(verify_align *a, const char *variant, by_pass *p, float *losses, int pairs,
                              double beta)
{
    const float *log_odds = verify_align_output(a, p, "log_odds");
    double odds = 0, ratio = 0;
    if (!log_odds || !losses)
        return base_error_status();
    for (int i = 0; i < pairs; i++) {
        losses[i] = -losses[i];
        odds += (double)log_odds[i];
        ratio += (double)losses[i] / beta;
    }
    BY_TRY(verify_align_number_is(a, variant, "log_odds", odds / pairs));
    return verify_align_number_is(a, variant, "log_odds_ratio", ratio / pairs);
}

static by_status compare_cpo(verify_align *a, const char *variant, by_pass *p, const by_cpo_spec *spec,
                             int pairs)
{
    float *losses = verify_align_output(a, p, "losses"), *logps = verify_align_output(a, p, "rewards");
    const float none = 0, *nll = spec->alpha != 0 || spec->kind == BY_CPO_ORPO
                                     ? verify_align_output(a, p, "likelihood")
                                     : &none;
    double loss;
    BY_TRY(losses && logps && nll ? verify_align_loss(a, p, &loss) : base_error_status());
    BY_TRY(verify_align_number_is(a, variant, "loss", loss));
    BY_TRY(verify_align_values(a, variant, "nll_loss", nll));
    BY_TRY(compare_rewards(a, variant, logps, pairs));
    if (spec->kind == BY_CPO_ORPO)
        BY_TRY(compare_odds(a, variant, p, losses, pairs, spec->beta));
    BY_TRY(verify_align_values(a, variant, "losses", losses));
    for (int i = 0; i < 2 * pairs; i++)
        logps[i] = (float)((double)logps[i] / spec->beta);
    BY_TRY(verify_align_values(a, variant, "chosen_logps", logps));
    return verify_align_values(a, variant, "rejected_logps", logps + pairs);
}

static by_status check_cpo(verify_align *a, const char *variant, const by_batch *b, int pairs)
{
    const by_cpo_spec spec = cpo_spec(a, variant);
    const bool gradients = verify_align_has_grads(a, variant);
    by_pass *p = verify_align_pass(a, a->model, b, by_cpo_loss, &spec, gradients);
    by_status s = p ? compare_cpo(a, variant, p, &spec, pairs) : base_error_status();
    if (s == BY_OK && gradients)
        s = verify_align_grads(a, variant, "", a->model);
    by_pass_free(p);
    return s;
}

by_status verify_cpo(verify_align *a)
{
    const cJSON *variants = cJSON_GetObjectItemCaseSensitive(a->c->settings, "variants"), *v;
    verify_texts t = {0};
    by_batch b;
    BY_TRY(take_texts(a, "", &t, &b));
    int32_t *all = verify_align_room(a, (size_t)t.rows * (size_t)t.cols, sizeof *all);
    if (!all)
        return BY_ERR_MEMORY;
    for (int i = 0; i < t.rows * t.cols; i++) /* all tokens of the chosen rows */
        all[i] = i < t.rows / 2 * t.cols && (i + 1) % t.cols && t.mask[i + 1] ? t.tokens[i + 1] : -100;
    by_batch_put_tokens(&b, "all_targets", all);
    const int mine = a->n_arrays;
    cJSON_ArrayForEach(v, variants)
    {
        BY_TRY(check_cpo(a, v->string, &b, t.rows / 2));
        verify_align_drop(a, mine);
    }
    return BY_OK;
}

/* ---- reward models ---------------------------------------------------------------------------- */

static by_status check_reward(verify_align *a, const char *variant, const by_batch *b, double center)
{
    const by_reward_spec spec = {center};
    const bool gradients = verify_align_has_grads(a, variant);
    by_pass *p = verify_align_pass(a, a->model, b, by_reward_loss, &spec, gradients);
    const float *rewards = p ? verify_align_output(a, p, "rewards") : NULL;
    double loss = 0, right = 0;
    by_status s = rewards ? verify_align_loss(a, p, &loss) : base_error_status();
    for (int i = 0; s == BY_OK && i < b->batch / 2; i++)
        right += rewards[i] > rewards[b->batch / 2 + i];
    if (s == BY_OK)
        s = verify_align_number_is(a, variant, "loss", loss);
    if (s == BY_OK)
        s = verify_align_number_is(a, variant, "accuracy", right / (b->batch / 2));
    if (s == BY_OK && strcmp(variant, "plain") == 0)
        s = verify_align_values(a, "output", "logits", rewards);
    if (s == BY_OK && gradients)
        s = verify_align_grads(a, variant, "", a->model);
    by_pass_free(p);
    return s;
}

by_status verify_reward(verify_align *a)
{
    int rows, cols;
    const int32_t *tokens = verify_align_ids(a, "input_ids", &rows, &cols);
    const int32_t *mask = verify_align_ids(a, "attention_mask", NULL, NULL);
    const float *margin = verify_align_floats(a, "margin");
    if (!tokens || !mask || !margin)
        return base_error_status();
    by_batch b = by_batch_of(rows, cols, tokens);
    by_batch_put_tokens(&b, "mask", mask);
    BY_TRY(check_reward(a, "plain", &b, 0));
    put_numbers(&b, "margin", rows / 2, margin);
    BY_TRY(check_reward(a, "margin", &b, 0));
    return check_reward(a, "centred", &b, 0.05); /* as the words of case.json say */
}
