/* SPDX-License-Identifier: Apache-2.0 */
/* ran_tensor.h - cases of upstream's tests (tests/support/ran.h), as tensors tell them. */
#ifndef TESTS_TENSOR_RAN_TENSOR_H
#define TESTS_TENSOR_RAN_TENSOR_H

#include "tests/support/ran.h"

#include "layout/layout.h"
#include "tests/support/info.h"

#include <reshard/reshard_nn.h>

#include <stdio.h>
#include <string.h>

/* "f32 13x21 4: S(0)"; without a spec for a local tensor. */
static inline ran_text ran_tensor(const reshard_tensor *x)
{
    ran_text made =
        ran_shape(reshard_tensor_dtype(x), reshard_tensor_ndim(x), reshard_tensor_shape(x));
    if (reshard_tensor_layout(x) != NULL) {
        ran_text spec = ran_spec(reshard_tensor_layout(x)->spec);
        size_t used = strlen(made.text);
        (void)snprintf(made.text + used, sizeof made.text - used, " %.300s", spec.text);
    }
    return made;
}

/* "f32 13x21 4: S(0) -> 4: S(1)" */
static inline void ran_move(const char *upstream, const reshard_tensor *from,
                            const reshard_tensor *to)
{
    if (reshard_group_rank(info_tensor(from).group) == 0)
        ran(upstream, "%s -> %s", ran_tensor(from).text,
            ran_spec(reshard_tensor_layout(to)->spec).text);
}

#endif
