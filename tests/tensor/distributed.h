/* SPDX-License-Identifier: Apache-2.0 */
/* distributed.h - distributed tensors in tests: from specs as text, and read back as a whole. */
#ifndef TESTS_TENSOR_DISTRIBUTED_H
#define TESTS_TENSOR_DISTRIBUTED_H

#include "tests/tensor/values.h"

static inline reshard_spec *spec_of(const char *text)
{
    reshard_spec *spec = NULL;
    MUST(reshard_spec_parse(NULL, text, &spec));
    return spec;
}

/* Redistributes by a spec that is freed at once. */
static inline reshard_tensor *move_to(reshard_tensor *tensor, const char *text)
{
    reshard_spec *spec = spec_of(text);
    reshard_tensor *moved = reshard_tensor_redistribute(tensor, spec, NULL);
    reshard_spec_release(spec);
    return moved;
}

static inline reshard_tensor *local_as(reshard_tensor *local, reshard_group *group,
                                       const char *text)
{
    reshard_spec *spec = spec_of(text);
    reshard_tensor *made = reshard_tensor_from_local(local, group, spec);
    reshard_spec_release(spec);
    return made;
}

/* A distributed tensor of uniform numbers by seed. */
static inline reshard_tensor *spread_random(reshard_group *group, const char *text,
                                            reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                                            uint64_t seed)
{
    reshard_spec *spec = spec_of(text);
    reshard_tensor *made = NULL;
    if (reshard_tensor_create_distributed(NULL, group, spec, dtype, ndim, shape, &made) ==
        RESHARD_OK)
        MUST(reshard_tensor_fill_random(made, RESHARD_UNIFORM, seed));
    reshard_spec_release(spec);
    return made;
}

/* The tensor as a whole, local and retained; for comparing. */
static inline reshard_tensor *whole_of(reshard_tensor *tensor)
{
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    int enabled = reshard_set_gradients_enabled(0);
    reshard_tensor *whole = reshard_tensor_retain(reshard_tensor_full(tensor));
    (void)reshard_set_gradients_enabled(enabled);
    if (reshard_scope_close(scope) != RESHARD_OK) {
        reshard_tensor_release(whole);
        return NULL;
    }
    return whole;
}

static inline int is_close(const reshard_tensor *a, const reshard_tensor *b, double tolerance)
{
    if (a == NULL || b == NULL || reshard_tensor_volume(a) != reshard_tensor_volume(b))
        return 0;
    for (int64_t i = 0; i < reshard_tensor_volume(a); i++) {
        double difference = element(a, i) - element(b, i);
        if (!(difference <= tolerance && -difference <= tolerance))
            return 0;
    }
    return 1;
}

#endif
