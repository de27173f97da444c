/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces.c - writes the boxes of layouts. Consecutive ranks that hold the same box share one entry,
 * so a replicated tensor takes one entry, no matter how many ranks hold it.
 */
#include "cli/page/pieces.h"

#include "cli/common/input.h"

#include <string.h>

/* An entry that is still growing. */
typedef struct entry {
    int32_t rank, count; /* count 0: there is none yet */
    reshard_box box;
} entry;

static void write_entry(cli_page *page, entry *e)
{
    if (e->count == 0)
        return;
    cli_json_integer(&page->json, NULL, e->rank);
    cli_json_integer(&page->json, NULL, e->count);
    for (int32_t d = 0; d < e->box.ndim; d++)
        cli_json_integer(&page->json, NULL, e->box.offset[d]);
    for (int32_t d = 0; d < e->box.ndim; d++)
        cli_json_integer(&page->json, NULL, e->box.size[d]);
    e->count = 0;
    page->pieces_left--;
}

static int same_box(const reshard_box *a, const reshard_box *b)
{
    size_t bytes = (size_t)a->ndim * sizeof a->offset[0];
    return a->ndim == b->ndim && memcmp(a->offset, b->offset, bytes) == 0 &&
           memcmp(a->size, b->size, bytes) == 0;
}

static void add_box(cli_page *page, entry *e, int32_t rank, const reshard_box *box)
{
    if (e->count > 0 && rank == e->rank + e->count && same_box(box, &e->box)) {
        e->count++;
        return;
    }
    write_entry(page, e);
    *e = (entry){rank, 1, *box};
}

/* How many boxes the next picture may have. */
static int64_t find_room(const cli_page *page)
{
    return page->pieces_left < CLI_PAGE_PICTURE_PIECES_MAX ? page->pieces_left
                                                           : CLI_PAGE_PICTURE_PIECES_MAX;
}

static void write_end(cli_page *page, entry *e, int64_t ranks_shown, int pieces_cut)
{
    write_entry(page, e);
    cli_json_end_list(&page->json);
    cli_json_integer(&page->json, "ranks_shown", ranks_shown);
    cli_json_bool(&page->json, "pieces_cut", pieces_cut);
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* The state of a layout's picture while it is written. */
typedef struct picture {
    entry last;
    int pieces_cut;
    const char *partial; /* the reduction, or NULL */
} picture;

static reshard_status add_rank(cli_page *page, picture *p, const reshard_layout *layout,
                               int32_t rank, int64_t piece_max)
{
    reshard_shards *shards = NULL;
    int64_t total = 0, added = 0;
    reshard_status status = reshard_layout_shards_head(layout, rank, piece_max, &total, &shards);
    for (int64_t i = 0; status == RESHARD_OK && i < shards->count; i++) {
        const reshard_shard *shard = &shards->items[i];
        if (shard->partial)
            p->partial = reshard_reduction_name(shard->reduction);
        for (int64_t k = 0; k < shard->piece_count; k++, added++) {
            if (added < piece_max)
                add_box(page, &p->last, rank, &shard->pieces[k].box);
        }
    }
    if (total > piece_max || added > piece_max)
        p->pieces_cut = 1;
    reshard_shards_destroy(shards);
    return status;
}

reshard_status cli_page_layout(cli_page *page, const char *key, const reshard_layout *layout)
{
    picture p = {.partial = NULL};
    int64_t ranks = cli_layout_info(layout).rank_count, room = find_room(page);
    int64_t piece_max = ranks > 0 && room / ranks > 1 ? room / ranks : 1;
    int64_t before = page->pieces_left;
    reshard_status status = RESHARD_OK;
    int32_t i = 0;
    cli_json_begin_object(&page->json, key);
    cli_json_integers(&page->json, "shape", cli_layout_info(layout).ndim,
                      cli_layout_info(layout).shape);
    cli_json_integer(&page->json, "ranks", ranks);
    cli_json_begin_list(&page->json, "pieces");
    for (; status == RESHARD_OK && i < ranks && before - page->pieces_left + 1 < room; i++)
        status = add_rank(page, &p, layout, reshard_layout_rank_at(layout, i), piece_max);
    write_end(page, &p.last, i, p.pieces_cut);
    if (p.partial != NULL)
        cli_json_text(&page->json, "partial", p.partial);
    cli_json_end_object(&page->json);
    return status;
}

/* ---- as stored ------------------------------------------------------------------------------- */

reshard_status cli_page_stored(cli_page *page, const char *key,
                               const reshard_checkpoint *checkpoint, int64_t tensor)
{
    reshard_stored_tensor stored = {.size = sizeof stored};
    reshard_status status = reshard_checkpoint_tensor(checkpoint, tensor, &stored);
    if (status != RESHARD_OK)
        return status;
    entry last = {.count = 0};
    int64_t total = stored.piece_count + stored.copy_count, room = find_room(page);
    int64_t shown = total < room ? total : room, bytes = (int64_t)stored.bytes;
    cli_json_begin_object(&page->json, key);
    cli_json_integers(&page->json, "shape", stored.opaque ? 1 : stored.ndim,
                      stored.opaque ? &bytes : stored.shape);
    cli_json_integer(&page->json, "ranks", total);
    cli_json_begin_list(&page->json, "pieces");
    for (int64_t i = 0; status == RESHARD_OK && i < shown; i++) {
        reshard_stored_piece piece = {.size = sizeof piece};
        status = reshard_checkpoint_piece(checkpoint, tensor, i, &piece);
        if (status == RESHARD_OK)
            add_box(page, &last, piece.file, &piece.box);
    }
    write_end(page, &last, total, shown < total);
    cli_json_end_object(&page->json);
    return status;
}
