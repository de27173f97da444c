/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map_case.h - maps on small tensors, as text. Tensors are given as "name 2x3, other f16 4";
 * results show each target element by element: "t 2x2 f32: a0 b0 a1 b1" takes elements 0 and 1 of a
 * and b.
 */
#ifndef TESTS_CHECKPOINT_MAPS_MAP_CASE_H
#define TESTS_CHECKPOINT_MAPS_MAP_CASE_H

#include <reshard/map.h>

#include <stddef.h>

enum { MAP_CASE_TENSORS_MAX = 64, MAP_CASE_BYTES = 16384 };

typedef struct map_case {
    int64_t count;
    reshard_map_tensor tensors[MAP_CASE_TENSORS_MAX];
    int64_t shapes[MAP_CASE_TENSORS_MAX][RESHARD_NDIM_MAX];
    char names[MAP_CASE_TENSORS_MAX][96];
} map_case;

/* Aborts if the text makes no sense. */
void map_case_read(map_case *made, const char *tensors);

/* Parses the map, resolves it, and writes the result or the error. sets: "a=1 b=2", or NULL. */
void map_case_run(const char *map, reshard_map_side side, const char *tensors, const char *sets,
                  char *out_text, size_t capacity);

/* Fills elements[i] with `source * 2^32 + element` for each element i of a target, going through
 * the links one element at a time. Elements that no link fills, or that two fill, become -1. */
void map_case_elements(const reshard_map_result *result, const reshard_map_tensor *tensors,
                       int64_t target, int64_t volume, int64_t *elements);

#endif
