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

#endif
