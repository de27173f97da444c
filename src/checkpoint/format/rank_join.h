/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_join.h - makes tensors from the local arrays in rank files: by the documents in which files
 * describe their split (rank_layout.h), or by a mesh and rules that the caller gives. The kind of
 * the files does not matter here.
 */
#ifndef RS_CHECKPOINT_FORMAT_RANK_JOIN_H
#define RS_CHECKPOINT_FORMAT_RANK_JOIN_H

#include "checkpoint/rules/rulebook.h"
#include "checkpoint/rules/rules.h"
#include "checkpoint/store/store.h"
#include "checkpoint/target/format.h"

/* Checks that there can be one file for each rank. Errors: INVALID. */
reshard_status rs_rank_mesh_check(const reshard_mesh *mesh);

/* Which rank's files these are, where a rank has several. Files are sorted by group. */
typedef struct rs_rank_groups {
    int32_t count;
    const int32_t *of_file; /* by file, from 0 up */
} rs_rank_groups;

/* Makes the checkpoint's tensors. groups: NULL if each rank has one file. documents: by file, the
 * document about its split (RS_LAYOUT_KEY); bytes NULL: none; `documents` may be NULL, too. If no
 * file has one, files belong to the ranks of the mesh in their order. Sorts the list by name.
 * Errors: as rs_rank_layout_read and rs_rules_recover; INVALID if the numbers of files and ranks
 * differ; CORRUPT if files do not agree; CHECK for padding that is not zero. */
reshard_status rs_rank_join(reshard_checkpoint *checkpoint, const rs_opening *opening,
                            const rs_slice *documents, const rs_rank_groups *groups,
                            rs_occurrences *list);

/* rank_arrays.c - the local arrays of one tensor in rank files: which rank has which. */

typedef struct rs_rank_arrays {
    const rs_occurrence *items; /* sorted by file */
    int64_t count;
    const int32_t *file_of;  /* by position in the mesh: the rank's file, or its group of files */
    const int32_t *group_of; /* by file: its group; NULL: each rank has one file */
} rs_rank_arrays;

/* The array of the rank at a position; NULL: it has none. */
const rs_occurrence *rs_rank_array_at(const rs_rank_arrays *arrays, int32_t position);
/* Checks that there is at most one for each rank, and that all agree on what the whole tensor is.
 * Errors: CORRUPT. */
reshard_status rs_rank_arrays_check(const reshard_checkpoint *checkpoint,
                                    const rs_rank_arrays *arrays);

/*
 * rank_doubts.c - doubts about the mesh and the rules by which plain rank files were joined. The
 * files do not say how they were cut, and a wrong answer makes a model of the wrong shape, or one
 * that holds what was replicated several times.
 */

/* Over all tensors so far. Initialise with zeros. */
typedef struct rs_rank_doubts {
    int64_t same_count; /* tensors that are joined, although all ranks hold the same */
    rs_slice first_same;
} rs_rank_doubts;

/* Looks at a tensor that was joined from these arrays, one of each rank that holds it. Reads a few
 * kilobytes, and as a rule only of two ranks. */
reshard_status rs_rank_doubts_look(rs_rank_doubts *doubts, const reshard_checkpoint *checkpoint,
                                   const rs_stored_tensor *tensor, const rs_occurrence *arrays,
                                   int64_t count);
/* After all tensors: compares shapes with config.json, and adds notes. Errors: INVALID if they do
 * not fit. */
reshard_status rs_rank_doubts_settle(const rs_rank_doubts *doubts, reshard_checkpoint *checkpoint,
                                     const char *from, rs_rulebook *book);

/*
 * rank_padding.c - padding in rank files, which is cut off when they are read. It is checked first,
 * because a wrong vocab_size would cut off rows that are needed.
 */

/* Statistics over all tensors of a checkpoint so far. Initialise with zeros. */
typedef struct rs_rank_padding {
    bool may_be_any;      /* padding may have any value; else it must be zero */
    bool found;           /* some padding of the current tensor is not zero */
    int64_t tensor_count; /* number of tensors with padding that is not zero */
    int64_t row_count;    /* number of rows cut off these tensors */
    rs_slice first;
    int64_t unknown_count; /* number of tensors of unknown true size, whose padding stays */
    rs_slice first_unknown;
} rs_rank_padding;

/* Checks what a piece of a file holds beyond the tensor's shape. at: where the piece begins in the
 * file. Errors: CHECK if it is not zero, naming file and dimension; IO. */
reshard_status rs_rank_padding_look(rs_rank_padding *padding, const reshard_checkpoint *checkpoint,
                                    const rs_stored_tensor *tensor, const reshard_piece *piece,
                                    int32_t file, uint64_t at);
/* Checks that an array (NULL: none) is zero everywhere. Errors: CHECK, naming the file; IO. */
reshard_status rs_rank_zeros_check(const reshard_checkpoint *checkpoint,
                                   const rs_stored_tensor *tensor, const rs_occurrence *array);
/* Counts a tensor after all its pieces have been checked. */
void rs_rank_padding_count(rs_rank_padding *padding, rs_slice name, const rs_rule_result *result);
/* Adds notes to the checkpoint. */
reshard_status rs_rank_padding_note(const rs_rank_padding *padding, reshard_checkpoint *checkpoint);

#endif
