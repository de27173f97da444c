/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_take.c - hands items to a taker while the pickle is read (rs_pickle_taker).
 *
 * The values made between a MARK and its APPENDS or SETITEMS can be dropped if nothing else refers
 * to them: no global or persistent id was made there, no older value was changed, and the memo only
 * grew. The arena then goes back to where it was at the MARK.
 *
 * The memo still has entries for the dropped values, and a later opcode may ask for one. A text,
 * such as a file name that many items share, is recreated by running the opcode that made it again.
 * Anything else is rare in files that Python wrote: then all batches that were taken are recreated,
 * in order, by running their opcodes again, and from then on no items are offered. So each opcode
 * is run at most twice, apart from those of texts.
 */
#include "base/context.h"
#include "base/error.h"
#include "base/search.h"
#include "checkpoint/archive/pickle_reader.h"

#include <assert.h>
#include <string.h>

typedef rs_pickle_reader reader;
typedef rs_pickle_taken taken;

/* ---- taking ---------------------------------------------------------------------------------- */

/* Records where the texts were made that entered the memo since the mark. */
static reshard_status keep_texts(reader *r, const rs_pickle_mark *mark)
{
    int64_t before = r->taken_entries;
    for (int64_t i = mark->memo_end; i < r->memo_end; i++) {
        const rs_pickle_node *value = r->memo[i - before];
        if (!rs_pickle_is(value, RS_PICKLE_TEXT))
            continue;
        reshard_status status =
            rs_grow(r->context, &r->texts, &r->text_capacity, r->text_count + 1, sizeof *r->texts);
        if (status != RESHARD_OK)
            return status;
        r->texts[r->text_count++] = (rs_pickle_text_place){(uint32_t)i, value->at};
    }
    return RESHARD_OK;
}

reshard_status rs_pickle_offer(reader *r, const rs_pickle_mark *mark,
                               const rs_pickle_node *container, bool *out_taken)
{
    size_t count = (size_t)(r->stack_count - mark->stack_count);
    bool is_dict = container->kind == RS_PICKLE_DICT;
    *out_taken = false;
    if (count == 0 || count < r->taker->items_min || r->lasting_at >= mark->at ||
        (is_dict && count % 2 != 0) ||
        (r->taken_count != 0 && r->taken[r->taken_count - 1].end >= mark->at))
        return RESHARD_OK;
    reshard_status status =
        rs_grow(r->context, &r->taken, &r->taken_capacity, r->taken_count + 1, sizeof *r->taken);
    if (status == RESHARD_OK)
        status = r->taker->take(r->taker->user, container,
                                (const rs_pickle_node *const *)r->stack + mark->stack_count, count,
                                out_taken);
    if (status != RESHARD_OK || !*out_taken)
        return status;
    taken made = {.begin = mark->at + 1,
                  .end = r->opcode_at,
                  .memo_first = mark->memo_end,
                  .memo_end = r->memo_end,
                  .taken_before = r->taken_entries,
                  .text_first = r->text_count};
    status = keep_texts(r, mark);
    made.text_end = r->text_count;
    r->taken[r->taken_count++] = made;
    r->taken_entries += made.memo_end - made.memo_first;
    r->stack_count = mark->stack_count;
    rs_arena_return_to(r->arena, mark->arena);
    return status;
}

/* ---- recalling taken values ------------------------------------------------------------------ */

/* The last batch whose memo entries begin at or before the index; NULL if there is none. */
static const taken *find_taken(reader *r, int64_t index)
{
    int64_t next, count = r->taken_count;
    if (count == 0 || index < r->taken[0].memo_first) /* mostly classes and keys */
        return NULL;
    if (index >= r->taken[count - 1].memo_first)
        return &r->taken[count - 1];
    /* Entries between two batches are asked for again and again: they too are classes and keys. */
    const taken *last = &r->taken[r->found_last];
    if (last->memo_first <= index && index < last[1].memo_first)
        return last;
    RS_FIND_FIRST(next, count, r->taken[next].memo_first > index);
    r->found_last = next - 1;
    return &r->taken[next - 1];
}

