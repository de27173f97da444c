/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.h - the checkpoint that a conversion shall write: which tensors, which box of each in
 * which file, and where there. Nothing here touches a file; writing is then reads and writes at
 * places that are known before the first of them.
 *
 * Files are numbered as the positions of the mesh with their ranks in increasing order. In each
 * file tensors whose bytes are a multiple of 4096 come first, so that with the data section on such
 * a boundary as well the file system can share them; the others follow by falling element size, so
 * that each is aligned. Among equals the order is that of names: the same checkpoint is the same
 * bytes, whatever it was converted from.
 */
#ifndef RS_CHECKPOINT_FORMAT_TARGET_H
#define RS_CHECKPOINT_FORMAT_TARGET_H

#include <reshard/checkpoint_live.h>

#include "base/json_writer.h"
#include "checkpoint/rules/select.h"

/* One tensor of one safetensors file. */
typedef struct rs_target_entry {
    rs_slice key;
    int64_t tensor; /* of the target's tensors */
    int32_t file;
    int32_t ndim; /* of the entry: that of local memory */
    const int64_t *shape;
    int64_t piece_first, piece_count; /* of the tensor's pieces, which lie in it */
    uint64_t bytes;
    uint64_t begin; /* in the data section */
    bool is_flat;   /* of rank files: its shape does not tell that of the tensor */
} rs_target_entry;

typedef struct rs_target_file {
    const char *name; /* NULL: has nothing to hold and is not written */
    int64_t entry_first, entry_count;
    int64_t flat_count; /* of entries */
    uint64_t data_begin;
    uint64_t bytes; /* of the whole file */
} rs_target_file;

typedef struct rs_target {
    reshard_context *context;
    rs_arena arena;
    reshard_checkpoint_kind format;
    int64_t tensor_count;
    rs_stored_tensor *tensors; /* pieces with places in the target's files */
    int64_t *origins;          /* of each, the source's tensor, or the live one */
    int64_t name_count;        /* of live tensors; else 0 */
    rs_slice *names;
    int64_t entry_count, entry_capacity;
    rs_target_entry *entries; /* by file, then by place */
    int32_t file_count;
    int32_t written_count; /* of which those that are written */
    rs_target_file *files;
    uint64_t bytes; /* of all files */
    char rules[256];
} rs_target;

reshard_status rs_target_init(rs_target *target, const reshard_checkpoint *source,
                              const reshard_convert_options *options);
/* The same for tensors that ranks 0 .. file_count-1 hold, in DCP's format: files are ranks. */
reshard_status rs_target_init_live(rs_target *target, reshard_context *context, int32_t file_count,
                                   int64_t count, const reshard_live_tensor *tensors);
void rs_target_release(rs_target *target);

/* The first bytes of a file, up to where its data begin. */
reshard_status rs_target_header(const rs_target *target, int32_t file, rs_json_writer *writer);
/* The same, into the file. */
reshard_status rs_target_write_header(const rs_target *target, int32_t index, rs_file *file);
/* The index of an HF target of several files. */
reshard_status rs_target_index(const rs_target *target, rs_json_writer *writer);

/* ---- inside ---------------------------------------------------------------------------------- */

/* Cuts all tensors over a mesh by rules (target_cut.c). loads has a number for each file. */
reshard_status rs_target_cut(rs_target *target, const reshard_checkpoint *source,
                             const rs_rulebook *book, const rs_selection *selection);
reshard_status rs_target_cut_live(rs_target *target, const reshard_live_tensor *tensors);
reshard_status rs_target_add_entry(rs_target *target, const rs_target_entry *entry);

#endif
