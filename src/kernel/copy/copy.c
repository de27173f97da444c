/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c - decides which loops a copy has, and which kernel runs the innermost two of them.
 *
 * A copy is a nest of loops around a plane of rows x columns units, where a unit is contiguous on
 * both sides. The choice, in order:
 *  1. A long run on both sides becomes a row of the plane (kernel "rows").
 *  2. If different loops step through neighbours in the source and in the target, and these
 *     neighbours share cache lines, the plane is made of these two loops and copied in tiles
 *     ("transpose"). If such planes are tiny and many, the loop over them becomes the inner one
 *     instead.
 *  3. Otherwise the columns are the loop in which the target is dense ("shuffle", "gather",
 *     "units") or, if the target is dense in none, the loop in which the source is.
 */
#include "kernel/copy/copy.h"

#include "base/checked.h"
#include "base/shape.h"
#include "kernel/copy/choice.h"
#include "kernel/copy/kernels.h"

#include <assert.h>

#if RS_X86
#include <immintrin.h>
#endif

rs_cpu rs_cpu_detect(void)
{
#if RS_X86
    if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
        return RS_CPU_AVX512;
    /* clang 14 cannot test for F16C. Processors with AVX2 and FMA have it. */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return RS_CPU_AVX2;
#endif
    return RS_CPU_PORTABLE;
}

void rs_copy_fence(void)
{
#if RS_X86
    _mm_sfence();
#endif
}

static bool shares_lines(int64_t step)
{
    return step > -RS_LINE_BYTES && step < RS_LINE_BYTES;
}

static void set_plane(rs_plane *plane, rs_loop rows, rs_loop columns, int64_t unit)
{
    plane->rows = rows.size;
    plane->source_row = rows.source_step;
    plane->target_row = rows.target_step;
    plane->columns = columns.size;
    plane->source_column = columns.source_step;
    plane->target_column = columns.target_step;
    plane->unit = unit;
}

/* A plane with this few units is not worth a call. */
#define SMALL_PLANE 16

static int32_t find_longest(const rs_nest *nest)
{
    int32_t longest = 0;
    for (int32_t i = 1; i < nest->count; i++)
        if (nest->loops[i].size > nest->loops[longest].size)
            longest = i;
    return longest;
}

/* Many small transposes: make the loop over them the inner one. */
static bool choose_small(rs_copy *copy, int64_t unit)
{
    rs_nest *nest = &copy->nest;
    int32_t by_source = rs_nest_least_source(nest), by_target = rs_nest_least_target(nest);
    int32_t longest = find_longest(nest);
    if (by_source == by_target || longest == by_source || longest == by_target)
        return false;
    int64_t units = nest->loops[by_source].size * nest->loops[by_target].size;
    if (units > SMALL_PLANE || nest->loops[longest].size < units)
        return false;
    rs_loop columns = rs_nest_take(nest, longest);
    rs_loop rows = rs_nest_take(nest, rs_nest_least_target(nest));
    set_plane(&copy->plane, rows, columns, unit);
    copy->kernel = rs_kernel_units(&copy->plane);
    return true;
}

/* A transpose: neighbours in the source and neighbours in the target come from different loops. */
static bool choose_transpose(rs_copy *copy, int64_t unit)
{
    rs_nest *nest = &copy->nest;
    int32_t by_source = rs_nest_least_source(nest), by_target = rs_nest_least_target(nest);
    if (by_source == by_target || !shares_lines(nest->loops[by_source].source_step) ||
        !shares_lines(nest->loops[by_target].target_step))
        return false;
    /* by_target is the last loop, so taking it first leaves the other index valid. */
    rs_loop rows = rs_nest_take(nest, by_target), columns = rs_nest_take(nest, by_source);
    set_plane(&copy->plane, rows, columns, unit);
    copy->plane.tile = rs_kernel_tile(&copy->plane);
    copy->kernel = &rs_kernel_tiled;
    return true;
}

static void choose_units(rs_copy *copy, int64_t unit)
{
    rs_nest *nest = &copy->nest;
    int32_t by_source = rs_nest_least_source(nest), by_target = rs_nest_least_target(nest);
    bool target_is_sparse = !shares_lines(nest->loops[by_target].target_step);
    bool source_is_dense = shares_lines(nest->loops[by_source].source_step);
    rs_loop columns =
        rs_nest_take(nest, target_is_sparse && source_is_dense ? by_source : by_target);
    rs_loop rows = rs_nest_take(nest, rs_nest_least_target(nest));
    set_plane(&copy->plane, rows, columns, unit);
    copy->kernel = rs_kernel_gather(&copy->plane);
    if (copy->kernel == NULL)
        copy->kernel = rs_kernel_units(&copy->plane);
}

