/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.h - the checkpoint that a conversion will write: which tensors, which box of each goes
 * into which file, and where in that file. Nothing here touches a file; all places are known before
 * the first byte is read or written.
 *
 * The files of a mesh are numbered by its ranks in increasing order. In each file, arrays whose
 * size is a multiple of 4096 bytes come first; the data section also begins on such a boundary, so
 * that the file system can share their blocks. The others follow by decreasing element size, so
 * that each is aligned. Equals are ordered by name. So the same checkpoint is the same bytes,
 * whatever it was converted from.
 */
#ifndef RS_CHECKPOINT_TARGET_TARGET_H
#define RS_CHECKPOINT_TARGET_TARGET_H

#include <reshard/checkpoint_live.h>

#include "base/digest.h"
#include "checkpoint/select/cuts.h"
#include "checkpoint/target/format.h"

/* What an array is, apart from its place. Tensors that are cut alike share it. */
typedef struct rs_target_array {
    const rs_slice *key; /* NULL: the tensor's name */
    const int64_t *shape;
    uint64_t bytes;
    int32_t ndim;        /* as stored */
    int32_t piece_count; /* how many of the tensor's pieces lie in it */
    bool hides_shape;    /* its shape does not reveal the tensor's, so the file has to say it */
} rs_target_array;

/* One array in one file. A model can have hundreds of thousands of them. */
typedef struct rs_target_entry {
    uint64_t begin; /* offset in the data section */
    int32_t array;  /* index into the target's arrays */
    int32_t tensor; /* index into the target's tensors */
    int32_t file;
    int32_t piece_first; /* the first of the tensor's pieces that lies in it */
} rs_target_entry;

typedef struct rs_target_file {
    const char *name; /* NULL: it would be empty, and is not written */
    int64_t entry_first, entry_count;
    uint64_t data_begin;
    uint64_t bytes; /* size of the whole file */
} rs_target_file;

struct rs_target {
    reshard_context *context;
    const reshard_checkpoint *source; /* NULL: tensors in memory */
    rs_arena arena;
    const rs_format *format;
    int64_t tensor_count;
    rs_stored_tensor *tensors; /* their pieces have places in the target's files */
    int64_t *origins;          /* by tensor: index of the source's tensor, or of the live one */
    /* by tensor: the stored tensor that is read; NULL for live ones */
    const rs_stored_tensor **stored;
    const rs_cut_row **rows; /* by tensor, may be NULL; no array for live ones */
    rs_cut_row *kept_rows;   /* a list of these, which the target owns */
    /* By tensor: the index of the tensor whose entry and pieces a tied one shares, or -1. NULL: the
     * format stores each tensor on its own. */
    int64_t *owners;
    int64_t name_count; /* number of live tensors; else 0 */
    rs_slice *names;
    int64_t array_count, array_capacity;
    rs_target_array *arrays;
    int64_t entry_count, entry_capacity;
    rs_target_entry *entries; /* sorted by file, then by place */
    int32_t file_count;
    int32_t written_count; /* number of files that are written */
    rs_target_file *files;
    uint64_t bytes; /* size of all files */
    char rules[RS_RULES_SAID_BYTES];
    const char *naming;   /* for the user: that of the source, and as what it is written; or NULL */
    rs_notes lines;       /* lines for the user: what stays behind, and what may be unexpected */
    rs_notes warnings;    /* lines about what is probably wrong */
    rs_slice prefix;      /* prefix that the source's names lose on the way */
    bool names_are_plain; /* no name needs an escape in JSON; known once entries have places */
    void *notes;          /* what the format keeps from lay_out to finish; in the arena */
    /* Metadata of the source, which must outlive the target. */
    int64_t metadata_count;
    const rs_metadatum *metadata;
    const char *stem;     /* name of files with whole tensors, without number and ending */
    const int32_t *ranks; /* the rank of each file, if the format is split over a mesh; else NULL */
    /* The dtype that most weights were cast to, for config.json; NONE: they were not cast. */
    reshard_dtype cast;
    /* What a map makes of the source, whose tensors are those of `source` then; NULL: no map. */
    const struct rs_mapped *mapped;
    /* Heads that are left out because they are tied, and have to equal the embedding. */
    int64_t tied_count;
    struct rs_mapped_check *tied;
    bool dequantises; /* config.json should no longer say how they are quantised */
    /* A description of the model that is made for the output, config.json or params.json, and one
     * of the source that does not go along. NULL: none. */
    const char *made_name, *left_name;
    rs_slice made_text;
    /* bytes that the format puts into every file; only the format knows their meaning */
    rs_slice document;
};

