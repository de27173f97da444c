/* SPDX-License-Identifier: Apache-2.0 */
/* cast_runs.h - conversions of runs to f32 and from f32, which casts and combines are made of. */
#ifndef RS_KERNEL_VALUES_CAST_RUNS_H
#define RS_KERNEL_VALUES_CAST_RUNS_H

#include "kernel/values/cast.h"

/* NULL for types that casts do not support. */
rs_cast_run_fn *rs_cast_find_to_f32(rs_cpu cpu, reshard_dtype dtype);
rs_cast_run_fn *rs_cast_find_from_f32(rs_cpu cpu, reshard_dtype dtype);
/* From f64 to f32, rounded to odd: if the value is not exact, the odd one of its two neighbours. */
rs_cast_run_fn *rs_cast_find_f64_to_odd(rs_cpu cpu);

#endif
