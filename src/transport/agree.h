/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.h - checks whether all ranks hold the same, with one answer for all of them. Ranks form a
 * binomial tree: the busiest one takes part in 2 log2(ranks) messages of 2 (ranks - 1) in all, and
 * in as many again only if ranks differ.
 */
#ifndef RS_TRANSPORT_AGREE_H
#define RS_TRANSPORT_AGREE_H

#include "base/export.h"
#include "transport/group.h"

/* What must be equal on all ranks. */
typedef struct rs_claim {
    uint64_t digest[2];
    /* Names the claim at the beginning of the error text, as in "exec: the plan". */
    const char *what;
    /* Describes what this rank claims, or NULL. If descriptions differ, the error text has both. */
    const char *words;
} rs_claim;

enum { RS_AGREE_NUMBERS = 3 };

/*
 * Collective; all ranks return the same status and text. `status` is the result of what this rank
 * did before, with its text on this thread. The outcome is the first of these that applies:
 *  - the status of the lowest rank that failed, with its text after "rank r: ";
 *  - MISMATCH if claims differ, naming the odd one out: the lowest rank whose claim is not that of
 *    the majority. Of two ranks it is the second. If no claim has a majority, the rank that is
 *    named differs from the one it is compared with, but others may differ as well;
 *  - RESHARD_OK. Each of the RS_AGREE_NUMBERS numbers is then the largest that any rank passed.
 *
 * claim NULL: this rank accepts any claim. numbers NULL: this rank passes zeros. Ranks need not
 * make the same choice: one that has failed can join the agreement of the others by
 * reshard_group_agree.
 */
RS_EXPORT reshard_status rs_group_agree_on(reshard_group *group, reshard_status status,
                                           const rs_claim *claim, uint64_t *numbers);

#endif
