/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flow.h - sharing out loads: each group has an amount to be carried by its members, and a member
 * may be in many groups. Finds shares such that the busiest member carries as little as possible.
 */
#ifndef RS_PLAN_FLOW_H
#define RS_PLAN_FLOW_H

#include <reshard/base.h>

typedef struct rs_flow_problem {
    int32_t member_count;
    int32_t group_count;
    const int64_t *amounts; /* of each group */
    const int64_t *first;   /* group g has the members list[first[g] .. first[g+1]-1] */
    const int32_t *list;
} rs_flow_problem;

/* out_shares: as long as list. All numbers are whole. */
reshard_status rs_flow_share(reshard_context *context, const rs_flow_problem *problem,
                             int64_t *out_shares);

#endif
