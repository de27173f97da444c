/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - what a checkpoint is once it has been opened, whatever its format: named tensors, each
 * in pieces, each piece a box of the tensor and where it lies in a file.
 *
 * Invariants of an open checkpoint:
 *  1. Tensors are sorted by name (as bytes), and no name occurs twice.
 *  2. The pieces of a tensor tile its carried shape: no holes, no overlaps, none empty unless the
 *     tensor is. They are sorted by file, then by place.
 *  3. Copies are boxes that some piece already holds, stored again. The files claim that they are
 *     equal; whoever relies on it compares them.
 *  4. Every byte that a piece or a copy names lies inside its file, as it was when opened.
 *
 * Tensors that cannot be cut (elements of less than a byte, more than 8 dims, extents whose product
 * is beyond 63 bits) are opaque: they are carried whole, as a line of bytes.
 */
#ifndef RS_CHECKPOINT_STORE_STORE_H
#define RS_CHECKPOINT_STORE_STORE_H

#include "base/arena.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/slice.h"
#include "checkpoint/store/notes.h"
#include "system/file.h"

#include <reshard/checkpoint.h>

typedef struct rs_stored_file {
    const char *name; /* within the checkpoint's folder */
    rs_file *file;
    uint64_t bytes;
    rs_file_stamp stamp; /* when it was opened */
    /* What the format keeps about the file while it is open, such as its header; names and shapes
     * may point into it. The store only destroys it. NULL: nothing. */
    void *body;
    void (*body_destroy)(void *body);
} rs_stored_file;

/* One step into nested values: the key of a dict, or the place in a list or tuple. */
typedef struct rs_value_step {
    const struct rs_value_step *parent; /* NULL: this is the first step */
    rs_slice key;                       /* bytes NULL: a number */
    int64_t number;
    bool in_list;
} rs_value_step;

/* What formats that nest values tell about one. Its name is its steps, joined by dots. */
typedef struct rs_value_place {
    const rs_value_step *step; /* the last one; NULL: the format does not nest */
    int64_t order;             /* among all tensors and values, as the file has them */
} rs_value_place;

/* Something that is no tensor, such as a hyper-parameter. */
typedef struct rs_stored_value {
    rs_slice name;
    rs_value_place place;
    int32_t file;
    const struct rs_pickle_node *node; /* belongs to the file's body */
    const char *text;                  /* the value in short, for people; NULL: not known */
    /* in the file, where the value is a torch.save of its own; else bytes is 0 */
    uint64_t at, bytes;
} rs_stored_value;

#define RS_VALUE_STEPS_MAX 1024

/* Bytes of a file whose CRC, that of zip files, its writer has noted. */
typedef struct rs_stored_crc {
    int32_t file;
    uint32_t crc;
    uint64_t at, bytes;
} rs_stored_crc;

typedef struct rs_stored_piece {
    int32_t file;
    uint64_t at;            /* byte of the file where the first element lies */
    const int64_t *offset;  /* in the tensor; NULL: zeros */
    const int64_t *size;    /* one for each carried dim */
    const int64_t *strides; /* in elements; NULL: dense and row-major */
} rs_stored_piece;

/* What an array of one rank's file is a part of; shape NULL: the file does not say. */
typedef struct rs_stored_whole {
    int32_t ndim;
    const int64_t *shape;
    const int64_t *offset; /* where the part begins; NULL: not known */
    const char *spec;      /* how it is split; NULL: not known */
} rs_stored_whole;

/* Models have up to some hundred thousand of them, so that its members are few and small. */
typedef struct rs_stored_tensor {
    rs_slice name;
    reshard_dtype dtype;
    int32_t ndim; /* as stored: any number */
    const int64_t *shape;
    uint64_t bytes; /* of the whole tensor */
    /* What pieces are boxes of: the shape, or the bytes of an opaque tensor. */
    const int64_t *carried_shape;
    int8_t carried_ndim;
    int8_t element_bytes;
    bool opaque;
    int32_t copy_count;
    int64_t piece_count;
    rs_stored_piece *pieces;
    rs_stored_piece *copies;
    const rs_value_step *step;        /* formats that nest: the last step to it; else NULL */
    const struct rs_formula *formula; /* NULL: files hold it; else it is made (formula.h) */
} rs_stored_tensor;

/* A line of metadata that files carry beside their tensors. */
typedef struct rs_metadatum {
    rs_slice key, value;
} rs_metadatum;

