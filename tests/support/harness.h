/* SPDX-License-Identifier: Apache-2.0 */
/*
 * harness.h - runs a check on many random cases, and reports a failing one as something to paste.
 *
 * RESHARD_TEST_SCALE (1.0) multiplies the number of cases, RESHARD_TEST_SEED replaces the fixed
 * seed. Case i has the seed `seed + i`, so that a reported seed with a scale of 0 repeats one case.
 */
#ifndef TESTS_SUPPORT_HARNESS_H
#define TESTS_SUPPORT_HARNESS_H

#include "tests/support/generate.h"
#include "tests/support/oracle.h"
#include "tests/support/random.h"
#include "tests/support/words.h"

/* One tensor and the specs it is split by: one, or a source and a target. */
typedef struct harness_case {
    uint64_t seed; /* for what else the check draws */
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    int32_t spec_count;
    oracle_spec specs[2];
} harness_case;

typedef void (*harness_generate_fn)(draw_state *draw, harness_case *made);
/* False, with words, when the case shows something wrong. */
typedef bool (*harness_check_fn)(const harness_case *given, words *said);

double harness_scale(void);
uint64_t harness_seed(void);
/* count * scale, at least 1. */
int64_t harness_count(int64_t count);

/* Fails the running cmocka test at the first case that the check refuses, after shrinking it. */
void harness_run(const char *name, int64_t count, harness_generate_fn generate,
                 harness_check_fn check);
/* Fails the running test with the case's text when the check refuses it; does not shrink. */
void harness_check(const char *name, const harness_case *given, harness_check_fn check);

/* "shape 3x4, spec ...", to paste. To be freed. */
char *harness_case_text(const harness_case *given);

#endif
