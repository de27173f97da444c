/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_index.c - any bytes as the index of a Hugging Face folder that has two files: "a" with
 * tensors x and y, "b" with y and z. What is refused has words; of what is accepted every tensor is
 * there and can be read.
 */
#include <reshard/checkpoint.h>

#include "tests/support/info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];
static const char *const names[] = {"a", "b", "model.safetensors.index.json"};

static void write_file(const char *name, const void *bytes, size_t count)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, count, file) != count || fclose(file) != 0)
        abort();
}

static void write_tensors(const char *name, char first, char second)
{
    unsigned char bytes[256] = {0};
    int count = snprintf((char *)bytes + 8, sizeof bytes - 8,
                         "{\"%c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                         "\"%c\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[2,3]}}",
                         first, second);
    bytes[0] = (unsigned char)count;
    write_file(name, bytes, 8 + (size_t)count + 3);
}

static void remove_folder(void)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)remove(path);
    }
    (void)rmdir(folder);
}

static void make_folder(void)
{
    (void)snprintf(folder, sizeof folder, "/dev/shm/reshard-fuzz-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        (void)snprintf(folder, sizeof folder, "/tmp/reshard-fuzz-XXXXXX");
        if (mkdtemp(folder) == NULL)
            abort();
    }
    (void)atexit(remove_folder);
    write_tensors("a", 'x', 'y');
    write_tensors("b", 'y', 'z');
}

static void check_tensors(const reshard_checkpoint *checkpoint)
{
    int64_t count = info_checkpoint(checkpoint).tensor_count;
    if (count > 3)
        abort();
    for (int64_t i = 0; i < count; i++) {
        reshard_stored_tensor tensor = {.size = sizeof tensor};
        unsigned char memory[2];
        int64_t found = -1;
        if (reshard_checkpoint_tensor(checkpoint, i, &tensor) != RESHARD_OK ||
            tensor.name_bytes != 1 || strchr("xyz", tensor.name[0]) == NULL || tensor.bytes > 2)
            abort();
        if (reshard_checkpoint_find(checkpoint, tensor.name, 1, &found) != RESHARD_OK || found != i)
            abort();
        if (reshard_checkpoint_read(checkpoint, i, NULL, memory, (size_t)tensor.bytes) !=
            RESHARD_OK)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reshard_context *context = NULL;
    reshard_checkpoint *checkpoint = NULL;
    if (folder[0] == '\0')
        make_folder();
    write_file(names[2], data, size);
    if (reshard_context_create(NULL, &context) != RESHARD_OK)
        return 0;
    if (reshard_checkpoint_open(context, folder, NULL, &checkpoint) == RESHARD_OK)
        check_tensors(checkpoint);
    else if (reshard_error_text()[0] == '\0')
        abort();
    reshard_checkpoint_destroy(checkpoint);
    if (info_memory(context).bytes != 0)
        abort();
    reshard_context_destroy(context);
    return 0;
}
