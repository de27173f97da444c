/* SPDX-License-Identifier: Apache-2.0 */
/* engine_case.h - tensors in pieces of files, made by hand. */
#ifndef TESTS_CHECKPOINT_ENGINE_ENGINE_CASE_H
#define TESTS_CHECKPOINT_ENGINE_ENGINE_CASE_H

#include "checkpoint/store/store.h"

/* A tensor of two dims, f32. */
static inline rs_stored_tensor matrix_tensor(const int64_t shape[2], rs_stored_piece *pieces,
                                             int64_t piece_count)
{
    return (rs_stored_tensor){.name = {"m", 1},
                              .dtype = RESHARD_F32,
                              .ndim = 2,
                              .shape = shape,
                              .bytes = (uint64_t)(shape[0] * shape[1] * 4),
                              .carried_ndim = 2,
                              .element_bytes = 4,
                              .carried_shape = shape,
                              .piece_count = piece_count,
                              .pieces = pieces};
}

#endif
