/* test_checkpoints.c - the same model under every spelling it has had, from PyTorch files too; and
 * checkpoints converted: types, shards, what comes along, and what a failure leaves behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "banyan/banyan.h"
#include "base/file.h"
#include "graph/graph.h"
#include "model/model.h"
#include "base/json.h"
#include "torch_file.h"

enum { MAX_TENSORS = 64 };

static by_device *device;
static char root[300];
static const by_model_shape tiny = {
    .layers = 2, .heads = 2, .width = 8, .context = 6, .vocab = 13, .dropout = 0.1};

static const char *in_root(const char *name)
{
    static char paths[32][400];
    static int next;
    char *path = paths[next++ % 32];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "%s/banyan-checkpoints-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    device = by_device_open("cpu", 1);
    return mkdtemp(root) && device ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

static void assert_failed(by_status status, const char *text)
{
    if (base_error_status() != status || !strstr(by_error_message(), text))
        fail_msg("expected status %d and \"%s\", got %d: %s", (int)status, text, (int)base_error_status(),
                 by_error_message());
}

static void refuse(const char *dir, by_status status, const char *text)
{
    by_model *m = by_model_open(device, dir, &(by_model_spec){0});
    if (m)
        fail_msg("opened, where \"%s\" was expected", text);
    assert_failed(status, text);
}

/* A model and the tensors of its saved file, to be spelled in another way. */
typedef struct sample {
    by_model *model;
    by_weights *file;
    by_weight list[MAX_TENSORS];
    int count;
} sample;

static sample sample_of(const char *family)
{
    sample s = {0};
    s.model = by_model_new(device, family, &tiny, &(by_model_spec){.seed = 21});
    assert_non_null(s.model);
    by_params *p = by_model_params(s.model);
    for (int i = 0; i < p->count; i++) { /* norms away from one and zero: a mix-up must show */
        float *v = base_alloc((size_t)p->list[i].count * sizeof *v);
        for (int64_t k = 0; k < p->list[i].count; k++)
            v[k] = (float)(i + 1) + (float)k / 1024;
        assert_int_equal(by_params_set(p, i, BY_SLOT_VALUE, v), BY_OK);
        base_free(v);
    }
    assert_int_equal(by_model_save(s.model, in_root("sample"), BY_F32), BY_OK);
    assert_int_equal(by_model_save(s.model, in_root("spelled"), BY_F32), BY_OK);
    s.file = by_weights_open(in_root("sample"));
    assert_non_null(s.file);
    s.count = by_weights_count(s.file);
    for (int i = 0; i < s.count; i++)
        s.list[i] = *by_weights_at(s.file, i);
    return s;
}

static void sample_free(sample *s)
{
    by_weights_free(s->file);
    by_model_free(s->model);
}

static by_weight *tensor(sample *s, const char *name)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->list[i].name, name) == 0)
            return &s->list[i];
    fail_msg("no %s", name);
    return NULL;
}

static void write_sample(const sample *s)
{
    assert_int_equal(by_weights_write(in_root("spelled/model.safetensors"), s->list, s->count, NULL), BY_OK);
}

/* The directory opens, mapped, copied and for training, to the model's own values. */
static void same_model(const by_model *m, const char *dir)
{
    by_model_spec specs[] = {{0}, {.copy = true}, {.training = true}};
    for (int k = 0; k < BY_COUNT(specs); k++) {
        by_model *again = by_model_open(device, dir, &specs[k]);
        if (!again)
            fail_msg("%s", by_error_message());
        const by_params *p = by_model_params(m), *q = by_model_params(again);
        assert_int_equal(p->count, q->count);
        for (int i = 0; i < p->count; i++) {
            size_t n = (size_t)p->list[i].count;
            float *x = base_alloc(n * 4), *y = base_alloc(n * 4);
            assert_int_equal(by_params_get(p, i, BY_SLOT_VALUE, x), BY_OK);
            assert_int_equal(by_params_get(q, by_params_find(q, p->list[i].name), BY_SLOT_VALUE, y), BY_OK);
            assert_memory_equal(x, y, n * 4);
            base_free(x);
            base_free(y);
        }
        by_model_free(again);
    }
}

