/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.h - the checkpoint that a conversion shall write: which tensors, which box of each in
 * which file, and where in that file. Nothing here touches a file. All places are known before the
 * first byte is read or written.
 *
 * The files of a mesh are numbered by its ranks in increasing order. In each file, tensors whose
 * bytes are a multiple of 4096 come first: the data section begins on such a boundary too, so the
 * file system can share them. The others follow by decreasing element size, so that each is
 * aligned. Equals are ordered by name: the same checkpoint is the same bytes, whatever it was
 * converted from.
 */
#ifndef RS_CHECKPOINT_FORMAT_TARGET_H
#define RS_CHECKPOINT_FORMAT_TARGET_H

#include <reshard/checkpoint_live.h>

#include "base/digest.h"
#include "checkpoint/body/format.h"
#include "checkpoint/select/select.h"

/* What an array is, wherever it lies. Tensors that are cut alike share it. */
typedef struct rs_target_array {
    const rs_slice *key; /* NULL: the tensor's name */
    const int64_t *shape;
    uint64_t bytes;
    int32_t ndim;        /* as it is stored */
    int32_t piece_count; /* of the tensor's pieces, how many lie in it */
    bool hides_shape;    /* its shape does not tell that of the tensor, so the file has to */
} rs_target_array;

/* One array of one file. A model has some hundred thousand of them. */
typedef struct rs_target_entry {
    uint64_t begin; /* in the data section */
    int32_t array;  /* of the target's arrays: what it is */
    int32_t tensor; /* of the target's tensors */
    int32_t file;
    int32_t piece_first; /* of the tensor's pieces, the first that lies in it */
} rs_target_entry;

typedef struct rs_target_file {
    const char *name; /* NULL: would hold nothing and is not written */
    int64_t entry_first, entry_count;
    uint64_t data_begin;
    uint64_t bytes; /* of the whole file */
} rs_target_file;

/* How rules cut a tensor, for those who ask. Tensors that are cut alike share it. */
typedef struct rs_target_row {
    const char *cut; /* as a spec; NULL: the format does not cut */
    int32_t local_ndim;
    const int64_t *local_shape; /* on the first rank that holds some of it */
    const int64_t *padded_shape;
    const char *rule_file;
    int32_t rule_line;
} rs_target_row;

struct rs_target {
    reshard_context *context;
    const reshard_checkpoint *source; /* NULL: tensors in memory */
    rs_arena arena;
    const rs_format *format;
    int64_t tensor_count;
    rs_stored_tensor *tensors; /* pieces with places in the target's files */
    int64_t *origins;          /* which tensor of the source, or which live one, each comes from */
    const rs_stored_tensor **stored; /* as it is read; NULL for live ones */
    const rs_target_row **rows;      /* of each, or NULL; no array for live ones */
    /* Tied tensors: the one whose entry and pieces a tensor shares, by index, or -1. NULL: the
     * format stores each on its own. */
    int64_t *owners;
    int64_t name_count; /* live tensors: how many; else 0 */
    rs_slice *names;
    int64_t array_count, array_capacity;
    rs_target_array *arrays;
    int64_t entry_count, entry_capacity;
    rs_target_entry *entries; /* by file, then by place */
    int32_t file_count;
    int32_t written_count; /* how many of these are written */
    rs_target_file *files;
    uint64_t bytes; /* of all files */
    char rules[RS_RULES_SAID_BYTES];
    rs_notes lines;       /* what stays behind, or is not as one may expect, for the user */
    rs_slice prefix;      /* what names of the source lost on their way */
    bool names_are_plain; /* in JSON, none needs an escape; known once entries have their places */
    void *notes;          /* what the format keeps from lay_out to finish, in the arena */
    /* Of the source, which must outlive the target. */
    int64_t metadata_count;
    const rs_metadatum *metadata;
    const char *stem;     /* what whole tensors' files are called */
    const int32_t *ranks; /* of each file of a mesh; NULL for others */
    /* What most of the weights were cast to, and config.json should say; NONE: they were not. */
    reshard_dtype cast;
    bool dequantises;  /* config.json should no longer tell how they are quantised */
    rs_slice document; /* what the format says in every file; it alone knows what that is */
};

