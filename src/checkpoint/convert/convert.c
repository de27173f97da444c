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
    reshard_status status = rs_options_read("conversion options", options, &chosen, sizeof chosen);
    if (status != RESHARD_OK)
        return status;
    rs_team team = rs_team_of(context, chosen.group);
    status = rs_team_agree(&team, reshard_checkpoint_open(context, source, opening, &checkpoint));
    if (status == RESHARD_OK)
        status = reshard_conversion_create(context, checkpoint, &chosen, &conversion);
    if (status == RESHARD_OK)
        status = reshard_conversion_run(conversion, target, running, out_report);
    reshard_conversion_destroy(conversion);
    reshard_checkpoint_destroy(checkpoint);
    return status;
}
