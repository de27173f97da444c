/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_safetensors.c - any bytes as the header of a safetensors file, for libFuzzer. The first
 * eight bytes are the size of the data behind it. A header that is accepted tiles its data, and
 * every name finds its entry.
 */
#include "checkpoint/format/safetensors.h"

#include "tests/support/info.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_header(const rs_header *header, uint64_t data_bytes)
{
    uint64_t at = 0;
    for (int64_t i = 0; i < header->entry_count; i++) {
        const rs_header_entry *entry = &header->entries[i];
        uint64_t bytes = 0;
        int64_t found = rs_header_find(header, entry->name);
        if (entry->begin != at || found < 0 || header->by_name[found] != entry)
            abort();
        if (rs_stored_bytes(entry->name, entry->dtype, entry->ndim, entry->shape, &bytes) !=
                RESHARD_OK ||
            bytes != entry->end - entry->begin)
            abort();
        at = entry->end;
    }
    if (at != data_bytes)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reshard_context *context = NULL;
    rs_header *header = NULL;
    uint64_t data_bytes = 0;
    if (size < 8 || reshard_context_create(NULL, &context) != RESHARD_OK)
        return 0;
    for (int i = 7; i >= 0; i--)
        data_bytes = data_bytes << 8 | data[i];
    char *text = malloc(size - 8 + (size == 8));
    if (text == NULL)
        abort();
    memcpy(text, data + 8, size - 8);
    if (rs_header_parse(context, "input", text, size - 8, data_bytes, &header) == RESHARD_OK)
        check_header(header, data_bytes);
    else if (reshard_error_text()[0] == '\0')
        abort();
    rs_header_destroy(header);
    if (info_memory(context).bytes != 0)
        abort();
    reshard_context_destroy(context);
    free(text);
    return 0;
}