static void choose(rs_copy *copy, int32_t element_bytes)
{
    rs_nest *nest = &copy->nest;
    rs_loop run = rs_nest_take(nest, rs_nest_find(nest, element_bytes, element_bytes));
    int64_t run_bytes = run.size * element_bytes;
    if (run_bytes >= RS_RUN_BYTES_MIN || nest->count == 0) {
        set_plane(&copy->plane, rs_nest_take(nest, rs_nest_least_target(nest)), run, element_bytes);
        copy->kernel = &rs_kernel_rows;
    } else if (!choose_small(copy, run_bytes) && !choose_transpose(copy, run_bytes)) {
        choose_units(copy, run_bytes);
    }
}

void rs_copy_prepare_tuned(rs_copy *copy, const rs_copy_tuning *tuning, int32_t element_bytes,
                           int32_t ndim, const int64_t *size, const int64_t *source_strides,
                           const int64_t *target_strides)
{
    assert(element_bytes >= 1);
    memset(copy, 0, sizeof *copy);
    rs_nest_build(&copy->nest, element_bytes, element_bytes, ndim, size, source_strides,
                  target_strides);
    if (copy->nest.element_count == 0)
        return;
    copy->bytes = (size_t)copy->nest.element_count * (size_t)element_bytes;
    copy->source_run = rs_nest_source_run(&copy->nest, element_bytes);
    copy->target_run = rs_nest_target_run(&copy->nest, element_bytes);
    copy->plane.cpu = tuning->cpu;
    copy->plane.streams = RS_X86 && copy->bytes >= tuning->stream_bytes;
    choose(copy, element_bytes);
    copy->measures = tuning->measures && copy->plane.streams && copy->kernel == &rs_kernel_rows;
    if (copy->nest.count > 0)
        copy->outer = RS_OUTER_LOOP;
    else
        copy->outer = copy->plane.rows > 1 ? RS_OUTER_ROWS : RS_OUTER_COLUMNS;
}

void rs_copy_prepare(rs_copy *copy, int32_t element_bytes, int32_t ndim, const int64_t *size,
                     const int64_t *source_strides, const int64_t *target_strides)
{
    rs_copy_tuning tuning = {
        .cpu = rs_cpu_detect(), .stream_bytes = RS_STREAM_BYTES, .measures = true};
    rs_copy_prepare_tuned(copy, &tuning, element_bytes, ndim, size, source_strides, target_strides);
}

void rs_pack_prepare(rs_copy *copy, int32_t element_bytes, int32_t ndim, const int64_t *size,
                     const int64_t *source_strides)
{
    int64_t dense[RS_NEST_MAX];
    assert(ndim <= RS_NEST_MAX);
    rs_dense_strides(ndim, size, dense);
    rs_copy_prepare(copy, element_bytes, ndim, size, source_strides, dense);
}

void rs_unpack_prepare(rs_copy *copy, int32_t element_bytes, int32_t ndim, const int64_t *size,
                       const int64_t *target_strides)
{
    int64_t dense[RS_NEST_MAX];
    assert(ndim <= RS_NEST_MAX);
    rs_dense_strides(ndim, size, dense);
    rs_copy_prepare(copy, element_bytes, ndim, size, dense, target_strides);
}

int64_t rs_copy_outer_count(const rs_copy *copy)
{
    if (copy->kernel == NULL)
        return 0;
    if (copy->outer == RS_OUTER_LOOP)
        return copy->nest.loops[0].size;
    return copy->outer == RS_OUTER_ROWS ? copy->plane.rows : copy->plane.columns;
}

typedef struct plane_call {
    const rs_plane *plane;
    void (*run)(const rs_plane *plane, const unsigned char *source, unsigned char *target);
} plane_call;

static void run_plane(const void *what, const unsigned char *source, unsigned char *target)
{
    const plane_call *call = what;
    call->run(call->plane, source, target);
}

