/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conversion.h - converts a checkpoint to another split, format or dtype, in two steps: plan, then
 * run.
 *
 *     reshard_checkpoint_open(NULL, "model", NULL, &checkpoint);
 *     reshard_conversion_options options = {.size = sizeof options, .to = "tp=4"};
 *     reshard_conversion_create(NULL, checkpoint, &options, &conversion);
 *     reshard_conversion_run(conversion, "model-tp4", NULL, NULL);
 *
 * or in one call:
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

/* ==== simple =====================================================================================
 * One call that opens, plans and runs; its options are the whole of what a conversion can do.
 */

/* ---- options --------------------------------------------------------------------------------- */

typedef struct reshard_conversion reshard_conversion;

typedef struct reshard_conversion_options {
    size_t size;    /* sizeof(reshard_conversion_options) */
    const char *to; /* the mesh to split over, "tp=4"; NULL: whole tensors */
    /* The rules to split by: a built-in family or the path of a rules file. NULL: chosen by
     * config.json or the tensor names. Without `to` nothing is cut, but rules that are given still
     * rename tensors. */
    const char *rules;
    int32_t set_count; /* values for rules, each "key=value" */
    const char *const *sets;
    /* The name of the format to write. NULL: "hf" without `to` or over one rank, otherwise
     * "dcp-safetensors". */
    const char *format;
    uint64_t shard_bytes_max; /* hf: start another file beyond this size; 0: 5 GB */
    /* Casts, each "bf16" or "pattern=bf16"; the first that matches a name counts. A cast without a
     * pattern applies only to floating-point tensors that are neither quantised nor scales. The
     * output's config.json names the dtype that most weights were cast to. */
    int32_t dtype_count;
    const char *const *dtypes;
    int32_t include_count, exclude_count; /* patterns of names; without includes: all */
    const char *const *includes, *const *excludes;
    /* New names, each "pattern=name", with {1}, {2}, .. for what the wildcards matched; the first
     * that matches a name counts. Rules see the new names, all other patterns the names in the
     * source. */
    int32_t rename_count;
    const char *const *renames;
    size_t memory_bytes_max; /* for blocks in flight, at least 1 MiB; 0: 512 MiB */
    int32_t threads; /* at most 256; 0: one for each processor, up to 8; ranks divide them */
    /* Ranks that share the work; NULL: this one alone. Memory and threads are per rank. */
    reshard_group *group;
    /* Take only the tensors under this name ("only.*"), and remove it from their names. NULL: as
     * `all` says. */
    const char *only;
    /* Checkpoints of PyTorch may be nested. If there is a part "model", "module" or "state_dict",
     * and no includes are given, a conversion to "hf" takes that part alone, and a note says what
     * stays behind. Non-zero: everything is taken, under its full name. */
    int all;
    /* Non-zero: the format "torch" over a mesh writes DTensors of that mesh (PyTorch 2.5 and later)
     * instead of plain local tensors. Tensors that DTensors cannot describe, such as padded ones,
     * are an error. */
    int dtensors;
    /* f16, bf16 or f32: quantised weights, of fp8 (with scales for blocks, channels or tensors) or
     * of mxfp4 (as in GPT-OSS), become values of this dtype: codes times scales. The scales, and
     * the entries of config.json about them, are left out. Patterns see the names without
     * "_blocks". NONE: quantised weights stay as they are. */
    reshard_dtype dequantize;
    /* Where planning and all runs record what they do when, or NULL. Must outlive the
     * conversion. */
    reshard_trace *trace;
    /* Non-zero: no padding is added, whatever pad() in the rules says. A dimension that does not
     * divide evenly is then cut unevenly. */
    int no_pad;
    /* A map (map.h, docs/maps.md), by the path of its file or as text: the selected tensors become
     * those of its other side. All patterns see names in the source, rules see the names that the
     * map makes. Its $keys are those of rules. NULL: no map. */
    const char *map_file, *map_text;
    /* The naming to write. With a map: one of its sides, by its naming or as "left" or "right";
     * NULL: the side that the source's tensors do not fit. Without a map: one of those that
     * reshard_naming_at lists; the source's own is recognised by its names, and the maps between
     * them are chosen by config.json's model_type. It brings its format, unless one is given. */
    const char *as;
    /* A file that says exactly what is to be written: {"name": ["bfloat16", [24, 64]], ..}, the
     * dtype and shape of every tensor that each rank holds, or of whole tensors. If what would be
     * written differs, that is an error with the first differences. For the format "gguf", a GGUF
     * file of the same model: its key-values, and the names, shapes and order of its tensors are
     * taken over, and their types unless `dtypes` has one for all (f32, f16, bf16 or q8_0). NULL:
     * none. */
    const char *like;
} reshard_conversion_options;

