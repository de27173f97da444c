/* SPDX-License-Identifier: Apache-2.0 */
/* loss.c - losses of outputs that may be spread over ranks. */
#include <reshard/nn_layers.h>
#include <reshard/ops.h>

#include "base/error.h"
#include "nn/follow.h"
#include "tensor/core/scope.h"
#include "tensor/dist/lift.h"
#include "tensor/grad/node.h"

reshard_tensor *reshard_mse_loss(reshard_tensor *output, reshard_tensor *target)
{
    reshard_tensor *t[] = {output, target};
    if (!rs_op_begin("mse_loss", 2, t) || !rs_lift("mse_loss", -1, 2, t))
        return NULL;
    if (!rs_shape_equals(t[0], t[1]))
        return rs_scope_fail(rs_fail(RESHARD_ERR_INVALID, "mse_loss: an output of %s for %s",
                                     rs_tensor_describe(t[0]).text, rs_tensor_describe(t[1]).text));
    if (!rs_follow_activation(&t[0]) || !rs_follow_activation(&t[1]) || !rs_follow_add(t))
        return NULL;
    reshard_tensor *difference = reshard_add(t[0], reshard_scale(t[1], -1));
    return reshard_mean(reshard_mul(difference, difference));
}
