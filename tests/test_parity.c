/* test_parity.c - models against values that the reference library computed (tests/data/verify,
 * shared/parity), and that a difference does not go unnoticed: every kind of tensor is spoiled once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "banyan/verify.h"
#include "base/file.h"
#include "child.h"
#include "io/weights.h"
#include "verify/measure.h"

static by_device *device;
static char folder[256]; /* for spoiled cases */

static const char *case_dir(const char *name)
{
    static char path[1024];
    const char *shared = getenv("BANYAN_SHARED");
    snprintf(path, sizeof path, BY_SOURCE_DIR "/tests/data/verify/%s", name);
    if (base_dir_exists(path))
        return path;
    snprintf(path, sizeof path, "%s/parity/%s", shared ? shared : BY_SOURCE_DIR "/../shared", name);
    if (!base_dir_exists(path)) {
        print_message("%s is not there\n", path);
        skip();
    }
    return path;
}

static const char *in_folder(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* What a verification said. */
typedef struct record {
    int ok, failed, not_run;
    char first_failed[128], note[256];
    double worst; /* error / bound of what was ok */
} record;

static void on_line(void *user, const by_verify_line *l)
{
    record *r = user;
    r->ok += l->verdict == BY_VERDICT_OK;
    r->not_run += l->verdict == BY_VERDICT_NOT_RUN;
    if (l->verdict == BY_VERDICT_OK && l->bound > 0)
        r->worst = BY_MAX(r->worst, l->error / l->bound);
    if (l->verdict == BY_VERDICT_FAILED && r->failed++ == 0) {
        snprintf(r->first_failed, sizeof r->first_failed, "%s", l->name);
        snprintf(r->note, sizeof r->note, "%s", l->note ? l->note : "");
    }
    if (l->verdict == BY_VERDICT_OK)
        assert_true(l->error <= l->bound);
}

static by_status verify(const char *dir, by_dtype dtype, record *r)
{
    by_verify_result result;
    *r = (record){0};
    by_status s =
        by_verify(device, dir, &(by_verify_spec){.dtype = dtype, .line = on_line, .user = r}, &result);
    assert_int_equal(result.tensors, r->ok + r->failed);
    assert_int_equal(result.failed, r->failed);
    assert_int_equal(result.not_run, r->not_run);
    return s;
}

/* ---- as recorded ----------------------------------------------------------------------------- */

/* Tensors of a reference that are no inputs: each must have got a line. */
static int count_expected(const char *dir)
{
    char path[1100];
    int n = 0;
    snprintf(path, sizeof path, "%s/reference.safetensors", dir);
    by_weights *file = by_weights_open(path);
    assert_non_null(file);
    for (int i = 0; i < by_weights_count(file); i++) {
        const char *name = by_weights_at(file, i)->name;
        const bool input = strncmp(name, "input.", 6) == 0 || strncmp(name, "rotations.", 10) == 0;
        n += !input && strncmp(name, "step", 4) != 0;
    }
    by_weights_free(file);
    return n;
}

static void expect_equal(const char *name, by_dtype dtype)
{
    const char *dir = case_dir(name);
    record r;
    if (verify(dir, dtype, &r) != BY_OK)
        fail_msg("%s", by_error_message());
    if (r.failed)
        fail_msg("%s in %s: %d failed, first %s %s", name, by_dtype_name(dtype), r.failed, r.first_failed,
                 r.note);
    assert_int_equal(r.ok + r.not_run, count_expected(dir));
    assert_true(r.ok > 5); /* a reference without gradients has 7 tensors */
}

/* The cases of this repository, which every machine has. */
static void test_own_cases(void **state)
{
    (void)state;
    static const char *const cases[] = {"gpt2",
                                        "bert",
                                        "t5",
                                        "tune-deit",
                                        "tune-vit-old",
                                        "tune-caption",
                                        "tune-gpt2-ia3",
                                        "tune-bert-ia3",
                                        "tune-t5-ia3",
                                        "tune-gpt2-prefix",
                                        "tune-llama-prefix",
                                        "tune-gpt2-prompt",
                                        "tune-llama-prompt",
                                        "tune-llama-ia3",
                                        "tune-gptj-head",
                                        "tune-bert-head",
                                        "tune-llama-tokens",
                                        "tune-gpt2-shifts",
                                        "align-sft",
                                        "align-dpo-mixed",
                                        "align-grpo-tokens"};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        expect_equal(cases[i], BY_F32);
        expect_equal(cases[i], BY_F64);
        expect_equal(cases[i], BY_F16);
    }
}

