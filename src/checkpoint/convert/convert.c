/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c - opens, plans and runs a conversion in one call. */
#include "base/options.h"
#include "checkpoint/engine/team.h"

#include <reshard/conversion.h>

reshard_status reshard_convert(reshard_context *context, const char *source, const char *target,
                               const reshard_checkpoint_options *opening,
                               const reshard_conversion_options *options,
                               const reshard_conversion_run_options *running,
                               reshard_conversion_report *out_report)
{
    reshard_checkpoint *checkpoint = NULL;
    reshard_conversion *conversion = NULL;
    reshard_conversion_options chosen;
    reshard_checkpoint_options opened;
    reshard_status status = rs_options_read("conversion options", options, &chosen, sizeof chosen);
    if (status == RESHARD_OK)
        status = rs_options_read("checkpoint options", opening, &opened, sizeof opened);
    if (status != RESHARD_OK)
        return status;
    opened.unreadable = 1; /* the conversion refuses such tensors unless they are excluded */
    rs_team team = rs_team_of(context, chosen.group);
    /* What is in the way of the target is found before the source is read. */
    if (rs_team_leads(&team))
        status = reshard_conversion_check_target(context, source, target, running);
    if (status == RESHARD_OK)
        status = reshard_checkpoint_open(context, source, &opened, &checkpoint);
    status = rs_team_agree(&team, status);
    if (status == RESHARD_OK)
        status = reshard_conversion_create(context, checkpoint, &chosen, &conversion);
    if (status == RESHARD_OK)
        status = reshard_conversion_run(conversion, target, running, out_report);
    reshard_conversion_destroy(conversion);
    reshard_checkpoint_destroy(checkpoint);
    return status;
}
