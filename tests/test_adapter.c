/* test_adapter.c - adapters: on every family, in and out of PEFT's folders, merged and unmerged, switched, trained over weights of any
 * type, and refused where a configuration cannot be followed. What they compute is compared with PEFT in test_parity.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <math.h>

#include "banyan/adapter.h"
#include "banyan/generate.h"
#include "banyan/train.h"
#include "base/json.h"
#include "child.h"
#include "folder.h"
#include "graph/graph.h"
#include "io/weights.h"
#include "models/models.h"

enum { ROWS = 2, SEQ = 8 };

static by_device *device;

static const char *const cases[] = {
    "tune-gpt2-lora",    "tune-gpt2-dora",   "tune-llama-lora", "tune-llama-dora",  "tune-llama-embed",
    "tune-llama-rslora", "tune-bert-lora",   "tune-bert-bias",  "tune-t5-lora",     "tune-gpt2-ia3",
    "tune-bert-ia3",     "tune-t5-ia3",      "tune-llama-ia3",  "tune-gpt2-prefix", "tune-llama-prefix",
    "tune-gpt2-prompt",  "tune-llama-prompt"};

/* The path of a recorded case of this repository or of those beside it, or of a file of it, good for the next 7 calls. */
static const char *case_path(const char *name, const char *part)
{
    static char paths[8][1024];
    static int next;
    char *path = paths[next++ % 8];
    const char *shared = getenv("BANYAN_SHARED");
    snprintf(path, sizeof paths[0], BY_SOURCE_DIR "/tests/data/verify/%s%s", name, part);
    if (base_dir_exists(path) || base_file_exists(path))
        return path;
    snprintf(path, sizeof paths[0], "%s/parity/%s%s", shared ? shared : BY_SOURCE_DIR "/../shared", name,
             part);
    if (!base_dir_exists(path) && !base_file_exists(path)) {
        print_message("%s is not there\n", path);
        skip();
    }
    return path;
}

static void expect(by_status s)
{
    if (s != BY_OK)
        fail_msg("%s", by_error_message());
}

static by_model *open_case(const char *name)
{
    by_model *m = by_model_open(device, case_path(name, ""), &(by_model_spec){.copy = true, .exact = true});
    if (!m)
        fail_msg("%s", by_error_message());
    by_model_set_dropout(m, 0);
    return m;
}

/* ---- passes ----------------------------------------------------------------------------------- */

static int32_t tokens[ROWS * SEQ];

static by_batch batch_of(const by_model *m)
{
    static const int64_t shape[] = {ROWS, SEQ};
    const int vocab = BY_MIN(by_model_vocab(m), by_model_source_vocab(m));
    for (int i = 0; i < ROWS * SEQ; i++)
        tokens[i] = 2 + (i * 7 + 3) % (vocab - 3);
    by_batch b = by_batch_of(ROWS, SEQ, tokens);
    if (by_model_is_pair(m))
        by_batch_put(&b, "source", BY_I32, 2, shape, tokens);
    return b;
}

/* The logits of a fixed batch with the adapter in use. Heap array of *n floats. */
static float *logits_of(by_model *m, size_t *n)
{
    by_batch b = batch_of(m);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){.grads = BY_GRAD_NONE});
    if (!p)
        fail_msg("%s: %s", by_model_family(m), by_error_message());
    expect(by_pass_run(p, &b));
    const by_tensor *t = by_io_output(by_pass_io(p), "logits");
    if (!t)
        fail_msg("%s has no logits", by_model_family(m));
    *n = (size_t)by_elements(t);
    float *x = base_alloc(*n * sizeof *x);
    expect(by_pass_read(p, t, x));
    by_pass_free(p);
    return x;
}

/* The largest difference, as a share of the largest element where that is above 1. */
static double apart(const float *a, const float *b, size_t n)
{
    double most = 0, size = 1;
    for (size_t i = 0; i < n; i++) {
        most = BY_MAX(most, fabs((double)a[i] - (double)b[i]));
        size = BY_MAX(size, fabs((double)a[i]));
    }
    return most / size;
}

/* ---- values ----------------------------------------------------------------------------------- */

static size_t size_of(const by_params *p, int i)
{
    size_t n = 1;
    for (int k = 0; k < by_params_rank(p, i); k++)
        n *= (size_t)by_params_shape(p, i)[k];
    return n;
}

/* A new adapter changes nothing; this gives every matrix of it values, and every vector of IA3 others. */
static void stir(by_adapter *a)
{
    by_params *p = by_adapter_params(a);
    for (int i = 0; i < by_params_count(p); i++) {
        const bool vector = strstr(by_params_name(p, i), ".ia3_l"),
                   matrix = strstr(by_params_name(p, i), "lora_") && by_params_rank(p, i) == 2;
        if (!vector && !matrix && strcmp(by_params_name(p, i), "prompt_embeddings") != 0)
            continue;
        float *v = base_alloc(size_of(p, i) * sizeof *v);
        base_rng_fill_normal(v, size_of(p, i), 5, (uint64_t)i, 0, 0.2f);
        for (size_t k = 0; vector && k < size_of(p, i); k++)
            v[k] += 1;
        expect(by_params_set(p, i, BY_SLOT_VALUE, v));
        base_free(v);
    }
}

/* A checksum of all values of a list. */
static uint64_t sum_of(const by_params *p)
{
    uint64_t sum = 0;
    for (int i = 0; i < by_params_count(p); i++) {
        const size_t n = size_of(p, i);
        float *v = base_alloc(n * sizeof *v);
        expect(by_params_get(p, i, BY_SLOT_VALUE, v));
        sum = sum * 31 + base_checksum(v, n * sizeof *v);
        base_free(v);
    }
    return sum;
}

/* ---- every family ----------------------------------------------------------------------------- */

static bool reads_text(const by_model *m)
{
    const by_input_info *in;
    by_pictures pictures;
    by_canvas canvas;
    if (by_model_pictures(m, &pictures) || by_model_canvas(m, &canvas))
        return false;
    for (int i = 0; (in = by_model_input(m, i)); i++)
        if (in->required && strcmp(in->name, "tokens") != 0 && strcmp(in->name, "source") != 0)
            return false;
    return true;
}

