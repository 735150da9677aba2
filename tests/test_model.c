/* test_model.c - models as HuggingFace directories: what is saved is what is opened, what others publish
 * opens too, and a directory that is wrong in any way is refused with a message that names the culprit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "banyan/banyan.h"
#include "base/file.h"
#include "child.h"
#include "graph/graph.h"
#include "model/model.h"
#include "base/json.h"

enum { MAX_TENSORS = 64 };

static by_device *device;
static char root[300];
static const by_model_shape tiny = {
    .layers = 2, .heads = 2, .width = 8, .context = 6, .vocab = 13, .dropout = 0.1};

/* root/name, in one of several buffers used in turn. */
static const char *in_root(const char *name)
{
    static char paths[8][400];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static by_model *make(const char *family, const by_model_shape *shape, by_model_spec spec)
{
    by_model *m = by_model_new(device, family, shape, &spec);
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

static by_model *reopen(const char *dir, by_model_spec spec)
{
    by_model *m = by_model_open(device, dir, &spec);
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

/* The directory does not open, and the message holds `part`. */
static void refuse_with(const char *dir, by_model_spec spec, const char *part)
{
    by_model *m = by_model_open(device, dir, &spec);
    if (m)
        fail_msg("opened, although something is wrong with %s", part);
    assert_int_not_equal(base_error_status(), BY_OK);
    assert_contains(by_error_message(), part);
}

static void refuse(const char *dir, const char *part)
{
    refuse_with(dir, (by_model_spec){0}, part);
}

static void save(const by_model *m, const char *dir, by_dtype type)
{
    assert_int_equal(by_model_save(m, dir, type), BY_OK);
}

static float *values(const by_model *m, int i)
{
    const by_params *p = by_model_params(m);
    float *v = base_alloc((size_t)p->list[i].count * sizeof *v);
    assert_non_null(v);
    assert_int_equal(by_params_get(p, i, BY_SLOT_VALUE, v), BY_OK);
    return v;
}

/* Every parameter of b is convert(a's), bit for bit. */
static void same_values(const by_model *a, const by_model *b, float (*convert)(float))
{
    const by_params *p = by_model_params(a), *q = by_model_params(b);
    assert_int_equal(p->count, q->count);
    for (int i = 0; i < p->count; i++) {
        int k = by_params_find(q, p->list[i].name);
        assert_true(k >= 0);
        assert_int_equal(p->list[i].count, q->list[k].count);
        float *x = values(a, i), *y = values(b, k);
        for (int64_t j = 0; convert && j < p->list[i].count; j++)
            x[j] = convert(x[j]);
        assert_memory_equal(x, y, (size_t)p->list[i].count * sizeof *x);
        base_free(x);
        base_free(y);
    }
}

static void same_files(const char *a, const char *b)
{
    size_t n[2];
    char *x = base_file_read(a, 1 << 24, &n[0]), *y = base_file_read(b, 1 << 24, &n[1]);
    assert_non_null(x);
    assert_non_null(y);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(x, y, n[0]);
    base_free(x);
    base_free(y);
}

static float via_bf16(float f)
{
    return base_bf16_to_f32(base_f32_to_bf16(f));
}

static float via_f16(float f)
{
    return base_f16_to_f32(base_f32_to_f16(f));
}

/* ---- round trips ----------------------------------------------------------------------------- */

static void test_round_trip(void **state)
{
    (void)state;
    for (int f = 0; by_family_at(f); f++) {
        by_model *m = make(by_family_at(f), &tiny, (by_model_spec){.seed = 7});
        by_canvas canvas;
        const bool pixels =
            by_model_canvas(m, &canvas) && !canvas.palette; /* of values, whose number is fixed */
        const bool text = by_model_vocab(m) > 0;            /* else it reads pictures alone */
        by_model_set_eos(m, 5);
        save(m, in_root("a"), BY_F32);
        by_model *again = reopen(in_root("a"), (by_model_spec){0});
        same_values(m, again, NULL);
        assert_string_equal(by_model_family(again), by_family_at(f));
        assert_int_equal(by_model_layers(again), 2);
        assert_int_equal(by_model_heads(again), by_model_heads(m)); /* 2, or 0: it has no attention */
        assert_int_equal(by_model_width(again), 8);
        assert_int_equal(by_model_context(again), text && !pixels ? 6 : by_model_context(m));
        assert_int_equal(by_model_source_vocab(again), pixels ? 256 : text ? 13 : 0);
        assert_int_equal(by_model_eos(again), text && !pixels ? 5 : -1);
        assert_int_equal(by_model_task(again), by_model_task(m));
        assert_string_equal(by_model_class(again), by_model_class(m));
        save(again, in_root("b"), BY_F32);
        same_files(in_root("a/model.safetensors"), in_root("b/model.safetensors"));
        same_files(in_root("a/config.json"), in_root("b/config.json"));
        by_model_set_eos(again, 6);
        save(again, in_root("b"), BY_F32);
        by_model_free(again);
        again = reopen(in_root("b"), (by_model_spec){0});
        assert_int_equal(by_model_eos(again), text && !pixels ? 6 : -1);
        by_model_free(again);
        by_model_free(m);
    }
}

static int files_of(const char *dir)
{
    by_weights *w = by_weights_open(dir);
    assert_non_null(w);
    int n = by_weights_files(w);
    by_weights_free(w);
    return n;
}

/* Into several files, into others, and back into one: what is read is always what was saved last. */
static void test_round_trip_shards(void **state)
{
    (void)state;
    static const int64_t limits[] = {2000, 600, 1, -1, 2000, 0};
    int before = 0;
    for (int i = 0; i < BY_COUNT(limits); i++) {
        by_model *m = make("gpt2", &tiny, (by_model_spec){.seed = (uint64_t)i + 20});
        by_save_spec spec = {.dtype = BY_F32, .shard_bytes = limits[i]};
        assert_int_equal(by_model_save_with(m, in_root("shards"), &spec), BY_OK);
        by_model *again = reopen(in_root("shards"), (by_model_spec){0});
        same_values(m, again, NULL);
        const bool one = limits[i] <= 0;
        const int files = files_of(in_root("shards"));
        assert_int_equal(base_file_exists(in_root("shards/model.safetensors")), one);
        assert_int_equal(base_file_exists(in_root("shards/model.safetensors.index.json")), !one);
        assert_true(one ? files == 1 : files > 1 && files != before);
        if (limits[i] == 1)
            assert_int_equal(files, by_model_params(m)->count);
        char **paths = NULL;
        int count = 0;
        assert_int_equal(base_glob(in_root("shards/*.safetensors"), &paths, &count), BY_OK);
        assert_int_equal(count, files);
        base_paths_free(paths, count);
        before = files;
        by_model_free(again);
        by_model_free(m);
    }
}

static void test_round_trip_16(void **state)
{
    (void)state;
    by_model *m = make("gpt2", &tiny, (by_model_spec){.seed = 8});
    const struct {
        by_dtype type;
        float (*convert)(float);
    } cases[] = {{BY_BF16, via_bf16}, {BY_F16, via_f16}};
    for (int i = 0; i < 2; i++) {
        save(m, in_root("short"), cases[i].type);
        by_model *wide = reopen(in_root("short"), (by_model_spec){.dtype = BY_F32});
        same_values(m, wide, cases[i].convert);
        by_model *narrow = reopen(in_root("short"), (by_model_spec){.dtype = cases[i].type, .copy = true});
        same_values(wide, narrow, NULL);
        by_model *training = reopen(in_root("short"), (by_model_spec){.dtype = BY_BF16, .training = true});
        same_values(wide, training, NULL); /* what is read back are the f32 masters */
        save(narrow, in_root("wide"), BY_F32);
        by_model *back = reopen(in_root("wide"), (by_model_spec){.dtype = BY_F64});
        same_values(wide, back, NULL);
        by_model_free(wide);
        by_model_free(narrow);
        by_model_free(training);
        by_model_free(back);
    }
    by_dtype bad[] = {BY_F64, BY_I32, BY_U8};
    for (int i = 0; i < BY_COUNT(bad); i++)
        assert_int_equal(by_model_save(m, in_root("bad"), bad[i]), BY_ERR_ARGUMENT);
    assert_false(base_dir_exists(in_root("bad")));
    by_model_free(m);
    refuse_with(in_root("short"), (by_model_spec){.dtype = BY_I32}, "i32");
}

/* ---- config.json ----------------------------------------------------------------------------- */

static cJSON *load(const char *path)
{
    cJSON *json = base_json_load(path);
    assert_non_null(json);
    return json;
}

/* Plainly: there are many, and base_file_write waits for the disk. */
static void put_text(const char *path, const char *text, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

/* Write json as dir/config.json and give it back. */
static void store(const char *dir, cJSON *json)
{
    char *path = base_path_join(dir, "config.json"), *text = cJSON_Print(json);
    put_text(path, text, strlen(text));
    base_free(path);
    cJSON_free(text);
    cJSON_Delete(json);
}

static void set(cJSON *json, const char *key, const char *value)
{
    cJSON *v = cJSON_Parse(value);
    assert_non_null(v);
    cJSON_DeleteItemFromObjectCaseSensitive(json, key);
    assert_true(cJSON_AddItemToObject(json, key, v));
}

static void test_unknown_keys(void **state)
{
    (void)state;
    by_model *m = make("gpt2", &tiny, (by_model_spec){.seed = 9});
    save(m, in_root("keys"), BY_F32);
    by_model_free(m);
    cJSON *json = load(in_root("keys/config.json"));
    set(json, "task_specific_params", "{\"text-generation\": {\"do_sample\": true, \"max_length\": 50}}");
    set(json, "summary_type", "\"cls_index\"");
    set(json, "an empty list", "[]");
    set(json, "a number", "0.1");
    set(json, "nothing", "null");
    set(json, "n_inner", "24");
    set(json, "activation_function", "\"gelu_pytorch_tanh\""); /* another name of the same function */
    char *before = cJSON_PrintUnformatted(json);
    store(in_root("keys"), json);
    refuse(in_root("keys"), "mlp.c_fc"); /* n_inner is not what the file has */
    json = load(in_root("keys/config.json"));
    set(json, "n_inner", "null");
    cJSON_free(before);
    before = cJSON_PrintUnformatted(json);
    store(in_root("keys"), json);
    m = reopen(in_root("keys"), (by_model_spec){0});
    save(m, in_root("kept"), BY_F32);
    by_model_free(m);
    json = load(in_root("kept/config.json"));
    char *after = cJSON_PrintUnformatted(json);
    assert_string_equal(before, after); /* the order of the keys, too */
    cJSON_free(before);
    cJSON_free(after);
    cJSON_Delete(json);
}

static void test_bad_configs(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *message;
    } cases[] = {
        {"n_head", "0", "\"n_head\" is 0"},
        {"n_head", "-2", "\"n_head\" is -2"},
        {"n_head", "3", "width 8 is not divisible by 3 heads"},
        {"n_head", "5000", "\"n_head\" is 5000"},
        {"n_head", "\"2\"", "\"n_head\" is \"2\", expected an integer"},
        {"n_head", "1.5", "\"n_head\" is 1.5"},
        {"n_head", "[2]", "\"n_head\" is [2]"},
        {"n_head", "true", "\"n_head\" is true"},
        {"n_embd", "0", "\"n_embd\" is 0"},
        {"n_embd", "9", "width 9 is not divisible by 2 heads"},
        {"n_embd", "1048576", "c_attn.weight"}, /* 3 * 2^40 numbers */
        {"n_embd", "65536", "wte.weight has shape (13, 8)"},
        {"n_embd", "1e300", "\"n_embd\" is 1e+300"},
        {"vocab_size", "1000000000000", "\"vocab_size\" is 1000000000000"},
        {"vocab_size", "16777216",
         "wte.weight has shape (13, 8) f32 in the file, but the configuration requires (16777216, 8)"},
        {"vocab_size", "0", "\"vocab_size\" is 0"},
        {"vocab_size", "12", "wte.weight has shape (13, 8)"},
        {"vocab_size", "{}", "\"vocab_size\" is {}"},
        {"n_positions", "7", "wpe.weight has shape (6, 8)"},
        {"n_positions", "16777216", "wpe.weight has shape (6, 8)"},
        {"n_positions", "-1", "\"n_positions\" is -1"},
        {"n_layer", "-1", "\"n_layer\" is -1"},
        {"n_layer", "0", "\"n_layer\" is 0"},
        {"n_layer", "3", "h.2.ln_1.weight, "},
        {"n_layer", "1", "the file contains transformer.h.1."},
        {"n_layer", "256", " more are missing"},
        {"n_layer", "257", "\"n_layer\" is 257"},
        {"n_layer", "\"many\"", "\"n_layer\" is \"many\""},
        {"n_inner", "33", "mlp.c_fc.weight has shape (8, 32)"},
        {"n_inner", "4194304", "mlp.c_fc.weight has shape (8, 32)"},
        {"n_inner", "-5", "\"n_inner\" is -5"},
        {"activation_function", "\"gelu_newest\"", "gelu_newest"},
        {"activation_function", "3", "\"activation_function\" is 3"},
        {"resid_pdrop", "1", "\"resid_pdrop\" is 1"},
        {"resid_pdrop", "-0.1", "\"resid_pdrop\" is -0.1"},
        {"resid_pdrop", "\"0.1\"", "\"resid_pdrop\" is \"0.1\""},
        {"layer_norm_epsilon", "-1", "\"layer_norm_epsilon\" is -1"},
        {"scale_attn_weights", "1", "\"scale_attn_weights\" is 1"},
        {"model_type", "\"gpt-17\"", "\"gpt-17\""},
        {"model_type", "2", "\"model_type\" is 2"},
        {"architectures", "[\"GPT3LMHeadModel\"]", "unsupported class \"GPT3LMHeadModel\""},
        {"num_labels", "0", "\"num_labels\" is 0"},
        {"num_labels", "1e9", "\"num_labels\" is 1000000000"},
    };
    by_model *m = make("gpt2", &tiny, (by_model_spec){.seed = 10});
    save(m, in_root("config"), BY_F32);
    by_model_free(m);
    for (int i = 0; i < BY_COUNT(cases); i++) {
        cJSON *good = load(in_root("config/config.json")), *bad = cJSON_Duplicate(good, true);
        set(bad, cases[i].key, cases[i].value);
        store(in_root("config"), bad);
        refuse(in_root("config"), cases[i].message);
        assert_contains(by_error_message(), in_root("config")); /* and which directory it is about */
        store(in_root("config"), good);
    }
    m = reopen(in_root("config"), (by_model_spec){0}); /* each of them was the only thing wrong */
    by_model_free(m);
}

static void test_torn_config(void **state)
{
    (void)state;
    by_model *m = make("openai-gpt", &tiny, (by_model_spec){.seed = 11});
    save(m, in_root("torn"), BY_F32);
    by_model_free(m);
    size_t size;
    char *text = base_file_read(in_root("torn/config.json"), 1 << 20, &size);
    assert_non_null(text);
    for (size_t n = 0; n < size - 2; n++) { /* the last two bytes are the brace and a newline */
        put_text(in_root("torn/config.json"), text, n);
        refuse(in_root("torn"), "config.json");
    }
    static const char *const others[] = {"[]", "3", "\"gpt2\"", "null", "{}", "[{\"model_type\": \"gpt2\"}]"};
    for (int i = 0; i < BY_COUNT(others); i++) {
        put_text(in_root("torn/config.json"), others[i], strlen(others[i]));
        refuse(in_root("torn"), strcmp(others[i], "{}") == 0 ? "model_type" : "is not an object");
    }
    base_free(text);
    assert_int_equal(remove(in_root("torn/config.json")), 0);
    refuse(in_root("torn"), "torn/config.json");
    refuse(in_root("no such folder"), "no such folder");
    put_text(in_root("file"), "x", 1);
    refuse(in_root("file"), "file");
}

/* ---- weights --------------------------------------------------------------------------------- */

/* The tensors of a file, to be changed and written again. */
typedef struct tensors {
    by_weights *file;
    by_weight list[MAX_TENSORS];
    int count;
} tensors;

static tensors tensors_of(const char *path)
{
    tensors t = {.file = by_weights_open(path)};
    assert_non_null(t.file);
    t.count = by_weights_count(t.file);
    assert_true(t.count < MAX_TENSORS - 8);
    for (int i = 0; i < t.count; i++)
        t.list[i] = *by_weights_at(t.file, i);
    return t;
}

static void write_tensors(const char *path, const by_weight *list, int count)
{
    if (by_weights_write(path, list, count, NULL) != BY_OK)
        fail_msg("%s", by_error_message());
}

static void test_missing_and_misshapen(void **state)
{
    (void)state;
    by_model *m = make("gpt2", &tiny, (by_model_spec){.seed = 12});
    save(m, in_root("whole"), BY_F32);
    save(m, in_root("parts"), BY_F32);
    tensors t = tensors_of(in_root("whole/model.safetensors"));
    assert_int_equal(t.count, by_params_count(by_model_params(m)));
    const char *path = in_root("parts/model.safetensors"), *dir = in_root("parts");
    by_weight changed[MAX_TENSORS];
    int32_t ids[4096] = {0};
    for (int i = 0; i < t.count; i++) {
        char part[200];
        const by_weight *e = &t.list[i];
        int n = 0; /* without it */
        for (int k = 0; k < t.count; k++)
            if (k != i)
                changed[n++] = t.list[k];
        write_tensors(path, changed, n);
        snprintf(part, sizeof part, "%s is missing", e->name);
        refuse(dir, part);

        memcpy(changed, t.list, sizeof changed); /* with one more axis */
        changed[i].rank++;
        changed[i].dim[e->rank] = 1;
        write_tensors(path, changed, t.count);
        snprintf(part, sizeof part, "%s has shape (", e->name);
        refuse(dir, part);

        memcpy(changed, t.list, sizeof changed); /* with axes exchanged, or halved */
        if (e->rank == 2 && e->dim[0] != e->dim[1]) {
            changed[i].dim[0] = e->dim[1];
            changed[i].dim[1] = e->dim[0];
        } else {
            changed[i].dim[0] /= 2;
            changed[i].bytes /= 2;
        }
        write_tensors(path, changed, t.count);
        refuse(dir, part);

        memcpy(changed, t.list, sizeof changed); /* as integers */
        changed[i].dtype = BY_I32;
        changed[i].data = ids;
        write_tensors(path, changed, t.count);
        refuse(dir, part);
        assert_contains(by_error_message(), "i32");
    }
    memcpy(changed, t.list, sizeof changed);
    changed[t.count] = t.list[0];
    changed[t.count].name = "transformer.h.0.attn.q_norm.weight";
    write_tensors(path, changed, t.count + 1);
    refuse(dir, "transformer.h.0.attn.q_norm.weight");
    write_tensors(path, t.list, t.count);
    by_model *again = reopen(dir, (by_model_spec){0});
    same_values(m, again, NULL);
    by_model_free(again);
    by_model_free(m);
    by_weights_free(t.file);
}

static void test_truncated(void **state)
{
    (void)state;
    by_model *m = make("gpt2", &tiny, (by_model_spec){.seed = 13});
    save(m, in_root("cut"), BY_BF16);
    by_model_free(m);
    const char *path = in_root("cut/model.safetensors"), *dir = in_root("cut");
    size_t size;
    char *bytes = base_file_read(path, 1 << 24, &size);
    assert_non_null(bytes);
    for (size_t n = 0; n < size; n += n < 64 ? 1 : n < 2000 ? 23 : 211) {
        put_text(path, bytes, n);
        refuse(dir, "model.safetensors");
    }
    put_text(path, bytes, size - 1);
    refuse(dir, "model.safetensors");
    put_text(path, bytes, size);
    m = reopen(dir, (by_model_spec){0});
    by_model_free(m);
    base_free(bytes);
    assert_int_equal(remove(path), 0);
    refuse(dir, "model.safetensors");
}

/* Files as published with GPT-2: no prefix, the causal masks among the tensors, the head once more. */
static void test_published(void **state)
{
    (void)state;
    by_model *m = make("gpt2", &tiny, (by_model_spec){.seed = 14});
    save(m, in_root("ours"), BY_F32);
    save(m, in_root("theirs"), BY_F32);
    tensors t = tensors_of(in_root("ours/model.safetensors"));
    float mask[36], one = -1e4f;
    for (int i = 0; i < 36; i++)
        mask[i] = i % 6 <= i / 6;
    by_weight *e = &t.list[t.count];
    *e++ = (by_weight){
        .name = "h.0.attn.bias", .rank = 4, .dim = {1, 1, 6, 6}, .data = mask, .bytes = sizeof mask};
    *e++ = (by_weight){
        .name = "h.1.attn.bias", .rank = 4, .dim = {1, 1, 6, 6}, .data = mask, .bytes = sizeof mask};
    *e++ = (by_weight){.name = "h.1.attn.masked_bias", .data = &one, .bytes = sizeof one};
    for (int i = 0; i < t.count; i++) {
        if (strcmp(t.list[i].name, "transformer.wte.weight") == 0) {
            *e = t.list[i];
            (e++)->name = "lm_head.weight";
        }
        assert_int_equal(strncmp(t.list[i].name, "transformer.", 12), 0);
        t.list[i].name += 12;
    }
    write_tensors(in_root("theirs/model.safetensors"), t.list, (int)(e - t.list));
    by_model_spec specs[] = {{0}, {.copy = true}, {.training = true}, {.dtype = BY_F64}};
    for (int i = 0; i < BY_COUNT(specs); i++) {
        by_model *theirs = reopen(in_root("theirs"), specs[i]);
        same_values(m, theirs, NULL);
        by_model_free(theirs);
    }
    by_weights_free(t.file);
    by_model_free(m);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Logits of one row of tokens, (T, V). */
static void logits_of(by_model *m, const int32_t *tokens, int n, float *out)
{
    by_graph *g = by_graph_new(&(by_graph_spec){.params = by_model_params(m)});
    by_model_io io = {0};
    by_io_feed(&io, "tokens", by_input(g, "tokens", BY_I32, 2, (int64_t[]){1, n}));
    by_model_build(m, g, &io);
    by_tensor *logits = by_output(g, "logits", by_io_output(&io, "logits"));
    by_program *p = by_compile(g, &(by_compile_spec){0});
    assert_non_null(p);
    assert_int_equal(by_write(p, by_io_input(&io, "tokens"), tokens, sizeof *tokens * (size_t)n), BY_OK);
    assert_int_equal(by_run(p), BY_OK);
    assert_int_equal(by_read_f32(p, logits, out), BY_OK);
    by_program_free(p);
}

static void test_mapped(void **state)
{
    (void)state;
    static const int32_t tokens[] = {3, 1, 4, 1, 5};
    float a[5 * 13], b[5 * 13];
    by_model *m = make("gpt2", &tiny, (by_model_spec){.seed = 15});
    save(m, in_root("mapped"), BY_F32);
    by_model_free(m);
    by_model *mapped = reopen(in_root("mapped"), (by_model_spec){0});
    by_model *copied = reopen(in_root("mapped"), (by_model_spec){.copy = true});
    by_model *trained = reopen(in_root("mapped"), (by_model_spec){.training = true});
    by_model *other = reopen(in_root("mapped"), (by_model_spec){.dtype = BY_BF16});
    assert_null(copied->file);
    assert_null(trained->file);
    assert_null(other->file);
    assert_non_null(mapped->file);
    assert_null(mapped->params->value); /* no buffer of its own */
    for (int i = 0; i < mapped->params->count; i++) {
        const by_weight *e = by_weights_find(mapped->file, mapped->params->list[i].name);
        assert_non_null(e);
        assert_ptr_equal(gr_params_address(mapped->params, i, BY_SLOT_VALUE), e->data);
    }
    logits_of(mapped, tokens, 5, a);
    logits_of(copied, tokens, 5, b);
    assert_memory_equal(a, b, sizeof a);
    /* A mapped model can be saved over its own file, and outlives it. */
    save(mapped, in_root("mapped"), BY_BF16);
    assert_int_equal(base_dir_remove(in_root("mapped")), BY_OK);
    logits_of(mapped, tokens, 5, b);
    assert_memory_equal(a, b, sizeof a);
    same_values(mapped, copied, NULL);
    by_model *all[] = {mapped, copied, trained, other};
    for (int i = 0; i < BY_COUNT(all); i++)
        by_model_free(all[i]);
}

/* ---- heads and shapes ------------------------------------------------------------------------ */

/* The last matrix of a model that classifies. */
static const char *head_of(const by_model *m)
{
    static const char *const names[] = {"score.weight", "classifier.weight", "classifier.out_proj.weight",
                                        "logits_proj.weight", "sequence_summary.summary.weight"};
    for (int i = 0; i < BY_COUNT(names); i++)
        if (by_params_find(by_model_params(m), names[i]) >= 0)
            return names[i];
    return "none";
}

static void test_classify(void **state)
{
    (void)state;
    for (int f = 0; by_family_at(f); f++) {
        by_model_spec spec = {.task = BY_TASK_CLASSIFY, .labels = 3, .seed = 16};
        if (by_family_task(by_family_at(f)) == BY_TASK_SEQ2SEQ)
            continue; /* labels are texts there */
        if (!arch_at(f)->classes[BY_TASK_CLASSIFY])
            continue;
        by_model *m = make(by_family_at(f), &tiny, spec);
        const char *name = head_of(m);
        int head = by_params_find(by_model_params(m), name);
        assert_true(head >= 0);
        assert_int_equal(by_params_shape(by_model_params(m), head)[0], 3);
        /* A recurrent network reads a text from both ends: the head sees both states side by side. */
        const bool both = by_params_find(by_model_params(m), "rnn.weight_ih_l0_reverse") >= 0;
        const int width = both ? 16 : 8;
        assert_int_equal(by_params_shape(by_model_params(m), head)[1], width);
        save(m, in_root("labels"), BY_F32);
        cJSON *json = load(in_root("labels/config.json"));
        assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "id2label")), 3);
        assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "label2id")), 3);
        assert_string_equal(cJSON_GetArrayItem(cJSON_GetObjectItem(json, "architectures"), 0)->valuestring,
                            by_model_class(m));
        cJSON_Delete(json);
        by_model *again = reopen(in_root("labels"), (by_model_spec){0});
        assert_int_equal(by_model_task(again), BY_TASK_CLASSIFY);
        assert_int_equal(by_model_labels(again), 3);
        same_values(m, again, NULL);
        by_model_free(again);
        json = load(in_root("labels/config.json")); /* another number of names than rows of the head */
        set(json, "id2label", "{\"0\": \"no\", \"1\": \"yes\"}");
        store(in_root("labels"), json);
        char expected[80];
        snprintf(expected, sizeof expected, "%s has shape (3, %d)", name, width);
        refuse(in_root("labels"), expected);
        json = load(in_root("labels/config.json"));
        set(json, "id2label", "{}");
        store(in_root("labels"), json);
        refuse(in_root("labels"), "label");
        by_model_free(m);
    }
}

