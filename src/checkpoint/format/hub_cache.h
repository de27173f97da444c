/* SPDX-License-Identifier: Apache-2.0 */
/* hub_cache.h - the cache of the Hugging Face hub: models--org--name holds blobs, refs and
 * snapshots; a snapshot is a folder of links, and a model like any other. */
#ifndef RS_CHECKPOINT_FORMAT_HUB_CACHE_H
#define RS_CHECKPOINT_FORMAT_HUB_CACHE_H

#include "system/file.h"

/* Is a folder with these names the root of a model there? */
bool rs_hub_is_root(const char *path, const rs_names *names);
/* The path of the snapshot that refs/main names, or of the only one; to be released with strlen +
 * 1. Errors: NOT_FOUND when there is none; INVALID when there are several. */
reshard_status rs_hub_find_snapshot(reshard_context *context, const char *path, char **out_path);

#endif
