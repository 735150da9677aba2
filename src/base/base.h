/* base.h - shared by all other rooms and independent of machine learning: errors, memory, arenas, text
 * buffers, name tables, counter-based random numbers, threads, time, 16-bit floats. Files are in file.h. */
#ifndef BY_BASE_BASE_H
#define BY_BASE_BASE_H

#include <stdarg.h>
#include <string.h>

#include "banyan/base.h"

#define BY_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define BY_MIN(a, b)    ((a) < (b) ? (a) : (b))
#define BY_MAX(a, b)    ((a) > (b) ? (a) : (b))

/* Evaluates an expression that returns by_status and returns from the function unless it is BY_OK. */
#define BY_TRY(expr)                       \
    do {                                   \
        by_status by_try_status_ = (expr); \
        if (by_try_status_ != BY_OK)       \
            return by_try_status_;         \
    } while (0)

/* ---- errors (error.c) ------------------------------------------------------------------------ */

/* Sets the message of the calling thread and returns the status, so that `return base_fail(BY_ERR_IO, "...")`
 * reads well. */
by_status base_fail(by_status status, const char *fmt, ...) BY_PRINTF(2, 3);

/* Prepends context to the current message ("model.safetensors: ...") and returns its status. Without an
 * error, behaves like base_fail(BY_ERR_ARGUMENT). */
by_status base_fail_context(const char *fmt, ...) BY_PRINTF(1, 2);

/* Reports a required argument that is NULL: "graph is NULL". Usually the argument is the result of a call
 * that failed; then the error of that call is kept. */
by_status base_fail_missing(const char *what);

/* Returns the status that belongs to by_error_message(), or BY_OK if no error was set since
 * base_error_clear(). For functions that report failure by returning NULL. */
by_status base_error_status(void);
void base_error_clear(void);

/* Returns BY_ERR_CANCELLED if the hook of by_cancel_set asks to stop, otherwise BY_OK. For loops over long
 * texts. */
by_status base_cancel_check(void);

/* ---- memory (mem.c). Failure sets BY_ERR_MEMORY with the requested size and returns NULL. ---- */

void *base_alloc(size_t bytes);                          /* uninitialised; 0 bytes gives a unique pointer */
void *base_alloc_zero(size_t count, size_t size);        /* overflow-checked product, zeroed */
void *base_resize(void *old, size_t count, size_t size); /* overflow-checked; on failure old stays valid */
void *base_alloc_aligned(size_t bytes); /* 64-byte aligned, uninitialised; free with base_free */
char *base_strdup(const char *s);
char *base_sprintf(const char *fmt, ...) BY_PRINTF(1, 2); /* heap string; free with base_free */
void base_free(void *p);                                  /* NULL is a no-op */

/* ---- memory for libraries that abort when an allocation fails (reserve.c). Enter before each call into such
 * a library and leave after it; by_reserve_take (banyan/base.h) serves the allocations in between. Both fail
 * with BY_ERR_MEMORY if the reserve cannot be filled. */

void base_reserve_open(void);  /* adds a user of the reserve */
void base_reserve_close(void); /* the last user frees it */
by_status base_reserve_enter(void);
by_status base_reserve_enter_to_map(void); /* for calls that also use mmap: 8 MiB must be free */
by_status base_reserve_leave(void);

/* Checked arithmetic: return false on overflow and leave *out unchanged. */
bool base_mul_size(size_t a, size_t b, size_t *out);
bool base_add_size(size_t a, size_t b, size_t *out);

/* ---- arena: many small allocations, one lifetime (arena.c) ----------------------------------- */

typedef struct base_arena base_arena;
base_arena *base_arena_new(void);                    /* NULL on failure */
void base_arena_free(base_arena *a);                 /* frees everything allocated from it; NULL is a no-op */
void *base_arena_alloc(base_arena *a, size_t bytes); /* 16-byte aligned, zeroed; NULL on failure */
char *base_arena_strdup(base_arena *a, const char *s);
char *base_arena_vsprintf(base_arena *a, const char *fmt, va_list args);
char *base_arena_sprintf(base_arena *a, const char *fmt, ...) BY_PRINTF(2, 3);

/* ---- growing text or bytes (buf.c). Sticky: after a failed allocation every call is a no-op and `failed`
 * stays set. */

typedef struct base_buf {
    char *data; /* NUL-terminated once something was put; NULL before */
    size_t size, capacity;
    bool failed;
} base_buf;
void base_buf_put(base_buf *b, const void *bytes, size_t n);
void base_buf_puts(base_buf *b, const char *s);
void base_buf_printf(base_buf *b, const char *fmt, ...) BY_PRINTF(2, 3);
void base_buf_free(base_buf *b); /* resets to the zero state */