static void body_equal(const by_model *a, const by_model *b)
{
    for (int i = 0; i < a->params->count; i++) {
        int k = by_params_find(b->params, a->params->list[i].name);
        if (strncmp(a->params->list[i].name, "score.", 6) == 0)
            continue;
        assert_true(k >= 0);
        float *x = values(a, i), *y = values(b, k);
        assert_memory_equal(x, y, (size_t)a->params->list[i].count * sizeof *x);
        base_free(x);
        base_free(y);
    }
}

/* The head with the fresh values of a seed: what a new model of that seed has. */
static void head_is_fresh(const by_model *m, int labels, uint64_t seed)
{
    by_model_spec spec = {.task = BY_TASK_CLASSIFY, .labels = labels, .seed = seed};
    by_model *fresh = make("gpt2", &tiny, spec);
    int i = by_params_find(m->params, "score.weight"), k = by_params_find(fresh->params, "score.weight");
    assert_int_equal(m->params->list[i].count, labels * 8);
    float *x = values(m, i), *y = values(fresh, k);
    assert_memory_equal(x, y, (size_t)labels * 8 * sizeof *x);
    base_free(x);
    base_free(y);
    by_model_free(fresh);
}

static void test_new_head(void **state)
{
    (void)state;
    by_model_spec labelled = {.task = BY_TASK_CLASSIFY, .labels = 3, .seed = 17};
    by_model *bare = make("gpt2", &tiny, (by_model_spec){.seed = 17}), *with = make("gpt2", &tiny, labelled);
    save(bare, in_root("bare"), BY_F32);
    save(with, in_root("with"), BY_F32);
    refuse_with(in_root("bare"), (by_model_spec){.new_head = true, .task = BY_TASK_CLASSIFY}, "label");
    refuse_with(in_root("bare"), (by_model_spec){.new_head = true, .task = BY_TASK_COUNT}, "task");
    for (int training = 0; training < 2; training++) {
        by_model_spec spec = {.new_head = true, .task = BY_TASK_CLASSIFY, .seed = 99, .training = training};
        for (spec.labels = 3; spec.labels < 6; spec.labels++) {
            const char *dirs[] = {in_root("bare"), in_root("with")};
            for (int i = 0; i < 2; i++) { /* whatever head the file has, one of the same size included */
                by_model *m = reopen(dirs[i], spec);
                assert_int_equal(by_model_labels(m), spec.labels);
                body_equal(bare, m);
                head_is_fresh(m, spec.labels, 99);
                save(m, in_root("headed"), BY_F32);
                by_model *again = reopen(in_root("headed"), (by_model_spec){0});
                assert_int_equal(by_model_labels(again), spec.labels);
                same_values(m, again, NULL);
                by_model_free(again);
                by_model_free(m);
            }
        }
    }
    by_model *back = reopen(in_root("with"), (by_model_spec){.new_head = true, .task = BY_TASK_LM});
    assert_string_equal(by_model_class(back), "GPT2LMHeadModel");
    body_equal(back, bare);
    by_model_free(back);
    by_model_free(bare);
    by_model_free(with);
}

