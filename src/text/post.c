/* post.c - the post-processors of tokenizer.json: which special tokens are added to a text or a pair of
 * texts. Each takes a list of sequences and makes another; at the end they are joined. None looks at the
 * tokens except to trim their ranges, so reading a file can pass symbols through them. The result is one
 * template for a text and one for a pair, each with and without special tokens. */
#include "text/pipeline.h"

/* ---- items and templates --------------------------------------------------------------------- */

static void template_free(tok_template *t)
{
    for (int i = 0; i < t->count; i++)
        base_free(t->items[i].ids);
    base_free(t->items);
    *t = (tok_template){0};
}

void tok_post_free(tok_post *p)
{
    for (int i = 0; i < 4; i++)
        template_free(&p->forms[i / 2][i % 2]);
    *p = (tok_post){0};
}

/* Inserts an item before the one at `at`; ids are copied. */
static by_status template_insert(tok_template *t, int at, const tok_template_item *item)
{
    tok_template_item *items = base_resize(t->items, (size_t)t->count + 1, sizeof(*items));
    if (!items)
        return BY_ERR_MEMORY;
    t->items = items;
    int32_t *ids = NULL;
    if (item->count && !(ids = base_alloc((size_t)item->count * sizeof(*ids))))
        return BY_ERR_MEMORY;
    if (ids)
        memcpy(ids, item->ids, (size_t)item->count * sizeof(*ids));
    memmove(items + at + 1, items + at, (size_t)(t->count - at) * sizeof(*items));
    items[at] = *item;
    items[at].ids = ids;
    t->count++;
    return BY_OK;
}

static by_status template_add(tok_template *t, int sequence, int type_id, const int32_t *ids, int count)
{
    tok_template_item item = {
        .sequence = sequence, .type_id = type_id, .ids = (int32_t *)ids, .count = count};
    return template_insert(t, t->count, &item);
}

static size_t count_added(const tok_template *t)
{
    size_t added = 0;
    for (int i = 0; i < t->count; i++)
        added += (size_t)t->items[i].count;
    return added;
}

/* ---- sequences between post-processors ------------------------------------------------------- */

/* A list of sequences, each a template. */
typedef struct strips {
    tok_template *data;
    int count;
    bool special; /* whether special tokens are requested */
    size_t added;
    const char *bad;
} strips;

static void strips_free(strips *v)
{
    for (int i = 0; i < v->count; i++)
        template_free(&v->data[i]);
    base_free(v->data);
    *v = (strips){0};
}

/* Appends an empty sequence. Returns NULL on failure. */
static tok_template *strips_add(strips *v)
{
    tok_template *data = base_resize(v->data, (size_t)v->count + 1, sizeof(*data));
    if (!data)
        return NULL;
    v->data = data;
    data[v->count] = (tok_template){0};
    return &data[v->count++];
}

static void set_types(tok_template *t, int type)
{
    for (int i = 0; i < t->count; i++)
        t->items[i].type_id = type;
}

/* Trims the ranges of all tokens. */
static void trim(strips *v, bool prefix_space)
{
    for (int i = 0; i < v->count; i++)
        for (int k = 0; k < v->data[i].count; k++) {
            tok_template_item *item = &v->data[i].items[k];
            if (item->sequence >= 0 && item->trim_count < TOK_MAX_POSTS)
                item->trims[item->trim_count++] =
                    (uint8_t)((prefix_space ? TOK_TRIM_PREFIX_SPACE : 0) | (k == 0 ? TOK_TRIM_FIRST : 0));
        }
}

/* A template makes one sequence from each of its items. */
static by_status apply_template(strips *v, const tok_template *one, const tok_template *two, bool paired)
{
    const tok_template *t = v->count == 1 ? one : two;
    strips made = {.special = v->special, .added = v->added + count_added(paired ? two : one), .bad = v->bad};
    by_status status = BY_OK;
    if (v->count < 1 || v->count > 2)
        made.bad =
            "a TemplateProcessing takes one or two sequences, not the output of the previous post-processor";
    for (int i = 0; i < t->count && status == BY_OK && !made.bad; i++) {
        const tok_template_item *item = &t->items[i];
        if (item->sequence < 0 && !v->special)
            continue;
        if (item->sequence >= v->count) {
            made.bad = "the template for one text uses the sequence B";
            break;
        }
        tok_template *strip = strips_add(&made);
        if (!strip)
            status = BY_ERR_MEMORY;
        else if (item->sequence < 0)
            status = template_insert(strip, 0, item);
        for (int k = 0; strip && item->sequence >= 0 && k < v->data[item->sequence].count; k++)
            if (status == BY_OK)
                status = template_insert(strip, k, &v->data[item->sequence].items[k]);
        if (strip && item->sequence >= 0)
            set_types(strip, item->type_id);
    }
    strips_free(v);
    *v = made;
    return status;
}

