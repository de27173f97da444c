/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - an open checkpoint, whatever its format: named tensors, each in pieces, each piece a
 * box of the tensor and where it lies in a file.
 *
 * Invariants of an open checkpoint:
 *  1. Tensors are sorted by name (as bytes), and no name occurs twice.
 *  2. The pieces of a tensor tile its carried shape: no holes, no overlaps, none empty unless the
 *     tensor is. They are sorted by file, then by place.
 *  3. Copies are boxes that some piece already holds, stored again. The files claim that they are
 *     equal; code that relies on it compares them.
 *  4. Every byte that a piece or a copy names lies inside its file, as it was when opened.
 *
 * Tensors that cannot be cut (elements smaller than a byte, more than 8 dims, a product of extents
 * beyond 63 bits) are opaque: they are carried whole, as a line of bytes.
 */
#ifndef RS_CHECKPOINT_STORE_STORE_H
#define RS_CHECKPOINT_STORE_STORE_H

#include "base/arena.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/slice.h"
#include "checkpoint/store/notes.h"
#include "system/file.h"
#include "text/text.h"

#include <reshard/checkpoint.h>

typedef struct rs_stored_file {
    const char *name; /* within the checkpoint's folder */
    rs_file *file;
    uint64_t bytes;
    rs_file_stamp stamp; /* at the time it was opened */
    /* The file body: what the format keeps about the open file, such as its header; names and
     * shapes may point into it. The store only destroys it. NULL: none. */
    void *body;
    void (*body_destroy)(void *body);
} rs_stored_file;

/* One step into nested values: the key of a dict, or the index of a list or tuple. */
typedef struct rs_value_step {
    const struct rs_value_step *parent; /* NULL: this is the first step */
    rs_slice key;                       /* bytes NULL: a number */
    int64_t number;
    bool in_list;
} rs_value_step;

/* Where a value or tensor was in nested values. Its name is its steps, joined by dots. */
typedef struct rs_value_place {
    const rs_value_step *step; /* the last step; NULL: the format does not nest */
    int64_t order;             /* index in the file's order of all tensors and values */
} rs_value_place;

/* Writes a value in full; of a list, at most items_max items (-1: all). It may stop once the text
 * is full. */
typedef struct rs_stored_value rs_stored_value;
typedef reshard_status rs_show_value_fn(const reshard_checkpoint *checkpoint,
                                        const rs_stored_value *value, int64_t items_max,
                                        rs_text *text);

/* Something that is not a tensor, such as a hyper-parameter. */
struct rs_stored_value {
    rs_slice name;
    rs_value_place place;
    int32_t file;
    const struct rs_pickle_node *node; /* owned by the file's body */
    const char *text;                  /* the value in short, for people; NULL: not known */
    const char *type;                  /* as in reshard_stored_value */
    bool is_json;
    int64_t item_count; /* -1: it has no items */
    rs_show_value_fn *show;
    const void *source; /* what the format's `show` reads it from */
    /* bytes in the file, if the value is a torch.save of its own; else bytes is 0 */
    uint64_t at, bytes;
    /* what it is to the program that wrote it, such as "random states", if that belongs to the
     * names and ranks it was saved with; NULL: an ordinary value */
    const char *kind;
};

/* A number that files say about the model, under the name that config.json has for it. */
typedef struct rs_stored_key {
    const char *name;
    int64_t value;
} rs_stored_key;

/* A tensor that cannot be read. */
typedef struct rs_unreadable {
    rs_slice name;
    const char *reason;
} rs_unreadable;

#define RS_VALUE_STEPS_MAX 1024

/* Bytes of a file whose CRC-32 its writer has stored. */
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

/* The tensor that an array in one rank's file is part of; shape NULL: the file does not say. */
typedef struct rs_stored_whole {
    int32_t ndim;
    const int64_t *shape;
    const int64_t *offset; /* where the part begins; NULL: not known */
    const char *spec;      /* how it is split; NULL: not known */
} rs_stored_whole;

