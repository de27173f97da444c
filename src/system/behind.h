/* SPDX-License-Identifier: Apache-2.0 */
/*
 * behind.h - takes out of the page cache again what one pass over a file brought into it.
 *
 * A large file that is read once pushes the files of other programs out of the cache, and fresh
 * pages for all of it cost more time than reading does. So the file is divided into groups of
 * 8 MiB, and a group whose bytes have all been read is dropped. Its pages then serve the next
 * groups. What was in the cache before the pass stays there: before it begins, the kernel is asked
 * which groups have any page there, and these are left alone.
 *
 * Measured beside it: RWF_DONTCACHE of Linux 6.14, which is slower where reads do not begin on
 * pages, and smaller groups, which take longer to drop (docs/benchmarks.md).
 */
#ifndef RS_SYSTEM_BEHIND_H
#define RS_SYSTEM_BEHIND_H

#include <reshard/base.h>

#define RS_BEHIND_GROUP_BYTES ((uint64_t)8 << 20)

typedef struct rs_behind rs_behind;

/* For a file that is open for as long as the result is used. *out_behind is NULL if the kernel does
 * not say what is in the cache (Linux before 6.5, other systems, files that belong to others), or
 * if the file is smaller than a group. Errors: NO_MEMORY. */
reshard_status rs_behind_create(reshard_context *context, int descriptor, uint64_t bytes,
                                rs_behind **out_behind);
/* Drops what the pass has left, and takes NULL. */
void rs_behind_destroy(rs_behind *behind);
/* Begins a pass: looks which groups are in the cache. */
void rs_behind_begin(rs_behind *behind);
/* Says that these bytes have been read. Several threads may say so at once. Takes NULL. */
void rs_behind_note(rs_behind *behind, uint64_t at, size_t count);

#endif
