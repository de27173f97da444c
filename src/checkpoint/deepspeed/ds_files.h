/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds_files.h - the files of a DeepSpeed checkpoint, by their names: which rank's, and of which
 * kind.
 *
 * An mp rank (mp_rank_01) is a place in the model-parallel grid: tensor parallel ranks, one after
 * the other, for each stage of the pipeline. Every mp rank has its own data-parallel ranks
 * (zero_pp_rank_3), over which ZeRO cuts what that mp rank has of the model.
 */
#ifndef RS_CHECKPOINT_DEEPSPEED_DS_FILES_H
#define RS_CHECKPOINT_DEEPSPEED_DS_FILES_H

#include "checkpoint/target/format.h"

#define RS_DS_RANKS_MAX (1 << 20)

typedef enum rs_ds_kind {
    RS_DS_OTHER,
    RS_DS_OPTIM,        /* zero_pp_rank_D_mp_rank_M_optim_states.pt */
    RS_DS_MODEL,        /* mp_rank_M_model_states.pt */
    RS_DS_RANK_MODEL,   /* zero_pp_rank_D_mp_rank_M_model_states.pt: of stage 3 */
    RS_DS_LAYER,        /* layer_L-model_T-model_states.pt: of a pipeline */
    RS_DS_EXPERT,       /* layer_L_expert_E_mp_rank_M_model_states.pt */
    RS_DS_EXPERT_OPTIM, /* expp_rank_E_mp_rank_M_optim_states.pt */
} rs_ds_kind;

typedef struct rs_ds_file {
    const char *name;
    rs_ds_kind kind;
    int32_t dp;     /* data-parallel rank; 0 if the kind has none */
    int32_t mp;     /* mp rank; of a layer, the tensor parallel rank */
    int32_t number; /* of the layer or expert; else 0 */
} rs_ds_file;

/* What a name says; its kind is OTHER if it is none of them. */
rs_ds_file rs_ds_file_parse(const char *name);

/* All files of a folder, sorted by kind, number, mp rank and data-parallel rank. */
typedef struct rs_ds_files {
    int64_t count;
    rs_ds_file *items; /* in the arena */
    int32_t dp_count;  /* number of data-parallel ranks, by the names of the optim files */
    int32_t mp_count;  /* number of mp ranks, likewise */
    int32_t tp_count;  /* number of tensor parallel ranks among these */
} rs_ds_files;

/* Finds the files among the names of a folder, and checks that none is missing: of every mp rank
 * all data-parallel ranks and a model file; of every layer all tensor parallel ranks. Errors: GAP,
 * naming the missing ranks; INVALID for two files of one rank. */
reshard_status rs_ds_files_find(rs_arena *arena, const char *path, const rs_opening *opening,
                                rs_ds_files *out_files);
/* Makes model files the checkpoint's own, and a folder (NULL: none): not all of the former are
 * read, because those of other ranks and stages repeat them. */
reshard_status rs_ds_files_own(reshard_checkpoint *checkpoint, const rs_opening *opening,
                               const char *folder);
/* The index of a file; -1 if there is none. */
int64_t rs_ds_files_at(const rs_ds_files *files, rs_ds_kind kind, int32_t number, int32_t mp,
                       int32_t dp);

#endif
