/* post.c - the post-processors of tokenizer.json: which special tokens go around a text or a pair of texts.
 */
#include "text/pipeline.h"

static void template_free(by_template *t)
{
    for (int i = 0; i < t->count; i++)
        by_free(t->items[i].ids);
    by_free(t->items);
    *t = (by_template){0};
}

void by_post_free(by_post *p)
{
    template_free(&p->single);
    template_free(&p->pair);
    *p = (by_post){0};
}

/* Append an item; ids are copied. */
static by_status template_add(by_template *t, int sequence, int type_id, const int32_t *ids, int count)
{
    by_template_item *items = by_resize(t->items, (size_t)t->count + 1, sizeof(*items));
    if (!items)
        return BY_ERR_MEMORY;
    t->items = items;
    items[t->count] = (by_template_item){.sequence = sequence, .type_id = type_id, .count = count};
    if (count) {
        items[t->count].ids = by_alloc((size_t)count * sizeof(*ids));
        if (!items[t->count].ids)
            return BY_ERR_MEMORY;
        memcpy(items[t->count].ids, ids, (size_t)count * sizeof(*ids));
    }
    t->count++;
    return BY_OK;
}

static by_status need_no_template(by_post *p)
{
    if (p->has_template)
        return by_fail(BY_ERR_UNSUPPORTED, "two post-processors that add special tokens are not supported");
    p->has_template = true;
    return BY_OK;
}

/* ---- templates ------------------------------------------------------------------------------- */

static by_status add_special(const cJSON *specials, const char *name, int type_id, by_template *out)
{
    const cJSON *entry = specials ? specials->child : NULL;
    while (entry && strcmp(entry->string, name) != 0)
        entry = entry->next;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(entry, "ids");
    int32_t ids[64];
    int count = 0;
    if (!cJSON_IsArray(list))
        return by_fail(BY_ERR_FORMAT, "a template uses the special token \"%.60s\", which it does not define",
                       name);
    for (const cJSON *item = list->child; item; item = item->next) {
        if (count == BY_COUNT(ids) || !cJSON_IsNumber(item) ||
            !(item->valuedouble >= 0 && item->valuedouble < (1 << 24)))
            return by_fail(BY_ERR_FORMAT, "the special token \"%.60s\" of a template has bad ids", name);
        ids[count++] = (int32_t)item->valuedouble;
    }
    return template_add(out, -1, type_id, ids, count);
}

static by_status read_template(const cJSON *list, const cJSON *specials, by_template *out)
{
    if (!cJSON_IsArray(list))
        return by_fail(BY_ERR_FORMAT, "a TemplateProcessing has no \"single\" or no \"pair\" list");
    for (const cJSON *item = list->child; item; item = item->next) {
        const cJSON *sequence = cJSON_GetObjectItemCaseSensitive(item, "Sequence");
        const cJSON *special = cJSON_GetObjectItemCaseSensitive(item, "SpecialToken");
        const cJSON *body = sequence ? sequence : special;
        const char *id = by_stage_string(body, "id");
        const cJSON *type = cJSON_GetObjectItemCaseSensitive(body, "type_id");
        double type_id = cJSON_IsNumber(type) ? type->valuedouble : 0;
        if (!id || !(type_id >= 0 && type_id < 256) || out->count > 1000)
            return by_fail(BY_ERR_FORMAT,
                           "a template has an item that is neither a sequence nor a special token");
        if (special)
            BY_TRY(add_special(specials, id, (int)type_id, out));
        else if (strcmp(id, "A") == 0 || strcmp(id, "B") == 0)
            BY_TRY(template_add(out, id[0] - 'A', (int)type_id, NULL, 0));
        else
            return by_fail(BY_ERR_FORMAT, "a template names the unknown sequence \"%.20s\"", id);
    }
    return BY_OK;
}

