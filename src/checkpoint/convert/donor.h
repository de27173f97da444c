/* SPDX-License-Identifier: Apache-2.0 */
/*
 * donor.h - the file that a format follows (rs_format.follow): where its metadata, the names of its
 * tensors and their order come from. Only its numbers are replaced.
 */
#ifndef RS_CHECKPOINT_CONVERT_DONOR_H
#define RS_CHECKPOINT_CONVERT_DONOR_H

#include "checkpoint/target/target.h"

typedef struct rs_donor {
    reshard_checkpoint *checkpoint; /* destroy it in any case; NULL: none */
    const char *type;               /* what all tensors become, if possible; NULL: as there */
} rs_donor;

/* Opens the file that the options name, and takes the dtype out of the options: types of such a
 * format are not dtypes. Errors: INVALID, with the hint LIKE if there is no file; those of
 * opening. */
reshard_status rs_donor_open(rs_donor *donor, const rs_target *target,
                             reshard_conversion_options *options);
/* Checks that the donor is of the kind of model that is written: kinds may have the same names for
 * other orders of rows. Errors: MISMATCH. */
reshard_status rs_donor_check(const rs_donor *donor, const rs_target *target);

#endif