/* With an adapter on all linear layers, merged and unmerged: the same logits, and the same bits as before. */
static void check_family(const char *family, by_adapter_spec spec)
{
    spec.targets = "all-linear";
    by_model *m = by_model_new(device, family, &(by_model_shape){.vocab = 64, .dropout = 0},
                               &(by_model_spec){.seed = 3});
    if (!m)
        fail_msg("%s: %s", family, by_error_message());
    if (!reads_text(m)) {
        by_model_free(m);
        return;
    }
    size_t n;
    float *before = logits_of(m, &n);
    const uint64_t bits = sum_of(by_model_params(m));
    by_adapter *a = by_adapter_new(m, &spec, true);
    if (!a) {
        if (!strstr(by_error_message(), "no linear layer")) /* recurrent layers have none */
            fail_msg("%s: %s", family, by_error_message());
        base_free(before);
        by_model_free(m);
        return;
    }
    float *same = logits_of(m, &n);
    if (!(apart(before, same, n) < 2e-5))
        fail_msg("%s: a new adapter moves logits by %g", family, apart(before, same, n));
    stir(a);
    float *with = logits_of(m, &n);
    assert_true(apart(before, with, n) > 1e-4);
    expect(by_adapter_merge(a));
    by_model_use(m, NULL);
    float *merged = logits_of(m, &n);
    if (!(apart(with, merged, n) < 2e-4))
        fail_msg("%s: merged logits are %g apart", family, apart(with, merged, n));
    expect(by_adapter_unmerge(a));
    assert_true(sum_of(by_model_params(m)) == bits);
    float *after = logits_of(m, &n);
    assert_memory_equal(before, after, n * sizeof *before);
    float *all[] = {before, same, with, merged, after};
    for (int i = 0; i < BY_COUNT(all); i++)
        base_free(all[i]);
    by_model_free(m);
}

static void test_families(void **state)
{
    (void)state;
    for (int i = 0; by_family_at(i); i++) {
        check_family(by_family_at(i), (by_adapter_spec){.rank = 3, .alpha = 5});
        check_family(by_family_at(i), (by_adapter_spec){.rank = 3, .alpha = 5, .dora = true});
        check_family(by_family_at(i), (by_adapter_spec){.ia3 = true});
    }
}

/* Whether each name in the list is one of a scaled layer: of its inputs if it is also in the other list, else of its outputs. */
static bool are_scaled(const by_params *p, const char *names, const char *inputs)
{
    char name[64], tail[80];
    for (size_t n; *names; names += n + (names[n] == ',')) {
        n = strcspn(names, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, names);
        snprintf(tail, sizeof tail, ".%s.ia3_l", name);
        bool found = false;
        for (int i = 0; i < by_params_count(p) && !found; i++)
            found = strstr(by_params_name(p, i), tail) &&
                    by_params_shape(p, i)[strstr(inputs, name) ? 0 : 1] == 1 && !p->list[i].decay;
        if (!found)
            return false;
    }
    return true;
}

/* What is usual for IA3 names layers of the family. */
static void test_usual_vectors(void **state)
{
    (void)state;
    int known = 0;
    for (int i = 0; i < arch_count(); i++) {
        const char *family = arch_at(i)->family;
        const arch_scaled *usual = arch_scaled_of(arch_at(i));
        if (!usual)
            continue;
        by_model *m = by_model_new(device, family, &(by_model_shape){.vocab = 64, .dropout = 0},
                                   &(by_model_spec){.seed = 3});
        by_adapter *a = m ? by_adapter_new(m, &(by_adapter_spec){.ia3 = true}, true) : NULL;
        if (!a)
            fail_msg("%s: %s", family, by_error_message());
        if (!are_scaled(by_adapter_params(a), usual->targets, usual->feedforward))
            fail_msg("%s: not all of %s are scaled", family, usual->targets);
        known++;
        by_model_free(m);
    }
    assert_int_equal(known, 23);
}

/* ---- folders ---------------------------------------------------------------------------------- */

/* Every tensor of a has an equal in b, but for base weights, which are not written. */
static void expect_tensors(const char *a, const char *b)
{
    by_weights *x = by_weights_open(a), *y = by_weights_open(b);
    assert_non_null(x);
    assert_non_null(y);
    int other = 0;
    for (int i = 0; i < by_weights_count(x); i++) {
        const by_weight *e = by_weights_at(x, i), *f = by_weights_find(y, e->name);
        if (strstr(e->name, ".base_layer.weight")) {
            other++;
            continue;
        }
        assert_non_null(f);
        assert_int_equal(e->bytes, f->bytes);
        assert_memory_equal(e->data, f->data, e->bytes);
    }
    assert_int_equal(by_weights_count(x) - other, by_weights_count(y));
    by_weights_free(x);
    by_weights_free(y);
}

/* What is read from a folder is what is written to another. */
static void test_folders(void **state)
{
    (void)state;
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_model *m = open_case(cases[i]);
        by_adapter *a = by_adapter_open(m, case_path(cases[i], "/adapter"), false);
        if (!a)
            fail_msg("%s", by_error_message());
        const char *out = in_root(cases[i]);
        expect(by_adapter_save(a, out));
        char path[512];
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", out);
        expect_tensors(case_path(cases[i], "/adapter/adapter_model.safetensors"), path);
        size_t n;
        float *x = logits_of(m, &n);
        by_adapter_free(a);
        assert_non_null(by_adapter_open(m, out, false));
        float *y = logits_of(m, &n);
        assert_memory_equal(x, y, n * sizeof *x);
        base_free(x);
        base_free(y);
        by_model_free(m);
    }
}

/* In training the norms of DoRA are computed in the graph, otherwise once on the host; merging computes them too. */
static void test_ways(void **state)
{
    (void)state;
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_model *m = open_case(cases[i]);
        const char *dir = case_path(cases[i], "/adapter");
        size_t n;
        float *base = logits_of(m, &n);
        assert_non_null(by_adapter_open(m, dir, false));
        float *plain = logits_of(m, &n);
        by_adapter *a = by_adapter_open(m, dir, true);
        assert_non_null(a);
        float *training = logits_of(m, &n);
        assert_true(apart(plain, training, n) < 2e-5);
        assert_true(apart(base, plain, n) > 1e-3);
        const bool mergeable = !strstr(cases[i], "prefix") && !strstr(cases[i], "prompt");
        if (mergeable)
            expect(by_adapter_merge(a));
        by_model_use(m, mergeable ? NULL : a);
        float *merged = logits_of(m, &n);
        assert_true(apart(plain, merged, n) < 1e-4);
        base_free(base);
        base_free(plain);
        base_free(training);
        base_free(merged);
        by_model_free(m);
    }
}

