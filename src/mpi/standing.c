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

rs_verdict rs_verdict_of(int32_t rank, const reshard_error *error)
{
    rs_verdict verdict = {.rank = rank, .status = error->status, .hint = error->hint};
    int used = 0;
    verdict.named = error->has_rank ? error->rank : rank;
    if (!error->has_rank)
        used = snprintf(verdict.text, sizeof verdict.text, "rank %d: ", (int)rank);
    rs_shorten(error->text, verdict.text + used, sizeof verdict.text - (size_t)used);
    if (error->subject != NULL && strlen(error->subject) < sizeof verdict.subject)
        memcpy(verdict.subject, error->subject, strlen(error->subject) + 1);
    return verdict;
}

reshard_status rs_verdict_fail(const rs_verdict *verdict)
{
    const reshard_error error = {.size = sizeof error,
                                 .status = verdict->status,
                                 .hint = verdict->hint,
                                 .has_rank = 1,
                                 .rank = verdict->named,
                                 .subject = verdict->subject,
                                 .text = verdict->text};
    return reshard_error_put(&error);
}

static bool adopt(rs_standing *standing, const rs_verdict *verdict)
{
    bool first = !standing->broken;
    if (first || verdict->rank < standing->verdict.rank) {
        standing->verdict = *verdict;
        standing->verdict.text[sizeof verdict->text - 1] = '\0';
        standing->verdict.subject[sizeof verdict->subject - 1] = '\0';
    }
    standing->broken = true;
    return first;
}

bool rs_standing_break(rs_standing *standing, const reshard_error *error)
{
    if (standing->broken)
        return false;
    const rs_verdict verdict = rs_verdict_of(standing->rank, error);
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
    return standing->broken ? rs_verdict_fail(&standing->verdict) : RESHARD_OK;
}
