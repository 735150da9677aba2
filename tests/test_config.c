/* test_config.c - config.json: every key that the reference library knows is honoured, harmless or refused by
 * name (tests/data/config_keys.json has its lists), with its defaults, under all its names; and a file that
 * is written again keeps its values and their types. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <math.h>

#include "base/json.h"
#include "folder.h"
#include "model/model.h"

static by_device *device;
static cJSON *reference;

static int set_up(void **state)
{
    (void)state;
    reference = base_json_load(BY_SOURCE_DIR "/tests/data/config_keys.json");
    device = by_device_open("cpu", 1);
    return reference && device && make_root("config") ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    cJSON_Delete(reference);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

/* A model as far as its configuration goes: text is that of config.json. */
static by_status read_config(by_model *m, const char *text, bool training)
{
    *m = (by_model){.device = device};
    write_text("config.json", text);
    return model_config_read(m, root, &(by_model_spec){.training = training});
}

static void drop_config(by_model *m)
{
    cJSON_Delete(m->json);
    model_strings_free(m->label_names, m->labels);
    base_free(m->config);
    *m = (by_model){0};
}

static void refuse(const char *text, bool training, const char *part)
{
    by_model m;
    if (read_config(&m, text, training) == BY_OK)
        fail_msg("%s is accepted", text);
    if (!strstr(by_error_message(), part))
        fail_msg("%s: \"%s\" does not hold \"%s\"", text, by_error_message(), part);
    drop_config(&m);
}

/* ---- the reference's keys -------------------------------------------------------------------- */

/* The records of all families, variants too; NULL past the last. */
static const arch_family *record_at(int i)
{
    for (int k = 0; k < arch_count(); k++) {
        const arch_family *a = arch_at(k);
        if (i-- == 0)
            return a;
        for (const arch_family *const *v = a->variants; v && *v; v++)
            if (i-- == 0)
                return *v;
    }
    return NULL;
}

/* "family", and of variants "family/decoder". */
static const cJSON *family_of(const arch_family *a)
{
    const cJSON *families = cJSON_GetObjectItemCaseSensitive(reference, "families");
    char name[80];
    const bool variant = a->text_type && !a->variants;
    snprintf(name, sizeof name, "%s%s%s", a->family, variant ? "/" : "", variant ? a->text_type : "");
    return cJSON_GetObjectItemCaseSensitive(families, name);
}

/* The value of a key, "part.key" in a nested configuration. */
static const cJSON *value_of(const cJSON *keys, const char *key)
{
    char part[64];
    const char *dot = strchr(key, '.');
    if (!dot)
        return cJSON_GetObjectItemCaseSensitive(keys, key);
    snprintf(part, sizeof part, "%.*s", (int)(dot - key), key);
    return cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(keys, part), dot + 1);
}

/* Every key of a nested configuration that is read. */
static void parts_are_known(const arch_family *a, const cJSON *part)
{
    const cJSON *key;
    const size_t n = strlen(part->string);
    bool read = false;
    for (int i = 0; i < a->n_fields; i++)
        read = read || (strncmp(a->fields[i].key, part->string, n) == 0 && a->fields[i].key[n] == '.');
    cJSON_ArrayForEach(key, part)
    {
        char name[128];
        snprintf(name, sizeof name, "%s.%s", part->string, key->string ? key->string : "");
        if (read && !arch_key_known(a, name))
            fail_msg("%s: nothing is said about \"%s\"", a->family, name);
    }
}

static void keys_are_known(const arch_family *a, const cJSON *keys)
{
    const cJSON *key;
    cJSON_ArrayForEach(key, keys)
    {
        if (!arch_key_known(a, key->string))
            fail_msg("%s: nothing is said about \"%s\"", a->title, key->string);
        parts_are_known(a, key);
    }
}

static void test_every_key_is_known(void **state)
{
    (void)state;
    int families = 0;
    const arch_family *a;
    for (int i = 0; (a = record_at(i)); i++) {
        const cJSON *key, *f = family_of(a);
        if (!f)
            continue;
        families++;
        keys_are_known(a, cJSON_GetObjectItemCaseSensitive(f, "keys"));
        if (a->classifier)
            keys_are_known(a->classifier, cJSON_GetObjectItemCaseSensitive(f, "keys"));
        cJSON_ArrayForEach(key, cJSON_GetObjectItemCaseSensitive(f, "aliases"))
        {
            const arch_alias *l = a->aliases;
            while (l && l->key && strcmp(l->key, key->string) != 0)
                l++;
            if (!l || !l->key || strcmp(l->field, key->valuestring) != 0)
                fail_msg("%s: \"%s\" is not known as a name of \"%s\"", a->family, key->string,
                         key->valuestring);
        }
    }
    assert_int_equal(families, cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(reference, "families")));
}

