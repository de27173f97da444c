/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective_jobs.h - collectives as data: what one is called with on every rank, what it should
 * give according to obvious loops, and ways of running lists of them. Ranks record what they saw;
 * the main thread checks. Buffers have exactly the size they need, so that a sanitizer sees every
 * element too much.
 */
#ifndef TESTS_EXEC_COLLECTIVE_JOBS_H
#define TESTS_EXEC_COLLECTIVE_JOBS_H

#include "tests/support/ways.h"

#include <reshard/reshard.h>

enum { RANKS_MAX = 5, TEXT_MAX = 160 };

#define OPERATION_LIST(X) \
    X(ALL_GATHER)         \
    X(REDUCE_SCATTER)     \
    X(ALL_REDUCE)         \
    X(BROADCAST)          \
    X(SCATTER)            \
    X(GATHER)             \
    X(REDUCE)             \
    X(ALL_TO_ALL_SINGLE)  \
    X(ALL_TO_ALL)

typedef enum operation {
#define OPERATION_ENUM(name) name,
    OPERATION_LIST(OPERATION_ENUM) OPERATION_COUNT
#undef OPERATION_ENUM
} operation;

typedef struct job {
    operation what;
    reshard_dtype dtype;
    reshard_reduction reduction;
    int32_t root, size;
    int64_t count; /* of each, when counts are not given */
    bool has_counts;
    int64_t counts[RANKS_MAX];
    int64_t matrix[RANKS_MAX][RANKS_MAX]; /* by sender and receiver */
    unsigned in_place; /* bit r: rank r has its source in place, where the operation knows that */
    void *sources[RANKS_MAX], *targets[RANKS_MAX];
    void *owned[RANKS_MAX][2]; /* what is behind them */
    void *source_lists[RANKS_MAX][RANKS_MAX], *target_lists[RANKS_MAX][RANKS_MAX];
    reshard_status status[RANKS_MAX];
    char text[RANKS_MAX][TEXT_MAX];
} job;

extern const char *const operation_names[];

typedef struct jobs {
    int64_t count, capacity;
    job *items;
    int32_t member_count; /* 0: no sub-group */
    int32_t members[RANKS_MAX];
    int64_t offered;     /* to add_job */
    int64_t step, phase; /* which of them are taken: simulations are slow */
    int64_t together;    /* so many are under way at once, and run twice; 0: blocking calls */
} jobs;

bool reduces(operation what);
bool has_root(operation what);
bool has_parts(operation what);
/* A type that values are put into and read from; others are moved as bytes. */
bool has_values(reshard_dtype dtype);

/* The call for this rank; out_work NULL: blocking. */
reshard_status call_job(reshard_context *context, job *j, reshard_group *group,
                        reshard_work **out_work);

/* Buffers and values of all ranks. */
void prepare_job(job *j);
void forget_job(job *j);
/* Every element of every target, with words in fail_msg. */
void check_job(const job *j);

/* Copies the job and prepares it. */
void add_job(jobs *all, const job *made);
/* Runs them on a group of `world` ranks, or its sub-group; checks and forgets them. */
void run_jobs(const way *w, int32_t world, jobs *all);

#endif