typedef struct reshard_conversion_run_options {
    size_t size; /* sizeof(reshard_conversion_run_options) */
    int resume;  /* non-zero: continue an interrupted run */
    int verify;  /* non-zero: check the source's CRCs, and compare the output with the source */
    int link;    /* non-zero: hard-link files that would be copied whole */
    int no_sync; /* non-zero: do not wait for the disk; for measurements */
    uint64_t journal_bytes; /* make progress durable every so many bytes per rank; 0: 1 GiB */
} reshard_conversion_run_options;

typedef struct reshard_conversion_report {
    size_t size;                        /* sizeof(reshard_conversion_report), set by the caller */
    uint64_t bytes_read, bytes_written; /* of tensors, by all ranks */
    /* of bytes_written: shared by the file system, or copied by its server */
    uint64_t bytes_shared;
    uint64_t bytes_resumed;   /* done by an earlier run */
    uint64_t bytes_digested;  /* digested on their way through memory, see below */
    int64_t tensors_digested; /* tensors whose bytes were all digested */
    /* Digests of what was read and of what was written, as reshard_checkpoint_digest gives them. ""
     * if some bytes did not pass through memory (shared, or done by an earlier run) and verify was
     * not set; source_digest is also "" if some of the source's tensors were left out, and with a
     * map. bytes_digested then counts tensors that are cast as they are written. */
    char source_digest[RESHARD_DIGEST_TEXT], digest[RESHARD_DIGEST_TEXT];
    uint64_t bytes_verified; /* of the output, read back and compared */
    /* Values that are finite in the source but no longer after the cast. Without verify, values
     * written by an earlier run (bytes_resumed) are not counted. */
    uint64_t values_overflowed;
    /* Checksums in the source's files (CRCs of archives) that were not looked at, because their
     * bytes were not all read. With verify, all are. */
    int64_t crcs_unchecked;
} reshard_conversion_report;

/* Opens, plans and runs. Each of the options, and out_report, may be NULL. Local, or Collective
 * over the group in `options`. Errors: those of the three calls. */
RESHARD_API reshard_status reshard_convert(reshard_context *context, const char *source,
                                           const char *target,
                                           const reshard_checkpoint_options *opening,
                                           const reshard_conversion_options *options,
                                           const reshard_conversion_run_options *running,
                                           reshard_conversion_report *out_report);

/* ==== explicit ===================================================================================
 * The same in steps: plan, ask what would happen, run.
 */

/* ---- planning first -------------------------------------------------------------------------- */

/*
 * Plans a conversion; nothing is written. options NULL: all zero. The checkpoint must outlive the
 * conversion; the strings in the options need not. If rank files are converted by the rules that
 * they were opened with, and these have name(), open the checkpoint with keep_names so that names
 * change only once. Errors: INVALID, SYNTAX, UNSUPPORTED, NOT_FOUND (rules), MEMORY_LIMIT,
 * CANCELLED, ...
 *
 * Local, or with a group Collective over it: each rank has opened the same checkpoint itself and
 * passes the same options, except for memory and threads. Errors: also MISMATCH.
 */
RESHARD_API reshard_status reshard_conversion_create(reshard_context *context,
                                                     const reshard_checkpoint *checkpoint,
                                                     const reshard_conversion_options *options,
                                                     reshard_conversion **out_conversion);
/* Local. */
RESHARD_API void reshard_conversion_destroy(reshard_conversion *conversion);

/* ---- queries --------------------------------------------------------------------------------- */

/* All calls in this section are Local. Pointers live as long as the conversion. */

