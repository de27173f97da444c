/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_file.c - the head of a GGUF file, byte by byte, and its data: one block again and again. */
#include "bench/common/sample_model.h"

#include "bench/common/folders.h"
#include "cli/common/failure.h"
#include "cli/common/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALIGNMENT = 32, KIND_U32 = 4, KIND_F32 = 6, KIND_TEXT = 8, CHUNK_BLOCKS = 4096 };

/* A type: ggml's number, and elements and bytes of a block. */
typedef struct gguf_type {
    uint32_t number;
    int64_t elements, bytes;
} gguf_type;

static const gguf_type f32_type = {0, 1, 4}, f16_type = {1, 1, 2}, q4_0_type = {2, 32, 18},
                       q4_k_type = {12, 256, 144};

typedef struct gguf_file {
    FILE *stream;
    const bench_sample_model *model;
    gguf_type matrices;
    uint64_t data_bytes;
} gguf_file;

/* ---- the head -------------------------------------------------------------------------------- */

static void put_number(const gguf_file *file, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        (void)putc((int)(number >> (8 * i) & 255), file->stream);
}

static void put_text(const gguf_file *file, const char *text)
{
    put_number(file, strlen(text), 8);
    (void)fputs(text, file->stream);
}

static void put_key(const gguf_file *file, const char *key, int64_t number)
{
    put_text(file, key);
    put_number(file, KIND_U32, 4);
    put_number(file, (uint64_t)number, 4);
}

static void put_values(const gguf_file *file)
{
    const bench_sample_model *model = file->model;
    const float epsilon = 1e-5F;
    uint32_t bits;
    memcpy(&bits, &epsilon, sizeof bits);
    put_text(file, "general.architecture");
    put_number(file, KIND_TEXT, 4);
    put_text(file, "llama");
    put_text(file, "llama.attention.layer_norm_rms_epsilon");
    put_number(file, KIND_F32, 4);
    put_number(file, bits, 4);
    put_key(file, "llama.block_count", model->layers);
    put_key(file, "llama.embedding_length", model->hidden);
    put_key(file, "llama.feed_forward_length", model->feed_forward);
    put_key(file, "llama.attention.head_count", model->heads);
    put_key(file, "llama.attention.head_count_kv", model->key_value_heads);
    put_key(file, "llama.attention.key_length", model->head_size);
}

enum { VALUE_COUNT = 8 };

