/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.h - models on disk: named tensors in files, however they are split.
 *
 * A checkpoint is a set of named layouts whose owners are files. Opening one reads only headers,
 * and checks from them that every tensor is complete, without holes or overlaps, and that no file
 * is too short. After that, any box of any tensor can be read, whichever files it lies in.
 *
 * docs/formats.md describes the formats, and reshard_format_at lists them. Most files say how their
 * tensors are split; plain rank files hold only local shapes, and need a mesh and rules. All calls
 * are Local, except reshard_checkpoint_digest and reshard_checkpoint_hash with a group. For
 * conversions see conversion.h.
 */
#ifndef RESHARD_CHECKPOINT_H
#define RESHARD_CHECKPOINT_H

#include <reshard/group.h>
#include <reshard/layout.h>
#include <reshard/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * Open, find a tensor, read it.
 */

/* ---- opening --------------------------------------------------------------------------------- */

typedef struct reshard_checkpoint reshard_checkpoint;

typedef struct reshard_checkpoint_options {
    size_t size; /* sizeof(reshard_checkpoint_options) */
    /* The mesh of plain rank files, such as "tp=4". The files of the folder, sorted by the numbers
     * in their names, belong to its ranks in increasing order. NULL: the files say how they are
     * split. */
    const char *from;
    /* The rules by which rank files are split: a built-in family ("llama") or the path of a rules
     * file. NULL: chosen by config.json or the tensor names. */
    const char *rules;
    int32_t set_count; /* values for rules, each "key=value"; they override config.json */
    const char *const *sets;
    /* Non-zero: tensors of rank files keep the names that the files give them; renaming by name()
     * in the rules is left to the conversion that applies the rules next. */
    int keep_names;
    /* What to do with tensors and files that seem not to belong to the model: tensors that the
     * index of a Hugging Face folder does not name, files that it does not list, and, in a folder
     * without an index, files that are named differently from the model's. "skip" or NULL: leave
     * them out, with a note. "take": they belong to the model if their file is named like the
     * model's. "refuse": they are an error. */
    const char *unlisted;
    /* Rows that rules add to a tensor, by pad(), are cut off again when rank files are read. "zero"
     * or NULL: it is an error if they are not zero. "any": they may hold anything, with a note. */
    const char *padding;
    /* Non-zero: the checkpoint can be asked about and planned with, but not read. If the metadata
     * (of dcp) describe a great many entries of files, these entries are then not opened, and a
     * note says so. Calls that would read tensors, and runs of conversions, fail with INVALID. */
    int plan_only;
    /* Non-zero: if path is one file of a set of rank files, it is opened by itself, for inspection
     * only: its tensors have the shapes that this rank holds, a note says which file of how many it
     * is, and it cannot be converted. Zero: such a file is an error. */
    int one_rank;
    /* A folder whose config.json is used instead of the one beside the checkpoint, where rules need
     * numbers and where conversions write one. Its other files that hold no weights (tokenizers) go
     * along with it; they come before files of the same names in the checkpoint's folder. For
     * checkpoints without a config.json: distributed ones, rank files, adapters. NULL: none.
     * Errors: NOT_FOUND, INVALID if it has no config.json. */
    const char *config;
    /* What to do with tensors that cannot be read, such as sparse ones and those that PyTorch has
     * quantised. Zero: one of them is an error. Non-zero: they are listed by
     * reshard_checkpoint_unreadable, and the others can be used. Digests and comparisons of the
     * whole checkpoint fail then; conversions do, unless their patterns leave such tensors out. It
     * is an error if no tensor can be read. */
    int unreadable;
    /* Non-zero: a folder that a conversion or a save has not finished (its journal is there and
     * does not say so) is opened for inspection only: a note says that it is unfinished, and it can
     * be neither read nor converted. Zero: such a folder is an error, UNFINISHED. */
    int unfinished;
} reshard_checkpoint_options;

/* path: a folder or one file. options NULL: all zero. The files stay open until destroy. Errors:
 * NOT_FOUND, IO, SYNTAX, CORRUPT, GAP, OVERLAP, ..., with a text that names the tensor and the
 * file; UNSUPPORTED for a known format that cannot be read; UNFINISHED. */