/* A folder opens as a model: its base, found by path, and its adapter. */
static void test_folder_as_model(void **state)
{
    (void)state;
    by_model *m = open_case("tune-bert-lora");
    by_adapter *a = by_adapter_open(m, case_path("tune-bert-lora", "/adapter"), false);
    assert_non_null(a);
    size_t n;
    float *x = logits_of(m, &n);
    expect(by_model_save(m, in_root("as-model"), BY_F32));
    by_model_free(m);
    char text[2048];
    snprintf(text, sizeof text, "%s/adapter_config.json", in_root("as-model"));
    size_t size;
    char *config = base_file_read(text, 1 << 20, &size);
    assert_non_null(config);
    char *at = strstr(config, "\"tune-bert-lora\"");
    assert_non_null(at);
    base_buf changed = {0};
    base_buf_put(&changed, config, (size_t)(at - config));
    base_buf_printf(&changed, "\"%s\"%s", case_path("tune-bert-lora", ""), at + strlen("\"tune-bert-lora\""));
    expect(base_file_write(text, changed.data, changed.size));
    base_buf_free(&changed);
    base_free(config);
    m = by_model_open(device, in_root("as-model"), &(by_model_spec){0});
    if (!m)
        fail_msg("%s", by_error_message());
    by_model_set_dropout(m, 0);
    float *y = logits_of(m, &n);
    assert_memory_equal(x, y, n * sizeof *x);
    assert_non_null(by_model_adapter(m));
    base_free(x);
    base_free(y);
    by_model_free(m);
}

/* ---- switching -------------------------------------------------------------------------------- */

static void read_logits(by_passes *s, by_model *m, float *out)
{
    by_batch b = batch_of(m);
    by_pass *p = by_passes_get(s, &b);
    if (!p)
        fail_msg("%s", by_error_message());
    expect(by_pass_run(p, &b));
    expect(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), out));
}

/* Two adapters and none, in turns: the same bits each time, and nothing is compiled twice. */
static void test_switching(void **state)
{
    (void)state;
    by_model *m = open_case("tune-gpt2-lora");
    by_adapter *list[3] = {NULL, by_adapter_open(m, case_path("tune-gpt2-lora", "/adapter"), false)};
    list[2] = by_adapter_new(m, &(by_adapter_spec){.rank = 2, .targets = "all-linear", .dora = true}, false);
    assert_non_null(list[1]);
    assert_non_null(list[2]);
    stir(list[2]);
    size_t n;
    float *x = logits_of(m, &n), *seen[3];
    by_passes *s = by_passes_new(m, &(by_pass_spec){0}, 0);
    size_t bytes = 0;
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < 3; i++) {
            by_model_use(m, list[i]);
            assert_true(by_model_adapter(m) == list[i]);
            read_logits(s, m, x);
            if (turn == 0) {
                seen[i] = base_alloc(n * sizeof *x);
                memcpy(seen[i], x, n * sizeof *x);
                bytes = by_passes_bytes(s);
            }
            assert_memory_equal(seen[i], x, n * sizeof *x);
            assert_int_equal(by_passes_bytes(s), bytes);
        }
    assert_true(apart(seen[0], seen[1], n) > 1e-3 && apart(seen[1], seen[2], n) > 1e-3);
    by_batch b = batch_of(m);
    by_pass *p = by_passes_last(s);
    by_model_use(m, NULL);
    assert_int_equal(by_pass_run(p, &b), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "another adapter");
    by_passes_free(s);
    for (int i = 0; i < 3; i++)
        base_free(seen[i]);
    base_free(x);
    by_model_free(m);
}

/* ---- training --------------------------------------------------------------------------------- */

static double loss_after(by_model *m, int steps, double rate)
{
    by_trainer *t = by_trainer_new(m, &(by_trainer_spec){.optimizer = {.max_grad_norm = 1}});
    if (!t)
        fail_msg("%s", by_error_message());
    by_batch b = batch_of(m);
    int32_t targets[ROWS * SEQ];
    for (int i = 0; i < ROWS * SEQ; i++)
        targets[i] = tokens[(i + 1) % (ROWS * SEQ)];
    by_batch_put_ids(&b, "targets", ROWS * SEQ, targets);
    double loss = NAN;
    for (int i = 0; i < steps; i++) {
        expect(by_trainer_backward(t, &b, true, &loss));
        expect(by_trainer_update(t, rate, NULL));
    }
    by_trainer_free(t);
    return loss;
}

/* The body keeps its bits, and has no buffers of training; the adapter's are those of its own parameters. */
static void check_training(by_dtype dtype, by_dtype weights, bool dora)
{
    const by_model_shape shape = {
        .layers = 2, .heads = 2, .width = 64, .vocab = 64, .context = 16, .dropout = 0};
    const by_adapter_spec spec = {.rank = 4, .alpha = 16, .targets = "all-linear", .dora = dora};
    by_model *m = by_model_new(
        device, "gpt2", &shape,
        &(by_model_spec){.dtype = dtype, .training = true, .weights = weights, .adapter = &spec, .seed = 3});
    if (!m)
        fail_msg("%s", by_error_message());
    const by_params *body = by_model_params(m), *own = by_model_trained(m);
    assert_true(own == by_adapter_params(by_model_adapter(m)));
    const uint64_t bits = sum_of(body);
    /* c_attn 64 to 192, c_proj 64 to 64, c_fc 64 to 256, c_proj 256 to 64: r (inputs + outputs), in two layers */
    const int64_t outputs = 192 + 64 + 256 + 64, elements = 2 * 4 * (64 + 64 + 64 + 256 + outputs);
    assert_int_equal(by_params_trained(own), elements + (dora ? 2 * outputs : 0));
    assert_int_equal(by_params_trained(body), 0);
    assert_int_equal(by_params_bytes(body), by_params_value_bytes(body));
    const size_t buffers = dtype == BY_F32 ? 3 : 4; /* gradients, two moments, masters */
    assert_int_equal(by_params_bytes(own) - by_params_value_bytes(own),
                     (size_t)by_params_trained(own) * 4 * buffers);
    const double first = loss_after(m, 1, 0), last = loss_after(m, 60, 1e-2);
    if (!(first > 3.5 && last < first - 1))
        fail_msg("the loss goes from %g to %g", first, last);
    assert_true(sum_of(body) == bits);
    by_model_free(m);
}

