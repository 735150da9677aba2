/* base.h - status codes, error messages, element types. Everything else in the API builds on this. */
#ifndef BANYAN_BASE_H
#define BANYAN_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define BY_API               __attribute__((visibility("default")))
#define BY_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define BY_API
#define BY_PRINTF(fmt, args)
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define BY_VERSION "0.1.0"

/* Threads. Objects are not locked: one thread at a time uses a device, the parameters and programs made on
 * it, a tokenizer that is being set up, a trainer, a generator. Different devices, and what was made on them,
 * may be used by different threads at the same time. A tokenizer that is set up, and opened weights, may be
 * read by several at once. The error message belongs to the thread.
 *
 * fork(). The threads that compute do not exist in a child. A child of a process that has computed on several
 * threads computes on one; by_device_threads() says so after the first run. Results are the same as on the
 * CPU's own kernels, and may differ in the last bits where a library computes. No other thread may be inside
 * the library at the moment of the fork. A GPU cannot be used in a child at all. A child that calls exec()
 * may do anything.
 *
 * Mapped files. Weights and token files are mapped, not read. Replacing one by a new file (rename) is safe;
 * writing into it changes what is computed, and truncating it makes the next access raise SIGBUS, as for
 * every mapped file. The library installs no signal handler. The program `banyan` prints the name of the file
 * and exits with 1; another program may do the same in its handler with by_mapped_file(). */

/* Every call that can fail returns one of these (or NULL) and leaves a message for by_error_message(). */
typedef enum by_status {
    BY_OK = 0,
    BY_ERR_ARGUMENT,    /* a value the caller passed, or a shape that does not fit */
    BY_ERR_MEMORY,      /* an allocation failed */
    BY_ERR_IO,          /* a file or the disk */
    BY_ERR_FORMAT,      /* a file that is truncated, malformed or hostile */
    BY_ERR_UNSUPPORTED, /* well formed, but not something this build can do */
    BY_ERR_CANCELLED,   /* a callback or a signal asked to stop */
    BY_ERR_NUMERIC,     /* NaN or infinity where a number was needed */
    BY_ERR_DEVICE       /* a GPU, its driver or its libraries */
} by_status;

/* The last error of the calling thread: one line, no newline, "" when there was none. Valid until the next
 * failing call on the same thread. */
BY_API const char *by_error_message(void);

/* Memory that the library holds in reserve for calls into oneDNN, which does not survive a failed allocation:
 * it ends the process. A program that is to survive it defines operator new and posix_memalign; where the
 * originals fail, they return by_reserve_take(), which is NULL outside of such calls and when the reserve is
 * used up. The block is freed with free(). The program `banyan` does so in src/cli/allocate.c. */
BY_API void *by_reserve_take(size_t bytes, size_t alignment);

/* The path of the file that the library has mapped at this address, or NULL: for the si_addr of a handler of
 * SIGBUS. Safe to call in a signal handler. At most 64 files are known; of longer paths the beginning. */
BY_API const char *by_mapped_file(const void *address);

/* Ask the calling thread's long work on text (tokenising a corpus, reading data) whether to stop: it polls
 * the hook several times a second and ends with BY_ERR_CANCELLED once that returns true. Training and
 * generation also have callbacks of their own. NULL: none. */
BY_API void by_cancel_set(bool (*cancelled)(void *user), void *user);

/* Library version, "major.minor.patch". Never NULL. */
BY_API const char *by_version(void);

/* Element types. The order is stable; files and the op table refer to them by name. BY_I8 to BY_F8_E5M2 exist
 * in files only: they are read, converted and written, nothing is computed with them. The last are types of
 * blocks: 32 values along the last axis share a scale, laid out as in GGUF files. Weights that are not
 * trained can be stored so; products and tables read them. */
typedef enum by_dtype {
    BY_F32 = 0,
    BY_BF16,
    BY_F16,
    BY_F64,
    BY_I32,
    BY_I64,
    BY_U8,
    BY_BOOL,
    BY_I8,
    BY_I16,
    BY_U16,
    BY_U32,
    BY_U64,
    BY_F8_E4M3, /* no infinities, one NaN: torch.float8_e4m3fn */
    BY_F8_E5M2,
    BY_Q8_0, /* 34 bytes: an f16 scale d, then 32 i8; a value is d q */
    BY_Q4_0, /* 18 bytes: an f16 scale d, then 16 bytes; value i is d (q - 8), q the low half of byte i, value
              * 16 + i likewise the high half */
    BY_DTYPE_COUNT
} by_dtype;

/* Bytes of one element, 0 for a type of blocks; values per block, 1 for the others; bytes of n values, a
 * multiple of the block; the name ("f32"). 0 and "?" for a value that is not a dtype. */
BY_API size_t by_dtype_size(by_dtype t);
BY_API size_t by_dtype_block(by_dtype t);
BY_API size_t by_dtype_bytes(by_dtype t, size_t n);
BY_API const char *by_dtype_name(by_dtype t);

/* True for f32, bf16, f16, f64. */
BY_API bool by_dtype_is_float(by_dtype t);

/* The same, the two 8-bit floats, which no computation takes, and the types of blocks. */
BY_API bool by_dtype_has_fraction(by_dtype t);

/* "f32", "float32", "bf16", "bfloat16", "f16", "float16", "f64", ... Returns false for an unknown name. */
BY_API bool by_dtype_parse(const char *name, by_dtype *out);

#ifdef __cplusplus
}
#endif
#endif
