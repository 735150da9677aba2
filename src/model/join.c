/* join.c - joins an image encoder and a language model, or a masked language model, into a captioning
 * model. */
#include "io/weights.h"
#include "model/model.h"

typedef struct joining {
    by_model *encoder, *decoder, *both;
    bool *known; /* parameters of the joined model that are copied from one of the parts */
} joining;

static by_status check_parts(const joining *j)
{
    const by_task task = by_model_task(j->decoder);
    by_pictures p;
    if (!by_model_pictures(j->encoder, &p))
        return base_fail(BY_ERR_ARGUMENT, "the encoder is %s, which does not read pictures",
                         base_a(by_model_class(j->encoder)).text);
    if (task != BY_TASK_LM && task != BY_TASK_MLM && task != BY_TASK_PRETRAIN)
        return base_fail(BY_ERR_ARGUMENT, "the decoder is %s, which is not a language model",
                         base_a(by_model_class(j->decoder)).text);
    return BY_OK;
}

/* The joined model with initial values. */
static by_status make_both(joining *j, uint64_t seed)
{
    const by_model_spec spec = {.seed = seed};
    by_model *m = j->both;
    m->json = arch_caption_config(j->encoder->json, j->decoder->json, by_model_family(j->decoder));
    if (!m->json)
        return BY_ERR_MEMORY;
    BY_TRY(model_config_take(m, &spec));
    BY_TRY(model_declare(m));
    BY_TRY(model_prepare(m, &spec));
    BY_TRY(by_params_freeze(m->params, false));
    BY_TRY(by_params_init(m->params, seed));
    j->known = base_alloc_zero((size_t)by_params_count(m->params), sizeof *j->known);
    return j->known ? BY_OK : BY_ERR_MEMORY;
}

static by_status copy_values(joining *j, const by_model *from, int i, int to)
{
    const by_params *a = from->params, *b = j->both->params;
    int64_t count = 1, other = 1;
    for (int k = 0; k < by_params_rank(a, i); k++)
        count *= by_params_shape(a, i)[k];
    for (int k = 0; k < by_params_rank(b, to); k++)
        other *= by_params_shape(b, to)[k];
    if (count != other)
        return base_fail(BY_ERR_FORMAT, "%s has %lld elements, expected %lld",
                         io_show(by_params_name(a, i)).text, (long long)count, (long long)other);
    float *values = base_alloc((size_t)count * sizeof *values);
    by_status s = values ? by_params_get(a, i, BY_SLOT_VALUE, values) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = by_params_set(j->both->params, to, BY_SLOT_VALUE, values);
    base_free(values);
    j->known[to] = true;
    return s;
}

/* Copies the values of a part to the parameters under this prefix. Parameters without a counterpart, such as
 * a pooler, are skipped. */
static by_status take_part(joining *j, const by_model *part, const char *prefix, bool bare)
{
    const char *own = model_prefix(part);
    const size_t n = strlen(own);
    for (int i = 0; i < by_params_count(part->params); i++) {
        const char *name = by_params_name(part->params, i);
        char *full = base_sprintf("%s%s", prefix, bare && strncmp(name, own, n) == 0 ? name + n : name);
        const int to = full ? by_params_find(j->both->params, full) : -1;
        const bool memory = full != NULL;
        base_free(full);
        if (!memory)
            return BY_ERR_MEMORY;
        if (to >= 0)
            BY_TRY(copy_values(j, part, i, to));
    }
    return BY_OK;
}

/* Only cross-attention parameters may be new. */
static by_status check_known(const joining *j)
{
    for (int i = 0; i < by_params_count(j->both->params); i++) {
        const char *name = by_params_name(j->both->params, i);
        if (!j->known[i] && !strstr(name, "cross") && strncmp(name, "enc_to_dec_proj", 15) != 0)
            return base_fail(BY_ERR_FORMAT, "neither the encoder nor the decoder has %s", io_show(name).text);
    }
    return BY_OK;
}

/* The end token replaces a missing padding token; the start token is that of the decoder. */
static void set_tokens(joining *j)
{
    const cJSON *first = cJSON_GetObjectItemCaseSensitive(j->decoder->json, "bos_token_id");
    const int end = by_model_eos(j->decoder);
    by_model_set_start(j->both, cJSON_IsNumber(first) && first->valueint >= 0 ? first->valueint : end);
    by_model_set_eos(j->both, end);
    if (by_model_pad(j->both) < 0)
        by_model_set_pad(j->both, end);
}

static by_status join(joining *j, uint64_t seed)
{
    BY_TRY(check_parts(j));
    BY_TRY(make_both(j, seed));
    BY_TRY(take_part(j, j->encoder, "encoder.", true));
    BY_TRY(take_part(j, j->decoder, "decoder.", false));
    BY_TRY(check_known(j));
    set_tokens(j);
    return BY_OK;
}

by_model *by_model_join(by_device *d, const char *encoder, const char *decoder, uint64_t seed)
{
    if (!d || !encoder || !decoder) {
        base_fail_missing(!d ? "device" : !encoder ? "encoder" : "decoder");
        return NULL;
    }
    base_error_clear();
    joining j = {0};
    j.encoder = by_model_open(d, encoder, &(by_model_spec){.new_head = true, .task = BY_TASK_FEATURES});
    j.decoder = j.encoder ? by_model_open(d, decoder, &(by_model_spec){0}) : NULL;
    j.both = j.decoder ? model_blank(d, BY_F32) : NULL;
    const by_status s = j.both ? join(&j, seed) : base_error_status();
    if (s != BY_OK) {
        by_model_free(j.both);
        j.both = NULL;
    }
    by_model_free(j.encoder);
    by_model_free(j.decoder);
    base_free(j.known);
    return j.both;
}
