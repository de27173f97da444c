/* SPDX-License-Identifier: Apache-2.0 */
/* delivery.h - a send or a receive of any size between two ranks; see delivery.c. */
#ifndef RS_COLLECTIVE_DELIVERY_H
#define RS_COLLECTIVE_DELIVERY_H

#include <reshard/group.h>

typedef struct rs_delivery rs_delivery;

/* rs_delivery_begin posts all messages; it may be called again when the last delivery is over.
 * After a failure of begin or test, the group is broken, and nobody touches the buffer any more. */
reshard_status rs_delivery_begin(rs_delivery *delivery);
reshard_status rs_delivery_test(rs_delivery *delivery, int *out_done);
void rs_delivery_destroy(rs_delivery *delivery);

#endif
