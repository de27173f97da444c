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

/* What config.json says about one dimension of a tensor. */
typedef struct rs_size_told {
    bool is_known;
    bool is_least; /* padding may follow */
    int64_t size;
} rs_size_told;

/* What the rules and config.json say about the full shape of a tensor, of which only the number of
 * dimensions is known. A tensor without a rule has no sizes. */
reshard_status rs_sizes_tell(const rs_rules *rules, reshard_mesh *mesh, const rs_rules_keys *keys,
                             rs_slice name, int32_t ndim, rs_size_told out_told[RESHARD_NDIM_MAX]);

/* own: rules of the user's, whose lines are consulted before the family's; may be NULL. A key that
 * has no value, and a model of no family, leave shapes uncompared. */
reshard_status rs_sizes_compare(const reshard_checkpoint *checkpoint, rs_config *config,
                                const rs_rules *own, rs_sizes *out_sizes);

#endif