static void test_gpt2_lm(void **state)
{
    (void)state;
    expect_equal("gpt2-lm", BY_F32);
    expect_equal("gpt2-lm", BY_F64);
    expect_equal("gpt2-lm", BY_BF16);
}

/* A computation without a model: three outputs, gradients of two inputs. */
static void test_continuous_cache(void **state)
{
    (void)state;
    static const by_dtype types[] = {BY_F32, BY_F64, BY_BF16, BY_F16};
    for (int i = 0; i < BY_COUNT(types); i++) {
        record r;
        assert_int_equal(verify(case_dir("continuous-cache"), types[i], &r), BY_OK);
        assert_int_equal(r.failed, 0);
        assert_int_equal(r.ok, 5);
    }
}

static void test_gpt2_classify(void **state)
{
    (void)state;
    expect_equal("gpt2-classify", BY_F32);
    expect_equal("gpt2-classify", BY_F16);
}

static void test_gpt_lm(void **state)
{
    (void)state;
    expect_equal("gpt-lm", BY_F32);
    expect_equal("gpt-lm", BY_BF16);
}

/* The memories are inputs and outputs. Not in 16 bits: among so few rows, one unit of the ReLU that rounding switches on or
 * off changes a gradient by more than the bound. */
static void test_transfo_xl(void **state)
{
    (void)state;
    static const char *const cases[] = {"transfo-xl", "transfo-xl-authors", "transfo-xl-plain",
                                        "transfo-xl-memory", "transfo-xl-adaptive"};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        expect_equal(cases[i], BY_F32);
        expect_equal(cases[i], BY_F64);
    }
}

/* In bf16 a row may change its bucket, which no bound covers: local attention alone. */
static void test_reformer_lm(void **state)
{
    (void)state;
    expect_equal("reformer-lm", BY_F32);
    expect_equal("reformer-lm", BY_F64);
    expect_equal("reformer-local-lm", BY_F32);
    expect_equal("reformer-local-lm", BY_F64);
    expect_equal("reformer-local-lm", BY_BF16);
}

static void test_gptj_lm(void **state)
{
    (void)state;
    expect_equal("gptj-lm", BY_F32);
    expect_equal("gptj-lm", BY_F64);
    expect_equal("gptj-lm", BY_BF16);
}

static void test_sparse(void **state)
{
    (void)state;
    static const char *const cases[] = {"sparse-strided-lm-merged",    "sparse-strided-lm-alternating",
                                        "sparse-strided-lm-heads",     "sparse-fixed-lm-merged",
                                        "sparse-fixed-lm-alternating", "sparse-fixed-lm-heads"};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        expect_equal(cases[i], BY_F32);
        expect_equal(cases[i], BY_F64);
        expect_equal(cases[i], BY_F16); /* bf16 itself rounds models this narrow past the bound */
    }
}

/* Pixel models. */
static void test_pixels(void **state)
{
    (void)state;
    static const char *const cases[] = {"imagegpt", "imagegpt-classify", "image-transformer-1d",
                                        "image-transformer-2d", "image-transformer-dmol"};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        expect_equal(cases[i], BY_F32);
        expect_equal(cases[i], BY_F64);
        expect_equal(cases[i], BY_F16);
    }
}

static void test_train_gpt2(void **state)
{
    (void)state;
    expect_equal("train-gpt2", BY_F32);
    expect_equal("train-gpt2", BY_BF16);
}

/* Models that KenLM has estimated: n-grams, scores, perplexities, and sums of 1; relative frequencies. */
static void test_ngrams(void **state)
{
    (void)state;
    record r;
    const char *dir = case_dir("../data/ngram");
    if (verify(dir, BY_F32, &r) != BY_OK)
        fail_msg("%s", by_error_message());
    if (r.failed)
        fail_msg("%d failed, first %s %s", r.failed, r.first_failed, r.note);
    assert_int_equal(r.ok, 7 * 6 + 8 * 2);
}

