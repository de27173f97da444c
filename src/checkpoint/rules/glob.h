/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glob.h - patterns of tensor names: * for any bytes, ? for one byte, {a,b,0..15} for one of
 * several texts or a number in a range, \ before a byte that is meant literally, \xHH for the byte
 * with this number, which may be one that a line of text cannot hold. A pattern must match the
 * whole name.
 */
#ifndef RS_CHECKPOINT_RULES_GLOB_H
#define RS_CHECKPOINT_RULES_GLOB_H

#include "base/arena.h"
#include "base/export.h"

#include <stdbool.h>

#define RS_GLOB_BYTES_MAX 4096
#define RS_GLOB_ELEMENTS_MAX 64
#define RS_GLOB_NAME_MAX 65535 /* longest name, in bytes */

typedef enum rs_glob_kind { RS_GLOB_TEXT, RS_GLOB_ONE, RS_GLOB_ANY, RS_GLOB_CHOICE } rs_glob_kind;

/* A text, or a number from first to last without leading zeros. */
typedef struct rs_glob_item {
    bool is_range;
    int64_t first, last;
    const char *text;
    size_t length;
} rs_glob_item;

typedef struct rs_glob_element {
    rs_glob_kind kind;
    int32_t item_count; /* TEXT: 1. CHOICE: at least 1 */
    rs_glob_item *items;
} rs_glob_element;

typedef struct rs_glob {
    int32_t element_count;
    int32_t wildcard_count; /* elements that are not TEXT */
    rs_glob_element *elements;
} rs_glob;

/* The part of the name that a wildcard stands for: name[start .. end-1]. */
typedef struct rs_glob_span {
    size_t start, end;
} rs_glob_span;

/* Everything that the glob points to is in the arena. Errors: SYNTAX, RANGE. */
RS_EXPORT reshard_status rs_glob_compile(rs_arena *arena, const char *text, size_t bytes,
                                         rs_glob *out_glob);

/* spans: one for each wildcard, from left to right, or NULL. If a name matches in several ways,
 * each wildcard in turn takes as little as it can, and a choice takes its first text that fits.
 * Time and memory are at most proportional to the number of elements times the length of the name.
 * Errors: UNSUPPORTED for a name longer than RS_GLOB_NAME_MAX, NO_MEMORY. */
RS_EXPORT reshard_status rs_glob_try(reshard_context *context, const rs_glob *glob,
                                     const char *name, size_t name_bytes, rs_glob_span *spans,
                                     bool *out_matches);
/* The same with the table alone, for names of up to RS_GLOB_NAME_MAX bytes. */
reshard_status rs_glob_try_table(reshard_context *context, const rs_glob *glob, const char *name,
                                 size_t name_bytes, rs_glob_span *spans, bool *out_matches);

#endif
