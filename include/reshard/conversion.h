/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conversion.h - a checkpoint in another split, format or dtype: a plan, and its execution.
 *
 *     reshard_checkpoint_open(NULL, "model", NULL, &checkpoint);
 *     reshard_conversion_options options = {.size = sizeof options, .to = "tp=4"};
 *     reshard_conversion_create(NULL, checkpoint, &options, &conversion);
 *     reshard_conversion_run(conversion, "model-tp4", NULL, NULL);
 *
 * or all of it in one call:
 *
 *     reshard_convert(NULL, "model", "model-tp4", NULL, &options, NULL, NULL);
 *
 * docs/checkpoints.md tells more.
 */
#ifndef RESHARD_CONVERSION_H
#define RESHARD_CONVERSION_H

#include <reshard/checkpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- planning -------------------------------------------------------------------------------- */

typedef struct reshard_conversion reshard_conversion;

typedef struct reshard_conversion_options {
    size_t size;    /* sizeof(reshard_conversion_options) */
    const char *to; /* the mesh to split over, "tp=4"; NULL: whole tensors */
    /* How: a built-in family or the path of a rules file. NULL: as config.json or the names
     * tell. Whole tensors are not cut, but get the names that given rules say. */
    const char *rules;
    int32_t set_count; /* "key=value" for rules */
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
    int32_t threads;         /* 0: as many as there are processors, up to 8; ranks divide them */
    /* Ranks that share the work; NULL: this one alone. Memory and threads are of each rank. */
    reshard_group *group;
} reshard_conversion_options;

/*
 * Plans a conversion; nothing is written. options NULL: all zero. The checkpoint must outlive the
 * conversion; strings need not. A checkpoint of rank files whose rules have name(), to be converted
 * by the same rules, is opened with keep_names: names then change once. Errors: INVALID, SYNTAX,
 * UNSUPPORTED, NOT_FOUND (rules), MEMORY_LIMIT, CANCELLED, ...
 *
 * Local, or with a group Collective over it: each rank has opened the same checkpoint for itself
 * and passes the same options, memory and threads aside. Errors: also MISMATCH.
 */
RESHARD_API reshard_status reshard_conversion_create(reshard_context *context,
                                                     const reshard_checkpoint *checkpoint,
                                                     const reshard_conversion_options *options,
                                                     reshard_conversion **out_conversion);
/* Local. Takes NULL. */
RESHARD_API void reshard_conversion_destroy(reshard_conversion *conversion);

/* ---- asking ---------------------------------------------------------------------------------- */

/* All calls of this section are Local. Pointers live as long as the conversion. */

typedef struct reshard_conversion_stats {
    size_t size;        /* sizeof(reshard_conversion_stats), set by the caller */
    const char *format; /* that is written */
    const char *rules;  /* which rules, and why these; "" without */
    int64_t tensor_count;
    int64_t move_count; /* boxes that go from a file to a file */
    int32_t source_file_count;
    int32_t target_file_count;          /* by rank; */
    int32_t written_file_count;         /* some may have nothing to hold and are not written */
    uint64_t bytes_read, bytes_written; /* of tensors */
    uint64_t bytes_shared;              /* of those, left to the kernel to copy or share */
    uint64_t memory_bytes;              /* of all blocks on their way, of one rank */
    int32_t threads;                    /* of one rank */
    int32_t ranks;
} reshard_conversion_stats;
RESHARD_API reshard_status reshard_conversion_get_stats(const reshard_conversion *conversion,
                                                        reshard_conversion_stats *out_stats);
/* A tensor that is written. */
typedef struct reshard_conversion_tensor {
    size_t size;      /* sizeof(reshard_conversion_tensor), set by the caller */
    const char *name; /* name_bytes bytes of UTF-8, which may hold NUL; a NUL follows */
    size_t name_bytes;
    int64_t source; /* the checkpoint's tensor that it comes from, by index */
    reshard_dtype dtype;
    int32_t ndim; /* may exceed RESHARD_NDIM_MAX */
    const int64_t *shape;
    /* How rules cut it, as a spec ("tp=4: S(0)"), and which line of which rules says so: "llama" or
     * the path of a file. NULL and 0 where nothing is cut. */
    const char *cut;
    const char *rule_file;
    int32_t rule_line;
    /* What the first rank that holds some of it has, padding included. local_shape is NULL where
     * nothing is cut, or the tensor has more dimensions than can be. */
    int32_t local_ndim;
    const int64_t *local_shape;
} reshard_conversion_tensor;
/* Tensors are in the order of their names, as bytes: 0 <= index < tensor_count. Errors: RANGE. */
RESHARD_API reshard_status reshard_conversion_get_tensor(const reshard_conversion *conversion,
                                                         int64_t index,
                                                         reshard_conversion_tensor *out_tensor);
