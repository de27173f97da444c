/* SPDX-License-Identifier: Apache-2.0 */
/* open.h - what opening a checkpoint consists of. */
#ifndef RS_CHECKPOINT_OPEN_OPEN_H
#define RS_CHECKPOINT_OPEN_OPEN_H

#include "checkpoint/target/format.h"
#include "system/file.h"

/* formats.c - the list of formats, in the order in which they are probed. */

/* The format at this index of the list; NULL beyond the last. */
const rs_format *rs_format_at(int32_t index);
/* Finds a format that can be written. Errors: NOT_FOUND, naming all of these. */
reshard_status rs_format_find_writer(const char *name, const rs_format **out_format);
/* The format that is written if none is named: the first of the list that is split, or is not. */
const rs_format *rs_format_default_writer(bool is_split);

/* hub_cache.c - the cache of the Hugging Face hub. models--org--name holds blobs, refs and
 * snapshots; a snapshot is a folder of links, and otherwise a model like any other. */

/* Is the folder at this path, with these names in it, a model's root in such a cache? */
bool rs_hub_is_root(const char *path, const rs_names *names);
/* Finds the snapshot that refs/main names, or the only one. The caller releases strlen + 1 bytes of
 * the path. Errors: NOT_FOUND if there is none; INVALID if there are several. */
reshard_status rs_hub_find_snapshot(reshard_context *context, const char *path, char **out_path);

/*
 * latest.c - folders of training runs: each checkpoint is a sub-folder, and a small file names the
 * newest. DeepSpeed's `latest` holds the name itself ("global_step1000"), Megatron's
 * `latest_checkpointed_iteration.txt` a number ("1000" is iter_0001000) or "release".
 */

/* Does the folder that is being opened have such a file? */
bool rs_latest_is_named(const reshard_checkpoint *checkpoint, const rs_opening *opening);

/* Makes the sub-folder that the file names the checkpoint's path and folder, with a note. Names
 * with slashes and links that leave the folder are refused. Errors: INVALID, NOT_FOUND, RANGE, IO;
 * the checkpoint is then as it was. */
reshard_status rs_latest_follow(reshard_checkpoint *checkpoint, const rs_opening *opening);
/* Is this the name of such a file? It means nothing in another folder. */
bool rs_latest_is_pointer(const char *name);

/* foreign.c - weights in formats that the library does not read. They are recognised by name, so
 * that an error can say what was found in place of a checkpoint. */

/* Fails, and says what the path holds and what was looked for. */
reshard_status rs_foreign_fail(const reshard_checkpoint *checkpoint, const rs_opening *opening);

/* Does a file of that name hold weights, in whatever format, or describe those in other files? */
bool rs_name_holds_weights(const char *name);

#endif
