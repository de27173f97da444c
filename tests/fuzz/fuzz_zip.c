/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_zip.c - any bytes as a zip file, for libFuzzer. Members lie inside and apart, are found by
 * name, and give what they announce or an error; all memory comes back.
 */
#include "base/context.h"
#include "checkpoint/archive/zip.h"
#include "tests/support/info.h"

#include <stdlib.h>
#include <string.h>

#define MEMBERS_MAX 100
#define CONTENT_BYTES_MAX ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    const uint8_t *data;
    size_t size;
} input;

/* The input takes the place of a file that is surely there. */
static int64_t read_input(void *user, int descriptor, void *bytes, size_t count, uint64_t at)
{
    const input *from = user;
    (void)descriptor;
    if (at >= from->size)
        return 0;
    if (count > from->size - at)
        count = from->size - (size_t)at;
    memcpy(bytes, from->data + at, count);
    return (int64_t)count;
}

static void check_member(reshard_context *context, const rs_zip *zip, const rs_zip_member *member,
                         const input *from)
{
    char *bytes = NULL;
    size_t count = 0;
    if (member->at > from->size || member->stored_bytes > from->size - member->at ||
        rs_zip_find(zip, member->name) != member || rs_zip_name_fault(member->name) != NULL)
        abort();
    reshard_status status = rs_zip_read_all(zip, member, CONTENT_BYTES_MAX, &bytes, &count);
    if (status != RESHARD_OK) {
        if (reshard_error_text()[0] == '\0' ||
            (status != RESHARD_ERR_CORRUPT && status != RESHARD_ERR_RANGE))
            abort();
        return;
    }
    if (count != member->bytes ||
        (!member->deflated && memcmp(bytes, from->data + member->at, count) != 0) ||
        rs_zip_verify(zip, member) != RESHARD_OK)
        abort();
    rs_release(context, bytes);
}

static void check_zip(reshard_context *context, const rs_zip *zip, const input *from)
{
    size_t count = 0;
    const rs_zip_member *members = rs_zip_members(zip, &count);
    for (size_t i = 0; i < count && i < MEMBERS_MAX; i++) {
        check_member(context, zip, &members[i], from);
        for (size_t k = 0; k < i; k++) {
            const rs_zip_member *a = &members[i], *b = &members[k];
            if (a->at < b->at + b->stored_bytes && b->at < a->at + a->stored_bytes)
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input from = {data, size};
    rs_file_calls calls = *rs_file_calls_system();
    reshard_context *context = NULL;
    rs_file *file = NULL;
    rs_zip *zip = NULL;
    if (reshard_context_create(NULL, &context) != RESHARD_OK)
        return 0;
    calls.read = read_input;
    calls.user = &from;
    rs_file_calls_set(context, &calls);
    if (rs_file_open(context, "/proc/self/exe", &file) != RESHARD_OK)
        abort();
    if (rs_zip_open(context, file, 0, size, &zip) == RESHARD_OK)
        check_zip(context, zip, &from);
    else if (reshard_error_text()[0] == '\0')
        abort();
    rs_zip_destroy(zip);
    rs_file_close(file);
    if (info_memory(context).bytes != 0)
        abort();
    reshard_context_destroy(context);
    return 0;
}