typedef struct reshard_conversion_stats {
    size_t size;        /* sizeof(reshard_conversion_stats), set by the caller */
    const char *format; /* of the output */
    const char *rules;  /* which rules are used, and why; "" if none */
    int64_t tensor_count;
    int64_t move_count; /* boxes that go from one file to another */
    int32_t source_file_count;
    int32_t target_file_count;          /* by rank */
    int32_t written_file_count;         /* without files that would hold nothing */
    uint64_t bytes_read, bytes_written; /* of tensors */
    uint64_t bytes_shared; /* of bytes_written: what the file system may share instead of copying */
    uint64_t memory_bytes; /* for all blocks in flight, on one rank */
    int32_t threads;       /* on one rank */
    int32_t ranks;
    /* The naming of the source, and as what it is written by which map ("hf; written as hf5 by map
     * hf-hf5"); "" without `as`, or with a map of one's own. */
    const char *naming;
} reshard_conversion_stats;
RESHARD_API reshard_status reshard_conversion_get_stats(const reshard_conversion *conversion,
                                                        reshard_conversion_stats *out_stats);
/* A tensor that is written. */
typedef struct reshard_conversion_tensor {
    size_t size;      /* sizeof(reshard_conversion_tensor), set by the caller */
    const char *name; /* name_bytes bytes of UTF-8, which may hold NUL; a NUL follows */
    size_t name_bytes;
    /* index of the checkpoint's tensor that it comes from; if a map makes it of several, of the
     * first; -1 if a map makes it of none, or if it comes from the file that is followed (like) */
    int64_t source;
    reshard_dtype dtype;
    int32_t ndim; /* may exceed RESHARD_NDIM_MAX */
    const int64_t *shape;
    /* How the rules cut it, as a spec ("tp=4: S(0)"), and which line of which rules ("llama", or
     * the path of a file) says so. NULL and 0 if it is not cut. */
    const char *cut;
    const char *rule_file;
    int32_t rule_line;
    /* The shape of the shard of the first rank that holds some of the tensor, padding included.
     * NULL if the tensor is not cut, or has too many dimensions to be cut. */
    int32_t local_ndim;
    const int64_t *local_shape;
    /* what `cut` cuts: the shape with padding; NULL if local_shape is */
    const int64_t *padded_shape;
    int64_t source_count; /* tensors of the checkpoint that it is made of */
    /* Which line of which map makes it; NULL and 0 without a map. */
    const char *map_file;
    int32_t map_line;
    const reshard_layout *layout; /* `cut` with padded_shape; NULL if local_shape is */
    int64_t link_count;           /* links of a map that fill it; 0 without a map */
    const int64_t *sources;       /* indices of the source_count tensors */
} reshard_conversion_tensor;
/* Tensors are numbered in the order of their names, compared as bytes: 0 <= index < tensor_count.
 * Errors: RANGE. */
RESHARD_API reshard_status reshard_conversion_get_tensor(const reshard_conversion *conversion,
                                                         int64_t index,
                                                         reshard_conversion_tensor *out_tensor);

/* One line: a note about tensors that rules drop, or files that are copied along or not; a warning
 * about shapes that config.json contradicts. Notes of each kind are numbered from 0; NULL beyond
 * the last. The checkpoint has notes of its own. */
RESHARD_API const char *reshard_conversion_note(const reshard_conversion *conversion,
                                                reshard_note_kind kind, int64_t index);
/* The path of a target file, relative to the target; 0 <= file < target_file_count. NULL for a file
 * that is not written because it would hold nothing, and beyond the last. */
RESHARD_API const char *reshard_conversion_file_name(const reshard_conversion *conversion,
                                                     int32_t file);

/* ---- running --------------------------------------------------------------------------------- */

/*
 * Carries out a conversion. All or nothing: the target does not exist until it is complete and on
 * disk. Until then the output is in target.partial, with a journal. If the call fails or the
 * process dies, this remains, and `resume` continues from it if the source's files are unchanged
 * (size, times, inode). The source is only read. Replicas in rank files are compared first. Files
 * in the source's folder that hold no weights (config.json, tokenizers) are copied along. Whatever
 * passes through memory is digested as it is read and as it is written. options NULL: all zero.
 * out_report may be NULL. May be called again for another target. Errors: INVALID (something else
 * exists at the target); UNFINISHED (an interrupted conversion is there, and resume is zero); IO;
 * CHECK (replicas differ, a checksum in the source is wrong, the source changed meanwhile, memory
 * is faulty, a tensor is not what the map says, or with verify the output differs); CANCELLED;
 * MEMORY_LIMIT.
 *
 * Local, or Collective if the conversion has a group: all ranks see the same files and pass the
 * same target and options. Each byte of a tensor is read by one rank; several ranks may write to
 * the same file. The output is byte for byte what one process alone would write. All ranks get the
 * same status; if one fails or is cancelled, the others stop at the end of their current
 * journal_bytes. Errors: also MISMATCH.
 */