/* A model can have hundreds of thousands of these, so its members are few and small. */
typedef struct rs_stored_tensor {
    rs_slice name;
    reshard_dtype dtype;
    int32_t ndim; /* as stored; may exceed RESHARD_NDIM_MAX */
    const int64_t *shape;
    uint64_t bytes; /* of the whole tensor */
    /* The shape that pieces are boxes of: the tensor's, or the number of bytes of an opaque
     * tensor. */
    const int64_t *carried_shape;
    int8_t carried_ndim;
    int8_t element_bytes;
    bool opaque;
    /* Some formats know more: it says again, in another dtype, what other tensors say, and is taken
     * only if it is asked for; it is not trained (a buffer, a frozen parameter). */
    bool is_aside : 1, is_fixed : 1;
    int32_t copy_count;
    int64_t piece_count;
    rs_stored_piece *pieces;
    rs_stored_piece *copies;
    const rs_value_step *step; /* formats that nest: the last step that leads to it; else NULL */
    const struct rs_formula *formula; /* NULL: files hold it; else it is computed (formula.h) */
    /* NULL: files hold it as its dtype says; else in these blocks, which are decoded while they are
     * read, and dtype is what they are decoded to */
    const struct rs_block_type *block_type;
    const struct rs_stored_piece *blocks; /* with a block_type: where the blocks lie, dense */
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
    bool owns_folder; /* other files there belong to the model: config.json, tokenizers */
    /* where config.json and such files are taken from instead, if the caller says so; else NULL */
    const char *base;
    /* the folder above, if the source's own config.json is there; else NULL */
    const char *above;
    /* A config.json of Hugging Face, as far as the files themselves say what is in it; it stands
     * for one that is not there. NULL: none. */
    const char *made_config;
    /* What reshard noted about the model when it wrote the files, as JSON: numbers that no shape
     * shows. It is compared with config.json, and does not stand for one. NULL: nothing. */
    const char *record;
    /* Rank files: name() in the rules has not been applied; the conversion that applies rules next
     * does that. */
    bool keeps_names;
    bool plan_only;      /* tensors must not be read: their exact places may be unknown */
    bool is_one_rank;    /* its tensors are one rank's parts, for inspection only */
    bool sizes_compared; /* shapes were compared with config.json when it was opened */
    bool is_unfinished;  /* its folder's journal does not say finished; for inspection only */
    /* The checkpoint that this one is a view of (view/view.c). It outlives the view and owns all
     * that the two share; the view has an arena and tensors of its own. NULL: no view. */
    const reshard_checkpoint *viewed;
    /* Its weights are values of what the files hold as codes and scales, so what config.json says
     * about these is not about its tensors. */
    bool is_dequantised;
    const char *view_rules; /* views: the family that cuts its names, if only that; else NULL */
    const char *format;
    int32_t file_count, file_capacity;
    /* the first files, which were opened by name; others are made from these */
    int32_t named_count;
    rs_stored_file *files;
    int64_t tensor_count;
    rs_stored_tensor *tensors;
    const rs_stored_whole *wholes; /* by tensor, if it is one rank's file; else NULL */
    uint64_t bytes;                /* size of all tensors, without copies */
    int64_t value_count, value_capacity;
    rs_stored_value *values; /* in the order of the files */
    bool lists_unreadable;   /* tensors that cannot be read are no error */
    int64_t unreadable_count, unreadable_capacity;
    rs_unreadable *unreadable; /* each name once */
    int64_t crc_count, crc_capacity;
    rs_stored_crc *crcs; /* of bytes that are not checked anyway while they are read */
    /* Metadata of the files that formats do not write themselves, sorted by key. It goes along into
     * files that can hold it. */
    int64_t metadata_count;
    rs_metadatum *metadata;
    /* What its files say about the model, for want of a config.json. */
    int64_t key_count;
    const rs_stored_key *keys;
    /* Names of files and folders that are part of its format, although they are not listed: they
     * say what others are, hold these, or repeat them. Ends with NULL. NULL: there are none. */
    const char *const *own_names;
    bool is_megatron; /* Megatron-Core wrote it */
    /* stem of its file names, if loaders know it ("adapter_model"); else NULL */
    const char *stem;
    rs_notes notes;    /* lines about things that cannot be known or were left out */
    rs_notes warnings; /* lines about what may do harm or is probably wrong */
};

/* ---- making (the readers of formats) --------------------------------------------------------- */

/* Creates a checkpoint without files and tensors. Slashes at the end of the path are cut off. */
reshard_status rs_store_create(reshard_context *context, const char *path,
                               reshard_checkpoint **out_checkpoint);
/* Opens files of the checkpoint's folder, in the order given, instead of any others. Errors: as
 * rs_file_open; UNSUPPORTED if a file is a git-LFS pointer. */
reshard_status rs_store_open_files(reshard_checkpoint *checkpoint, int64_t count,
                                   char *const *names);
/* Opens files, then calls `look` for each. Can be cancelled between two calls. */
reshard_status rs_store_open_each(reshard_checkpoint *checkpoint, int64_t count, char *const *names,
                                  reshard_status (*look)(reshard_checkpoint *checkpoint,
                                                         int32_t file));
/* Adds a file that is made from an open one, such as the content of a compressed member. Takes over
 * the file: it is closed before those that came earlier, or here if the call fails. */
reshard_status rs_store_add_file(reshard_checkpoint *checkpoint, rs_slice name, rs_file *file,
                                 int32_t *out_index);

