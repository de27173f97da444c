/* SPDX-License-Identifier: Apache-2.0 */
/* format_megatron.c - Megatron-Core's torch_dist: a distributed checkpoint and what megatron.h
 * says. */
#include "checkpoint/dcp/dcp_format.h"
#include "checkpoint/dcp/dcp_write.h"
#include "checkpoint/dcp/megatron.h"

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    *out_is = false;
    return opening->is_folder ? rs_megatron_probe(checkpoint, out_is) : RESHARD_OK;
}

static reshard_status read_folder(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    return rs_dcp_read(checkpoint, opening, true);
}

const rs_format rs_format_megatron = {
    .name = "megatron",
    .description = "Megatron-Core's torch_dist: metadata.json, .metadata and __R_N.distcp",
    .looks_for = "metadata.json of torch_dist",
    .probe = probe,
    .read = read_folder,
    .is_split = true,
    .skips_empty = true,
    .has_crcs = true,
    .lay_out = rs_megatron_lay_out,
    .name_file = rs_megatron_name_file,
    .place = rs_dcp_place,
    .write_head = rs_dcp_write_head,
    .finish = rs_megatron_finish,
};
