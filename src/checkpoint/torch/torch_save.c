/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/torch/torch_save.h"

#include "base/context.h"
#include "checkpoint/archive/zip_write.h"
#include "checkpoint/torch/torch_write.h"

#include <assert.h>
#include <stdio.h>

/* Members besides the storages: the pickle and the byte order before them, the version behind. */
enum { MEMBERS_BEFORE = 2, MEMBERS_BEHIND = 1, NAME_BYTES = 40 };

static const char byte_order[] = "little", version[] = "3\n";

/* An archive that is being laid out or finished. */
typedef struct saving {
    reshard_context *context;
    rs_pickle_writer writer;
    rs_slice pickle; /* in the writer */
    size_t count;    /* of members */
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
    rs_torch_write_tensor(writer, key, target->tensors[entry->tensor].dtype, entry->ndim,
                          entry->shape);
}

static reshard_status draft_members(saving *s, const rs_target *target, const rs_target_file *file)
{
    const size_t each = sizeof(rs_zip_entry) + NAME_BYTES;
    rs_zip_entry *entries = rs_allocate_array(s->context, s->count, each);
    if (entries == NULL)
        return rs_allocation_status();
    char *names = (char *)(entries + s->count);
    entries[0] = (rs_zip_entry){rs_slice_of("archive/data.pkl"), s->pickle.count};
    entries[1] = (rs_zip_entry){rs_slice_of("archive/byteorder"), sizeof byte_order - 1};
    for (int64_t i = 0; i < file->entry_count; i++) {
        char *name = names + i * NAME_BYTES;
        int length = snprintf(name, NAME_BYTES, "archive/data/%lld", (long long)i);
        entries[MEMBERS_BEFORE + i] =
            (rs_zip_entry){{name, (size_t)length}, target->entries[file->entry_first + i].bytes};
    }
    entries[s->count - 1] = (rs_zip_entry){rs_slice_of("archive/version"), sizeof version - 1};
    reshard_status status =
        rs_zip_draft_create(s->context, entries, s->count, RS_ZIP_ALIGNMENT, &s->draft);
    rs_release(s->context, entries, s->count * each);
    return status;
}

static reshard_status begin(saving *s, const rs_target *target, int32_t index,
                            rs_torch_entry_fn *write)
{
    const rs_target_file *file = &target->files[index];
    *s = (saving){.context = target->context,
                  .count = MEMBERS_BEFORE + (size_t)file->entry_count + MEMBERS_BEHIND};
    rs_pickle_writer_init(&s->writer, target->context);
    reshard_status status = rs_torch_nest_write(target, index, write, &s->writer);
    if (status == RESHARD_OK)
        status = rs_pickle_writer_finish(&s->writer, &s->pickle);
    return status == RESHARD_OK ? draft_members(s, target, file) : status;
}

static void end(saving *s)
{
    rs_zip_draft_destroy(s->draft);
    rs_pickle_writer_release(&s->writer);
}

reshard_status rs_torch_save_place(rs_target *target, int32_t index, rs_torch_entry_fn *write)
{
    rs_target_file *file = &target->files[index];
    saving s;
    reshard_status status = begin(&s, target, index, write);
    for (int64_t i = 0; status == RESHARD_OK && i < file->entry_count; i++)
        target->entries[file->entry_first + i].begin =
            rs_zip_draft_data_at(s.draft, MEMBERS_BEFORE + (size_t)i);
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
                                  const rs_finishing *finishing, rs_torch_entry_fn *write)
{
    const rs_target_file *file = &target->files[index];
    rs_file *out = finishing->files[index];
    rs_zip_sum *sums = NULL;
    saving s;
    reshard_status status = begin(&s, target, index, write);
    assert(status != RESHARD_OK || rs_zip_draft_bytes(s.draft) == file->bytes);
    if (status == RESHARD_OK) {
        sums = rs_allocate_zeroed(s.context, s.count * sizeof *sums);
        status = sums != NULL ? RESHARD_OK : rs_allocation_status();
    }
    for (int64_t i = 0; status == RESHARD_OK && i < file->entry_count; i++)
        sums[MEMBERS_BEFORE + i] = finishing->sums[file->entry_first + i];
    if (status == RESHARD_OK)
        status = write_member(&s, out, 0, s.pickle, &sums[0]);
    if (status == RESHARD_OK)
        status = write_member(&s, out, 1, rs_slice_of(byte_order), &sums[1]);
    if (status == RESHARD_OK)
        status = write_member(&s, out, s.count - 1, rs_slice_of(version), &sums[s.count - 1]);
    if (status == RESHARD_OK)
        status = rs_zip_draft_finish(s.draft, out, 0, sums);
    if (sums != NULL)
        rs_release(s.context, sums, s.count * sizeof *sums);
    end(&s);
    return rs_fail_within(status, "%s", file->name);
}

reshard_status rs_torch_save_finish(const rs_target *target, const rs_finishing *finishing,
                                    rs_torch_entry_fn *write)
{
    reshard_status status = RESHARD_OK;
    assert(finishing->sums != NULL);
    for (int32_t i = 0; status == RESHARD_OK && i < target->file_count; i++) {
        if (target->files[i].name != NULL)
            status = finish_file(target, i, finishing, write);
    }
    return status;
}
