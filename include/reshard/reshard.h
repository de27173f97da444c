/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reshard.h - everything in libreshard. A tour, in the order in which data flows:
 *
 *   text -> spec -> layout -> plan -> exec -> bytes
 *
 *   base.h    statuses and their words, contexts, element types
 *   spec.h    "dp=2,tp=4: R, S(0)": meshes, placements, how a tensor is to be split
 *   layout.h  a spec that met a shape: who owns which box
 *   plan.h    two sets of layouts: what has to move, who sends it, in which order
 *   exec.h    a plan meets a group and moves bytes
 *   collective.h  all_gather, all_reduce, all_to_all and their kin, as plans
 *   checkpoint.h  models on disk: tensors in files, however they are split
 *   conversion.h  a checkpoint in another split, format or dtype
 *   comparison.h  do two checkpoints hold the same, byte for byte
 *   model_rules.h  the built-in rules that say how models are cut
 *   device_mesh.h  named axes over live ranks, with a sub-group along each
 *   group.h   ranks that can talk: threads of this process
 *   trace.h   what ranks and threads did when, for a viewer
 *
 * Behind their own headers, for those who need them:
 *
 *   sim.h        ranks in an order drawn from a seed, with faults: to test code that uses groups
 *   transport.h  to write a transport of your own
 *   mpi.h, mpi_run.h  ranks of an MPI communicator, in libreshard_mpi
 *
 * Behind headers of their own: plan_inspect.h, which takes a plan apart into single moves, and
 * draw.h, which makes pictures. Tensors, gradients and modules are in libreshard_nn: reshard_nn.h.
 *
 * A first program:
 *
 *   reshard_layout *rows = NULL, *columns = NULL;
 *   reshard_plan *plan = NULL;
 *   int64_t shape[] = {8192, 8192};
 *   reshard_layout_parse(NULL, "4: S(0)", 2, shape, &rows);
 *   reshard_layout_parse(NULL, "4: S(1)", 2, shape, &columns);
 *   reshard_plan_create_simple(NULL, rows, columns, RESHARD_F32, NULL, &plan);
 *
 * The rules that hold for every call are at the head of base.h.
 */
#ifndef RESHARD_RESHARD_H
#define RESHARD_RESHARD_H

#include <reshard/base.h>
#include <reshard/checkpoint.h>
#include <reshard/checkpoint_live.h>
#include <reshard/collective.h>
#include <reshard/comparison.h>
#include <reshard/conversion.h>
#include <reshard/device_mesh.h>
#include <reshard/exec.h>
#include <reshard/group.h>
#include <reshard/layout.h>
#include <reshard/model_rules.h>
#include <reshard/plan.h>
#include <reshard/predict.h>
#include <reshard/spec.h>
#include <reshard/trace.h>

#endif
