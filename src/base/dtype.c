/* dtype.c - element types: names, sizes, blocks, and conversion between any two of them. */
#include <math.h>

#include "base/base.h"

static const struct {
    const char *name;
    const char *alias[2]; /* other spellings that by_dtype_parse takes */
    size_t size;          /* bytes of an element, or of a block */
    bool is_float;
    size_t block; /* values of a block; 0: elements stand alone */
} types[BY_DTYPE_COUNT] = {
    [BY_F32] = {"f32", {"float32", "float"}, 4, true, 0},
    [BY_BF16] = {"bf16", {"bfloat16", NULL}, 2, true, 0},
    [BY_F16] = {"f16", {"float16", "half"}, 2, true, 0},
    [BY_F64] = {"f64", {"float64", "double"}, 8, true, 0},
    [BY_I32] = {"i32", {"int32", "int"}, 4, false, 0},
    [BY_I64] = {"i64", {"int64", "long"}, 8, false, 0},
    [BY_U8] = {"u8", {"uint8", "byte"}, 1, false, 0},
    [BY_BOOL] = {"bool", {"boolean", NULL}, 1, false, 0},
    [BY_I8] = {"i8", {"int8", "char"}, 1, false, 0},
    [BY_I16] = {"i16", {"int16", "short"}, 2, false, 0},
    [BY_U16] = {"u16", {"uint16", NULL}, 2, false, 0},
    [BY_U32] = {"u32", {"uint32", NULL}, 4, false, 0},
    [BY_U64] = {"u64", {"uint64", NULL}, 8, false, 0},
    [BY_F8_E4M3] = {"f8_e4m3", {"float8_e4m3fn", NULL}, 1, false, 0},
    [BY_F8_E5M2] = {"f8_e5m2", {"float8_e5m2", NULL}, 1, false, 0},
    [BY_Q8_0] = {"q8_0", {NULL, NULL}, sizeof(base_q8_0), false, BASE_BLOCK},
    [BY_Q4_0] = {"q4_0", {NULL, NULL}, sizeof(base_q4_0), false, BASE_BLOCK},
};

static bool is_dtype(by_dtype t)
{
    return (unsigned)t < BY_DTYPE_COUNT;
}

size_t by_dtype_size(by_dtype t)
{
    return is_dtype(t) && !types[t].block ? types[t].size : 0;
}

size_t by_dtype_block(by_dtype t)
{
    return is_dtype(t) ? BY_MAX(types[t].block, 1) : 0;
}

size_t by_dtype_bytes(by_dtype t, size_t n)
{
    return is_dtype(t) ? n / by_dtype_block(t) * types[t].size : 0;
}

const char *by_dtype_name(by_dtype t)
{
    return is_dtype(t) ? types[t].name : "?";
}

bool by_dtype_is_float(by_dtype t)
{
    return is_dtype(t) && types[t].is_float;
}

bool by_dtype_has_fraction(by_dtype t)
{
    return by_dtype_is_float(t) || t == BY_F8_E4M3 || t == BY_F8_E5M2 || by_dtype_block(t) > 1;
}

/* ASCII case-insensitive comparison, independent of the locale. `lower` is in lower case. */
static bool equal_ignoring_case(const char *s, const char *lower)
{
    for (; *lower; s++, lower++)
        if ((*s >= 'A' && *s <= 'Z' ? *s - 'A' + 'a' : *s) != *lower)
            return false;
    return *s == '\0';
}

/* Upper case is accepted too: safetensors headers say "BF16". */
bool by_dtype_parse(const char *name, by_dtype *out)
{
    for (int t = 0; t < BY_DTYPE_COUNT; t++) {
        const char *spellings[3] = {types[t].name, types[t].alias[0], types[t].alias[1]};
        for (int i = 0; i < 3; i++) {
            if (spellings[i] && equal_ignoring_case(name, spellings[i])) {
                *out = (by_dtype)t;
                return true;
            }
        }
    }
    return false;
}

