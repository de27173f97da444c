/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/torch_zip.h"

#include "tests/fuzz/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 7, NUMBERS = 8192, LOCAL_BYTES = 30, ENTRY_BYTES = 46, END_BYTES = 22 };

static const char *const names[MEMBERS] = {"a/data.pkl", "a/data/0", "a/data/1", "a/data/2",
                                           "a/data/3",   "a/data/4", "a/data/5"};

/* A record and what stands in it: pairs of place and number, all of 4 bytes, until place -1. */
static void put(FILE *file, size_t bytes, const int64_t *fields)
{
    uint8_t record[ENTRY_BYTES] = {0};
    for (; fields[0] >= 0; fields += 2) {
        for (int64_t i = 0; i < 4; i++)
            record[fields[0] + i] = (uint8_t)((uint64_t)fields[1] >> (8 * i));
    }
    (void)fwrite(record, 1, bytes, file);
}

/* CRCs are 0, which nobody checks. */
static void put_local(FILE *file, const char *name, size_t bytes)
{
    const int64_t fields[] = {
        0, 0x04034b50, 18, (int64_t)bytes, 22, (int64_t)bytes, 26, (int64_t)strlen(name), -1};
    put(file, LOCAL_BYTES, fields);
    (void)fwrite(name, 1, strlen(name), file);
}

static void put_entry(FILE *file, const char *name, size_t bytes, long at)
{
    const int64_t fields[] = {0,  0x02014b50,     20, (int64_t)bytes,
                              24, (int64_t)bytes, 28, (int64_t)strlen(name),
                              42, (int64_t)at,    -1};
    put(file, ENTRY_BYTES, fields);
    (void)fwrite(name, 1, strlen(name), file);
}

void fuzz_write_torch(const char *path, const uint8_t *pickle, size_t count, const uint8_t *filler,
                      size_t storage_bytes)
{
    static uint64_t numbers[NUMBERS];
    long at[MEMBERS];
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        fuzz_find("cannot write", path);
    for (size_t i = 0; i < NUMBERS; i++)
        numbers[i] = i;
    for (int i = 0; i < MEMBERS; i++) {
        at[i] = ftell(file);
        put_local(file, names[i], i == 0 ? count : storage_bytes);
        const void *bytes = i == 0 ? (const void *)pickle : i == 1 ? (const void *)numbers : filler;
        (void)fwrite(bytes, 1, i == 0 ? count : storage_bytes, file);
    }
    long begin = ftell(file);
    for (int i = 0; i < MEMBERS; i++)
        put_entry(file, names[i], i == 0 ? count : storage_bytes, at[i]);
    const int64_t fields[] = {0,  0x06054b50, 8, MEMBERS | MEMBERS << 16, 12, ftell(file) - begin,
                              16, begin,      -1};
    put(file, END_BYTES, fields);
    (void)fclose(file);
}