reshard_status rs_target_init(rs_target *target, const reshard_checkpoint *source,
                              const reshard_conversion_options *options);
/* The same for tensors that ranks 0 .. file_count-1 hold in memory, in the default split format:
 * each rank has one file. */
reshard_status rs_target_init_live(rs_target *target, reshard_context *context, int32_t file_count,
                                   int64_t count, const reshard_live_tensor *tensors);
/* Sorts the entries into their files and gives each its place. */
reshard_status rs_target_place(rs_target *target);
void rs_target_release(rs_target *target);

/* Of which boxes a tensor has in files, and where. */
void rs_pieces_digest(rs_digest *digest, const rs_stored_tensor *tensor);
/* Of what files hold where, and under which names. */
void rs_target_digest(const rs_target *target, rs_digest *digest);

/* What an entry is. */
static inline const rs_target_array *rs_target_array_of(const rs_target *target,
                                                        const rs_target_entry *entry)
{
    return &target->arrays[entry->array];
}
/* What an entry is called in its file. */
rs_slice rs_target_key(const rs_target *target, const rs_target_entry *entry);
/* Writes that as a string. */
void rs_target_write_key(rs_json_writer *writer, const rs_target *target,
                         const rs_target_entry *entry);

/* Writes the bytes in front of the data into a file. */
reshard_status rs_target_write_head(const rs_target *target, int32_t index, rs_file *file);
/* Adds a line for the user about something that the target will not hold. */
reshard_status rs_target_say(rs_target *target, const char *format, ...) RS_PRINTF(2, 3);
/* What the format does after all data, if anything. */
reshard_status rs_target_finish(const rs_target *target, const rs_finishing *finishing);

/* ---- laying out (formats) -------------------------------------------------------------------- */

/* What a format's lay_out works on. Tensors come from a checkpoint, selected, or from memory. */
struct rs_laying {
    rs_target *target;
    const reshard_checkpoint *source; /* NULL: tensors in memory, whose ranks are the files */
    const rs_selection *selection;    /* of the source's tensors, by name */
    const rs_rulebook *book;          /* the mesh and its rules; formats that are split */
    const int32_t *file_of;           /* the file of each position of that mesh */
    uint64_t file_bytes_max;          /* whole tensors: begin another file beyond this; 0: choose */
    const reshard_live_tensor *live;  /* in memory: name_count of them */
    uint64_t *loads;                  /* while cutting: bytes of each file so far */
};

reshard_status rs_target_add_array(rs_target *target, const rs_target_array *array,
                                   int32_t *out_index);
reshard_status rs_target_add_entry(rs_target *target, const rs_target_entry *entry);
/* A whole tensor of the source as the target's next one, as one piece in the given file. */
reshard_status rs_target_add_whole(const rs_laying *laying, const rs_selected *selected,
                                   int32_t file);
/* Fills in owners for all tensors of the selection: a tensor whose bytes in the source are those of
 * an earlier one, of the same dtype and shape, is tied to that. */
reshard_status rs_target_find_tied(const rs_laying *laying);
/* The selected tensor as the target's next one, sharing the entry of its owner. */
reshard_status rs_target_add_tied(const rs_laying *laying, const rs_selected *selected);
/* Whether a value of the source with this name is carried along; the name becomes the target's. */
bool rs_target_keeps(const rs_target *target, rs_slice *name);

/* ---- cutting (target_cut.c; formats that are split) ------------------------------------------ */

