/* emulate.cc - the threads of a block as coroutines. Which threads are ready and which wait for what is kept
 * in masks, one word per warp, so that a barrier costs the same for any number of threads. */
#include "cuda/emulate.h"

#include <stdio.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

cuda_emulated cuda_emulated_now;

namespace
{

enum { MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / 32, STACK = 64 * 1024 };

struct fiber {
    void *stack;
#if defined(__x86_64__)
    void *sp;
#else
    ucontext_t context;
#endif
    int parity; /* which of the two slots it showed last */
    dim3 thread;
};

/* Threads of a warp, a bit each. */
struct warp_state {
    uint32_t alive, ready, in_warp, in_block;
    uint32_t together; /* those that met at the last barrier of the warp */
};

fiber fibers[MAX_THREADS + 1]; /* the last is the caller of cuda_emulate */
warp_state warps[MAX_WARPS];
uint32_t ready_warps; /* warps with a ready thread */
int threads, n_warps, running;
int left, waiting; /* threads that have not ended; that wait for the block */
const std::function<void()> *body;

/* Two per thread: while one is read by the slowest of the warp, the fastest may already write the next. */
alignas(64) uint64_t slots[2][MAX_THREADS][BY_EMULATED_WORDS];

#if defined(__x86_64__)
/* Saves the callee-saved registers on the current stack, and restores them from the other. */
extern "C" void cuda_emulated_switch(void **from, void *to);
__asm__(".text\n"
        ".globl cuda_emulated_switch\n"
        ".hidden cuda_emulated_switch\n"
        ".type cuda_emulated_switch, @function\n"
        "cuda_emulated_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size cuda_emulated_switch, .-cuda_emulated_switch\n");
#endif

void enter(int to)
{
    int from = running;
    if (to == from)
        return;
    running = to;
    cuda_emulated_now.thread = fibers[to].thread;
    cuda_emulated_now.index = to;
    cuda_emulated_now.lane = to & 31;
    cuda_emulated_now.warp = to >> 5;
#if defined(__x86_64__)
    cuda_emulated_switch(&fibers[from].sp, fibers[to].sp);
#else
    swapcontext(&fibers[from].context, &fibers[to].context);
#endif
}

/* Returns the first set bit at or after `at`, cyclically. */
int next_bit(uint32_t bits, int at)
{
    const uint32_t behind = bits & ~0u << at;
    return __builtin_ctz(behind ? behind : bits);
}

void set_ready(int warp, uint32_t who)
{
    warps[warp].ready |= who;
    if (who)
        ready_warps |= 1u << warp;
}

/* Marks the running thread as not ready. */
warp_state &stop()
{
    warp_state &w = warps[running >> 5];
    w.ready &= ~(1u << (running & 31));
    if (!w.ready)
        ready_warps &= ~(1u << (running >> 5));
    return w;
}

/* Switches to the next ready thread, of the same warp if there is one. */
void pass_on()
{
    int w = running >> 5;
    if (warps[w].ready)
        return enter(w * 32 + next_bit(warps[w].ready, (running + 1) & 31));
    if (ready_warps) {
        w = next_bit(ready_warps, w);
        return enter(w * 32 + next_bit(warps[w].ready, 0));
    }
    if (left) {
        fprintf(stderr, "emulated kernel: threads wait for each other\n");
        abort();
    }
    enter(MAX_THREADS);
}

/* Releases the waiting threads once all threads that have not ended are waiting. */
void release_warp(int warp)
{
    warp_state &w = warps[warp];
    if (w.in_warp != w.alive)
        return;
    set_ready(warp, w.in_warp);
    w.together = w.in_warp;
    w.in_warp = 0;
}

void release_block()
{
    if (waiting != left)
        return;
    waiting = 0;
    for (int i = 0; i < n_warps; i++) {
        set_ready(i, warps[i].in_block);
        warps[i].in_block = 0;
    }
}

void begin()
{
    (*body)();
    stop().alive &= ~(1u << (running & 31));
    left--;
    release_warp(running >> 5);
    release_block();
    pass_on();
}

void make(fiber *f)
{
    if (!f->stack)
        f->stack = malloc(STACK);
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
    f->parity = 0;
}

void run_block()
{
    memset(cuda_emulated_now.shared, 0xff, cuda_emulated_now.shared_bytes);
    for (int t = 0; t < threads; t++)
        make(&fibers[t]);
    for (int w = 0; w < n_warps; w++) {
        const int here = threads - 32 * w;
        warps[w] = {};
        warps[w].alive = here < 32 ? (1u << here) - 1 : ~0u;
        set_ready(w, warps[w].alive);
    }
    left = threads;
    waiting = 0;
    running = MAX_THREADS;
    enter(0);
}

} // namespace

void cuda_emulate(dim3 grid, dim3 block, size_t shared, const std::function<void()> &kernel)
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
    n_warps = (threads + 31) / 32;
    for (int t = 0; t < threads; t++) {
        unsigned i = (unsigned)t;
        fibers[t].thread = dim3(i % block.x, i / block.x % block.y, i / (block.x * block.y));
    }
    body = &kernel;
    cuda_emulated_now.block_dim = block;
    cuda_emulated_now.grid_dim = grid;
    cuda_emulated_now.shared = memory;
    cuda_emulated_now.shared_bytes = shared;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                cuda_emulated_now.block = dim3(x, y, z);
                run_block();
            }
}

void cuda_emulated_block_barrier()
{
    stop().in_block |= 1u << (running & 31);
    waiting++;
    release_block();
    if (!(warps[running >> 5].ready >> (running & 31) & 1))
        pass_on();
}

void cuda_emulated_warp_barrier()
{
    stop().in_warp |= 1u << (running & 31);
    release_warp(running >> 5);
    if (!(warps[running >> 5].ready >> (running & 31) & 1))
        pass_on();
}

/* Round-robin, not by warps: a warp whose threads all wait for memory must let the others continue. */
void cuda_emulated_yield()
{
    int w = running >> 5;
    const uint32_t behind = (running & 31) == 31 ? 0 : warps[w].ready & ~0u << ((running & 31) + 1);
    if (behind)
        return enter(w * 32 + __builtin_ctz(behind));
    w = next_bit(ready_warps, (w + 1) & 31);
    enter(w * 32 + __builtin_ctz(warps[w].ready));
}

void cuda_emulated_show(const void *words, size_t bytes)
{
    const int parity = fibers[running].parity ^= 1;
    memcpy(slots[parity][running], words, bytes);
    cuda_emulated_warp_barrier();
    cuda_emulated_now.shown = slots[parity] + (running & ~31);
    cuda_emulated_now.together = warps[running >> 5].together;
}
