/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.h - models on disk: named tensors in files, however they are split.
 *
 * A checkpoint is a set of named layouts whose owners are files. Opening reads headers only and
 * checks all that headers can tell: every tensor whole, no holes, no overlaps, no file shorter than
 * it should be. Any box of any tensor can then be read, whatever files it lies in.
 *
 * Formats: safetensors (one file, or a folder of files), Hugging Face folders with an index,
 * PyTorch DCP in safetensors, and plain files of ranks, which hold local shapes and need a mesh and
 * rules. docs/checkpoints.md tells more. All calls are Local but reshard_convert and
 * reshard_checkpoint_digest with a group.
 */
#ifndef RESHARD_CHECKPOINT_H
#define RESHARD_CHECKPOINT_H

#include <reshard/group.h>
#include <reshard/layout.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- formats --------------------------------------------------------------------------------- */

typedef struct reshard_format {
    size_t size;             /* sizeof(reshard_format), set by the caller */
    const char *name;        /* "hf": what calls take and give. Static, as is the description */
    const char *description; /* half a line */
    int reads, writes;       /* non-zero: this library does */
    int is_split;            /* non-zero: written over a mesh; else whole tensors */
    int needs_mesh;          /* non-zero: the files do not say how they are split */
} reshard_format;

/* All formats that this library knows, from index 0 on. Errors: RANGE beyond the last. */
RESHARD_API reshard_status reshard_format_at(int32_t index, reshard_format *out_format);

/* ---- opening --------------------------------------------------------------------------------- */

typedef struct reshard_checkpoint reshard_checkpoint;

typedef struct reshard_checkpoint_options {
    size_t size; /* sizeof(reshard_checkpoint_options) */
    /* The mesh of plain rank files, "tp=4": the files of the folder, in the order of the numbers in
     * their names, are those of its ranks in increasing order. NULL: the files say themselves what
     * they hold. */
    const char *from;
    /* How rank files are split: a built-in family ("llama") or the path of a rules file. NULL: as
     * config.json or the tensor names tell. */
    const char *rules;
    int32_t set_count; /* "key=value" for rules, before what config.json says */
    const char *const *sets;
} reshard_checkpoint_options;

/* path: a folder or one file. options NULL: all zero. The files stay open until close.
 * Errors: NOT_FOUND, IO, SYNTAX, CORRUPT, GAP, OVERLAP, ...; words name tensor and file. */
RESHARD_API reshard_status reshard_checkpoint_open(reshard_context *context, const char *path,
                                                   const reshard_checkpoint_options *options,
                                                   reshard_checkpoint **out_checkpoint);
RESHARD_API void reshard_checkpoint_destroy(reshard_checkpoint *checkpoint);

/* ---- asking ---------------------------------------------------------------------------------- */

/* The name of its format, as reshard_format has it. Static. */
RESHARD_API const char *reshard_checkpoint_format(const reshard_checkpoint *checkpoint);
/* Of all tensors, each element counted once. */
RESHARD_API uint64_t reshard_checkpoint_bytes(const reshard_checkpoint *checkpoint);
RESHARD_API int32_t reshard_checkpoint_file_count(const reshard_checkpoint *checkpoint);
/* In the checkpoint's folder. Lives as long as the checkpoint; NULL beyond the last. */
RESHARD_API const char *reshard_checkpoint_file_name(const reshard_checkpoint *checkpoint,
                                                     int32_t file);
/* What could not be known, or was left out: a line each; NULL beyond the last. */
RESHARD_API const char *reshard_checkpoint_note(const reshard_checkpoint *checkpoint,
                                                int64_t index);

/* Pointers live as long as the checkpoint. */
typedef struct reshard_stored_tensor {
    const char *name; /* name_bytes bytes of UTF-8, which may hold NUL; a NUL follows */
    size_t name_bytes;
    reshard_dtype dtype;
    int32_t ndim; /* may exceed RESHARD_NDIM_MAX */
    const int64_t *shape;
    uint64_t bytes;
    /* Non-zero: cannot be cut (elements of less than a byte, more than 8 dims). Boxes and layouts
     * of such a tensor are those of a line of `bytes` bytes. */
    int opaque;
    int64_t piece_count;
    int64_t copy_count; /* boxes that are stored again, as replicas in rank files are */
} reshard_stored_tensor;

