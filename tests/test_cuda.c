/* test_cuda.c - the op table on an NVIDIA GPU, or on the emulation of one (test_cuda_emulated): every sample
 * in every element type against the CPU in f64, in guarded and in planned memory, with the same bits every
 * time; and every branch of every kernel taken.
 *
 * test_cuda [OP [K/N]]: one op, and of its samples K, K + N, ...; OP may be "fp8", or "beside": what is
 * checked beside the table.
 *
 * test_cuda --branches [OP [K/N]]: few and small samples that still take every branch and every kernel
 * (op_cover.c), each run once: for compute-sanitizer.
 *
 * test_cuda --pick: print which ones these are; --picked FILE [OP [K/N]]: run those of such a list. */
#include "op_trial.c"

#include "banyan/train.h"
#include "op_cover.c"
#include "rounding.c"

static by_device *cpu, *gpu;

/* The same card with the kernels of another generation, or NULL: Hopper (9.0) has attention of its own, in
 * attention_hopper*.cu, and BANYAN_CUDA_ARCH chooses between that and what every card can do. */
static by_device *other;

static bool emulated(void)
{
    return strstr(by_device_description(gpu), "emulated") != NULL;
}

static bool is_hopper(const by_device *d)
{
    return d && card_of(d)->arch == 90;
}

/* What the command line asks for. */
static const char *only;
static int share = 0, shares = 1;
static const char *list; /* of --picked */

static bool wanted(const char *name)
{
    return !only || strcmp(only, name) == 0;
}

/* ---- all samples ------------------------------------------------------------------------------- */

static bool check_sample(by_device *device, gr_op op, int which, by_dtype type)
{
    for (int variant = 0; variant < VARIANTS; variant++) {
        if (variant == FORWARD && !gr_ops[op].grad)
            continue; /* the program AS_IT_IS */
        setup how = variant_of(type, variant), right = how;
        right.type = BY_F64;
        right.device = cpu;
        result *expected = outcome(right, op, which);
        if (!expected)
            return false;
        how.device = device;
        how.guarded = true;
        result *guarded = outcome(how, op, which);
        compare(guarded, expected, op, type, "the GPU, guarded memory");
        how.guarded = false;
        result *planned = outcome(how, op, which), *again = outcome(how, op, which);
        compare(planned, expected, op, type, "the GPU, planned memory");
        same_bits(planned, again, type, "the GPU, run again");
        result_free(expected);
        result_free(guarded);
        result_free(planned);
        result_free(again);
    }
    return true;
}

static void check_op(by_device *device, gr_op op, by_dtype type)
{
    for (int which = share; wanted(gr_ops[op].name) && check_sample(device, op, which, type); which += shares)
        continue;
}

static void test_types(void **state)
{
    (void)state;
    for (int op = 0; op < GR_OP_COUNT; op++)
        for (int k = 0; k < BY_COUNT(types); k++)
            check_op(gpu, (gr_op)op, types[k]);
    no_complaints();
}

static void test_generations(void **state)
{
    (void)state;
    if (!other) {
        print_message("not run: attention as on cards of another generation\n");
        skip();
    }
    for (int k = 0; k < 2; k++) {
        check_op(other, GR_OP_ATTENTION, k ? BY_F16 : BY_BF16);
        check_op(other, GR_OP_ATTENTION_GRAD, k ? BY_F16 : BY_BF16);
    }
    no_complaints();
}

/* A run as a captured graph gives the bits of a run kernel by kernel. */
static void test_replay(void **state)
{
    (void)state;
    setup how = {.device = gpu, .type = BY_F32, .exact = BY_F32, .gradients = true};
    for (int op = 0; op < GR_OP_COUNT; op++) {
        trial *t = wanted(gr_ops[op].name) ? trial_new(how, (gr_op)op, 0) : NULL;
        if (!t)
            continue;
        run_once(t);
        result *first = collect_result(t);
        for (int again = 0; again < 2; again++) {
            fill_leaves(t);
            run_once(t);
        }
        result *third = collect_result(t);
        same_bits(first, third, BY_F32, "the GPU, replayed");
        result_free(first);
        result_free(third);
        trial_free(t);
    }
    no_complaints();
}

