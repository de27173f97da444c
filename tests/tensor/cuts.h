/* SPDX-License-Identifier: Apache-2.0 */
/* cuts.h - a whole tensor cut directly, to hold moved ones against. */
#ifndef TESTS_TENSOR_CUTS_H
#define TESTS_TENSOR_CUTS_H

#include "tests/tensor/distributed.h"

#include "tests/support/info.h"

/* The shards of a are those of b, times a factor. */
static inline reshard_status same_shards(const reshard_tensor *a, const reshard_tensor *b,
                                         double factor)
{
    CHECK(info_tensor(a).local_shard_count == info_tensor(b).local_shard_count);
    for (int64_t i = 0; i < info_tensor(a).local_shard_count; i++) {
        const reshard_tensor *x = reshard_tensor_local_shard(a, i);
        const reshard_tensor *y = reshard_tensor_local_shard(b, i);
        CHECK(reshard_tensor_ndim(x) == reshard_tensor_ndim(y));
        for (int32_t d = 0; d < reshard_tensor_ndim(x); d++)
            CHECK(reshard_tensor_shape(x)[d] == reshard_tensor_shape(y)[d]);
        for (int64_t k = 0; k < reshard_tensor_volume(x); k++)
            CHECK(element(x, k) == factor * element(y, k));
    }
    return RESHARD_OK;
}

static inline reshard_status cut_directly(reshard_group *group, const char *text,
                                          reshard_tensor *whole, reshard_tensor **out_tensor)
{
    reshard_spec *spec = spec_of(text);
    reshard_status status = reshard_tensor_shard(NULL, group, spec, 0, whole, out_tensor);
    reshard_spec_release(spec);
    return status;
}

#endif
