/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample_file.c - writes a safetensors header, then values made from a counter: each 8 bytes are a
 * hash of their position, so that no value depends on the one before.
 */
#include "bench/common/sample_model.h"

#include "cli/common/failure.h"
#include "cli/common/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_WORDS = 1 << 17, DATA_ALIGNMENT = 4096, LENGTH_BYTES = 8 };

static size_t element_bytes(reshard_dtype dtype)
{
    return dtype == RESHARD_BF16 ? 2 : 4;
}

uint64_t bench_sample_tensor_bytes(const bench_sample_tensor *tensor, reshard_dtype dtype)
{
    uint64_t bytes = element_bytes(dtype);
    for (int32_t d = 0; d < tensor->ndim; d++)
        bytes *= (uint64_t)tensor->shape[d];
    return bytes;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The final steps of splitmix64, applied to multiples of its odd constant. */
static uint64_t mix(uint64_t counter)
{
    uint64_t x = counter * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Fixes the upper bits of the exponent, so that no value is infinite or NaN. bf16 values are
 * truncated f32 values. */
static void fill(uint64_t *words, size_t count, uint64_t counter, reshard_dtype dtype)
{
    int is_bf16 = dtype == RESHARD_BF16;
    uint64_t kept = is_bf16 ? 0x83ff83ff83ff83ffu : 0x83ffffff83ffffffu;
    uint64_t fixed = is_bf16 ? 0x3c003c003c003c00u : 0x3c0000003c000000u;
    for (size_t i = 0; i < count; i++)
        words[i] = (mix(counter + i) & kept) | fixed;
}

/* ---- header ---------------------------------------------------------------------------------- */

typedef struct growing_text {
    char *bytes;
    size_t count, capacity;
} growing_text;

static void add(growing_text *text, const char *bytes)
{
    size_t count = strlen(bytes);
    text->bytes = cli_grow(text->bytes, &text->capacity, text->count + count + 1, 1);
    memcpy(text->bytes + text->count, bytes, count + 1);
    text->count += count;
}

/* Writes the header, preceded by its length and padded with spaces to the alignment of the data. */
static void write_header(growing_text *header, reshard_dtype dtype,
                         const bench_sample_tensor *tensors, int64_t count)
{
    uint64_t at = 0;
    add(header, "12345678{\"__metadata__\":{\"format\":\"pt\"}");
    for (int64_t i = 0; i < count; i++) {
        char line[256], columns[32] = "";
        const bench_sample_tensor *tensor = &tensors[i];
        uint64_t end = at + bench_sample_tensor_bytes(tensor, dtype);
        if (tensor->ndim == 2)
            snprintf(columns, sizeof columns, ",%" PRId64, tensor->shape[1]);
        snprintf(line, sizeof line,
                 ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRId64 "%s],\"data_offsets\":[%" PRIu64
                 ",%" PRIu64 "]}",
                 tensor->name, dtype == RESHARD_BF16 ? "BF16" : "F32", tensor->shape[0], columns,
                 at, end);
        add(header, line);
        at = end;
    }
    add(header, "}");
    while (header->count % DATA_ALIGNMENT != 0)
        add(header, " ");
    for (int i = 0; i < LENGTH_BYTES; i++)
        header->bytes[i] = (char)((uint64_t)(header->count - LENGTH_BYTES) >> (8 * i) & 0xff);
}

/* ---- files ----------------------------------------------------------------------------------- */

static int fail_write(const char *path)
{
    return cli_fail(CLI_FAILED, "%s: cannot be written: %s", path, strerror(errno));
}

static int write_values(cli_work *work, FILE *file, const char *path, reshard_dtype dtype,
                        uint64_t bytes, uint64_t *done, uint64_t total)
{
    uint64_t *words = cli_allocate(BUFFER_WORDS, sizeof *words);
    int code = CLI_DONE;
    /* Round up to a new position for each file, because file sizes need not be multiples of 8. */
    uint64_t counter = *done / sizeof *words + 1;
    while (bytes != 0 && code == CLI_DONE) {
        size_t part = BUFFER_WORDS * sizeof *words;
        part = bytes < part ? (size_t)bytes : part;
        fill(words, (part + sizeof *words - 1) / sizeof *words, counter, dtype);
        if (fwrite(words, 1, part, file) != part)
            code = fail_write(path);
        else if (cli_work_cancelled())
            code = cli_fail(CLI_FAILED, "cancelled");
        counter += BUFFER_WORDS;
        bytes -= part;
        *done += part;
        cli_work_report(work, "making a model", *done, total);
    }
    free(words);
    return code;
}

int bench_sample_file_write(cli_work *work, const char *path, reshard_dtype dtype,
                            const bench_sample_tensor *tensors, int64_t count, uint64_t *done,
                            uint64_t total)
{
    growing_text header = {0};
    uint64_t bytes = 0;
    FILE *file = fopen(path, "wbx");
    if (file == NULL)
        return fail_write(path);
    setvbuf(file, NULL, _IONBF, 0);
    for (int64_t i = 0; i < count; i++)
        bytes += bench_sample_tensor_bytes(&tensors[i], dtype);
    write_header(&header, dtype, tensors, count);
    int code = CLI_DONE;
    if (fwrite(header.bytes, 1, header.count, file) != header.count)
        code = fail_write(path);
    free(header.bytes);
    if (code == CLI_DONE)
        code = write_values(work, file, path, dtype, bytes, done, total);
    if (fclose(file) != 0 && code == CLI_DONE)
        code = fail_write(path);
    return code;
}

int bench_text_file_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "wbx");
    if (file == NULL)
        return fail_write(path);
    int code = fputs(text, file) < 0 ? fail_write(path) : CLI_DONE;
    if (fclose(file) != 0 && code == CLI_DONE)
        code = fail_write(path);
    return code;
}