/* A box that a rank holds, cut to the tensor's own shape. Numbers are in the target's arena. */
typedef struct rs_candidate {
    int32_t file;
    int32_t buffer;
    int64_t box; /* boxes that are equal have the same number, from 0 up */
    const int64_t *offset, *size;
    const int64_t *strides; /* in the buffer, in elements; NULL: dense */
    int64_t at;             /* in the buffer, in elements */
    uint64_t bytes;
    int32_t array; /* the box alone, dense; equal boxes share it */
} rs_candidate;

/* What a rank has in memory, padding included. */
typedef struct rs_rank_buffer {
    int32_t file;
    int32_t array;
    int64_t first, count; /* of its boxes, among those by buffer */
} rs_rank_buffer;

/* What ranks hold of a tensor of one shape and dtype. The boxes cover it; they are equal or do not
 * overlap. */
typedef struct rs_rank_holding {
    reshard_layout *layout; /* padding included; one reference */
    reshard_shards *shards; /* of it */
    struct rs_rank_holding *next;
    const rs_target_row *row; /* NULL: of a live tensor */
    bool is_flat;             /* cut along its row-major order */
    int64_t count;
    const rs_candidate **by_box;    /* then by file */
    const rs_candidate **by_buffer; /* then by place in it */
    const rs_candidate **chosen;    /* room for as many, for who chooses among them */
    int64_t buffer_count;
    rs_rank_buffer *buffers; /* by rank */
} rs_rank_holding;

typedef struct rs_cut_tensor {
    rs_stored_tensor *tensor; /* with room for as many pieces, and for one at least */
    const rs_rank_holding *holding;
} rs_cut_tensor;

/* Chooses which boxes are stored where: fills in the tensor's pieces and adds entries. */
typedef reshard_status rs_place_fn(const rs_laying *laying, const rs_cut_tensor *cut);

/* Cuts all tensors and has each one placed. Errors: as rs_rules_apply; OVERLAP. */
reshard_status rs_target_cut(rs_laying *laying, rs_place_fn *place);

/* Which coordinates of each axis hold some of what is cut over it (target_shares.c). */
typedef struct rs_axis_shares {
    bool is_cut; /* some tensor is */
    bool *holds; /* by coordinate */
    int32_t count;
} rs_axis_shares;

typedef struct rs_shares {
    const reshard_mesh *mesh;
    const int32_t *file_of;
    int32_t file_count;
    bool *file_holds; /* of the holding that is added */
    rs_axis_shares axes[RESHARD_AXES_MAX];
} rs_shares;

struct rs_rule_memo;
/* Of a mesh with rules. What it allocates is in the arena. */
reshard_status rs_shares_init(rs_shares *shares, const rs_laying *laying, rs_arena *arena);
void rs_shares_add(rs_shares *shares, const rs_rank_holding *holding);
/* Adds lines for the user on coordinates that hold nothing, and on layers and experts that no
 * tensor is of. */
reshard_status rs_shares_say(const rs_shares *shares, const struct rs_rule_memo *memo,
                             rs_target *target);

/* An rs_place_fn: each rank's file has its own buffer of the tensor (target_local.c). */
reshard_status rs_target_place_local(const rs_laying *laying, const rs_cut_tensor *cut);
/* What the next box of a tensor is called in a file that holds several; *next counts them, from 0
 * in each file. */
typedef reshard_status rs_box_name_fn(const rs_laying *laying, rs_slice tensor, int64_t *next,
                                      rs_slice *out_key);
/* Stores each box once (target_boxes.c), as an entry of its own. name NULL: the tensor's. */
reshard_status rs_target_place_boxes(const rs_laying *laying, const rs_cut_tensor *cut,
                                     rs_box_name_fn *name);

/* The file of a rank. */
int32_t rs_laying_file(const rs_laying *laying, int32_t rank);
/* Sorts by buffer, which is by file, and by place in it. */
void rs_candidates_sort(const rs_candidate **items, int64_t count);
/* Does the spec cut along an axis of more than one rank? flat_only: flat cuts alone count. */
bool rs_spec_cuts(const reshard_spec *spec, bool flat_only);

#endif