/* A field as it is after a file that says nothing. */
static bool has_default(const arch_field *f, const void *config, const cJSON *want)
{
    const char *at = (const char *)config + f->offset;
    switch (f->kind) {
    case ARCH_FIELD_INT:
        return cJSON_IsNull(want) || *(const int *)at == want->valueint;
    case ARCH_FIELD_PAIR:
        return ((const int *)at)[0] == want->valueint && ((const int *)at)[1] == want->valueint;
    case ARCH_FIELD_FLOAT:
        return cJSON_IsNull(want) ? *(const float *)at < 0 : *(const float *)at == (float)want->valuedouble;
    case ARCH_FIELD_BOOL:
        return *(const bool *)at == (bool)cJSON_IsTrue(want);
    case ARCH_FIELD_ACT: {
        by_act act;
        return arch_act_parse(want->valuestring, &act) && act == *(const by_act *)at;
    }
    case ARCH_FIELD_CHOICE:
        return strcmp(arch_choice_word(f->role, *(const int *)at), want->valuestring) == 0;
    }
    return false;
}

static int id_of(const arch_family *a, const cJSON *keys, const char *key)
{
    const cJSON *part = a->text_part ? cJSON_GetObjectItemCaseSensitive(keys, a->text_part) : NULL;
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(part ? part : keys, key);
    return cJSON_IsNumber(v) ? v->valueint : -1;
}

static void test_defaults(void **state)
{
    (void)state;
    const arch_family *a;
    for (int i = 0; (a = record_at(i)); i++) {
        const cJSON *keys = cJSON_GetObjectItemCaseSensitive(family_of(a), "keys");
        if (!keys)
            continue;
        char text[120];
        by_model m;
        snprintf(text, sizeof text, "{\"model_type\": \"%s\", \"decoder\": {\"model_type\": \"%s\"}}",
                 a->family, a->text_type ? a->text_type : "");
        if (read_config(&m, text, false) != BY_OK)
            fail_msg("%s: %s", a->family, by_error_message());
        for (int k = 0; k < a->n_fields; k++) {
            const cJSON *want = value_of(keys, a->fields[k].key);
            const bool derived = strcmp(a->fields[k].key, "decoder_vocab_size") == 0;
            if (want && !derived && !has_default(&a->fields[k], m.config, want))
                fail_msg("%s: the default of %s is another", a->family, a->fields[k].key);
        }
        assert_int_equal(m.eos, id_of(a, keys, "eos_token_id"));
        assert_int_equal(m.pad, id_of(a, keys, "pad_token_id"));
        assert_int_equal(m.start, id_of(a, keys, "decoder_start_token_id"));
        assert_int_equal(m.labels, cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(keys, "id2label")));
        drop_config(&m);
    }
}

/* ---- what cannot be honoured ----------------------------------------------------------------- */

