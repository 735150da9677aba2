/* op_cover.c - a few samples that stand for all of them: together they take every branch of the CUDA kernels
 * in every element type, and start every kernel, with as little work as can be had. For tools under which a
 * kernel takes a thousand times as long. Included by test_cuda.c, behind op_trial.c.
 *
 * What a sample does is known when it has been compiled, since that ends with a dry run of all kernels. */

/* As src/cpu/cpu.h and src/cuda/cuda.h have it. */
typedef struct branch {
    const char *label, *file, *isa;
    int hit;
} branch;
extern branch __start_by_branches[] __attribute__((weak));
extern branch __stop_by_branches[] __attribute__((weak));

/* cuda_context in src/cuda/cuda.h begins like this. */
typedef struct card {
    int index, arch;
    void (*planned)(const void *kernel);
} card;

static card *card_of(const by_device *d)
{
    return d->impl;
}

/* How the samples of an op are run: all of it, without the backward pass, with operands that may be written
 * over. */
enum { AS_IT_IS, FORWARD, COPIED, VARIANTS };
static const char *const variants[VARIANTS] = {"whole", "forward", "copied"};
static const by_dtype types[] = {BY_F32, BY_BF16, BY_F16};

static setup variant_of(by_dtype type, int variant)
{
    return (setup){.type = type, .exact = type, .gradients = variant != FORWARD, .copied = variant == COPIED};
}

/* A sample as it would be run. What it does are numbers: of a branch in a type, or of a kernel. */
typedef struct choice {
    gr_op op;
    int which, type, variant; /* type: of types[] */
    by_device *device;
    double work;
    int *does, count;
    bool taken;
} choice;

typedef struct cover {
    choice *list;
    int count, room;
    const void **kernels;
    int n_kernels;
    int *times; /* how many of those taken do this; by its number */
} cover;

static cover now; /* the functions that kernels call have no place for more */

static int branch_count(void)
{
    return (int)(__stop_by_branches - __start_by_branches);
}

static void does(choice *c, int what)
{
    for (int i = 0; i < c->count; i++)
        if (c->does[i] == what)
            return;
    c->does = realloc(c->does, (size_t)(c->count + 1) * sizeof *c->does);
    assert_non_null(c->does);
    c->does[c->count++] = what;
}

/* A kernel that would be started; the sample is the last in the list. */
static void note_kernel(const void *kernel)
{
    int i = 0;
    while (i < now.n_kernels && now.kernels[i] != kernel)
        i++;
    if (i == now.n_kernels) {
        now.kernels = realloc(now.kernels, (size_t)++now.n_kernels * sizeof *now.kernels);
        assert_non_null(now.kernels);
        now.kernels[i] = kernel;
    }
    does(&now.list[now.count - 1], branch_count() * BY_COUNT(types) + i);
}

static double work_of(const by_graph *g)
{
    double sum = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const gr_cost cost = gr_ops[g->nodes[i]->op].cost(g->nodes[i]);
        sum += cost.flops + cost.bytes;
    }
    return sum;
}

static void forget_branches(void)
{
    for (branch *b = __start_by_branches; b < __stop_by_branches; b++)
        b->hit = 0;
}

/* Room for one more at the end of the list. */
static choice *next_choice(void)
{
    if (now.count == now.room) {
        now.room = now.room ? 2 * now.room : 1024;
        now.list = realloc(now.list, (size_t)now.room * sizeof *now.list);
        assert_non_null(now.list);
    }
    return &now.list[now.count++];
}

/* Enter a sample; false when the op has no such one. */
static bool consider(by_device *device, gr_op op, int which, int type, int variant)
{
    choice *c = next_choice();
    *c = (choice){.op = op, .which = which, .type = type, .variant = variant, .device = device};
    setup how = variant_of(types[type], variant);
    how.device = device;
    forget_branches();
    card_of(device)->planned = note_kernel;
    trial *t = trial_new(how, op, which);
    card_of(device)->planned = NULL;
    if (!t) {
        now.count--;
        return false;
    }
    c->work = work_of(t->program->graph);
    for (int i = 0; i < branch_count(); i++)
        if (__start_by_branches[i].hit && strcmp(__start_by_branches[i].isa, "cuda") == 0)
            does(c, i * BY_COUNT(types) + type);
    trial_free(t);
    return true;
}

static void consider_op(by_device *device, gr_op op, int type)
{
    for (int variant = 0; variant < VARIANTS; variant++)
        for (int which = 0; variant != FORWARD || gr_ops[op].grad; which++)
            if (!consider(device, op, which, type, variant))
                break;
}

/* What taking it would add, for what it costs; starting a program costs something too. */
static double worth(const choice *c)
{
    int fresh = 0;
    for (int i = 0; i < c->count; i++)
        fresh += now.times[c->does[i]] == 0;
    return fresh / (c->work + 1e6);
}

static void take(choice *c, bool taken)
{
    c->taken = taken;
    for (int i = 0; i < c->count; i++)
        now.times[c->does[i]] += taken ? 1 : -1;
}

/* Whether all that it does is done by others too. */
static bool is_spare(const choice *c)
{
    bool spare = c->taken;
    for (int i = 0; i < c->count; i++)
        spare &= now.times[c->does[i]] > 1;
    return spare;
}

static void choose(void)
{
    const int n = branch_count() * BY_COUNT(types) + now.n_kernels;
    now.times = calloc((size_t)n + 1, sizeof *now.times);
    assert_non_null(now.times);
    for (;;) {
        choice *best = &now.list[0];
        for (int i = 1; i < now.count; i++)
            if (worth(&now.list[i]) > worth(best))
                best = &now.list[i];
        if (worth(best) == 0)
            break;
        take(best, true);
    }
    for (;;) {
        choice *most = NULL;
        for (int i = 0; i < now.count; i++)
            if (is_spare(&now.list[i]) && (!most || now.list[i].work > most->work))
                most = &now.list[i];
        if (!most)
            return;
        take(most, false);
    }
}

/* Fill `now` with samples of the whole table, some of them taken. `other` may be NULL: see test_cuda.c. */
static void cover_table(by_device *gpu, by_device *other)
{
    for (int op = 0; op < GR_OP_COUNT; op++)
        for (int type = 0; type < BY_COUNT(types); type++) {
            consider_op(gpu, (gr_op)op, type);
            if (other && types[type] != BY_F32 && (op == GR_OP_ATTENTION || op == GR_OP_ATTENTION_GRAD))
                consider_op(other, (gr_op)op, type);
        }
    choose();
    forget_branches();
}

static void cover_free(void)
{
    for (int i = 0; i < now.count; i++)
        free(now.list[i].does);
    free(now.list);
    free(now.kernels);
    free(now.times);
    now = (cover){0};
}
