/* SPDX-License-Identifier: Apache-2.0 */
/*
 * effort.h - how much work one rank's part is, before it is begun. Layouts with tiny blocks on huge
 * tensors make parts that no machine can list; these are refused at once. Where the estimate says
 * nothing (links that split dims), families count their moves and refuse when there are too many.
 */
#ifndef RS_PLAN_EFFORT_H
#define RS_PLAN_EFFORT_H

#include "plan/plan.h"

/* Errors: RANGE with the number of steps. */
reshard_status rs_effort_check(const rs_template *template, int32_t rank);
/* The same for the parts of all ranks together, by those of some. by_match: the moves of grids are
 * found one by one as well. Errors: RANGE with the number of ranks or steps. */
reshard_status rs_effort_check_all(const reshard_plan *plan, bool by_match);

#endif
