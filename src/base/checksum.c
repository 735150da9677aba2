/* checksum.c - a fast 64-bit checksum that detects damage in files. Four independent lanes of multiply and
 * rotate keep the processor's multipliers busy. It is no defence against forgery. */
#include "base/base.h"

static const uint64_t FACTOR[3] = {UINT64_C(0x9e3779b97f4a7c15), UINT64_C(0xc2b2ae3d27d4eb4f),
                                   UINT64_C(0xd6e8feb86659fd93)};

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static uint64_t load(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Bijective in each argument while the other is fixed: changing one word always changes the lane. */
static uint64_t mix(uint64_t lane, uint64_t word)
{
    return rotate(lane ^ word * FACTOR[0], 29) * FACTOR[1];
}

uint64_t base_checksum(const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    uint64_t lanes[4] = {FACTOR[0], FACTOR[1], FACTOR[2], n}, h = 0;
    size_t rest = n;
    for (; rest >= 32; rest -= 32, at += 32)
        for (int i = 0; i < 4; i++)
            lanes[i] = mix(lanes[i], load(at + 8 * i));
    for (int i = 0; i < 4; i++)
        h = mix(h, lanes[i]);
    for (; rest >= 8; rest -= 8, at += 8)
        h = mix(h, load(at));
    for (; rest > 0; rest--, at++)
        h = mix(h, *at);
    h = (h ^ h >> 32) * FACTOR[2];
    return h ^ h >> 29;
}