static void test_training(void **state)
{
    (void)state;
    check_training(BY_F32, BY_F32, false);
    check_training(BY_F32, BY_F32, true);
    check_training(BY_BF16, BY_F32, true);
}

/* GPT-2's usual vectors: 192 outputs of c_attn and 256 inputs of mlp.c_proj, in two layers. */
static void check_vectors(by_dtype dtype, by_dtype weights)
{
    const by_model_shape shape = {
        .layers = 2, .heads = 2, .width = 64, .vocab = 64, .context = 16, .dropout = 0};
    by_model *m = by_model_new(device, "gpt2", &shape,
                               &(by_model_spec){.dtype = dtype,
                                                .training = true,
                                                .weights = weights,
                                                .adapter = &(by_adapter_spec){.ia3 = true},
                                                .seed = 3});
    if (!m)
        fail_msg("%s", by_error_message());
    const by_params *body = by_model_params(m), *own = by_model_trained(m);
    const uint64_t bits = sum_of(body);
    assert_int_equal(by_params_trained(own), 2 * (192 + 256));
    assert_int_equal(by_params_bytes(body), by_params_value_bytes(body));
    assert_int_equal(by_params_bytes(own) - by_params_value_bytes(own),
                     (size_t)by_params_trained(own) * 4 * (dtype == BY_F32 ? 3 : 4));
    const double first = loss_after(m, 1, 0), last = loss_after(m, 100, 1e-1);
    if (!(first > 3.5 && last < first - 0.5))
        fail_msg("the loss goes from %g to %g", first, last);
    assert_true(sum_of(body) == bits);
    by_model_free(m);
}

static void test_vectors(void **state)
{
    (void)state;
    check_vectors(BY_F32, BY_F32);
    check_vectors(BY_BF16, BY_F32);
    check_vectors(BY_F32, BY_Q4_0);
}

static void test_stored_body(void **state)
{
    (void)state;
    check_training(BY_F32, BY_Q8_0, false);
    check_training(BY_F32, BY_Q4_0, false);
    check_training(BY_F32, BY_Q4_0, true);
    check_training(BY_BF16, BY_Q4_0, true);
}

/* Dropout before the adapter is live in training alone. */
static void test_dropout(void **state)
{
    (void)state;
    for (int dora = 0; dora < 2; dora++) {
        by_model *m = open_case("tune-gpt2-lora");
        const by_adapter_spec spec = {.rank = 4, .dropout = 0.5, .dora = dora};
        by_adapter *a = by_adapter_new(m, &spec, true);
        assert_non_null(a);
        stir(a);
        size_t n;
        float *x = logits_of(m, &n), *y = logits_of(m, &n);
        assert_memory_equal(x, y, n * sizeof *x);
        assert_true(isfinite(loss_after(m, 2, 1e-3)));
        base_free(x);
        base_free(y);
        by_model_free(m);
    }
}

/* ---- prefixes --------------------------------------------------------------------------------- */

enum { PREFIX = 5 };

/* A prefix, or a prompt. */
static by_model *with_prefix(const char *family, bool prompt)
{
    by_model *m = by_model_new(
        device, family, &(by_model_shape){.layers = 2, .heads = 4, .width = 32, .vocab = 64, .context = 48},
        &(by_model_spec){.seed = 3});
    by_adapter *a =
        m ? by_adapter_new(
                m, prompt ? &(by_adapter_spec){.prompt = PREFIX} : &(by_adapter_spec){.prefix = PREFIX}, true)
          : NULL;
    if (!a)
        fail_msg("%s: %s", family, by_error_message());
    stir(a);
    return m;
}

/* The logits after these tokens, in one pass. */
static void logits_after(by_model *m, const int32_t *ids, int count, float *out)
{
    by_batch b = by_batch_of(1, count, ids);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){0});
    if (!p)
        fail_msg("%s", by_error_message());
    expect(by_pass_run(p, &b));
    const int vocab = by_model_vocab(m);
    float *all = base_alloc((size_t)(count * vocab) * sizeof *all);
    expect(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), all));
    memcpy(out, all + (size_t)((count - 1) * vocab), (size_t)vocab * sizeof *out);
    base_free(all);
    by_pass_free(p);
}

static void expect_logits(by_generator *g, int row, const int32_t *ids, int count)
{
    float want[64];
    assert_int_equal(by_generator_length(g, row), count);
    const float *have = by_generator_logits(g, row);
    assert_non_null(have);
    logits_after(by_generator_model(g), ids, count, want);
    if (!(apart(want, have, 64) < 2e-5))
        fail_msg("%s: logits of row %d are %g apart", by_model_family(by_generator_model(g)), row,
                 apart(want, have, 64));
}

/* Rows of other lengths, in pieces, gone back, from the start again, and copied. */
static void check_cached(by_model *m, const by_generator_spec *spec)
{
    by_generator *g = by_generator_new(m, spec);
    if (!g)
        fail_msg("%s", by_error_message());
    int32_t ids[40];
    for (int i = 0; i < 40; i++)
        ids[i] = 2 + (i * 7 + 3) % 60;
    const int32_t *rows[] = {ids, ids + 9}, *later[] = {ids + 3, ids + 9 + 30}, *same[] = {ids, ids};
    expect(by_generator_feed(g, rows, (int[]){3, spec->beams ? 0 : 30}));
    expect(by_generator_feed(g, later, (int[]){20, spec->beams ? 0 : 1}));
    expect_logits(g, 0, ids, 23);
    if (spec->beams) {
        expect(by_generator_reorder(g, (int32_t[]){0, 0}));
        expect(by_generator_feed(g, (const int32_t *[]){ids + 23, ids + 23}, (int[]){1, 1}));
    }
    expect_logits(g, 1, spec->beams ? ids : ids + 9, spec->beams ? 24 : 31);
    expect(by_generator_rewind(g, 0, 2));
    expect(by_generator_feed(g, (const int32_t *[]){ids + 2, ids}, (int[]){4, 0}));
    expect_logits(g, 0, ids, 6);
    for (int b = 0; b < 2; b++)
        expect(by_generator_rewind(g, b, 0));
    expect(by_generator_feed(g, same, (int[]){7, 7}));
    expect_logits(g, 0, ids, 7);
    expect_logits(g, 1, ids, 7);
    by_generator_free(g);
}

