/* kernel.h - what every kernel file shares. The files in this folder are compiled once per instruction set
 * with BY_ISA set to generic, avx2, avx512 or avx512bf16; plain loops are left to the compiler to vectorise
 * for it.
 *
 * Typed code is a template: a kernel file includes itself once per element type through each_type.h, with
 *   T       the stored type (float, uint16_t for bf16 and f16, double)
 *   R       the type computed in (float, or double for f64)
 *   LD(x)   T to R        ST(r)  R to T
 *   FN(f)   f with type and instruction set appended
 *   R_EXP, R_TANH, R_ERF, R_LOG, R_SQRT   for R
 *   R_SIMD, R_SIMD_SUM(s, ...)            before a loop: vectorise it; s, ... are its sums. Nothing for f64
 * Only the generic set has f64: it is the reference, and it uses the C library's functions. */
#ifndef BY_CPU_KERNELS_KERNEL_H
#define BY_CPU_KERNELS_KERNEL_H

#include <math.h>

#include "cpu/cpu.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

#define BY_PASTE_(a, b) a##_##b
#define BY_PASTE(a, b)  BY_PASTE_(a, b)
#define BY_STRING_(a)   #a
#define BY_STRING(a)    BY_STRING_(a)
#define BY_ISA_NAME     BY_STRING(BY_ISA)
#define KERNEL(name)    BY_PASTE(cpu_##name, BY_ISA)
#define BY_PRAGMA(x)    _Pragma(#x)

/* Compiler vectors, for code that must keep its accumulators in registers. */
#if BY_ISA_LEVEL >= 2
#define BY_VECTOR_BYTES 64
#elif BY_ISA_LEVEL == 1
#define BY_VECTOR_BYTES 32
#else
#define BY_VECTOR_BYTES 16
#endif

#define GR_OP(ID, name, in, out, traits, gradient) by_status KERNEL(name)(gr_exec * e, gr_node * n);
#include "graph/ops.def"
#undef GR_OP

/* Calls f, a function of the template, for an element type; used at the end of a kernel. */
#define BY_TYPED(f, type) BY_PASTE(BY_PASTE(f, type), BY_ISA)
#if BY_ISA_LEVEL == 0
#define BY_CASE_F64(f, ...) \
    case BY_F64:            \
        return BY_TYPED(f, f64)(__VA_ARGS__);
