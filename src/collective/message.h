/* SPDX-License-Identifier: Apache-2.0 */
/* message.h - one message of any size between two ranks; see message.c. */
#ifndef RS_COLLECTIVE_MESSAGE_H
#define RS_COLLECTIVE_MESSAGE_H

#include <reshard/group.h>

typedef struct rs_message rs_message;

/* begin posts all of it; it may be done again when the one before is over. After a failure of begin
 * or test the group is broken, and nobody touches the buffer any more. */
reshard_status rs_message_begin(rs_message *transfer);
reshard_status rs_message_test(rs_message *transfer, int *out_done);
void rs_message_destroy(rs_message *transfer);

#endif
