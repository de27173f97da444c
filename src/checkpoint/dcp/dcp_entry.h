/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_entry.h - one entry of a .distcp file: where the elements of a chunk lie. An entry is what
 * torch.save makes of one tensor, a zip file within the file. If the writer was told so, all
 * tensors of the file are one safetensors file instead. Either may be compressed with zstd.
 */
#ifndef RS_CHECKPOINT_DCP_DCP_ENTRY_H
#define RS_CHECKPOINT_DCP_DCP_ENTRY_H

#include "checkpoint/archive/unpack.h"
#include "checkpoint/dcp/dcp_metadata.h"

/* State shared by all entries that are read. */
typedef struct rs_dcp_entries {
    reshard_checkpoint *checkpoint;
    rs_unpacking *unpacking;
    bool unopened; /* entries are not opened; the metadata is believed */
} rs_dcp_entries;

/* Finds the array of a chunk, in `file` of the checkpoint or in a file that is added for it. If
 * entries are not opened, its place is that of the whole entry. Errors: CORRUPT if the entry is not
 * inside its file, or is not the tensor that the metadata describes; UNSUPPORTED; IO. */
reshard_status rs_dcp_entry_read(rs_dcp_entries *entries, const rs_dcp_entry *entry, int32_t file,
                                 const rs_dcp_tensor *tensor, const rs_dcp_chunk *chunk,
                                 rs_occurrence *out_occurrence);
/* Keeps an entry that is not a tensor as a value of the checkpoint. One of a kind (which may be
 * NULL) is not opened, as there may be very many. Errors: CORRUPT if the entry is not inside its
 * file; IO. */
reshard_status rs_dcp_entry_keep(rs_dcp_entries *entries, const rs_dcp_entry *entry, int32_t file,
                                 const rs_dcp_tensor *value, const char *kind);
/* Is such an entry the same as a value that was kept? Errors: as above. */
reshard_status rs_dcp_entry_is(rs_dcp_entries *entries, const rs_dcp_entry *entry, int32_t file,
                               const rs_stored_value *kept, bool *out_same);

#endif