static uint64_t tensor_bytes(const gguf_type *type, int64_t rows, int64_t columns)
{
    uint64_t bytes = (uint64_t)(rows * columns / type->elements * type->bytes);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Called for each tensor, in the order of the file. rows 0: a vector. */
typedef int tensor_fn(gguf_file *file, const char *name, int64_t rows, int64_t columns);

static int put_info(gguf_file *file, const char *name, int64_t rows, int64_t columns)
{
    const gguf_type *type = rows != 0 ? &file->matrices : &f32_type;
    put_text(file, name);
    put_number(file, rows != 0 ? 2 : 1, 4);
    put_number(file, (uint64_t)columns, 8);
    if (rows != 0)
        put_number(file, (uint64_t)rows, 8);
    put_number(file, type->number, 4);
    put_number(file, file->data_bytes, 8);
    file->data_bytes += tensor_bytes(type, rows != 0 ? rows : 1, columns);
    return CLI_DONE;
}

/* ---- the data -------------------------------------------------------------------------------- */

/* Fills a tensor with one block after the other. Scales are 2^-6, codes are any. */
static int put_data(gguf_file *file, const char *name, int64_t rows, int64_t columns)
{
    const gguf_type *type = rows != 0 ? &file->matrices : &f32_type;
    uint64_t left = tensor_bytes(type, rows != 0 ? rows : 1, columns);
    size_t chunk = (size_t)type->bytes * CHUNK_BLOCKS;
    unsigned char *bytes = cli_allocate(chunk, 1);
    const float one = 1;
    (void)name;
    for (size_t i = 0; i < chunk; i++) {
        size_t at = i % (size_t)type->bytes;
        bytes[i] = (unsigned char)(i * 2654435761U >> 16);
        if (type == &f32_type)
            memcpy(&bytes[i], (const char *)&one + at, 1);
        else if (at < 2 || (at < 4 && type->number == q4_k_type.number))
            bytes[i] = at % 2 == 0 ? 0x00 : 0x24;
    }
    while (left != 0 && ferror(file->stream) == 0) {
        size_t count = left < chunk ? (size_t)left : chunk;
        (void)fwrite(bytes, 1, count, file->stream);
        left -= count;
    }
    free(bytes);
    return CLI_DONE;
}

/* ---- the file -------------------------------------------------------------------------------- */

static void each_tensor(gguf_file *file, tensor_fn *call)
{
    const bench_sample_model *m = file->model;
    int64_t queries = m->heads * m->head_size, keys = m->key_value_heads * m->head_size;
    char name[64];
    const struct {
        const char *name;
        int64_t rows, columns;
    } layer[] = {{"attn_norm", 0, m->hidden},
                 {"attn_q", queries, m->hidden},
                 {"attn_k", keys, m->hidden},
                 {"attn_v", keys, m->hidden},
                 {"attn_output", m->hidden, queries},
                 {"ffn_norm", 0, m->hidden},
                 {"ffn_gate", m->feed_forward, m->hidden},
                 {"ffn_up", m->feed_forward, m->hidden},
                 {"ffn_down", m->hidden, m->feed_forward}};
    (void)call(file, "token_embd.weight", m->vocabulary, m->hidden);
    for (int64_t n = 0; n < m->layers; n++) {
        for (size_t i = 0; i < sizeof layer / sizeof layer[0]; i++) {
            (void)snprintf(name, sizeof name, "blk.%" PRId64 ".%s.weight", n, layer[i].name);
            (void)call(file, name, layer[i].rows, layer[i].columns);
        }
    }
    (void)call(file, "output_norm.weight", 0, m->hidden);
    if (!m->tied)
        (void)call(file, "output.weight", m->vocabulary, m->hidden);
}

static int fail(const char *path)
{
    return cli_fail(CLI_FAILED, "%s: cannot be written: %s", path, strerror(errno));
}

static void put_head(gguf_file *file)
{
    (void)fputs("GGUF", file->stream);
    put_number(file, 3, 4);
    put_number(file, (uint64_t)bench_sample_tensor_count(file->model), 8);
    put_number(file, VALUE_COUNT, 8);
    put_values(file);
    each_tensor(file, put_info);
    while (ftell(file->stream) % ALIGNMENT != 0)
        put_number(file, 0, 1);
}

int bench_gguf_write(cli_work *work, const char *folder, const bench_sample_model *model,
                     int is_quantised)
{
    int64_t queries = model->heads * model->head_size;
    int has_long_rows = (model->hidden | model->feed_forward | queries) % q4_k_type.elements == 0;
    gguf_file file = {.model = model, .matrices = f16_type};
    char *path = bench_path_add(folder, "/model.gguf");
    int code = CLI_DONE;
    (void)work;
    if (is_quantised)
        file.matrices = has_long_rows ? q4_k_type : q4_0_type;
    if (mkdir(folder, 0777) == 0)
        file.stream = fopen(path, "wb");
    if (file.stream == NULL) {
        code = fail(path);
        free(path);
        return code;
    }
    put_head(&file);
    if (is_quantised)
        each_tensor(&file, put_data);
    long head = is_quantised ? 0 : ftell(file.stream);
    if (fflush(file.stream) != 0 || ferror(file.stream) != 0 || head < 0 ||
        (!is_quantised && ftruncate(fileno(file.stream), head + (off_t)file.data_bytes) != 0))
        code = fail(path);
    if (fclose(file.stream) != 0 && code == CLI_DONE)
        code = fail(path);
    free(path);
    return code;
}
