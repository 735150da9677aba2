/* each_type.h - includes BY_TEMPLATE once per element type. No include guard: included many times. */
#define FN(f) BY_PASTE(BY_PASTE(f, T_NAME), BY_ISA)

#define T_NAME          f32
#define T_ID            BY_F32
#define T               float
#define R               float
#define LD(x)           (x)
#define ST(x)           (x)
#define R_EXP           cpu_expf
#define R_TANH          cpu_tanhf
#define R_ERF           cpu_erff
#define R_LOG           cpu_logf
#define R_SQRT          sqrtf
#define R_LOG1P         log1pf
#define R_SIMD          BY_PRAGMA(omp simd)
#define R_SIMD_SUM(...) BY_PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#include BY_TEMPLATE
#undef T_NAME
#undef T_ID
#undef T
#undef LD
#undef ST

#define T_NAME bf16
#define T_ID   BY_BF16
#define T      uint16_t
#define LD(x)  base_bf16_to_f32(x)
#define ST(x)  cpu_bf16_store(x)
#include BY_TEMPLATE
#undef T_NAME
#undef T_ID
#undef T
#undef LD
#undef ST

#define T_NAME f16
#define T_ID   BY_F16
#define T      uint16_t
#define LD(x)  cpu_f16_load(x)
#define ST(x)  cpu_f16_store(x)
#include BY_TEMPLATE
#undef T_NAME
#undef T_ID
#undef T
#undef R
#undef LD
#undef ST
#undef R_EXP
#undef R_TANH
#undef R_ERF
#undef R_LOG
#undef R_SQRT
#undef R_LOG1P
#undef R_SIMD
#undef R_SIMD_SUM

#if BY_ISA_LEVEL == 0
#define T_NAME  f64
#define T_ID    BY_F64
#define T       double
#define R       double
#define LD(x)   (x)
#define ST(x)   (x)
#define R_EXP   exp
#define R_TANH  tanh
#define R_ERF   erf
#define R_LOG   log
#define R_SQRT  sqrt
#define R_LOG1P log1p
#define R_SIMD
#define R_SIMD_SUM(...)
#include BY_TEMPLATE
#undef T_NAME
#undef T_ID
#undef T
#undef R
#undef LD
#undef ST
#undef R_EXP
#undef R_TANH
#undef R_ERF
#undef R_LOG
#undef R_SQRT
#undef R_LOG1P
#undef R_SIMD
#undef R_SIMD_SUM
#endif

#undef BY_TEMPLATE
