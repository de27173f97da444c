/* SPDX-License-Identifier: Apache-2.0 */
/* nest.c - see nest.h. Nests have at most 16 loops, so functions here simply compare all pairs. */
#include "kernel/copy/nest.h"

#include <assert.h>
#include <stdbool.h>

static int64_t magnitude(int64_t step)
{
    return step < 0 ? -step : step;
}

static bool goes_outside(const rs_loop *a, const rs_loop *b)
{
    int64_t target_a = magnitude(a->target_step), target_b = magnitude(b->target_step);
    if (target_a != target_b)
        return target_a > target_b;
    return magnitude(a->source_step) > magnitude(b->source_step);
}

static void sort_loops(rs_nest *nest)
{
    for (int32_t i = 1; i < nest->count; i++) {
        rs_loop loop = nest->loops[i];
        int32_t place = i;
        for (; place > 0 && goes_outside(&loop, &nest->loops[place - 1]); place--)
            nest->loops[place] = nest->loops[place - 1];
        nest->loops[place] = loop;
    }
}

/* Merges one pair of loops that step like a single one; returns false if there is no such pair. */
static bool merge_pair(rs_nest *nest)
{
    for (int32_t outer = 0; outer < nest->count; outer++) {
        for (int32_t inner = 0; inner < nest->count; inner++) {
            rs_loop *a = &nest->loops[outer], *b = &nest->loops[inner];
            if (inner == outer || a->source_step != b->source_step * b->size ||
                a->target_step != b->target_step * b->size)
                continue;
            b->size *= a->size;
            rs_nest_take(nest, outer);
            return true;
        }
    }
    return false;
}

void rs_nest_build(rs_nest *nest, int32_t source_bytes, int32_t target_bytes, int32_t ndim,
                   const int64_t *size, const int64_t *source_strides,
                   const int64_t *target_strides)
{
    assert(ndim >= 0 && ndim <= RS_NEST_MAX);
    nest->element_count = 1;
    nest->count = 0;
    for (int32_t d = 0; d < ndim; d++)
        if (size[d] == 0)
            nest->element_count = 0;
    if (nest->element_count == 0)
        return;
    for (int32_t d = 0; d < ndim; d++) {
        nest->element_count *= size[d];
        if (size[d] == 1)
            continue;
        nest->loops[nest->count++] = (rs_loop){
            .size = size[d],
            .source_step = source_strides[d] * source_bytes,
            .target_step = target_strides[d] * target_bytes,
        };
    }
    while (merge_pair(nest)) {
    }
    sort_loops(nest);
}

int32_t rs_nest_find(const rs_nest *nest, int64_t source_step, int64_t target_step)
{
    for (int32_t i = 0; i < nest->count; i++)
        if (nest->loops[i].source_step == source_step && nest->loops[i].target_step == target_step)
            return i;
    return -1;
}

int32_t rs_nest_least_source(const rs_nest *nest)
{
    int32_t least = nest->count - 1;
    for (int32_t i = least - 1; i >= 0; i--)
        if (magnitude(nest->loops[i].source_step) < magnitude(nest->loops[least].source_step))
            least = i;
    return least;
}

int32_t rs_nest_least_target(const rs_nest *nest)
{
    return nest->count - 1;
}

rs_loop rs_nest_take(rs_nest *nest, int32_t index)
{
    if (index < 0)
        return (rs_loop){.size = 1};
    rs_loop taken = nest->loops[index];
    nest->count--;
    for (int32_t i = index; i < nest->count; i++)
        nest->loops[i] = nest->loops[i + 1];
    return taken;
}

static int64_t find_run(const rs_nest *nest, int64_t run, bool of_source)
{
    /* Each round adds the loop that continues where the run ends. */
    for (int32_t round = 0; round < nest->count; round++) {
        for (int32_t i = 0; i < nest->count; i++) {
            const rs_loop *loop = &nest->loops[i];
            if ((of_source ? loop->source_step : loop->target_step) == run) {
                run *= loop->size;
                break;
            }
        }
    }
    return run;
}

int64_t rs_nest_source_run(const rs_nest *nest, int64_t element_bytes)
{
    return nest->element_count == 0 ? 0 : find_run(nest, element_bytes, true);
}

int64_t rs_nest_target_run(const rs_nest *nest, int64_t element_bytes)
{
    return nest->element_count == 0 ? 0 : find_run(nest, element_bytes, false);
}

void rs_nest_walk(const rs_loop *loops, int32_t count, int64_t outer_size, rs_nest_body *body,
                  const void *what, const unsigned char *source, unsigned char *target)
{
    int64_t index[RS_NEST_MAX] = {0};
    if (outer_size == 0)
        return;
    for (;;) {
        body(what, source, target);
        int32_t d = count - 1;
        for (; d >= 0; d--) {
            int64_t size = d == 0 ? outer_size : loops[d].size;
            if (++index[d] < size)
                break;
            index[d] = 0;
            source -= loops[d].source_step * (size - 1);
            target -= loops[d].target_step * (size - 1);
        }
        if (d < 0)
            return;
        source += loops[d].source_step;
        target += loops[d].target_step;
    }
}
