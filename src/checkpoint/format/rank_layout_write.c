/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_layout_write.c - writes the document of rank files. Tensors with the same shape, cuts and
 * padding form one group, and names that differ only in numbers are written as ranges. So for a
 * model of 90,000 tensors the document, which every file contains, has only some ten thousand
 * bytes.
 */
#include "base/context.h"
#include "base/digest.h"
#include "base/table.h"
#include "checkpoint/format/name_boxes.h"
#include "checkpoint/format/rank_layout.h"
#include "text/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The cuts in "tp=4: S(0)". */
static const char *find_cuts(const char *spec)
{
    const char *cuts = spec + strcspn(spec, ":");
    return cuts + strspn(cuts, ": ");
}

/* Makes the id of a conversion: a digest of the source's files and of everything that decides where
 * its elements go. */
static void identify(const rs_laying *laying, char out_text[33])
{
    const rs_target *target = laying->target;
    const reshard_checkpoint *source = laying->source;
    uint64_t words[2];
    rs_digest digest;
    rs_digest_init(&digest);
    for (int32_t i = 0; i < source->file_count; i++) {
        rs_digest_bytes(&digest, source->files[i].name, strlen(source->files[i].name));
        rs_digest_u64(&digest, source->files[i].bytes);
        rs_digest_u64(&digest, (uint64_t)source->files[i].stamp.modified);
    }
    for (int64_t i = 0; i < target->tensor_count; i++) {
        const rs_stored_tensor *tensor = &target->tensors[i];
        const char *cut = target->rows[i]->cut;
        rs_digest_bytes(&digest, tensor->name.bytes, tensor->name.count);
        rs_digest_u64(&digest, (uint64_t)tensor->dtype);
        rs_digest_i64s(&digest, tensor->shape, tensor->ndim);
        rs_digest_bytes(&digest, cut, strlen(cut));
    }
    rs_digest_finish(&digest, words);
    (void)snprintf(out_text, 33, "%016" PRIx64 "%016" PRIx64, words[0], words[1]);
}

/* Writes what the tensors of a group have in common. */
static void write_common_of(rs_json_writer *writer, const rs_stored_tensor *tensor,
                            const rs_cut_row *row)
{
    rs_json_writer_text(writer, "{\"shape\":");
    rs_json_writer_integers(writer, tensor->ndim, tensor->shape);
    rs_json_writer_text(writer, ",\"cuts\":");
    rs_json_writer_string(writer, rs_slice_of(find_cuts(row->cut)));
    size_t bytes = (size_t)tensor->ndim * sizeof(int64_t);
    if (row->padded_shape != NULL && memcmp(row->padded_shape, tensor->shape, bytes) != 0) {
        rs_json_writer_text(writer, ",\"padded\":");
        rs_json_writer_integers(writer, tensor->ndim, row->padded_shape);
    }
    if (row->zeros)
        rs_json_writer_text(writer, ",\"zeros\":1");
    rs_json_writer_text(writer, ",\"names\":[");
}

/* Finds the kind of each tensor. Tensors with equal text for shape, cuts and padding are of one
 * kind, whose number is the index of the first of them. */
static reshard_status find_kinds(const rs_target *target, rs_name_box *boxes)
{
    reshard_status status = RESHARD_OK;
    rs_table rows, texts;
    rs_json_writer writer;
    rs_table_init(&rows, target->context);
    rs_table_init(&texts, target->context);
    rs_json_writer_init(&writer, target->context);
    for (int64_t i = 0; status == RESHARD_OK && i < target->tensor_count; i++) {
        const rs_cut_row *row = target->rows[i];
        void **by_row = rs_table_at(&rows, &row, sizeof row), **by_text = NULL;
        if (by_row != NULL && *by_row == NULL) {
            writer.count = 0;
            write_common_of(&writer, &target->tensors[i], row);
            status = writer.status;
            by_text = rs_table_at(&texts, writer.bytes, (size_t)writer.count);
            if (by_text != NULL && *by_text == NULL)
                *by_text = &boxes[i];
            *by_row = by_text != NULL ? *by_text : NULL;
        }
        if (status == RESHARD_OK && (by_row == NULL || *by_row == NULL))
            status = rs_allocation_status();
        if (status == RESHARD_OK)
            boxes[i] = (rs_name_box){.name = target->tensors[i].name,
                                     .kind = (rs_name_box *)*by_row - boxes};
    }
    rs_json_writer_release(&writer);
    rs_table_release(&texts);
    rs_table_release(&rows);
    return status;
}