/* What a name in the checkpoint's folder is; links are followed. */
reshard_status rs_store_kind_of(const reshard_checkpoint *checkpoint, const char *name,
                                rs_path_kind *out_kind);

/* Takes config.json from the folder above if there is none here, but a file `pointer` ("../latest")
 * that trainers have beside the folders of steps. What the caller gave instead goes before it.
 * *out_has: there is one. */
reshard_status rs_store_look_above(reshard_checkpoint *checkpoint, const char *pointer,
                                   bool *out_has);
/* The folder whose config.json describes the model. */
const char *rs_store_config_folder(const reshard_checkpoint *checkpoint);

/* If the path, which begins with the folder's, leaves the folder by a symbolic link or, for a
 * snapshot in the hub's cache, its model: returns where it leads, to be freed by rs_text_free.
 * Otherwise NULL. Errors: NOT_FOUND if
 * it leads nowhere; IO. */
reshard_status rs_store_follow_link(reshard_context *context, const char *folder, const char *path,
                                    char **out_outside);

/* One array found in a file: a tensor, or a box of one. Arrays of numbers have one for each of its
 * ndim dims. */
typedef struct rs_occurrence {
    rs_slice name; /* of the tensor */
    int32_t file;
    reshard_dtype dtype;
    int32_t ndim;
    const int64_t *shape;   /* of this array */
    uint64_t at;            /* byte of the file where its first element lies */
    const int64_t *strides; /* in elements; NULL: dense and row-major */
    const int64_t *offset;  /* in the tensor; NULL: zeros */
    const int64_t *full;    /* the full tensor's shape; NULL: the file does not say */
    rs_value_place place;   /* only formats that nest */
} rs_occurrence;

typedef struct rs_occurrences {
    int64_t count, capacity;
    rs_occurrence *items;
    /* A box that occurs again is a copy of the first. If this is false, it is an overlap, and an
     * error. */
    bool has_copies;
} rs_occurrences;

reshard_status rs_occurrences_add(reshard_context *context, rs_occurrences *list,
                                  const rs_occurrence *item);
void rs_occurrences_release(reshard_context *context, rs_occurrences *list);
/* Orders by name and file, for rs_sort and bsearch. */
int rs_compare_occurrences(const void *a, const void *b);

/* Adds a line for inspect. Fails only for lack of memory. */
reshard_status rs_store_note(reshard_checkpoint *checkpoint, const char *format, ...)
    RS_PRINTF(2, 3);

/* The same, unless there is such a line already. */
reshard_status rs_store_note_once(reshard_checkpoint *checkpoint, const char *format, ...)
    RS_PRINTF(2, 3);

/* Adds a line that the command always prints. */
reshard_status rs_store_warn(reshard_checkpoint *checkpoint, const char *format, ...)
    RS_PRINTF(2, 3);

/* Call with the status of reading a tensor. If that is UNSUPPORTED and such tensors are to be
 * listed, keeps a copy of the name with the error's text, and returns OK. Otherwise returns the
 * status. */
reshard_status rs_store_keep_unreadable(reshard_checkpoint *checkpoint, reshard_status status,
                                        rs_slice name);

/* Keeps a value; its name must outlive the checkpoint. */
reshard_status rs_store_add_value(reshard_checkpoint *checkpoint, const rs_stored_value *value);

/* Keeps the CRC of some bytes of a file, for code that wants to check them. */
reshard_status rs_store_add_crc(reshard_checkpoint *checkpoint, const rs_stored_crc *crc);

/* Computes the bytes of a tensor. Errors: RANGE if shape or size go beyond 64 bits (extents are
 * multiplied from left to right, as in the reference reader of safetensors), INVALID if the
 * elements do not end on a whole byte. */
reshard_status rs_stored_bytes(rs_slice name, reshard_dtype dtype, int32_t ndim,
                               const int64_t *shape, uint64_t *out_bytes);

/* Fills in everything about a tensor except its pieces; shape must outlive it. Errors: as
 * rs_stored_bytes. */
reshard_status rs_store_describe(rs_stored_tensor *tensor, rs_arena *arena, rs_slice name,
                                 reshard_dtype dtype, int32_t ndim, const int64_t *shape);

/* Sorts occurrences by name and makes one tensor for each name; its pieces are the occurrences.
 * Errors: GAP, OVERLAP, CORRUPT, ..., naming tensor and files. */
reshard_status rs_store_join(reshard_checkpoint *checkpoint, rs_occurrences *list);
/* The same for files that hold only whole tensors, each name once. hint, advice: of the error
 * about a name that occurs twice; the advice is appended to its text. */
reshard_status rs_store_join_whole(reshard_checkpoint *checkpoint, rs_occurrences *list,
                                   reshard_hint hint, const char *advice);