/* ---- 16-bit floats --------------------------------------------------------------------------- */

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* Exact. A signalling NaN becomes quiet, as in hardware. */
float base_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, fraction = h & 0x3ffu;
    uint32_t magnitude;
    if (exponent == 31)
        magnitude = 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0);
    else if (exponent == 0)
        magnitude = bits_of((float)fraction * 0x1p-24f); /* zero and subnormals */
    else
        magnitude = (exponent + 127 - 15) << 23 | fraction << 13;
    return float_of(sign | magnitude);
}

uint16_t base_f32_to_f16(float f)
{
    uint32_t u = bits_of(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    uint32_t h;
    if (a > 0x7f800000u)
        h = 0x7e00u | (a >> 13 & 0x3ffu); /* NaN, made quiet, keeps its high payload bits */
    else if (a >= 0x477ff000u)
        h = 0x7c00u; /* 65520 and above round to infinity */
    else if (a < 0x38800000u)
        h = bits_of(float_of(a) + 0.5f) -
            0x3f000000u; /* below 2^-14: the addition rounds to steps of 2^-24 */
    else
        h = (a + 0xfffu + (a >> 13 & 1u) - (112u << 23)) >> 13;
    return (uint16_t)(sign | h);
}

/* ---- 8-bit floats ---------------------------------------------------------------------------- */

static float f8_e4m3_to_f32(uint8_t h)
{
    uint32_t sign = (uint32_t)(h & 0x80u) << 24, exponent = h >> 3 & 15u, fraction = h & 7u;
    if ((h & 0x7f) == 0x7f)
        return float_of(sign | 0x7fc00000u);
    if (exponent == 0)
        return float_of(sign | bits_of((float)fraction * 0x1p-9f));
    return float_of(sign | (exponent + 127 - 7) << 23 | fraction << 20);
}

/* e5m2 is the upper half of an f16. */
static float f8_e5m2_to_f32(uint8_t h)
{
    return base_f16_to_f32((uint16_t)(h << 8));
}

/* Rounds to nearest even. Values that round beyond `highest` become the next code: infinity in e5m2, NaN in
 * e4m3. */
static uint8_t f32_to_f8(float f, int fraction_bits, int bias, uint32_t highest)
{
    uint32_t u = bits_of(f), sign = u >> 24 & 0x80u, a = u & 0x7fffffffu, h = 0x7f;
    int shift = 23 - fraction_bits;
    uint32_t step = (uint32_t)(127 + 24 - bias - fraction_bits) << 23; /* adding it rounds a subnormal */
    if (a < (uint32_t)(128 - bias) << 23)
        h = bits_of(float_of(a) + float_of(step)) - step;
    else if (a <= 0x7f800000u)
        h = BY_MIN((a + (1u << (shift - 1)) - 1 + (a >> shift & 1u) - ((uint32_t)(127 - bias) << 23)) >>
                       shift,
                   highest + 1);
    return (uint8_t)(sign | h);
}

static uint8_t f32_to_e4m3(float f)
{
    return f32_to_f8(f, 3, 7, 0x7e);
}

static uint8_t f32_to_e5m2(float f)
{
    return f32_to_f8(f, 2, 15, 0x7b);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void read_q8_0(float *to, const base_q8_0 *b)
{
    const float d = base_f16_to_f32(b->scale);
    for (int i = 0; i < BASE_BLOCK; i++)
        to[i] = d * (float)b->q[i];
}

static void read_q4_0(float *to, const base_q4_0 *b)
{
    const float d = base_f16_to_f32(b->scale);
    for (int i = 0; i < BASE_BLOCK / 2; i++) {
        to[i] = d * (float)((b->q[i] & 15) - 8);
        to[BASE_BLOCK / 2 + i] = d * (float)((b->q[i] >> 4) - 8);
    }
}

/* The value of the largest magnitude, with its sign. */
static float largest(const float *x)
{
    float most = 0;
    for (int i = 0; i < BASE_BLOCK; i++)
        if (fabsf(x[i]) > fabsf(most))
            most = x[i];
    return most;
}

/* The whole number at or below x, within bounds; the lower one for what is not a number. */
static int to_step(float x, int low, int high)
{
    return x >= (float)high ? high : x > (float)low ? (int)floorf(x) : low;
}

/* The largest magnitude becomes 127. Halves round away from zero, as other writers of the format do. */
static void write_q8_0(base_q8_0 *b, const float *x)
{
    const float d = fabsf(largest(x)) / 127, inverse = d > 0 ? 1 / d : 0;
    b->scale = base_f32_to_f16(d);
    for (int i = 0; i < BASE_BLOCK; i++) {
        const int q = to_step(fabsf(x[i]) * inverse + 0.5f, 0, 127);
        b->q[i] = (int8_t)(x[i] < 0 ? -q : q);
    }
}

/* The largest magnitude becomes -8, the step of which there is one more. */
static void write_q4_0(base_q4_0 *b, const float *x)
{
    const float d = largest(x) / -8, inverse = d != 0 ? 1 / d : 0;
    b->scale = base_f32_to_f16(d);
    for (int i = 0; i < BASE_BLOCK / 2; i++)
        b->q[i] = (uint8_t)(to_step(x[i] * inverse + 8.5f, 0, 15) |
                            to_step(x[BASE_BLOCK / 2 + i] * inverse + 8.5f, 0, 15) << 4);
}

/* One block of any address. */
static void read_block(float *to, const char *from, by_dtype type)
{
    if (type == BY_Q8_0) {
        base_q8_0 b;
        memcpy(&b, from, sizeof b);
        read_q8_0(to, &b);
    } else {
        base_q4_0 b;
        memcpy(&b, from, sizeof b);
        read_q4_0(to, &b);
    }
}

static void write_block(char *to, by_dtype type, const float *from)
{
    if (type == BY_Q8_0) {
        base_q8_0 b;
        write_q8_0(&b, from);
        memcpy(to, &b, sizeof b);
    } else {
        base_q4_0 b;
        write_q4_0(&b, from);
        memcpy(to, &b, sizeof b);
    }
}

/* By way of f32, a block at a time. */
static void convert_blocks(char *dst, by_dtype dst_type, const char *src, by_dtype src_type, size_t n)
{
    float values[BASE_BLOCK];
    const size_t to = by_dtype_bytes(dst_type, BASE_BLOCK), from = by_dtype_bytes(src_type, BASE_BLOCK);
    for (; n >= BASE_BLOCK; n -= BASE_BLOCK, dst += to, src += from) {
        if (by_dtype_block(src_type) > 1)
            read_block(values, src, src_type);
        else
            base_convert(values, BY_F32, src, src_type, BASE_BLOCK);
        if (by_dtype_block(dst_type) > 1)
            write_block(dst, dst_type, values);
        else
            base_convert(dst, dst_type, values, BY_F32, BASE_BLOCK);
    }
}

/* ---- conversion ------------------------------------------------------------------------------ */

/* Converts f64 to f32, rounding to odd: an inexact result is truncated towards zero and its last bit set. A
 * second rounding to 16 bits then gives the same value as a single rounding from f64. */
static float round_to_odd(double d)
{
    float f = (float)d;
    if ((double)f == d || d != d || isinf(f))
        return f;
    uint32_t u = bits_of(f);
    if (fabs((double)f) > fabs(d))
        u--;
    return float_of(u | 1u);
}

/* Rounds to the nearest integer, ties to even. Values out of range become the nearest bound, NaN becomes
 * 0. */
static int64_t f64_to_i64(double d)
{
    if (d != d)
        return 0;
    if (d >= 0x1p63)
        return INT64_MAX;
    if (d < -0x1p63)
        return INT64_MIN;
    return (int64_t)rint(d);
}

static uint64_t f64_to_u64(double d)
{
    return d >= 0x1p63 ? d >= 0x1p64 ? UINT64_MAX : (uint64_t)d : (uint64_t)(d > 0 ? f64_to_i64(d) : 0);
}

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* One arm of a switch: dst[i] = expr(x = src[i]) for i < n, with elements of the C types D and S. Uses memcpy
 * because tensors in files are unaligned; compilers turn it into plain loads and stores. */
#define CASE(type, D, S, expr)                                        \
    case type:                                                        \
        for (size_t i = 0; i < n; i++) {                              \
            S x;                                                      \
            memcpy(&x, (const char *)src + i * sizeof(S), sizeof(S)); \
            D y = (D)(expr);                                          \
            memcpy((char *)dst + i * sizeof(D), &y, sizeof(D));       \
        }                                                             \
        break

/* Every element type fits exactly into f64 (floats) or i64 (the others), except u64 from 2^63 on.
 * base_convert treats such values as floats if the target is a float. */
static void widen(void *dst, const void *src, by_dtype src_type, size_t n)
{
    switch (src_type) {
        CASE(BY_F32, double, float, x);
        CASE(BY_BF16, double, uint16_t, base_bf16_to_f32(x));
        CASE(BY_F16, double, uint16_t, base_f16_to_f32(x));
        CASE(BY_F64, double, double, x);
        CASE(BY_I32, int64_t, int32_t, x);
        CASE(BY_I64, int64_t, int64_t, x);
        CASE(BY_U8, int64_t, uint8_t, x);
        CASE(BY_BOOL, int64_t, uint8_t, x != 0);
        CASE(BY_I8, int64_t, int8_t, x);
        CASE(BY_I16, int64_t, int16_t, x);
        CASE(BY_U16, int64_t, uint16_t, x);
        CASE(BY_U32, int64_t, uint32_t, x);
        CASE(BY_U64, int64_t, uint64_t, BY_MIN(x, (uint64_t)INT64_MAX));
        CASE(BY_F8_E4M3, double, uint8_t, f8_e4m3_to_f32(x));
        CASE(BY_F8_E5M2, double, uint8_t, f8_e5m2_to_f32(x));
    default:
        break;
    }
}

static void widen_u64(double *dst, const void *src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t x;
        memcpy(&x, (const char *)src + i * sizeof x, sizeof x);
        dst[i] = (double)x;
    }
}

static void narrow_f64(void *dst, by_dtype dst_type, const double *src, size_t n)
{
    switch (dst_type) {
        CASE(BY_F32, float, double, x);
        CASE(BY_BF16, uint16_t, double, base_f32_to_bf16(round_to_odd(x)));
        CASE(BY_F16, uint16_t, double, base_f32_to_f16(round_to_odd(x)));
        CASE(BY_F64, double, double, x);
        CASE(BY_I32, int32_t, double, clamp(f64_to_i64(x), INT32_MIN, INT32_MAX));
        CASE(BY_I64, int64_t, double, f64_to_i64(x));
        CASE(BY_U8, uint8_t, double, clamp(f64_to_i64(x), 0, UINT8_MAX));
        CASE(BY_BOOL, uint8_t, double, x != 0);
        CASE(BY_I8, int8_t, double, clamp(f64_to_i64(x), INT8_MIN, INT8_MAX));
        CASE(BY_I16, int16_t, double, clamp(f64_to_i64(x), INT16_MIN, INT16_MAX));
        CASE(BY_U16, uint16_t, double, clamp(f64_to_i64(x), 0, UINT16_MAX));
        CASE(BY_U32, uint32_t, double, clamp(f64_to_i64(x), 0, UINT32_MAX));
        CASE(BY_U64, uint64_t, double, f64_to_u64(x));
        CASE(BY_F8_E4M3, uint8_t, double, f32_to_e4m3(round_to_odd(x)));
        CASE(BY_F8_E5M2, uint8_t, double, f32_to_e5m2(round_to_odd(x)));
    default:
        break;
    }
}

static void narrow_i64(void *dst, by_dtype dst_type, const int64_t *src, size_t n)
{
    switch (dst_type) {
        CASE(BY_F32, float, int64_t, x);
        CASE(BY_BF16, uint16_t, int64_t, base_f32_to_bf16(round_to_odd((double)x)));
        CASE(BY_F16, uint16_t, int64_t, base_f32_to_f16(round_to_odd((double)x)));
        CASE(BY_F64, double, int64_t, x);
        CASE(BY_I32, int32_t, int64_t, clamp(x, INT32_MIN, INT32_MAX));
        CASE(BY_I64, int64_t, int64_t, x);
        CASE(BY_U8, uint8_t, int64_t, clamp(x, 0, UINT8_MAX));
        CASE(BY_BOOL, uint8_t, int64_t, x != 0);
        CASE(BY_I8, int8_t, int64_t, clamp(x, INT8_MIN, INT8_MAX));
        CASE(BY_I16, int16_t, int64_t, clamp(x, INT16_MIN, INT16_MAX));
        CASE(BY_U16, uint16_t, int64_t, clamp(x, 0, UINT16_MAX));
        CASE(BY_U32, uint32_t, int64_t, clamp(x, 0, UINT32_MAX));
        CASE(BY_U64, uint64_t, int64_t, x < 0 ? 0 : x);
        CASE(BY_F8_E4M3, uint8_t, int64_t, f32_to_e4m3(round_to_odd((double)x)));
        CASE(BY_F8_E5M2, uint8_t, int64_t, f32_to_e5m2(round_to_odd((double)x)));
    default:
        break;
    }
}

#define PAIR(from, to) ((int)(from)*BY_DTYPE_COUNT + (int)(to))

/* Fast paths for the pairs used by loading and mixed precision. Returns false for any other pair. */
static bool convert_directly(void *dst, by_dtype dst_type, const void *src, by_dtype src_type, size_t n)
{
    switch (PAIR(src_type, dst_type)) {
        CASE(PAIR(BY_F32, BY_BF16), uint16_t, float, base_f32_to_bf16(x));
        CASE(PAIR(BY_F32, BY_F16), uint16_t, float, base_f32_to_f16(x));
        CASE(PAIR(BY_BF16, BY_F32), float, uint16_t, base_bf16_to_f32(x));
        CASE(PAIR(BY_F16, BY_F32), float, uint16_t, base_f16_to_f32(x));
    default:
        return false;
    }
    return true;
}

/* Floats round to nearest even; what does not fit an integer type becomes its nearest bound, NaN becomes 0;
 * bool is "not zero". Blocks are whole: n is a multiple of theirs. Any alignment will do; dst and src must
 * not overlap. Something that is not a dtype converts nothing. */
void base_convert(void *dst, by_dtype dst_type, const void *src, by_dtype src_type, size_t n)
{
    if (n == 0 || !is_dtype(dst_type) || !is_dtype(src_type))
        return;
    if (dst_type == src_type) {
        memcpy(dst, src, by_dtype_bytes(src_type, n));
        return;
    }
    if (by_dtype_block(dst_type) > 1 || by_dtype_block(src_type) > 1) {
        convert_blocks(dst, dst_type, src, src_type, n);
        return;
    }
    if (convert_directly(dst, dst_type, src, src_type, n))
        return;
    union {
        double f64[256];
        int64_t i64[256];
    } wide;
    bool fractions =
        by_dtype_has_fraction(src_type) || (src_type == BY_U64 && by_dtype_has_fraction(dst_type));
    for (size_t i = 0; i < n; i += BY_COUNT(wide.f64)) {
        size_t part = BY_MIN(n - i, (size_t)BY_COUNT(wide.f64));
        char *to = (char *)dst + i * by_dtype_size(dst_type);
        const char *from = (const char *)src + i * by_dtype_size(src_type);
        if (src_type == BY_U64 && fractions)
            widen_u64(wide.f64, from, part);
        else
            widen(&wide, from, src_type, part);
        if (fractions)
            narrow_f64(to, dst_type, wide.f64, part);
        else
            narrow_i64(to, dst_type, wide.i64, part);
    }
}
