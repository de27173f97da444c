/* SPDX-License-Identifier: Apache-2.0 */
/* notes.h - lines for the user about things that were left out or cannot be known. */
#ifndef RS_CHECKPOINT_STORE_NOTES_H
#define RS_CHECKPOINT_STORE_NOTES_H

#include "base/arena.h"
#include "base/error.h"

#include <stdarg.h>

/* Initialise with zeros. The lines are in the arena they were added with. */
typedef struct rs_notes {
    struct rs_note *first, *last;
} rs_notes;

/* Adds a line. Names in it may come from strangers, so it is kept as reshard_text_escape shows it.
 * Fails only for lack of memory. */
reshard_status rs_notes_add(rs_notes *notes, rs_arena *arena, const char *format,
                            va_list arguments);
/* The same, unless the list already has this line. */
reshard_status rs_notes_add_once(rs_notes *notes, rs_arena *arena, const char *format,
                                 va_list arguments);
/* NULL beyond the last. */
const char *rs_notes_at(const rs_notes *notes, int64_t index);

#endif