/* The loop without the host, from one token on and from none. */
static void check_loop(by_model *m)
{
    by_generator *g = by_generator_new(m, &(by_generator_spec){.batch = 1, .capacity = 40});
    int32_t ids[16] = {7}, out[8];
    float logits[64];
    expect(by_generator_greedy(g, ids, (bool[]){true}, 8, out));
    for (int i = 0; i < 8; i++) {
        logits_after(m, ids, i + 1, logits);
        int best = 0;
        for (int v = 1; v < 64; v++)
            best = logits[v] > logits[best] ? v : best;
        assert_int_equal(out[i], best);
        ids[i + 1] = out[i];
    }
    by_generator_free(g);
}

/* Padding that is masked changes nothing, and the prefix is not masked with it. */
static void check_padding(by_model *m)
{
    int32_t ids[12] = {4, 9, 33, 21, 8}, mask[12] = {1, 1, 1, 1, 1};
    float want[64], have[12 * 64];
    logits_after(m, ids, 5, want);
    by_batch b = by_batch_of(1, 12, ids);
    by_batch_put_tokens(&b, "mask", mask);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){0});
    if (!p)
        fail_msg("%s", by_error_message());
    expect(by_pass_run(p, &b));
    expect(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), have));
    assert_true(apart(want, have + (ptrdiff_t)4 * 64, 64) < 2e-5);
    by_pass_free(p);
}

/* Blocks that are built once more for their gradients get the prefix again. */
static void check_recomputed(by_model *m)
{
    const by_params *p = by_model_trained(m);
    const size_t n = size_of(p, 0);
    float *grads[2];
    by_batch b = batch_of(m);
    int32_t targets[ROWS * SEQ];
    memcpy(targets, tokens, sizeof targets);
    by_batch_put_ids(&b, "targets", ROWS * SEQ, targets);
    for (int i = 0; i < 2; i++) {
        double loss;
        by_trainer *t = by_trainer_new(m, &(by_trainer_spec){.recompute = i});
        if (!t)
            fail_msg("%s", by_error_message());
        expect(by_trainer_backward(t, &b, true, &loss));
        grads[i] = base_alloc(n * sizeof **grads);
        expect(by_params_get(p, 0, BY_SLOT_GRAD, grads[i]));
        by_trainer_free(t);
    }
    double most = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        most = BY_MAX(most, fabs((double)grads[0][i] - (double)grads[1][i]));
        size = BY_MAX(size, fabs((double)grads[0][i]));
    }
    if (!(size > 0 && most < 1e-5 * size))
        fail_msg("gradients of up to %g are %g apart", size, most);
    base_free(grads[0]);
    base_free(grads[1]);
}

static void check_prefix(bool prompt)
{
    static const char *const families[] = {"gpt2", "llama", "gptj", "openai-gpt"};
    for (int i = 0; i < BY_COUNT(families); i++) {
        by_model *m = with_prefix(families[i], prompt);
        by_adapter *a = by_model_adapter(m);
        assert_int_equal(by_model_context(m), 48 - PREFIX);
        assert_int_equal(by_adapter_layers(a), prompt ? 1 : 2);
        float base[64], with[64];
        size_t n;
        logits_after(m, tokens, 6, with);
        by_model_use(m, NULL);
        logits_after(m, tokens, 6, base);
        assert_true(apart(base, with, 64) > 1e-3);
        by_model_use(m, a);
        check_cached(m, &(by_generator_spec){.batch = 2, .capacity = 40});
        check_cached(m, &(by_generator_spec){.batch = 2, .capacity = 40, .page = 16});
        check_cached(m, &(by_generator_spec){.batch = 2, .capacity = 40, .beams = 2});
        check_loop(m);
        check_padding(m);
        expect(by_adapter_save(a, in_root("prefix")));
        float *x = logits_of(m, &n);
        by_adapter_free(a);
        a = by_adapter_open(m, in_root("prefix"), true);
        if (!a)
            fail_msg("%s", by_error_message());
        float *y = logits_of(m, &n);
        assert_memory_equal(x, y, n * sizeof *x);
        const uint64_t bits = sum_of(by_model_params(m));
        const int64_t kv = families[i][0] == 'l' ? by_params_shape(by_adapter_params(a), 0)[1] / 4 : 32;
        assert_int_equal(by_params_trained(by_model_trained(m)), prompt ? PREFIX * 32 : PREFIX * 2 * 2 * kv);
        const double first = loss_after(m, 1, 0), last = loss_after(m, 300, 1e-1);
        if (!(last < first - (prompt ? 0.01 : 0.3))) /* five embeddings do little to a random body */
            fail_msg("%s: the loss goes from %g to %g", families[i], first, last);
        assert_true(sum_of(by_model_params(m)) == bits);
        check_recomputed(m);
        assert_int_equal(by_adapter_merge(a), BY_ERR_UNSUPPORTED);
        base_free(x);
        base_free(y);
        by_model_free(m);
    }
}

static void test_prefix(void **state)
{
    (void)state;
    check_prefix(false);
}

static void test_prompt(void **state)
{
    (void)state;
    check_prefix(true);
}