/* ---- few samples ------------------------------------------------------------------------------- */

static int type_named(const char *name)
{
    for (int i = 0; i < BY_COUNT(types); i++)
        if (strcmp(name, by_dtype_name(types[i])) == 0)
            return i;
    return -1;
}

static int variant_named(const char *name)
{
    for (int i = 0; i < VARIANTS; i++)
        if (strcmp(name, variants[i]) == 0)
            return i;
    return -1;
}

static int op_named(const char *name)
{
    for (int i = 0; i < GR_OP_COUNT; i++)
        if (strcmp(name, gr_ops[i].name) == 0)
            return i;
    return -1;
}

/* The op, the number of its sample, the type, the variant, the generation of the card's kernels. */
static void print_picked(void)
{
    cover_table(gpu, other);
    for (int i = 0; i < now.count; i++) {
        const choice *c = &now.list[i];
        if (c->taken)
            printf("%s %d %s %s %d %.3g\n", gr_ops[c->op].name, c->which, by_dtype_name(types[c->type]),
                   variants[c->variant], card_of(c->device)->arch, c->work);
    }
    fprintf(stderr, "of %d samples, starting %d kernels\n", now.count, now.n_kernels);
}

static void read_picked(void)
{
    char op[40], type[16], variant[16], line[160];
    int which, arch;
    FILE *f = fopen(list, "r");
    if (!f)
        fail_msg("%s cannot be read", list);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%39s %d %15s %15s %d", op, &which, type, variant, &arch) != 5 || op_named(op) < 0 ||
            type_named(type) < 0 || variant_named(variant) < 0)
            fail_msg("%s: not a sample: %s", list, line);
        choice *c = next_choice();
        *c = (choice){.op = (gr_op)op_named(op),
                      .which = which,
                      .type = type_named(type),
                      .variant = variant_named(variant),
                      .device = arch == card_of(gpu)->arch ? gpu : other,
                      .taken = true};
        if (!c->device || card_of(c->device)->arch != arch)
            fail_msg("%s: this card has no kernels of generation %d", list, arch);
    }
    fclose(f);
}

static void check_choice(const choice *c)
{
    setup how = variant_of(types[c->type], c->variant), right = how;
    right.type = BY_F64;
    right.device = cpu;
    how.device = c->device;
    result *expected = outcome(right, c->op, c->which), *found = outcome(how, c->op, c->which);
    assert_true(expected && found);
    compare(found, expected, c->op, how.type, "the GPU");
    result_free(expected);
    result_free(found);
}

static void test_picked(void **state)
{
    (void)state;
    int seen = 0;
    if (list)
        read_picked();
    else
        cover_table(gpu, other);
    for (int i = 0; i < now.count; i++)
        if (now.list[i].taken && wanted(gr_ops[now.list[i].op].name) && seen++ % shares == share)
            check_choice(&now.list[i]);
    print_message("%d samples\n", (seen - share + shares - 1) / shares);
    no_complaints();
}

/* ---- beside the table -------------------------------------------------------------------------- */

/* A bad index is reported with its tensor and value by whoever next waits for the GPU. */
static void refuse(gr_op op, double bad)
{
    setup how = {.device = gpu, .type = BY_F32, .exact = BY_F32};
    trial *t = trial_new(how, op, 0);
    assert_non_null(t);
    const op_sample_leaf *l = NULL;
    for (int i = 0; i < t->sample->n_leaves; i++)
        if (t->sample->leaf[i].tensor->type == BY_I32)
            l = &t->sample->leaf[i];
    assert_non_null(l);
    l->values[by_elements(l->tensor) - 1] = bad;
    fill_leaves(t);
    char value[24];
    snprintf(value, sizeof value, "is %d", (int)bad);
    by_status status = by_run(t->program);
    if (status == BY_OK)
        status = by_device_wait(gpu);
    if (status != BY_ERR_ARGUMENT || !strstr(by_error_message(), value) ||
        !strstr(by_error_message(), gr_tensor_label(l->tensor)))
        complain("%s, index %s: status %d, \"%s\"", gr_ops[op].name, value, (int)status,
                 status ? by_error_message() : "");
    trial_free(t);
}