struct reshard_checkpoint {
    reshard_context *context;
    rs_arena arena;   /* owns all arrays of tensors and pieces */
    char *path;       /* as given */
    char *folder;     /* where the files are */
    bool owns_folder; /* what else is in there belongs to the model: config.json, tokenizers */
    /* Rank files: name() of rules has not been applied; the next to use the rules does that. */
    bool keeps_names;
    bool plan_only;   /* tensors are not to be read: where they lie may not be known exactly */
    bool is_one_rank; /* its tensors are what one rank has of them, to be looked at only */
    const char *format;
    int32_t file_count, file_capacity;
    /* the first of them, which were opened by name; others are made from these */
    int32_t named_count;
    rs_stored_file *files;
    int64_t tensor_count;
    rs_stored_tensor *tensors;
    const rs_stored_whole *wholes; /* of one rank's file, by tensor; else NULL */
    uint64_t bytes;                /* of all tensors, without copies */
    int64_t value_count, value_capacity;
    rs_stored_value *values; /* in the order of the files */
    int64_t crc_count, crc_capacity;
    rs_stored_crc *crcs; /* of what is not checked anyway while it is read */
    /* What files say beside their tensors and what formats write themselves, sorted by key: it goes
     * along into files that can hold it. */
    int64_t metadata_count;
    rs_metadatum *metadata;
    /* what its files are called, when loaders go by that ("adapter_model"); NULL */
    const char *stem;
    rs_notes notes; /* what cannot be known, and what was left out */
};

/* ---- making (the readers of formats) --------------------------------------------------------- */

/* A checkpoint without files and tensors yet; slashes at the end of the path are cut off. */
reshard_status rs_store_create(reshard_context *context, const char *path,
                               reshard_checkpoint **out_checkpoint);
/* Opens files of the checkpoint's folder, in the order given. Errors: as rs_file_open;
 * UNSUPPORTED when a file is a git-LFS pointer. */
reshard_status rs_store_open_files(reshard_checkpoint *checkpoint, int64_t count,
                                   char *const *names);
/* Opens them, and then looks at each with `look`, between two of which it can be cancelled. */
reshard_status rs_store_open_each(reshard_checkpoint *checkpoint, int64_t count, char *const *names,
                                  reshard_status (*look)(reshard_checkpoint *checkpoint,
                                                         int32_t file));
/* Adds a file that is made from one of these, such as the content of a compressed member. It is
 * closed before those that came earlier, and here when the call fails. */
reshard_status rs_store_add_file(reshard_checkpoint *checkpoint, rs_slice name, rs_file *file,
                                 int32_t *out_index);

/* If the path is a symbolic link that leaves the folder and, for a snapshot in the hub's cache, its
 * model: where it leads, to be freed by rs_text_free. Else NULL. Errors: NOT_FOUND when it leads
 * nowhere; IO. */
reshard_status rs_store_follow_link(reshard_context *context, const char *folder, const char *path,
                                    char **out_outside);

/* One stored array, which is (a box of) a tensor. Numbers are one for each of its ndim dims. */
typedef struct rs_occurrence {
    rs_slice name; /* of the tensor */
    int32_t file;
    reshard_dtype dtype;
    int32_t ndim;
    const int64_t *shape;   /* of this array */
    uint64_t at;            /* byte of the file where its first element lies */
    const int64_t *strides; /* in elements; NULL: dense and row-major */
    const int64_t *offset;  /* in the tensor; NULL: zeros */
    const int64_t *full;    /* the whole tensor's shape; NULL: the file does not say */
    int32_t full_ndim;      /* rank files: how many numbers `full` has; 0 elsewhere */
    rs_value_place place;   /* formats that nest */
} rs_occurrence;

typedef struct rs_occurrences {
    int64_t count, capacity;
    rs_occurrence *items;
    /* A box that occurs again is a copy of the first; else it is an overlap, and an error. */
    bool has_copies;
} rs_occurrences;

reshard_status rs_occurrences_add(reshard_context *context, rs_occurrences *list,
                                  const rs_occurrence *item);
void rs_occurrences_release(reshard_context *context, rs_occurrences *list);

/* Adds a line for inspect. Fails only for lack of memory. */
reshard_status rs_store_note(reshard_checkpoint *checkpoint, const char *format, ...)
    RS_PRINTF(2, 3);

/* Keeps something that is no tensor; its name must outlive the checkpoint. */
reshard_status rs_store_add_value(reshard_checkpoint *checkpoint, const rs_stored_value *value);

/* Keeps what a file says about some of its bytes, for those who want to check them. */
reshard_status rs_store_add_crc(reshard_checkpoint *checkpoint, const rs_stored_crc *crc);

/* Bytes of a tensor. Errors: RANGE when shape or size go beyond 64 bits (extents multiplied from
 * left to right, as the reference reader of safetensors does), INVALID when the elements do not end
 * on a whole byte. */