/* A new prompt is made of rows of the table. */
static void test_new_prompt(void **state)
{
    (void)state;
    by_model *m = by_model_new(device, "gpt2", &(by_model_shape){.width = 32, .vocab = 64},
                               &(by_model_spec){.seed = 3});
    by_adapter *a = by_adapter_new(m, &(by_adapter_spec){.prompt = PREFIX, .seed = 5}, false);
    assert_non_null(a);
    float rows[PREFIX * 32], table[64 * 32];
    expect(by_params_get(by_adapter_params(a), 0, BY_SLOT_VALUE, rows));
    expect(by_params_get(by_model_params(m), by_params_find(by_model_params(m), "transformer.wte.weight"),
                         BY_SLOT_VALUE, table));
    for (int i = 0; i < PREFIX; i++) {
        int token = 0;
        while (token < 64 &&
               memcmp(rows + (ptrdiff_t)i * 32, table + (ptrdiff_t)token * 32, 32 * sizeof *rows) != 0)
            token++;
        assert_true(token < 64);
    }
    by_model_free(m);
}

/* Decoders that write text, whose attention sees all that is before a token. */
static void test_no_prefix(void **state)
{
    (void)state;
    for (int i = 0; by_family_at(i); i++) {
        const char *family = by_family_at(i);
        by_model *m =
            by_model_new(device, family, &(by_model_shape){.vocab = 64, .dropout = 0}, &(by_model_spec){0});
        assert_non_null(m);
        const bool takes = strcmp(family, "gpt2") == 0 || strcmp(family, "llama") == 0 ||
                           strcmp(family, "gptj") == 0 || strcmp(family, "openai-gpt") == 0;
        const by_adapter_spec specs[] = {{.prefix = 2}, {.prompt = 2}};
        for (int k = 0; k < BY_COUNT(specs); k++) {
            by_adapter *a = by_adapter_new(m, &specs[k], false);
            if ((a != NULL) != takes)
                fail_msg("%s: %s", family, a ? "takes a prefix" : by_error_message());
            if (!a)
                assert_true(strstr(by_error_message(), "prefix") || strstr(by_error_message(), "prompt"));
        }
        by_model_free(m);
    }
}

/* ---- refusals --------------------------------------------------------------------------------- */

static void refuse(by_model *m, const char *config, const char *why)
{
    expect(base_dir_make(in_root("bad")));
    write_text("bad/adapter_config.json", config);
    assert_null(by_adapter_open(m, in_root("bad"), false));
    assert_contains(by_error_message(), why);
    assert_null(by_model_adapter(m));
}

static void test_refusals(void **state)
{
    (void)state;
    by_model *m = open_case("tune-gpt2-lora");
    refuse(m, "{\"peft_type\": \"LOHA\"}", "LOHA");
    refuse(m, "{\"peft_type\": \"IA3\", \"target_modules\": [\"c_attn\"]}", "no feedforward_modules");
    refuse(m, "{\"peft_type\": \"IA3\", \"feedforward_modules\": []}", "no target_modules");
    refuse(m, "{\"peft_type\": \"IA3\", \"target_modules\": [\"c_attn\"], \"feedforward_modules\": 3}",
           "not a list of names");
    refuse(m, "{\"peft_type\": \"IA3\", \"target_modules\": [\"c_attn\"], \"feedforward_modules\": \"(\"}",
           "regular expression");
    refuse(m,
           "{\"peft_type\": \"IA3\", \"target_modules\": [\"c_attn\"], \"feedforward_modules\": [], "
           "\"layers_to_transform\": [1]}",
           "layers_to_transform");
    refuse(m, "{\"peft_type\": \"IA3\", \"target_modules\": [\"wte\"], \"feedforward_modules\": []}",
           "is an embedding");
    refuse(m, "{\"peft_type\": \"P_TUNING\"}", "P_TUNING");
    refuse(m, "{\"peft_type\": \"PREFIX_TUNING\"}", "num_virtual_tokens");
    refuse(m, "{\"peft_type\": \"PREFIX_TUNING\", \"num_virtual_tokens\": -1}", "num_virtual_tokens");
    refuse(m, "{\"peft_type\": \"PREFIX_TUNING\", \"num_virtual_tokens\": 4000}", "leaves none");
    refuse(m, "{\"peft_type\": \"PREFIX_TUNING\", \"num_virtual_tokens\": 3, \"modules_to_save\": [\"wte\"]}",
           "modules_to_save");
    refuse(m, "[]", "not an object");
    refuse(m, "{\"peft_type\": \"LORA\"}", "target_modules");
    refuse(m, "{\"peft_type\": \"LORA\", \"target_modules\": [\"nothing\"]}", "no linear layer");
    refuse(m, "{\"peft_type\": \"LORA\", \"target_modules\": \"(\"}", "regular expression");
    refuse(m, "{\"peft_type\": \"LORA\", \"target_modules\": [1]}", "not a list of names");
    refuse(m, "{\"peft_type\": \"LORA\", \"target_modules\": [\"c_attn\"], \"r\": 0}", "\"r\"");
    refuse(m, "{\"peft_type\": \"LORA\", \"target_modules\": [\"c_attn\"], \"bias\": \"some\"}", "bias");
    refuse(m, "{\"peft_type\": \"LORA\", \"target_modules\": [\"c_attn\"], \"layer_replication\": [[0, 1]]}",
           "layer_replication");
    refuse(m, "{\"peft_type\": \"LORA\", \"target_modules\": [\"c_attn\"], \"rank_pattern\": {\"x\": 0.5}}",
           "rank_pattern");
    refuse(m, "{\"peft_type\": \"LORA\", \"target_modules\": [\"c_attn\"], \"init_lora_weights\": \"pissa\"}",
           "pissa");
    refuse(m, "{\"peft_type\": \"LORA\", \"target_modules\": \"(a+)+(b+)+(c+)+(.*)*d\"}", "no linear layer");
    refuse(m, "{\"peft_type\": \"LORA\", \"target_modules\": [\"c_attn\"]}", "adapter_model.safetensors");
    by_model_free(m);
}

