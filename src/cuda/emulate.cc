/* emulate.cc - the threads of a block as coroutines. */
#include "cuda/emulate.h"

#include <stdio.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

by_emulated by_emulated_now;

namespace
{

enum { MAX_THREADS = 1024, STACK = 64 * 1024 };
enum wait_kind { RUNNING, IN_WARP, IN_BLOCK, ENDED };

struct fiber {
    void *stack;
#if defined(__x86_64__)
    void *sp;
#else
    ucontext_t context;
#endif
    wait_kind state;
    dim3 thread;
};

fiber fibers[MAX_THREADS + 1]; /* the last is the caller of by_emulate */
uint64_t slots[MAX_THREADS][BY_EMULATED_WORDS];
int threads, running;
const std::function<void()> *body;

#if defined(__x86_64__)
/* Keep the registers that a function must keep on the stack that is left, and take them from the other. */
extern "C" void by_emulated_switch(void **from, void *to);
__asm__(".text\n"
        ".globl by_emulated_switch\n"
        ".hidden by_emulated_switch\n"
        ".type by_emulated_switch, @function\n"
        "by_emulated_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size by_emulated_switch, .-by_emulated_switch\n");
#endif

void enter(int to)
{
    int from = running;
    if (to == from)
        return;
    running = to;
    by_emulated_now.thread = fibers[to].thread;
    by_emulated_now.index = to;
    by_emulated_now.lane = to & 31;
    by_emulated_now.warp = to >> 5;
#if defined(__x86_64__)
    by_emulated_switch(&fibers[from].sp, fibers[to].sp);
#else
    swapcontext(&fibers[from].context, &fibers[to].context);
#endif
}

/* The next thread that can go on: one of the same warp if there is one. */
void pass_on()
{
    int base = running & ~31, warps = (threads + 31) / 32;
    for (int i = 1; i <= 32; i++) {
        int t = base + ((running + i) & 31);
        if (t < threads && fibers[t].state == RUNNING)
            return enter(t);
    }
    for (int w = 1; w < warps; w++)
        for (int i = 0; i < 32; i++) {
            int t = (base + 32 * w) % (32 * warps) + i;
            if (t < threads && fibers[t].state == RUNNING)
                return enter(t);
        }
    bool all = true;
    for (int t = 0; t < threads; t++)
        all = all && fibers[t].state == ENDED;
    if (!all) {
        fprintf(stderr, "emulated kernel: threads wait for each other\n");
        abort();
    }
    enter(MAX_THREADS);
}

/* Release those who wait in `kind` among threads [from, to) when nobody else of them is still on the way. */
bool release(wait_kind kind, int from, int to)
{
    bool any = false;
    for (int t = from; t < to; t++) {
        if (fibers[t].state != kind && fibers[t].state != ENDED)
            return false;
        any |= fibers[t].state == kind;
    }
    for (int t = from; t < to; t++)
        if (fibers[t].state == kind)
            fibers[t].state = RUNNING;
    return any;
}

void wait_in(wait_kind kind, int from, int to)
{
    fibers[running].state = kind;
    if (!release(kind, from, to) || fibers[running].state != RUNNING)
        pass_on();
}

void begin()
{
    (*body)();
    fibers[running].state = ENDED;
    int base = running & ~31;
    release(IN_WARP, base, base + 32 < threads ? base + 32 : threads);
    release(IN_BLOCK, 0, threads);
    pass_on();
}

void make(fiber *f)
{
    if (!f->stack)
        f->stack = malloc(STACK);
    f->state = RUNNING;
#if defined(__x86_64__)
    uintptr_t top = ((uintptr_t)f->stack + STACK) & ~(uintptr_t)15;
    void **sp = (void **)top;
    *--sp = nullptr;       /* where begin() would return to */
    *--sp = (void *)begin; /* `ret` goes here, with the stack as after a call */
    for (int i = 0; i < 6; i++)
        *--sp = nullptr;
    f->sp = sp;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = nullptr;
    makecontext(&f->context, begin, 0);
#endif
}

void run_block()
{
    memset(by_emulated_now.shared, 0xff, by_emulated_now.shared_bytes);
    dim3 size = by_emulated_now.block_dim;
    for (int t = 0; t < threads; t++) {
        unsigned i = (unsigned)t;
        fibers[t].thread = dim3(i % size.x, i / size.x % size.y, i / (size.x * size.y));
        make(&fibers[t]);
    }
    running = MAX_THREADS;
    enter(0);
}

} // namespace

void by_emulate(dim3 grid, dim3 block, size_t shared, const std::function<void()> &kernel)
{
    static unsigned char *memory;
    static size_t room;
    if (shared > room) {
        free(memory);
        room = shared;
        memory = (unsigned char *)aligned_alloc(1024, (room + 1023) / 1024 * 1024);
    }
    threads = (int)(block.x * block.y * block.z);
    if (threads < 1 || threads > MAX_THREADS) {
        fprintf(stderr, "emulated kernel: a block of %d threads\n", threads);
        abort();
    }
    body = &kernel;
    by_emulated_now.block_dim = block;
    by_emulated_now.grid_dim = grid;
    by_emulated_now.shared = memory;
    by_emulated_now.shared_bytes = shared;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                by_emulated_now.block = dim3(x, y, z);
                run_block();
            }
}

void by_emulated_block_barrier()
{
    wait_in(IN_BLOCK, 0, threads);
}

void by_emulated_warp_barrier()
{
    int base = running & ~31;
    wait_in(IN_WARP, base, base + 32 < threads ? base + 32 : threads);
}

/* In a round, not by warps: a warp whose threads all wait for memory must let the others go on. */
void by_emulated_yield()
{
    for (int i = 1; i < threads; i++) {
        int t = (running + i) % threads;
        if (fibers[t].state == RUNNING)
            return enter(t);
    }
}

uint64_t *by_emulated_slot(int lane)
{
    return slots[(running & ~31) + lane];
}
