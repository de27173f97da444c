/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.h - one message of any size between two ranks; see transfer.c. */
#ifndef RS_EXEC_TRANSFER_H
#define RS_EXEC_TRANSFER_H

#include <reshard/group.h>

typedef struct rs_transfer rs_transfer;

/* begin posts all of it; it may be done again when the one before is over. After a failure of begin
 * or test the group is broken, and nobody touches the buffer any more. */
reshard_status rs_transfer_begin(rs_transfer *transfer);
reshard_status rs_transfer_test(rs_transfer *transfer, int *out_done);
void rs_transfer_destroy(rs_transfer *transfer);

#endif
