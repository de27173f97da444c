/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copying.h - a file system that copies ranges by itself, as those do that share blocks or lie on a
 * server. The machine's own mostly cannot, and then files are never copied that way in a test.
 */
#ifndef RS_TESTS_SUPPORT_COPYING_H
#define RS_TESTS_SUPPORT_COPYING_H

#include <stddef.h>
#include <stdint.h>

/* As copy of rs_file_calls: all of the range, or what there is of it. */
int64_t copying_call(int source, uint64_t source_at, int target, uint64_t target_at, size_t count);

#endif
