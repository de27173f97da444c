/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_dcp.c - any bytes as the `.metadata` of a distributed checkpoint, for libFuzzer. What is
 * read is sorted, found again and stays inside of the folder; memory is in proportion to the input,
 * and all of it comes back.
 */
#include "base/arena.h"
#include "base/context.h"
#include "checkpoint/archive/zip.h"
#include "checkpoint/dcp/dcp_metadata.h"
#include "tests/support/info.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY_PER_BYTE 1024

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(rs_dcp_metadata *metadata)
{
    for (int64_t i = 0; i < metadata->entry_count; i++) {
        const rs_dcp_entry *entry = &metadata->entries[i];
        if (rs_dcp_metadata_use(metadata, entry->name, entry->ndim, entry->offset) != entry ||
            rs_zip_name_fault(rs_slice_of(metadata->files[entry->file])) != NULL)
            abort();
    }
    for (int64_t i = 1; i < metadata->tensor_count; i++) {
        if (rs_slice_compare(metadata->tensors[i - 1].name, metadata->tensors[i].name) >= 0)
            abort();
    }
    for (int64_t i = 1; i < metadata->file_count; i++) {
        if (rs_dcp_file_compare(metadata->files[i - 1], metadata->files[i]) >= 0)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reshard_context *context = NULL;
    rs_dcp_metadata metadata;
    rs_arena arena;
    if (reshard_context_create(NULL, &context) != RESHARD_OK)
        return 0;
    rs_arena_init(&arena, context);
    if (rs_dcp_metadata_read(&arena, "input", (const char *)data, size, &metadata) == RESHARD_OK)
        check(&metadata);
    else if (reshard_error_text()[0] == '\0')
        abort();
    if (info_memory(context).bytes > MEMORY_PER_BYTE * (size + 64))
        abort();
    rs_arena_release(&arena);
    if (info_memory(context).bytes != 0)
        abort();
    reshard_context_destroy(context);
    return 0;
}
