/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.h - how an error of one rank becomes an error of all ranks, without breaking their group.
 *
 * Every collective call begins with an agreement, to which each rank brings its status. A rank that
 * fails between two such calls cannot tell anybody at once: its peers compute, and meet it at their
 * next collective call. So it remembers its failure, and takes part in one more agreement, in which
 * all ranks fail. After that nobody waits for anybody, the scope reports the error, and the group
 * can be used again.
 *
 *            rs_scope_fail: a failure with a number         rs_agree fails: noted in the group
 *   sound  -------------------------------------->  failed  --------------------------------->
 *          told
 *     ^                                               |                                          |
 *     |   rs_agree succeeds                           |  next collective call, or step of a      |
 *     +--------------------  (sound ranks)            |  backward pass: rs_agree_on_failure      |
 *     |                                               +------------------------------------------+
 *     |   the scope is closed; its error is the caller's                                         |
 *     +------------------------------------------------------------------------------------------+
 *
 * Invariants:
 *  1. The scope keeps the number of its first failure, and hands it on to the scope around it.
 *  2. A group keeps the number of the last failure that all of its ranks know (failure_told), until
 *     an agreement succeeds. The two are equal if and only if nobody has to be told any more.
 *  3. Each group is told once: ranks agree as often as their peers do.
 */
#ifndef RS_TENSOR_CORE_FAILURE_H
#define RS_TENSOR_CORE_FAILURE_H

#include <reshard/group.h>

#include "tensor/core/scope.h"

/* Collective. Succeeds if all ranks pass RESHARD_OK; otherwise fails on all of them, with the error
 * of the lowest rank that failed. `what` names the call in the error text. */
reshard_status rs_agree(reshard_group *group, reshard_status status, const char *what);
/* Collective. The same for ranks that have to ask for the same: fails also with MISMATCH, naming
 * two ranks, if digests differ. A rank that passes no digest (NULL) accepts any. *out_all_same
 * tells whether all ranks passed the same number, and not 0; it may be NULL. */
reshard_status rs_agree_on(reshard_group *group, reshard_status status, const uint64_t digest[2],
                           const char *what, uint64_t number, bool *out_all_same);
/* Tells the group that this scope used last that this rank cannot start a computation because its
 * scope has failed. Does nothing if its ranks know already. */
void rs_agree_on_failure(void);

/* Notes the group of a computation, so that a rank that fails later can tell that group's ranks. */
void rs_scope_use_group(reshard_group *group);
/* Notes that all ranks of the group know of the innermost scope's failure. The failure itself may
 * be noted after this call. */
void rs_scope_note_told(reshard_group *group);
/* Whether all ranks of the group know of the scope's failure. */
bool rs_scope_has_told(const reshard_scope *scope, const reshard_group *group);
/* Hands the number of a failure on to the scope around this one, so that nobody is told twice. */
void rs_scope_hand_on_failure(const reshard_scope *scope);

#endif