/* ---- spellings ------------------------------------------------------------------------------- */

/* Old name to new name, in memory of its own; NULL keeps the tensor as it is. */
typedef char *(*respell)(const char *name);

static char *without_prefix(const char *name)
{
    return base_strdup(name + strlen("transformer."));
}

static char *with_module(const char *name)
{
    return base_sprintf("module.%s", name);
}

static char *compiled(const char *name)
{
    return base_sprintf("module._orig_mod.%s", name + strlen("transformer."));
}

static char *other_body(const char *name)
{
    return base_sprintf("model.%s", name + strlen("transformer."));
}

static char *tensorflow_norms(const char *name)
{
    const char *norm = strstr(name, ".ln_"), *end = strrchr(name, '.');
    return norm ? base_sprintf("%.*s%s", (int)(end - name), name, strcmp(end, ".weight") ? ".beta" : ".gamma")
                : NULL;
}

static char *all_at_once(const char *name)
{
    char *norms = tensorflow_norms(name), *all;
    all = base_sprintf("module.bert.%s", (norms ? norms : name) + strlen("transformer."));
    base_free(norms);
    return all;
}

static void test_spellings(void **state)
{
    (void)state;
    static const respell ways[] = {without_prefix, with_module,      compiled,
                                   other_body,     tensorflow_norms, all_at_once};
    static const char *const families[] = {"gpt2", "openai-gpt"};
    for (int f = 0; f < 2; f++) {
        for (int w = 0; w < BY_COUNT(ways); w++) {
            sample s = sample_of(families[f]);
            char *names[MAX_TENSORS];
            int changed = 0;
            for (int i = 0; i < s.count; i++) {
                names[i] = ways[w](s.list[i].name);
                changed += names[i] != NULL;
                s.list[i].name = names[i] ? names[i] : s.list[i].name;
            }
            assert_true(changed > 0);
            write_sample(&s);
            same_model(s.model, in_root("spelled"));
            for (int i = 0; i < s.count; i++)
                base_free(names[i]);
            sample_free(&s);
        }
    }
}

static void set_config(const char *dir, const char *key, const char *value)
{
    char *path = base_path_join(dir, "config.json");
    cJSON *json = base_json_load(path);
    assert_true(json && base_json_put(json, key, base_json_parse(value, strlen(value), "value")));
    assert_int_equal(base_json_write(path, json), BY_OK);
    cJSON_Delete(json);
    base_free(path);
}

/* The model opens with a head of its own that has these values, is saved, and opens again as the same. */
static void own_head(const sample *s, const char *tied, const void *values)
{
    set_config(in_root("spelled"), "tie_word_embeddings", tied);
    by_model *m = by_model_open(device, in_root("spelled"), &(by_model_spec){.training = true});
    if (!m)
        fail_msg("%s", by_error_message());
    const by_params *p = by_model_params(m);
    assert_int_equal(by_params_count(p), by_params_count(by_model_params(s->model)) + 1);
    float here[13 * 8];
    const int k = by_params_find(p, "lm_head.weight");
    assert_true(k >= 0 && p->list[k].count == BY_COUNT(here));
    assert_int_equal(by_params_get(p, k, BY_SLOT_VALUE, here), BY_OK);
    assert_memory_equal(here, values, sizeof here);
    assert_int_equal(by_model_save(m, in_root("again"), BY_F32), BY_OK);
    same_model(m, in_root("again"));
    by_model_free(m);
}

static void test_tied_head(void **state)
{
    (void)state;
    sample s = sample_of("gpt2");
    by_weight *table = tensor(&s, "transformer.wte.weight"), *head = &s.list[s.count++];
    static float other[13 * 8];
    *head = *table;
    head->name = "lm_head.weight";
    write_sample(&s); /* there twice */
    same_model(s.model, in_root("spelled"));
    own_head(&s, "false", table->data); /* untied, though equal */
    head->data = other;
    write_sample(&s);
    own_head(&s, "false", other);
    own_head(&s, "true", other); /* as in the reference, a file with another head has one */
    set_config(in_root("spelled"), "tie_word_embeddings", "true");
    head->data = table->data;
    *table = *head; /* the head alone */
    s.count--;
    write_sample(&s);
    same_model(s.model, in_root("spelled"));
    sample_free(&s);
}