RESHARD_API reshard_status reshard_checkpoint_open(reshard_context *context, const char *path,
                                                   const reshard_checkpoint_options *options,
                                                   reshard_checkpoint **out_checkpoint);
RESHARD_API void reshard_checkpoint_destroy(reshard_checkpoint *checkpoint);

/* ---- tensors --------------------------------------------------------------------------------- */

/* Pointers live as long as the checkpoint. */
typedef struct reshard_stored_tensor {
    size_t size;      /* sizeof(reshard_stored_tensor), set by the caller */
    const char *name; /* name_bytes bytes of UTF-8, which may include NUL; a NUL follows */
    size_t name_bytes;
    reshard_dtype dtype;
    int32_t ndim; /* may exceed RESHARD_NDIM_MAX */
    const int64_t *shape;
    uint64_t bytes;
    /* Non-zero: the tensor cannot be cut (elements smaller than a byte, more than 8 dims). Boxes
     * and layouts treat it as one dimension of `bytes` bytes. */
    int opaque;
    int64_t piece_count;
    int64_t copy_count; /* additional copies of boxes, such as replicas in rank files */
    /* With one_rank, the whole tensor that this is a part of: its shape, where the part begins, and
     * its spec ("tp=2: S(0)"). NULL: the file does not say. */
    int32_t whole_ndim;
    const int64_t *whole_shape, *whole_offset;
    const char *whole_spec;
    /* The quantised type that the file has it in ("Q4_K"), if that is not its dtype: reading it
     * gives the values, in the dtype. Else NULL. Static. */
    const char *stored_as;
    uint64_t stored_bytes; /* in the files, without copies */
    /* Non-zero: says again, in another dtype, what other tensors say, as the 16-bit weights in
     * ZeRO's files do. It is converted only if it is asked for, and is not in the digest of the
     * checkpoint. */
    int is_aside;
} reshard_stored_tensor;

/* Pointers live as long as the checkpoint. */
typedef struct reshard_checkpoint_info {
    size_t size;        /* sizeof(reshard_checkpoint_info), set by the caller */
    const char *format; /* its name, as in reshard_format. Static */
    int64_t tensor_count;
    uint64_t bytes; /* of all tensors, each element counted once */
    /* How many files, the first ones, are files on disk. Others are made from these while they are
     * read: what is compressed or quantised in them. */
    int32_t disk_file_count;
} reshard_checkpoint_info;
/* Errors: INVALID for a size that no release has. */
RESHARD_API reshard_status reshard_checkpoint_get_info(const reshard_checkpoint *checkpoint,
                                                       reshard_checkpoint_info *out_info);
/* Tensors are numbered in the order of their names, compared as bytes. Errors: RANGE. */
RESHARD_API reshard_status reshard_checkpoint_tensor(const reshard_checkpoint *checkpoint,
                                                     int64_t index,
                                                     reshard_stored_tensor *out_tensor);
/* Errors: NOT_FOUND. */
RESHARD_API reshard_status reshard_checkpoint_find(const reshard_checkpoint *checkpoint,
                                                   const char *name, size_t name_bytes,
                                                   int64_t *out_index);

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads a box of a tensor, dense and row-major, into memory of exactly its size. box NULL: the
 * whole tensor. Several threads may read at once. Errors: INVALID, RANGE, IO, CORRUPT. */
RESHARD_API reshard_status reshard_checkpoint_read(const reshard_checkpoint *checkpoint,
                                                   int64_t tensor, const reshard_box *box,
                                                   void *memory, size_t bytes);

/* ==== explicit ===================================================================================
 * What a checkpoint holds besides tensors and where it lies; one rank's part of many tensors; views
 * under another naming; digests and hashes.
 */

/* ---- what else there is ---------------------------------------------------------------------- */

/* The path of a file, relative to the checkpoint's folder. Lives as long as the checkpoint; NULL
 * beyond the last. */
RESHARD_API const char *reshard_checkpoint_file_name(const reshard_checkpoint *checkpoint,
                                                     int32_t file);
typedef enum reshard_note_kind {
    RESHARD_NOTE,   /* something could not be determined, was left out, or may be unexpected */
    RESHARD_WARNING /* something is probably wrong, or meant to do harm */
} reshard_note_kind;

