/* act.cuh - activations and their derivatives with the precision of an element type: those of kernel.cuh for
 * f32, and for 16 bits forms with two fast instructions (a power, a reciprocal) and an error of about
 * 1e-6. */
#ifndef BY_CUDA_KERNELS_ACT_CUH
#define BY_CUDA_KERNELS_ACT_CUH

#include "cuda/kernels/kernel.cuh"

/* 1 / (1 + e^-x), and 1 minus that without cancellation. Below -80 both equal their values at -80 to within
 * 1e-35. */
static __device__ __forceinline__ float quick_sigmoid(float x, float *rest)
{
    float e = __expf(x < -80 ? 80.0f : -x), s = __fdividef(1.0f, 1 + e);
    *rest = e * s;
    return s;
}

/* The normal distribution function (Abramowitz and Stegun 7.1.26, absolute error 1e-7) and its density. */
static __device__ __forceinline__ float quick_normal(float x, float *density)
{
    float e = __expf(-0.5f * x * x), t = __fdividef(1.0f, 1 + 0.23164189f * fabsf(x));
    float tail =
        0.5f * e * t *
        (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    *density = 0.39894228f * e;
    return x < 0 ? tail : 1 - tail;
}

/* gelu_tanh(x) = x sigmoid(x (A + B x^2)) */
#define GELU_A 1.59576912f /* 2 sqrt(2 / pi) */
#define GELU_B 0.07135481f /* 0.044715 A */

/* act(x), to be stored as a T. */
template <class T> static __device__ __forceinline__ float activate_as(by_act act, float x)
{
    float other;
    switch (sizeof(T) == 2 ? act : BY_ACT_NONE) {
    case BY_GELU:
        return x * quick_normal(x, &other);
    case BY_GELU_TANH:
        return x * quick_sigmoid(x * (GELU_A + GELU_B * x * x), &other);
    case BY_SILU:
        return x * quick_sigmoid(x, &other);
    case BY_SIGMOID:
        return quick_sigmoid(x, &other);
    default:
        return activate(act, x);
    }
}

/* dy act'(x), to be stored as a T. */
template <class T> static __device__ __forceinline__ float activate_grad_as(by_act act, float x, float dy)
{
    float s, other;
    if (act == BY_RELU)
        return x > 0 ? dy : 0; /* whatever dy is */
    switch (sizeof(T) == 2 ? act : BY_ACT_NONE) {
    case BY_GELU:
        s = quick_normal(x, &other);
        return dy * (s + x * other);
    case BY_GELU_TANH:
        s = quick_sigmoid(x * (GELU_A + GELU_B * x * x), &other);
        return dy * (s + x * s * other * (GELU_A + 3 * GELU_B * x * x));
    case BY_SILU:
        s = quick_sigmoid(x, &other);
        return dy * (s * (1 + x * other));
    case BY_SIGMOID:
        s = quick_sigmoid(x, &other);
        return dy * (s * other);
    default:
        return dy * activate_slope(act, x);
    }
}

#endif
