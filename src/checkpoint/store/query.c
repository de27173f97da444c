/* SPDX-License-Identifier: Apache-2.0 */
/* query.c - answers questions about an open checkpoint. */
#include "base/error.h"
#include "base/options.h"
#include "checkpoint/store/store.h"
#include "kernel/values/block_types.h"

#include <string.h>

reshard_status reshard_checkpoint_get_info(const reshard_checkpoint *checkpoint,
                                           reshard_checkpoint_info *out_info)
{
    reshard_checkpoint_info info = {.format = checkpoint->format,
                                    .tensor_count = checkpoint->tensor_count,
                                    .bytes = checkpoint->bytes,
                                    .disk_file_count = checkpoint->named_count};
    return rs_report_write("checkpoint info", &info, sizeof info, out_info);
}

const char *reshard_checkpoint_file_name(const reshard_checkpoint *checkpoint, int32_t file)
{
    return file >= 0 && file < checkpoint->file_count ? checkpoint->files[file].name : NULL;
}

const char *reshard_checkpoint_note(const reshard_checkpoint *checkpoint, reshard_note_kind kind,
                                    int64_t index)
{
    return rs_notes_at(kind == RESHARD_NOTE ? &checkpoint->notes : &checkpoint->warnings, index);
}

static reshard_status check_tensor(const reshard_checkpoint *checkpoint, int64_t index)
{
    if (index >= 0 && index < checkpoint->tensor_count)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_RANGE, "there is no tensor %lld; there are %lld", (long long)index,
                   (long long)checkpoint->tensor_count);
}

static int64_t count_pieces(const rs_stored_tensor *tensor)
{
    return tensor->formula == NULL ? tensor->piece_count : 0;
}

reshard_status reshard_checkpoint_tensor(const reshard_checkpoint *checkpoint, int64_t index,
                                         reshard_stored_tensor *out_tensor)
{
    reshard_status status = check_tensor(checkpoint, index);
    if (status != RESHARD_OK)
        return status;
    const rs_stored_tensor *tensor = &checkpoint->tensors[index];
    /* The one piece of a computed tensor is of no use to those who cannot compute it. */
    reshard_stored_tensor made = {.name = tensor->name.bytes,
                                  .name_bytes = tensor->name.count,
                                  .dtype = tensor->dtype,
                                  .ndim = tensor->ndim,
                                  .shape = tensor->shape,
                                  .bytes = tensor->bytes,
                                  .opaque = tensor->opaque,
                                  .piece_count = count_pieces(tensor),
                                  .copy_count = tensor->copy_count,
                                  .stored_bytes = tensor->bytes,
                                  .is_aside = tensor->is_aside};
    if (tensor->block_type != NULL) {
        const rs_block_type *type = tensor->block_type;
        made.stored_as = type->name;
        made.stored_bytes = tensor->bytes / (uint64_t)tensor->element_bytes /
                            (uint64_t)type->elements * (uint64_t)type->bytes;
    }
    if (checkpoint->wholes != NULL) {
        const rs_stored_whole *whole = &checkpoint->wholes[index];
        made.whole_ndim = whole->ndim;
        made.whole_shape = whole->shape;
        made.whole_offset = whole->offset;
        made.whole_spec = whole->spec;
    }
    return rs_report_write("stored tensor", &made, sizeof made, out_tensor);
}

reshard_status reshard_checkpoint_find(const reshard_checkpoint *checkpoint, const char *name,
                                       size_t name_bytes, int64_t *out_index)
{
    rs_slice wanted = {name, name_bytes};
    int64_t index = rs_store_find(checkpoint, wanted);
    if (index >= 0) {
        *out_index = index;
        return RESHARD_OK;
    }
    (void)rs_fail(RESHARD_ERR_NOT_FOUND, "%s: has no tensor \"%.*s\"", checkpoint->path,
                  rs_slice_shown(wanted), name);
    rs_error_add_subject(name, name_bytes);
    return RESHARD_ERR_NOT_FOUND;
}

reshard_status reshard_checkpoint_piece(const reshard_checkpoint *checkpoint, int64_t tensor,
                                        int64_t piece, reshard_stored_piece *out_piece)
{
    reshard_status status = check_tensor(checkpoint, tensor);
    if (status != RESHARD_OK)
        return status;
    const rs_stored_tensor *stored = &checkpoint->tensors[tensor];
    int64_t count = count_pieces(stored) + stored->copy_count;
    if (piece < 0 || piece >= count)
        return rs_fail(RESHARD_ERR_RANGE, "tensor \"%.*s\": there is no piece %lld; it has %lld",
                       rs_slice_shown(stored->name), stored->name.bytes, (long long)piece,
                       (long long)count);
    const rs_stored_piece *found = piece < stored->piece_count
                                       ? &stored->pieces[piece]
                                       : &stored->copies[piece - stored->piece_count];
    reshard_stored_piece made = {
        .file = found->file, .at = found->at, .box.ndim = stored->carried_ndim};
    for (int32_t d = 0; d < stored->carried_ndim; d++) {
        made.box.offset[d] = found->offset != NULL ? found->offset[d] : 0;
        made.box.size[d] = found->size[d];
    }
    rs_piece_strides(stored, found, made.strides);
    return rs_report_write("stored piece", &made, sizeof made, out_piece);
}

