/* SPDX-License-Identifier: Apache-2.0 */
/* cast_runs.h - runs that casts and combines are made of: to f32, and from it. */
#ifndef RS_KERNEL_CAST_RUNS_H
#define RS_KERNEL_CAST_RUNS_H

#include "kernel/cast.h"

/* NULL for types that casts do not know. */
rs_cast_run_fn *rs_cast_find_to_f32(rs_cpu cpu, reshard_dtype dtype);
rs_cast_run_fn *rs_cast_find_from_f32(rs_cpu cpu, reshard_dtype dtype);
/* From f64, rounded to odd: of the two neighbours the odd one, unless the value is exact. */
rs_cast_run_fn *rs_cast_find_f64_to_odd(rs_cpu cpu);

#endif