#else
#define BY_CASE_F64(f, ...)
#endif
#define BY_DISPATCH(type, f, ...)                                                                           \
    switch (type) {                                                                                         \
    case BY_F32:                                                                                            \
        return BY_TYPED(f, f32)(__VA_ARGS__);                                                               \
    case BY_BF16:                                                                                           \
        return BY_TYPED(f, bf16)(__VA_ARGS__);                                                              \
    case BY_F16:                                                                                            \
        return BY_TYPED(f, f16)(__VA_ARGS__);                                                               \
        BY_CASE_F64(f, __VA_ARGS__)                                                                         \
    default:                                                                                                \
        return base_fail(BY_ERR_UNSUPPORTED, "%s: no %s kernel for %s",                                     \
                         gr_tensor_label((n)->out[0] ? (n)->out[0] : (n)->in[0]), #f, by_dtype_name(type)); \
    }

/* Loops over fewer elements run on one thread: waking the others would cost more. */
#define BY_FORK_ELEMENTS 16384

/* ---- functions of float ------------------------------------------------------------------------
 * Branch-free, so that loops calling them vectorise. Polynomials are minimax fits of relative error; the
 * largest relative error against the C library's double functions is below 2e-7 for each. */

static inline uint32_t cpu_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float cpu_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* 2^k p(r) with |r| <= ln2 / 2. Subnormal down to -103.9, then 0; infinity above 88.7; NaN stays NaN. */
static inline float cpu_expf(float x)
{
    float c = x > 89.0f ? 89.0f : x; /* comparisons are false for NaN, which propagates */
    c = c < -104.0f ? -104.0f : c;
    float k =
        c * 1.44269504088896341f + 12582912.0f; /* 1.5 * 2^23: the sum's low bits are the rounded integer */
    uint32_t e = cpu_bits(k) - 0x4b400000u;
    k -= 12582912.0f;
    float r = c - k * 0.693359375f; /* ln2 in two parts, the first exact in few bits */
    r = r + k * 2.12194440e-4f;
    float p = 1.38145580e-3f;
    p = p * r + 8.36873613e-3f;
    p = p * r + 4.16683890e-2f;
    p = p * r + 1.66665211e-1f;
    p = p * r + 4.99999940e-1f;
    p = p * (r * r) + r + 1.0f;
    /* two factors, because 2^k alone may be out of range when the product is not */
    uint32_t e1 = (uint32_t)((int32_t)e >> 1), e2 = e - e1;
    return p * cpu_float((e1 + 127) << 23) * cpu_float((e2 + 127) << 23);
}

/* 1 - 2 / (1 + e^2x); near 0 a polynomial, which avoids cancellation. */
static inline float cpu_tanhf(float x)
{
    float s = x * x, a = x < 0 ? -x : x;
    float p = -5.70497941e-3f;
    p = p * s + 2.06390806e-2f;
    p = p * s - 5.37397116e-2f;
    p = p * s + 1.33314416e-1f;
    p = p * s - 3.33332807e-1f;
    float near = x + x * (s * p);
    float far = 1.0f - 2.0f / (cpu_expf(2.0f * a) + 1.0f);
    far = x < 0 ? -far : far;
    return a < 0.625f ? near : far;
}

/* x P(x^2) near 0; beyond, 1 - e^Q(|x|) with Q a fit of log(1 - erf), up to 4, where erf is 1 in float. */
static inline float cpu_erff(float x)
{
    float s = x * x, a = x < 0 ? -x : x;
    float p = -6.09048584e-4f;
    p = p * s + 5.01199160e-3f;
    p = p * s - 2.67789327e-2f;
    p = p * s + 1.12821415e-1f;
    p = p * s - 3.76125246e-1f;
    p = p * s + 1.12837911e+0f;
    float c = a > 4.0f ? 4.0f : a;
    float q = 1.98221183e-4f;
    q = q * c - 3.06550460e-3f;
    q = q * c + 2.23152656e-2f;
    q = q * c - 1.04113780e-1f;
    q = q * c - 6.36975944e-1f;
    q = q * c - 1.12779737e+0f;
    q = q * c - 1.66433019e-4f;
    float far = 1.0f - cpu_expf(q);
    far = x < 0 ? -far : far;
    return a < 0.9f ? p * x : far;
}

static inline float cpu_logf(float x)
{
    return logf(x);
}

/* ---- 16-bit floats: branch-free, bitwise equal to the scalar functions of base.h ------------ */

static inline uint16_t cpu_bf16_store(float f)
{
    uint32_t u = cpu_bits(f);
    uint32_t rounded = u + 0x7fffu + (u >> 16 & 1u), quiet = u | 0x400000u;
    return (uint16_t)((f != f ? quiet : rounded) >> 16);
}

/* Stochastic rounding: away from 0 with a probability equal to the truncated fraction, so that the mean is f.
 * chance: 16 random bits. */
static inline uint16_t cpu_bf16_stochastic(float f, uint32_t chance)
{
    uint32_t u = cpu_bits(f);
    bool finite = (u & 0x7f800000u) != 0x7f800000u;
    return finite ? (uint16_t)((u + chance) >> 16) : cpu_bf16_store(f);
}

/* Multiplying by 2^112 adjusts the exponent and also normalises subnormals. */
static inline float cpu_f16_load(uint16_t h)
{
    uint32_t a = (uint32_t)(h & 0x7fffu) << 13, sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t finite = cpu_bits(cpu_float(a) * 0x1p112f);
    uint32_t special = a | 0x7f800000u | (a > 0x0f800000u ? 0x400000u : 0u);
    return cpu_float(sign | (a >= 0x0f800000u ? special : finite));
}

static inline uint16_t cpu_f16_store(float f)
{
    uint32_t u = cpu_bits(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    uint32_t normal = (a + 0xfffu + (a >> 13 & 1u) - (112u << 23)) >> 13;
    uint32_t small = cpu_bits(cpu_float(a) + 0.5f) - 0x3f000000u; /* the addition rounds to steps of 2^-24 */
    uint32_t h = a < 0x38800000u ? small : normal;
    h = a >= 0x477ff000u ? 0x7c00u : h; /* 65520 and above are infinity */
    h = a > 0x7f800000u ? 0x7e00u | (a >> 13 & 0x3ffu) : h;
    return (uint16_t)(sign | h);
}

/* ---- random numbers: four adjacent elements share one evaluation of Philox ------------------ */

static inline base_philox cpu_random4(const gr_exec *e, const gr_node *n, uint64_t index4)
{
    return base_philox_at(e->seed, e->step << 32 | n->rng, index4);
}

/* One 32-bit number per 64-bit lane, in its low half. */
typedef uint64_t cpu_lanes __attribute__((vector_size(BY_VECTOR_BYTES)));
#define BY_LANES (BY_VECTOR_BYTES / 8)

#if BY_ISA_LEVEL >= 2
#define BY_LANES_OP(op) (cpu_lanes) _mm512_##op((__m512i)a, (__m512i)b)
#elif BY_ISA_LEVEL == 1
#define BY_LANES_OP(op) (cpu_lanes) _mm256_##op((__m256i)a, (__m256i)b)
#elif defined(__SSE2__)
#define BY_LANES_OP(op) (cpu_lanes) _mm_##op((__m128i)a, (__m128i)b)
#else /* two lanes */
#define BY_LANES_OP(op)         BY_LANES_##op
#define BY_LANES_mul_epu32      ((a & 0xffffffffu) * (b & 0xffffffffu))
#define BY_LANES_unpacklo_epi64 ((cpu_lanes){a[0], b[0]})
#define BY_LANES_unpackhi_epi64 ((cpu_lanes){a[1], b[1]})
#endif

/* Products of the low halves; the high halves are ignored. */
static inline cpu_lanes cpu_lanes_product(cpu_lanes a, cpu_lanes b)
{
    return BY_LANES_OP(mul_epu32);
}

/* a0 b0 a2 b2 ... and a1 b1 a3 b3 ... */
static inline cpu_lanes cpu_lanes_even(cpu_lanes a, cpu_lanes b)
{
    return BY_LANES_OP(unpacklo_epi64);
}

static inline cpu_lanes cpu_lanes_odd(cpu_lanes a, cpu_lanes b)
{
    return BY_LANES_OP(unpackhi_epi64);
}

#define BY_RANDOM_SPAN   512
#define BY_RANDOM_PLACES (BY_RANDOM_SPAN + 4 * BY_LANES)

/* Returns the 32-bit random numbers of elements [first, first + count) of a node, count <= BY_RANDOM_SPAN:
 * those of cpu_random4(first / 4) and so on, BY_LANES evaluations at a time. buffer has BY_RANDOM_PLACES
 * elements; the result points into it. */
static inline const uint32_t *cpu_random_span(const gr_exec *e, const gr_node *n, uint64_t first,
                                              int64_t count, uint32_t *buffer)
{
    const uint64_t hi = e->step << 32 | n->rng;
    const int64_t blocks = ((int64_t)(first % 4) + count + 3) / 4;
    cpu_lanes lane, zero = {0};
    for (int j = 0; j < BY_LANES; j++) /* even lanes take the first half, which leaves them in order below */
        lane[j] = (uint64_t)(j / 2 + j % 2 * (BY_LANES / 2));
    for (int64_t i = 0; i < blocks; i += BY_LANES) {
        uint32_t k0 = (uint32_t)e->seed, k1 = (uint32_t)(e->seed >> 32);
        cpu_lanes c0 = lane + (first / 4 + (uint64_t)i), c1 = c0 >> 32;
        cpu_lanes c2 = zero + hi, c3 = c2 >> 32;
        for (int round = 0; round < 10; round++) {
            cpu_lanes p0 = cpu_lanes_product(c0, zero + 0xd2511f53u),
                      p1 = cpu_lanes_product(c2, zero + 0xcd9e8d57u);
            c0 = p1 >> 32 ^ c1 ^ k0;
            c1 = p1;
            c2 = p0 >> 32 ^ c3 ^ k1;
            c3 = p0;
            k0 += 0x9e3779b9u;
            k1 += 0xbb67ae85u;
        }
        cpu_lanes low = (c0 & 0xffffffffu) | c1 << 32, high = (c2 & 0xffffffffu) | c3 << 32;
        cpu_lanes out[2] = {cpu_lanes_even(low, high), cpu_lanes_odd(low, high)};
        memcpy(buffer + 4 * i, out, sizeof out);
    }
    return buffer + first % 4;
}

/* An element is kept if its 32-bit number is >= p * 2^32. */
static inline uint32_t cpu_drop_threshold(float p)
{
    double t = (double)p * 4294967296.0;
    return t >= 4294967295.0 ? 4294967295u : (uint32_t)t;
}

/* The factor of kept elements. With p = 1 nothing is kept. */
static inline double cpu_drop_factor(float p)
{
    return p < 1 ? 1 / (1 - (double)p) : 0;
}

#endif
