/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weight_map.h - the index of a transformers folder: which tensor is in which file. It is the same
 * for safetensors and for PyTorch's .bin files.
 */
#ifndef RS_CHECKPOINT_FORMAT_WEIGHT_MAP_H
#define RS_CHECKPOINT_FORMAT_WEIGHT_MAP_H

#include "checkpoint/target/format.h"

/* There may be a million of these, so they are small, and names lie in the text that was read. */
typedef struct rs_weight_mapping {
    rs_slice tensor; /* lives as long as the map */
    int32_t file;
} rs_weight_mapping;

typedef struct rs_weight_map {
    int64_t count, capacity;
    rs_weight_mapping *items; /* sorted by file, then by tensor */
    int64_t file_count, file_capacity;
    char **files; /* names, sorted; each once */
    char *text;   /* of the index; names point into it */
    size_t text_bytes;
} rs_weight_map;

/* Finds the name of an index that contains `middle`, such as ".safetensors.index."; `first` is
 * preferred to variants such as model.safetensors.index.fp16.json. NULL if there is none. */
const char *rs_weight_map_find(const rs_opening *opening, const char *middle, const char *first);
/* Reads an index. Release the map in any case. Errors: SYNTAX, IO. */
reshard_status rs_weight_map_read(reshard_checkpoint *checkpoint, const char *name,
                                  rs_weight_map *map);
void rs_weight_map_release(reshard_context *context, rs_weight_map *map);

/* Fails because an index (`name`) maps a tensor twice, or to a file that does not hold it. */
reshard_status rs_weight_map_fail_double(const char *name, rs_slice tensor);
reshard_status rs_weight_map_fail_missing(const char *name, const rs_weight_map *map,
                                          const rs_weight_mapping *item);

#endif