/* Sizes of the published models: parameters of L layers, found from blank ones of one and two. */
static void test_presets(void **state)
{
    (void)state;
    static const struct {
        const char *family, *preset;
        int layers, heads, width, context;
        int64_t parameters;
    } published[] = {
        {"gpt2", "124m", 12, 12, 768, 1024, 124439808},
        {"gpt2", "gpt2", 12, 12, 768, 1024, 124439808},
        {"gpt2", "350m", 24, 16, 1024, 1024, 354823168},
        {"gpt2", "774m", 36, 20, 1280, 1024, 774030080},
        {"gpt2", "1558m", 48, 25, 1600, 1024, 1557611200},
        {"openai-gpt", "117m", 12, 12, 768, 512, 116534784},
        {"llama", "stories15m", 6, 6, 288, 256, 15191712},
        {"llama", "tinyllama", 22, 32, 2048, 2048, 1100048384},
        {"xlnet", "base", 12, 12, 768, 512, 116750336},
        {"xlnet", "large", 24, 16, 1024, 512, 360300800},
        {"gptj", "6b", 28, 16, 4096, 2048, 6050882784},
        {"longformer", "base", 12, 12, 768, 4096, 148711257},
        {"big_bird", "base", 12, 12, 768, 4096, 128111286},
        {"vit", "tiny", 12, 3, 192, 197, 5524802}, /* with two labels */
        {"vit", "small", 12, 6, 384, 197, 21666434},
        {"vit", "base", 12, 12, 768, 197, 85800194},
        {"imagegpt", "small", 24, 8, 512, 1024, 76682240},
        {"imagegpt", "medium", 36, 8, 1024, 1024, 455489536},
        {"imagegpt", "large", 48, 16, 1536, 1024, 1362914304},
        {"deit", "small", 12, 6, 384, 198, 21667202},
        {"deit", "base-distilled", 12, 12, 768, 198, 85803268},
    };
    by_model_spec blank = {.blank = true};
    for (int i = 0; i < BY_COUNT(published); i++) {
        int64_t n[2];
        for (int layers = 1; layers <= 2; layers++) {
            by_model_shape shape = {.preset = published[i].preset, .layers = layers, .dropout = -1};
            by_model *m = make(published[i].family, &shape, blank);
            n[layers - 1] = by_params_elements(by_model_params(m));
            assert_int_equal(by_model_heads(m), published[i].heads);
            assert_int_equal(by_model_width(m), published[i].width);
            assert_int_equal(by_model_context(m), published[i].context);
            by_model_free(m);
        }
        by_model_shape small = {
            .preset = published[i].preset, .width = 2 * published[i].heads, .context = 1, .vocab = 2};
        by_model *m = make(published[i].family, &small, blank);
        assert_int_equal(by_model_layers(m), published[i].layers);
        by_model_free(m);
        assert_int_equal(n[0] + (published[i].layers - 1) * (n[1] - n[0]), published[i].parameters);
    }
    for (int f = 0; by_family_at(f); f++) {
        assert_true(by_family_preset(f, 0) && strlen(by_family_title(f)) > 0);
        by_model *m = make(by_family_at(f), &(by_model_shape){.dropout = -1}, blank); /* the smallest */
        by_model_free(m);
    }
    assert_null(by_family_at(1000));
    assert_null(by_family_at(-1));
    assert_null(by_family_preset(0, 1000));
    by_model_shape unknown = {.preset = "enormous"};
    assert_null(by_model_new(device, "gpt2", &unknown, &blank));
    assert_contains(by_error_message(), "enormous");
    assert_contains(by_error_message(), "124m");
    assert_null(by_model_new(device, "gpt-17", &tiny, &blank));
    assert_contains(by_error_message(), "gpt-17");
    assert_contains(by_error_message(), "openai-gpt");
}