/* Sorts the entries by file and gives each its place. */
reshard_status rs_target_place(rs_target *target);
void rs_target_release(rs_target *target);

/* Adds which boxes of a tensor are in which files, and where. */
void rs_pieces_digest(rs_digest *digest, const rs_stored_tensor *tensor);
/* Adds what each file holds, where, and under which names. */
void rs_target_digest(const rs_target *target, rs_digest *digest);

static inline const rs_target_array *rs_target_array_of(const rs_target *target,
                                                        const rs_target_entry *entry)
{
    return &target->arrays[entry->array];
}
/* The name of an entry in its file. */
rs_slice rs_target_key(const rs_target *target, const rs_target_entry *entry);
/* Writes that name as a JSON string. */
void rs_target_write_key(rs_json_writer *writer, const rs_target *target,
                         const rs_target_entry *entry);

/* Writes the bytes in front of the data into a file. */
reshard_status rs_target_write_head(const rs_target *target, int32_t index, rs_file *file);
/* Adds a line for the user about something that the target will not hold. */
reshard_status rs_target_say(rs_target *target, const char *format, ...) RS_PRINTF(2, 3);
/* Adds a line about something that is probably wrong, which the command always prints. */
reshard_status rs_target_warn(rs_target *target, const char *format, ...) RS_PRINTF(2, 3);
/* Calls the format's `finish`, if it has one. */
reshard_status rs_target_finish(const rs_target *target, const rs_finishing *finishing);

/* ---- laying out (formats) -------------------------------------------------------------------- */

/* The input of a format's lay_out. Tensors come from a checkpoint, selected, or from memory. */
struct rs_laying {
    rs_target *target;
    const reshard_checkpoint *source; /* NULL: tensors in memory; each rank has one file */
    /* of the source: its selected tensors, sorted by name; split formats: the mesh and its rules */
    rs_cuts *cuts;
    const int32_t *file_of;  /* by position of that mesh: the file */
    uint64_t file_bytes_max; /* whole tensors: begin another file beyond this; 0: chosen here */
    const reshard_live_tensor *live; /* tensors in memory, name_count of them */
    uint64_t *loads;                 /* while cutting: by file, the bytes so far */
    const reshard_checkpoint *donor; /* for `follow`; else NULL */
    const char *type; /* for `follow`: of all tensors, if possible; NULL: as the donor's */
};

reshard_status rs_target_add_array(rs_target *target, const rs_target_array *array,
                                   int32_t *out_index);
reshard_status rs_target_add_entry(rs_target *target, const rs_target_entry *entry);
/* Adds a whole tensor of the source as the target's next one, as one piece in the given file. */
reshard_status rs_target_add_whole(const rs_laying *laying, const rs_selected *selected,
                                   int32_t file);
/* Fills in target->owners. A tensor is tied to an earlier one if it has the same bytes in the
 * source, the same dtype and the same shape. */
reshard_status rs_target_find_tied(const rs_laying *laying);
/* Adds the selected tensor as the target's next one, sharing its owner's entry. */
reshard_status rs_target_add_tied(const rs_laying *laying, const rs_selected *selected);
/* Does a value of the source with this name go along? If so, its name becomes that in the
 * target. */
bool rs_target_keeps(const rs_target *target, rs_slice *name);

/* ---- cutting (target_cut.c; split formats) --------------------------------------------------- */

