/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reshard_nn.h - everything in libreshard_nn, and with it all of libreshard (reshard.h). A tour:
 *
 *   tensor.h         tensors and scopes; ops.h computes with them, autograd.h differentiates
 *   own_operation.h  operations of your own; dlpack.h hands tensors to other libraries and back
 *   distributed.h    tensors over ranks, and moves between layouts with gradients
 *   nn.h             modules; nn_layers.h has ready ones, optimizer.h trains them
 *   shard.h          modules spread over ranks by a sharding plan; style.h has plans by style
 *   input_reshard.h  activations that all ranks hold alike, kept in chunks
 *   nn_checkpoint.h  state dicts saved, and loaded into any layout
 *
 * A first program, one step of training:
 *
 *   reshard_scope_open(NULL, &scope);
 *   reshard_tensor *logits = reshard_module_forward(model, tokens);
 *   reshard_backward(reshard_cross_entropy_loss(logits, labels), NULL, NULL);
 *   reshard_optimizer_step(optimizer);
 *   reshard_optimizer_clear_gradients(optimizer);
 *   status = reshard_scope_close(scope);
 */
#ifndef RESHARD_RESHARD_NN_H
#define RESHARD_RESHARD_NN_H

#include <reshard/autograd.h>
#include <reshard/distributed.h>
#include <reshard/dlpack.h>
#include <reshard/input_reshard.h>
#include <reshard/nn.h>
#include <reshard/nn_checkpoint.h>
#include <reshard/nn_layers.h>
#include <reshard/ops.h>
#include <reshard/optimizer.h>
#include <reshard/own_operation.h>
#include <reshard/reshard.h>
#include <reshard/shard.h>
#include <reshard/style.h>
#include <reshard/tensor.h>

#endif
