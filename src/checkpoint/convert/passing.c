/* SPDX-License-Identifier: Apache-2.0 */
/* passing.c - sums of blocks as they come by, and digests of what they make up. */
#include "checkpoint/convert/passing.h"

#include "base/context.h"
#include "checkpoint/digest/slabs.h"

#include <stdlib.h>
#include <string.h>

#define BOTH_SIDES_EACH 16 /* blocks */

reshard_status rs_passing_create(reshard_context *context, int64_t transfer_count,
                                 rs_passing **out_passing)
{
    size_t count = (size_t)transfer_count;
    rs_passing *passing = rs_allocate_zeroed(context, sizeof *passing);
    if (passing == NULL)
        return rs_allocation_status();
    passing->context = context;
    passing->count = transfer_count;
    reshard_status status = rs_mutex_init(&passing->mutex);
    if (status != RESHARD_OK) {
        rs_release(context, passing, sizeof *passing);
        return status;
    }
    status = rs_fingerprint_code_create(context, &passing->code);
    if (status == RESHARD_OK) {
        passing->sums = rs_allocate_array(context, count, sizeof *passing->sums);
        status = passing->sums != NULL ? RESHARD_OK : rs_allocation_status();
    }
    if (status != RESHARD_OK) {
        rs_passing_destroy(passing);
        return status;
    }
    memset(passing->sums, 0, count * sizeof *passing->sums);
    *out_passing = passing;
    return RESHARD_OK;
}

void rs_passing_destroy(rs_passing *passing)
{
    if (passing == NULL)
        return;
    rs_release(passing->context, passing->sums, (size_t)passing->count * sizeof *passing->sums);
    rs_fingerprint_code_destroy(passing->code);
    rs_mutex_release(&passing->mutex);
    rs_release(passing->context, passing, sizeof *passing);
}

/* ---- one block ------------------------------------------------------------------------------- */

/* Elements that lie together in a piece and in the tensor. */
static int64_t row_length(const rs_stored_tensor *tensor, const rs_stored_piece *piece)
{
    int64_t length = 1;
    for (int32_t d = tensor->carried_ndim; d-- > 0;) {
        length *= piece->size[d];
        if (piece->size[d] != tensor->carried_shape[d])
            break;
    }
    return length;
}

void rs_passing_begin(rs_passing_block *block, rs_passing *passing, const rs_transfer *transfer,
                      int64_t index)
{
    block->passing = passing;
    block->transfer = transfer;
    block->on_source = block->on_target = false;
    if (passing == NULL)
        return;
    rs_fingerprint_begin(&block->source, passing->code);
    rs_fingerprint_begin(&block->target, passing->code);
    bool both = transfer->casts || (transfer->block_first + index) % BOTH_SIDES_EACH == 0;
    bool target_is_longer = row_length(transfer->target, transfer->target->pieces) >
                            row_length(transfer->source, transfer->source->pieces);
    block->on_target = transfer->tiles && (both || target_is_longer);
    block->on_source = both || !block->on_target;
}

static bool is_first(const rs_passing_block *block, int64_t piece)
{
    const bool *again = block->transfer->again;
    return again == NULL || !again[piece];
}

void rs_passing_read(rs_passing_block *block, const int64_t *offset, const int64_t *size,
                     const void *memory, const int64_t *strides)
{
    if (block->on_source)
        rs_box_digest(block->transfer->source, offset, size, memory, strides, &block->source);
}

void rs_passing_write(rs_passing_block *block, int64_t piece, const int64_t *offset,
                      const int64_t *size, const void *memory, const int64_t *strides)
{
    if (block->on_target && is_first(block, piece))
        rs_box_digest(block->transfer->target, offset, size, memory, strides, &block->target);
}

void rs_passing_read_and_write(rs_passing_block *block, int64_t piece, const int64_t *offset,
                               const int64_t *size, const void *memory)
{
    block->on_target = false;
    if (block->passing == NULL || !block->transfer->tiles || !is_first(block, piece))
        return;
    rs_box_digest(block->transfer->source, offset, size, memory, NULL, &block->source);
    block->on_source = true;
}

