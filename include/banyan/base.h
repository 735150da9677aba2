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

/* Threads. Objects are not locked. A device, the parameters and programs made on it, a trainer, a generator,
 * and a tokenizer that is still being configured may be used by one thread at a time. Different threads may
 * use different devices, and the objects made on them, concurrently. A configured tokenizer and opened
 * weights may be read by several threads at once. The error message is per thread.
 *
 * fork(). Compute threads do not survive into a child process. A child of a process that has computed on
 * several threads computes on one; by_device_threads() reports this after the first run. Results are
 * identical with the CPU kernels of this library and may differ in the last bits where an external library
 * computes. No other thread may be inside the library at the moment of the fork. A child cannot use a GPU at
 * all. A child that calls exec() is not restricted.
 *
 * Mapped files. Weight and token files are mapped, not read. Replacing one with a new file (rename) is safe.
 * Writing into one changes the results, and truncating one makes the next access raise SIGBUS, as with any
 * mapped file. The library installs no signal handler. The `banyan` program prints the name of the file and
 * exits with status 1; other programs can do the same in their handler with by_mapped_file(). */

/* Every call that can fail returns one of these (or NULL) and leaves a message for by_error_message(). */
typedef enum by_status {
    BY_OK = 0,
    BY_ERR_ARGUMENT,    /* invalid argument, or a shape that does not fit */
    BY_ERR_MEMORY,      /* allocation failed */
    BY_ERR_IO,          /* file or disk error */
    BY_ERR_FORMAT,      /* truncated, malformed or hostile file */
    BY_ERR_UNSUPPORTED, /* well formed, but not supported by this build */
    BY_ERR_CANCELLED,   /* stopped by a callback or a signal */
    BY_ERR_NUMERIC,     /* NaN or infinity where a finite number was required */
    BY_ERR_DEVICE       /* error of a GPU, its driver or its libraries */
} by_status;

/* Returns the last error of the calling thread as one line without a newline, or "" if there was none. Valid
 * until the next failing call on the same thread. */
BY_API const char *by_error_message(void);

/* Returns memory that the library reserves for calls into oneDNN, which aborts the process when an allocation
 * fails. To survive that, a program defines operator new and posix_memalign, and returns by_reserve_take()
 * where the originals fail. Returns NULL outside of such calls and when the reserve is used up. Release the
 * block with free(). The `banyan` program does this in src/cli/allocate.c. */
BY_API void *by_reserve_take(size_t bytes, size_t alignment);

/* Returns the path of the file that the library has mapped at this address, or NULL. Intended for the si_addr
 * of a SIGBUS handler; async-signal-safe. At most 64 files are tracked, and long paths are truncated. */
BY_API const char *by_mapped_file(const void *address);

/* Sets the cancellation hook of the calling thread; NULL removes it. Long text operations (tokenising a
 * corpus, reading data) poll the hook several times a second and fail with BY_ERR_CANCELLED once it returns
 * true. Training and generation also have their own callbacks. */
BY_API void by_cancel_set(bool (*cancelled)(void *user), void *user);

/* Returns the library version, "major.minor.patch". Never NULL. */
BY_API const char *by_version(void);

/* Element types. The order is stable; files and the op table refer to them by name. BY_I8 to BY_F8_E5M2 exist
 * in files only: they can be read, converted and written, but not computed with. BY_Q8_0 and BY_Q4_0 are
 * block types: 32 values along the last axis share a scale, laid out as in GGUF files. Frozen weights can be
 * stored in them; matrix products and embedding tables read them directly. */
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

/* by_dtype_size: bytes per element, 0 for a block type. by_dtype_block: values per block, 1 for other types.
 * by_dtype_bytes: bytes of n values, where n is a multiple of the block. by_dtype_name: "f32". An invalid
 * dtype gives 0 and "?". */
BY_API size_t by_dtype_size(by_dtype t);
BY_API size_t by_dtype_block(by_dtype t);
BY_API size_t by_dtype_bytes(by_dtype t, size_t n);
BY_API const char *by_dtype_name(by_dtype t);

/* Returns true for f32, bf16, f16 and f64. */
BY_API bool by_dtype_is_float(by_dtype t);

/* Returns true for these, the two 8-bit floats and the block types. */
BY_API bool by_dtype_has_fraction(by_dtype t);

/* Parses "f32", "float32", "bf16", "bfloat16", "f16", "float16", "f64", ... Returns false for an unknown
 * name. */
BY_API bool by_dtype_parse(const char *name, by_dtype *out);

#ifdef __cplusplus
}
#endif
#endif
