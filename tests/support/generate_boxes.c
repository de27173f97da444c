/* SPDX-License-Identifier: Apache-2.0 */
/*
 * generate_boxes.c - random tilings: by straight cuts through a box, and by pinwheels, four boxes
 * around a fifth one that no straight cut can separate. Listed shards are made of them, some of
 * several pieces.
 */
#include "tests/support/generate.h"

#include <string.h>

/* Cuts box `index` in two along a dim; true when that was possible. */
static bool cut_straight(draw_state *draw, int32_t index, int32_t *count, reshard_box *boxes)
{
    reshard_box *box = &boxes[index];
    int32_t d = (int32_t)draw_below(draw, box->ndim);
    if (box->size[d] < 2)
        return false;
    reshard_box *other = &boxes[(*count)++];
    int64_t first = draw_between(draw, 1, box->size[d] - 1);
    *other = *box;
    other->offset[d] += first;
    other->size[d] -= first;
    box->size[d] = first;
    return true;
}

static void set_range(reshard_box *box, int32_t d, int64_t offset, int64_t end)
{
    box->offset[d] = offset;
    box->size[d] = end - offset;
}

/* Cuts box `index` in five, of which the first four go around the last. */
static bool cut_pinwheel(draw_state *draw, int32_t index, int32_t *count, reshard_box *boxes)
{
    reshard_box box = boxes[index];
    int32_t a = (int32_t)draw_below(draw, box.ndim);
    int32_t b = (int32_t)draw_below(draw, box.ndim);
    if (a == b || box.size[a] < 3 || box.size[b] < 3)
        return false;
    int64_t a0 = box.offset[a], a3 = a0 + box.size[a];
    int64_t b0 = box.offset[b], b3 = b0 + box.size[b];
    int64_t a1 = draw_between(draw, a0 + 1, a3 - 2), a2 = draw_between(draw, a1 + 1, a3 - 1);
    int64_t b1 = draw_between(draw, b0 + 1, b3 - 2), b2 = draw_between(draw, b1 + 1, b3 - 1);
    int64_t wheel[5][4] = {
        {a0, a1, b0, b2}, {a0, a2, b2, b3}, {a2, a3, b1, b3}, {a1, a3, b0, b1}, {a1, a2, b1, b2}};
    for (int32_t i = 0; i < 5; i++) {
        reshard_box *part = i == 0 ? &boxes[index] : &boxes[(*count)++];
        *part = box;
        set_range(part, a, wheel[i][0], wheel[i][1]);
        set_range(part, b, wheel[i][2], wheel[i][3]);
    }
    return true;
}

int32_t generate_tiling(draw_state *draw, int32_t ndim, const int64_t *shape, int32_t count_max,
                        reshard_box *boxes)
{
    int32_t count = 1;
    memset(&boxes[0], 0, sizeof boxes[0]);
    boxes[0].ndim = ndim;
    for (int32_t d = 0; d < ndim; d++)
        boxes[0].size[d] = shape[d];
    int64_t tries = draw_between(draw, 0, 2 * count_max);
    for (int64_t i = 0; i < tries; i++) {
        int32_t index = (int32_t)draw_below(draw, count);
        if (count + 4 <= count_max && draw_chance(draw, 40))
            (void)cut_pinwheel(draw, index, &count, boxes);
        else if (count + 1 <= count_max)
            (void)cut_straight(draw, index, &count, boxes);
    }
    return count;
}

/* ---- listed shards --------------------------------------------------------------------------- */

static void set_piece(const reshard_box *box, oracle_piece *piece)
{
    memset(piece, 0, sizeof *piece);
    for (int32_t d = 0; d < box->ndim; d++) {
        piece->from[d] = box->offset[d];
        piece->to[d] = box->offset[d] + box->size[d];
    }
}

/* One box as two pieces that change places in memory. */
static void turn_over(draw_state *draw, const reshard_box *box, oracle_listed *listed)
{
    reshard_box halves[2];
    int32_t count = 1;
    halves[0] = *box;
    listed->piece_count = 1;
    set_piece(box, &listed->pieces[0]);
    if (!cut_straight(draw, 0, &count, halves))
        return;
    listed->piece_count = 2;
    for (int32_t i = 0; i < 2; i++) {
        set_piece(&halves[i], &listed->pieces[i]);
        listed->pieces[i].at_count = box->ndim;
        for (int32_t d = 0; d < box->ndim; d++) {
            if (halves[i].size[d] != box->size[d] && i == 0)
                listed->pieces[i].at[d] = box->size[d] - halves[i].size[d];
        }
    }
}