reshard_status rs_stored_bytes(rs_slice name, reshard_dtype dtype, int32_t ndim,
                               const int64_t *shape, uint64_t *out_bytes);

/* Fills in everything about a tensor but its pieces; shape must outlive it. Errors: as
 * rs_stored_bytes. */
reshard_status rs_store_describe(rs_stored_tensor *tensor, rs_arena *arena, rs_slice name,
                                 reshard_dtype dtype, int32_t ndim, const int64_t *shape);

/* Sorts occurrences by name and makes one tensor for each name; its pieces are the occurrences.
 * Errors: GAP, OVERLAP, CORRUPT, ..., naming tensor and files. */
reshard_status rs_store_join(reshard_checkpoint *checkpoint, rs_occurrences *list);
/* The same for files that hold whole tensors only, each name once. advice: what the error about a
 * second one ends with. */
reshard_status rs_store_join_whole(reshard_checkpoint *checkpoint, rs_occurrences *list,
                                   const char *advice);

/* Makes copies of pieces that are the same box; the one of the first file stays a piece. */
reshard_status rs_store_separate_copies(reshard_checkpoint *checkpoint, rs_stored_tensor *tensor);
/* Sorts pieces and checks invariant 2. */
reshard_status rs_store_check(const reshard_checkpoint *checkpoint, rs_stored_tensor *tensor);

/* ---- asking ---------------------------------------------------------------------------------- */

/* By name; for rs_sort. */
int rs_stored_tensor_compare(const void *a, const void *b);
/* -1 when there is none. */
int64_t rs_store_find(const reshard_checkpoint *checkpoint, rs_slice name);
bool rs_piece_is_whole(const rs_stored_tensor *tensor, const rs_stored_piece *piece);
bool rs_piece_is_empty(const rs_stored_tensor *tensor, const rs_stored_piece *piece);
/* By file, then by place; for rs_sort. */
int rs_piece_compare(const void *a, const void *b);
/* Strides in elements, whether given or dense. */
void rs_piece_strides(const rs_stored_tensor *tensor, const rs_stored_piece *piece,
                      int64_t out_strides[RESHARD_NDIM_MAX]);
/* Adds all that the headers tell of the tensors, by which ranks see that they have opened the same
 * checkpoint. */
void rs_store_digest(const reshard_checkpoint *checkpoint, rs_digest *digest);
/* Pieces, or copies, as one layout over files: rank = file + first_rank, one shard for each. */
reshard_status rs_store_layout(reshard_context *context, const rs_stored_tensor *tensor,
                               const rs_stored_piece *pieces, int64_t piece_count, bool cover,
                               int32_t first_rank, reshard_layout **out_layout);

/* The part of a box that a piece holds, and where it lies in the piece's file. */
typedef struct rs_clip {
    int64_t offset[RESHARD_NDIM_MAX]; /* in the tensor */
    int64_t size[RESHARD_NDIM_MAX];
    int64_t strides[RESHARD_NDIM_MAX]; /* in the file, in elements */
    uint64_t at;                       /* byte of the file */
    int64_t bytes;                     /* of its elements */
    uint64_t end;                      /* the byte after its last element */
} rs_clip;

/* False when they have nothing in common. offset NULL: zeros. */
bool rs_piece_clip(const rs_stored_tensor *tensor, const rs_stored_piece *piece,
                   const int64_t *offset, const int64_t *size, rs_clip *out_clip);

/* How many pieces from `first` on share one array of one file: the strided ones of the same file.
 * A dense piece is alone. */
int64_t rs_piece_group(const rs_stored_piece *pieces, int64_t count, int64_t first);

/* A strided region of a file, and how it shall lie in memory. Strides are in elements. */
typedef struct rs_file_region {
    int32_t ndim;
    int32_t element_bytes;
    int64_t size[RESHARD_NDIM_MAX];
    int64_t file_strides[RESHARD_NDIM_MAX];
    int64_t memory_strides[RESHARD_NDIM_MAX];
} rs_file_region;

/* Reads a region: directly when both sides are contiguous, else in large blocks through scratch
 * memory, which has room for at least one element. */
reshard_status rs_file_region_read(const rs_file *file, uint64_t at, const rs_file_region *region,
                                   void *memory, void *scratch, size_t scratch_bytes);

/* Whoever is about to read tensors asks first. Errors: INVALID when it was opened to plan only. */
reshard_status rs_store_check_readable(const reshard_checkpoint *checkpoint);
/* Reads a box of the carried shape into memory, dense and row-major. */
reshard_status rs_store_read_box(const reshard_checkpoint *checkpoint,
                                 const rs_stored_tensor *tensor, const int64_t *offset,
                                 const int64_t *size, void *memory, void *scratch,
                                 size_t scratch_bytes);

#endif
