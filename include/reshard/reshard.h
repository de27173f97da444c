/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reshard.h - everything in libreshard. A tour, in the order in which data flows:
 *
 *   text -> spec -> layout -> plan -> exec -> bytes
 *
 *   base.h             statuses, error texts, contexts, element types
 *   spec.h             how a tensor is to be split: "dp=2,tp=4: R, S(0)"; meshes and placements
 *   layout.h           a spec applied to a shape: who owns which box
 *   plan.h             what has to move between two sets of layouts, who sends it, in which order
 *   predict.h          how long a plan would take on a given machine
 *   group.h            ranks that can talk: threads of this process
 *   exec.h             carries a plan out on a group
 *   collective.h       all_gather, all_reduce, all_to_all and so on, as plans
 *   device_mesh.h      named axes over live ranks, with a sub-group along each
 *   checkpoint.h       models on disk: tensors in files, however they are split
 *   checkpoint_live.h  tensors of live ranks, loaded from a checkpoint and saved to one
 *   conversion.h       converts a checkpoint to another split, format or dtype
 *   comparison.h       do two checkpoints hold the same tensors?
 *   model_rules.h      the built-in rules for cutting models, namings and maps
 *   trace.h            records what ranks and threads did when, for a viewer
 *   pytorch.h          PyTorch's own functions of shards and remote devices
 *
 * Not included here, for those who need them:
 *
 *   map.h              from one naming of a model to another: fused, stacked, permuted, renamed
 *   plan_inspect.h     takes a plan apart into single moves
 *   draw.h             draws layouts and plans
 *   sim.h              ranks in an order drawn from a seed, with faults, to test code with
 *   transport.h        for writing a transport of your own
 *   mpi.h, mpi_run.h   ranks of an MPI communicator, in libreshard_mpi
 *
 * Tensors, gradients and modules are in libreshard_nn: reshard_nn.h.
 *
 * Each header has up to three tiers, in this order. Simple: what a first program needs; read no
 * further than that. Explicit: the same in steps, with options and choices. Advanced: for tools,
 * tests and libraries that build on this one.
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
#include <reshard/pytorch.h>
#include <reshard/spec.h>
#include <reshard/trace.h>

#endif
