/* rng.c - random numbers as a function of (seed, stream, index): Philox4x32-10, from Salmon et al., "Parallel
 * Random Numbers: As Easy as 1, 2, 3" (2011), section 3.3. Also a permutation that is evaluated one index at
 * a time. */
#include <math.h>

#include "base/base.h"
#include "base/vectors.h"

/* The key and the two counter words are laid out low half first, as in the published test vectors. */
BASE_INLINE base_philox philox(uint64_t key, uint64_t counter_hi, uint64_t counter_lo)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter_lo, c1 = (uint32_t)(counter_lo >> 32);
    uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u; /* golden ratio and sqrt(3) - 1, the Weyl steps of the key */
        k1 += 0xbb67ae85u;
    }
    return (base_philox){{c0, c1, c2, c3}};
}

base_philox base_philox_at(uint64_t key, uint64_t counter_hi, uint64_t counter_lo)
{
    return philox(key, counter_hi, counter_lo);
}

base_rng base_rng_make(uint64_t seed, uint64_t stream)
{
    return (base_rng){.key = seed, .stream = stream};
}

uint32_t base_rng_u32(base_rng *r)
{
    base_philox p = base_philox_at(r->key, r->stream, r->counter / 4);
    return p.v[r->counter++ % 4];
}

uint64_t base_rng_u64(base_rng *r)
{
    uint64_t low = base_rng_u32(r), high = base_rng_u32(r);
    return high << 32 | low;
}

double base_rng_uniform(base_rng *r)
{
    return (double)(base_rng_u64(r) >> 11) * 0x1p-53;
}

/* Box-Muller on two numbers of 64 bits. */
static double normal_of(uint64_t a, uint64_t b)
{
    double u = ((double)(a >> 11) + 1) * 0x1p-53; /* (0, 1], so that the logarithm is finite */
    double angle = 2 * M_PI * ((double)(b >> 11) * 0x1p-53);
    return sqrt(-2 * log(u)) * cos(angle);
}

double base_uniform_at(uint64_t seed, uint64_t stream, uint64_t place)
{
    base_rng r = base_rng_make(seed, stream);
    r.counter = 2 * place;
    return base_rng_uniform(&r);
}

double base_rng_normal(base_rng *r)
{
    uint64_t a = base_rng_u64(r), b = base_rng_u64(r);
    return normal_of(a, b);
}

static uint64_t join(const uint32_t *v)
{
    return (uint64_t)v[1] << 32 | v[0];
}

/* The words of n blocks. */
BASE_VECTORS
static void fill_words(uint32_t *words, size_t n, uint64_t key, uint64_t stream, uint64_t first)
{
    for (size_t i = 0; i < n; i++) {
        const base_philox p = philox(key, stream, first + i);
        for (int k = 0; k < 4; k++)
            words[4 * i + (size_t)k] = p.v[k];
    }
}

/* A block has the four words of a value, but a stream may begin in the middle of one. */
void base_rng_normals(base_rng *r, float *out, size_t n)
{
    enum { VALUES = 64 };
    uint32_t words[4 * (VALUES + 1)];
    for (size_t at = 0; at < n; at += VALUES) {
        const size_t count = BY_MIN(n - at, VALUES);
        const uint32_t *v = words + r->counter % 4;
        fill_words(words, count + 1, r->key, r->stream, r->counter / 4);
        for (size_t i = 0; i < count; i++, v += 4)
            out[at + i] = (float)normal_of(join(v), join(v + 2));
        r->counter += 4 * count;
    }
}

/* Values below 2^64 mod n are redrawn, which leaves every remainder the same number of preimages. */
uint64_t base_rng_below(base_rng *r, uint64_t n)
{
    if (n == 0)
        return 0;
    uint64_t reject = -n % n, x;
    do
        x = base_rng_u64(r);
    while (x < reject);
    return x % n;
}

/* Four values from one Philox block: Box-Muller on two pairs of 32-bit uniforms; the radius uses (0, 1). */
static void normal4(double out[4], base_philox p)
{
    for (int i = 0; i < 4; i += 2) {
        double radius = sqrt(-2 * log(((double)p.v[i] + 0.5) * 0x1p-32));
        double angle = 2 * M_PI * 0x1p-32 * (double)p.v[i + 1];
        out[i] = radius * cos(angle);
        out[i + 1] = radius * sin(angle);
    }
}

/* Block i/4 of the stream gives value i, so that any part of the array can be computed independently. */
void base_rng_fill_normal_from(float *out, size_t first, size_t n, uint64_t seed, uint64_t stream, float mean,
                               float std)
{
    for (size_t i = 0; i < n;) {
        double z[4];
        normal4(z, base_philox_at(seed, stream, (first + i) / 4));
        for (size_t j = (first + i) % 4; j < 4 && i < n; j++)
            out[i++] = (float)(mean + std * z[j]);
    }
}

void base_rng_fill_normal(float *out, size_t n, uint64_t seed, uint64_t stream, float mean, float std)
{
    base_rng_fill_normal_from(out, 0, n, seed, stream, mean, std);
}

/* A bijection of 64 bits in which every input bit affects every output bit (the finaliser of SplitMix64). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The network permutes [0, 4^half), the smallest such range that contains [0, n): at most four times too
 * large. Following its cycle until it returns below n permutes [0, n). Four rounds are enough only for large
 * ranges; with ten, the permutations of a handful of elements are uniform too. An index outside [0, n) is
 * returned unchanged. */
uint64_t base_permute(uint64_t index, uint64_t n, uint64_t seed)
{
    enum { ROUNDS = 10 };
    if (index >= n)
        return index;
    unsigned half = 1;
    while (half < 32 && (n - 1) >> (2 * half))
        half++;
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t key[ROUNDS];
    for (unsigned round = 0; round < ROUNDS; round++)
        key[round] = mix(seed + (round + 1) * 0x9e3779b97f4a7c15u);
    do {
        uint64_t left = index >> half, right = index & mask;
        for (unsigned round = 0; round < ROUNDS; round++) {
            uint64_t next = left ^ (mix(right ^ key[round]) & mask);
            left = right;
            right = next;
        }
        index = left << half | right;
    } while (index >= n);
    return index;
}
