/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.h - the header of a safetensors file: 8 bytes of length (little-endian), a JSON
 * object of entries, then the data.
 *
 * Reading is as strict as the format's reference reader, and stricter in two things that it lets
 * pass: a name that occurs twice, and entries that are not spelt as objects. What holds of a header
 * that was read: entries tile the data section in the order they are kept in, without holes and
 * overlaps, and each is as long as its shape and dtype say.
 */
#ifndef RS_CHECKPOINT_FORMAT_SAFETENSORS_H
#define RS_CHECKPOINT_FORMAT_SAFETENSORS_H

#include "base/arena.h"
#include "base/file.h"
#include "base/slice.h"

#define RS_HEADER_BYTES_MAX ((uint64_t)100000000)
/* Where our files begin their data: a page, so that ranges can be shared by the file system. */
#define RS_DATA_ALIGNMENT ((uint64_t)4096)

typedef struct rs_entry {
    rs_slice name;
    reshard_dtype dtype;
    int32_t ndim; /* any number of dims */
    const int64_t *shape;
    uint64_t begin, end; /* bytes of the data section */
} rs_entry;

typedef struct rs_metadatum {
    rs_slice key, value;
} rs_metadatum;

typedef struct rs_header {
    rs_arena arena;
    char *text; /* which names point into; NULL when the caller keeps it */
    size_t text_bytes;
    uint64_t data_begin; /* in the file */
    uint64_t data_bytes;
    int64_t entry_count, entry_capacity;
    rs_entry *entries; /* by place in the file */
    rs_entry **by_name;
    int64_t metadata_count, metadata_capacity;
    rs_metadatum *metadata;
    bool has_metadata;
} rs_header;

/* Names are decoded inside `text`, which must outlive the header. `what` is what errors call the
 * file. data_bytes is what follows the header in the file. Errors: SYNTAX, RANGE, CORRUPT. */
reshard_status rs_header_parse(reshard_context *context, const char *what, char *text,
                               size_t text_bytes, uint64_t data_bytes, rs_header **out_header);
/* Of an open file. Errors name its path. */
reshard_status rs_header_read(reshard_context *context, const rs_file *file,
                              rs_header **out_header);
void rs_header_destroy(rs_header *header);

/* NULL when there is none. */
const rs_entry *rs_header_find(const rs_header *header, rs_slice name);
/* The last one of that key, as the reference reader has it; NULL when there is none. */
const rs_metadatum *rs_header_metadata(const rs_header *header, const char *key);

/* Bytes of a tensor. Errors: RANGE when shape or size go beyond 64 bits (extents multiplied from
 * left to right, as the reference does), INVALID when elements do not end on a whole byte. */
reshard_status rs_entry_bytes(rs_slice name, reshard_dtype dtype, int32_t ndim,
                              const int64_t *shape, uint64_t *out_bytes);

#endif
