/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random.h - numbers for seeded tests: xoshiro256** started by splitmix64. The same seed gives the
 * same numbers on every machine, so that a seed printed by a failing test is enough to repeat it.
 */
#ifndef TESTS_SUPPORT_RANDOM_H
#define TESTS_SUPPORT_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct draw_state {
    uint64_t words[4];
} draw_state;

void draw_seed(draw_state *draw, uint64_t seed);
uint64_t draw_bits(draw_state *draw);
/* 0 .. n-1; n at least 1. */
int64_t draw_below(draw_state *draw, int64_t n);
/* low .. high, both included. */
int64_t draw_between(draw_state *draw, int64_t low, int64_t high);
/* True in `percent` of 100 cases. */
bool draw_chance(draw_state *draw, int percent);
void draw_shuffle(draw_state *draw, int32_t count, int32_t *items);

/* A number that depends on nothing but its arguments, for contents of buffers. */
uint64_t draw_hash(uint64_t a, uint64_t b);

#endif
