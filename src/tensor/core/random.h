/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random.h - random numbers by index: element i of a tensor is computed from the i-th numbers of
 * its seed's SplitMix64 stream (Steele, Lea, Flood, "Fast splittable pseudorandom number
 * generators", 2014). Any rank can compute any element, so results do not depend on the layout.
 */
#ifndef RS_TENSOR_CORE_RANDOM_H
#define RS_TENSOR_CORE_RANDOM_H

#include "tensor/core/tensor.h"

/* The i-th number of the stream. */
uint64_t rs_random_bits(uint64_t seed, uint64_t index);

/* What an element is filled with. */
typedef enum rs_random_kind {
    RS_RANDOM_UNIFORM, /* 0 <= x < 1 */
    RS_RANDOM_NORMAL,  /* mean 0, deviation 1 (Box and Muller) */
    RS_RANDOM_KEEP     /* 0 with probability p, else 1/(1-p) */
} rs_random_kind;

typedef struct rs_random {
    rs_random_kind kind;
    uint64_t seed;
    double p;
} rs_random;

/* Fills a dense local tensor by element index, or all shards of a distributed one by global index.
 * Errors: UNSUPPORTED unless the dtype is f16 to f64 or, for uniform and normal numbers,
 * complex. */
reshard_status rs_fill_random(reshard_tensor *tensor, const rs_random *fill);

#endif
