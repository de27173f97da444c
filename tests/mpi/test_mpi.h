/* SPDX-License-Identifier: Apache-2.0 */
/* test_mpi.h - cases for groups of MPI ranks, with the checks of tests/support/ranks.h. */
#ifndef TESTS_MPI_TEST_MPI_H
#define TESTS_MPI_TEST_MPI_H

#include "tests/support/ranks.h"
#include "transport/group.h"

#include <reshard/mpi.h>
#include <reshard/mpi_run.h>

/* One thing to try on a fresh group of all ranks. wanted: what the run has to end with, on all
 * ranks; and `text` is in the words. A body that returns RESHARD_ERR_CHECK is wrong, whatever the
 * run ends with. */
typedef struct test_case {
    const char *name;
    reshard_rank_fn body;
    reshard_status wanted;
    const char *text;
    int32_t ranks_min;
} test_case;

/* test_mpi_failure.c */
extern const test_case failure_cases[];
extern const int failure_case_count;

/* Fills with numbers that depend on the seed and the place, and compares. */
void fill_bytes(unsigned char *bytes, size_t count, uint32_t seed);
int has_bytes(const unsigned char *bytes, size_t count, uint32_t seed);

#endif