/* The next tensor, whole in one file; false at the end. */
typedef bool rs_next_whole_fn(void *user, rs_occurrence *out_item);
/* Makes tensors of files that hold only whole ones, at most `count`, without a list of occurrences,
 * which takes as much memory as a million tensors do. *out_doubled: the first whose name the next
 * one has as well, as an error that the caller puts into words; -1 if there is none. Errors: as
 * rs_store_join. */
reshard_status rs_store_take_whole(reshard_checkpoint *checkpoint, int64_t count,
                                   rs_next_whole_fn *next, void *user, int64_t *out_doubled);
/* Fails because the tensor and the next one have the same name; hint, advice: as above. */
reshard_status rs_store_fail_double(const reshard_checkpoint *checkpoint, int64_t tensor,
                                    reshard_hint hint, const char *advice);

/* Turns pieces that are the same box into copies; the one in the first file stays a piece. */
reshard_status rs_store_separate_copies(reshard_checkpoint *checkpoint, rs_stored_tensor *tensor);
/* Sorts pieces and checks invariant 2. */
reshard_status rs_store_check(const reshard_checkpoint *checkpoint, rs_stored_tensor *tensor);

/* ---- asking ---------------------------------------------------------------------------------- */

/* Compares by name, for rs_sort. */
int rs_stored_tensor_compare(const void *a, const void *b);
/* The index of a tensor; -1 if there is none. */
int64_t rs_store_find(const reshard_checkpoint *checkpoint, rs_slice name);
bool rs_piece_is_whole(const rs_stored_tensor *tensor, const rs_stored_piece *piece);
bool rs_piece_is_empty(const rs_stored_tensor *tensor, const rs_stored_piece *piece);
/* Compares by file, then by place, for rs_sort. */
int rs_piece_compare(const void *a, const void *b);
/* The strides of a piece in elements, whether given or dense. */
void rs_piece_strides(const rs_stored_tensor *tensor, const rs_stored_piece *piece,
                      int64_t out_strides[RESHARD_NDIM_MAX]);
/* Adds what the headers say about the tensors, so that ranks can check that they have opened the
 * same checkpoint. */
void rs_store_digest(const reshard_checkpoint *checkpoint, rs_digest *digest);
/* Makes a layout over files of pieces or copies: rank = file + first_rank, one shard for each. */
reshard_status rs_store_layout(reshard_context *context, const rs_stored_tensor *tensor,
                               const rs_stored_piece *pieces, int64_t piece_count, bool cover,
                               int32_t first_rank, reshard_layout **out_layout);

/* The part of a box that a piece holds, and where it lies in the piece's file. */
typedef struct rs_clip {
    int64_t offset[RESHARD_NDIM_MAX]; /* in the tensor */
    int64_t size[RESHARD_NDIM_MAX];
    int64_t strides[RESHARD_NDIM_MAX]; /* in the file, in elements */
    uint64_t at;                       /* byte of the file */
    int64_t bytes;                     /* size of its elements */
    uint64_t end;                      /* the byte after its last element */
} rs_clip;

/* False if box and piece have nothing in common. offset NULL: zeros. */
bool rs_piece_clip(const rs_stored_tensor *tensor, const rs_stored_piece *piece,
                   const int64_t *offset, const int64_t *size, rs_clip *out_clip);

/* How many pieces from `first` on share one array of one file: the strided ones of the same file. A
 * dense piece is alone. */
int64_t rs_piece_group(const rs_stored_piece *pieces, int64_t count, int64_t first);

/* A strided region of a file, and its layout in memory. Strides are in elements. */
typedef struct rs_file_region {
    int32_t ndim;
    int32_t element_bytes;
    int64_t size[RESHARD_NDIM_MAX];
    int64_t file_strides[RESHARD_NDIM_MAX];
    int64_t memory_strides[RESHARD_NDIM_MAX];
} rs_file_region;

/* Reads a region: directly if both sides are contiguous, else in large blocks through scratch
 * memory, which has room for at least one element. */
reshard_status rs_file_region_read(const rs_file *file, uint64_t at, const rs_file_region *region,
                                   void *memory, void *scratch, size_t scratch_bytes);

/* Call before reading tensors. Errors: INVALID if the checkpoint was opened for planning only;
 * UNFINISHED. */
reshard_status rs_store_check_readable(const reshard_checkpoint *checkpoint);
/* Call before reading all tensors. Errors: also UNSUPPORTED if some of them cannot be read. */
reshard_status rs_store_check_all_readable(const reshard_checkpoint *checkpoint);
/* Reads a box of the carried shape into memory, dense and row-major; computes what no file
 * holds. */
reshard_status rs_store_read_box(const reshard_checkpoint *checkpoint,
                                 const rs_stored_tensor *tensor, const int64_t *offset,
                                 const int64_t *size, void *memory, void *scratch,
                                 size_t scratch_bytes);

#endif