static by_status read_template_processing(const cJSON *json, by_post *out)
{
    static const char *const keys[] = {"type", "single", "pair", "special_tokens"};
    BY_TRY(by_json_only(json, "a TemplateProcessing", keys, BY_COUNT(keys)));
    BY_TRY(need_no_template(out));
    const cJSON *specials = cJSON_GetObjectItemCaseSensitive(json, "special_tokens");
    BY_TRY(read_template(cJSON_GetObjectItemCaseSensitive(json, "single"), specials, &out->single));
    return read_template(cJSON_GetObjectItemCaseSensitive(json, "pair"), specials, &out->pair);
}

/* ---- BERT and RoBERTa ------------------------------------------------------------------------ */

/* ["[SEP]", 102] */
static by_status read_pair(const cJSON *json, const char *key, int32_t *id)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, key);
    const cJSON *number = cJSON_IsArray(list) && list->child ? list->child->next : NULL;
    if (!cJSON_IsNumber(number) || !(number->valuedouble >= 0 && number->valuedouble < (1 << 24)))
        return by_fail(BY_ERR_FORMAT, "a post-processor has no token and id under \"%s\"", key);
    *id = (int32_t)number->valuedouble;
    return BY_OK;
}

/* cls A sep, and for pairs cls A sep B sep (BERT, the second half of type 1) or cls A sep sep B sep
 * (RoBERTa). */
static by_status read_bert(const cJSON *json, bool roberta, by_post *out)
{
    int32_t sep, cls;
    int second = roberta ? 0 : 1;
    BY_TRY(need_no_template(out));
    BY_TRY(read_pair(json, "sep", &sep));
    BY_TRY(read_pair(json, "cls", &cls));
    BY_TRY(template_add(&out->single, -1, 0, &cls, 1));
    BY_TRY(template_add(&out->single, 0, 0, NULL, 0));
    BY_TRY(template_add(&out->single, -1, 0, &sep, 1));
    BY_TRY(template_add(&out->pair, -1, 0, &cls, 1));
    BY_TRY(template_add(&out->pair, 0, 0, NULL, 0));
    BY_TRY(template_add(&out->pair, -1, 0, &sep, 1));
    if (roberta)
        BY_TRY(template_add(&out->pair, -1, 0, &sep, 1));
    BY_TRY(template_add(&out->pair, 1, second, NULL, 0));
    return template_add(&out->pair, -1, second, &sep, 1);
}

static by_status read_trim(const cJSON *json, by_post *out)
{
    BY_TRY(by_stage_bool(json, "trim_offsets", true, &out->trim));
    return by_stage_bool(json, "add_prefix_space", true, &out->trim_prefix_space);
}

static by_status read_post(const cJSON *json, const char *type, void *context)
{
    by_post *out = context;
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template_processing(json, out);
    if (strcmp(type, "BertProcessing") == 0) {
        static const char *const keys[] = {"type", "sep", "cls"};
        BY_TRY(by_json_only(json, type, keys, BY_COUNT(keys)));
        return read_bert(json, false, out);
    }
    if (strcmp(type, "RobertaProcessing") == 0) {
        static const char *const keys[] = {"type", "sep", "cls", "trim_offsets", "add_prefix_space"};
        BY_TRY(by_json_only(json, type, keys, BY_COUNT(keys)));
        BY_TRY(read_trim(json, out));
        return read_bert(json, true, out);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        static const char *const keys[] = {"type", "add_prefix_space", "trim_offsets", "use_regex"};
        BY_TRY(by_json_only(json, "a ByteLevel post-processor", keys, BY_COUNT(keys)));
        return read_trim(json, out);
    }
    return by_fail(BY_ERR_UNSUPPORTED, "post-processors of type \"%.60s\" are not supported", type);
}

by_status by_post_read(const cJSON *json, by_post *out)
{
    static const by_sequence all = {"post-processors", "processors", read_post};
    return by_sequence_read(json, &all, out);
}
