/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_names.h - what the name of a weights file says: which model it belongs to, and which of how
 * many files it is.
 *
 * model.fp16-00001-of-00004.safetensors is number 1 of 4 files with the stem "model.fp16". The stem
 * is the name that loaders look for ("model", "adapter_model"), perhaps with a variant after a dot.
 */
#ifndef RS_CHECKPOINT_FORMAT_FILE_NAMES_H
#define RS_CHECKPOINT_FORMAT_FILE_NAMES_H

#include "base/slice.h"
#include "checkpoint/target/format.h"

typedef struct rs_file_name {
    const char *name;
    rs_slice stem;
    bool is_numbered;
    uint64_t number, count; /* file `number` of `count`; numbers begin at 0 or 1 */
} rs_file_name;

/* False for a name that does not end in .safetensors. The result points into the name. */
bool rs_file_name_read(const char *name, rs_file_name *out_name);
/* The same for names with another ending. */
bool rs_file_name_read_as(const char *name, const char *wanted, rs_file_name *out_name);

/* The stem of the model's files, in a folder with several stems: the one that loaders look for
 * first. Empty if loaders know none of them; then all files belong to the model. */
rs_slice rs_file_names_model(int64_t count, char *const *names);
/* Do loaders know this stem, with or without a variant, and can it be written as it is? */
#define RS_STEM_BYTES_MAX 48
bool rs_stem_is_known(rs_slice stem);

/* Takes one name apart; false for one of another kind. */
typedef bool rs_file_name_reader(const char *name, rs_file_name *out_name);
/* Without an index, only numbered names tell that a file is missing: in a folder that is an error
 * (GAP). A user who names one of several files wants only that one; then it is a note. */
reshard_status rs_file_names_check_complete(reshard_checkpoint *checkpoint,
                                            const rs_opening *opening, rs_file_name_reader *read);

/* Finds the lowest of `numbers` numbers, from `first` on, that no file has in its name. The names
 * differ in one number. Returns -1 if they are not such names, or if none is missing. */
int64_t rs_file_names_missing_number(int64_t count, const rs_stored_file *files, int64_t first,
                                     int64_t numbers);

/* Is there a file or folder of that name? */
bool rs_opening_has(const rs_opening *opening, const char *name);
/* Leaves out files or tensors beside the model: adds a note, or fails if the caller wants them
 * refused. what: such as "tensors that the index does not name"; first: one of them, for the
 * message. */
reshard_status rs_opening_leave_out(reshard_checkpoint *checkpoint, const rs_opening *opening,
                                    int64_t count, const char *what, rs_slice first);

#endif