/* Pictures that Pillow has decoded and resized and that processors of transformers have prepared; damaged ones. */
static void test_images(void **state)
{
    (void)state;
    record r;
    const char *dir = case_dir("../data/images");
    if (verify(dir, BY_F32, &r) != BY_OK)
        fail_msg("%s", by_error_message());
    if (r.failed)
        fail_msg("%d failed, first %s %s", r.failed, r.first_failed, r.note);
    assert_int_equal(r.ok, 66 + 33); /* recorded results, damaged files */
}

/* Conversations that transformers has rendered with published chat templates. */
static void test_chats(void **state)
{
    (void)state;
    record r;
    const char *dir = case_dir("../data/chat");
    if (verify(dir, BY_F32, &r) != BY_OK)
        fail_msg("%s", by_error_message());
    if (r.failed)
        fail_msg("%d failed, first %s %s", r.failed, r.first_failed, r.note);
    assert_int_equal(r.ok, 28 * 40); /* templates, renderings of each */
}

static void test_encoders(void **state)
{
    (void)state;
    static const char *const cases[] = {"bert-pretrain",
                                        "bert-classify",
                                        "bert-qa",
                                        "bert-regression",
                                        "bert-token-classify",
                                        "roberta-mlm",
                                        "roberta-classify",
                                        "distilbert-mlm",
                                        "distilbert-classify",
                                        "albert-pretrain",
                                        "xlm-mlm",
                                        "xlm-clm",
                                        "xlm-roberta-mlm",
                                        "train-bert",
                                        "linformer-mlm-headwise",
                                        "linformer-mlm-kv",
                                        "linformer-mlm-layerwise",
                                        "longformer-mlm",
                                        "bigbird-mlm",
                                        "xlnet-classify",
                                        "xlnet-memory",
                                        "xlnet-permutation"};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        expect_equal(cases[i], BY_F32);
        expect_equal(cases[i], BY_F64);
    }
}

static void test_pictures(void **state)
{
    (void)state;
    static const char *const cases[] = {"vit-classify",
                                        "deit-classify",
                                        "vit-other-size",
                                        "deit-teacher",
                                        "clip",
                                        "vit-gpt2-caption",
                                        "caption",
                                        "caption-bert",
                                        "caption-roberta",
                                        "caption-roberta-padding",
                                        "upscale-2d",
                                        "upscale-dmol",
                                        "vit-module-names",
                                        "caption-module-names",
                                        "clip-old"};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        expect_equal(cases[i], BY_F32);
        expect_equal(cases[i], BY_F64);
    }
    expect_equal("vit-classify", BY_BF16);
}

/* Encoder-decoders: outputs and cross-attention, losses, gradients, greedy and beam tokens. */
static void test_encoder_decoders(void **state)
{
    (void)state;
    static const char *const cases[] = {"marian", "t5-relu", "t5-gated-gelu", "bart",
                                        "mbart",  "pegasus", "train-t5"};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        expect_equal(cases[i], BY_F32);
        expect_equal(cases[i], BY_F64);
    }
    expect_equal("bart", BY_BF16);
}

/* Models with an adapter: outputs with and without it, its gradients, merged weights, ten steps. */
static void test_adapters(void **state)
{
    (void)state;
    static const char *const cases[] = {"tune-gpt2-lora",  "tune-gpt2-dora",    "tune-llama-lora",
                                        "tune-llama-dora", "tune-llama-rslora", "tune-llama-embed",
                                        "tune-bert-lora",  "tune-bert-bias",    "tune-t5-lora"};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        expect_equal(cases[i], BY_F32);
        expect_equal(cases[i], BY_F64);
    }
    expect_equal("tune-gpt2-dora", BY_BF16);
}

/* Recurrent layers and additive attention: outputs, states and every gradient. */
static void test_recurrent(void **state)
{
    (void)state;
    static const char *const cases[] = {"recurrent-rnn", "recurrent-lstm", "recurrent-gru",
                                        "attention-additive"};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        expect_equal(cases[i], BY_F32);
        expect_equal(cases[i], BY_F64);
    }
}

/* Losses of numbers: smoothed labels, distillation, DPO, PPO. */
static void test_losses(void **state)
{
    (void)state;
    expect_equal("losses", BY_F32);
    expect_equal("losses", BY_F64);
}

/* Losses of preferences, policies and students: per row, with what is watched, and every gradient. */
static void test_alignment(void **state)
{
    (void)state;
    static const char *const cases[] = {"align-dpo",  "align-kto",  "align-orpo-cpo", "align-reward",
                                        "align-grpo", "align-rloo", "align-ppo",      "align-distil"};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        expect_equal(cases[i], BY_F32);
        expect_equal(cases[i], BY_F64);
    }
}

