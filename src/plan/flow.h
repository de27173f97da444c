/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flow.h - shares out loads. Each group has an amount that its members carry together, and a member
 * may be in many groups. The shares keep the load of the busiest member as low as possible.
 */
#ifndef RS_PLAN_FLOW_H
#define RS_PLAN_FLOW_H

#include <reshard/base.h>

typedef struct rs_flow_problem {
    int32_t member_count;
    int32_t group_count;
    const int64_t *amounts; /* of each group */
    const int64_t *first;   /* group g has the members list[first[g]] .. list[first[g + 1] - 1] */
    const int32_t *list;
} rs_flow_problem;

/* out_shares has as many elements as list. All shares are whole numbers. */
reshard_status rs_flow_share(reshard_context *context, const rs_flow_problem *problem,
                             int64_t *out_shares);

#endif
