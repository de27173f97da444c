/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_join.c - makes the checkpoint's tensors of what the parts hold. A tensor that several stages
 * of a pipeline hold is the first one's. One that several tensor parallel ranks hold is put
 * together by what the files say about its cut (zero_cut.c).
 */
#include "checkpoint/deepspeed/zero.h"

#include "base/context.h"
#include "base/sort.h"

#include <string.h>

static int compare_locals(const void *a, const void *b)
{
    const rs_zero_local *x = a, *y = b;
    int order = rs_slice_compare(x->tensor.name, y->tensor.name);
    return order != 0 ? order : (x->mp > y->mp) - (x->mp < y->mp);
}

static int64_t find_end(const rs_zero_reading *r, int64_t first)
{
    int64_t end = first + 1;
    while (end < r->local_count &&
           rs_slice_compare(r->locals[first].tensor.name, r->locals[end].tensor.name) == 0)
        end++;
    return end;
}

/* How many of the locals are of the first stage of the pipeline that has any. */
static int64_t count_in_stage(const rs_zero_reading *r, const rs_zero_local *locals, int64_t count)
{
    int32_t tp = r->files.tp_count, stage = locals[0].mp / tp;
    int64_t n = 1;
    while (n < count && locals[n].mp / tp == stage)
        n++;
    return n;
}

static reshard_status fail_double(const rs_zero_reading *r, const rs_zero_local *local)
{
    (void)r;
    return rs_fail(RESHARD_ERR_CORRUPT, "two tensors would have the name \"%.*s\"",
                   RS_SHOWN(local->tensor.name));
}

static reshard_status join_one(rs_zero_reading *r, const rs_zero_local *locals, int64_t count,
                               int64_t *repeated)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    rs_stored_tensor *tensor = &checkpoint->tensors[checkpoint->tensor_count];
    int64_t here = count_in_stage(r, locals, count);
    reshard_status status = RESHARD_OK;
    for (int64_t i = 1; i < count; i++) {
        if (locals[i].mp == locals[i - 1].mp)
            return fail_double(r, &locals[i]);
    }
    *repeated += here != count;
    *tensor = locals[0].tensor;
    if (r->files.tp_count > 1)
        status = rs_zero_cut_join(r, locals, here, tensor);
    if (status != RESHARD_OK)
        return status;
    checkpoint->tensor_count++;
    checkpoint->bytes += tensor->bytes;
    return RESHARD_OK;
}

reshard_status rs_zero_join(rs_zero_reading *r)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    reshard_status status = RESHARD_OK;
    int64_t repeated = 0;
    for (int64_t i = 0; status == RESHARD_OK && i < r->others.count; i++)
        status = rs_zero_add_other(r, &r->others.items[i]);
    if (status == RESHARD_OK && r->files.tp_count > 1 && r->info == NULL)
        status = rs_zero_rules_init(r);
    if (status != RESHARD_OK)
        return status;
    rs_sort(r->locals, (size_t)r->local_count, sizeof *r->locals, compare_locals);
    checkpoint->tensors = rs_arena_allocate_array(&checkpoint->arena, (size_t)r->local_count,
                                                  sizeof(rs_stored_tensor));
    if (checkpoint->tensors == NULL)
        return rs_allocation_status();
    for (int64_t first = 0, end; status == RESHARD_OK && first < r->local_count; first = end) {
        end = find_end(r, first);
        status = join_one(r, &r->locals[first], end - first, &repeated);
    }
    if (status == RESHARD_OK && repeated != 0)
        status = rs_store_note(checkpoint,
                               "tensors stored by several stages of the pipeline, which keep them "
                               "equal: %lld; the first stage's are read",
                               (long long)repeated);
    return status;
}