static void test_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *family, *member, *part;
    } cases[] = {
        {"gpt2", "\"add_cross_attention\": true", "\"add_cross_attention\" is true"},
        {"bert", "\"position_embedding_type\": \"relative_key\"",
         "\"position_embedding_type\" is \"relative_key\""},
        {"vit", "\"patch_size\": [4, 2]", "patches of 4 x 2 pixels are not square"},
        {"vit", "\"image_size\": [224]", "\"image_size\" must be a number or a list of two"},
        {"vit", "\"image_size\": [224, 20.5]", "\"image_size\" must be a number or a list of two"},
        {"vit", "\"image_size\": [32, 24]",
         "pictures of 32 x 24 pixels are not a whole number of patches of 16"},
        {"bert", "\"pruned_heads\": {\"1\": [0]}", "\"pruned_heads\" is {\"1\":[0]}"},
        {"bert", "\"quantization_config\": {\"bits\": 4}", "\"quantization_config\""},
        {"bert", "\"hidden_act\": \"xielu\"", "unknown activation \"xielu\""},
        {"bert", "\"architectures\": [\"BertLMHeadModel\"]", "\"is_decoder\" not true"},
        {"distilbert", "\"is_decoder\": true", "\"is_decoder\" is true"},
        {"roberta", "\"pad_token_id\": null", "pad_token_id is null"},
        {"transfo-xl", "\"attn_type\": 1", "\"attn_type\" is 1"},
        {"transfo-xl", "\"vocab_size\": 90, \"cutoffs\": [40, 30]", "increasing whole numbers"},
        {"transfo-xl", "\"vocab_size\": 90, \"cutoffs\": [40, 90]", "below vocab_size, 90"},
        {"transfo-xl", "\"vocab_size\": 90, \"cutoffs\": [1, 2, 3, 4, 5]", "more than 4"},
        {"transfo-xl", "\"vocab_size\": 90, \"cutoffs\": [9], \"d_embed\": 2, \"div_val\": 4",
         "leaves no width"},
        {"gptj", "\"rotary_dim\": null", "rotary_dim null"},
        {"gptj", "\"rotary_dim\": 63", "rotary_dim is 63"},
        {"xlm", "\"asm\": true", "\"asm\" is true"},
        {"xlm", "\"is_encoder\": false", "\"is_encoder\" is false"},
        {"xlm", "\"summary_type\": \"attn\"", "summary_type \"attn\""},
        {"xlm", "\"summary_activation\": \"prelu\"", "summary_activation \"prelu\""},
        {"xlm", "\"architectures\": [\"XLMForSequenceClassification\"], \"summary_use_proj\": false",
         "\"summary_use_proj\" is false"},
        {"xlnet", "\"attn_type\": \"tri\"", "attn_type \"tri\""},
        {"xlnet", "\"d_head\": 7", "d_head 7"},
        {"bart", "\"is_encoder_decoder\": false", "\"is_encoder_decoder\" is false"},
        {"t5", "\"is_decoder\": true", "\"is_decoder\" is true"},
        {"t5", "\"feed_forward_proj\": \"gated-swoosh\"", "\"swoosh\""},
        {"bart", "\"is_decoder\": true", "\"is_decoder\" is true"},
        {"gpt2", "\"n_head\": 4, \"num_attention_heads\": 2", "\"n_head\" and \"num_attention_heads\""},
        {"llama", "\"rope_scaling\": {\"rope_type\": \"spiral\"}", "rope_type \"spiral\""},
        {"llama", "\"rope_scaling\": {\"type\": \"linear\"}", "needs a factor"},
        {"llama", "\"rope_scaling\": \"linear\"", "\"rope_scaling\" is not an object"},
        {"llama", "\"rope_parameters\": 2", "\"rope_parameters\" is not an object"},
        {"llama", "\"num_attention_heads\": 4, \"num_key_value_heads\": 3",
         "num_attention_heads (4) is not a multiple of num_key_value_heads (3)"},
        {"llama", "\"hidden_size\": 60, \"num_attention_heads\": 4", "head_dim is 15"},
        {"longformer", "\"attention_window\": 63", "the attention_window 63 of layer 0"},
        {"longformer", "\"attention_window\": [4, 4]", "attention_window has 2 entries for 12 layers"},
        {"longformer", "\"attention_window\": \"all\"", "attention_window is not a number"},
        {"big_bird", "\"attention_type\": \"linear\"", "attention_type is \"linear\""},
        {"linformer", "\"projection_sharing\": \"heads\"", "projection_sharing is \"heads\""},
        {"gpt2", "\"problem_type\": \"guess\"", "problem_type \"guess\""},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"model_type\": \"%s\", %s}", cases[i].family, cases[i].member);
        refuse(text, false, cases[i].part);
    }
    by_model m; /* layers that are left out at random matter in training alone */
    const char *dropped = "{\"model_type\": \"bart\", \"encoder_layerdrop\": 0.1, \"decoder_layerdrop\": 0}";
    refuse(dropped, true, "\"encoder_layerdrop\" is 0.1");
    assert_int_equal(read_config(&m, dropped, false), BY_OK);
    drop_config(&m);
    /* keys that nobody knows are nobody's business */
    assert_int_equal(read_config(&m, "{\"model_type\": \"gpt2\", \"my_own\": {\"x\": 1}}", true), BY_OK);
    drop_config(&m);
}

/* ---- names and types ------------------------------------------------------------------------- */