/* One line. Notes of each kind are numbered from 0; NULL beyond the last. A warning is a pickle
 * that would make Python call something, for example; the library calls nothing. */
RESHARD_API const char *reshard_checkpoint_note(const reshard_checkpoint *checkpoint,
                                                reshard_note_kind kind, int64_t index);

/* A stored value that is not a tensor, such as a step count or a hyper-parameter. Pointers live as
 * long as the checkpoint. */
typedef struct reshard_stored_value {
    size_t size;      /* sizeof(reshard_stored_value), set by the caller */
    const char *name; /* like the name of a tensor, below */
    size_t name_bytes;
    const char *text; /* the value, shortened to one line; NULL: not known */
    /* What it is: "u32" or "list of str" (GGUF), "int" or "dict" (Python's types, PyTorch's files).
     * NULL: not known. Static */
    const char *type;
    int64_t item_count; /* of a list, tuple, set or dict; -1: it is none of these */
    int is_json; /* non-zero: reshard_checkpoint_value_text writes JSON; else as Python does */
} reshard_stored_value;
/* Values, numbered from 0 in the order of the files. Errors: RANGE beyond the last. */
RESHARD_API reshard_status reshard_checkpoint_value(const reshard_checkpoint *checkpoint,
                                                    int64_t index, reshard_stored_value *out_value);
/* Writes a value in full, as one line of text that ends with NUL. items_max: of longer lists, only
 * so many items are written, and the number of all; -1: all of them. Errors: RANGE beyond the last
 * value, or if the text does not fit in `capacity` bytes; NOT_FOUND if the value is not known. */
RESHARD_API reshard_status reshard_checkpoint_value_text(const reshard_checkpoint *checkpoint,
                                                         int64_t index, int64_t items_max,
                                                         char *buffer, size_t capacity);

/* A line of text that files carry beside their tensors, under a key: __metadata__ of safetensors.
 * Both may hold any bytes. Pointers live as long as the checkpoint. */
typedef struct reshard_stored_text {
    size_t size; /* sizeof(reshard_stored_text), set by the caller */
    const char *key;
    size_t key_bytes;
    const char *text;
    size_t text_bytes;
} reshard_stored_text;
/* Such texts, numbered from 0 and sorted by key, without those by which a format says how tensors
 * are split. Errors: RANGE beyond the last. */
RESHARD_API reshard_status reshard_checkpoint_text(const reshard_checkpoint *checkpoint,
                                                   int64_t index, reshard_stored_text *out_text);

/* A tensor that cannot be read. Pointers live as long as the checkpoint. */
typedef struct reshard_unreadable_tensor {
    size_t size;      /* sizeof(reshard_unreadable_tensor), set by the caller */
    const char *name; /* like the name of a tensor, below */
    size_t name_bytes;
    const char *reason; /* one line that names file and tensor */
} reshard_unreadable_tensor;
/* Tensors that cannot be read, numbered from 0, if the checkpoint was opened with `unreadable`.
 * They are not among those that reshard_checkpoint_tensor numbers. Errors: RANGE beyond the
 * last. */
RESHARD_API reshard_status reshard_checkpoint_unreadable(const reshard_checkpoint *checkpoint,
                                                         int64_t index,
                                                         reshard_unreadable_tensor *out_tensor);

/* A box of a tensor and the file that holds it. */
typedef struct reshard_stored_piece {
    size_t size; /* sizeof(reshard_stored_piece), set by the caller */
    int32_t file;
    uint64_t at; /* offset of its first element in the file, in bytes */
    reshard_box box;
    int64_t strides[RESHARD_NDIM_MAX]; /* step along each dim in the file, in elements */
} reshard_stored_piece;
/* Numbers 0 .. piece_count-1 are the pieces; copies follow from piece_count on. Errors: RANGE. */
RESHARD_API reshard_status reshard_checkpoint_piece(const reshard_checkpoint *checkpoint,
                                                    int64_t tensor, int64_t piece,
                                                    reshard_stored_piece *out_piece);
/* The layout that says which file holds which box, with file numbers as ranks and without copies.
 * The caller releases it. */
RESHARD_API reshard_status reshard_checkpoint_layout(const reshard_checkpoint *checkpoint,
                                                     int64_t tensor, reshard_layout **out_layout);

