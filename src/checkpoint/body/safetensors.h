/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.h - safetensors files, the body that several formats share. Such a file is 8 bytes of
 * length (little-endian), a header (a JSON object of entries), then the data.
 *
 * Reading is as strict as the reference reader, and refuses two things that it accepts: a name that
 * occurs twice, and entries that are not spelt as objects. In a header that has been read, the
 * entries, in the order they are kept in, tile the data section without holes and overlaps, and
 * each is as long as its shape and dtype say.
 */
#ifndef RS_CHECKPOINT_FORMAT_SAFETENSORS_H
#define RS_CHECKPOINT_FORMAT_SAFETENSORS_H

#include "base/table.h"
#include "checkpoint/body/format.h"
#include "text/json.h"

#define RS_HEADER_BYTES_MAX ((uint64_t)100000000)
/* Our files begin their data on a page, so that the file system can share ranges. */
#define RS_DATA_ALIGNMENT ((uint64_t)4096)

typedef struct rs_header_entry {
    rs_slice name;
    reshard_dtype dtype;
    int32_t ndim; /* any number of dims */
    const int64_t *shape;
    uint64_t begin, end; /* bytes of the data section */
} rs_header_entry;

typedef struct rs_header {
    rs_arena arena;
    rs_table shapes;     /* while the header is read: the shapes so far */
    char *text;          /* names point into it; NULL when the caller owns it */
    size_t text_bytes;   /* of names and metadata */
    uint64_t data_begin; /* in the file */
    uint64_t data_bytes;
    int64_t entry_count, entry_capacity;
    rs_header_entry *entries; /* by place in the file */
    rs_header_entry **by_name;
    int64_t metadata_count, metadata_capacity;
    rs_metadatum *metadata;
    bool has_metadata;
} rs_header;

/* Names are decoded to the front of `text`, which must outlive the header. Errors call the file
 * `what`. data_bytes is the length of what follows the header. Errors: SYNTAX, RANGE, CORRUPT. */
reshard_status rs_header_parse(reshard_context *context, const char *what, char *text,
                               size_t text_bytes, uint64_t data_bytes, rs_header **out_header);
/* The header of an open file. Errors name its path. */
reshard_status rs_header_read(reshard_context *context, const rs_file *file,
                              rs_header **out_header);
/* The same of a safetensors file that goes from byte `at` of the file to its end; its data_begin
 * counts from there. */
reshard_status rs_header_read_at(reshard_context *context, const rs_file *file, uint64_t at,
                                 rs_header **out_header);
/* Lets go of the entries. What they point to, names and shapes, stays. */
void rs_header_drop_entries(rs_header *header);
void rs_header_destroy(rs_header *header);

/* The index among entries by name; -1 when there is none. */
int64_t rs_header_find(const rs_header *header, rs_slice name);
/* The last one with that key, as in the reference reader; NULL when there is none. */
const rs_metadatum *rs_header_metadata(const rs_header *header, const char *key);

/* ---- files of a checkpoint (safetensors_files.c) --------------------------------------------- */

/* Opens the safetensors files among those of the opening and reads their headers; does nothing when
 * the checkpoint has files already. Where a folder has a model under a name that loaders know,
 * files with other names are left out. A file whose name does not end in .safetensors counts when
 * it is opened by its own name and looks like one. */
reshard_status rs_safetensors_open(reshard_checkpoint *checkpoint, const rs_opening *opening,
                                   bool *out_any);
/* The same for files that are known by name. */
reshard_status rs_safetensors_open_named(reshard_checkpoint *checkpoint, int64_t count,
                                         char *const *names);
/* Reads the header of one file, which the store has opened. */
reshard_status rs_safetensors_open_file(reshard_checkpoint *checkpoint, int32_t file);
/* Files or tensors beside the model that are left out: adds a note, or fails if the caller wants it
 * refused. what: "tensors that the index does not name"; first: one of them, for the words. */
reshard_status rs_safetensors_leave_out(reshard_checkpoint *checkpoint, const rs_opening *opening,
                                        int64_t count, const char *what, rs_slice first);
/* Keeps what the files say beside their tensors, and what they are called. To be called last: of
 * the headers only names, shapes and metadata are left. */
reshard_status rs_safetensors_finish(reshard_checkpoint *checkpoint);
const rs_header *rs_safetensors_header(const reshard_checkpoint *checkpoint, int32_t file);
/* An entry as an array of its file: whole, until the caller says which box it is. */
rs_occurrence rs_safetensors_occurrence(const reshard_checkpoint *checkpoint, int32_t file,
                                        const rs_header_entry *entry);

/* ---- documents (safetensors_files.c) --------------------------------------------------------- */

/* Reads what a document says about the entry that is `index`-th by name. */
typedef reshard_status rs_member_fn(rs_arena *arena, rs_json *json, const rs_json_token *key,
                                    int64_t index, void *user);

/* A metadatum may be a JSON object about entries of its file. Calls `read` for each member; without
 * the metadatum does nothing. Errors: SYNTAX, also for a key that is no entry. */
reshard_status rs_header_document(rs_arena *arena, const rs_header *header, const char *key,
                                  rs_member_fn *read, void *user);
/* The same for a file of a checkpoint, which errors name. */
reshard_status rs_safetensors_document(reshard_checkpoint *checkpoint, int32_t file,
                                       const char *key, rs_member_fn *read, void *user);
/* A list of exactly `count` numbers, in the arena. */
reshard_status rs_safetensors_numbers(rs_arena *arena, rs_json *json, int32_t count,
                                      const int64_t **out_numbers);

/* ---- writing (safetensors_write.c) ----------------------------------------------------------- */

/* Adds members to __metadata__, each followed by a comma. */
typedef void rs_metadata_fn(rs_json_writer *writer, const rs_target *target, int32_t file);

/* As rs_format's write_head. metadata NULL: none but "format". */
reshard_status rs_safetensors_write_head(const rs_target *target, int32_t file,
                                         rs_metadata_fn *metadata, rs_json_writer *writer);
/* As rs_format's place: the data begins on a page, and entries follow each other. */
reshard_status rs_safetensors_place(rs_target *target, int32_t file);
/* A JSON document that `write` makes, as a string under a key. */
void rs_safetensors_write_document(rs_json_writer *writer, const char *key, rs_metadata_fn *write,
                                   const rs_target *target, int32_t file);

/* What the files of the source were called, when loaders go by that; only files with names of their
 * own say so. */
#define RS_NAME_KEY "RESHARD_NAME"

/* Under this key our own files give the whole shapes of the tensors whose entries hide them, as a
 * document: {"key": [shape]}. The call writes that document. */
#define RS_SHAPES_KEY "RESHARD_SHAPES"
void rs_safetensors_write_shapes(rs_json_writer *writer, const rs_target *target, int32_t file);

#endif
