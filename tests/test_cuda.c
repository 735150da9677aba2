/* test_cuda.c - the op table on an NVIDIA GPU, or on the emulation of one (test_cuda_emulated): every sample
 * in every element type against the CPU in f64, in guarded and in planned memory, with the same bits every
 * time; and every branch of every kernel taken. */
#include "op_trial.c"

static by_device *cpu, *gpu;

/* The same card with the kernels of another generation, or NULL: Hopper (9.0) has attention of its own, in
 * attention_hopper*.cu, and BANYAN_CUDA_ARCH chooses between that and what every card can do. */
static by_device *other;

static bool emulated(void)
{
    return strstr(by_device_description(gpu), "emulated") != NULL;
}

/* by_cuda in src/cuda/cuda.h begins like this. */
typedef struct card {
    int index, arch;
} card;

static bool is_hopper(const by_device *d)
{
    return d && ((const card *)d->impl)->arch == 90;
}

/* The test of one name can be asked for, as in `test_cuda norm`. */
static const char *only;
static int share = 0,
           shares = 1; /* samples share, share + shares, ... of each op: the work of several cores */

static bool check_sample(by_device *device, by_op op, int which, by_dtype type)
{
    enum { AS_IT_IS, FORWARD, COPIED, VARIANTS };
    for (int variant = 0; variant < VARIANTS; variant++) {
        if (variant == FORWARD && !by_ops[op].grad)
            continue; /* the program AS_IT_IS */
        setup how = {
            .type = type, .exact = type, .gradients = variant != FORWARD, .copied = variant == COPIED};
        setup right = how;
        right.type = BY_F64;
        right.device = cpu;
        result *expected = outcome(right, op, which);
        if (!expected)
            return false;
        how.device = device;
        how.guarded = true;
        result *guarded = outcome(how, op, which);
        compare(guarded, expected, op, which, type, "the GPU, guarded memory");
        how.guarded = false;
        result *planned = outcome(how, op, which), *again = outcome(how, op, which);
        compare(planned, expected, op, which, type, "the GPU, planned memory");
        same_bits(planned, again, op, which, type, "the GPU, run again");
        result_free(expected);
        result_free(guarded);
        result_free(planned);
        result_free(again);
    }
    return true;
}

static void check_op(by_device *device, by_op op, by_dtype type)
{
    bool wanted = !only || strcmp(only, by_ops[op].name) == 0;
    for (int which = share; wanted && check_sample(device, op, which, type); which += shares)
        continue;
}

static void test_types(void **state)
{
    (void)state;
    static const by_dtype types[] = {BY_F32, BY_BF16, BY_F16};
    for (int op = 0; op < BY_OP_COUNT; op++)
        for (int k = 0; k < BY_COUNT(types); k++)
            check_op(gpu, (by_op)op, types[k]);
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
        check_op(other, BY_OP_ATTENTION, k ? BY_F16 : BY_BF16);
        check_op(other, BY_OP_ATTENTION_GRAD, k ? BY_F16 : BY_BF16);
    }
    no_complaints();
}

/* A run as a captured graph gives the bits of a run kernel by kernel. */
static void test_replay(void **state)
{
    (void)state;
    setup how = {.device = gpu, .type = BY_F32, .exact = BY_F32, .gradients = true};
    for (int op = 0; op < BY_OP_COUNT; op++) {
        trial *t = !only || strcmp(only, by_ops[op].name) == 0 ? trial_new(how, (by_op)op, 0) : NULL;
        if (!t)
            continue;
        run_once(t);
        result *first = collect_result(t);
        for (int again = 0; again < 2; again++) {
            fill_leaves(t);
            run_once(t);
        }
        result *third = collect_result(t);
        same_bits(first, third, (by_op)op, 0, BY_F32, "the GPU, replayed");
        result_free(first);
        result_free(third);
        trial_free(t);
    }
    no_complaints();
}

/* A bad index is reported with its tensor and value by whoever next waits for the GPU. */
static void refuse(by_op op, double bad)
{
    setup how = {.device = gpu, .type = BY_F32, .exact = BY_F32};
    trial *t = trial_new(how, op, 0);
    assert_non_null(t);
    const by_op_sample_leaf *l = NULL;
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
        !strstr(by_error_message(), by_tensor_label(l->tensor)))
        complain("%s, index %s: status %d, \"%s\"", by_ops[op].name, value, (int)status,
                 status ? by_error_message() : "");
    trial_free(t);
}

static void test_bad_indices(void **state)
{
    (void)state;
    if (!only) {
        refuse(BY_OP_GATHER, 11);
        refuse(BY_OP_GATHER, -1);
        refuse(BY_OP_GATHER_GRAD, 11);
        refuse(BY_OP_GATHER_GRAD, -1);
        refuse(BY_OP_CROSS_ENTROPY, 7);
        refuse(BY_OP_CROSS_ENTROPY, -1);
        refuse(BY_OP_ATTENTION_CACHED, 8);
        refuse(BY_OP_ATTENTION_CACHED, -1);
    }
    no_complaints();
}

/* Optimisers on a GPU cannot fail a run; they leave everything as it is when the gradients' norm is not
 * finite.
 */
static void leave_alone(by_op op, double norm)
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
                complain("%s with a norm of %g changed %s", by_ops[op].name, norm, r->part[i].label);
    result_free(r);
    trial_free(t);
}

static void test_not_finite(void **state)
{
    (void)state;
    static const by_op ops[] = {BY_OP_ADAMW, BY_OP_SGD, BY_OP_ADAFACTOR};
    for (int i = 0; i < BY_COUNT(ops) && !only; i++) {
        leave_alone(ops[i], INFINITY);
        leave_alone(ops[i], NAN);
    }
    no_complaints();
}

#include "fp8_check.c"

/* As src/cpu/cpu.h and src/cuda/cuda.h have it. */
typedef struct branch {
    const char *label, *file, *isa;
    int hit;
} branch;
extern branch __start_by_branches[] __attribute__((weak));
extern branch __stop_by_branches[] __attribute__((weak));

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

int main(int argc, char **argv)
{
    only = argc > 1 && argv[1][0] != '-' ? argv[1] : NULL;
    if (argc > 2 && (sscanf(argv[2], "%d/%d", &share, &shares) != 2 || share < 0 || shares < 1))
        return 2;
    gpu = by_device_open("cuda", 0);
    if (!gpu) {
        const struct CMUnitTest absent[] = {cmocka_unit_test(test_absent)};
        return cmocka_run_group_tests_name("cuda", absent, NULL, NULL);
    }
    printf("%s%s\n", by_device_description(gpu), emulated() ? " on the CPU" : "");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),        cmocka_unit_test(test_generations),
        cmocka_unit_test(test_replay),       cmocka_unit_test(test_bad_indices),
        cmocka_unit_test(test_not_finite),   cmocka_unit_test(test_fp8_rounding),
        cmocka_unit_test(test_fp8_extremes), cmocka_unit_test(test_fp8_products),
        cmocka_unit_test(test_fp8_samples),  cmocka_unit_test(test_fp8_pays),
        cmocka_unit_test(test_fp8_names),    cmocka_unit_test(test_branches),
    };
    return cmocka_run_group_tests_name("cuda", tests, open_devices, close_devices);
}
