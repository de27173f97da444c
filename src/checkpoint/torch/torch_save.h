/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_save.h - targets whose files are those of torch.save: zip files with the pickle, the
 * storages of all entries, and the records that torch looks for. Places are known beforehand; the
 * archive's headers are written last, with the CRCs of all data.
 */
#ifndef RS_CHECKPOINT_TORCH_TORCH_SAVE_H
#define RS_CHECKPOINT_TORCH_TORCH_SAVE_H

#include "checkpoint/archive/pickle.h"
#include "checkpoint/archive/pickle_write.h"
#include "checkpoint/target/target.h"

/*
 * torch_nest.c - writes the pickle of a torch.save file: tensors and values go back into the nested
 * dicts and lists they came from, or into one dict by name if the source does not nest.
 *
 * A tensor with a new name goes where the part that both names share, at their beginning or end,
 * puts it; the rest of the name is one key. Keys are sorted, so that the same tensors give the same
 * bytes. Tuples become lists, and a list with missing items becomes a dict by number.
 */

/* Writes the tensor of an entry. key: the key of its storage. */
typedef void rs_torch_entry_fn(rs_pickle_writer *writer, const rs_target *target,
                               const rs_target_entry *entry, rs_slice key);

/* Writes the pickle of one file of a target. The key of an entry's storage is its number in the
 * file. Errors: INVALID if one tensor or value would have to lie inside another. */
reshard_status rs_torch_nest_write(const rs_target *target, int32_t file, rs_torch_entry_fn *write,
                                   rs_pickle_writer *writer);

/* Writes a value for which rs_torch_nest_holds is true. */
void rs_torch_nest_write_value(rs_pickle_writer *writer, const rs_pickle_node *node);
/* For rs_format's holds_value: can a file for torch.load(weights_only=True) hold the value? */
bool rs_torch_nest_holds(const rs_stored_value *value);

/*
 * torch_write.c - pickles tensors as torch.save does, with only those opcodes and names that
 * torch.load(weights_only=True) accepts.
 */

/* Writes a dense tensor that fills the storage of that key. torch must have the dtype
 * (rs_torch_dtype_name). */
void rs_torch_write_tensor(rs_pickle_writer *writer, rs_slice key, reshard_dtype dtype,
                           int32_t ndim, const int64_t *shape);
/* Writes a tensor that repeats the one element in the storage of that key; at most RESHARD_NDIM_MAX
 * dims. */
void rs_torch_write_repeated(rs_pickle_writer *writer, rs_slice key, reshard_dtype dtype,
                             int32_t ndim, const int64_t *shape);
/* Writes a plain tuple of numbers. */
void rs_torch_write_numbers(rs_pickle_writer *writer, int32_t count, const int64_t *numbers);
/* Writes the strides of a dense tensor as such a tuple. */
void rs_torch_write_strides(rs_pickle_writer *writer, int32_t ndim, const int64_t *shape);
/* Errors: UNSUPPORTED, naming tensor and dtype, if PyTorch's files cannot hold it. */
reshard_status rs_torch_check_dtype(rs_slice tensor, reshard_dtype dtype);

/* torch_save.c - whole files. */

/* How a format writes such files: its torch_style. */
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
reshard_status rs_torch_save_place(rs_target *target, int32_t file);
reshard_status rs_torch_save_finish(const rs_target *target, const rs_finishing *finishing);
/* For rs_format's write_head: nothing can be written before the data. */
reshard_status rs_torch_save_head(const rs_target *target, int32_t file, rs_json_writer *writer);

/* An rs_torch_entry_fn that writes a plain, dense tensor. */
void rs_torch_save_plain(rs_pickle_writer *writer, const rs_target *target,
                         const rs_target_entry *entry, rs_slice key);

#endif