/* Tensors that are missing, left over or of another shape. */
static void test_wrong_tensors(void **state)
{
    (void)state;
    by_model *m = open_case("tune-gpt2-lora");
    const float zeros[64 * 64] = {0};
    by_weight w = {.name = "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight",
                   .dtype = BY_F32,
                   .rank = 2,
                   .dim = {8, 16},
                   .data = zeros,
                   .bytes = sizeof(float) * 8 * 16};
    expect(base_dir_make(in_root("bad")));
    expect(by_weights_write(in_root("bad/adapter_model.safetensors"), &w, 1, NULL));
    refuse(m, "{\"peft_type\": \"LORA\", \"target_modules\": [\"c_attn\"]}", "is missing");
    refuse(m, "{\"peft_type\": \"LORA\", \"target_modules\": [\"c_attn\"], \"r\": 4}",
           "does not have the shape");
    w.name = "base_model.model.transformer.h.9.attn.c_attn.lora_A.weight";
    expect(by_weights_write(in_root("bad/adapter_model.safetensors"), &w, 1, NULL));
    refuse(m, "{\"peft_type\": \"LORA\", \"target_modules\": [\"c_attn\"]}", "belongs to no layer");
    by_model_free(m);
}

static void test_misuse(void **state)
{
    (void)state;
    by_model *m = by_model_open(device, case_path("tune-gpt2-lora", ""), &(by_model_spec){.training = true});
    assert_non_null(m);
    assert_null(by_adapter_new(m, &(by_adapter_spec){0}, true));
    assert_contains(by_error_message(), "opened for training");
    assert_null(by_adapter_new(m, &(by_adapter_spec){.rank = -1}, false));
    assert_null(by_adapter_new(m, &(by_adapter_spec){.dropout = 1}, false));
    assert_null(by_adapter_new(m, &(by_adapter_spec){.bias = "half"}, false));
    assert_null(by_adapter_new(m, &(by_adapter_spec){.layers = "1,x"}, false));
    assert_null(by_adapter_new(m, &(by_adapter_spec){.ia3 = true, .feedforward = "c_fc"}, false));
    assert_contains(by_error_message(), "is not among the targets");
    by_model_free(m);
    m = by_model_open(device, case_path("tune-gpt2-lora", ""), &(by_model_spec){0});
    by_adapter *a = by_adapter_new(m, &(by_adapter_spec){.targets = "wte"}, false);
    assert_non_null(a);
    assert_int_equal(by_adapter_layers(a), 1);
    assert_int_equal(by_adapter_unmerge(a), BY_ERR_ARGUMENT);
    assert_int_equal(by_adapter_merge(a), BY_ERR_ARGUMENT); /* mapped */
    by_model_free(m);
    m = open_case("tune-gpt2-lora");
    a = by_adapter_new(m, &(by_adapter_spec){.targets = "wte"}, false);
    assert_int_equal(by_adapter_merge(a), BY_ERR_UNSUPPORTED); /* the head is tied to it */
    by_model_free(m);
}

/* A tied head keeps the table of the body where the adapter has its own, and can have its own while the table stays. */
static void test_tied_head(void **state)
{
    (void)state;
    static const struct {
        const char *save, *name;
    } ways[] = {{"wte", "base_model.model.transformer.wte.weight"},
                {"lm_head", "base_model.model.lm_head.weight"}};
    for (int i = 0; i < BY_COUNT(ways); i++) {
        by_model *m = open_case("tune-gpt2-lora");
        size_t n;
        float *base = logits_of(m, &n);
        by_adapter *a = by_adapter_new(m, &(by_adapter_spec){.save = ways[i].save}, false);
        assert_non_null(a);
        by_params *p = by_adapter_params(a);
        const int k = by_params_find(p, ways[i].name);
        assert_true(k >= 0);
        float *same = logits_of(m, &n);
        assert_memory_equal(base, same, n * sizeof *base);
        /* Of the weights of the last token, which is not in the batch: a head sees it, a look-up does not. */
        const size_t size = size_of(p, k), width = (size_t)by_params_shape(p, k)[1];
        float *v = base_alloc(size * sizeof *v);
        expect(by_params_get(p, k, BY_SLOT_VALUE, v));
        for (size_t c = 0; c < width; c++)
            v[size - width + c] += 1;
        expect(by_params_set(p, k, BY_SLOT_VALUE, v));
        float *changed = logits_of(m, &n);
        assert_true((apart(base, changed, n) > 0) == (i == 1));
        base_free(base);
        base_free(same);
        base_free(changed);
        base_free(v);
        by_model_free(m);
    }
}

/* ---- names ------------------------------------------------------------------------------------ */

/* The model of a case of this repository. */
static by_model *open_own(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, BY_SOURCE_DIR "/tests/data/verify/%s", name);
    by_model *m = by_model_open(device, path, &(by_model_spec){.copy = true, .exact = true});
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

static by_adapter *add(by_model *m, const by_adapter_spec *spec)
{
    by_adapter *a = by_adapter_new(m, spec, false);
    if (!a)
        fail_msg("%s", by_error_message());
    return a;
}

static void expect_same_names(const by_adapter *a, const by_adapter *b)
{
    const by_params *p = by_adapter_params(a), *q = by_adapter_params(b);
    assert_int_equal(by_params_count(p), by_params_count(q));
    for (int i = 0; i < by_params_count(p); i++)
        assert_string_equal(by_params_name(p, i), by_params_name(q, i));
}

/* What adapter_config.json says, without spaces. */
static char *member(const char *dir, const char *key)
{
    char path[512];
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    cJSON *json = base_json_load(path);
    assert_non_null(json);
    base_buf text = {0};
    expect(base_json_print(&text, cJSON_GetObjectItemCaseSensitive(json, key), false));
    cJSON_Delete(json);
    return text.data;
}

static void expect_member(const char *dir, const char *key, const char *text)
{
    char *here = member(dir, key);
    assert_string_equal(here, text);
    base_free(here);
}