static void test_bad_shapes(void **state)
{
    (void)state;
    static const struct {
        by_model_shape shape;
        const char *message;
    } cases[] = {
        {{.layers = 257}, "n_layer is 257"},
        {{.heads = 5000}, "n_head is 5000"},
        {{.width = 100, .heads = 3}, "width 100 is not divisible by 3 heads"},
        {{.width = 1 << 21}, "n_embd is 2.09715e+06"},
        {{.vocab = 1 << 25}, "vocab_size is"},
        {{.dropout = 1}, "pdrop is 1"},
        {{.vocab = 1 << 24, .width = 1 << 20}, "wte.weight"}, /* 2^44 numbers */
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        assert_null(by_model_new(device, "gpt2", &cases[i].shape, &(by_model_spec){.blank = true}));
        assert_contains(by_error_message(), cases[i].message);
    }
    by_model_spec no_labels = {.task = BY_TASK_CLASSIFY}, no_task = {.task = BY_TASK_COUNT};
    assert_null(by_model_new(device, "gpt2", &tiny, &no_labels));
    assert_contains(by_error_message(), "label");
    assert_null(by_model_new(device, "gpt2", &tiny, &no_task));
    assert_contains(by_error_message(), "task");
}

/* The deviation of the weights that a family draws from a normal distribution is the one asked for, in the file too. */
static void test_init_std(void **state)
{
    (void)state;
    static const struct {
        const char *family, *weight, *key;
    } cases[] = {{"gpt2", "transformer.h.0.mlp.c_fc.weight", "initializer_range"},
                 {"llama", "model.layers.0.mlp.up_proj.weight", "initializer_range"},
                 {"vit", "vit.encoder.layer.0.attention.attention.query.weight", "initializer_range"},
                 {"transformer", "model.encoder.layers.0.fc1.weight", "init_std"},
                 {"xlm", "transformer.attentions.0.q_lin.weight", "init_std"}};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        const by_model_shape shape = {.layers = 1, .heads = 2, .width = 64, .vocab = 99, .init_std = 0.3};
        const bool labels = strcmp(cases[i].family, "vit") == 0;
        by_model *m = make(cases[i].family, &shape,
                           (by_model_spec){.seed = 3,
                                           .task = labels ? BY_TASK_CLASSIFY : BY_TASK_DEFAULT,
                                           .labels = labels ? 2 : 0});
        const int k = by_params_find(m->params, cases[i].weight);
        if (k < 0)
            fail_msg("%s has no %s", cases[i].family, cases[i].weight);
        const int64_t n = m->params->list[k].count;
        float *x = values(m, k);
        double squares = 0;
        for (int64_t j = 0; j < n; j++)
            squares += (double)x[j] * x[j];
        assert_float_equal(sqrt(squares / (double)n), 0.3, 0.02);
        base_free(x);
        save(m, in_root("deviation"), BY_F32);
        cJSON *json = load(in_root("deviation/config.json"));
        assert_float_equal(cJSON_GetNumberValue(cJSON_GetObjectItem(json, cases[i].key)), 0.3, 1e-6);
        cJSON_Delete(json);
        by_model_free(m);
    }
    static const struct {
        const char *family;
        int width;
        double std;
    } narrow[] = {{"gpt2", 192, 0.04}, {"gpt2", 8, 0.08}, {"gpt2", 1024, 0.02}, {"transformer", 192, 0}};
    for (int i = 0; i < BY_COUNT(narrow); i++) {
        const by_model_shape shape = {.width = narrow[i].width, .heads = 1, .init_std = -1};
        by_model *m = make(narrow[i].family, &shape, (by_model_spec){.blank = true});
        assert_float_equal(arch_config_get(m->arch, m->config, ARCH_ROLE_INIT), narrow[i].std, 1e-6);
        by_model_free(m);
    }
    assert_null(
        by_model_new(device, "t5", &(by_model_shape){.init_std = 0.3}, &(by_model_spec){.blank = true}));
    assert_contains(by_error_message(), "standard deviation");
}

static int set_up(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/banyan-model-XXXXXX", base && *base ? base : "/tmp");
    device = by_device_open("cpu", 1);
    return mkdtemp(root) && device ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_round_trip_shards),
        cmocka_unit_test(test_round_trip_16),
        cmocka_unit_test(test_unknown_keys),
        cmocka_unit_test(test_bad_configs),
        cmocka_unit_test(test_torn_config),
        cmocka_unit_test(test_missing_and_misshapen),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_mapped),
        cmocka_unit_test(test_classify),
        cmocka_unit_test(test_new_head),
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_bad_shapes),
        cmocka_unit_test(test_init_std),
    };
    return cmocka_run_group_tests_name("model", tests, set_up, tear_down);
}