/* Tensors are in the order of their names, as bytes. */
RESHARD_API int64_t reshard_checkpoint_tensor_count(const reshard_checkpoint *checkpoint);
RESHARD_API reshard_status reshard_checkpoint_tensor(const reshard_checkpoint *checkpoint,
                                                     int64_t index,
                                                     reshard_stored_tensor *out_tensor);
/* Errors: NOT_FOUND. */
RESHARD_API reshard_status reshard_checkpoint_find(const reshard_checkpoint *checkpoint,
                                                   const char *name, size_t name_bytes,
                                                   int64_t *out_index);

/* A box of a tensor and the file that holds it. */
typedef struct reshard_stored_piece {
    int32_t file;
    uint64_t at; /* byte of the file where its first element lies */
    reshard_box box;
} reshard_stored_piece;
/* Pieces 0 .. piece_count-1, then copies from piece_count on. Errors: RANGE. */
RESHARD_API reshard_status reshard_checkpoint_piece(const reshard_checkpoint *checkpoint,
                                                    int64_t tensor, int64_t piece,
                                                    reshard_stored_piece *out_piece);
/* Which file holds which box, copies not counted: rank = file. To be released. */
RESHARD_API reshard_status reshard_checkpoint_layout(const reshard_checkpoint *checkpoint,
                                                     int64_t tensor, reshard_layout **out_layout);

/* ---- reading --------------------------------------------------------------------------------- */

/* A box of a tensor, dense and row-major, into memory of exactly its bytes. box NULL: the whole
 * tensor. Several threads may read at once. Errors: INVALID, RANGE, IO, CORRUPT. */
RESHARD_API reshard_status reshard_checkpoint_read(const reshard_checkpoint *checkpoint,
                                                   int64_t tensor, const reshard_box *box,
                                                   void *memory, size_t bytes);

/* ---- digests --------------------------------------------------------------------------------- */

#define RESHARD_DIGEST_TEXT 33 /* 32 hexadecimal digits and NUL */

typedef struct reshard_digest_options {
    size_t size;          /* sizeof(reshard_digest_options) */
    int32_t thread_count; /* 0: 1. The calling thread is one of them */
    /* Non-zero: boxes that are stored more than once are all read, and must be equal. */
    int check_copies;
    /* Ranks that share the work; NULL: this one alone. */
    reshard_group *group;
} reshard_digest_options;

/* The digest of each tensor, by its index, and that of the checkpoint. They depend on dtypes,
 * shapes, bytes and names, not on how tensors are split; docs/digest.md defines them. */
typedef struct reshard_digests {
    int64_t count;
    const char (*tensors)[RESHARD_DIGEST_TEXT];
    char checkpoint[RESHARD_DIGEST_TEXT];
} reshard_digests;

/* Reads everything once, in memory of about a MiB for each thread. options NULL: all zero. Reports
 * progress in bytes, and can be cancelled. Errors: IO, CORRUPT (also copies that differ, naming
 * tensor, files and element), CANCELLED, NO_MEMORY.
 *
 * Local, or with a group Collective over it: each rank has opened the same checkpoint for itself,
 * each byte is read by one of them, and all get the same digests, or the same status. Errors:
 * also MISMATCH when a rank sees other files. */
RESHARD_API reshard_status reshard_checkpoint_digest(const reshard_checkpoint *checkpoint,
                                                     const reshard_digest_options *options,
                                                     reshard_digests **out_digests);
RESHARD_API void reshard_digests_destroy(reshard_digests *digests);

/* ---- converting ------------------------------------------------------------------------------ */

