/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip_write_files.c - writes zip files into a folder for test_zip_write.py, their blocks in a
 * scattered order and summed by several summers, as threads and ranks would.
 *
 *   small.zip   members of many sizes          inside.bin  the same, from byte 862 of a file on
 *   many.zip    70,000 members, more than the plain end record can count
 *   large.zip   a hole of 5 GiB, and a member behind it
 */
#include "checkpoint/archive/zip_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define SUMMERS 4

static void must(reshard_status status)
{
    if (status == RESHARD_OK)
        return;
    fprintf(stderr, "%s\n", reshard_error_text());
    exit(1);
}

static unsigned char content(size_t member, uint64_t place)
{
    return (unsigned char)(place * 31 + member * 7 + (place >> 8));
}

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return *state >> 33;
}

/* Blocks of random sizes, each second one first. */
static void write_member(rs_file *file, uint64_t at, size_t index, uint64_t bytes, rs_zip_sum *sum)
{
    static unsigned char block[5000];
    rs_zip_sum sums[SUMMERS] = {{0}};
    for (int turn = 0; turn < 2; turn++) {
        uint64_t state = index, offset = 0;
        for (int i = 0; offset < bytes; i++) {
            size_t count = (size_t)(draw(&state) % sizeof block) + 1;
            if (count > bytes - offset)
                count = (size_t)(bytes - offset);
            if (i % 2 != turn) {
                for (size_t k = 0; k < count; k++)
                    block[k] = content(index, offset + k);
                rs_zip_sum_add(&sums[i % SUMMERS], bytes, offset, block, count);
                must(rs_file_write(file, block, count, at + offset));
            }
            offset += count;
        }
    }
    for (int i = 0; i < SUMMERS; i++)
        rs_zip_sum_merge(sum, &sums[i]);
}

static rs_file *create(const char *folder, const char *name)
{
    char path[4096];
    rs_file *file = NULL;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    must(rs_file_create(NULL, path, &file));
    return file;
}

static void write_zip(rs_file *file, uint64_t begin, const rs_zip_entry *entries, size_t count)
{
    rs_zip_draft *draft = NULL;
    rs_zip_sum *sums = calloc(count, sizeof *sums);
    if (sums == NULL)
        abort();
    must(rs_zip_draft_create(NULL, entries, count, RS_ZIP_ALIGNMENT, &draft));
    must(rs_file_resize(file, begin + rs_zip_draft_bytes(draft), false));
    for (size_t i = count; i-- > 0;)
        write_member(file, begin + rs_zip_draft_data_at(draft, i), i, entries[i].bytes, &sums[i]);
    must(rs_zip_draft_finish(draft, file, begin, sums));
    rs_zip_draft_destroy(draft);
    free(sums);
    rs_file_close(file);
}

static void write_many(const char *folder)
{
    enum { COUNT = 70000 };
    static rs_zip_entry entries[COUNT];
    static char names[COUNT][24];
    for (size_t i = 0; i < COUNT; i++) {
        (void)snprintf(names[i], sizeof names[i], "many/data/%zu", i);
        entries[i] = (rs_zip_entry){rs_slice_of(names[i]), i % 3};
    }
    write_zip(create(folder, "many.zip"), 0, entries, COUNT);
}

/* The CRC of `bytes` zeros, by doubling. */
static uint32_t crc_of_zeros(uint64_t bytes)
{
    uLong crc = crc32(0, (const unsigned char *)"", 1), all = 0;
    for (uint64_t length = 1; bytes != 0; bytes /= 2, length *= 2) {
        if (bytes % 2 != 0)
            all = crc32_combine(all, crc, (z_off_t)length);
        crc = crc32_combine(crc, crc, (z_off_t)length);
    }
    return (uint32_t)all;
}

static void write_large(const char *folder)
{
    static const uint64_t hole = ((uint64_t)5 << 30) + 3;
    rs_zip_entry entries[] = {{rs_slice_of("large/first"), 10},
                              {rs_slice_of("large/hole"), hole},
                              {rs_slice_of("large/last"), 1000}};
    rs_zip_sum sums[3] = {{0}};
    rs_zip_draft *draft = NULL;
    rs_file *file = create(folder, "large.zip");
    must(rs_zip_draft_create(NULL, entries, 3, RS_ZIP_ALIGNMENT, &draft));
    must(rs_file_resize(file, rs_zip_draft_bytes(draft), false));
    for (size_t i = 0; i < 3; i += 2)
        write_member(file, rs_zip_draft_data_at(draft, i), i, entries[i].bytes, &sums[i]);
    sums[1] = (rs_zip_sum){hole, crc_of_zeros(hole)};
    must(rs_zip_draft_finish(draft, file, 0, sums));
    rs_zip_draft_destroy(draft);
    rs_file_close(file);
}

int main(int argc, char **argv)
{
    static const rs_zip_entry entries[] = {{{"archive/data.pkl", 16}, 1000},
                                           {{"archive/byteorder", 17}, 6},
                                           {{"archive/data/0", 14}, 0},
                                           {{"archive/data/1", 14}, 1},
                                           {{"archive/data/2", 14}, 63},
                                           {{"archive/data/3", 14}, 64},
                                           {{"archive/data/4", 14}, 65},
                                           {{"archive/data/5", 14}, 100003},
                                           {{"archive/\xc3\xa9/\xe2\x82\xac", 14}, 3000},
                                           {{"archive/version", 15}, 2}};
    size_t count = sizeof entries / sizeof entries[0];
    if (argc != 2)
        return 2;
    write_zip(create(argv[1], "small.zip"), 0, entries, count);
    write_zip(create(argv[1], "inside.bin"), 862, entries, count);
    write_zip(create(argv[1], "empty.zip"), 0, entries, 0);
    write_many(argv[1]);
    write_large(argv[1]);
    return 0;
}
