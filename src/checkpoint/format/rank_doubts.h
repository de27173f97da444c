/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_doubts.h - doubts about the mesh and the rules by which plain rank files were joined. The
 * files do not say how they were cut, and a wrong answer makes a model of the wrong shape, or one
 * that holds what was replicated several times.
 */
#ifndef RS_CHECKPOINT_FORMAT_RANK_DOUBTS_H
#define RS_CHECKPOINT_FORMAT_RANK_DOUBTS_H

#include "checkpoint/rules/rulebook.h"
#include "checkpoint/store/store.h"

/* Over all tensors so far. Initialise with zeros. */
typedef struct rs_rank_doubts {
    int64_t same_count; /* tensors that are joined, although all ranks hold the same */
    rs_slice first_same;
} rs_rank_doubts;

/* Looks at a tensor that was joined from these arrays, one of each rank that holds it. Reads a few
 * kilobytes, and as a rule only of two ranks. */
reshard_status rs_rank_doubts_look(rs_rank_doubts *doubts, const reshard_checkpoint *checkpoint,
                                   const rs_stored_tensor *tensor, const rs_occurrence *arrays,
                                   int64_t count);
/* After all tensors: compares shapes with config.json, and adds notes. Errors: INVALID if they do
 * not fit. */
reshard_status rs_rank_doubts_settle(const rs_rank_doubts *doubts, reshard_checkpoint *checkpoint,
                                     const char *from, rs_rulebook *book);

#endif