/* A box that a rank holds, cut to the tensor's own shape. Its arrays are in the target's arena. */
typedef struct rs_candidate {
    int32_t file;
    int32_t buffer;
    int64_t box; /* number of the box, from 0 up; equal boxes have the same */
    const int64_t *offset, *size;
    const int64_t *strides; /* in the buffer, in elements; NULL: dense */
    int64_t at;             /* where it begins in the buffer, in elements */
    uint64_t bytes;
    int32_t array; /* the array for the box alone, dense; equal boxes share it */
} rs_candidate;

/* One buffer that a rank has in memory, including padding. */
typedef struct rs_rank_buffer {
    int32_t file;
    int32_t array;
    int64_t first, count; /* its boxes, as a range of by_buffer */
} rs_rank_buffer;

/* What ranks hold of tensors of one shape and dtype. The boxes cover the tensor; any two of them
 * are equal or do not overlap. */
typedef struct rs_rank_holding {
    reshard_layout *layout; /* including padding; owns a reference */
    reshard_shards *shards; /* of this layout */
    struct rs_rank_holding *next;
    bool is_flat; /* cut flat, along its row-major order */
    int64_t count;
    const rs_candidate **by_box;    /* candidates sorted by box, then by file */
    const rs_candidate **by_buffer; /* candidates sorted by buffer, then by place in it */
    const rs_candidate **chosen; /* room for `count` candidates, for code that chooses among them */
    int64_t buffer_count;
    rs_rank_buffer *buffers; /* sorted by rank; after those that hold the tensor, zeros */
} rs_rank_holding;

typedef struct rs_cut_tensor {
    rs_stored_tensor *tensor; /* has room for holding->count pieces, at least one */
    const rs_rank_holding *holding;
} rs_cut_tensor;

/* Chooses which boxes are stored where: fills in the tensor's pieces and adds entries. */
typedef reshard_status rs_place_fn(const rs_laying *laying, const rs_cut_tensor *cut);

/* Cuts all tensors and calls `place` for each. Errors: as rs_rules_apply; OVERLAP. */
reshard_status rs_target_cut(rs_laying *laying, rs_place_fn *place);

/* Which coordinates of an axis hold part of a tensor that is cut over it (target_shares.c). */
typedef struct rs_axis_shares {
    bool is_cut; /* some tensor is cut over the axis */
    bool *holds; /* by coordinate */
    int32_t count;
} rs_axis_shares;

typedef struct rs_shares {
    const reshard_mesh *mesh;
    const int32_t *file_of;
    int32_t file_count;
    bool *file_holds; /* scratch: the files that the current holding is in */
    rs_axis_shares axes[RESHARD_AXES_MAX];
} rs_shares;

/* For a mesh with rules. Allocates in the arena. */
reshard_status rs_shares_init(rs_shares *shares, const rs_laying *laying, rs_arena *arena);
void rs_shares_add(rs_shares *shares, const rs_rank_holding *holding);
/* Adds lines for the user about coordinates that hold nothing, and about layers and experts for
 * which there is no tensor. */
reshard_status rs_shares_say(const rs_shares *shares, const rs_rule_memo *memo, rs_target *target);

/* An rs_place_fn: each rank's file holds the buffer that the rank has of the tensor
 * (target_local.c). */
reshard_status rs_target_place_local(const rs_laying *laying, const rs_cut_tensor *cut);
/* Names the next box of a tensor in a file that holds several; *next counts them, from 0 in each
 * file. */
typedef reshard_status rs_box_name_fn(const rs_laying *laying, rs_slice tensor, int64_t *next,
                                      rs_slice *out_key);
/* Stores each box once, as an entry of its own (target_boxes.c). name NULL: all have the tensor's
 * name. */
reshard_status rs_target_place_boxes(const rs_laying *laying, const rs_cut_tensor *cut,
                                     rs_box_name_fn *name);

/* The file of a rank. */
int32_t rs_laying_file(const rs_laying *laying, int32_t rank);
/* Sorts by file, then by buffer, then by place in it. */
void rs_candidates_sort(const rs_candidate **items, int64_t count);

#endif
