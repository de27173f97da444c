/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.h - did a run bring what was there to where it belongs?
 *
 * A run is verified by digests of its two ends that do not depend on how they are split: sums over
 * elements of a function of their place and their bits, worked out from layouts and links alone.
 * Neither moves nor messages of the run take part, so a transport that moves nothing is found out.
 *
 * What is verified:
 *  - of links between tensors that are not partial: that every target element has the bits of its
 *    source element, cast where the dtypes differ;
 *  - of all tensors that are not partial: that their copies agree, before and after;
 *  - that target elements which no link fills are zero.
 * Of reductions only the copies of the result are compared, of adjoint plans and partial targets
 * nothing.
 *
 * The order of calls in a run: sources, when the buffers are known and before anything is written;
 * targets, after the last stage; progress, until it is done. All of them are local but for the
 * messages that progress exchanges on the exec's own channel, and allocate nothing.
 */
#ifndef RS_EXEC_VERIFY_H
#define RS_EXEC_VERIFY_H

#include <reshard/exec.h>

#include <stdbool.h>

typedef struct rs_verify rs_verify;

/* Local. For an exec that is built and has its channel; lives no longer than it. */
reshard_status rs_verify_create(reshard_exec *exec, rs_verify **out_verify);
void rs_verify_destroy(rs_verify *verify);

void rs_verify_sources(rs_verify *verify);
reshard_status rs_verify_targets(rs_verify *verify);
/* Errors: CHECK, the same on all ranks, when the run is over and something is wrong; errors of the
 * group. */
reshard_status rs_verify_progress(rs_verify *verify, bool *out_done);

#endif
