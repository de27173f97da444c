/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_file.h - files of torch.save: a pickle, and storages that it refers to by keys. There are
 * two containers: a zip file since PyTorch 1.6 and, before that, several pickles in a row with the
 * storages after them. This is a file body: formats keep it with their files, and ask it for the
 * pickle and for the places of tensors.
 */
#ifndef RS_CHECKPOINT_TORCH_TORCH_FILE_H
#define RS_CHECKPOINT_TORCH_TORCH_FILE_H

#include "checkpoint/archive/unpack.h"
#include "checkpoint/torch/torch_values.h"
#include "system/file.h"

#define RS_TORCH_RECORD_BYTES_MAX ((size_t)100000000)

typedef struct rs_torch_file rs_torch_file;

/* Local. Does the file look like one of torch.save? Reads its beginning, and the directory if it is
 * a zip file. Errors: IO. */
reshard_status rs_torch_file_is(reshard_context *context, const rs_file *file, bool *out_is);

/* Local. Opens what torch.save wrote into `count` bytes of the file from `begin` on. The file must
 * outlive it. Errors: CORRUPT, SYNTAX, as in zip.h and pickle.h; UNSUPPORTED for TorchScript,
 * big-endian files and the tar files of the first releases. */
reshard_status rs_torch_file_open(reshard_context *context, const rs_file *file, uint64_t begin,
                                  uint64_t count, rs_torch_file **out_opened);
/* NULL is allowed. The parameter is a void pointer so that this can be a body_destroy. */
void rs_torch_file_destroy(void *opened);

/* The pickle, which lives as long as the file is open. *out_bytes: its size, or a bit more. */
const rs_pickle *rs_torch_file_pickle(const rs_torch_file *opened, size_t *out_bytes);

/* Finds the byte of the file where a tensor begins. All its elements have been checked to lie
 * inside the file. If its storage is compressed, *out_member is the member that holds it, and
 * *out_at counts from the beginning of the member's content; else *out_member is NULL. Errors:
 * CORRUPT if the storage is missing or too short. */
reshard_status rs_torch_file_place(const rs_torch_file *opened, const rs_torch_tensor *tensor,
                                   uint64_t *out_at, const rs_zip_member **out_member);
/* The archive; NULL for a legacy file. Lives as long as the file is open. */
const rs_zip *rs_torch_file_zip(const rs_torch_file *opened);
/* Is this member of the archive the pickle? */
bool rs_torch_file_is_pickle(const rs_torch_file *opened, const rs_zip_member *member);

/* A slot where the caller keeps which file of the checkpoint the content of a compressed member has
 * become; -1 at first. NULL if out of memory. */
int32_t *rs_torch_file_made(rs_torch_file *opened, const rs_zip_member *member);
/* A slot for the decoders of these files, which the caller creates; NULL at first. Released with
 * the file. */
rs_unpacking **rs_torch_file_unpacking(rs_torch_file *opened);
/* Reads a record of the archive that torch ignores into the arena. out_text->bytes is NULL if there
 * is none. Errors: as in zip.h; RANGE if it is larger than RS_TORCH_RECORD_BYTES_MAX. */
reshard_status rs_torch_file_record(const rs_torch_file *opened, rs_arena *arena, const char *name,
                                    rs_slice *out_text);

#endif