static void test_buffers(void **state)
{
    (void)state;
    static const float mask[36];
    static const char *const names[] = {"transformer.h.0.attn.bias", "h.1.attn.masked_bias",
                                        "module.position_ids", "transformer.position_ids", "score.weight"};
    sample s = sample_of("gpt2");
    for (int i = 0; i < BY_COUNT(names); i++)
        s.list[s.count++] =
            (by_weight){.name = names[i], .rank = 2, .dim = {6, 6}, .data = mask, .bytes = sizeof mask};
    write_sample(&s);
    same_model(s.model, in_root("spelled"));
    sample_free(&s);
}

static void test_complaints(void **state)
{
    (void)state;
    sample s = sample_of("gpt2");
    by_weight twice = *tensor(&s, "transformer.ln_f.bias");
    twice.name = "ln_f.beta";
    s.list[s.count++] = twice;
    write_sample(&s);
    refuse(in_root("spelled"), BY_ERR_FORMAT, "are the parameter transformer.ln_f.bias");
    s.count--;
    tensor(&s, "transformer.ln_f.bias")->name = "transformer.one";
    write_sample(&s);
    refuse(in_root("spelled"), BY_ERR_FORMAT,
           "transformer.ln_f.bias is missing; the file contains transformer.one, which a GPT-2");
    for (int i = 0; i < 6; i++)
        s.list[i].name = (const char *[]){"transformer.x.a", "transformer.x.b", "transformer.x.c",
                                          "transformer.x.d", "transformer.x.e", "transformer.x.f"}[i];
    write_sample(&s);
    refuse(in_root("spelled"), BY_ERR_FORMAT, "and 3 more are missing; the file contains ");
    refuse(in_root("spelled"), BY_ERR_FORMAT, "transformer.x.c and 3 more, which");
    sample_free(&s);

    s = sample_of("gpt2");
    set_config(in_root("spelled"), "architectures", "[\"GPT2Model\"]");
    same_model(s.model, in_root("spelled"));
    set_config(in_root("spelled"), "architectures", "null");
    same_model(s.model, in_root("spelled"));
    set_config(in_root("spelled"), "architectures", "[\"GPT2DoubleHeadsModel\"]");
    refuse(in_root("spelled"), BY_ERR_UNSUPPORTED, "unsupported class \"GPT2DoubleHeadsModel\"");
    set_config(in_root("spelled"), "architectures", "\"GPT2LMHeadModel\"");
    refuse(in_root("spelled"), BY_ERR_FORMAT, "\"architectures\" is not a list");
    set_config(in_root("spelled"), "architectures", "[3]");
    refuse(in_root("spelled"), BY_ERR_FORMAT, "\"architectures\" is not a list");
    set_config(in_root("spelled"), "architectures", "[\"GPT2ForSequenceClassification\"]");
    refuse(in_root("spelled"), BY_ERR_FORMAT, "score.weight is missing");
    sample_free(&s);
}

/* 8-bit floats in the file are converted on the way in. */
static void test_small_floats(void **state)
{
    (void)state;
    static const by_dtype types[] = {BY_F8_E4M3, BY_F8_E5M2};
    for (int t = 0; t < 2; t++) {
        sample s = sample_of("gpt2");
        by_params *p = by_model_params(s.model);
        uint8_t *small[MAX_TENSORS];
        for (int i = 0; i < s.count; i++) {
            size_t n = s.list[i].bytes / 4;
            small[i] = base_alloc(n);
            base_convert(small[i], types[t], s.list[i].data, BY_F32, n);
            s.list[i].dtype = types[t];
            s.list[i].data = small[i];
            s.list[i].bytes = n;
            float *rounded = base_alloc(n * 4);
            base_convert(rounded, BY_F32, small[i], types[t], n);
            assert_int_equal(by_params_set(p, by_params_find(p, s.list[i].name), BY_SLOT_VALUE, rounded),
                             BY_OK);
            base_free(rounded);
        }
        write_sample(&s);
        same_model(s.model, in_root("spelled"));
        for (int i = 0; i < s.count; i++)
            base_free(small[i]);
        sample_free(&s);
    }
}