/* ---- formats --------------------------------------------------------------------------------- */

typedef struct reshard_format {
    size_t size;      /* sizeof(reshard_format), set by the caller */
    const char *name; /* such as "hf", as calls take and return it. Static, like the description */
    const char *description; /* a few words */
    int reads, writes;       /* non-zero: this library can do it */
    int is_split;            /* non-zero: written over a mesh; zero: whole tensors */
    int needs_mesh;          /* non-zero: the files do not say how they are split */
} reshard_format;

/* The formats that this library knows, numbered from 0. Errors: RANGE beyond the last. */
RESHARD_API reshard_status reshard_format_at(int32_t index, reshard_format *out_format);

/* ---- what one rank holds --------------------------------------------------------------------- */

/* A tensor, the layout it is split by, and the memory for one rank's part of it. */
typedef struct reshard_rank_tensor {
    int64_t tensor;
    /* May be larger than the tensor, as rules with pad() make it; elements beyond the tensor become
     * zero. */
    const reshard_layout *layout;
    /* The dtype in memory. If it and the stored dtype are two different ones of f16, bf16, f32 and
     * f64, elements are cast on the way. RESHARD_DTYPE_NONE: the stored dtype. */
    reshard_dtype dtype;
    /* The rank's shards by index, dense, as reshard_layout_shards lists them; those of empty shards
     * may be NULL. */
    void *const *shards;
} reshard_rank_tensor;

typedef struct reshard_read_options {
    size_t size;          /* sizeof(reshard_read_options) */
    int32_t threads;      /* at most 256; 0: one for each processor, up to 8 */
    reshard_trace *trace; /* where the threads record, as threads of the rank; or NULL */
    /* On success, the number of values that are finite in the files and no longer so after the
     * cast. NULL: not wanted. */
    uint64_t *values_overflowed;
} reshard_read_options;

/*
 * Reads what one rank holds of many tensors. One call for a whole model is faster than a call for
 * each tensor: the threads and their buffers, of 4 MiB each, are set up once, and no thread waits
 * for the others before it goes on to the next tensor. Several threads may call this at once.
 * Progress is reported as "reading". Can be cancelled.
 *
 * Errors found before anything is read: RANGE (no such tensor); MISMATCH (a different number of
 * dims, or a layout that is too small); UNSUPPORTED (a cast that does not exist, a partial layout,
 * a tensor that cannot be cut); INVALID (a shard without memory, a number below zero). Others: IO,
 * CORRUPT, CANCELLED, NO_MEMORY. On failure, shards may be partly filled.
 */
RESHARD_API reshard_status reshard_checkpoint_read_rank(const reshard_checkpoint *checkpoint,
                                                        int32_t rank, int64_t count,
                                                        const reshard_rank_tensor *tensors,
                                                        const reshard_read_options *options);

/* ---- views ----------------------------------------------------------------------------------- */

typedef struct reshard_view_options {
    size_t size; /* sizeof(reshard_view_options) */
    /* The naming, and a map of one's own by the path of its file or as text; as conversion options
     * have them (.as, .map_file, .map_text). At least one of them has to be given. */
    const char *as, *map_file, *map_text;
    int32_t set_count; /* values for the map's $keys, each "key=value"; they override config.json */
    const char *const *sets;
    /* f16, bf16 or f32: quantised weights become values of this dtype before the map sees them.
     * NONE: they stay as they are. */
    reshard_dtype dequantize;
} reshard_view_options;

/*
 * Makes a view of a checkpoint under another naming (docs/maps.md): a checkpoint whose tensors are
 * what a conversion by this naming or map would write. Nothing is written; a box that is read
 * through it is put together from wherever its elements lie. All calls that ask, read, digest,
 * compare (as A) and load take a view; conversions take the checkpoint itself, with the map. Its
 * notes begin with the two namings and the maps between them, and say what the map leaves out.
 * Tensors of which the map knows what they hold (a constant, a copy) are read and compared here,
 * unless the checkpoint was opened only to be looked at. Tensors that the map computes have no
 * pieces. If the checkpoint has the naming already, the view shows it as it is.
 *
 * The caller destroys the view, by reshard_checkpoint_destroy, before the checkpoint. Errors: those
 * of the map: SYNTAX, INVALID, NOT_FOUND, UNSUPPORTED, ..; CHECK if a tensor does not hold what the
 * map says; INVALID if the checkpoint is a view; IO; NO_MEMORY.
 */
