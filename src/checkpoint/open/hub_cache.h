/* SPDX-License-Identifier: Apache-2.0 */
/* hub_cache.h - the cache of the Hugging Face hub. models--org--name holds blobs, refs and
 * snapshots; a snapshot is a folder of links, and otherwise a model like any other. */
#ifndef RS_CHECKPOINT_OPEN_HUB_CACHE_H
#define RS_CHECKPOINT_OPEN_HUB_CACHE_H

#include "system/file.h"

/* Is the folder at this path, with these names in it, a model's root in such a cache? */
bool rs_hub_is_root(const char *path, const rs_names *names);
/* Finds the snapshot that refs/main names, or the only one. The caller releases strlen + 1 bytes of
 * the path. Errors: NOT_FOUND if there is none; INVALID if there are several. */
reshard_status rs_hub_find_snapshot(reshard_context *context, const char *path, char **out_path);

#endif