/* ---- PyTorch files as models ----------------------------------------------------------------- */

/* pytorch_model.bin with a storage per tensor, matrices transposed in memory when asked for, the table and
 * the head on one storage. */
static void write_bin(const sample *s, const char *path, bool turned)
{
    torch_tensor list[MAX_TENSORS];
    char keys[MAX_TENSORS][8];
    zip_file z = {0};
    base_buf pickle = {0};
    float *moved[MAX_TENSORS];
    for (int i = 0; i < s->count; i++) {
        const by_weight *w = &s->list[i];
        int64_t rows = w->dim[0], cols = w->rank == 2 ? w->dim[1] : 1, count = rows * cols;
        bool turn = turned && w->rank == 2;
        moved[i] = base_alloc(w->bytes);
        for (int64_t k = 0; k < count; k++)
            moved[i][turn ? k % cols * rows + k / cols : k] = ((const float *)w->data)[k];
        snprintf(keys[i], sizeof keys[i], "%d", i);
        list[i] =
            (torch_tensor){w->name, "FloatStorage", keys[i], count, 0, w->rank, {rows, cols}, {cols, 1}};
        if (w->rank == 1)
            list[i].stride[0] = 1;
        if (turn) {
            list[i].stride[0] = 1;
            list[i].stride[1] = rows;
        }
    }
    int count = s->count;
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->list[i].name, "transformer.wte.weight") == 0) {
            list[count] = list[i];
            list[count++].name = "lm_head.weight";
        }
    op_tensors(&pickle, list, count, false);
    zip_add(&z, "pytorch_model/data.pkl", pickle.data, pickle.size);
    for (int i = 0; i < s->count; i++) {
        char name[64];
        snprintf(name, sizeof name, "pytorch_model/data/%s", keys[i]);
        zip_add(&z, name, moved[i], s->list[i].bytes);
        base_free(moved[i]);
    }
    zip_finish(&z);
    assert_int_equal(base_file_write(path, z.out.data, z.out.size), BY_OK);
    base_buf_free(&z.out);
    base_buf_free(&pickle);
}

static void test_bin_models(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        sample s = sample_of("gpt2");
        assert_int_equal(remove(in_root("spelled/model.safetensors")), 0);
        write_bin(&s, in_root("spelled/pytorch_model.bin"), turned);
        same_model(s.model, in_root("spelled"));
        assert_int_equal(base_dir_remove(in_root("spelled")), BY_OK);
        sample_free(&s);
    }
}

/* ---- saving ---------------------------------------------------------------------------------- */

static void test_saved_files(void **state)
{
    (void)state;
    sample s = sample_of("gpt2");
    set_config(in_root("spelled"), "torch_dtype", "\"float64\"");
    by_model *m = by_model_open(device, in_root("spelled"), &(by_model_spec){0});
    assert_int_equal(by_model_save(m, in_root("half"), BY_F16), BY_OK);
    by_model_free(m);
    const char *type;
    cJSON *json = base_json_load(in_root("half/config.json"));
    assert_int_equal(base_json_string(json, "torch_dtype", NULL, &type), BY_OK);
    assert_string_equal(type, "float16");
    assert_int_equal(base_json_string(json, "dtype", NULL, &type), BY_OK);
    assert_string_equal(type, "float16");
    cJSON_Delete(json);
    assert_true(base_file_exists(in_root("half/generation_config.json")));
    m = by_model_new(device, "gpt2", &tiny, &(by_model_spec){.task = BY_TASK_CLASSIFY, .labels = 2});
    assert_int_equal(by_model_save(m, in_root("labels"), BY_F32), BY_OK);
    assert_false(base_file_exists(in_root("labels/generation_config.json"))); /* it does not generate */
    by_model_free(m);
    sample_free(&s);
}

