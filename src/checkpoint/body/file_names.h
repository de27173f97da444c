/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_names.h - what the names of weight files tell: which model they belong to, and which of how
 * many they are.
 *
 * model.fp16-00001-of-00004.safetensors is number 1 of 4 files with the stem "model.fp16". The stem
 * is what loaders look for ("model", "adapter_model"), with a variant behind the dot.
 */
#ifndef RS_CHECKPOINT_FORMAT_FILE_NAMES_H
#define RS_CHECKPOINT_FORMAT_FILE_NAMES_H

#include "base/slice.h"
#include "checkpoint/store/store.h"

typedef struct rs_file_name {
    const char *name;
    rs_slice stem;
    bool is_numbered;
    uint64_t number, count; /* number of count; numbers begin at 0 or 1 */
} rs_file_name;

/* False for a name that does not end in .safetensors. Points into the name. */
bool rs_file_name_read(const char *name, rs_file_name *out_name);

/* The stem of the files that are the model, where a folder has files with several stems: the one
 * that loaders look for first. Empty when none of them is known: all files count then. */
rs_slice rs_file_names_model(int64_t count, char *const *names);
/* Whether loaders know a stem, with or without a variant, and it can be written as it is. */
#define RS_STEM_BYTES_MAX 48
bool rs_stem_is_known(rs_slice stem);

/* Finds numbered files without their fellows. Sets *out_missing to the name of the first file that
 * should be there, in the arena, or to NULL; *out_found and *out_count are then how many of how
 * many are. */
reshard_status rs_file_names_find_missing(rs_arena *arena, int64_t count, char *const *names,
                                          const char **out_missing, uint64_t *out_found,
                                          uint64_t *out_count);

#endif
