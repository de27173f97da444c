/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_rank_files.c - plain files of ranks: each holds what a rank has in memory, in local
 * shapes. Our own files say how they were split (rank_layout.h); for those of others a mesh and
 * rules tell which part each rank has (rank_files_read.c).
 *
 * Written, an entry is a rank's whole local buffer, including padding, and its pieces lie in it
 * strided.
 */
#include "checkpoint/format/formats.h"
#include "checkpoint/format/rank_files.h"

#include "base/context.h"
#include "checkpoint/body/safetensors.h"
#include "checkpoint/body/target.h"
#include "checkpoint/format/rank_layout.h"

#include <stdio.h>

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    reshard_status status = rs_safetensors_open(checkpoint, opening, out_is);
    if (opening->options->from == NULL)
        *out_is = *out_is && status == RESHARD_OK && rs_rank_layout_is_told(checkpoint);
    return status;
}

/* ---- laying out and writing ------------------------------------------------------------------ */

static reshard_status lay_out(rs_laying *laying)
{
    reshard_status status = rs_rank_files_check_mesh(laying->book->mesh);
    if (status == RESHARD_OK)
        status = rs_target_cut(laying, rs_target_place_local);
    return status == RESHARD_OK ? rs_rank_layout_prepare(laying) : status;
}

static void name_file(const rs_target *target, int32_t file, int32_t rank,
                      char out_name[RS_FILE_NAME_BYTES])
{
    (void)file;
    (void)snprintf(out_name, RS_FILE_NAME_BYTES, "rank-%05d-of-%05d.safetensors", (int)rank,
                   (int)target->file_count);
}

static reshard_status write_head(const rs_target *target, int32_t file, rs_json_writer *writer)
{
    return rs_safetensors_write_head(target, file, rs_rank_layout_write, writer);
}

const rs_format rs_format_rank_files = {
    .name = "rank-files",
    .description = "one safetensors file for each rank, with its own copy of all that it holds",
    .looks_for = "*.safetensors, one for each rank of the mesh",
    .needs_mesh = true,
    .probe = probe,
    .read = rs_rank_files_read,
    .is_split = true,
    .lay_out = lay_out,
    .name_file = name_file,
    .place = rs_safetensors_place,
    .write_head = write_head,
};
