/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/segment.h"

#include "base/checked.h"
#include "base/dtype.h"
#include "base/shape.h"
#include "kernel/copy/copy.h"
#include "kernel/values/cast.h"
#include "layout/flat.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

/* ---- whole elements -------------------------------------------------------------------------- */

/* Copies a box of the move to dense memory (packing) or back. */
static void copy_box(const rs_segment_move *m, bool packing, int32_t ndim, const int64_t *size,
                     const int64_t *strides, char *memory, char *dense)
{
    int64_t steps[RS_NEST_MAX];
    rs_dense_strides(ndim, size, steps);
    const char *source = packing ? memory : dense;
    char *target = packing ? dense : memory;
    const int64_t *from = packing ? strides : steps, *to = packing ? steps : strides;
    if (m->dtype == m->wire) {
        rs_copy copy;
        rs_copy_prepare(&copy, (int32_t)rs_element_bytes(m->wire), ndim, size, from, to);
        rs_copy_run(&copy, source, target);
    } else {
        rs_cast cast;
        rs_cast_prepare(&cast, packing ? m->dtype : m->wire, packing ? m->wire : m->dtype, ndim,
                        size, from, to);
        rs_cast_run(&cast, source, target);
    }
}

/* Copies elements from .. to - 1 in row-major order: as a few boxes over the dims larger than 1 or,
 * if there are too many such dims, one by one. */
static void copy_elements(const rs_segment_move *m, bool packing, int64_t from, int64_t to,
                          char *dense)
{
    rs_flat_block block = {.ndim = 0};
    int64_t strides[RESHARD_FACTORS_MAX];
    int32_t real = 0;
    for (int32_t d = 0; d < m->move->ndim; d++) {
        if (m->move->size[d] == 1)
            continue;
        if (real < RESHARD_NDIM_MAX)
            block.shape[real] = m->move->size[d];
        strides[real++] = m->strides[d];
    }
    int32_t wire = (int32_t)rs_element_bytes(m->wire), own = (int32_t)rs_element_bytes(m->dtype);
    if (real > RESHARD_NDIM_MAX) {
        for (int64_t e = from; e < to; e++, dense += wire) {
            int64_t rest = e, at = 0, one = 1;
            for (int32_t d = m->move->ndim - 1; d >= 0; d--) {
                at += rest % m->move->size[d] * m->strides[d];
                rest /= m->move->size[d];
            }
            copy_box(m, packing, 1, &one, &one, m->memory + at * own, dense);
        }
        return;
    }
    block.ndim = real;
    rs_flat_boxes boxes;
    rs_flat_split(&block, from, to, &boxes);
    for (int32_t i = 0; i < boxes.count; i++) {
        int64_t at = 0, volume = 1;
        for (int32_t d = 0; d < real; d++) {
            at += boxes.items[i].start[d] * strides[d];
            volume *= boxes.items[i].size[d];
        }
        copy_box(m, packing, real, boxes.items[i].size, strides, m->memory + at * own, dense);
        dense += volume * wire;
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

void rs_segment_pack(const rs_segment_move *m, uint64_t from, uint64_t to, char *out)
{
    uint64_t wire = rs_element_bytes(m->wire);
    assert(m->memory != NULL && from <= to && wire <= 16);
    while (from < to) {
        uint64_t element = from / wire, inside = from % wire;
        uint64_t whole = inside == 0 ? (to - from) / wire : 0;
        uint64_t bytes = whole * wire;
        if (whole != 0) {
            copy_elements(m, true, (int64_t)element, (int64_t)(element + whole), out);
        } else { /* part of one element */
            char one[16];
            bytes = wire - inside < to - from ? wire - inside : to - from;
            copy_elements(m, true, (int64_t)element, (int64_t)element + 1, one);
            memcpy(out, one + inside, bytes);
        }
        from += bytes;
        out += bytes;
    }
}

void rs_segment_unpack(const rs_segment_move *m, uint64_t from, uint64_t to, const char *in,
                       char *cut_element)
{
    uint64_t wire = rs_element_bytes(m->wire);
    assert(m->memory != NULL && from <= to && wire <= 16);
    while (from < to) {
        uint64_t element = from / wire, inside = from % wire;
        uint64_t whole = inside == 0 ? (to - from) / wire : 0;
        uint64_t bytes = whole * wire;
        if (whole != 0) {
            copy_elements(m, false, (int64_t)element, (int64_t)(element + whole),
                          (char *)(uintptr_t)in);
        } else {
            bytes = wire - inside < to - from ? wire - inside : to - from;
            memcpy(cut_element + inside, in, bytes);
            if (inside + bytes == wire)
                copy_elements(m, false, (int64_t)element, (int64_t)element + 1, cut_element);
        }
        from += bytes;
        in += bytes;
    }
}

char *rs_segment_dense(const rs_segment_move *m)
{
    bool dense = rs_strides_are_dense(m->move->ndim, m->move->size, m->strides);
    return dense && m->dtype == m->wire ? m->memory : NULL;
}
