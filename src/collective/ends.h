/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ends.h - the layouts at the two ends of a collective, for buffers and for tensors alike. Only dim
 * 0 is ever cut; buffers have no other.
 */
#ifndef RS_COLLECTIVE_ENDS_H
#define RS_COLLECTIVE_ENDS_H

#include <reshard/layout.h>

#include "base/export.h"

#include <stdbool.h>

/* How the values lie on the ranks at one end. */
typedef enum rs_form {
    RS_FORM_COPIES,        /* R */
    RS_FORM_CONTRIBUTIONS, /* P */
    RS_FORM_PARTS,         /* S(0), or S(0=..) by counts */
    RS_FORM_AT_ROOT,       /* 1[root]: R */
    RS_FORM_SENT,          /* boxes: what each rank sends to every rank */
    RS_FORM_RECEIVED       /* boxes: what each rank receives from every rank */
} rs_form;

typedef struct rs_ends {
    reshard_context *context;
    int32_t rank_count, root;
    reshard_reduction reduction;
    int32_t ndim;
    const int64_t *shape; /* of the whole */
    /* PARTS: along dim 0, by rank. NULL: chunks. */
    const int64_t *counts;
    /* SENT, RECEIVED: counts[sender * rank_count + receiver]. Blocks lie in the whole in this
     * order. A rank's blocks are joined in one shard, or each is a shard. */
    const int64_t *matrix;
    bool joined;
} rs_ends;

/* Makes the layout of one end. Equal counts give the same layout as none. Errors: those of
 * layouts. */
RS_EXPORT reshard_status rs_ends_make(const rs_ends *ends, rs_form form,
                                      reshard_layout **out_layout);

#endif