/* Configurations and inputs that were once computed as if a key or a mask were not there. */
static void test_differences(void **state)
{
    (void)state;
    static const char *const cases[] = {"bert-isdecoder",      "gpt2-alias-num_attention_heads",
                                        "gpt2cls-padmid-mask", "marian-untied-unshared",
                                        "xlm-causal-leftpad",  "xlm-summary-last",
                                        "xlmr-pad-nomask"};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        char name[80];
        snprintf(name, sizeof name, "../differences/models/%s", cases[i]);
        expect_equal(name, BY_F32);
    }
    expect_equal("gpt2-untied-lm", BY_F32);
}

/* Texts are said not to have run in 16 bits, in one line each, and are not counted; otherwise all do. */
static void test_not_run(void **state)
{
    (void)state;
    record r;
    assert_int_equal(verify(case_dir("gpt2-lm"), BY_F32, &r), BY_OK);
    assert_int_equal(r.not_run, 0);
    assert_int_equal(verify(case_dir("gpt2-lm"), BY_BF16, &r), BY_OK);
    assert_int_equal(r.not_run, 4);
    assert_int_equal(verify(case_dir("marian"), BY_F32, &r), BY_OK);
    assert_int_equal(r.not_run, 0);
}

/* ---- spoiled --------------------------------------------------------------------------------- */

static void copy_file(const char *dir, const char *name)
{
    char path[1100];
    size_t size;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    char *bytes = base_file_read(path, (size_t)1 << 24, &size);
    assert_non_null(bytes);
    assert_int_equal(base_file_write(in_folder(name), bytes, size), BY_OK);
    base_free(bytes);
}

/* Put `extra` (with a name that may replace one there is) into a copy of a case's file. */
static void spoil(const char *name, const char *file_name, const by_weight *extra)
{
    const char *dir = case_dir(name);
    static const char *const files[] = {"config.json", "case.json", "model.safetensors",
                                        "reference.safetensors"};
    assert_int_equal(base_dir_make(folder), BY_OK);
    for (int i = 0; i < BY_COUNT(files); i++)
        copy_file(dir, files[i]);
    char path[1100];
    snprintf(path, sizeof path, "%s/%s", dir, file_name);
    by_weights *file = by_weights_open(path);
    assert_non_null(file);
    by_weight *entries = base_alloc_zero((size_t)by_weights_count(file) + 1, sizeof *entries);
    assert_non_null(entries);
    int n = 0;
    for (int i = 0; i < by_weights_count(file); i++)
        if (strcmp(by_weights_at(file, i)->name, extra->name) != 0)
            entries[n++] = *by_weights_at(file, i);
    entries[n++] = *extra;
    assert_int_equal(by_weights_write(in_folder(file_name), entries, n, NULL), BY_OK);
    base_free(entries);
    by_weights_free(file);
}

/* Add `by` to one element of a tensor of the reference (or to a token). */
static void spoil_element(const char *name, const char *tensor, size_t at, double by)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/reference.safetensors", case_dir(name));
    by_weights *file = by_weights_open(path);
    const by_weight *e = by_weights_find(file, tensor);
    assert_non_null(e);
    by_weight changed = *e;
    char *bytes = base_alloc(e->bytes);
    assert_non_null(bytes);
    memcpy(bytes, e->data, e->bytes);
    if (e->dtype == BY_F32) {
        float v;
        assert_true(4 * at < e->bytes);
        memcpy(&v, bytes + 4 * at, 4);
        v += (float)by;
        memcpy(bytes + 4 * at, &v, 4);
    } else {
        int64_t v;
        assert_int_equal(e->dtype, BY_I64);
        memcpy(&v, bytes + 8 * at, 8);
        v += (int64_t)by;
        memcpy(bytes + 8 * at, &v, 8);
    }
    changed.data = bytes;
    spoil(name, "reference.safetensors", &changed);
    base_free(bytes);
    by_weights_free(file);
}

/* Exactly this tensor fails. */
static void expect_failure(const char *tensor)
{
    record r;
    assert_int_equal(verify(folder, BY_F32, &r), BY_OK);
    assert_int_equal(r.failed, 1);
    assert_string_equal(r.first_failed, tensor);
    assert_int_equal(base_dir_remove(folder), BY_OK);
}

