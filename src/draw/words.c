/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words.c - writes the labels of ranks, and the lines below a picture.
 *
 * Ranks are written as in the mesh of a spec: 0, 2..5, 0..6/2.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/sort.h"
#include "draw/picture.h"
#include "layout/layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The most holders and contributions of a region that are listed, and the most ranks that are asked
 * whether they hold anything. */
enum { HOLDERS_MAX = 1 << 18, CONTRIBUTIONS_MAX = 6, RANKS_ASKED_MAX = 1 << 20, NOTE_TEXT = 512 };
enum { LABEL_BYTES = RS_LABEL_TEXT * (CONTRIBUTIONS_MAX + 1) };

/* How many ranks from `first` on are evenly spaced. */
static int64_t run_length(const int32_t *ranks, int64_t first, int64_t count)
{
    int64_t end = first + 1;
    while (end < count &&
           (int64_t)ranks[end] - ranks[end - 1] == (int64_t)ranks[first + 1] - ranks[first])
        end++;
    return end - first;
}

void rs_text_add_ranks(rs_text *text, const int32_t *ranks, int64_t count)
{
    size_t begin = text->length;
    for (int64_t i = 0; i < count;) {
        const char *comma = i == 0 ? "" : ",";
        int64_t run = run_length(ranks, i, count);
        if (i > 0 && text->length - begin > RS_LABEL_TEXT - 40) {
            rs_text_add(text, " and %" PRId64 " more", count - i);
            return;
        }
        if (run < 3) {
            rs_text_add(text, "%s%" PRId32, comma, ranks[i]);
            run = 1;
        } else {
            int32_t step = ranks[i + 1] - ranks[i];
            rs_text_add(text, "%s%" PRId32 "..%" PRId32, comma, ranks[i], ranks[i + run - 1]);
            if (step != 1)
                rs_text_add(text, "/%" PRId32, step);
        }
        i += run;
    }
}

/* ---- holders --------------------------------------------------------------------------------- */

/* Sorts ranks and drops repeats. Returns how many are left. */
static int64_t sort_ranks(int32_t *ranks, int64_t count)
{
    int64_t kept = 0;
    rs_sort(ranks, (size_t)count, sizeof *ranks, rs_compare_i32);
    for (int64_t i = 0; i < count; i++) {
        if (kept == 0 || ranks[kept - 1] != ranks[i])
            ranks[kept++] = ranks[i];
    }
    return kept;
}

static int32_t contributor_count(const rs_region *region)
{
    return region->layout->partial ? region->layout->contributor_count : 1;
}

/* Lists the holders of contributions first .. end - 1, with all copies. */
static int64_t list_holders(const rs_region *region, int32_t first, int32_t end, int32_t *ranks)
{
    int64_t copies = rs_region_copy_count(region), count = 0;
    for (int32_t c = first; c < end; c++) {
        for (int64_t i = 0; i < copies; i++) {
            rs_holder holder;
            rs_region_holder(region, c, i, &holder);
            ranks[count++] = holder.rank;
        }
    }
    return sort_ranks(ranks, count);
}

static void add_holders(rs_text *text, const rs_region *region, int32_t *ranks, int32_t *out_least)
{
    const reshard_layout *layout = region->layout;
    int32_t contributors = contributor_count(region);
    int64_t count = list_holders(region, 0, contributors, ranks);
    *out_least = ranks[0];
    if (layout->partial)
        rs_text_add(text, "%s(", reshard_reduction_name(layout->reduction));
    if (contributors == 1 || rs_region_copy_count(region) == 1) {
        rs_text_add_ranks(text, ranks, count);
    } else {
        for (int32_t c = 0; c < contributors && c < CONTRIBUTIONS_MAX; c++) {
            rs_text_add(text, "%s", c == 0 ? "" : "; ");
            rs_text_add_ranks(text, ranks, list_holders(region, c, c + 1, ranks));
        }
        if (contributors > CONTRIBUTIONS_MAX)
            rs_text_add(text, "; and %" PRId32 " more", contributors - CONTRIBUTIONS_MAX);
    }
    if (layout->partial)
        rs_text_add(text, ")");
}

reshard_status rs_region_label(const rs_region *region, rs_arena *arena, const char **out_label,
                               int32_t *out_least)
{
    char label[LABEL_BYTES];
    rs_text text;
    rs_text_init(&text, label, sizeof label);
    int64_t copies = rs_region_copy_count(region);
    int32_t contributors = contributor_count(region);
    rs_holder first;
    if (copies > HOLDERS_MAX / contributors) {
        rs_region_holder(region, 0, 0, &first);
        *out_least = first.rank;
        rs_text_add(&text, "%" PRId32 " and others, %" PRId64 " in all", first.rank,
                    copies * contributors);
    } else {
        size_t bytes = (size_t)copies * (size_t)contributors * sizeof(int32_t);
        int32_t *ranks = rs_allocate(arena->context, bytes);
        if (ranks == NULL)
            return rs_allocation_status();
        add_holders(&text, region, ranks, out_least);
        rs_release(arena->context, ranks);
    }
    size_t length = text.length < sizeof label ? text.length : sizeof label - 1;
    *out_label = rs_arena_copy(arena, label, length + 1, 1);
    return *out_label != NULL ? RESHARD_OK : rs_allocation_status();
}

/* ---- letters --------------------------------------------------------------------------------- */

