/* SPDX-License-Identifier: Apache-2.0 */
/*
 * large.h - moves of more than 2^31 elements and 2^32 bytes, in little memory: what a buffer of
 * gigabytes holds repeats itself, and so do the pages behind it. Every byte is read and written at
 * its true address, and only a few megabytes are behind them. The period is no divisor of 2^32, so
 * that a number that has been cut to 32 bits brings a wrong byte.
 *
 * What it cannot show is an element that has not been written: for that, targets can be given
 * memory of their own.
 */
#ifndef TESTS_SUPPORT_LARGE_H
#define TESTS_SUPPORT_LARGE_H

#include <reshard/exec.h>

typedef enum large_kind {
    LARGE_EXCHANGE, /* rows to columns, 4.9 GB of u8 between 2 ranks; one pair has 4.3 GB of it */
    LARGE_ACROSS,   /* a few elements from both sides of number 2^32, to both of 2 ranks */
    LARGE_BEYOND    /* the same from behind it */
} large_kind;

typedef struct large {
    large_kind kind;
    int wide; /* i64 instead of u8; not for the exchange */
    int messages_only;
    int real_targets; /* memory for all of them: 4.9 GB for the exchange */
} large;

/* Whether RESHARD_TEST_BIG is 1. */
int large_is_wanted_real(void);

/* One of 2 ranks; user is a large. RESHARD_ERR_CHECK, with words, when a byte is wrong. */
reshard_status large_run_rank(void *user, reshard_group *group);

#endif
