/* base.h - what every other room uses and what knows nothing of machine learning: errors, memory, arenas,
 * text buffers, name tables, counter-based random numbers, threads, time, numbers of 16 bits. Files are in
 * file.h. */
#ifndef BY_BASE_BASE_H
#define BY_BASE_BASE_H

#include <stdarg.h>
#include <string.h>

#include "banyan/base.h"

#define BY_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define BY_MIN(a, b)    ((a) < (b) ? (a) : (b))
#define BY_MAX(a, b)    ((a) > (b) ? (a) : (b))

/* Evaluate an expression that returns by_status; leave the function with it unless it is BY_OK. */
#define BY_TRY(expr)                       \
    do {                                   \
        by_status by_try_status_ = (expr); \
        if (by_try_status_ != BY_OK)       \
            return by_try_status_;         \
    } while (0)

/* ---- errors (error.c) ------------------------------------------------------------------------ */

/* Set the calling thread's message and return the status, so that `return base_fail(BY_ERR_IO, "...")` reads
 * well. */
by_status base_fail(by_status status, const char *fmt, ...) BY_PRINTF(2, 3);

/* Put context in front of the present message ("model.safetensors: ...") and return the status of that
 * message. With no error set, behaves like base_fail(BY_ERR_ARGUMENT). */
by_status base_fail_context(const char *fmt, ...) BY_PRINTF(1, 2);

/* "there is no graph", for something that a call cannot do without and that is NULL. As a rule it is the
 * result of a call that failed: then that one's error stays. */
by_status base_fail_missing(const char *what);

/* The status that belongs to by_error_message(), BY_OK when no error was set since base_error_clear(). For
 * functions that report failure by NULL. */
by_status base_error_status(void);
void base_error_clear(void);

/* BY_ERR_CANCELLED when the hook of by_cancel_set says so, else BY_OK. For the loops of long work on text. */
by_status base_cancel_check(void);

/* ---- memory (mem.c). Failure sets BY_ERR_MEMORY with the size asked for and returns NULL. ---- */

void *base_alloc(size_t bytes);                          /* uninitialised; 0 bytes gives a unique pointer */
void *base_alloc_zero(size_t count, size_t size);        /* overflow-checked product, zeroed */
void *base_resize(void *old, size_t count, size_t size); /* overflow-checked; on failure old stays valid */
void *base_alloc_aligned(size_t bytes); /* 64-byte aligned, uninitialised; free with base_free */
char *base_strdup(const char *s);
char *base_sprintf(const char *fmt, ...) BY_PRINTF(1, 2); /* heap string, base_free it */
void base_free(void *p);                                  /* NULL is legal */

/* ---- memory for libraries that do not survive a failed allocation (reserve.c). Enter before each call into
 * such a library and leave after it; by_reserve_take (banyan/base.h) serves the allocations in between. Both
 * fail with BY_ERR_MEMORY when the reserve cannot be filled. */

void base_reserve_open(void);  /* one more user of the reserve */
void base_reserve_close(void); /* the last one frees it */
by_status base_reserve_enter(void);
by_status base_reserve_enter_to_map(void); /* also for mmap inside the call: 8 MiB must be free */
by_status base_reserve_leave(void);

/* Checked arithmetic: false on overflow, *out then untouched. */
bool base_mul_size(size_t a, size_t b, size_t *out);
bool base_add_size(size_t a, size_t b, size_t *out);

/* ---- arena: many small allocations, one lifetime (arena.c) ----------------------------------- */

typedef struct base_arena base_arena;
base_arena *base_arena_new(void);                    /* NULL on failure */
void base_arena_free(base_arena *a);                 /* frees everything taken from it; NULL is legal */
void *base_arena_alloc(base_arena *a, size_t bytes); /* 16-byte aligned, zeroed; NULL on failure */
char *base_arena_strdup(base_arena *a, const char *s);
char *base_arena_vsprintf(base_arena *a, const char *fmt, va_list args);
char *base_arena_sprintf(base_arena *a, const char *fmt, ...) BY_PRINTF(2, 3);

/* ---- growing text or bytes (buf.c). Sticky: after a failed allocation every call is a no-op and `failed`
 * stays set. */

typedef struct base_buf {
    char *data; /* always NUL-terminated once something was put; NULL before */
    size_t size, capacity;
    bool failed;
} base_buf;
void base_buf_put(base_buf *b, const void *bytes, size_t n);
void base_buf_puts(base_buf *b, const char *s);
void base_buf_printf(base_buf *b, const char *fmt, ...) BY_PRINTF(2, 3);
void base_buf_free(base_buf *b); /* back to the zero state */

/* ---- numbers as text (number.c): a decimal point in every locale --------------------------------- */

/* snprintf, vsnprintf, strtod and strtof as they are in the "C" locale. A host program may have set another
 * one, in which 0.5 is written "0,5"; nothing that this library reads or writes depends on it. */
