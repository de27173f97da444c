/* SPDX-License-Identifier: Apache-2.0 */
/* standing.c - see standing.h. The error text belongs to libreshard, whose internal functions are
 * hidden from this library, so it is set by public calls only. */
#include "mpi/standing.h"

#include "base/shorten.h"

#include <reshard/group.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

reshard_status rs_mpi_fail(reshard_status status, const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return reshard_error_set(status, text);
}

void rs_verdict_say(rs_verdict *verdict, const char *why)
{
    int used = snprintf(verdict->text, sizeof verdict->text, "rank %d: ", (int)verdict->rank);
    rs_shorten(why, verdict->text + used, sizeof verdict->text - (size_t)used);
}

static bool adopt(rs_standing *standing, const rs_verdict *verdict)
{
    bool first = !standing->broken;
    if (first || verdict->rank < standing->verdict.rank) {
        standing->verdict = *verdict;
        standing->verdict.text[sizeof verdict->text - 1] = '\0';
    }
    standing->broken = true;
    return first;
}

bool rs_standing_break(rs_standing *standing, reshard_status status, const char *why)
{
    if (standing->broken)
        return false;
    rs_verdict verdict = {.rank = standing->rank, .status = status};
    int named;
    /* A text on which ranks have agreed already names the rank. */
    if (sscanf(why, "rank %d:", &named) == 1)
        rs_shorten(why, verdict.text, sizeof verdict.text);
    else
        rs_verdict_say(&verdict, why);
    return adopt(standing, &verdict);
}

bool rs_standing_hear(rs_standing *standing, int32_t from, const rs_notice *notice)
{
    if (rs_standing_was_told(standing, from, (rs_notice_kind)notice->kind))
        return false;
    standing->told[from] = (uint8_t)(standing->told[from] | 1u << notice->kind);
    if (notice->kind == RS_NOTICE_DRAINED)
        standing->drained_count++;
    return notice->kind == RS_NOTICE_BROKEN && adopt(standing, &notice->verdict);
}

bool rs_standing_was_told(const rs_standing *standing, int32_t from, rs_notice_kind kind)
{
    return (standing->told[from] >> kind & 1) != 0;
}

reshard_status rs_standing_fail(const rs_standing *standing)
{
    return rs_mpi_fail(RESHARD_ERR_GROUP_BROKEN, "the group is broken: %s", standing->verdict.text);
}

reshard_status rs_standing_result(const rs_standing *standing)
{
    return standing->broken ? rs_mpi_fail(standing->verdict.status, "%s", standing->verdict.text)
                            : RESHARD_OK;
}
