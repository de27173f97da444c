/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conversion.h - converts a checkpoint to another split, format or dtype: plan it, then run it.
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
 * docs/checkpoints.md has more.
 */
#ifndef RESHARD_CONVERSION_H
#define RESHARD_CONVERSION_H

#include <reshard/checkpoint.h>
#include <reshard/predict.h>
#include <reshard/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- planning -------------------------------------------------------------------------------- */

typedef struct reshard_conversion reshard_conversion;

typedef struct reshard_conversion_options {
    size_t size;    /* sizeof(reshard_conversion_options) */
    const char *to; /* the mesh to split over, "tp=4"; NULL: whole tensors */
    /* How to split: a built-in family or the path of a rules file. NULL: chosen by config.json or
     * the tensor names. Whole tensors are not cut, but rules that are given still rename them. */
    const char *rules;
    int32_t set_count; /* "key=value" for rules */
    const char *const *sets;
    /* The name of the format to write; NULL: "hf" without `to` or over one rank, else
     * "dcp-safetensors". */
    const char *format;
    uint64_t shard_bytes_max; /* HF: start another file beyond this; 0: 5 GB */
    /* Casts, each "bf16" or "pattern=bf16"; the first that matches a name counts. One without a
     * pattern applies to floating-point tensors only, and leaves quantised ones and their scales as
     * they are. config.json of the output names the dtype that most weights were cast to. */
    int32_t dtype_count;
    const char *const *dtypes;
    int32_t include_count, exclude_count; /* patterns of names; no includes: everything */
    const char *const *includes, *const *excludes;
    /* New names, each "pattern=name", with {1}, {2}, .. for what the wildcards matched; the first
     * that matches a name counts. Rules see the new names, the other patterns those of the
     * source. */
    int32_t rename_count;
    const char *const *renames;
    size_t memory_bytes_max; /* for blocks in flight; 0: 512 MiB; at least 1 MiB */
    int32_t threads;         /* 0: as many as there are processors, up to 8; ranks divide them */
    /* Ranks that share the work; NULL: this one alone. Memory and threads are per rank. */
    reshard_group *group;
    /* Only what is under this name: tensors "only.*", without that beginning. NULL: see all. */
    const char *only;
    /* Checkpoints of PyTorch nest: "hf" takes the part "model", "module" or "state_dict" alone, if
     * there is one and no `include` is given, and a note of the conversion tells what stays behind.
     * Non-zero: everything is taken, under its whole name. */
    int all;
    /* Non-zero: the format "torch" over a mesh writes DTensors of that mesh (PyTorch 2.5 and later)
     * in place of plain local tensors. Tensors that DTensors cannot describe, such as padded ones,
     * are refused. */
    int dtensors;
    /* f16, bf16 or f32: weights of fp8 (with scales of blocks, channels or tensors) and of mxfp4
     * (as GPT-OSS has it) become values of this dtype, codes times scales. Scales, and what
     * config.json says of them, are left out. Patterns see the names without "_blocks". NONE: they
     * stay as they are. */
    reshard_dtype dequantize;
    /* Where planning and all runs record what they do, and when; it must outlive the conversion.
     * NULL: nowhere. */
    reshard_trace *trace;
} reshard_conversion_options;

/*
 * Plans a conversion; nothing is written. options NULL: all zero. The checkpoint must outlive the
 * conversion; strings need not. If a checkpoint of rank files is converted by its own rules and
 * these have name(), open it with keep_names so that names change only once. Errors: INVALID,
 * SYNTAX, UNSUPPORTED, NOT_FOUND (rules), MEMORY_LIMIT, CANCELLED, ...
 *
 * Local, or with a group Collective over it: each rank has opened the same checkpoint itself and
 * passes the same options, except for memory and threads. Errors: also MISMATCH.
 */
RESHARD_API reshard_status reshard_conversion_create(reshard_context *context,
                                                     const reshard_checkpoint *checkpoint,
                                                     const reshard_conversion_options *options,
                                                     reshard_conversion **out_conversion);
/* Local. Takes NULL. */
RESHARD_API void reshard_conversion_destroy(reshard_conversion *conversion);

/* ---- asking ---------------------------------------------------------------------------------- */

/* All calls in this section are Local. Pointers live as long as the conversion. */

typedef struct reshard_conversion_stats {
    size_t size;        /* sizeof(reshard_conversion_stats), set by the caller */
    const char *format; /* that is written */
    const char *rules;  /* which rules, and why these; "" if none */
    int64_t tensor_count;
    int64_t move_count; /* boxes that go from a file to a file */
    int32_t source_file_count;
    int32_t target_file_count;          /* by rank */
    int32_t written_file_count;         /* files with nothing to hold are not written */
    uint64_t bytes_read, bytes_written; /* of tensors */
    uint64_t bytes_shared;              /* part of those that the two files can share */
    uint64_t memory_bytes;              /* of all blocks in flight, on one rank */
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
     * the path of a file. NULL and 0 if it is not cut. */
    const char *cut;
    const char *rule_file;
    int32_t rule_line;
    /* The shard of the first rank that holds some of it, padding included. local_shape is NULL if
     * it is not cut, or has too many dimensions to be cut. */
    int32_t local_ndim;
    const int64_t *local_shape;
    const int64_t *padded_shape; /* what `cut` cuts: shape with its padding; NULL as local_shape */
} reshard_conversion_tensor;
/* Tensors are sorted by name, as bytes: 0 <= index < tensor_count. Errors: RANGE. */
RESHARD_API reshard_status reshard_conversion_get_tensor(const reshard_conversion *conversion,
                                                         int64_t index,
                                                         reshard_conversion_tensor *out_tensor);