/* ---- converting ------------------------------------------------------------------------------ */

static by_convert_report convert(const char *in, const char *out, by_convert_spec spec)
{
    by_convert_report r;
    if (by_weights_convert(in, out, &spec, &r) != BY_OK)
        fail_msg("%s", by_error_message());
    return r;
}

static void refuse_convert(const char *in, const char *out, by_convert_spec spec, by_status status,
                           const char *text)
{
    assert_int_equal(by_weights_convert(in, out, &spec, NULL), status);
    assert_failed(status, text);
}

/* Directories that conversions have left half-written. */
static int unfinished(void)
{
    int n = 0;
    DIR *d = opendir(root);
    for (struct dirent *e; d && (e = readdir(d));)
        n += strstr(e->d_name, ".unfinished") != NULL;
    closedir(d);
    return n;
}

static void same_files(const char *a, const char *b)
{
    size_t n[2];
    char *x = base_file_read(a, 1 << 24, &n[0]), *y = base_file_read(b, 1 << 24, &n[1]);
    assert_true(x && y);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(x, y, n[0]);
    base_free(x);
    base_free(y);
}

static void test_convert_types(void **state)
{
    (void)state;
    sample s = sample_of("gpt2");
    static const by_dtype types[] = {BY_F32, BY_BF16, BY_F16};
    for (int i = 0; i < 3; i++) {
        by_convert_report r = convert(in_root("sample"), in_root("out"),
                                      (by_convert_spec){.set_dtype = true, .dtype = types[i]});
        assert_int_equal(r.tensors, s.count);
        assert_int_equal(r.files, 1);
        assert_int_equal(r.elements, by_params_elements(by_model_params(s.model)));
        assert_int_equal(r.bytes_out, (size_t)r.elements * by_dtype_size(types[i]));
        assert_int_equal(by_model_save(s.model, in_root("saved"), types[i]), BY_OK);
        same_files(in_root("out/model.safetensors"), in_root("saved/model.safetensors"));
        same_files(in_root("out/config.json"), in_root("saved/config.json"));
        same_files(in_root("out/generation_config.json"), in_root("saved/generation_config.json"));
        assert_int_equal(base_dir_remove(in_root("out")), BY_OK);
    }
    convert(in_root("sample"), in_root("wide.safetensors"),
            (by_convert_spec){.set_dtype = true, .dtype = BY_F64});
    convert(in_root("wide.safetensors"), in_root("back.safetensors"),
            (by_convert_spec){.set_dtype = true, .dtype = BY_F32});
    same_files(in_root("back.safetensors"), in_root("sample/model.safetensors"));
    sample_free(&s);
}

static void test_convert_shards(void **state)
{
    (void)state;
    sample s = sample_of("gpt2");
    assert_int_equal(base_file_write(in_root("sample/tokenizer.json"), "{}", 2), BY_OK);
    assert_int_equal(base_file_write(in_root("sample/optimizer.pt"), "x", 1), BY_OK);
    by_convert_report r =
        convert(in_root("sample"), in_root("shards"), (by_convert_spec){.shard_bytes = 1500});
    assert_true(r.files > 2);
    assert_true(base_file_exists(in_root("shards/tokenizer.json")));
    assert_true(base_file_exists(in_root("shards/config.json")));
    assert_false(base_file_exists(in_root("shards/optimizer.pt")));
    assert_int_equal(unfinished(), 0);
    same_model(s.model, in_root("shards"));
    cJSON *index = base_json_load(in_root("shards/model.safetensors.index.json"));
    int64_t total = 0;
    assert_int_equal(
        base_json_int(cJSON_GetObjectItem(index, "metadata"), "total_size", 0, 0, INT64_MAX, &total), BY_OK);
    assert_int_equal(total, r.bytes_out);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(index, "weight_map")), s.count);
    cJSON_Delete(index);
    for (int i = 0; i < r.files; i++) { /* no file is larger, unless by one tensor alone */
        char name[64];
        snprintf(name, sizeof name, "shards/model-%05d-of-%05d.safetensors", i + 1, r.files);
        by_weights *w = by_weights_open(in_root(name));
        assert_non_null(w);
        size_t bytes = 0;
        for (int k = 0; k < by_weights_count(w); k++)
            bytes += by_weights_at(w, k)->bytes;
        assert_true(bytes <= 1500 || by_weights_count(w) == 1);
        by_weights_free(w);
    }
    convert(in_root("shards"), in_root("joined"), (by_convert_spec){0}); /* and back into one */
    same_files(in_root("joined/model.safetensors"), in_root("sample/model.safetensors"));
    convert(in_root("sample"), in_root("large"), (by_convert_spec){.shard_bytes = 1 << 20});
    assert_true(base_file_exists(in_root("large/model.safetensors"))); /* one is enough: no index */
    assert_false(base_file_exists(in_root("large/model.safetensors.index.json")));
    sample_free(&s);
}