/* cls A sep; for pairs cls A sep B sep (BERT, the second half with type 1) or cls A sep sep B sep (RoBERTa,
 * all with type 0). */
static by_status apply_bert(strips *v, bool roberta, int32_t cls, int32_t sep, bool paired)
{
    v->added += paired ? (roberta ? 4u : 3u) : 2u;
    for (int i = 0; i < v->count; i++) {
        tok_template *t = &v->data[i];
        tok_template_item open = {.sequence = -1, .ids = i ? &sep : &cls, .count = 1};
        if (roberta)
            set_types(t, 0);
        if (!v->special)
            continue;
        if (i == 0 || roberta)
            BY_TRY(template_insert(t, 0, &open));
        BY_TRY(template_add(t, -1, i && !roberta, &sep, 1));
    }
    return BY_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reading {
    strips lists[2][2]; /* [pair][special] */
    int count;          /* post-processors */
    bool trims;
} reading;

static by_status add_special(const cJSON *specials, const char *name, int type_id, tok_template *out)
{
    const cJSON *entry = specials ? specials->child : NULL;
    while (entry && strcmp(entry->string, name) != 0)
        entry = entry->next;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(entry, "ids");
    int32_t ids[64];
    int count = 0;
    if (!cJSON_IsArray(list))
        return base_fail(BY_ERR_FORMAT,
                         "a template uses the special token \"%.60s\", which it does not define", name);
    for (const cJSON *item = list->child; item; item = item->next) {
        if (count == BY_COUNT(ids) || !cJSON_IsNumber(item) ||
            !(item->valuedouble >= 0 && item->valuedouble < (1 << 24)))
            return base_fail(BY_ERR_FORMAT, "the special token \"%.60s\" of a template has invalid ids",
                             name);
        ids[count++] = (int32_t)item->valuedouble;
    }
    return template_add(out, -1, type_id, ids, count);
}

static by_status read_template(const cJSON *list, const cJSON *specials, tok_template *out)
{
    if (!cJSON_IsArray(list))
        return base_fail(BY_ERR_FORMAT, "a TemplateProcessing has no \"single\" or no \"pair\" list");
    for (const cJSON *item = list->child; item; item = item->next) {
        const cJSON *sequence = cJSON_GetObjectItemCaseSensitive(item, "Sequence");
        const cJSON *special = cJSON_GetObjectItemCaseSensitive(item, "SpecialToken");
        const cJSON *body = sequence ? sequence : special;
        const char *id = tok_stage_string(body, "id");
        const cJSON *type = cJSON_GetObjectItemCaseSensitive(body, "type_id");
        double type_id = cJSON_IsNumber(type) ? type->valuedouble : 0;
        if (!id || !(type_id >= 0 && type_id < 256) || out->count > 1000)
            return base_fail(BY_ERR_FORMAT,
                             "a template has an item that is neither a sequence nor a special token");
        if (special)
            BY_TRY(add_special(specials, id, (int)type_id, out));
        else if (strcmp(id, "A") == 0 || strcmp(id, "B") == 0)
            BY_TRY(template_add(out, id[0] - 'A', (int)type_id, NULL, 0));
        else
            return base_fail(BY_ERR_FORMAT, "a template names the unknown sequence \"%.20s\"", id);
    }
    return BY_OK;
}

static by_status read_template_processing(const cJSON *json, reading *out)
{
    static const char *const keys[] = {"type", "single", "pair", "special_tokens"};
    BY_TRY(tok_json_only(json, "a TemplateProcessing", keys, BY_COUNT(keys)));
    const cJSON *specials = cJSON_GetObjectItemCaseSensitive(json, "special_tokens");
    tok_template one = {0}, two = {0};
    by_status status = read_template(cJSON_GetObjectItemCaseSensitive(json, "single"), specials, &one);
    if (status == BY_OK)
        status = read_template(cJSON_GetObjectItemCaseSensitive(json, "pair"), specials, &two);
    for (int i = 0; i < 4 && status == BY_OK; i++)
        status = apply_template(&out->lists[i / 2][i % 2], &one, &two, i / 2);
    template_free(&one);
    template_free(&two);
    return status;
}

/* ["[SEP]", 102] */
static by_status read_pair(const cJSON *json, const char *key, int32_t *id)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, key);
    const cJSON *number = cJSON_IsArray(list) && list->child ? list->child->next : NULL;
    if (!cJSON_IsNumber(number) || !(number->valuedouble >= 0 && number->valuedouble < (1 << 24)))
        return base_fail(BY_ERR_FORMAT, "a post-processor has no token and id under \"%s\"", key);
    *id = (int32_t)number->valuedouble;
    return BY_OK;
}

