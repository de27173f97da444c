/* SPDX-License-Identifier: Apache-2.0 */
/*
 * effort.h - estimates how much work a rank's part is, before it is begun. Layouts with tiny blocks
 * on huge tensors have parts that no machine can list, and are refused at once. Links that split
 * dims are estimated poorly; for them, match.c counts its steps and stops when there are too
 * many.
 */
#ifndef RS_PLAN_EFFORT_H
#define RS_PLAN_EFFORT_H

#include "plan/plan.h"

/* Errors: RANGE, with the number of steps. */
reshard_status rs_effort_check(const rs_template *template, int32_t rank);
/* The same for the parts of all ranks together, estimated from a sample of ranks. by_match: counts
 * the moves of grids one by one as well, as balance.c finds them. Errors: RANGE, with the number of
 * ranks or steps. */
reshard_status rs_effort_check_all(const reshard_plan *plan, bool by_match);

#endif