static void test_spoiled_passes(void **state)
{
    (void)state;
    static const struct {
        const char *tensor;
        size_t at;
        double by; /* ten times the bound for one element, or less */
    } cases[] = {
        {"output.logits", 500, 2e-3},
        {"output.loss", 0, 1e-4},
        {"output.hidden_states.1", 3, 1e-3},
        {"output.attentions.1", 0, 1e-3},
        {"grad.transformer.h.1.ln_2.bias", 7, 1e-3},
        {"grad.transformer.wte.weight", 64, 1e-2},
        {"generate.greedy", 16, 1},
        {"generate.greedy_no_repeat_3gram", 5, 1},
        {"generate.beam4", 14, 1},
        {"output.logits", 0, NAN},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        spoil_element("gpt2-lm", cases[i].tensor, cases[i].at, cases[i].by);
        expect_failure(cases[i].tensor);
    }
}

static void test_spoiled_encoder_decoder(void **state)
{
    (void)state;
    static const struct {
        const char *tensor;
        double by;
    } cases[] = {
        {"output.logits", 2e-3},
        {"output.loss", 1e-4},
        {"output.encoder_hidden_states.1", 1e-3},
        {"output.decoder_hidden_states.2", 1e-3},
        {"output.encoder_attentions.0", 1e-3},
        {"output.decoder_attentions.1", 1e-3},
        {"output.cross_attentions.1", 1e-3},
        {"grad.model.decoder.layers.0.encoder_attn.k_proj.weight", 1e-3},
        {"generate.greedy", 1},
        {"generate.beam4", 1},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        const bool scalar = strcmp(cases[i].tensor, "output.loss") == 0;
        spoil_element("marian", cases[i].tensor, scalar ? 0 : 5, cases[i].by);
        expect_failure(cases[i].tensor);
    }
}

static void test_spoiled_training(void **state)
{
    (void)state;
    spoil_element("train-gpt2", "losses", 19, 1e-3);
    expect_failure("losses");
    spoil_element("train-gpt2", "grad_norms", 3, 1e-3);
    expect_failure("grad_norms");
    spoil_element("train-gpt2", "final.transformer.h.0.mlp.c_fc.weight", 11, 1e-2);
    expect_failure("final.transformer.h.0.mlp.c_fc.weight");
}

/* One wrong weight shows in the outputs. */
static void test_spoiled_weight(void **state)
{
    (void)state;
    float bias[32] = {1};
    spoil("gpt2-lm", "model.safetensors",
          &(by_weight){.name = "transformer.h.0.mlp.c_proj.bias",
                       .dtype = BY_F32,
                       .rank = 1,
                       .dim = {32},
                       .data = bias,
                       .bytes = sizeof bias});
    record r;
    assert_int_equal(verify(folder, BY_F32, &r), BY_OK);
    assert_true(r.failed > 20);
    assert_string_equal(r.first_failed, "output.attentions.1"); /* layer 0's come before the bias */
    assert_int_equal(base_dir_remove(folder), BY_OK);
}

/* What verify cannot compute is no success. */
static void test_unknown_tensors(void **state)
{
    (void)state;
    static const char *const names[] = {"output.pooler",
                                        "output.hidden_states.3",
                                        "output.hidden_states.",
                                        "grad.lm_head.bias",
                                        "generate.nothing",
                                        "rotations.0",
                                        "losses"};
    float x = 0;
    for (int i = 0; i < BY_COUNT(names); i++) {
        spoil("gpt2-lm", "reference.safetensors",
              &(by_weight){
                  .name = names[i], .dtype = BY_F32, .rank = 1, .dim = {1}, .data = &x, .bytes = sizeof x});
        expect_failure(names[i]);
    }
    spoil("train-gpt2", "reference.safetensors",
          &(by_weight){.name = "step20.input_ids",
                       .dtype = BY_F32,
                       .rank = 1,
                       .dim = {1},
                       .data = &x,
                       .bytes = sizeof x});
    expect_failure("step20.input_ids");
}

