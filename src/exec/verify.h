/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.h - checks that a run has brought everything to where it belongs.
 *
 * A run is verified by digests of its two ends that do not depend on how they are split: sums over
 * elements of a function of their place and their bits, computed from layouts and links alone.
 * Neither the moves nor the messages of the run are involved, so even a transport that moves
 * nothing is found out.
 *
 * What is verified:
 *  - links between tensors that are not partial: every target element has the bits of its source
 *    element, cast if the dtypes differ;
 *  - all tensors that are not partial: their copies agree, before and after;
 *  - target elements that no link fills: they are zero.
 * Of reductions, only the copies of the result are compared; of adjoint plans and partial targets,
 * nothing.
 *
 * The calls of a run, in order: rs_verify_sources, when the buffers are known and before anything
 * is written; rs_verify_targets, after the last stage; rs_verify_progress, until it is done. They
 * allocate nothing, and are Local except for the messages that the last two exchange on the exec's
 * own channel.
 */
#ifndef RS_EXEC_VERIFY_H
#define RS_EXEC_VERIFY_H

#include <reshard/exec.h>

#include <stdbool.h>

typedef struct rs_verify rs_verify;

/* Local. The exec must be built, have its channel, and outlive the result. */
reshard_status rs_verify_create(reshard_exec *exec, rs_verify **out_verify);
void rs_verify_destroy(rs_verify *verify);

void rs_verify_sources(rs_verify *verify);
reshard_status rs_verify_targets(rs_verify *verify);
/* Errors: CHECK, the same on all ranks, if the run is over and something is wrong; errors of the
 * group. */
reshard_status rs_verify_progress(rs_verify *verify, bool *out_done);

#endif
