/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standing.h - what ranks tell each other besides their messages, and the verdict that results.
 *
 * A rank that breaks its group, or hears that it is broken, tells all others once which verdict it
 * holds. So a rank that has heard from all others knows every verdict there is, and all ranks
 * choose the same one: that of the lowest rank.
 */
#ifndef RS_MPI_STANDING_H
#define RS_MPI_STANDING_H

#include <reshard/base.h>

#include <stdbool.h>

typedef enum rs_notice_kind {
    RS_NOTICE_BROKEN, /* the group is broken; the sender starts nothing more */
    /* No message can write into the sender's memory any more, or read other ranks' memory for
     * it. */
    RS_NOTICE_DRAINED,
    RS_NOTICE_ASK,  /* have you left? I am waiting for you */
    RS_NOTICE_LEFT, /* the answer, if so */
    RS_NOTICE_KIND_COUNT
} rs_notice_kind;

/* Why the group is broken: the rank where it began, and its error. */
typedef struct rs_verdict {
    int32_t rank;
    reshard_status status;
    reshard_hint hint;
    int32_t named; /* the rank that the text names: this one, or one that ranks have agreed on */
    char subject[192];
    char text[504];
} rs_verdict;

/* The error as a verdict of this rank. Its text gets "rank r: " in front unless it names a rank
 * already, and loses the middle if it is too long. */
rs_verdict rs_verdict_of(int32_t rank, const reshard_error *error);
/* Makes the verdict this thread's error, and returns its status. */
reshard_status rs_verdict_fail(const rs_verdict *verdict);

typedef struct rs_notice {
    int32_t kind;
    rs_verdict verdict; /* for RS_NOTICE_BROKEN */
} rs_notice;

/* What one rank knows about all others. told[peer] has a bit for each kind of notice heard from
 * it. */
typedef struct rs_standing {
    int32_t rank, size;
    bool broken;
    rs_verdict verdict;
    uint8_t *told;
    int32_t drained_count; /* other ranks that have said so */
} rs_standing;

/* Breaks the group on behalf of this rank. Returns false if it was broken already. */
bool rs_standing_break(rs_standing *standing, const reshard_error *error);
/* Takes note of BROKEN, DRAINED or LEFT. Returns true if that broke the group. */
bool rs_standing_hear(rs_standing *standing, int32_t from, const rs_notice *notice);
bool rs_standing_was_told(const rs_standing *standing, int32_t from, rs_notice_kind kind);
/* Sets the error text, and returns the status for calls on a broken group. */
reshard_status rs_standing_fail(const rs_standing *standing);
/* Sets the error text, and returns the status that the whole run ends with. */
reshard_status rs_standing_result(const rs_standing *standing);

/* Like reshard_error_set, with a format. */
reshard_status rs_mpi_fail(reshard_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