reshard_status rs_passing_end(rs_passing_block *block, int64_t index)
{
    rs_passing *passing = block->passing;
    rs_fingerprint *source = &block->source.sum, *target = &block->target.sum;
    if (!block->on_source && !block->on_target)
        return RESHARD_OK;
    if (!block->transfer->casts) {
        if (block->on_source && block->on_target && memcmp(source, target, sizeof *source) != 0)
            return rs_fail(RESHARD_ERR_CHECK,
                           "what was about to be written is not what was read: a fault of this "
                           "machine's memory, or of the program");
        *(block->on_source ? target : source) = *(block->on_source ? source : target);
    }
    rs_mutex_lock(&passing->mutex);
    rs_fingerprint_merge(&passing->sums[index].source, source);
    rs_fingerprint_merge(&passing->sums[index].target, target);
    rs_mutex_unlock(&passing->mutex);
    return RESHARD_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* A tensor of one side, and its digest when that is known. */
typedef struct named_digest {
    const rs_stored_tensor *tensor;
    rs_fingerprint sum;
    char text[RS_FINGERPRINT_TEXT];
} named_digest;

static int compare_digests(const void *a, const void *b)
{
    return rs_slice_compare(((const named_digest *)a)->tensor->name,
                            ((const named_digest *)b)->tensor->name);
}

static void tell_entry(void *user, int64_t index, rs_fingerprint_entry *out_entry)
{
    const named_digest *all = user;
    rs_slice name = all[index].tensor->name;
    *out_entry = (rs_fingerprint_entry){name.bytes, name.count, all[index].text};
}

/* Digests of those tensors all of whose bytes came by, and of the whole if these are all. */
static reshard_status digest_side(const rs_passing *passing, named_digest *digests, int64_t count,
                                  int64_t *out_known, char out_text[RS_FINGERPRINT_TEXT])
{
    int64_t known = 0;
    for (int64_t i = 0; i < count; i++) {
        const rs_stored_tensor *tensor = digests[i].tensor;
        if (digests[i].sum.bytes != tensor->bytes)
            continue;
        reshard_status status = rs_fingerprint_final(passing->code, &digests[i].sum, tensor->dtype,
                                                     tensor->ndim, tensor->shape, digests[i].text);
        if (status != RESHARD_OK)
            return rs_fail_within(status, "tensor \"%.*s\"", rs_slice_shown(tensor->name),
                                  tensor->name.bytes);
        known++;
    }
    *out_known = known;
    if (known < count)
        return RESHARD_OK;
    if (count > 1)
        qsort(digests, (size_t)count, sizeof *digests, compare_digests);
    return rs_fingerprint_checkpoint(passing->code, count, tell_entry, digests, out_text);
}

reshard_status rs_passing_finish(const rs_passing *passing, const rs_transfer *transfers,
                                 const reshard_checkpoint *source, const rs_target *target,
                                 rs_passing_result *out_result)
{
    rs_passing_result result = {.bytes = 0};
    int64_t count = target->tensor_count;
    size_t bytes = (size_t)count * 2 * sizeof(named_digest);
    named_digest *from = rs_allocate_zeroed(passing->context, bytes), *to = NULL;
    if (from == NULL)
        return rs_allocation_status();
    to = from + count;
    for (int64_t i = 0; i < count; i++) {
        from[i].tensor = &source->tensors[target->origins[i]];
        to[i].tensor = &target->tensors[i];
    }
    /* Tensors without bytes have no transfer, and nothing is the sum of all of them. */
    for (int64_t i = 0; i < passing->count; i++) {
        int64_t tensor = transfers[i].target - target->tensors;
        from[tensor].sum = passing->sums[i].source;
        to[tensor].sum = passing->sums[i].target;
        result.bytes += passing->sums[i].source.bytes;
    }
    reshard_status status = digest_side(passing, to, count, &result.tensors, result.target);
    if (status == RESHARD_OK && count == source->tensor_count)
        status = digest_side(passing, from, count, &result.tensors, result.source);
    rs_release(passing->context, from, bytes);
    if (status == RESHARD_OK)
        *out_result = result;
    return status;
}
