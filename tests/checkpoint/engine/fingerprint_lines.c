/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint_lines.c - digests for test_fingerprint.py to compare. Each line of the input is
 *   run PLACE HEX            prints the two remainders of a run at a place
 *   tensor DTYPE SHAPE HEX   prints the digest; the bytes go in as two runs, the second one first
 *   checkpoint NAME DIGEST NAME DIGEST ...
 * "-" stands for no bytes. With "plain" as argument without carry-less multiply.
 */
#include "checkpoint/engine/fingerprint_code.h"

#include <reshard/layout.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 100000
#define WORDS_MAX 64

static int value_of(char digit)
{
    return digit <= '9' ? digit - '0' : digit - 'a' + 10;
}

static size_t read_hex(const char *text, unsigned char *out_bytes)
{
    size_t count = text[0] == '-' ? 0 : strlen(text) / 2;
    for (size_t i = 0; i < count; i++)
        out_bytes[i] = (unsigned char)(value_of(text[2 * i]) * 16 + value_of(text[2 * i + 1]));
    return count;
}

static void hand_over(void *user, int64_t index, rs_fingerprint_entry *out_entry)
{
    char **pairs = user;
    *out_entry =
        (rs_fingerprint_entry){pairs[2 * index], strlen(pairs[2 * index]), pairs[2 * index + 1]};
}

static void answer(const rs_fingerprint_code *code, char **items, int count)
{
    static unsigned char bytes[LINE_MAX_BYTES];
    char text[RS_FINGERPRINT_TEXT] = "";
    rs_fingerprint_writer writer;
    reshard_status status = RESHARD_OK;
    rs_fingerprint_begin(&writer, code);
    if (strcmp(items[0], "run") == 0) {
        size_t size = read_hex(items[2], bytes);
        rs_fingerprint_add_run(&writer, strtoull(items[1], NULL, 10), bytes, size);
        printf("%016" PRIx64 "%016" PRIx64 "\n", writer.sum.remainder[0], writer.sum.remainder[1]);
        return;
    }
    if (strcmp(items[0], "tensor") == 0) {
        int64_t shape[RESHARD_NDIM_MAX];
        int32_t ndim = 0;
        reshard_dtype dtype = RESHARD_U8;
        status = reshard_dtype_parse(items[1], &dtype);
        if (status == RESHARD_OK)
            status = reshard_shape_parse(items[2], &ndim, shape);
        size_t size = read_hex(items[3], bytes);
        rs_fingerprint_add_run(&writer, size / 3, bytes + size / 3, size - size / 3);
        rs_fingerprint_add_run(&writer, 0, bytes, size / 3);
        if (status == RESHARD_OK)
            status = rs_fingerprint_final(code, &writer.sum, dtype, ndim, shape, text);
    } else {
        status = rs_fingerprint_checkpoint(code, count / 2, hand_over, items + 1, text);
    }
    puts(status == RESHARD_OK ? text : reshard_error_text());
}

int main(int argc, char **argv)
{
    static char line[LINE_MAX_BYTES];
    rs_fingerprint_code *code = NULL;
    if (rs_fingerprint_code_create(NULL, &code) != RESHARD_OK)
        return 1;
    if (argc > 1 && strcmp(argv[1], "plain") == 0) {
        code->remainder = rs_remainder_by_tables;
        code->multiply = rs_multiply_by_bits;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *items[WORDS_MAX], *rest = NULL;
        int count = 0;
        for (char *item = strtok_r(line, " \n", &rest); item != NULL && count < WORDS_MAX;
             item = strtok_r(NULL, " \n", &rest))
            items[count++] = item;
        if (count > 0)
            answer(code, items, count);
    }
    rs_fingerprint_code_destroy(code);
    return 0;
}
