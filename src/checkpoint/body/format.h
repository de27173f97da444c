/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - what a format is: one row with a name, and how to recognise, read, lay out and write
 * checkpoints of that kind.
 *
 * A format is a constant in its own file, format_NAME.c, and a line of the list in formats.c. A
 * format knows the store and the bodies that several formats share (safetensors.h), and no other
 * format; everybody else goes by the row and compares no formats. docs/formats.md tells how to add
 * one.
 */
#ifndef RS_CHECKPOINT_FORMAT_FORMAT_H
#define RS_CHECKPOINT_FORMAT_FORMAT_H

#include "checkpoint/archive/zip_write.h"
#include "checkpoint/store/store.h"
#include "text/json_writer.h"

typedef struct rs_target rs_target; /* target.h */
typedef struct rs_laying rs_laying;

/* What becomes of what lies beside the model (reshard_checkpoint_options). */
typedef enum rs_unlisted { RS_UNLISTED_SKIP, RS_UNLISTED_TAKE, RS_UNLISTED_REFUSE } rs_unlisted;

/* What is being opened: a folder, or one file. */
typedef struct rs_opening {
    bool is_folder;
    /* The names in the folder, sorted as bytes, without those that begin with a dot; or the one
     * file's. */
    int64_t name_count;
    char *const *names;
    const char *index; /* the user named this one of them; NULL: none */
    bool is_snapshot;  /* the folder was found in the hub's cache */
    rs_unlisted unlisted;
    bool any_padding;                          /* rows of padding may hold anything */
    const reshard_checkpoint_options *options; /* of full size */
} rs_opening;

/* What a format gets once all data of a target is written. */
typedef struct rs_finishing {
    rs_file *const *files; /* the target's, by number, open for writing; NULL: not written */
    /* Puts one more file into the target's folder. */
    reshard_status (*add)(void *user, const char *name, const char *bytes, size_t count);
    void *user;
    const rs_zip_sum *sums; /* of the data of each entry of the target; NULL unless has_crcs */
} rs_finishing;

#define RS_FILE_NAME_BYTES 96

typedef struct rs_format {
    const char *name;        /* "hf": what users write and read */
    const char *description; /* half a line */
    const char *looks_for;   /* what makes a path one of this format, for error texts */

    /* ---- reading ----------------------------------------------------------------------------- */

    /* Files need not say how they are split: the caller may give a mesh, and then only formats like
     * this are probed. Without one it knows only files that do say it. */
    bool needs_mesh;
    /* Is it one? May open files, and leaves them open for the formats with the same body, which are
     * asked next. Errors are those of files that have to be read to know. */
    reshard_status (*probe)(reshard_checkpoint *checkpoint, const rs_opening *opening,
                            bool *out_is);
    /* Opens files and fills in tensors, notes and bytes. Every byte that a piece names must have
     * been checked to lie in its file. */
    reshard_status (*read)(reshard_checkpoint *checkpoint, const rs_opening *opening);

    /* ---- writing; all NULL when the format is only read -------------------------------------- */

    bool is_split; /* over a mesh, which has to be given; else tensors are whole */
    /* Writes it over a mesh of several ranks, under the same name; NULL: nobody does. */
    const struct rs_format *split;
    /* Writes the same with tensors that say how they are split (DTensor); NULL: nobody does. */
    const struct rs_format *placed;
    bool skips_empty; /* files that would hold nothing are not written */
    bool has_crcs;    /* finish needs the CRCs of entries */
    bool takes_model; /* of a checkpoint that nests, only the model, unless all is asked for */
    /* Whether it can hold something that is no tensor; NULL: nothing of that kind. */
    bool (*holds_value)(const rs_stored_value *value);
    /* Decides which pieces of which tensor go into which file: fills in the target's tensors and
     * entries, and, unless the format is split, its file_count. */
    reshard_status (*lay_out)(rs_laying *laying);
    void (*name_file)(const rs_target *target, int32_t file, int32_t rank,
                      char out_name[RS_FILE_NAME_BYTES]);
    /* Gives the entries of a file their places, and the file its data_begin and bytes. */
    reshard_status (*place)(rs_target *target, int32_t file);
    /* The bytes of a file in front of its data. */
    reshard_status (*write_head)(const rs_target *target, int32_t file, rs_json_writer *writer);
    /* After all data: an index, or what depends on the data. NULL: nothing is left to do. */
    reshard_status (*finish)(const rs_target *target, const rs_finishing *finishing);
} rs_format;

#endif