/* Several boxes one after another in a flat buffer, with or without saying where. */
static int32_t take_flat(draw_state *draw, int32_t count, const reshard_box *boxes,
                         oracle_listed *listed)
{
    int32_t order[ORACLE_PIECES_MAX];
    int32_t taken = (int32_t)draw_between(draw, 1, count < ORACLE_PIECES_MAX ? count : 4);
    bool with_at = boxes[0].ndim != 1 && draw_chance(draw, 50);
    int64_t at = 0;
    for (int32_t i = 0; i < taken; i++) {
        order[i] = i;
        set_piece(&boxes[i], &listed->pieces[i]);
    }
    listed->piece_count = taken;
    if (!with_at)
        return taken;
    draw_shuffle(draw, taken, order);
    for (int32_t i = 0; i < taken; i++) {
        oracle_piece *piece = &listed->pieces[order[i]];
        piece->at_count = 1;
        piece->at[0] = at;
        at += oracle_volume(boxes[order[i]].ndim, boxes[order[i]].size);
    }
    return taken;
}

static void shuffle_boxes(draw_state *draw, int32_t count, reshard_box *boxes)
{
    for (int32_t i = count - 1; i > 0; i--) {
        int32_t other = (int32_t)draw_below(draw, i + 1);
        reshard_box box = boxes[i];
        boxes[i] = boxes[other];
        boxes[other] = box;
    }
}

/* A box anywhere, possibly empty. */
static void add_anywhere(draw_state *draw, bool empty, oracle_spec *spec)
{
    oracle_listed *listed = &spec->listed[spec->listed_count++];
    oracle_piece *piece = &listed->pieces[0];
    memset(listed, 0, sizeof *listed);
    listed->rank = (int32_t)draw_below(draw, 8);
    listed->piece_count = 1;
    for (int32_t d = 0; d < spec->ndim; d++) {
        piece->from[d] = draw_between(draw, 0, spec->shape[d]);
        piece->to[d] = draw_between(draw, piece->from[d], spec->shape[d]);
    }
    if (empty)
        piece->to[0] = piece->from[0];
}

void generate_boxes(draw_state *draw, bool cover, int32_t ndim, const int64_t *shape,
                    oracle_spec *spec)
{
    reshard_box boxes[16];
    int32_t count = generate_tiling(draw, ndim, shape, (int32_t)draw_between(draw, 1, 16), boxes);
    int32_t first = draw_chance(draw, 70) ? 0 : (int32_t)draw_between(draw, 0, 6);
    int32_t ranks = (int32_t)draw_between(draw, 1, 8);
    spec->kind = cover ? RESHARD_SPEC_COVER : RESHARD_SPEC_BOXES;
    spec->ndim = ndim;
    spec->listed_count = 0;
    memcpy(spec->shape, shape, sizeof shape[0] * (size_t)ndim);
    shuffle_boxes(draw, count, boxes);
    for (int32_t i = 0; i < count;) {
        oracle_listed *listed = &spec->listed[spec->listed_count++];
        memset(listed, 0, sizeof *listed);
        listed->rank = first + (int32_t)draw_below(draw, ranks);
        /* Empty pieces say too little about the buffer that several of them would make. */
        bool empty = oracle_volume(ndim, shape) == 0;
        if (!empty && draw_chance(draw, 20)) {
            i += take_flat(draw, count - i, boxes + i, listed);
        } else if (!empty && draw_chance(draw, 20)) {
            turn_over(draw, &boxes[i++], listed);
        } else {
            listed->piece_count = 1;
            set_piece(&boxes[i++], &listed->pieces[0]);
        }
    }
    if (draw_chance(draw, 15))
        add_anywhere(draw, true, spec);
    for (int64_t extra = cover ? draw_between(draw, 0, 5) : 0; extra > 0; extra--)
        add_anywhere(draw, false, spec);
}
