/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.c - the state of each block. */
#include "checkpoint/engine/ledger.h"

#include "base/context.h"

#include <assert.h>

reshard_status rs_ledger_init(rs_ledger *ledger, reshard_context *context, int64_t count)
{
    assert(count >= 0);
    *ledger = (rs_ledger){.context = context, .count = count};
    ledger->states = rs_allocate_zeroed(context, (size_t)count * sizeof(atomic_uchar));
    return ledger->states != NULL ? RESHARD_OK : rs_allocation_status();
}

void rs_ledger_release(rs_ledger *ledger)
{
    rs_release(ledger->context, ledger->states);
    *ledger = (rs_ledger){0};
}

static void set_state(rs_ledger *ledger, int64_t block, rs_block_state state)
{
    assert(block >= 0 && block < ledger->count && rs_ledger_state(ledger, block) <= state);
    atomic_store(&ledger->states[block], (unsigned char)state);
}

rs_block_state rs_ledger_state(const rs_ledger *ledger, int64_t block)
{
    return (rs_block_state)atomic_load(&ledger->states[block]);
}

bool rs_ledger_is_done(const rs_ledger *ledger, int64_t block)
{
    return rs_ledger_state(ledger, block) != RS_BLOCK_OPEN;
}

void rs_ledger_mark_done(rs_ledger *ledger, int64_t block)
{
    set_state(ledger, block, RS_BLOCK_DONE);
}

void rs_ledger_note(rs_ledger *ledger)
{
    for (int64_t i = 0; i < ledger->count; i++) {
        if (rs_ledger_state(ledger, i) == RS_BLOCK_DONE)
            set_state(ledger, i, RS_BLOCK_NOTED);
    }
}

void rs_ledger_merge(rs_ledger *ledger, int64_t first, int64_t count)
{
    for (int64_t i = first; i < first + count; i++) {
        if (rs_ledger_state(ledger, i) != RS_BLOCK_RECORDED)
            set_state(ledger, i, RS_BLOCK_NOTED);
    }
}

void rs_ledger_recall(rs_ledger *ledger, int64_t first, int64_t count)
{
    for (int64_t i = first; i < first + count; i++)
        set_state(ledger, i, RS_BLOCK_RECORDED);
}

bool rs_ledger_record(rs_ledger *ledger, int64_t *first, int64_t *out_count)
{
    int64_t i = *first;
    while (i < ledger->count && rs_ledger_state(ledger, i) != RS_BLOCK_NOTED)
        i++;
    *first = i;
    while (i < ledger->count && rs_ledger_state(ledger, i) == RS_BLOCK_NOTED)
        set_state(ledger, i++, RS_BLOCK_RECORDED);
    *out_count = i - *first;
    return *out_count != 0;
}