reshard_status reshard_checkpoint_layout(const reshard_checkpoint *checkpoint, int64_t tensor,
                                         reshard_layout **out_layout)
{
    reshard_status status = check_tensor(checkpoint, tensor);
    if (status != RESHARD_OK)
        return status;
    const rs_stored_tensor *stored = &checkpoint->tensors[tensor];
    if (stored->formula != NULL)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "tensor \"%.*s\": a map computes it, so no file has a part of it",
                       rs_slice_shown(stored->name), stored->name.bytes);
    return rs_store_layout(checkpoint->context, stored, stored->pieces, stored->piece_count, false,
                           0, out_layout);
}

void rs_store_digest(const reshard_checkpoint *checkpoint, rs_digest *digest)
{
    for (int64_t i = 0; i < checkpoint->tensor_count; i++) {
        const rs_stored_tensor *tensor = &checkpoint->tensors[i];
        rs_digest_bytes(digest, tensor->name.bytes, tensor->name.count);
        rs_digest_u64(digest, (uint64_t)tensor->dtype);
        rs_digest_i64s(digest, tensor->shape, tensor->ndim);
        rs_digest_u64(digest, (uint64_t)tensor->copy_count);
        for (int64_t k = 0; k < tensor->piece_count; k++) {
            rs_digest_u64(digest, (uint64_t)tensor->pieces[k].file);
            rs_digest_u64(digest, tensor->pieces[k].at);
        }
    }
}

reshard_status reshard_checkpoint_value(const reshard_checkpoint *checkpoint, int64_t index,
                                        reshard_stored_value *out_value)
{
    if (index < 0 || index >= checkpoint->value_count)
        return rs_fail(RESHARD_ERR_RANGE, "there is no value %lld; there are %lld",
                       (long long)index, (long long)checkpoint->value_count);
    const rs_stored_value *stored = &checkpoint->values[index];
    reshard_stored_value made = {.name = stored->name.bytes,
                                 .name_bytes = stored->name.count,
                                 .text = stored->text,
                                 .type = stored->type,
                                 .item_count = stored->type != NULL ? stored->item_count : -1,
                                 .is_json = stored->is_json};
    return rs_report_write("stored value", &made, sizeof made, out_value);
}

reshard_status reshard_checkpoint_value_text(const reshard_checkpoint *checkpoint, int64_t index,
                                             int64_t items_max, char *buffer, size_t capacity)
{
    rs_text text;
    if (index < 0 || index >= checkpoint->value_count)
        return rs_fail(RESHARD_ERR_RANGE, "there is no value %lld; there are %lld",
                       (long long)index, (long long)checkpoint->value_count);
    const rs_stored_value *stored = &checkpoint->values[index];
    int shown = rs_slice_shown(stored->name);
    if (stored->show == NULL)
        return rs_fail(RESHARD_ERR_NOT_FOUND, "value \"%.*s\": its contents are not known", shown,
                       stored->name.bytes);
    rs_text_init(&text, buffer, capacity);
    reshard_status status = stored->show(checkpoint, stored, items_max, &text);
    if (status == RESHARD_OK && text.length >= capacity)
        status = rs_fail(RESHARD_ERR_RANGE, "value \"%.*s\": does not fit in %zu bytes", shown,
                         stored->name.bytes, capacity);
    return status;
}

reshard_status reshard_checkpoint_text(const reshard_checkpoint *checkpoint, int64_t index,
                                       reshard_stored_text *out_text)
{
    if (index < 0 || index >= checkpoint->metadata_count)
        return rs_fail(RESHARD_ERR_RANGE, "there is no text %lld; there are %lld", (long long)index,
                       (long long)checkpoint->metadata_count);
    const rs_metadatum *stored = &checkpoint->metadata[index];
    reshard_stored_text made = {.key = stored->key.bytes,
                                .key_bytes = stored->key.count,
                                .text = stored->value.bytes,
                                .text_bytes = stored->value.count};
    return rs_report_write("stored text", &made, sizeof made, out_text);
}

reshard_status reshard_checkpoint_unreadable(const reshard_checkpoint *checkpoint, int64_t index,
                                             reshard_unreadable_tensor *out_tensor)
{
    if (index < 0 || index >= checkpoint->unreadable_count)
        return rs_fail(RESHARD_ERR_RANGE, "there is no unreadable tensor %lld; there are %lld",
                       (long long)index, (long long)checkpoint->unreadable_count);
    const rs_unreadable *kept = &checkpoint->unreadable[index];
    reshard_unreadable_tensor made = {
        .name = kept->name.bytes, .name_bytes = kept->name.count, .reason = kept->reason};
    return rs_report_write("unreadable tensor", &made, sizeof made, out_tensor);
}