/* Writes the groups: each is a kind, and the names of all its tensors. */
static void write_groups(rs_json_writer *writer, const rs_target *target, const rs_name_box *boxes,
                         int64_t count)
{
    rs_json_writer_text(writer, ",\"groups\":[");
    for (int64_t i = 0; i < count; i++) {
        bool is_new = i == 0 || boxes[i].kind != boxes[i - 1].kind;
        if (i != 0)
            rs_json_writer_text(writer, is_new ? "]}," : ",");
        if (is_new)
            write_common_of(writer, &target->tensors[boxes[i].kind], target->rows[boxes[i].kind]);
        rs_name_box_write(&boxes[i], writer);
    }
    rs_json_writer_text(writer, count != 0 ? "]}]}" : "]}");
}

static reshard_status write_common(const rs_laying *laying, rs_slice mesh, rs_json_writer *writer)
{
    const rs_target *target = laying->target;
    size_t count = (size_t)target->tensor_count;
    char id[33];
    identify(laying, id);
    rs_json_writer_text(writer, ",\"mesh\":");
    rs_json_writer_string(writer, mesh);
    rs_json_writer_text(writer, ",\"conversion\":");
    rs_json_writer_string(writer, rs_slice_of(id));
    rs_json_writer_text(writer, ",\"rules\":");
    rs_slice rules = rs_slice_of(laying->cuts->book.name);
    rs_json_writer_string(writer,
                          rs_json_is_text(rules.bytes, rules.count) ? rules : (rs_slice){"", 0});
    rs_name_box *boxes = rs_allocate_array(target->context, count, sizeof *boxes);
    if (boxes == NULL)
        return rs_allocation_status();
    int64_t left = target->tensor_count;
    reshard_status status = find_kinds(target, boxes);
    if (status == RESHARD_OK)
        status = rs_name_boxes_join(target->context, boxes, &left);
    if (status == RESHARD_OK) {
        write_groups(writer, target, boxes, left);
        status = writer->status;
    }
    rs_release(target->context, boxes);
    return status;
}

reshard_status rs_rank_layout_prepare(rs_laying *laying, bool as_string)
{
    rs_target *target = laying->target;
    rs_slice mesh = {NULL, 0}, made = {NULL, 0};
    rs_json_writer plain, quoted;
    rs_json_writer_init(&plain, target->context);
    rs_json_writer_init(&quoted, target->context);
    reshard_status status = rs_rank_layout_mesh(&target->arena, laying->cuts->book.mesh, &mesh);
    if (status == RESHARD_OK)
        status = write_common(laying, mesh, &plain);
    if (status == RESHARD_OK && as_string) {
        rs_json_writer_string(&quoted, (rs_slice){plain.bytes, (size_t)plain.count});
        status = quoted.status;
    }
    if (status == RESHARD_OK && as_string) /* without the first quote, with the last one */
        made = (rs_slice){quoted.bytes + 1, (size_t)quoted.count - 1};
    else if (status == RESHARD_OK)
        made = (rs_slice){plain.bytes, (size_t)plain.count};
    if (status == RESHARD_OK) {
        target->document =
            (rs_slice){rs_arena_copy(&target->arena, made.bytes, made.count, 1), made.count};
        status = target->document.bytes != NULL ? RESHARD_OK : rs_allocation_status();
    }
    rs_json_writer_release(&quoted);
    rs_json_writer_release(&plain);
    return status;
}

void rs_rank_layout_write_record(rs_json_writer *writer, const rs_target *target, int32_t file)
{
    rs_json_writer_text(writer, "{\"version\":2,\"rank\":");
    rs_json_writer_unsigned(writer, (uint64_t)target->ranks[file]);
    rs_json_writer_add(writer, target->document.bytes, target->document.count);
}

void rs_rank_layout_write(rs_json_writer *writer, const rs_target *target, int32_t file)
{
    rs_json_writer_text(writer, "\"" RS_LAYOUT_KEY "\":\"{\\\"version\\\":2,\\\"rank\\\":");
    rs_json_writer_unsigned(writer, (uint64_t)target->ranks[file]);
    rs_json_writer_add(writer, target->document.bytes, target->document.count);
    rs_json_writer_add(writer, ",", 1);
}
