/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.h - do all ranks hold the same? One answer for all of them, along a binomial tree: 2
 * log2(ranks) messages for the busiest rank, 2 (ranks - 1) in all, whatever is agreed upon.
 */
#ifndef RS_TRANSPORT_AGREE_H
#define RS_TRANSPORT_AGREE_H

#include "base/export.h"
#include "transport/group.h"

/* What must be equal on all ranks. */
typedef struct rs_claim {
    uint64_t digest[2];
    /* Names it at the start of the error text, as in "exec: the plan". */
    const char *what;
    /* Describes this rank's own, or NULL. Ranks whose descriptions differ are told both. */
    const char *words;
} rs_claim;

enum { RS_AGREE_NUMBERS = 3 };

/*
 * Collective; all ranks return the same status and text. `status` is that of what went before,
 * with its text on this thread. The result is, in this order:
 *  - the status of the lowest rank that failed, with its text behind "rank r: ";
 *  - MISMATCH when claims differ, naming the odd one out: the lowest rank that does not claim what
 *    the majority does. Of two ranks it is the second. Where no claim has a majority, the rank that
 *    is named differs from the one it is compared with, but others may differ as well;
 *  - RESHARD_OK. Then each of the RS_AGREE_NUMBERS is the largest that any rank passed.
 *
 * claim NULL: this rank goes along with any claim. numbers NULL: passes zeros. Ranks need not make
 * the same choice: one that has failed can join the agreement of the others by
 * reshard_group_agree.
 */
RS_EXPORT reshard_status rs_group_agree_on(reshard_group *group, reshard_status status,
                                           const rs_claim *claim, uint64_t *numbers);

#endif