/* The reference library renamed modules; files of models have the earlier names. Both are read, and one is written. */
static void test_spellings(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        by_adapter_spec files, modules;
        const char *targets; /* in the configuration of the second */
    } ways[] = {
        {"vit-other-size", {.targets = NULL}, {.targets = "query,value"}, NULL},
        {"vit-other-size",
         {.targets = "query,value"},
         {.targets = "q_proj,v_proj"},
         "[\"q_proj\",\"v_proj\"]"},
        {"vit-other-size",
         {.targets = "output.dense", .layers = "1", .bias = "lora_only"},
         {.targets = "o_proj,mlp.fc2", .layers = "1", .bias = "lora_only"},
         "[\"o_proj\",\"mlp.fc2\"]"},
        {"vit-other-size",
         {.targets = "vit\\.encoder\\.layer\\.\\d\\.(intermediate\\.dense|attention\\.attention\\.key)"},
         {.targets = "vit\\.layers\\.\\d\\.(mlp\\.fc1|attention\\.k_proj)"},
         "\"vit\\\\.layers\\\\.\\\\d\\\\.(mlp\\\\.fc1|attention\\\\.k_proj)\""},
        {"deit-teacher",
         {.targets = "attention.query", .save = "intermediate"},
         {.targets = "attention.q_proj", .save = "fc1"},
         "[\"attention.q_proj\"]"},
        {"caption",
         {.targets = "value,c_attn", .bias = "all"},
         {.targets = "v_proj,c_attn", .bias = "all"},
         "[\"v_proj\",\"c_attn\"]"},
    };
    for (int i = 0; i < BY_COUNT(ways); i++) {
        by_model *m = open_own(ways[i].model);
        by_adapter *a = add(m, &ways[i].files), *b = add(m, &ways[i].modules);
        const by_params *p = by_adapter_params(a);
        expect_same_names(a, b);
        for (int k = 0; k < by_params_count(p); k++)
            assert_null(strstr(by_params_name(p, k), "encoder.layer."));
        expect(by_adapter_save(a, in_root("files")));
        expect(by_adapter_save(b, in_root("modules")));
        if (ways[i].targets)
            expect_member(in_root("modules"), "target_modules", ways[i].targets);
        by_adapter *c = by_adapter_open(m, in_root("files"), false);
        if (!c)
            fail_msg("%s", by_error_message());
        expect_same_names(a, c);
        char *targets = member(in_root("files"), "target_modules");
        assert_null(strstr(targets, "dense"));
        assert_null(strstr(targets, "query"));
        base_free(targets);
        by_model_free(m);
    }
}

/* A folder of earlier versions, as it is written again. */
static void test_old_folder(void **state)
{
    (void)state;
    static const char *const members[][2] = {
        {"target_modules",
         "[\"vit.layers.1.attention.q_proj\",\"vit.layers.1.attention.o_proj\",\"vit.layers.1.mlp.fc2\"]"},
        {"modules_to_save", "[\"vit.layers.0.mlp.fc1\",\"classifier\"]"},
        {"rank_pattern", "{\"vit.layers.1.mlp.fc2\":1}"},
        {"alpha_pattern", "{\"vit.layers.1.attention.o_proj\":5}"},
        {"exclude_modules", "null"},
        {"layers_to_transform", "null"},
        {"layers_pattern", "null"},
        {"r", "2"},
    };
    by_model *m = open_own("tune-vit-old");
    by_adapter *a = by_adapter_open(m, BY_SOURCE_DIR "/tests/data/verify/tune-vit-old/adapter", false);
    if (!a)
        fail_msg("%s", by_error_message());
    expect(by_adapter_save(a, in_root("again")));
    for (int i = 0; i < BY_COUNT(members); i++)
        expect_member(in_root("again"), members[i][0], members[i][1]);
    by_adapter *b = by_adapter_open(m, in_root("again"), false);
    if (!b)
        fail_msg("%s", by_error_message());
    expect_same_names(a, b);
    assert_true(sum_of(by_adapter_params(a)) == sum_of(by_adapter_params(b)));
    by_model_free(m);
}

/* PEFT reads lists of names whose second is a part of the first. */
static void test_described_vectors(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        by_adapter_spec spec;
        const char *targets, *feedforward;
    } ways[] = {
        {"tune-gpt2-ia3", {.targets = NULL}, "[\"c_attn\",\"mlp.c_proj\"]", "[\"mlp.c_proj\"]"},
        {"tune-gpt2-ia3", {.targets = "c_fc,c_attn"}, "[\"c_fc\",\"c_attn\"]", "[]"},
        {"tune-gpt2-ia3",
         {.targets = "c_attn,mlp.c_proj", .feedforward = ""},
         "[\"c_attn\",\"mlp.c_proj\"]",
         "[]"},
        {"tune-gpt2-ia3", {.targets = ".*mlp.*", .feedforward = ".*c_proj"}, "\".*mlp.*\"", "\".*c_proj\""},
        {"tune-gpt2-ia3",
         {.targets = "all-linear", .feedforward = "c_proj", .save = "h.0"},
         "[\"transformer.h.1.attn.c_attn\",\"transformer.h.1.attn.c_proj\",\"transformer.h.1.mlp.c_fc\","
         "\"transformer.h.1.mlp.c_proj\"]",
         "[\"transformer.h.1.attn.c_proj\",\"transformer.h.1.mlp.c_proj\"]"},
        {"tune-deit",
         {.targets = "layer.1.attention.attention.key,layer.1.output.dense",
          .feedforward = "layer.1.output.dense"},
         "[\"deit.layers.1.attention.k_proj\",\"deit.layers.1.mlp.fc2\"]",
         "[\"deit.layers.1.mlp.fc2\"]"},
    };
    for (int i = 0; i < BY_COUNT(ways); i++) {
        by_model *m = open_own(ways[i].model);
        by_adapter_spec spec = ways[i].spec;
        spec.ia3 = true;
        by_adapter *a = add(m, &spec);
        expect(by_adapter_save(a, in_root("vectors")));
        expect_member(in_root("vectors"), "target_modules", ways[i].targets);
        expect_member(in_root("vectors"), "feedforward_modules", ways[i].feedforward);
        by_adapter *b = by_adapter_open(m, in_root("vectors"), false);
        if (!b)
            fail_msg("%s", by_error_message());
        expect_same_names(a, b);
        by_model_free(m);
    }
}

static int open_all(void **state)
{
    (void)state;
    device = by_device_open("cpu", 1);
    return device && make_root("adapter") ? 0 : 1;
}

static int close_all(void **state)
{
    (void)state;
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_ways),
        cmocka_unit_test(test_folder_as_model),
        cmocka_unit_test(test_switching),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_stored_body),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_wrong_tensors),
        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_tied_head),
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_old_folder),
        cmocka_unit_test(test_usual_vectors),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_described_vectors),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_new_prompt),
        cmocka_unit_test(test_no_prefix),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
