/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.h - contexts whose n-th allocation fails, to prove that no failure leaks or crashes.
 */
#ifndef TESTS_SUPPORT_CONTEXT_H
#define TESTS_SUPPORT_CONTEXT_H

#include "tests/support/words.h"

#include <reshard/base.h>

#include <stdint.h>

/* Does something with the context and frees all of it again, whether it succeeds or not. */
typedef reshard_status (*context_attempt_fn)(reshard_context *context, void *user);

/* Runs the attempt with the first allocation failing, then the second, and so on, until it
 * succeeds. False, with words, when an attempt fails otherwise than for lack of memory, or leaves
 * memory behind. */
bool context_fail_each(context_attempt_fn attempt, void *user, words *said);
/* The same for the first allocation and every `step`-th after it, where attempts take long. */
bool context_fail_some(context_attempt_fn attempt, void *user, int64_t step, words *said);

#endif