static by_status read_bert(const cJSON *json, bool roberta, reading *out)
{
    int32_t sep, cls;
    BY_TRY(read_pair(json, "sep", &sep));
    BY_TRY(read_pair(json, "cls", &cls));
    for (int i = 0; i < 4; i++)
        BY_TRY(apply_bert(&out->lists[i / 2][i % 2], roberta, cls, sep, i / 2));
    return BY_OK;
}

static by_status read_trim(const cJSON *json, reading *out)
{
    bool trims, prefix_space;
    BY_TRY(tok_stage_bool(json, "trim_offsets", true, &trims));
    BY_TRY(tok_stage_bool(json, "add_prefix_space", true, &prefix_space));
    out->trims = out->trims || trims;
    for (int i = 0; i < 4 && trims; i++)
        trim(&out->lists[i / 2][i % 2], prefix_space);
    return BY_OK;
}

static by_status read_post(const cJSON *json, const char *type, void *context)
{
    reading *out = context;
    if (++out->count > TOK_MAX_POSTS)
        return base_fail(BY_ERR_UNSUPPORTED, "more than %d post-processors are not supported", TOK_MAX_POSTS);
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template_processing(json, out);
    if (strcmp(type, "BertProcessing") == 0) {
        static const char *const keys[] = {"type", "sep", "cls"};
        BY_TRY(tok_json_only(json, type, keys, BY_COUNT(keys)));
        return read_bert(json, false, out);
    }
    if (strcmp(type, "RobertaProcessing") == 0) {
        static const char *const keys[] = {"type", "sep", "cls", "trim_offsets", "add_prefix_space"};
        BY_TRY(tok_json_only(json, type, keys, BY_COUNT(keys)));
        BY_TRY(read_trim(json, out));
        return read_bert(json, true, out);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        static const char *const keys[] = {"type", "add_prefix_space", "trim_offsets", "use_regex"};
        BY_TRY(tok_json_only(json, "a ByteLevel post-processor", keys, BY_COUNT(keys)));
        return read_trim(json, out);
    }
    return base_fail(BY_ERR_UNSUPPORTED, "post-processors of type \"%.60s\" are not supported", type);
}

/* Starts with the text, or the text and its pair, each as a sequence. */
static by_status begin(strips *v, bool paired, bool special)
{
    v->special = special;
    for (int i = 0; i < (paired ? 2 : 1); i++) {
        tok_template *t = strips_add(v);
        if (!t)
            return BY_ERR_MEMORY;
        BY_TRY(template_add(t, i, i, NULL, 0));
    }
    return BY_OK;
}

/* Join the sequences. */
static by_status finish(const strips *v, tok_template *out)
{
    for (int i = 0; i < v->count; i++)
        for (int k = 0; k < v->data[i].count; k++)
            BY_TRY(template_insert(out, out->count, &v->data[i].items[k]));
    out->added = v->special ? v->added : 0;
    out->bad = v->bad;
    return BY_OK;
}

by_status tok_post_read(const cJSON *json, tok_post *out)
{
    static const tok_sequence all = {"post-processors", "processors", read_post};
    reading r = {.count = 0};
    by_status status = BY_OK;
    for (int i = 0; i < 4 && status == BY_OK; i++)
        status = begin(&r.lists[i / 2][i % 2], i / 2, i % 2);
    if (status == BY_OK)
        status = tok_sequence_read(json, &all, &r);
    out->trims = r.trims;
    for (int i = 0; i < 4; i++) {
        if (status == BY_OK)
            status = finish(&r.lists[i / 2][i % 2], &out->forms[i / 2][i % 2]);
        strips_free(&r.lists[i / 2][i % 2]);
    }
    return status;
}