void rs_picture_choose_keys(rs_picture *picture, int32_t longest)
{
    int32_t next = 0;
    for (int32_t i = 0; i < picture->side_count; i++) {
        rs_side *side = &picture->sides[i], *other = &picture->sides[0];
        for (int32_t s = 0; s < side->set_count; s++) {
            rs_rank_set *set = &side->sets[s];
            set->key = -1;
            if (strlen(set->label) <= (size_t)longest)
                continue;
            for (int32_t o = 0; i == 1 && o < other->set_count; o++) {
                if (strcmp(other->sets[o].label, set->label) == 0)
                    set->key = other->sets[o].key;
            }
            if (set->key < 0)
                set->key = next++;
        }
    }
}

const char *rs_rank_set_shown(const rs_rank_set *set, char buffer[RS_KEY_TEXT])
{
    char *letter = buffer + RS_KEY_TEXT - 1;
    if (set->key < 0)
        return set->label;
    *letter = '\0';
    for (int32_t rest = set->key; rest > 0 || *letter == '\0'; rest /= 26)
        *--letter = (char)('a' + rest % 26);
    return letter;
}

/* Letters were given out in this order, so a set that does not have the next letter reuses an
 * earlier one or has none. */
static reshard_status note_keys(const rs_picture *picture, rs_note_fn fn, void *user)
{
    int32_t next = 0;
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < picture->side_count; i++) {
        for (int32_t s = 0; s < picture->sides[i].set_count && status == RESHARD_OK; s++) {
            const rs_rank_set *set = &picture->sides[i].sets[s];
            char line[LABEL_BYTES + 16], key[RS_KEY_TEXT];
            if (set->key != next)
                continue;
            next++;
            snprintf(line, sizeof line, "%s = %s", rs_rank_set_shown(set, key), set->label);
            status = fn(user, line);
        }
    }
    return status;
}

/* ---- notes ----------------------------------------------------------------------------------- */

static reshard_status note_axes(const rs_picture *picture, rs_note_fn fn, void *user)
{
    static const char *const names[] = {"one picture for each part of dim", "rows are dim",
                                        "columns are dim"};
    char line[NOTE_TEXT];
    rs_text text;
    rs_text_init(&text, line, sizeof line);
    for (int axis = RS_PICTURE_AXES - 1; axis >= 0; axis--) {
        if (picture->axes[axis].dim >= 0)
            rs_text_add(&text, "%s%s %" PRId32, text.length == 0 ? "" : ", ", names[axis],
                        picture->axes[axis].dim);
    }
    for (int32_t d = 0; d < picture->ndim; d++) {
        bool drawn = false;
        for (int axis = 0; axis < RS_PICTURE_AXES; axis++)
            drawn = drawn || picture->axes[axis].dim == d;
        const char *comma = text.length == 0 ? "" : ", ";
        if (picture->sliced[d] >= 0)
            rs_text_add(&text, "%sdim %" PRId32 " at index %" PRId64, comma, d, picture->sliced[d]);
        else if (!drawn)
            rs_text_add(&text, "%sdim %" PRId32 " is not cut", comma, d);
    }
    return fn(user, line);
}

static reshard_status note_gaps(const rs_picture *picture, rs_note_fn fn, void *user)
{
    static const char *const names[] = {"parts", "rows", "columns"};
    char line[NOTE_TEXT];
    reshard_status status = RESHARD_OK;
    for (int i = RS_PICTURE_AXES - 1; i >= 0 && status == RESHARD_OK; i--) {
        const rs_picture_axis *axis = &picture->axes[i];
        rs_text text;
        rs_text_init(&text, line, sizeof line);
        if (axis->gap < 0)
            continue;
        rs_text_add(&text, "left out: %s %" PRId64 ":%" PRId64, names[i], axis->edges[axis->gap],
                    axis->edges[axis->gap + 1]);
        if (axis->gap_parts != 0)
            rs_text_add(&text, ", cut into %" PRId64, axis->gap_parts);
        status = fn(user, line);
    }
    return status;
}

/* Notes the ranks of a layout that hold nothing. */
static reshard_status note_idle(const rs_side *side, const char *prefix, rs_note_fn fn, void *user)
{
    const reshard_layout *layout = side->layout;
    int32_t count = layout->rank_count, idle = 0;
    char line[NOTE_TEXT];
    rs_text text;
    if (count > RANKS_ASKED_MAX)
        return RESHARD_OK;
    int32_t *ranks = rs_allocate_array(layout->context, (size_t)count, sizeof *ranks);
    if (ranks == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < count; i++) {
        int32_t rank = reshard_layout_rank_at(layout, i);
        if (rs_layout_shard_volume(layout, rank) == 0)
            ranks[idle++] = rank;
    }
    rs_text_init(&text, line, sizeof line);
    rs_text_add(&text, "%sempty: rank%s ", prefix, idle == 1 ? "" : "s");
    rs_text_add_ranks(&text, ranks, idle);
    rs_release(layout->context, ranks);
    return idle != 0 ? fn(user, line) : RESHARD_OK;
}

reshard_status rs_picture_visit_notes(const rs_picture *picture, rs_note_fn fn, void *user)
{
    static const char *const prefixes[RS_SIDES][RS_SIDES] = {{"", ""}, {"source, ", "target, "}};
    reshard_status status = RESHARD_OK;
    bool sliced = false;
    for (int32_t d = 0; d < picture->ndim; d++)
        sliced = sliced || picture->sliced[d] >= 0;
    if (picture->is_empty)
        status = fn(user, "The tensor has no elements.");
    else
        status = note_keys(picture, fn, user);
    if (status == RESHARD_OK && !picture->is_empty && (picture->ndim > 2 || sliced))
        status = note_axes(picture, fn, user);
    if (status == RESHARD_OK && !picture->is_empty)
        status = note_gaps(picture, fn, user);
    for (int32_t i = 0; i < picture->side_count && status == RESHARD_OK; i++)
        status = note_idle(&picture->sides[i], prefixes[picture->side_count - 1][i], fn, user);
    return status;
}
