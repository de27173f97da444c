/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_staging.c - see rs_staging in kernels.h. The stage's bytes have the same place within a
 * cache line as the target's they stand for. So whole lines are streamed from whole lines, and a
 * line that is not full yet waits at the beginning of the stage for the rest of it.
 */
#include "kernel/copy/kernels.h"

void rs_staging_begin(rs_staging *stage, unsigned char *target)
{
    size_t lead = (uintptr_t)target % RS_LINE_BYTES;
    stage->target = target - lead;
    stage->lead = lead;
    stage->fill = lead;
}

/* Writes the lines up to the last whole one; `rest` of them too if nothing will follow. */
static void write_out(rs_staging *stage, bool rest)
{
    size_t whole = stage->fill / RS_LINE_BYTES * RS_LINE_BYTES;
    size_t end = rest ? stage->fill : whole;
    if (end > stage->lead)
        rs_stream(stage->cpu, stage->target + stage->lead, stage->bytes + stage->lead,
                  end - stage->lead);
    if (whole == 0)
        return;
    memcpy(stage->bytes, stage->bytes + whole, RS_LINE_BYTES);
    stage->target += whole;
    stage->fill -= whole;
    stage->lead = 0;
}

void rs_staging_flush(rs_staging *stage)
{
    write_out(stage, false);
}

void rs_staging_end(rs_staging *stage)
{
    write_out(stage, true);
    stage->lead = stage->fill;
}