static void test_wrong_shape(void **state)
{
    (void)state;
    float x[6] = {0};
    spoil(
        "gpt2-classify", "reference.safetensors",
        &(by_weight){
            .name = "output.logits", .dtype = BY_F32, .rank = 2, .dim = {3, 2}, .data = x, .bytes = sizeof x});
    record r;
    assert_int_equal(verify(folder, BY_F32, &r), BY_OK);
    assert_int_equal(r.failed, 1);
    assert_contains(r.note, "(2, 3) here but (3, 2)");
    assert_int_equal(base_dir_remove(folder), BY_OK);
}

/* ---- cases that cannot run ------------------------------------------------------------------- */

static void expect_error(const char *part)
{
    record r;
    assert_int_not_equal(verify(folder, BY_F32, &r), BY_OK);
    assert_contains(by_error_message(), part);
    assert_int_equal(base_dir_remove(folder), BY_OK);
}

/* An input that is left out would change everything: no lines, an error. */
static void test_unknown_inputs(void **state)
{
    (void)state;
    int64_t ids[22] = {0};
    spoil("gpt2-lm", "reference.safetensors",
          &(by_weight){.name = "input.token_type_ids",
                       .dtype = BY_I64,
                       .rank = 2,
                       .dim = {2, 11},
                       .data = ids,
                       .bytes = sizeof ids});
    expect_error("input.token_type_ids");
    spoil("gpt2-lm", "reference.safetensors",
          &(by_weight){.name = "input.attention_mask",
                       .dtype = BY_I64,
                       .rank = 2,
                       .dim = {11, 2},
                       .data = ids,
                       .bytes = sizeof ids});
    expect_error("(11, 2)");
    ids[3] = 97; /* the vocabulary ends at 96 */
    spoil("gpt2-lm", "reference.safetensors",
          &(by_weight){.name = "input.input_ids",
                       .dtype = BY_I64,
                       .rank = 2,
                       .dim = {2, 11},
                       .data = ids,
                       .bytes = sizeof ids});
    expect_error("97");
}

static void put_text(const char *name, const char *text)
{
    assert_int_equal(base_file_write(in_folder(name), text, strlen(text)), BY_OK);
}

static void test_bad_cases(void **state)
{
    (void)state;
    float x = 0;
    const by_weight harmless = {
        .name = "output.loss", .dtype = BY_F32, .rank = 0, .data = &x, .bytes = sizeof x};
    spoil("gpt2-lm", "reference.safetensors", &harmless);
    put_text("case.json", "{\"class\": \"GPT2DoubleHeadsModel\"}");
    expect_error("GPT2DoubleHeadsModel");
    spoil("gpt2-lm", "reference.safetensors", &harmless);
    put_text("case.json", "{\"class\": \"GPT2LMHeadModel\", \"scalar_inputs\": {\"temperature\": 2}}");
    expect_error("temperature");
    spoil("train-gpt2", "reference.safetensors", &harmless);
    put_text("case.json", "{\"class\": \"GPT2LMHeadModel\", \"train\": {\"optimizer\": \"Lion\"}}");
    expect_error("AdamW");
    spoil("gpt2-lm", "reference.safetensors", &harmless);
    put_text("config.json", "{\"model_type\": \"no-such-family\"}");
    expect_error("no-such-family");
    spoil("gpt2-lm", "reference.safetensors", &harmless);
    put_text("reference.safetensors", "not a container");
    expect_error("reference.safetensors");
    assert_int_equal(base_dir_make(folder), BY_OK);
    expect_error("case.json");
}

/* Every setting that is not understood may change the tokens. */
static void test_generation_settings(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "{\"max_new_tokens\": 12, \"eos_token_id\": null, \"top_q\": 1}",
        "{\"max_new_tokens\": 12, \"eos_token_id\": null, \"do_sample\": true}",
        "{\"max_new_tokens\": 17}",
        "{\"max_new_tokens\": 4}",
        "{}",
        "7"};
    float x = 0;
    for (int i = 0; i < BY_COUNT(settings); i++) {
        spoil("gpt2-lm", "reference.safetensors",
              &(by_weight){.name = "output.nothing",
                           .dtype = BY_F32,
                           .rank = 1,
                           .dim = {1},
                           .data = &x,
                           .bytes = sizeof x});
        char text[256];
        snprintf(text, sizeof text, "{\"class\": \"GPT2LMHeadModel\", \"generate\": {\"greedy\": %s}}",
                 settings[i]);
        put_text("case.json", text);
        record r;
        assert_int_equal(verify(folder, BY_F32, &r), BY_OK);
        assert_int_equal(r.failed, 5); /* the four generations and output.nothing */
        assert_int_equal(base_dir_remove(folder), BY_OK);
    }
}