typedef struct reshard_convert_options {
    size_t size;    /* sizeof(reshard_convert_options) */
    const char *to; /* the mesh to split over, "tp=4"; NULL: whole tensors */
    /* How: a built-in family or the path of a rules file. NULL: as config.json or the names
     * tell. Whole tensors are not cut, but get the names that given rules say. */
    const char *rules;
    const char *from;       /* of a source of plain rank files: its mesh */
    const char *from_rules; /* and its rules; NULL: as `rules`, whose names then apply once */
    int32_t set_count;      /* "key=value" for rules */
    const char *const *sets;
    /* The name of a format that is written; NULL: "hf" without `to` or over one rank, else
     * "dcp-safetensors". */
    const char *format;
    uint64_t shard_bytes_max; /* HF: begin another file beyond this; 0: 5 GB */
    /* Casts, "bf16" or "pattern=bf16" each; the first that matches a name counts. One without a
     * pattern concerns tensors of f16, bf16, f32 and f64 only. */
    int32_t dtype_count;
    const char *const *dtypes;
    int32_t include_count, exclude_count; /* patterns of names; no includes: everything */
    const char *const *includes, *const *excludes;
    /* New names, "pattern=name" each, with {1}, {2}, .. for what the wildcards stand for; the first
     * that matches a name counts. Rules see the new names, the other patterns the source's. */
    int32_t rename_count;
    const char *const *renames;
    size_t memory_bytes_max; /* for blocks on their way; 0: 512 MiB; at least 1 MiB */
    int32_t threads;         /* 0: as many as there are processors, up to 8 */
    int resume;              /* non-zero: go on with what an interrupted conversion left */
    int verify;              /* non-zero: read the output back and compare it with the source */
    int dry_run;             /* non-zero: plan only; nothing is written, and target may be NULL */
    int link;                /* non-zero: files that would be copied whole are hard-linked */
    int no_sync;             /* non-zero: do not wait for the disk; for measurements */
    uint64_t journal_bytes;  /* make progress last after so many bytes of a rank; 0: 1 GiB */
    /* Ranks that share the work; NULL: this one alone. Memory and threads are of each rank; 0
     * threads are then this machine's processors divided by the ranks. */
    reshard_group *group;
    /* Told of the plan before it is carried out, on every rank; each may be NULL. First how many
     * files there are on both sides, then each move: the bytes, as they are written, that go from a
     * file of the source to one of the target. Files are counted from 0, the target's by rank. */
    void (*flow_sizes)(void *user, int32_t source_files, int32_t target_files);
    void (*flow)(void *user, int32_t source_file, int32_t target_file, uint64_t bytes);
    void *flow_user;
} reshard_convert_options;

typedef struct reshard_convert_report {
    const char *format; /* static */
    int64_t tensors;
    int32_t files;
    uint64_t bytes_read, bytes_written; /* of tensors; planned ones for a dry run */
    uint64_t bytes_shared;              /* of those, copied or shared by the kernel */
    uint64_t bytes_resumed;             /* found done by an earlier run */
    uint64_t bytes_digested;            /* read, and digested on their way through memory */
    int64_t tensors_digested;           /* all bytes of which were */
    uint64_t memory_bytes;              /* of all blocks on their way, of one rank */
    int32_t threads;                    /* of one rank */
    int32_t ranks;
    double seconds_estimated; /* dry run with a target, rank 0: from a short look at the disk */
    char rules[256];          /* which rules, and why these; "" without */
    /* Of what was read and of what was written, as reshard_checkpoint_digest gives them. "" when
     * the kernel copied some bytes or an earlier run did, and verify did not ask to read them all;
     * the source's also when not all of its tensors are wanted. */
    char source_digest[RESHARD_DIGEST_TEXT], digest[RESHARD_DIGEST_TEXT];
} reshard_convert_report;

/*
 * Converts a checkpoint. All or nothing: target does not exist until it is complete and on disk. It
 * is written beside, into target.partial, with a journal; when the call fails or the process dies,
 * that is what is left, and `resume` goes on from it. The source is only read. Replicas in rank
 * files are compared first. Files of the source's folder that hold no weights (config.json,
 * tokenizers) are copied along. What passes through memory is digested as it is read and as it is
 * written. report may be NULL. Errors: as open; INVALID, UNSUPPORTED; IO; CHECK (replicas that
 * differ, or with verify output that does; a source that changed meanwhile; a fault of memory);
 * CANCELLED; MISMATCH.
 *
 * Local, or with a group Collective over it: all ranks see the same files and pass the same paths
 * and options. Each byte of a tensor is read by one rank; several ranks write to a file. Bytes are
 * those of one process alone. All ranks get the same status; when one fails or is cancelled, the
 * others stop at the end of what journal_bytes allows.
 */
RESHARD_API reshard_status reshard_convert(reshard_context *context, const char *source,
                                           const char *target,
                                           const reshard_convert_options *options,
                                           reshard_convert_report *out_report);

#ifdef __cplusplus
}
#endif
#endif