/* The bytes, as they are written, that go from each file of the source to each of the target:
 * source_file_count rows of target_file_count numbers. */
RESHARD_API void reshard_conversion_get_matrix(const reshard_conversion *conversion,
                                               uint64_t *out_bytes);

/* ---- running --------------------------------------------------------------------------------- */

typedef struct reshard_conversion_run_options {
    size_t size;            /* sizeof(reshard_conversion_run_options) */
    int resume;             /* non-zero: go on with what an interrupted run left */
    int verify;             /* non-zero: read the output back and compare it with the source */
    int link;               /* non-zero: files that would be copied whole are hard-linked */
    int no_sync;            /* non-zero: do not wait for the disk; for measurements */
    uint64_t journal_bytes; /* make progress durable after so many bytes of a rank; 0: 1 GiB */
} reshard_conversion_run_options;

typedef struct reshard_conversion_report {
    size_t size;                        /* sizeof(reshard_conversion_report), set by the caller */
    uint64_t bytes_read, bytes_written; /* of tensors, by all ranks */
    uint64_t bytes_shared;              /* of those, copied or shared by the kernel */
    uint64_t bytes_resumed;             /* found done by an earlier run */
    uint64_t bytes_digested;            /* read, and digested on their way through memory */
    int64_t tensors_digested;           /* all bytes of which were */
    /* Of what was read and of what was written, as reshard_checkpoint_digest gives them. "" when
     * the kernel copied some bytes or an earlier run did, and verify did not ask to read them all;
     * the source's also when not all of its tensors are wanted. */
    char source_digest[RESHARD_DIGEST_TEXT], digest[RESHARD_DIGEST_TEXT];
} reshard_conversion_report;

/*
 * Carries a conversion out. All or nothing: target does not exist until it is complete and on disk.
 * It is written beside, into target.partial, with a journal; when the call fails or the process
 * dies, that is what is left, and `resume` goes on from it. The source is only read. Replicas in
 * rank files are compared first. Files of the source's folder that hold no weights (config.json,
 * tokenizers) are copied along. What passes through memory is digested as it is read and as it is
 * written. options NULL: all zero. out_report may be NULL. May be called again, for another target.
 * Errors: INVALID (something is in the way), UNFINISHED (it is an interrupted conversion, and
 * resume is zero); IO; CHECK (replicas that differ, or with verify output that does; a source that
 * changed meanwhile; a fault of memory); CANCELLED; MEMORY_LIMIT.
 *
 * Local, or Collective when the conversion has a group: all ranks see the same files and pass the
 * same target and options. Each byte of a tensor is read by one rank; several ranks write to a
 * file. Bytes are those of one process alone. All ranks get the same status; when one fails or is
 * cancelled, the others stop at the end of what journal_bytes allows. Errors: also MISMATCH.
 */
RESHARD_API reshard_status reshard_conversion_run(const reshard_conversion *conversion,
                                                  const char *target,
                                                  const reshard_conversion_run_options *options,
                                                  reshard_conversion_report *out_report);
/* Seconds that a run may take there, from reading and writing a little. Checks what run would check
 * about the target. Local. */
RESHARD_API reshard_status
reshard_conversion_estimate(const reshard_conversion *conversion, const char *target,
                            const reshard_conversion_run_options *options, double *out_seconds);

/* Opens, plans and runs. Each of the options, and out_report, may be NULL. Local, or Collective
 * over the group of `options`. Errors: as those calls. */
RESHARD_API reshard_status reshard_convert(reshard_context *context, const char *source,
                                           const char *target,
                                           const reshard_checkpoint_options *opening,
                                           const reshard_conversion_options *options,
                                           const reshard_conversion_run_options *running,
                                           reshard_conversion_report *out_report);

#ifdef __cplusplus
}
#endif
#endif
