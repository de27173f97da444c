/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random.c - xoshiro256** by Blackman and Vigna, seeded by splitmix64.
 */
#include "tests/support/random.h"

static uint64_t mix(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t rotate(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

void draw_seed(draw_state *draw, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        draw->words[i] = mix(&seed);
}

uint64_t draw_bits(draw_state *draw)
{
    uint64_t *s = draw->words;
    uint64_t result = rotate(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

int64_t draw_below(draw_state *draw, int64_t n)
{
    return (int64_t)((draw_bits(draw) >> 1) % (uint64_t)n);
}

int64_t draw_between(draw_state *draw, int64_t low, int64_t high)
{
    return low + draw_below(draw, high - low + 1);
}

bool draw_chance(draw_state *draw, int percent)
{
    return draw_below(draw, 100) < percent;
}

void draw_shuffle(draw_state *draw, int32_t count, int32_t *items)
{
    for (int32_t i = count - 1; i > 0; i--) {
        int32_t other = (int32_t)draw_below(draw, i + 1);
        int32_t item = items[i];
        items[i] = items[other];
        items[other] = item;
    }
}

uint64_t draw_hash(uint64_t a, uint64_t b)
{
    uint64_t state = a * 0xd1342543de82ef95u + b;
    (void)mix(&state);
    return mix(&state);
}
