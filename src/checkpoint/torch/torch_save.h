/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_save.h - targets whose files are those of torch.save: zip files with the pickle, the
 * storages of all entries, and the records that torch looks for. Places are known beforehand; the
 * archive's headers are written last, with the CRCs of all data.
 */
#ifndef RS_CHECKPOINT_TORCH_TORCH_SAVE_H
#define RS_CHECKPOINT_TORCH_TORCH_SAVE_H

#include "checkpoint/torch/torch_nest.h"

/* How a format writes such files. */
typedef struct rs_torch_style {
    rs_torch_entry_fn *write; /* writes the tensor of an entry */
    /* Writes the whole pickle of a file, from its beginning; NULL: values and tensors are nested as
     * in the source. */
    reshard_status (*write_root)(rs_pickle_writer *writer, const rs_target *target, int32_t file);
    /* One more record; name NULL: none. A file for which nothing is written has none. */
    const char *record_name;
    void (*write_record)(rs_json_writer *writer, const rs_target *target, int32_t file);
} rs_torch_style;

/* For rs_format's place and finish. */
reshard_status rs_torch_save_place(rs_target *target, int32_t file, const rs_torch_style *style);
reshard_status rs_torch_save_finish(const rs_target *target, const rs_finishing *finishing,
                                    const rs_torch_style *style);
/* For rs_format's write_head: nothing can be written before the data. */
reshard_status rs_torch_save_head(const rs_target *target, int32_t file, rs_json_writer *writer);

/* An rs_torch_entry_fn that writes a plain, dense tensor. */
void rs_torch_save_plain(rs_pickle_writer *writer, const rs_target *target,
                         const rs_target_entry *entry, rs_slice key);

#endif
