/* SPDX-License-Identifier: Apache-2.0 */
/* crcs.c - checks that files still hold what their writers put there. Only archives say so: they
 * have a CRC for each member. */
#include "base/context.h"
#include "base/error.h"
#include "checkpoint/archive/crc.h"
#include "checkpoint/engine/engine.h"

#define CRC_BYTES ((size_t)1 << 20)

static reshard_status check_crc(const reshard_checkpoint *checkpoint, const rs_stored_crc *item,
                                char *buffer)
{
    const rs_stored_file *file = &checkpoint->files[item->file];
    uint32_t crc = 0;
    for (uint64_t done = 0, part; done < item->bytes; done += part) {
        part = item->bytes - done < CRC_BYTES ? item->bytes - done : CRC_BYTES;
        if (rs_context_cancelled(checkpoint->context))
            return rs_fail(RESHARD_ERR_CANCELLED, "cancelled while reading %s", file->name);
        reshard_status status = rs_file_read(file->file, buffer, (size_t)part, item->at + done);
        if (status != RESHARD_OK)
            return status;
        crc = rs_crc32(crc, buffer, (size_t)part);
    }
    if (crc == item->crc)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_CHECK,
                   "%s: the CRC of %llu bytes from byte %llu on is wrong: the data are damaged",
                   file->name, (unsigned long long)item->bytes, (unsigned long long)item->at);
}

reshard_status rs_engine_check_crcs(const reshard_checkpoint *checkpoint, const rs_team *team)
{
    reshard_status status = RESHARD_OK;
    char *buffer = rs_allocate(team->context, CRC_BYTES);
    if (buffer == NULL)
        status = rs_allocation_status();
    for (int64_t i = team->rank; status == RESHARD_OK && i < checkpoint->crc_count;
         i += team->rank_count)
        status = check_crc(checkpoint, &checkpoint->crcs[i], buffer);
    if (buffer != NULL)
        rs_release(team->context, buffer, CRC_BYTES);
    return rs_team_agree(team, status);
}
