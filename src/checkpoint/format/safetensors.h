/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.h - safetensors files, the body that several formats share. Such a file is a length
 * of 8 bytes (little-endian), a header of that length (a JSON object of entries), then the data.
 *
 * Reading is as strict as the reference reader, and refuses three things that it accepts: a name
 * that occurs twice, an entry that is not a JSON object, and an extent of 2^63 or more. Once a
 * header has been read, its entries, in the order they are kept in, tile the data section without
 * holes or overlaps, and each is as long as its shape and dtype say.
 */
#ifndef RS_CHECKPOINT_FORMAT_SAFETENSORS_H
#define RS_CHECKPOINT_FORMAT_SAFETENSORS_H

#include "base/table.h"
#include "checkpoint/target/format.h"
#include "text/json.h"

#define RS_HEADER_BYTES_MAX ((uint64_t)100000000)

typedef struct rs_header_entry {
    rs_slice name;
    reshard_dtype dtype;
    int32_t ndim; /* may exceed RESHARD_NDIM_MAX */
    const int64_t *shape;
    uint64_t begin, end; /* offsets in the data section */
} rs_header_entry;

typedef struct rs_header {
    rs_arena arena;
    rs_table shapes;     /* the shapes so far, while the header is read */
    char *text;          /* names point into it; NULL if the caller owns it */
    size_t text_bytes;   /* size of names and metadata */
    uint64_t data_begin; /* offset in the file */
    uint64_t data_bytes;
    int64_t entry_count, entry_capacity;
    rs_header_entry *entries; /* sorted by place in the file */
    rs_header_entry **by_name;
    int64_t metadata_count, metadata_capacity;
    rs_metadatum *metadata;
    bool has_metadata;
} rs_header;

/* Parses a header. Names are decoded in place, to the front of `text`, which must outlive the
 * header. `what` is the file's name in errors. data_bytes is the number of bytes after the header.
 * Errors: SYNTAX, RANGE, CORRUPT. */
reshard_status rs_header_parse(reshard_context *context, const char *what, char *text,
                               size_t text_bytes, uint64_t data_bytes, rs_header **out_header);
/* Reads the header of an open file. Errors name its path. */
reshard_status rs_header_read(reshard_context *context, const rs_file *file,
                              rs_header **out_header);
/* The same for a safetensors file that reaches from byte `at` of the file to its end. data_begin
 * counts from there. */
reshard_status rs_header_read_at(reshard_context *context, const rs_file *file, uint64_t at,
                                 rs_header **out_header);
/* Frees the entries, but keeps the names and shapes they point to. */
void rs_header_drop_entries(rs_header *header);
void rs_header_destroy(rs_header *header);

/* The index of an entry in by_name; -1 if there is none. */
int64_t rs_header_find(const rs_header *header, rs_slice name);
/* The last value with that key, as in the reference reader; NULL if there is none. */
const rs_metadatum *rs_header_metadata(const rs_header *header, const char *key);

/* ---- files of a checkpoint (safetensors_files.c) --------------------------------------------- */

/* Opens the safetensors files of the opening and reads their headers; does nothing if the
 * checkpoint has files already. If a folder has a model under a name that loaders know, files with
 * other names are left out. A file whose name does not end in .safetensors counts if it was named
 * itself and looks like one. */
reshard_status rs_safetensors_open(reshard_checkpoint *checkpoint, const rs_opening *opening,
                                   bool *out_any);
/* The same for given names. */
reshard_status rs_safetensors_open_named(reshard_checkpoint *checkpoint, int64_t count,
                                         char *const *names);
/* Reads the header of one file that the store has opened. */
reshard_status rs_safetensors_open_file(reshard_checkpoint *checkpoint, int32_t file);
/* Keeps the files' metadata and the stem of their names. Call it last: afterwards only the names,
 * shapes and metadata of the headers are left. */
reshard_status rs_safetensors_finish(reshard_checkpoint *checkpoint);
const rs_header *rs_safetensors_header(const reshard_checkpoint *checkpoint, int32_t file);
/* An entry as an occurrence: a whole tensor, unless the caller says which box it is. */
rs_occurrence rs_safetensors_occurrence(const reshard_checkpoint *checkpoint, int32_t file,
                                        const rs_header_entry *entry);
/* Adds all entries of all files. */
reshard_status rs_safetensors_gather(reshard_checkpoint *checkpoint, rs_occurrences *list);

/* ---- documents (safetensors_files.c) --------------------------------------------------------- */

/* Reads what a document says about the entry at `index` of by_name. */
typedef reshard_status rs_member_fn(rs_arena *arena, rs_json *json, const rs_json_token *key,
                                    int64_t index, void *user);

/* Reads a metadatum that is a JSON object with the file's entries as keys: calls `read` for each
 * member. Does nothing if there is no such metadatum. Errors: SYNTAX, also for a key that is not an
 * entry. */
reshard_status rs_header_document(rs_arena *arena, const rs_header *header, const char *key,
                                  rs_member_fn *read, void *user);
/* The same for a file of a checkpoint; errors name it. */
reshard_status rs_safetensors_document(reshard_checkpoint *checkpoint, int32_t file,
                                       const char *key, rs_member_fn *read, void *user);
/* Reads a list of exactly `count` numbers into the arena. */
reshard_status rs_safetensors_numbers(rs_arena *arena, rs_json *json, int32_t count,
                                      const int64_t **out_numbers);

/* ---- writing (safetensors_write.c) ----------------------------------------------------------- */

/* Adds members to __metadata__, each followed by a comma. */
typedef void rs_metadata_fn(rs_json_writer *writer, const rs_target *target, int32_t file);

/* For rs_format's write_head. metadata NULL: only "format" and what the source had. */
reshard_status rs_safetensors_write_head(const rs_target *target, int32_t file,
                                         rs_metadata_fn *metadata, rs_json_writer *writer);
/* For rs_format's place: the data begins on a page, and entries follow each other without gaps. */
reshard_status rs_safetensors_place(rs_target *target, int32_t file);
/* Writes the JSON document that `write` makes, as a string under a key. */
void rs_safetensors_write_document(rs_json_writer *writer, const char *key, rs_metadata_fn *write,
                                   const rs_target *target, int32_t file);

/* The stem of the source's files, if loaders know it. Only formats that name their files themselves
 * write it. */
#define RS_NAME_KEY "RESHARD_NAME"

/* Under this key our own files give the full shapes of the tensors whose entries hide them, as a
 * document: {"key": [shape]}. The call writes that document. */
#define RS_SHAPES_KEY "RESHARD_SHAPES"
void rs_safetensors_write_shapes(rs_json_writer *writer, const rs_target *target, int32_t file);

#endif