/* One line about something that is left out, or is not as one may expect: tensors that rules drop,
 * files that are copied along or not; NULL beyond the last. The checkpoint has notes of its own. */
RESHARD_API const char *reshard_conversion_note(const reshard_conversion *conversion,
                                                int64_t index);
/* The name of a target file, relative to the target; 0 <= file < target_file_count. NULL for a file
 * that would hold nothing and is not written, and beyond the last. */
RESHARD_API const char *reshard_conversion_file_name(const reshard_conversion *conversion,
                                                     int32_t file);
/* The bytes, as written, that go from each source file to each target file: source_file_count rows
 * of target_file_count numbers. */
RESHARD_API void reshard_conversion_get_matrix(const reshard_conversion *conversion,
                                               uint64_t *out_bytes);

/* ---- running --------------------------------------------------------------------------------- */

typedef struct reshard_conversion_run_options {
    size_t size; /* sizeof(reshard_conversion_run_options) */
    int resume;  /* non-zero: continue what an interrupted run left */
    int verify;  /* non-zero: check the CRCs of the source, and compare the output with it */
    int link;    /* non-zero: files that would be copied whole are hard-linked */
    int no_sync; /* non-zero: do not wait for the disk; for measurements */
    uint64_t journal_bytes; /* make progress durable after this many bytes per rank; 0: 1 GiB */
} reshard_conversion_run_options;

typedef struct reshard_conversion_report {
    size_t size;                        /* sizeof(reshard_conversion_report), set by the caller */
    uint64_t bytes_read, bytes_written; /* of tensors, by all ranks */
    uint64_t bytes_shared;              /* part of those, shared, or copied by a server */
    uint64_t bytes_resumed;             /* already done by an earlier run */
    uint64_t bytes_digested;            /* read, and digested on the way through memory */
    int64_t tensors_digested;           /* tensors whose bytes were all digested */
    /* Digests of what was read and of what was written, as reshard_checkpoint_digest gives them. ""
     * if some bytes were shared or copied by an earlier run and verify did not ask to read
     * them all; the source's also if some of its tensors were left out. */
    char source_digest[RESHARD_DIGEST_TEXT], digest[RESHARD_DIGEST_TEXT];
    uint64_t bytes_verified; /* of the output, read back and compared */
    /* Values that are finite in the source and, cast, no longer are. Without verify, what an
     * earlier run did (bytes_resumed) is not looked at. */
    uint64_t values_overflowed;
} reshard_conversion_report;

/*
 * Carries out a conversion. All or nothing: target does not exist until it is complete and on disk.
 * Output goes to target.partial, with a journal; if the call fails or the process dies, that is
 * what remains, and `resume` continues from it if the source's files are the same ones (size,
 * times, inode). The source is only read. Replicas in rank files are compared first. Files in the
 * source's folder that hold no weights (config.json, tokenizers) are copied along. What passes
 * through memory is digested as it is read and as it is written. options NULL: all zero. out_report
 * may be NULL. May be called again for another target. Errors: INVALID (something is in the way),
 * UNFINISHED (an interrupted conversion is there, and resume is zero); IO; CHECK (replicas that
 * differ, or with verify output that does; a source that changed meanwhile; faulty memory);
 * CANCELLED; MEMORY_LIMIT.
 *
 * Local, or Collective when the conversion has a group: all ranks see the same files and pass the
 * same target and options. Each byte of a tensor is read by one rank; several ranks may write to
 * the same file. The output is byte for byte what one process alone would write. All ranks get the
 * same status; when one fails or is cancelled, the others stop at the end of their current
 * journal_bytes. Errors: also MISMATCH.
 */
RESHARD_API reshard_status reshard_conversion_run(const reshard_conversion *conversion,
                                                  const char *target,
                                                  const reshard_conversion_run_options *options,
                                                  reshard_conversion_report *out_report);
/* Estimates the seconds a run to this target would take, by reading and writing a little. Checks
 * the target as run would. Local. */
RESHARD_API reshard_status
reshard_conversion_estimate(const reshard_conversion *conversion, const char *target,
                            const reshard_conversion_run_options *options, double *out_seconds);
/* The same from speeds that are known: bytes read into memory, written from it, and copied by the
 * kernel, each by the cluster's `read`, `write` and `copy`, one after the other; a speed of 0 takes
 * no time. Touches no file. Errors: INVALID (the cluster's size, or a speed below zero). Local. */
RESHARD_API reshard_status reshard_conversion_predict(const reshard_conversion *conversion,
                                                      const reshard_cluster *cluster,
                                                      double *out_seconds);

/* Opens, plans and runs. Each of the options, and out_report, may be NULL. Local, or Collective
 * over the group in `options`. Errors: those of the three calls. */
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
