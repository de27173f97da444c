/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_files.c - zip files of two members, written front to back: the pickle, and one flat array
 * that holds the rank's share of every parameter. Their sizes are known before the data, so the
 * shares of all ranks can be written while tensors are read one after the other.
 */
#include "bench/common/sample_model.h"
#include "cli/common/failure.h"
#include "cli/common/input.h"
#include "cli/common/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { RANKS_MAX = 64, NAME_ROOM = 1024 };

typedef struct zero_bytes {
    char *items;
    size_t count, room;
} zero_bytes;

typedef struct zero_writing {
    const reshard_checkpoint *checkpoint;
    const char *folder;
    int ranks;
    FILE *files[RANKS_MAX];
    uint64_t elements; /* in the flat array of a rank */
    zero_bytes pickle;
} zero_writing;

/* ---- bytes ----------------------------------------------------------------------------------- */

static void add(zero_bytes *bytes, const void *items, size_t count)
{
    if (bytes->count + count > bytes->room) {
        size_t room = 2 * (bytes->count + count);
        char *grown = cli_allocate(room, 1);
        if (bytes->count != 0)
            memcpy(grown, bytes->items, bytes->count);
        free(bytes->items);
        bytes->items = grown;
        bytes->room = room;
    }
    memcpy(bytes->items + bytes->count, items, count);
    bytes->count += count;
}

static void add_number(zero_bytes *bytes, uint64_t number, int width)
{
    for (int i = 0; i < width; i++) {
        char byte = (char)(number >> 8 * i & 0xff);
        add(bytes, &byte, 1);
    }
}

static void add_opcodes(zero_bytes *bytes, const char *opcodes)
{
    add(bytes, opcodes, strlen(opcodes));
}

static void add_text(zero_bytes *bytes, const char *text, size_t length)
{
    add_opcodes(bytes, "X");
    add_number(bytes, length, 4);
    add(bytes, text, length);
}

static void add_key(zero_bytes *bytes, const char *key)
{
    add_text(bytes, key, strlen(key));
}

static void add_integer(zero_bytes *bytes, uint64_t number)
{
    add_opcodes(bytes, "\x8a\x08");
    add_number(bytes, number, 8);
}

/* ---- pickles --------------------------------------------------------------------------------- */

/* torch._utils._rebuild_tensor_v2 of a storage that it fills. */
static void add_flat(zero_bytes *bytes, uint64_t elements)
{
    add_opcodes(bytes, "ctorch._utils\n_rebuild_tensor_v2\n((");
    add_key(bytes, "storage");
    add_opcodes(bytes, "ctorch\nFloatStorage\n");
    add_key(bytes, "0");
    add_key(bytes, "cpu");
    add_integer(bytes, elements);
    add_opcodes(bytes, "tQ");
    add_integer(bytes, 0);
    add_integer(bytes, elements);
    add_opcodes(bytes, "\x85");
    add_integer(bytes, 1);
    add_opcodes(bytes, "\x85\x89"
                       "ccollections\nOrderedDict\n)RtR");
}

static void pickle_optimizer(zero_writing *w)
{
    zero_bytes *bytes = &w->pickle;
    bytes->count = 0;
    add_opcodes(bytes, "\x80\x02}(");
    add_key(bytes, "optimizer_state_dict");
    add_opcodes(bytes, "}(");
    add_key(bytes, "zero_stage");
    add_integer(bytes, 3);
    add_key(bytes, "partition_count");
    add_integer(bytes, (uint64_t)w->ranks);
    add_key(bytes, "fp32_flat_groups");
    add_opcodes(bytes, "](");
    add_flat(bytes, w->elements);
    add_opcodes(bytes, "e");
    add_key(bytes, "optimizer_state_dict");
    add_opcodes(bytes, "}(");
    add_key(bytes, "state");
    add_opcodes(bytes, "}");
    add_key(bytes, "param_groups");
    add_opcodes(bytes, "]uuu.");
}

