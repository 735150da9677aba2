/* stored.cuh - weights of types that nothing is computed in: blocks of 8 and 4 bits, and 16-bit floats under
 * f32. One row of x reads them as they are; for more they are first converted into working memory. */
#ifndef BY_CUDA_KERNELS_STORED_CUH
#define BY_CUDA_KERNELS_STORED_CUH

#include "cuda/cublas.cuh"
#include "cuda/kernels/kernel.cuh"

/* Values i to i + 3 of a tensor of type S, i a multiple of 4 and of no row's end. */
template <by_dtype S> static __device__ __forceinline__ vec<float, 4> stored4(const void *from, int64_t i)
{
    vec<float, 4> v;
    if (S == BY_BF16 || S == BY_F16) {
        const uint16_t *at = (const uint16_t *)from + i;
        for (int k = 0; k < 4; k++)
            v.at[k] = S == BY_BF16 ? to_float(bf16{at[k]}) : to_float(f16{at[k]});
        return v;
    }
    /* A block begins at an even address, and so does every second byte of its values. */
    const int in = (int)(i % BASE_BLOCK);
    const uint16_t *block =
        (const uint16_t *)from +
        i / BASE_BLOCK * (int64_t)((S == BY_Q8_0 ? sizeof(base_q8_0) : sizeof(base_q4_0)) / 2);
    const float d = to_float(f16{block[0]});
    const uint16_t *q = block + 1 + (S == BY_Q8_0 ? in : in % (BASE_BLOCK / 2)) / 2;
    const uint32_t four = (uint32_t)q[0] | (uint32_t)q[1] << 16;
    for (int k = 0; k < 4; k++) {
        const int byte = (int)(four >> 8 * k & 255);
        const int value =
            S == BY_Q8_0 ? (int)(int8_t)byte : (in < BASE_BLOCK / 2 ? byte & 15 : byte >> 4) - 8;
        v.at[k] = d * (float)value;
    }
    return v;
}

/* Run f<T, S>(...) for the type of the result and the stored one. */
#define CUDA_STORED_CASE(S, type, f, ...)                   \
    case S:                                                 \
        return type == BY_F32    ? f<float, S>(__VA_ARGS__) \
               : type == BY_BF16 ? f<bf16, S>(__VA_ARGS__)  \
                                 : f<f16, S>(__VA_ARGS__)
#define CUDA_STORED_DISPATCH(stored, type, f, ...)                                                          \
    switch (stored) {                                                                                       \
        CUDA_STORED_CASE(BY_Q8_0, type, f, __VA_ARGS__);                                                    \
        CUDA_STORED_CASE(BY_Q4_0, type, f, __VA_ARGS__);                                                    \
        CUDA_STORED_CASE(BY_BF16, type, f, __VA_ARGS__);                                                    \
        CUDA_STORED_CASE(BY_F16, type, f, __VA_ARGS__);                                                     \
    default:                                                                                                \
        return base_fail(BY_ERR_UNSUPPORTED, #f ": the GPU reads no weights of %s", by_dtype_name(stored)); \
    }

/* Convert count values. */
by_status cuda_stored_unpack(cuda_exec *x, const void *from, by_dtype stored, void *to, by_dtype type,
                             int64_t count);

/* c = act(a b + bias) for one row, b of type `stored`. */
bool cuda_stored_row_takes(const cuda_product *p, by_dtype stored);
by_status cuda_stored_row(cuda_exec *x, const cuda_product *p, by_dtype stored, by_act act);

#endif
