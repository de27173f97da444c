/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - a checkpoint format: one row with its name and the functions that recognise, read, lay
 * out and write checkpoints of that kind.
 *
 * Each format is a constant in its own file, format_NAME.c, and a line of the list in formats.c. It
 * knows the store and the bodies that several formats share (safetensors.h), but no other format.
 * All other code uses the row and never asks which format it is. docs/formats.md tells how to add
 * one.
 */
#ifndef RS_CHECKPOINT_TARGET_FORMAT_H
#define RS_CHECKPOINT_TARGET_FORMAT_H

#include "checkpoint/archive/zip_write.h"
#include "checkpoint/store/store.h"
#include "text/json_writer.h"

typedef struct rs_target rs_target; /* target.h */
typedef struct rs_laying rs_laying;

/* What to do with tensors and files beside the model (reshard_checkpoint_options). */
typedef enum rs_unlisted { RS_UNLISTED_SKIP, RS_UNLISTED_TAKE, RS_UNLISTED_REFUSE } rs_unlisted;

/* The path that is being opened, a folder or one file, and the caller's wishes. */
typedef struct rs_opening {
    bool is_folder;
    /* The names in the folder that do not begin with a dot, sorted as bytes; or the name of the one
     * file. */
    int64_t name_count;
    char *const *names;
    const char *index; /* the name among these that the user gave; NULL: none */
    bool is_snapshot;  /* the folder is a snapshot in the hub's cache */
    bool is_latest;    /* the folder is one that another folder names as its newest */
    rs_unlisted unlisted;
    bool any_padding;                          /* rows of padding need not be zero */
    const reshard_checkpoint_options *options; /* complete, whatever size the caller's had */
} rs_opening;

/* What a format's `finish` gets once all data of a target is written. */
typedef struct rs_finishing {
    rs_file *const *files; /* the target's files by number, open for writing; NULL: not written */
    /* Puts one more file into the target's folder. */
    reshard_status (*add)(void *user, const char *name, const char *bytes, size_t count);
    void *user;
    const rs_zip_sum *sums; /* the CRC of each entry's data; NULL unless has_crcs */
    /* The same as add for a file that `write` fills, which gets `data`. */
    reshard_status (*make)(void *user, const char *name, uint64_t bytes,
                           reshard_status (*write)(const void *data, rs_file *file),
                           const void *data);
} rs_finishing;

#define RS_FILE_NAME_BYTES 1024 /* with the folders that lead to it */
/* The data of our files begins on a page, so that the file system can share blocks. */
#define RS_DATA_ALIGNMENT ((uint64_t)4096)

typedef struct rs_format {
    const char *name;        /* "hf": as users write and see it */
    const char *description; /* half a line */
    const char *looks_for;   /* the files that mark a path as this format, for error texts */

    /* ---- reading ----------------------------------------------------------------------------- */

    /* The files may not say how they are split, so the caller may give a mesh, and then only
     * formats like this are probed. Without a mesh, the format recognises only files that do say
     * it. */
    bool needs_mesh;
    /* It takes any file with an ending that it knows, also those that training runs leave beside
     * the sub-folders of their checkpoints; so where a file names the newest of these (latest.h),
     * that one is read instead. */
    bool takes_any;
    /* Is the path of this format? May open files, and leaves them open for the formats with the
     * same body, which are asked next. Errors are those of files that have to be read to know. */
    reshard_status (*probe)(reshard_checkpoint *checkpoint, const rs_opening *opening,
                            bool *out_is);
    /* Opens the files and fills in tensors, notes and bytes. It must have checked that every byte
     * that a piece names lies inside its file. */
    reshard_status (*read)(reshard_checkpoint *checkpoint, const rs_opening *opening);

    /* ---- writing; all NULL if the format is only read ---------------------------------------- */

    bool is_for_engines; /* its files suit one program: written only if asked for by name */
    bool is_split; /* files are split over a mesh, which has to be given; else tensors are whole */
    bool limits_files; /* lay_out begins another file beyond file_bytes_max */
    /* The format that is written in place of this one if users ask for a mesh; NULL: there is
     * none. */
    const struct rs_format *split;
    /* The format that writes tensors which say how they are split (DTensor); NULL: there is
     * none. */
    const struct rs_format *placed;
    /* If there is one file, it gets the target's name; and nothing goes along in any case. */
    bool is_one_file;
    /* Entries lie in the order in which lay_out leaves them, and data need not begin on a page, so
     * the file system cannot share blocks. */
    bool is_packed;
    bool skips_empty; /* files without entries are not written */
    bool has_crcs;    /* finish needs the CRCs of entries */
    /* takes only the model of a checkpoint that nests, unless everything is asked for */
    bool takes_model;
    /* May a tensor stay behind, because config.json says that it is tied to another (a head)? NULL:
     * none may. */
    bool (*leaves_tied)(rs_slice name);
    /* Can it hold this value, which is not a tensor? NULL: it holds no values. */
    bool (*holds_value)(const rs_stored_value *value);
    /* A file of this format (laying->donor) says which tensors are written, and as what: changes
     * the selection to these. Such a format needs one. NULL: whatever is selected is written. */
    reshard_status (*follow)(rs_laying *laying);
    /* Decides which pieces of which tensor go into which file: fills in the target's tensors and
     * entries and, unless the format is split, its file_count. */
    reshard_status (*lay_out)(rs_laying *laying);
    /* The name of the only file; NULL: name_file gives it. */
    const char *file_name;
    void (*name_file)(const rs_target *target, int32_t file, int32_t rank,
                      char out_name[RS_FILE_NAME_BYTES]);
    /* Gives the entries of a file their places, and sets the file's data_begin and bytes. */
    reshard_status (*place)(rs_target *target, int32_t file);
    /* Writes the bytes of a file in front of its data. */
    reshard_status (*write_head)(const rs_target *target, int32_t file, rs_json_writer *writer);
    /* Called after all data is written, for an index or for records that depend on the data. NULL:
     * nothing is left to do. */
    reshard_status (*finish)(const rs_target *target, const rs_finishing *finishing);
    const struct rs_torch_style *torch_style; /* of files of torch.save (torch/torch_save.h) */
} rs_format;

#endif