int base_format(char *out, size_t size, const char *fmt, ...) BY_PRINTF(3, 4);
int base_vformat(char *out, size_t size, const char *fmt, va_list args);
double base_strtod(const char *text, char **end);
float base_strtof(const char *text, char **end);

/* The same for code of others: everything between the two calls runs in the "C" locale, in this thread. */
typedef struct base_locale {
    void *handle;
} base_locale;
base_locale base_locale_enter(void);
void base_locale_leave(base_locale before);

/* ---- names to small integers (names.c): open addressing, keys copied ------------------------- */

typedef struct base_names base_names;
base_names *base_names_new(void);
void base_names_free(base_names *t);
int base_names_find(const base_names *t, const char *key);           /* the value, or -1 */
by_status base_names_put(base_names *t, const char *key, int value); /* value >= 0; replaces */

/* ---- random numbers (rng.c): Philox4x32-10 (Salmon et al. 2011). A number is a function of (key, counter)
 * alone, so it is the same on any thread count and after any resume.
 * -------------------------------------------------------------- */

typedef struct base_philox {
    uint32_t v[4];
} base_philox;
base_philox base_philox_at(uint64_t key, uint64_t counter_hi, uint64_t counter_lo);

/* A stream over it for sequential use: the state is two integers and can be saved and restored. */
typedef struct base_rng {
    uint64_t key;     /* seed */
    uint64_t stream;  /* which independent stream */
    uint64_t counter; /* numbers of 32 bits drawn so far */
} base_rng;
base_rng base_rng_make(uint64_t seed, uint64_t stream);
uint32_t base_rng_u32(base_rng *r);
uint64_t base_rng_u64(base_rng *r);
double base_rng_uniform(base_rng *r);             /* [0, 1), 53 bits */
double base_rng_normal(base_rng *r);              /* Box-Muller, one value per call, two u64 consumed */
uint64_t base_rng_below(base_rng *r, uint64_t n); /* unbiased, [0, n); n = 0 gives 0 */

/* Fill with independent normal values of the stream (seed, stream), value i depending on i alone. */
void base_rng_fill_normal(float *out, size_t n, uint64_t seed, uint64_t stream, float mean, float std);
/* Values first, first + 1, ... of what the call above fills; threads may share an array so. */
void base_rng_fill_normal_from(float *out, size_t first, size_t n, uint64_t seed, uint64_t stream, float mean,
                               float std);

/* A seeded permutation of [0, n) that is evaluated one index at a time, with no table: 10-round Feistel
 * network with cycle walking. Seeking in a shuffled data set costs nothing. */
uint64_t base_permute(uint64_t index, uint64_t n, uint64_t seed);

/* 64-bit FNV-1a, for names and for fingerprints of files. */
uint64_t base_hash(const void *bytes, size_t n, uint64_t seed);

/* A fast 64-bit checksum of what lies in a file, to find damage (checksum.c). A change of any one byte
 * changes it. */
uint64_t base_checksum(const void *bytes, size_t n);

/* ---- threads (parallel.c) -------------------------------------------------------------------- */

int base_cores(void); /* at least 1 */

/* How many of so many threads an OpenMP region may use: all of them, or one in a child of fork() whose parent
 * has run such regions. Ask before every region that the process may be the first to run. */
int base_team(int threads);

/* Call work(user, 0) to work(user, threads - 1), at the same time where the machine has the threads. Returns
 * when all have; the status and message of the first index that failed. */
by_status base_parallel(int threads, by_status (*work)(void *user, int index), void *user);
/* Cut [0, n) into one range for each thread and call work(user, begin, end) for all of them; fewer threads
 * where ranges would be short. */
void base_parallel_ranges(int threads, size_t n, void (*work)(void *user, size_t begin, size_t end),
                          void *user);

/* ---- time (clock.c) -------------------------------------------------------------------------- */
double base_seconds(void); /* monotonic */

/* ---- 16-bit floats, scalar, round to nearest even, NaN stays NaN ----------------------------- */
static inline float base_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t base_f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
float base_f16_to_f32(uint16_t h);
uint16_t base_f32_to_f16(float f);

/* Blocks of the types BY_Q8_0 and BY_Q4_0. */
#define BASE_BLOCK 32
typedef struct base_q8_0 {
    uint16_t scale; /* f16 */
    int8_t q[BASE_BLOCK];
} base_q8_0;
typedef struct base_q4_0 {
    uint16_t scale;
    uint8_t q[BASE_BLOCK / 2];
} base_q4_0;

/* Convert n elements between any two element types (integers by value, rounding to nearest for floats to
 * integers). */
void base_convert(void *dst, by_dtype dst_type, const void *src, by_dtype src_type, size_t n);

#endif
