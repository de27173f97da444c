/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mpi.h - checks under mpirun. A check that fails says so, with its rank, and ends the body
 * with an error, which ends the run on all ranks.
 */
#ifndef TESTS_MPI_TEST_MPI_H
#define TESTS_MPI_TEST_MPI_H

#include "transport/group.h"

#include <reshard/mpi.h>
#include <reshard/mpi_run.h>

/* These return from the calling function, as a test's checks do. */
#define CHECK(condition)                                                  \
    do {                                                                  \
        if (!(condition))                                                 \
            return say_wrong(__FILE__, __LINE__, #condition, RESHARD_OK); \
    } while (0)
#define CHECK_OK(call)                                                 \
    do {                                                               \
        reshard_status check_status = (call);                          \
        if (check_status != RESHARD_OK)                                \
            return say_wrong(__FILE__, __LINE__, #call, check_status); \
    } while (0)

/* Says what is wrong on standard error, and gives RESHARD_ERR_CHECK with the same words. */
reshard_status say_wrong(const char *file, int line, const char *what, reshard_status status);

/* One thing to try on a fresh group of all ranks. wanted: what the run has to end with, on all
 * ranks; and `text` is in the words. */
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