static void test_convert_bin(void **state)
{
    (void)state;
    sample s = sample_of("gpt2");
    write_bin(&s, in_root("spelled/pytorch_model.bin"), true);
    assert_int_equal(remove(in_root("spelled/model.safetensors")), 0);
    by_convert_report r = convert(in_root("spelled"), in_root("new"), (by_convert_spec){0});
    assert_int_equal(r.tensors, s.count);
    assert_int_equal(r.dropped, 1); /* lm_head.weight, which is the table */
    same_files(in_root("new/model.safetensors"), in_root("sample/model.safetensors"));
    r = convert(in_root("spelled/pytorch_model.bin"), in_root("alone"), (by_convert_spec){0});
    same_files(in_root("alone/model.safetensors"), in_root("sample/model.safetensors"));
    assert_false(base_file_exists(in_root("alone/config.json"))); /* a file has no companions */
    sample_free(&s);
}

static bool stop_late(void *user, const char *name, size_t done, size_t total)
{
    (void)name, (void)done, (void)total;
    return ++*(int *)user < 10;
}

static void test_convert_refuses(void **state)
{
    (void)state;
    sample s = sample_of("gpt2");
    const char *in = in_root("sample"), *out = in_root("nowhere");
    refuse_convert(in, in_root("spelled"), (by_convert_spec){0}, BY_ERR_ARGUMENT,
                   "spelled exists and is not empty");
    same_model(s.model, in_root("spelled"));
    refuse_convert(in_root("missing"), out, (by_convert_spec){0}, BY_ERR_IO, "missing");
    refuse_convert(root, out, (by_convert_spec){0}, BY_ERR_IO,
                   "no model.safetensors and no pytorch_model.bin");
    refuse_convert(in, out, (by_convert_spec){.set_dtype = true, .dtype = BY_I8}, BY_ERR_ARGUMENT, "not i8");
    refuse_convert(in, in_root("x.safetensors"), (by_convert_spec){.shard_bytes = 5}, BY_ERR_ARGUMENT,
                   "a directory");
    int calls = 0;
    refuse_convert(in, out, (by_convert_spec){.progress = stop_late, .user = &calls, .shard_bytes = 1000},
                   BY_ERR_CANCELLED, "stopped");
    assert_int_equal(calls, 10);
    refuse_convert(in, in_root("sample/config.json"), (by_convert_spec){0}, BY_ERR_ARGUMENT,
                   "ends in .safetensors, or a directory");
    by_convert_report r = convert(in, out, (by_convert_spec){.dry_run = true, .shard_bytes = 1000});
    assert_true(r.files > 2);
    assert_false(base_dir_exists(out)); /* nothing of all that has left anything */
    assert_int_equal(unfinished(), 0);
    assert_int_equal(base_dir_make(out), BY_OK); /* an empty one is fine, and a slash at its end */
    convert(in, in_root("nowhere/"), (by_convert_spec){0});
    same_model(s.model, out);
    sample_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_spellings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tied_head, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_buffers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_complaints, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_small_floats, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bin_models, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_saved_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_convert_types, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_convert_shards, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_convert_bin, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_convert_refuses, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
