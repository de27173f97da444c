/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip_lines.c - opens zip files and writes what is in them, for test_zip.py.
 *
 *   zip-lines FILE BEGIN COUNT ...     COUNT -1: to the end
 *
 * For each file one line with the number of members, or "error STATUS: words"; for each member its
 * name, where its data begin, sizes, CRC, "deflated" or "stored", and the Adler-32 of its content
 * or the error of reading it.
 */
#include "checkpoint/archive/zip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static void print_error(reshard_status status)
{
    printf("error %d: %s\n", (int)status, reshard_error_text());
}

/* Reads in parts of many sizes. */
static void print_content(const rs_zip *zip, const rs_zip_member *member)
{
    static unsigned char bytes[100000];
    rs_zip_reader *reader = NULL;
    uLong sum = adler32(0, NULL, 0);
    size_t done = 1, count = 1;
    reshard_status status = rs_zip_reader_create(zip, member, &reader);
    for (; status == RESHARD_OK && done != 0; count = count * 3 % 99991 + 1) {
        status = rs_zip_reader_read(reader, bytes, count, &done);
        if (status == RESHARD_OK)
            sum = adler32(sum, bytes, (unsigned)done);
    }
    rs_zip_reader_destroy(reader);
    reshard_status verdict = rs_zip_verify(zip, member);
    if (verdict != status)
        abort();
    if (status == RESHARD_OK)
        printf("%lu\n", sum);
    else
        print_error(status);
}

static void print_zip(const rs_zip *zip)
{
    size_t count = 0;
    const rs_zip_member *members = rs_zip_members(zip, &count);
    printf("%zu members\n", count);
    for (size_t i = 0; i < count; i++) {
        const rs_zip_member *member = &members[i];
        if (rs_zip_find(zip, member->name) != member)
            abort();
        for (size_t k = 0; k < member->name.count; k++)
            printf("%02x", (unsigned char)member->name.bytes[k]);
        printf(" %llu %llu %llu %lu %s ", (unsigned long long)member->at,
               (unsigned long long)member->stored_bytes, (unsigned long long)member->bytes,
               (unsigned long)member->crc, member->deflated ? "deflated" : "stored");
        print_content(zip, member);
    }
    if (rs_zip_find(zip, rs_slice_of("no such member")) != NULL)
        abort();
}

int main(int argc, char **argv)
{
    for (int i = 1; i + 2 < argc; i += 3) {
        rs_file *file = NULL;
        rs_zip *zip = NULL;
        uint64_t begin = strtoull(argv[i + 1], NULL, 10), count = 0;
        reshard_status status = rs_file_open(NULL, argv[i], &file);
        if (status == RESHARD_OK)
            status = rs_file_size(file, &count);
        count -= begin;
        if (strcmp(argv[i + 2], "-1") != 0)
            count = strtoull(argv[i + 2], NULL, 10);
        if (status == RESHARD_OK)
            status = rs_zip_open(NULL, file, begin, count, &zip);
        if (status == RESHARD_OK)
            print_zip(zip);
        else
            print_error(status);
        rs_zip_destroy(zip);
        rs_file_close(file);
    }
    return 0;
}
