/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.h - memory allocated through a context; a NULL context is the default one. A small header
 * in front of it knows its size, so that nobody repeats it. Blocks have none: whoever releases them
 * says their size.
 */
#ifndef RS_BASE_CONTEXT_H
#define RS_BASE_CONTEXT_H

#include <reshard/base.h>

#include "base/export.h"

#include <stdbool.h>

/* On failure these return NULL with the error text set (NO_MEMORY or MEMORY_LIMIT, see
 * rs_allocation_status). bytes may be 0: the result is then a pointer that can be released. */
RS_EXPORT void *rs_allocate(reshard_context *context, size_t bytes);
RS_EXPORT void *rs_allocate_zeroed(reshard_context *context, size_t bytes);
/* Allocates count * item_bytes bytes and fails if that overflows. */
RS_EXPORT void *rs_allocate_array(reshard_context *context, size_t count, size_t item_bytes);
RS_EXPORT void rs_release(reshard_context *context, void *memory); /* takes NULL */

/* The same for memory that is allocated repeatedly in the same size, such as that of tensors. With
 * malloc, large blocks have their pages from the beginning (pages.h), and the context keeps them
 * for reuse when they are released (reshard_context_trim). */
RS_EXPORT void *rs_block_allocate(reshard_context *context, size_t bytes);
RS_EXPORT void rs_block_release(reshard_context *context, void *memory, size_t bytes);

/* Grows an array by doubling until it has room for `needed` items. `list` is the address of the
 * pointer to the items, which may move. On failure that and *capacity are unchanged. */
RS_EXPORT reshard_status rs_grow(reshard_context *context, void *list, int64_t *capacity,
                                 int64_t needed, size_t item_bytes);

/* The status of this thread's last failed allocation. */
RS_EXPORT reshard_status rs_allocation_status(void);

/* True once the user has asked to stop. */
bool rs_context_cancelled(reshard_context *context);
void rs_context_progress(reshard_context *context, const char *what, uint64_t done, uint64_t total);
void rs_context_log(reshard_context *context, const char *line);

/* The functions that file.h calls instead of the system's, or NULL for the system's. */
struct rs_file_calls;
const struct rs_file_calls *rs_context_calls(const reshard_context *context);
void rs_context_set_calls(reshard_context *context, const struct rs_file_calls *calls);

#endif