/* ---- measures -------------------------------------------------------------------------------- */

static void test_measures(void **state)
{
    (void)state;
    const float a[] = {1, 2, 10, -3}, b[] = {1, 2.5f, 8, -3};
    const verify_rule max = {BY_MEASURE_MAX, 0, 0}, norm = {BY_MEASURE_NORM, 0, 0.1},
                      nmse = {BY_MEASURE_NMSE, 0, 0}, different = {BY_MEASURE_DIFFERENT, 0, 0};
    const double own = 1 + 6.25 + 64 + 9, apart = 0.25 + 4;
    assert_float_equal(verify_measure_error(&max, a, b, 4, 0), 0.25, 1e-12); /* 2 of 8, not 0.5 of 2.5 */
    assert_float_equal(verify_measure_error(&max, a, b, 2, 0), 0.2, 1e-12);
    assert_float_equal(verify_measure_error(&nmse, a, b, 4, 0), apart / own, 1e-12);
    assert_float_equal(verify_measure_error(&norm, a, b, 4, 0), sqrt(apart / own), 1e-12);
    assert_float_equal(verify_measure_error(&norm, a, b, 4, 1000), sqrt(apart) / 100,
                       1e-12); /* a tenth of the whole */
    assert_float_equal(verify_measure_error(&different, a, b, 4, 0), 2, 0);
    const float zero[] = {0, 0}, small[] = {0, 1e-9f};
    assert_float_equal(verify_measure_error(&norm, zero, zero, 2, 0), 0, 0);
    assert_true(isinf(verify_measure_error(&norm, small, zero, 2, 0)));
    assert_true(verify_measure_error(&norm, small, zero, 2, 1) < 1.1e-8);
    const float odd[] = {1, NAN}, endless[] = {1, INFINITY}, plain[] = {1, 2};
    for (int m = BY_MEASURE_MAX; m <= BY_MEASURE_DIFFERENT; m++) {
        verify_rule rule = {(by_measure)m, 0, 0};
        assert_true(isinf(verify_measure_error(&rule, odd, plain, 2, 0)));
        assert_true(isinf(verify_measure_error(&rule, plain, odd, 2, 0)));
        assert_true(isinf(verify_measure_error(&rule, odd, odd, 2, 0)));
        assert_true(isinf(verify_measure_error(&rule, endless, plain, 2, 0)));
        assert_float_equal(verify_measure_error(&rule, endless, endless, 2, 0), 0, 0);
        assert_string_not_equal(by_measure_name((by_measure)m), "?");
    }
}

static int set_up(void **state)
{
    (void)state;
    const char *place = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/banyan-parity-XXXXXX", place && *place ? place : "/tmp");
    device = by_device_open("cpu", 1);
    return device && mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return base_dir_remove(folder) == BY_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measures),
        cmocka_unit_test(test_own_cases),
        cmocka_unit_test(test_gpt2_lm),
        cmocka_unit_test(test_gpt2_classify),
        cmocka_unit_test(test_continuous_cache),
        cmocka_unit_test(test_gpt_lm),
        cmocka_unit_test(test_gptj_lm),
        cmocka_unit_test(test_reformer_lm),
        cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_pixels),
        cmocka_unit_test(test_transfo_xl),
        cmocka_unit_test(test_train_gpt2),
        cmocka_unit_test(test_ngrams),
        cmocka_unit_test(test_images),
        cmocka_unit_test(test_chats),
        cmocka_unit_test(test_encoders),
        cmocka_unit_test(test_pictures),
        cmocka_unit_test(test_encoder_decoders),
        cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_recurrent),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_not_run),
        cmocka_unit_test(test_spoiled_passes),
        cmocka_unit_test(test_spoiled_encoder_decoder),
        cmocka_unit_test(test_spoiled_training),
        cmocka_unit_test(test_spoiled_weight),
        cmocka_unit_test(test_unknown_tensors),
        cmocka_unit_test(test_wrong_shape),
        cmocka_unit_test(test_unknown_inputs),
        cmocka_unit_test(test_bad_cases),
        cmocka_unit_test(test_generation_settings),
    };
    return cmocka_run_group_tests_name("parity", tests, set_up, tear_down);
}
