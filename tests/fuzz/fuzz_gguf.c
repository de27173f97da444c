/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_gguf.c - any bytes as a GGUF file. What is refused has words; of what is accepted every
 * tensor can be read, whole and in part, and the memory in use is bounded by the size of the file.
 */
#include "base/context.h"

#include "tests/support/info.h"

#include <reshard/checkpoint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define READ_BYTES_MAX ((uint64_t)1 << 20)

static char path[64];

static void remove_file(void)
{
    (void)remove(path);
}

static void write_input(const uint8_t *data, size_t size)
{
    if (path[0] == '\0') {
        (void)snprintf(path, sizeof path, "/dev/shm/reshard-fuzz-%ld.gguf", (long)getpid());
        (void)atexit(remove_file);
    }
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
}

/* Reads a tensor, and a box in the middle of it, which has to be the same there. */
static void read_tensor(const reshard_checkpoint *checkpoint, int64_t index)
{
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    if (reshard_checkpoint_tensor(checkpoint, index, &tensor) != RESHARD_OK)
        abort();
    if (tensor.bytes == 0 || tensor.bytes > READ_BYTES_MAX || tensor.opaque)
        return;
    reshard_box box = {.ndim = tensor.ndim};
    size_t count = 1, at = 0;
    for (int32_t d = 0; d < tensor.ndim; d++) {
        box.offset[d] = tensor.shape[d] / 3;
        box.size[d] = 1;
        at = at * (size_t)tensor.shape[d] + (size_t)box.offset[d];
    }
    if (tensor.ndim > 0) {
        box.size[tensor.ndim - 1] = tensor.shape[tensor.ndim - 1] - box.offset[tensor.ndim - 1];
        count = (size_t)box.size[tensor.ndim - 1];
    }
    size_t each = (size_t)reshard_dtype_bits(tensor.dtype) / 8;
    char *whole = malloc((size_t)tensor.bytes), *part = malloc(count * each);
    if (whole == NULL || part == NULL ||
        reshard_checkpoint_read(checkpoint, index, NULL, whole, (size_t)tensor.bytes) !=
            RESHARD_OK ||
        reshard_checkpoint_read(checkpoint, index, &box, part, count * each) != RESHARD_OK ||
        memcmp(whole + at * each, part, count * each) != 0)
        abort();
    free(whole);
    free(part);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reshard_context *context = NULL;
    reshard_checkpoint *checkpoint = NULL;
    const reshard_checkpoint_options options = {.size = sizeof options, .unreadable = 1};
    write_input(data, size);
    if (reshard_context_create(NULL, &context) != RESHARD_OK)
        abort();
    if (reshard_checkpoint_open(context, path, &options, &checkpoint) == RESHARD_OK) {
        if (info_memory(context).bytes > ((size_t)1 << 18) + 64 * size)
            abort();
        for (int64_t i = 0; i < info_checkpoint(checkpoint).tensor_count; i++)
            read_tensor(checkpoint, i);
        reshard_checkpoint_destroy(checkpoint);
    } else if (reshard_error_text()[0] == '\0') {
        abort();
    }
    if (info_memory(context).bytes != 0)
        abort();
    reshard_context_destroy(context);
    return 0;
}