/* ---- names in messages (article.c) ----------------------------------------------------------- */

/* A name after its indefinite article, for messages: "an ImageGPTModel", "a BertModel", "an XLNetModel". */
typedef struct base_phrase {
    char text[160];
} base_phrase;
base_phrase base_a(const char *name);

/* ---- numbers as text (number.c): always with a decimal point -------------------------------- */

/* snprintf, vsnprintf, strtod and strtof in the "C" locale. The host program may have set a locale that
 * writes 0.5 as "0,5"; nothing that this library reads or writes depends on it. */
int base_format(char *out, size_t size, const char *fmt, ...) BY_PRINTF(3, 4);
int base_vformat(char *out, size_t size, const char *fmt, va_list args);
double base_strtod(const char *text, char **end);
float base_strtof(const char *text, char **end);

/* The same for third-party code: everything between the two calls runs in the "C" locale, in this thread. */
typedef struct base_locale {
    void *handle;
} base_locale;
base_locale base_locale_enter(void);
void base_locale_leave(base_locale before);

/* ---- names to small integers (names.c): open addressing, keys copied ------------------------- */

typedef struct base_names base_names;
base_names *base_names_new(void);
void base_names_free(base_names *t);
int base_names_find(const base_names *t, const char *key); /* the value, or -1 */
/* Value >= 0; replaces an existing value. */
by_status base_names_put(base_names *t, const char *key, int value);

/* ---- random numbers (rng.c): Philox4x32-10 (Salmon et al. 2011). A number is a function of (key, counter)
 * alone, so it is the same on any thread count and after any resume.
 * -------------------------------------------------------------- */

typedef struct base_philox {
    uint32_t v[4];
} base_philox;
base_philox base_philox_at(uint64_t key, uint64_t counter_hi, uint64_t counter_lo);

/* A stream of random numbers for sequential use. Its state is a few integers and can be saved and
 * restored. */
typedef struct base_rng {
    uint64_t key;     /* seed */
    uint64_t stream;  /* index of the independent stream */
    uint64_t counter; /* 32-bit numbers drawn so far */
} base_rng;
base_rng base_rng_make(uint64_t seed, uint64_t stream);
uint32_t base_rng_u32(base_rng *r);
uint64_t base_rng_u64(base_rng *r);
double base_rng_uniform(base_rng *r); /* [0, 1), 53 bits */
/* The one after `place` others. */
double base_uniform_at(uint64_t seed, uint64_t stream, uint64_t place);
double base_rng_normal(base_rng *r); /* Box-Muller, one value per call, two u64 consumed */
void base_rng_normals(base_rng *r, float *out, size_t n); /* the next n of base_rng_normal, faster */
uint64_t base_rng_below(base_rng *r, uint64_t n);         /* unbiased, [0, n); n = 0 gives 0 */

/* Fills out with independent normal values of the stream (seed, stream). Value i depends only on i. */
void base_rng_fill_normal(float *out, size_t n, uint64_t seed, uint64_t stream, float mean, float std);
/* Computes values first, first + 1, ... of the same sequence, so that threads can share an array. */
void base_rng_fill_normal_from(float *out, size_t first, size_t n, uint64_t seed, uint64_t stream, float mean,
                               float std);

/* A seeded permutation of [0, n) that is evaluated one index at a time, without a table: 10-round Feistel
 * network with cycle walking. Seeking in a shuffled dataset is free. */
uint64_t base_permute(uint64_t index, uint64_t n, uint64_t seed);

/* 64-bit FNV-1a, for names and file fingerprints. */
uint64_t base_hash(const void *bytes, size_t n, uint64_t seed);

/* A fast 64-bit checksum that detects damage in files (checksum.c). Changing any single byte changes it. */
uint64_t base_checksum(const void *bytes, size_t n);

/* ---- threads (parallel.c) -------------------------------------------------------------------- */

int base_cores(void); /* at least 1 */

/* Returns how many of `threads` threads an OpenMP region may use: all of them, or one in a child of fork()
 * whose parent has run such regions. Call it before every region that may be the first of the process. */
int base_team(int threads);

/* Calls work(user, 0) to work(user, threads - 1), concurrently if threads are available. Waits for all of
 * them; returns the status and sets the message of the lowest index that failed. */
by_status base_parallel(int threads, by_status (*work)(void *user, int index), void *user);
/* Splits [0, n) into one range per thread and calls work(user, begin, end) for each. Uses fewer threads if
 * the ranges would be short. */
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