/* Of many bad indices one is told, with its own place and value, whatever has been started since. */
static void refuse_all(void)
{
    enum { FIRST = 1000 };
    setup how = {.device = gpu, .type = BY_F32, .exact = BY_F32};
    trial *t = trial_new(how, GR_OP_GATHER, 0), *next = trial_new(how, GR_OP_SOFTMAX, 0);
    const op_sample_leaf *ids = &t->sample->leaf[1];
    long long place = -1;
    int value = -1;
    assert_true(ids->tensor->type == BY_I32);
    for (int64_t i = 0; i < by_elements(ids->tensor); i++)
        ids->values[i] = (double)(FIRST + i);
    fill_leaves(t);
    assert_int_equal(by_run(t->program), BY_OK);
    assert_int_equal(by_run(next->program), BY_OK);
    assert_int_equal(by_device_wait(gpu), BY_ERR_ARGUMENT);
    const char *told = strstr(by_error_message(), "element");
    if (!told || sscanf(told, "element %lld is %d", &place, &value) != 2 || value != FIRST + place ||
        !strstr(by_error_message(), gr_tensor_label(ids->tensor)))
        complain("gather with bad indices alone: \"%s\"", by_error_message());
    trial_free(t);
    trial_free(next);
}

static void test_bad_indices(void **state)
{
    (void)state;
    if (wanted("beside")) {
        refuse_all();
        refuse(GR_OP_GATHER, 11);
        refuse(GR_OP_GATHER, -1);
        refuse(GR_OP_GATHER_GRAD, 11);
        refuse(GR_OP_GATHER_GRAD, -1);
        refuse(GR_OP_CROSS_ENTROPY, 7);
        refuse(GR_OP_CROSS_ENTROPY, -1);
        refuse(GR_OP_ATTENTION_CACHED, 8);
        refuse(GR_OP_ATTENTION_CACHED, -1);
    }
    no_complaints();
}

/* Optimisers on a GPU cannot fail a run; they leave everything as it is when the gradients' norm is not
 * finite.
 */
static void leave_alone(gr_op op, double norm)
{
    setup how = {.device = gpu, .type = BY_F32, .exact = BY_F32};
    trial *t = trial_new(how, op, 3);
    assert_non_null(t);
    const by_op_sample *s = t->sample;
    for (int i = 0; i < s->n_leaves; i++)
        if (s->leaf[i].tensor->rank == 0)
            s->leaf[i].values[0] = norm;
    fill_leaves(t);
    run_once(t);
    result *r = collect_result(t);
    for (int i = 0; i < s->n_outs; i++)
        for (int k = 0; k < s->n_leaves; k++)
            if (s->leaf[k].tensor == s->out[i].tensor &&
                square_sum(r->part[i].values, s->leaf[k].values, r->part[i].count) != 0)
                complain("%s with a norm of %g changed %s", gr_ops[op].name, norm, r->part[i].label);
    result_free(r);
    trial_free(t);
}

static void test_not_finite(void **state)
{
    (void)state;
    static const gr_op ops[] = {GR_OP_ADAMW, GR_OP_SGD, GR_OP_ADAFACTOR};
    for (int i = 0; i < BY_COUNT(ops) && wanted("beside"); i++) {
        leave_alone(ops[i], INFINITY);
        leave_alone(ops[i], NAN);
    }
    no_complaints();
}

#include "fp8_check.c"

/* bf16 without masters: right in the mean, and by the same chances as on the CPU. */
static void test_rounding(void **state)
{
    (void)state;
    if (wanted("beside"))
        check_rounding(gpu, cpu);
}

static void test_branches(void **state)
{
    (void)state;
    int taken = 0;
    for (branch *b = __start_by_branches; b < __stop_by_branches && !only; b++) {
        if (strcmp(b->isa, "cuda") != 0)
            continue;
        taken += b->hit;
        const char *file = strrchr(b->file, '/');
        if (strstr(file ? file : b->file, "hopper") && !is_hopper(gpu) && !is_hopper(other)) {
            print_message("not checked: \"%s\", which needs a card of generation 9.0\n", b->label);
            continue;
        }
        if (strstr(file ? file : b->file, "fp8") && !fp8) {
            print_message("not checked: \"%s\", which needs a card with FP8\n", b->label);
            continue;
        }
        if (strstr(file ? file : b->file, "ordered") && !emulated()) {
            print_message("not checked: \"%s\", for which a card wants more heads than samples have; "
                          "bench/attention_cuda.cu checks it\n",
                          b->label);
            continue;
        }
        if (!b->hit)
            complain("%s: no sample takes \"%s\"", b->file, b->label);
    }
    assert_true(taken > 0 || only);
    no_complaints();
}

