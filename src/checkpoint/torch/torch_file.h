/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_file.h - what torch.save writes: a pickle, and storages that it names by keys. Two
 * containers: a zip file (since PyTorch 1.6), and before that pickles in a row with the storages
 * behind them. This is a body: formats keep it with their files and ask it for the pickle and for
 * places of tensors.
 */
#ifndef RS_CHECKPOINT_FORMAT_TORCH_FILE_H
#define RS_CHECKPOINT_FORMAT_TORCH_FILE_H

#include "checkpoint/archive/unpack.h"
#include "checkpoint/torch/torch_values.h"
#include "system/file.h"

#define RS_TORCH_RECORD_BYTES_MAX ((size_t)100000000)

typedef struct rs_torch_file rs_torch_file;

/* Local. Whether the bytes look like what torch.save writes: reads the beginning of the file, and
 * the directory of a zip file. Errors: IO. */
reshard_status rs_torch_file_is(reshard_context *context, const rs_file *file, bool *out_is);

/* Local. Opens what torch.save wrote into `count` bytes of the file from `begin` on. The file must
 * outlive it. Errors: CORRUPT, SYNTAX, as of zip.h and pickle.h; UNSUPPORTED for TorchScript,
 * big-endian files and tar files of the first releases. */
reshard_status rs_torch_file_open(reshard_context *context, const rs_file *file, uint64_t begin,
                                  uint64_t count, rs_torch_file **out_opened);
/* Takes NULL. Its first parameter is void so that it can be a body's destroyer. */
void rs_torch_file_destroy(void *opened);

/* Lives as long as the file is open. *out_bytes: its size, or more. */
const rs_pickle *rs_torch_file_pickle(const rs_torch_file *opened, size_t *out_bytes);

/* The byte of the file where a tensor begins: all its elements have been checked to lie inside the
 * file. *out_member: the member of the zip that holds the storage, if that is compressed, and then
 * *out_at counts from the beginning of its content; else NULL. Errors: CORRUPT when the storage is
 * missing or too short. */
reshard_status rs_torch_file_place(const rs_torch_file *opened, const rs_torch_tensor *tensor,
                                   uint64_t *out_at, const rs_zip_member **out_member);
/* NULL for the container of old. Lives as long as the file is open. */
const rs_zip *rs_torch_file_zip(const rs_torch_file *opened);

/* Which file of a checkpoint the content of a compressed member has become, for the caller to keep;
 * -1 at first. NULL as rs_allocate. */
int32_t *rs_torch_file_made(rs_torch_file *opened, const rs_zip_member *member);
/* The decoders of such files, for the caller to create; NULL at first. Released with the file. */
rs_unpacking **rs_torch_file_unpacking(rs_torch_file *opened);
/* A record of a zip file that torch does not look at, in the arena. *out_text has bytes NULL when
 * there is none. Errors: as of zip.h; RANGE beyond RS_TORCH_RECORD_BYTES_MAX. */
reshard_status rs_torch_file_record(const rs_torch_file *opened, rs_arena *arena, const char *name,
                                    rs_slice *out_text);

#endif