static const rs_pickle_text_place *find_text(const reader *r, const taken *within, int64_t index)
{
    int64_t at;
    RS_FIND_FIRST(at, within->text_end, at >= within->text_first && r->texts[at].index >= index);
    return at < within->text_end && r->texts[at].index == index ? &r->texts[at] : NULL;
}

/* Runs the opcodes from `begin` to `end` again. */
static reshard_status repeat(reader *r, size_t begin, size_t end)
{
    reshard_status status = RESHARD_OK;
    size_t at = r->at, opcode_at = r->opcode_at;
    const char *opcode = r->opcode;
    r->at = begin;
    while (status == RESHARD_OK && r->at < end)
        status = rs_pickle_step(r);
    r->at = at;
    r->opcode_at = opcode_at;
    r->opcode = opcode;
    return status;
}

reshard_status rs_pickle_recall(reader *r, uint64_t index)
{
    int64_t i = index < (uint64_t)r->memo_end ? (int64_t)index : -1;
    const taken *near = i >= 0 ? find_taken(r, i) : NULL;
    if (near != NULL && i < near->memo_end) {
        const rs_pickle_text_place *text = find_text(r, near, i);
        if (text != NULL)
            return repeat(r, text->at, text->at + 1);
        reshard_status status = rs_pickle_give_back(r);
        if (status != RESHARD_OK)
            return status;
        near = NULL;
    }
    int64_t before = near != NULL ? near->taken_before + near->memo_end - near->memo_first : 0;
    if (i < 0 || r->memo[i - before] == NULL)
        return rs_pickle_fail(r, "the memo holds nothing at this index");
    return rs_pickle_push(r, r->memo[i - before]);
}

/* Appends entries [begin, end) of the earlier memo, which may be NULL if there are none. */
static reshard_status append_memo(reader *r, rs_pickle_node *const *earlier, int64_t begin,
                                  int64_t end)
{
    int64_t count = end - begin;
    reshard_status status =
        rs_grow(r->context, &r->memo, &r->memo_capacity, r->memo_end + count, sizeof *r->memo);
    if (status == RESHARD_OK && count != 0)
        memcpy((void *)(r->memo + r->memo_end), (const void *)(earlier + begin),
               (size_t)count * sizeof *earlier);
    if (status == RESHARD_OK)
        r->memo_end += count;
    return status;
}

reshard_status rs_pickle_give_back(reader *r)
{
    rs_pickle_node **memo = r->memo;
    int64_t end = r->memo_end, taken_count = r->taken_count;
    int64_t stack_count = r->stack_count, copied = 0;
    reshard_status status = RESHARD_OK;
    r->taker = NULL;
    if (taken_count == 0)
        return RESHARD_OK;
    r->memo = NULL;
    r->memo_capacity = r->memo_end = r->taken_count = r->taken_entries = 0;
    for (int64_t i = 0; status == RESHARD_OK && i < taken_count; i++) {
        const taken *again = &r->taken[i];
        int64_t kept = again->memo_first - again->taken_before;
        status = append_memo(r, memo, copied, kept);
        copied = kept;
        assert(status != RESHARD_OK || r->memo_end == again->memo_first);
        r->memo_count = r->memo_end; /* the index that MEMOIZE fills next */
        if (status == RESHARD_OK)
            status = rs_pickle_do_mark(r, NULL);
        if (status == RESHARD_OK)
            status = repeat(r, again->begin, again->end);
        assert(status != RESHARD_OK || r->memo_end == again->memo_end);
        if (status == RESHARD_OK)
            r->mark_count--;
        r->stack_count = stack_count;
    }
    if (status == RESHARD_OK)
        status = append_memo(r, memo, copied, copied + end - r->memo_end);
    assert(status != RESHARD_OK || r->memo_end == end);
    r->memo_count = r->memo_end;
    rs_release(r->context, (void *)memo);
    return status;
}
