/* SPDX-License-Identifier: Apache-2.0 */
/* formats.h - the list of formats, in the order in which they are probed. */
#ifndef RS_CHECKPOINT_OPEN_FORMATS_H
#define RS_CHECKPOINT_OPEN_FORMATS_H

#include "checkpoint/target/format.h"

/* The format at this index of the list; NULL beyond the last. */
const rs_format *rs_format_at(int32_t index);
/* Finds a format that can be written. Errors: NOT_FOUND, naming all of these. */
reshard_status rs_format_find_writer(const char *name, const rs_format **out_format);
/* The format that is written if none is named: the first of the list that is split, or is not. */
const rs_format *rs_format_default_writer(bool is_split);

#endif
