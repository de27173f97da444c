/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standing.h - what ranks tell each other beside their messages, and the verdict that comes of it.
 *
 * A rank whose group breaks, by its own doing or by hearing of it, tells all others once which
 * verdict it holds. So once a rank has heard from all it has heard every verdict there is, and the
 * one of the lowest rank is the same for everybody.
 */
#ifndef RS_MPI_STANDING_H
#define RS_MPI_STANDING_H

#include <reshard/base.h>

#include <stdbool.h>

typedef enum rs_notice_kind {
    RS_NOTICE_BROKEN,  /* the group is broken; starts nothing any more */
    RS_NOTICE_DRAINED, /* no message can write into its memory any more, nor read others' for it */
    RS_NOTICE_ASK,     /* have you left? I am waiting for you */
    RS_NOTICE_LEFT,    /* the answer, if so */
    RS_NOTICE_KIND_COUNT
} rs_notice_kind;

/* Why the group is broken: the rank at which it began, and its status and words. */
typedef struct rs_verdict {
    int32_t rank;
    reshard_status status;
    char text[504];
} rs_verdict;

typedef struct rs_notice {
    int32_t kind;
    rs_verdict verdict; /* of RS_NOTICE_BROKEN */
} rs_notice;

/* What one rank knows of all. `told` is [peer], bits by kind of what was heard from it. */
typedef struct rs_standing {
    int32_t rank, size;
    bool broken;
    rs_verdict verdict;
    uint8_t *told;
    int32_t drained_count; /* others */
} rs_standing;

/* The group breaks here: `why` becomes "rank r: why". False when it was broken before. */
bool rs_standing_break(rs_standing *standing, reshard_status status, const char *why);
/* Takes in BROKEN, DRAINED or LEFT. True when this broke the group. */
bool rs_standing_hear(rs_standing *standing, int32_t from, const rs_notice *notice);
bool rs_standing_was_told(const rs_standing *standing, int32_t from, rs_notice_kind kind);
/* Sets the error text, and gives the status for calls on a broken group. */
reshard_status rs_standing_fail(const rs_standing *standing);
/* Sets the error text, and gives the status that the whole run ends with. */
reshard_status rs_standing_result(const rs_standing *standing);

/* reshard_error_set with a format. */
reshard_status rs_mpi_fail(reshard_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