RESHARD_API reshard_status reshard_checkpoint_view(const reshard_checkpoint *checkpoint,
                                                   const reshard_view_options *options,
                                                   reshard_checkpoint **out_view);

/* ---- digests --------------------------------------------------------------------------------- */

#define RESHARD_DIGEST_TEXT 33 /* 32 hexadecimal digits and NUL */

typedef struct reshard_digest_options {
    size_t size;     /* sizeof(reshard_digest_options) */
    int32_t threads; /* at most 256; 0: one for each processor, up to 8; ranks divide them */
    /* Non-zero: if a box is stored more than once, all copies are read, and must be equal. */
    int check_copies;
    /* Ranks that share the work; NULL: this one alone. */
    reshard_group *group;
} reshard_digest_options;

/* The digest of each tensor, by its index, and of the checkpoint: of all tensors that are not
 * aside. Digests depend on dtypes, shapes, bytes and names, not on how tensors are split;
 * docs/digest.md defines them. */
typedef struct reshard_digests {
    int64_t count;
    const char (*tensors)[RESHARD_DIGEST_TEXT];
    char checkpoint[RESHARD_DIGEST_TEXT];
} reshard_digests;

/* Reads everything once, using about 1 MiB of memory for each thread. options NULL: all zero.
 * Reports progress in bytes, and can be cancelled. Errors: IO, CORRUPT (also if copies differ; the
 * text names tensor, files and element), CANCELLED, NO_MEMORY.
 *
 * Local, or with a group Collective over it: each rank has opened the same checkpoint itself, each
 * byte is read by one rank, and all get the same digests or the same status. Errors: also MISMATCH
 * if ranks see different files. */
RESHARD_API reshard_status reshard_checkpoint_digest(const reshard_checkpoint *checkpoint,
                                                     const reshard_digest_options *options,
                                                     reshard_digests **out_digests);
RESHARD_API void reshard_digests_destroy(reshard_digests *digests);

/* ---- hashes ---------------------------------------------------------------------------------- */

#define RESHARD_HASH_TEXT 65 /* 64 hexadecimal digits and NUL */

/* SHA-256 hashes, for those who sign what they publish: one of each tensor's bytes, by its index,
 * and one of all lines. docs/digest.md defines them. */
typedef struct reshard_hashes {
    int64_t count;
    const char (*tensors)[RESHARD_HASH_TEXT];
    /* One line for each tensor that is not aside, sorted as bytes: its name as a JSON string in
     * ASCII, its dtype as safetensors writes it, its shape ("4096x1024", "scalar"), and its hash. A
     * NUL follows. */
    const char *lines;
    size_t lines_bytes;
    char checkpoint[RESHARD_HASH_TEXT]; /* of the lines */
} reshard_hashes;

/* Like reshard_checkpoint_digest. A tensor is hashed by one thread, from its first byte to its
 * last, so the work is divided among threads and ranks by whole tensors. */
RESHARD_API reshard_status reshard_checkpoint_hash(const reshard_checkpoint *checkpoint,
                                                   const reshard_digest_options *options,
                                                   reshard_hashes **out_hashes);
RESHARD_API void reshard_hashes_destroy(reshard_hashes *hashes);

/* ==== advanced ===================================================================================
 * The bytes of a file, for programs that find their way by reshard_checkpoint_piece.
 */

/* ---- files ----------------------------------------------------------------------------------- */

/* Maps a whole file into memory; `file` is its number, as in stored pieces. The mapping is private:
 * writing to it changes this process's copy of a page, never the file. It may outlive the
 * checkpoint, and is given back with unmap. If the file is truncated meanwhile, touching the lost
 * part ends the process with SIGBUS. Errors: RANGE; UNSUPPORTED for files that are unpacked as they
 * are read; IO. */
RESHARD_API reshard_status reshard_checkpoint_map_file(const reshard_checkpoint *checkpoint,
                                                       int32_t file, void **out_memory,
                                                       size_t *out_bytes);
RESHARD_API void reshard_checkpoint_unmap_file(void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