static void test_aliases(void **state)
{
    (void)state;
    by_model m;
    assert_int_equal(
        read_config(&m,
                    "{\"model_type\": \"gpt2\", \"hidden_size\": 48, \"num_attention_heads\": 3, "
                    "\"num_hidden_layers\": 2, \"max_position_embeddings\": 17, \"n_embd\": 48}",
                    false),
        BY_OK);
    assert_int_equal(by_model_width(&m), 48);
    assert_int_equal(by_model_heads(&m), 3);
    assert_int_equal(by_model_layers(&m), 2);
    assert_int_equal(by_model_context(&m), 17);
    drop_config(&m);
    assert_int_equal(
        read_config(&m, "{\"model_type\": \"xlm\", \"n_words\": 99, \"pad_index\": 7, \"eos_index\": 8}",
                    false),
        BY_OK);
    assert_int_equal(by_model_vocab(&m), 99);
    assert_int_equal(by_model_pad(&m), 7);
    assert_int_equal(by_model_eos(&m), 8);
    drop_config(&m);
    assert_int_equal(read_config(&m,
                                 "{\"model_type\": \"t5\", \"head_dim\": 5, \"num_layers\": null, "
                                 "\"num_hidden_layers\": 3}",
                                 false),
                     BY_OK);
    assert_int_equal(by_model_layers(&m), 3);
    drop_config(&m);
}

static void test_class_without_a_type(void **state)
{
    (void)state;
    static const struct {
        const char *class, *family;
        by_task task;
    } cases[] = {{"GPT2LMHeadModel", "gpt2", BY_TASK_LM},
                 {"BertForMaskedLM", "bert", BY_TASK_MLM},
                 {"CamembertForMaskedLM", "camembert", BY_TASK_MLM},
                 {"MT5EncoderModel", "mt5", BY_TASK_ENCODER},
                 {"BartForSequenceClassification", "bart", BY_TASK_CLASSIFY}};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        char text[100];
        by_model m;
        snprintf(text, sizeof text, "{\"architectures\": [\"%s\"]}", cases[i].class);
        if (read_config(&m, text, false) != BY_OK)
            fail_msg("%s", by_error_message());
        assert_string_equal(m.arch->family, cases[i].family);
        assert_int_equal(m.task, cases[i].task);
        drop_config(&m);
    }
    refuse("{\"architectures\": [\"NobodysModel\"]}", false, "\"NobodysModel\"");
    refuse("{\"vocab_size\": 3}", false, "model_type");
    refuse("{\"model_type\": \"vision-encoder-decoder\", \"decoder\": {\"model_type\": \"bart\"}}", false,
           "unknown decoder \"bart\"; available: gpt2, bert, roberta");
}

/* What is written again has the values and the types it had. */
static void test_types_stay(void **state)
{
    (void)state;
    by_model m;
    const char *text =
        "{\"model_type\":\"bart\",\"architectures\":[\"BartForConditionalGeneration\"],"
        "\"d_model\":16,\"encoder_attention_heads\":2,\"decoder_attention_heads\":2,"
        "\"init_std\":1.0,\"dropout\":0,\"attention_dropout\":0.0,\"activation_dropout\":1e-1,"
        "\"activation_function\":\"gelu_python\",\"pad_token_id\":1,\"decoder_start_token_id\":2,"
        "\"is_encoder_decoder\":true,\"length_penalty\":2.0,\"eos_token_id\":[2,3],"
        "\"mine\":[1.0,1,-0.0,1e5],\"dtype\":\"float32\"}";
    assert_int_equal(read_config(&m, text, false), BY_OK);
    cJSON *json = model_config_json(&m, BY_F32);
    assert_non_null(json);
    base_buf out = {0};
    assert_int_equal(base_json_print(&out, json, false), BY_OK);
    assert_string_equal(out.data, text);
    base_buf_free(&out);
    cJSON_Delete(json);
    by_model_set_dropout(&m, 0.25); /* and a value that changes is a float */
    arch_config_set(m.arch, m.config, ARCH_ROLE_DROPOUT, 0);
    json = model_config_json(&m, BY_F32);
    assert_int_equal(base_json_print(&out, json, false), BY_OK);
    assert_non_null(strstr(out.data, "\"dropout\":0,"));
    base_buf_free(&out);
    cJSON_Delete(json);
    by_model_set_dropout(&m, 0.25);
    json = model_config_json(&m, BY_F32);
    assert_int_equal(base_json_print(&out, json, false), BY_OK);
    assert_non_null(strstr(out.data, "\"dropout\":0.25,"));
    base_buf_free(&out);
    cJSON_Delete(json);
    drop_config(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_key_is_known),   cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_refused_by_name),      cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_class_without_a_type), cmocka_unit_test(test_types_stay),
    };
    return cmocka_run_group_tests_name("config", tests, set_up, tear_down);
}
