/* SPDX-License-Identifier: Apache-2.0 */
/* formats.c - the list of formats, in the order in which they are probed: the more specific a
 * format's files are, the earlier it comes. */
#include "checkpoint/open/open.h"

#include "base/error.h"
#include "base/options.h"
#include "checkpoint/dcp/dcp_format.h"
#include "checkpoint/deepspeed/ds_formats.h"
#include "checkpoint/format/plain_formats.h"
#include "checkpoint/gguf/gguf_format.h"
#include "checkpoint/torch/torch_formats.h"
#include "text/text.h"

#include <assert.h>
#include <string.h>

static const rs_format *const formats[] = {
    &rs_format_sharded_state,
    &rs_format_hf,
    &rs_format_torch_checkpointing,
    &rs_format_gguf,
    &rs_format_dcp_safetensors,
    &rs_format_megatron,
    &rs_format_megatron_legacy,
    &rs_format_dcp,
    &rs_format_rank_files,
    &rs_format_safetensors,
    &rs_format_npy,
    &rs_format_universal,
    &rs_format_deepspeed,
    &rs_format_torch_bin,
    &rs_format_consolidated,
    &rs_format_torch_ranks,
    &rs_format_torch,
};
#define FORMAT_COUNT ((int32_t)(sizeof formats / sizeof *formats))

const rs_format *rs_format_at(int32_t index)
{
    return index >= 0 && index < FORMAT_COUNT ? formats[index] : NULL;
}

reshard_status rs_format_find_writer(const char *name, const rs_format **out_format)
{
    char known[256];
    rs_text text;
    rs_text_init(&text, known, sizeof known);
    for (int32_t i = 0; i < FORMAT_COUNT; i++) {
        if (formats[i]->lay_out == NULL)
            continue;
        if (strcmp(formats[i]->name, name) == 0) {
            *out_format = formats[i];
            return RESHARD_OK;
        }
        rs_text_add(&text, known[0] == '\0' ? "%s" : ", %s", formats[i]->name);
    }
    return rs_fail(RESHARD_ERR_NOT_FOUND, "format \"%.60s\" cannot be written; give one of %s",
                   name, known);
}

const rs_format *rs_format_default_writer(bool is_split)
{
    int32_t i = 0;
    while (i < FORMAT_COUNT && (formats[i]->lay_out == NULL || formats[i]->is_split != is_split ||
                                formats[i]->is_for_engines))
        i++;
    assert(i < FORMAT_COUNT);
    return formats[i];
}

reshard_status reshard_format_at(int32_t index, reshard_format *out_format)
{
    const rs_format *format = rs_format_at(index);
    if (format == NULL)
        return rs_fail(RESHARD_ERR_RANGE, "there is no format %d; there are %d", (int)index,
                       (int)FORMAT_COUNT);
    reshard_format made = {.name = format->name,
                           .description = format->description,
                           .reads = format->read != NULL,
                           .writes = format->lay_out != NULL,
                           .is_split = format->is_split,
                           .needs_mesh = format->needs_mesh};
    return rs_report_write("format", &made, sizeof made, out_format);
}
