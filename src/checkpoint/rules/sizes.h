/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sizes.h - compares the shapes of a checkpoint's tensors with what config.json says about the
 * model: the size() words of the rules of its family, and the true sizes in pad(). Rank files that
 * were joined by a wrong mesh or by wrong rules have other shapes than the model.
 */
#ifndef RS_CHECKPOINT_RULES_SIZES_H
#define RS_CHECKPOINT_RULES_SIZES_H

#include "checkpoint/rules/config.h"
#include "checkpoint/store/store.h"

typedef struct rs_sizes {
    int64_t compared; /* tensors about which config.json says something */
    int64_t wrong;    /* of these, tensors with another shape */
    char first[512];  /* the first wrong one: its name, and both numbers */
} rs_sizes;

/* own: rules of the user's, whose lines are consulted before the family's; may be NULL. A key that
 * has no value, and a model of no family, leave shapes uncompared. */
reshard_status rs_sizes_compare(const reshard_checkpoint *checkpoint, rs_config *config,
                                const rs_rules *own, rs_sizes *out_sizes);

#endif
