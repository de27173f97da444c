/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weight_map.h - the index of a transformers folder: which tensor is in which file. It is the same
 * for safetensors and for PyTorch's .bin files.
 */
#ifndef RS_CHECKPOINT_FORMAT_WEIGHT_MAP_H
#define RS_CHECKPOINT_FORMAT_WEIGHT_MAP_H

#include "checkpoint/target/format.h"

typedef struct rs_weight_mapping {
    rs_slice tensor;
    const char *file;
    int32_t file_index;
} rs_weight_mapping;

typedef struct rs_weight_map {
    int64_t count, capacity;
    rs_weight_mapping *items; /* sorted by file */
    int32_t file_count;
} rs_weight_map;

/* Finds the name of an index that contains `middle`, such as ".safetensors.index."; `first` is
 * preferred to variants such as model.safetensors.index.fp16.json. NULL if there is none. */
const char *rs_weight_map_find(const rs_opening *opening, const char *middle, const char *first);
/* Reads an index; names go to the checkpoint's arena. Release the map in any case. Errors: SYNTAX,
 * IO. */
reshard_status rs_weight_map_read(reshard_checkpoint *checkpoint, const char *name,
                                  rs_weight_map *map);
void rs_weight_map_release(reshard_context *context, rs_weight_map *map);

/* rs_safetensors_open_named, or the like for another body. */
typedef reshard_status rs_open_named_fn(reshard_checkpoint *checkpoint, int64_t count,
                                        char *const *names);
/* Opens the files that the map names; they get their file_index as number. */
reshard_status rs_weight_map_open(reshard_checkpoint *checkpoint, const rs_weight_map *map,
                                  rs_open_named_fn *open);
/* Checks that no tensor is mapped twice; occurrences are sorted by name. Errors: SYNTAX. */
reshard_status rs_weight_map_check(const char *name, const rs_occurrences *found);

#endif