void rs_copy_run_part(const rs_copy *copy, const void *source, void *target, int64_t first,
                      int64_t count)
{
    assert(first >= 0 && count >= 0 && first + count <= rs_copy_outer_count(copy));
    if (count == 0)
        return;
    const unsigned char *from = source;
    unsigned char *to = target;
    if (copy->outer == RS_OUTER_LOOP) {
        const rs_loop *loops = copy->nest.loops;
        plane_call call = {&copy->plane, copy->kernel->run};
        rs_nest_walk(loops, copy->nest.count, count, run_plane, &call,
                     from + first * loops[0].source_step, to + first * loops[0].target_step);
        return;
    }
    rs_plane plane = copy->plane;
    if (copy->outer == RS_OUTER_ROWS) {
        plane.rows = count;
        from += first * plane.source_row;
        to += first * plane.target_row;
    } else {
        plane.columns = count;
        from += first * plane.source_column;
        to += first * plane.target_column;
    }
    copy->kernel->run(&plane, from, to);
}

static void run_measured(const rs_copy *copy, const void *source, void *target)
{
    rs_choice choice = rs_choice_begin_copy(copy->bytes);
    rs_copy chosen = *copy;
    chosen.plane.streams = choice.second;
    rs_copy_run_part(&chosen, source, target, 0, rs_copy_outer_count(copy));
    rs_copy_fence();
    rs_choice_end_copy(&choice, copy->bytes);
}

void rs_copy_run(const rs_copy *copy, const void *source, void *target)
{
    if (copy->measures) {
        run_measured(copy, source, target);
        return;
    }
    rs_copy_run_part(copy, source, target, 0, rs_copy_outer_count(copy));
    if (copy->plane.streams)
        rs_copy_fence();
}

/* How many iterations of a copy make one turn: a multiple of the cache line size if the loop is
 * long enough. */
static int64_t find_share(int64_t outer_count, int64_t turn_count)
{
    int64_t share = rs_divide_up(outer_count, turn_count);
    return share < RS_LINE_BYTES ? share : rs_divide_up(share, RS_LINE_BYTES) * RS_LINE_BYTES;
}

/* Runs copies that interleave their units in one memory at once, and the others after them. Returns
 * false, having done nothing, if there are none of this kind. */
static bool run_strands(int32_t count, const rs_copy *const *copies, const void *const *sources,
                        void *const *targets)
{
    rs_strands strands;
    bool woven = rs_strands_find(&strands, false, count, copies, sources, targets);
    if (woven ? !rs_weave(&strands)
              : !rs_strands_find(&strands, true, count, copies, sources, targets) ||
                    !rs_unweave(&strands))
        return false;
    for (int32_t i = 0; i < count; i++) {
        bool done = false;
        for (int32_t k = 0; k < strands.count; k++)
            done = done || strands.indices[k] == i;
        if (!done)
            rs_copy_run_part(copies[i], sources[i], targets[i], 0, rs_copy_outer_count(copies[i]));
    }
    rs_copy_fence();
    return true;
}

void rs_copy_run_together(int32_t count, const rs_copy *const *copies, const void *const *sources,
                          void *const *targets)
{
    if (run_strands(count, copies, sources, targets))
        return;
    size_t bytes = 0;
    for (int32_t i = 0; i < count; i++)
        bytes += copies[i]->bytes;
    size_t turn_bytes = RS_TOGETHER_BYTES;
    if (turn_bytes < (size_t)count * RS_RUN_BYTES_MIN)
        turn_bytes = (size_t)count * RS_RUN_BYTES_MIN;
    int64_t turn_count = (int64_t)(bytes / turn_bytes) + 1;
    bool working = bytes > 0;
    for (int64_t turn = 0; working; turn++) {
        working = false;
        for (int32_t i = 0; i < count; i++) {
            int64_t outer_count = rs_copy_outer_count(copies[i]);
            int64_t share = find_share(outer_count, turn_count);
            int64_t left = share == 0 ? 0 : outer_count - turn * share;
            if (left <= 0)
                continue;
            rs_copy_run_part(copies[i], sources[i], targets[i], turn * share, rs_min(left, share));
            working = working || left > share;
        }
    }
    rs_copy_fence();
}

size_t rs_copy_bytes(const rs_copy *copy)
{
    return copy->bytes;
}

int64_t rs_copy_source_run(const rs_copy *copy)
{
    return copy->source_run;
}

int64_t rs_copy_target_run(const rs_copy *copy)
{
    return copy->target_run;
}

const char *rs_copy_kernel_name(const rs_copy *copy)
{
    if (copy->kernel == NULL)
        return "none";
    return copy->plane.tile != NULL ? copy->plane.tile->name : copy->kernel->name;
}