/* Emulated and on Hopper both generations can be had, unless one has been asked for. */
static int open_devices(void **state)
{
    (void)state;
    const char *arch = emulated() ? "90" : is_hopper(gpu) ? "80" : NULL;
    cpu = by_device_open("cpu:generic", 1);
    open_fp8();
    if (arch && !getenv("BANYAN_CUDA_ARCH")) {
        setenv("BANYAN_CUDA_ARCH", arch, 1);
        other = by_device_open("cuda", 0);
        unsetenv("BANYAN_CUDA_ARCH");
        if (!other)
            return -1;
    }
    return cpu ? 0 : -1;
}

static int close_devices(void **state)
{
    (void)state;
    cover_free();
    by_device_free(cpu);
    by_device_free(gpu);
    by_device_free(other);
    by_device_free(fp8);
    return 0;
}

static void test_absent(void **state)
{
    (void)state;
    assert_true(strlen(by_error_message()) > 0);
    print_message("not run: the op table on a GPU (%s)\n", by_error_message());
    skip();
}

/* OP [K/N] */
static bool read_op(int argc, char **argv)
{
    only = argc > 0 ? argv[0] : NULL;
    if (argc > 1 && (sscanf(argv[1], "%d/%d", &share, &shares) != 2 || share < 0 || shares < 1))
        return false;
    return argc <= 2 &&
           (!only || strcmp(only, "beside") == 0 || strcmp(only, "fp8") == 0 || op_named(only) >= 0);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 && strncmp(argv[1], "--", 2) == 0 ? argv[1] : "";
    const bool pick = strcmp(mode, "--pick") == 0, picked = strcmp(mode, "--picked") == 0,
               few = picked || strcmp(mode, "--branches") == 0;
    const int used = 1 + (*mode != 0) + picked;
    list = picked ? argv[2] : NULL;
    if ((*mode && !pick && !few) || used > argc || !read_op(argc - used, argv + used)) {
        fprintf(stderr, "test_cuda [--branches | --pick | --picked FILE] [OP [K/N]]\n");
        return 2;
    }
    setenv("BANYAN_GEMV_LEAST", "1", 1); /* the samples are small */
    gpu = by_device_open("cuda", 0);
    if (!gpu) {
        const struct CMUnitTest absent[] = {cmocka_unit_test(test_absent)};
        return cmocka_run_group_tests_name("cuda", absent, NULL, NULL);
    }
    if (pick) {
        if (open_devices(NULL) != 0)
            return 1;
        print_picked();
        return close_devices(NULL);
    }
    printf("%s%s\n", by_device_description(gpu), emulated() ? " on the CPU" : "");
    const struct CMUnitTest samples[] = {
        cmocka_unit_test(test_picked),      cmocka_unit_test(test_bad_indices),
        cmocka_unit_test(test_not_finite),  cmocka_unit_test(test_fp8_products),
        cmocka_unit_test(test_fp8_samples), cmocka_unit_test(test_branches),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),        cmocka_unit_test(test_generations),
        cmocka_unit_test(test_replay),       cmocka_unit_test(test_bad_indices),
        cmocka_unit_test(test_not_finite),   cmocka_unit_test(test_fp8_rounding),
        cmocka_unit_test(test_fp8_extremes), cmocka_unit_test(test_fp8_products),
        cmocka_unit_test(test_fp8_samples),  cmocka_unit_test(test_fp8_pays),
        cmocka_unit_test(test_fp8_names),    cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_branches),
    };
    return few ? cmocka_run_group_tests_name("cuda, few samples", samples, open_devices, close_devices)
               : cmocka_run_group_tests_name("cuda", tests, open_devices, close_devices);
}
