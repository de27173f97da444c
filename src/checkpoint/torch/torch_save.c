/* SPDX-License-Identifier: Apache-2.0 */
/* torch_save.c - drafts a file's archive when it is placed, and again, with the same result, when
 * it is finished. */
#include "checkpoint/torch/torch_save.h"

#include "base/context.h"
#include "checkpoint/archive/zip_write.h"

#include <assert.h>
#include <stdio.h>

/* Members besides the storages: before them the pickle, the byte order and perhaps the format's
 * record; after them the version. */
enum { PICKLE, ORDER, RECORD, BEFORE_MAX, BEHIND = 1, NAME_BYTES = 64 };

static const char byte_order[] = "little", version[] = "3\n";

/* An archive that is being laid out or finished. */
typedef struct saving {
    reshard_context *context;
    rs_pickle_writer writer;
    rs_json_writer record;
    rs_slice before[BEFORE_MAX]; /* contents of the members before the storages */
    char record_name[NAME_BYTES];
    size_t before_count, count; /* numbers of members: before the storages, and all */
    rs_zip_draft *draft;
} saving;

reshard_status rs_torch_save_head(const rs_target *target, int32_t file, rs_json_writer *writer)
{
    (void)target;
    (void)file;
    (void)writer;
    return RESHARD_OK;
}

void rs_torch_save_plain(rs_pickle_writer *writer, const rs_target *target,
                         const rs_target_entry *entry, rs_slice key)
{
    const rs_target_array *array = rs_target_array_of(target, entry);
    rs_torch_write_tensor(writer, key, target->tensors[entry->tensor].dtype, array->ndim,
                          array->shape);
}

static reshard_status draft_members(saving *s, const rs_target *target, const rs_target_file *file)
{
    const size_t each = sizeof(rs_zip_entry) + NAME_BYTES;
    rs_zip_entry *entries = rs_allocate_array(s->context, s->count, each);
    if (entries == NULL)
        return rs_allocation_status();
    char *names = (char *)(entries + s->count);
    const char *const before[BEFORE_MAX] = {"archive/data.pkl", "archive/byteorder",
                                            s->record_name};
    for (size_t i = 0; i < s->before_count; i++)
        entries[i] = (rs_zip_entry){rs_slice_of(before[i]), s->before[i].count};
    for (int64_t i = 0; i < file->entry_count; i++) {
        char *name = names + i * NAME_BYTES;
        int length = snprintf(name, NAME_BYTES, "archive/data/%lld", (long long)i);
        const rs_target_entry *entry = &target->entries[file->entry_first + i];
        entries[s->before_count + (size_t)i] =
            (rs_zip_entry){{name, (size_t)length}, rs_target_array_of(target, entry)->bytes};
    }
    entries[s->count - 1] = (rs_zip_entry){rs_slice_of("archive/version"), sizeof version - 1};
    reshard_status status =
        rs_zip_draft_create(s->context, entries, s->count, RS_ZIP_ALIGNMENT, &s->draft);
    rs_release(s->context, entries);
    return status;
}

static reshard_status begin(saving *s, const rs_target *target, int32_t index)
{
    const rs_torch_style *style = target->format->torch_style;
    const rs_target_file *file = &target->files[index];
    *s = (saving){.context = target->context, .before[ORDER] = rs_slice_of(byte_order)};
    s->before_count = RECORD;
    rs_pickle_writer_init(&s->writer, target->context);
    rs_json_writer_init(&s->record, target->context);
    reshard_status status = style->write_root != NULL
                                ? style->write_root(&s->writer, target, index)
                                : rs_torch_nest_write(target, index, style->write, &s->writer);
    if (status == RESHARD_OK)
        status = rs_pickle_writer_finish(&s->writer, &s->before[PICKLE]);
    if (status == RESHARD_OK && style->record_name != NULL) {
        (void)snprintf(s->record_name, sizeof s->record_name, "archive/%s", style->record_name);
        style->write_record(&s->record, target, index);
        s->before[RECORD] = (rs_slice){s->record.bytes, (size_t)s->record.count};
        status = s->record.status;
        s->before_count = s->record.count != 0 ? BEFORE_MAX : RECORD;
    }
    s->count = s->before_count + (size_t)file->entry_count + BEHIND;
    return status == RESHARD_OK ? draft_members(s, target, file) : status;
}

static void end(saving *s)
{
    rs_zip_draft_destroy(s->draft);
    rs_json_writer_release(&s->record);
    rs_pickle_writer_release(&s->writer);
}

reshard_status rs_torch_save_place(rs_target *target, int32_t index)
{
    rs_target_file *file = &target->files[index];
    saving s;
    reshard_status status = begin(&s, target, index);
    for (int64_t i = 0; status == RESHARD_OK && i < file->entry_count; i++)
        target->entries[file->entry_first + i].begin =
            rs_zip_draft_data_at(s.draft, s.before_count + (size_t)i);
    if (status == RESHARD_OK) {
        file->data_begin = 0;
        file->bytes = rs_zip_draft_bytes(s.draft);
    }
    end(&s);
    return status;
}

static reshard_status write_member(saving *s, rs_file *file, size_t index, rs_slice content,
                                   rs_zip_sum *sum)
{
    rs_zip_sum_add(sum, content.count, 0, content.bytes, content.count);
    return rs_file_write(file, content.bytes, content.count, rs_zip_draft_data_at(s->draft, index));
}

static reshard_status finish_file(const rs_target *target, int32_t index,
                                  const rs_finishing *finishing)
{
    const rs_target_file *file = &target->files[index];
    rs_file *out = finishing->files[index];
    rs_zip_sum *sums = NULL;
    saving s;
    reshard_status status = begin(&s, target, index);
    assert(status != RESHARD_OK || rs_zip_draft_bytes(s.draft) == file->bytes);
    if (status == RESHARD_OK) {
        sums = rs_allocate_zeroed(s.context, s.count * sizeof *sums);
        status = sums != NULL ? RESHARD_OK : rs_allocation_status();
    }
    for (int64_t i = 0; status == RESHARD_OK && i < file->entry_count; i++)
        sums[s.before_count + (size_t)i] = finishing->sums[file->entry_first + i];
    for (size_t i = 0; status == RESHARD_OK && i < s.before_count; i++)
        status = write_member(&s, out, i, s.before[i], &sums[i]);
    if (status == RESHARD_OK)
        status = write_member(&s, out, s.count - 1, rs_slice_of(version), &sums[s.count - 1]);
    if (status == RESHARD_OK)
        status = rs_zip_draft_finish(s.draft, out, 0, sums);
    rs_release(s.context, sums);
    end(&s);
    return rs_fail_within(status, "%s", file->name);
}

reshard_status rs_torch_save_finish(const rs_target *target, const rs_finishing *finishing)
{
    reshard_status status = RESHARD_OK;
    assert(finishing->sums != NULL);
    for (int32_t i = 0; status == RESHARD_OK && i < target->file_count; i++) {
        if (target->files[i].name != NULL)
            status = finish_file(target, i, finishing);
    }
    return status;
}