static reshard_status pickle_model(zero_writing *w)
{
    zero_bytes *bytes = &w->pickle;
    bytes->count = 0;
    add_opcodes(bytes, "\x80\x02}(");
    add_key(bytes, "module");
    add_opcodes(bytes, "}");
    add_key(bytes, "buffer_names");
    add_opcodes(bytes, "]");
    add_key(bytes, "shared_params");
    add_opcodes(bytes, "}");
    add_key(bytes, "param_shapes");
    add_opcodes(bytes, "](}(");
    for (int64_t i = 0; i < cli_checkpoint_info(w->checkpoint).tensor_count; i++) {
        reshard_stored_tensor tensor = {.size = sizeof tensor};
        reshard_status status = reshard_checkpoint_tensor(w->checkpoint, i, &tensor);
        if (status != RESHARD_OK)
            return status;
        add_text(bytes, tensor.name, tensor.name_bytes);
        add_opcodes(bytes, "(");
        for (int32_t d = 0; d < tensor.ndim; d++)
            add_integer(bytes, (uint64_t)tensor.shape[d]);
        add_opcodes(bytes, "t");
    }
    add_opcodes(bytes, "ueu.");
    return RESHARD_OK;
}

/* ---- archives -------------------------------------------------------------------------------- */

static uint32_t crc_of(const zero_bytes *bytes)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < bytes->count; i++) {
        crc ^= (unsigned char)bytes->items[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

/* The fields that the two headers of a member share. A CRC of 0 is one that nobody computed. */
static void add_fields(zero_bytes *bytes, uint32_t crc, uint64_t size, const char *name)
{
    add_number(bytes, 0, 8); /* flags, method: stored, time, date */
    add_number(bytes, crc, 4);
    add_number(bytes, size, 4);
    add_number(bytes, size, 4);
    add_number(bytes, strlen(name), 2);
    add_number(bytes, 0, 2);
}

static void write_header(FILE *file, uint32_t crc, uint64_t size, const char *name)
{
    zero_bytes bytes = {0};
    add_opcodes(&bytes, "PK\3\4\24");
    add_number(&bytes, 0, 1);
    add_fields(&bytes, crc, size, name);
    add_opcodes(&bytes, name);
    (void)fwrite(bytes.items, 1, bytes.count, file);
    free(bytes.items);
}

static void add_entry(zero_bytes *bytes, uint32_t crc, uint64_t size, const char *name, uint64_t at)
{
    add_opcodes(bytes, "PK\1\2\24");
    add_number(bytes, 0, 1);
    add_opcodes(bytes, "\24");
    add_number(bytes, 0, 1);
    add_fields(bytes, crc, size, name);
    add_number(bytes, 0, 10);
    add_number(bytes, at, 4);
    add_opcodes(bytes, name);
}

#define PICKLE_NAME "archive/data.pkl"
#define DATA_NAME "archive/data/0"

static FILE *begin_file(const zero_writing *w, const char *name, uint64_t data_bytes)
{
    char path[NAME_ROOM];
    (void)snprintf(path, sizeof path, "%s/%s", w->folder, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return NULL;
    write_header(file, crc_of(&w->pickle), w->pickle.count, PICKLE_NAME);
    (void)fwrite(w->pickle.items, 1, w->pickle.count, file);
    if (data_bytes != 0)
        write_header(file, 0, data_bytes, DATA_NAME);
    return file;
}

/* Writes the directory. False if anything could not be written. */
static int end_file(const zero_writing *w, FILE *file, uint64_t data_bytes)
{
    zero_bytes bytes = {0};
    uint64_t second = 30 + strlen(PICKLE_NAME) + w->pickle.count;
    uint64_t end = second + (data_bytes != 0 ? 30 + strlen(DATA_NAME) + data_bytes : 0);
    uint64_t count = data_bytes != 0 ? 2 : 1;
    add_entry(&bytes, crc_of(&w->pickle), w->pickle.count, PICKLE_NAME, 0);
    if (data_bytes != 0)
        add_entry(&bytes, 0, data_bytes, DATA_NAME, second);
    uint64_t directory = bytes.count;
    add_opcodes(&bytes, "PK\5\6");
    add_number(&bytes, 0, 4);
    add_number(&bytes, count, 2);
    add_number(&bytes, count, 2);
    add_number(&bytes, directory, 4);
    add_number(&bytes, end, 4);
    add_number(&bytes, 0, 2);
    (void)fwrite(bytes.items, 1, bytes.count, file);
    free(bytes.items);
    int failed = ferror(file);
    return fclose(file) == 0 && !failed;
}

/* ---- shares ---------------------------------------------------------------------------------- */

static uint64_t share_of(uint64_t elements, int ranks)
{
    return (elements + (uint64_t)ranks - 1) / (uint64_t)ranks;
}

static reshard_status count_elements(zero_writing *w)
{
    for (int64_t i = 0; i < cli_checkpoint_info(w->checkpoint).tensor_count; i++) {
        reshard_stored_tensor tensor = {.size = sizeof tensor};
        reshard_status status = reshard_checkpoint_tensor(w->checkpoint, i, &tensor);
        if (status != RESHARD_OK)
            return status;
        w->elements += share_of(tensor.bytes / 4, w->ranks);
    }
    return RESHARD_OK;
}

/* Writes a tensor's shares, with zeros at the end of the last. */
static reshard_status write_tensor(const zero_writing *w, int64_t index)
{
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    reshard_status status = reshard_checkpoint_tensor(w->checkpoint, index, &tensor);
    if (status != RESHARD_OK)
        return status;
    size_t share = (size_t)share_of(tensor.bytes / 4, w->ranks) * 4;
    char *memory = cli_allocate(share * (size_t)w->ranks + 1, 1);
    memset(memory, 0, share * (size_t)w->ranks);
    status = reshard_checkpoint_read(w->checkpoint, index, NULL, memory, tensor.bytes);
    for (int rank = 0; status == RESHARD_OK && rank < w->ranks; rank++)
        (void)fwrite(memory + share * (size_t)rank, 1, share, w->files[rank]);
    free(memory);
    return status;
}

static int write_optimizers(zero_writing *w)
{
    uint64_t bytes = 4 * w->elements;
    reshard_status status = RESHARD_OK;
    int done = 1, opened = 0;
    if (bytes > UINT32_MAX / 2)
        return cli_fail(CLI_FAILED, "%" PRIu64 " bytes for each rank are too many here", bytes);
    pickle_optimizer(w);
    while (opened < w->ranks && done) {
        char name[96];
        (void)snprintf(name, sizeof name, "zero_pp_rank_%d_mp_rank_00_optim_states.pt", opened);
        w->files[opened] = begin_file(w, name, bytes);
        done = w->files[opened] != NULL;
        opened += done;
    }
    for (int64_t i = 0; done && status == RESHARD_OK; i++) {
        if (i == cli_checkpoint_info(w->checkpoint).tensor_count)
            break;
        status = write_tensor(w, i);
    }
    for (int rank = 0; rank < opened; rank++)
        done = end_file(w, w->files[rank], bytes) && done;
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    return done ? CLI_DONE
                : cli_fail(CLI_FAILED, "%s: cannot be written: %s", w->folder, strerror(errno));
}

static int write_models(zero_writing *w)
{
    reshard_status status = pickle_model(w);
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    for (int rank = 0; rank < w->ranks; rank++) {
        char name[96];
        (void)snprintf(name, sizeof name, "zero_pp_rank_%d_mp_rank_00_model_states.pt", rank);
        FILE *file = begin_file(w, name, 0);
        if (file == NULL || !end_file(w, file, 0))
            return cli_fail(CLI_FAILED, "%s: cannot be written: %s", w->folder, strerror(errno));
    }
    return CLI_DONE;
}

int bench_zero_write(cli_work *work, const char *whole, const char *folder, int ranks)
{
    reshard_checkpoint *checkpoint = NULL;
    zero_writing w = {.folder = folder, .ranks = ranks < RANKS_MAX ? ranks : RANKS_MAX};
    if (mkdir(folder, 0777) != 0)
        return cli_fail(CLI_FAILED, "%s: cannot be made: %s", folder, strerror(errno));
    reshard_status status = reshard_checkpoint_open(work->context, whole, NULL, &checkpoint);
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    w.checkpoint = checkpoint;
    status = count_elements(&w);
    int code = status == RESHARD_OK ? write_optimizers(&w) : cli_fail_status(status);
    if (code == CLI_DONE)
        code = write_models(&w);
    free(w.pickle.items);
    reshard_checkpoint_destroy(checkpoint);
    return code;
}
