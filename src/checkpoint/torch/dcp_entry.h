/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_entry.h - one entry of a .distcp file: where the elements of a chunk lie in it. An entry is
 * what torch.save makes of one tensor, a zip file of its own inside of the file; or, where the
 * writer was told so, all tensors of the file are one safetensors file. Either may be compressed by
 * zstd.
 */
#ifndef RS_CHECKPOINT_FORMAT_DCP_ENTRY_H
#define RS_CHECKPOINT_FORMAT_DCP_ENTRY_H

#include "checkpoint/archive/unpack.h"
#include "checkpoint/torch/dcp_metadata.h"

/* What is open while entries are read. */
typedef struct rs_dcp_entries {
    reshard_checkpoint *checkpoint;
    rs_unpacking *unpacking;
    bool unopened; /* chunks are taken as the metadata describes them */
} rs_dcp_entries;

/* The array that a chunk is, in `file` of the checkpoint, or in a file that is added for it.
 * Where entries are not opened, the place is the entry's own. Errors: CORRUPT when the entry is not
 * inside its file, or is not the tensor that the metadata describes; UNSUPPORTED; IO. */
reshard_status rs_dcp_entry_read(rs_dcp_entries *entries, const rs_dcp_entry *entry, int32_t file,
                                 const rs_dcp_tensor *tensor, const rs_dcp_chunk *chunk,
                                 rs_occurrence *out_occurrence);
/* Bytes that are no tensor, kept with the checkpoint. Errors: CORRUPT when the entry is not inside
 * its file; IO. */
reshard_status rs_dcp_entry_keep(rs_dcp_entries *entries, const rs_dcp_entry *entry, int32_t file,
                                 const rs_dcp_tensor *value);
/* Whether such an entry is the same as a value that was kept. Errors: as above. */
reshard_status rs_dcp_entry_is(rs_dcp_entries *entries, const rs_dcp_entry *entry, int32_t file,
                               const rs_stored_value *kept, bool *out_same);

#endif