RESHARD_API reshard_status reshard_conversion_run(const reshard_conversion *conversion,
                                                  const char *target,
                                                  const reshard_conversion_run_options *options,
                                                  reshard_conversion_report *out_report);
/* Fails as run would because of what exists at the target or target.partial, without a conversion,
 * so that nobody waits for one in vain. source: the path of the checkpoint. Local. */
RESHARD_API reshard_status
reshard_conversion_check_target(reshard_context *context, const char *source, const char *target,
                                const reshard_conversion_run_options *options);
/* Estimates how many seconds a run to this target would take, by reading and writing a little.
 * Checks the target as run would. Local. */
RESHARD_API reshard_status
reshard_conversion_estimate(const reshard_conversion *conversion, const char *target,
                            const reshard_conversion_run_options *options, double *out_seconds);

/* ==== advanced ===================================================================================
 * Cuts without an output, for those who load by themselves; single links and byte counts, for those
 * who draw or predict.
 */

/* ---- what rules say -------------------------------------------------------------------------- */

/* How the tensors of a checkpoint would be named, cast and cut, without an output: for those who
 * read, or only ask. No format and no file beside the tensors' matters. */
typedef struct reshard_cuts reshard_cuts;

/* Takes these options: to, rules, sets, dtypes, includes, excludes, renames, only, dequantize,
 * no_pad. All tensors are taken, unless patterns say otherwise; without `to`, none is cut. The
 * checkpoint must outlive the cuts. Errors: as reshard_conversion_create; INVALID if another option
 * is given that decides which tensors there are (a map, `as`). Local. */
RESHARD_API reshard_status reshard_cuts_create(const reshard_checkpoint *checkpoint,
                                               const reshard_conversion_options *options,
                                               reshard_cuts **out_cuts);
RESHARD_API void reshard_cuts_destroy(reshard_cuts *cuts);

/* Pointers live as long as the cuts. */
typedef struct reshard_cuts_info {
    size_t size; /* sizeof(reshard_cuts_info), set by the caller */
    int64_t tensor_count;
    const char *rules; /* which rules are used, and why; "" if none */
} reshard_cuts_info;
/* Errors: INVALID for a size that no release has. Local. */
RESHARD_API reshard_status reshard_cuts_get_info(const reshard_cuts *cuts,
                                                 reshard_cuts_info *out_info);
/* As reshard_conversion_get_tensor. Pointers live as long as the cuts. Errors: RANGE. Local. */
RESHARD_API reshard_status reshard_cuts_get_tensor(const reshard_cuts *cuts, int64_t index,
                                                   reshard_conversion_tensor *out_tensor);

/* ---- how the bytes go ------------------------------------------------------------------------ */

/* Which elements of which tensor go where: a link of a map into a tensor, 0 <= index < link_count.
 * Its `source` is the index of one of the checkpoint's tensors, its `target` is `tensor`. Set its
 * size before the call. Errors: RANGE. */
RESHARD_API reshard_status reshard_conversion_get_link(const reshard_conversion *conversion,
                                                       int64_t tensor, int64_t index,
                                                       reshard_strided_link *out_link);

/* How many bytes go from each source file to each target file, counted as they are written:
 * source_file_count rows of target_file_count numbers. A tensor that is computed counts as from the
 * file of the first tensor it is made of. */
RESHARD_API void reshard_conversion_get_matrix(const reshard_conversion *conversion,
                                               uint64_t *out_bytes);

/* The same from known speeds, without touching files: the bytes read into memory, written from it,
 * and copied by the kernel, divided by the cluster's `read`, `write` and `copy`, and added up. A
 * speed of 0 takes no time. Errors: INVALID (the cluster's size was not set, or a speed is below
 * zero). Local. */
RESHARD_API reshard_status reshard_conversion_predict(const reshard_conversion *conversion,
                                                      const reshard_cluster *cluster,
                                                      double *out_seconds);

#ifdef __cplusplus
}
#endif
#endif
