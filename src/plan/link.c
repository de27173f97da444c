/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/link.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/shape.h"
#include "layout/flat.h"

#include <inttypes.h>
#include <string.h>

/* ---- resolving ------------------------------------------------------------------------------- */

static reshard_status take_box(const char *which, const reshard_box *given, rs_link_side *side)
{
    const reshard_layout *layout = side->layout;
    side->ndim = layout->ndim;
    if (given->ndim < 0) {
        memcpy(side->size, layout->shape, sizeof side->size);
        return RESHARD_OK;
    }
    if (given->ndim != layout->ndim)
        return rs_fail(RESHARD_ERR_INVALID, "the %s box has %d dimensions, its tensor has %d",
                       which, given->ndim, layout->ndim);
    for (int32_t d = 0; d < given->ndim; d++) {
        int64_t end;
        if (given->offset[d] < 0 || given->size[d] < 0 ||
            !rs_add(given->offset[d], given->size[d], &end) || end > layout->shape[d])
            return rs_fail(RESHARD_ERR_RANGE,
                           "the %s box has %" PRId64 " elements from %" PRId64
                           " on in dimension %d, which has %" PRId64,
                           which, given->size[d], given->offset[d], d, layout->shape[d]);
        side->offset[d] = given->offset[d];
        side->size[d] = given->size[d];
    }
    return RESHARD_OK;
}

/* Gives each dim of a side as many factors, in the side's order, as it takes to multiply to the
 * dim's length. Remaining factors of 1 go to the last dim. */
static reshard_status group_factors(const char *which, rs_link *link, rs_link_side *side)
{
    int32_t next = 0;
    for (int32_t d = 0; d < side->ndim; d++) {
        int64_t product = 1;
        side->first[d] = next;
        while (next < link->ndim && (next == side->first[d] || product != side->size[d])) {
            if (!rs_multiply(product, link->size[side->members[next]], &product))
                break;
            next++;
        }
        if (d == side->ndim - 1) {
            while (next < link->ndim && link->size[side->members[next]] == 1)
                next++;
        }
        int32_t real = 0; /* factors that are not 1 */
        for (int32_t i = side->first[d]; i < next; i++)
            real += link->size[side->members[i]] != 1;
        if (real > RESHARD_NDIM_MAX)
            return rs_fail(RESHARD_ERR_RANGE,
                           "dimension %d of the %s has %d factors: at most %d are possible", d,
                           which, real, RESHARD_NDIM_MAX);
        if (product != side->size[d])
            return rs_fail(RESHARD_ERR_INVALID,
                           "the factors do not multiply to %" PRId64 " in dimension %d of the %s",
                           side->size[d], d, which);
        link->split = link->split || next - side->first[d] != 1;
    }
    side->first[side->ndim] = next;
    while (side->ndim == 0 && next < link->ndim && link->size[side->members[next]] == 1)
        next++;
    if (next != link->ndim)
        return rs_fail(RESHARD_ERR_INVALID, "%d factors are more than the %s has room for",
                       link->ndim, which);
    for (int32_t d = 0; d < side->ndim; d++) {
        int64_t weight = 1;
        for (int32_t i = side->first[d + 1] - 1; i >= side->first[d]; i--) {
            side->dim[side->members[i]] = d;
            side->weight[side->members[i]] = weight;
            weight *= link->size[side->members[i]];
        }
    }
    return RESHARD_OK;
}

static reshard_status take_factors(const reshard_link *given, rs_link *link)
{
    int32_t count = given->factor_count;
    if (count < 0 || count > RESHARD_FACTORS_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "%d factors: at most %d are possible", count,
                       RESHARD_FACTORS_MAX);
    uint32_t seen = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t from = given->order[i];
        if (from < 0 || from >= count || (seen >> from & 1) != 0)
            return rs_fail(RESHARD_ERR_INVALID, "the order of %d factors has %d at place %d", count,
                           from, i);
        if (given->factors[from] < 0)
            return rs_fail(RESHARD_ERR_RANGE, "factor %d is %" PRId64, from, given->factors[from]);
        seen |= (uint32_t)1 << from;
        link->size[i] = given->factors[from];
        link->target.members[i] = i;
        link->source.members[from] = i;
    }
    link->ndim = count;
    return RESHARD_OK;
}

static reshard_status take_dims(rs_link *link)
{
    if (link->source.ndim != link->target.ndim)
        return rs_fail(RESHARD_ERR_INVALID,
                       "the source has %d dimensions, the target %d, and the link no factors",
                       link->source.ndim, link->target.ndim);
    link->ndim = link->target.ndim;
    for (int32_t d = 0; d < link->ndim; d++) {
        if (link->source.size[d] != link->target.size[d])
            return rs_fail(RESHARD_ERR_INVALID,
                           "in dimension %d the source has %" PRId64
                           " elements, the target %" PRId64,
                           d, link->source.size[d], link->target.size[d]);
        link->size[d] = link->target.size[d];
        link->source.members[d] = link->target.members[d] = d;
        link->source.dim[d] = link->target.dim[d] = d;
        link->source.weight[d] = link->target.weight[d] = 1;
        link->source.first[d] = link->target.first[d] = d;
    }
    link->source.first[link->ndim] = link->target.first[link->ndim] = link->ndim;
    return RESHARD_OK;
}

/* ---- strided links --------------------------------------------------------------------------- */

/* Lists the axes along one dim of a side by falling step; those of size 1 come last. Returns the
 * number of the others. */
static int32_t order_axes(const rs_link *link, rs_link_side *side, int32_t dim)
{
    int32_t *members = side->members + side->first[dim], real = 0;
    for (int32_t i = 0; i < link->ndim; i++) {
        if (side->dim[i] != dim || link->size[i] == 1)
            continue;
        int32_t at = real++;
        for (; at > 0 && side->weight[members[at - 1]] < side->weight[i]; at--)
            members[at] = members[at - 1];
        members[at] = i;
    }
    int32_t count = real;
    for (int32_t i = 0; i < link->ndim; i++) {
        if (side->dim[i] == dim && link->size[i] == 1)
            members[count++] = i;
    }
    side->first[dim + 1] = side->first[dim] + count;
    return real;
}

/* Checks that the first `real` axes along a dim are nested, and sets how far they reach. */
static reshard_status nest_axes(const char *which, const rs_link *link, const rs_link_side *side,
                                int32_t dim, int32_t real, int64_t *out_reach)
{
    const int32_t *members = side->members + side->first[dim];
    int64_t inner = 1; /* size * step of the next smaller axis */
    *out_reach = 1;
    for (int32_t i = real - 1; i >= 0; i--) {
        int64_t size = link->size[members[i]], step = side->weight[members[i]], last;
        if (step < inner)
            return rs_fail(RESHARD_ERR_INVALID,
                           "the axes along dimension %d of the %s are not nested: axis %d has a "
                           "step of %" PRId64 ", and needs one of at least %" PRId64,
                           dim, which, members[i], step, inner);
        if (!rs_multiply(size, step, &inner) || !rs_multiply(size - 1, step, &last) ||
            !rs_add(*out_reach, last, out_reach))
            return rs_fail(RESHARD_ERR_RANGE,
                           "axis %d has %" PRId64 " elements with a step of %" PRId64
                           ": too many to count",
                           members[i], size, step);
    }
    return RESHARD_OK;
}

static reshard_status take_axes(const char *which, rs_link *link, rs_link_side *side, bool empty)
{
    side->ndim = side->layout->ndim;
    for (int32_t i = 0; i < link->ndim; i++) {
        if (side->dim[i] < 0 || side->dim[i] >= side->ndim)
            return rs_fail(RESHARD_ERR_RANGE,
                           "axis %d goes along dimension %d of the %s, which has %d", i,
                           side->dim[i], which, side->ndim);
        if (side->weight[i] < 1)
            return rs_fail(RESHARD_ERR_RANGE, "axis %d has a step of %" PRId64 " in the %s", i,
                           side->weight[i], which);
        if (link->size[i] == 1) /* no second element shows the step */
            side->weight[i] = 1;
    }
    for (int32_t d = 0; d < side->ndim; d++) {
        int32_t real = order_axes(link, side, d);
        if (real > RESHARD_NDIM_MAX)
            return rs_fail(RESHARD_ERR_RANGE,
                           "%d axes go along dimension %d of the %s: at most %d are possible", real,
                           d, which, RESHARD_NDIM_MAX);
        int64_t end = 0;
        reshard_status status = RESHARD_OK;
        if (!empty)
            status = nest_axes(which, link, side, d, real, &side->size[d]);
        if (status != RESHARD_OK)
            return status;
        int64_t offset = side->offset[d], length = side->layout->shape[d];
        if (offset < 0 || !rs_add(offset, side->size[d], &end) || end > length)
            return rs_fail(RESHARD_ERR_RANGE,
                           "the link begins at %" PRId64 " in dimension %d of the %s, and reaches "
                           "over %" PRId64 " elements; the dimension has %" PRId64,
                           offset, d, which, side->size[d], length);
        int32_t count = side->first[d + 1] - side->first[d];
        link->split = link->split || count != 1 || side->weight[side->members[side->first[d]]] != 1;
    }
    return RESHARD_OK;
}

static reshard_status take_strided(const reshard_strided_link *given, rs_link *link)
{
    if (given->axis_count < 0 || given->axis_count > RESHARD_FACTORS_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "%d axes: at most %d are possible", given->axis_count,
                       RESHARD_FACTORS_MAX);
    bool empty = false;
    link->ndim = given->axis_count;
    for (int32_t i = 0; i < link->ndim; i++) {
        const reshard_link_axis *axis = &given->axes[i];
        if (axis->size < 0)
            return rs_fail(RESHARD_ERR_RANGE, "axis %d has %" PRId64 " elements", i, axis->size);
        empty = empty || axis->size == 0;
        link->size[i] = axis->size;
        link->source.dim[i] = axis->source_dim;
        link->source.weight[i] = axis->source_step;
        link->target.dim[i] = axis->target_dim;
        link->target.weight[i] = axis->target_step;
    }
    memcpy(link->source.offset, given->source_at, sizeof link->source.offset);
    memcpy(link->target.offset, given->target_at, sizeof link->target.offset);
    reshard_status status = take_axes("source", link, &link->source, empty);
    return status == RESHARD_OK ? take_axes("target", link, &link->target, empty) : status;
}

/* ---- both forms ------------------------------------------------------------------------------ */

static reshard_status take_plain(const reshard_link *given, rs_link *link)
{
    reshard_status status = take_box("source", &given->source_box, &link->source);
    if (status == RESHARD_OK)
        status = take_box("target", &given->target_box, &link->target);
    if (status == RESHARD_OK && given->factor_count == 0)
        return take_dims(link);
    if (status == RESHARD_OK)
        status = take_factors(given, link);
    if (status == RESHARD_OK)
        status = group_factors("source", link, &link->source);
    if (status == RESHARD_OK)
        status = group_factors("target", link, &link->target);
    return status;
}

reshard_status rs_link_resolve(const rs_given_link *given, const reshard_layout *source,
                               const reshard_layout *target, rs_link *out_link)
{
    rs_link link = {.source = {.layout = source}, .target = {.layout = target}};
    reshard_status status = given->strided != NULL ? take_strided(given->strided, &link)
                                                   : take_plain(&given->plain, &link);
    if (status == RESHARD_OK)
        *out_link = link;
    return status;
}

static void digest_box(const reshard_box *box, rs_digest *digest)
{
    rs_digest_u64(digest, (uint64_t)(int64_t)box->ndim);
    rs_digest_i64s(digest, box->offset, rs_max(0, box->ndim));
    rs_digest_i64s(digest, box->size, rs_max(0, box->ndim));
}

static void digest_strided(const reshard_strided_link *given, rs_digest *digest)
{
    rs_digest_u64(digest, UINT64_MAX - 1); /* which no number of dims is */
    rs_digest_i64s(digest, given->source_at, RESHARD_NDIM_MAX);
    rs_digest_i64s(digest, given->target_at, RESHARD_NDIM_MAX);
    rs_digest_u64(digest, (uint64_t)given->axis_count);
    for (int32_t i = 0; i < given->axis_count; i++) {
        const reshard_link_axis *axis = &given->axes[i];
        rs_digest_u64(digest, (uint64_t)axis->size);
        rs_digest_u64(digest, (uint64_t)axis->source_dim << 32 | (uint64_t)axis->target_dim);
        rs_digest_u64(digest, (uint64_t)axis->source_step);
        rs_digest_u64(digest, (uint64_t)axis->target_step);
    }
}

void rs_link_digest(const rs_given_link *given, rs_digest *digest)
{
    const reshard_link *plain = &given->plain;
    if (given->strided != NULL) {
        digest_strided(given->strided, digest);
        return;
    }
    digest_box(&plain->source_box, digest);
    digest_box(&plain->target_box, digest);
    rs_digest_u64(digest, (uint64_t)plain->factor_count);
    for (int32_t f = 0; f < plain->factor_count; f++) {
        rs_digest_u64(digest, (uint64_t)plain->factors[f]);
        rs_digest_u64(digest, (uint64_t)plain->order[f]);
    }
}

/* ---- boxes ----------------------------------------------------------------------------------- */

typedef struct box_listing {
    const rs_link *link;
    const rs_link_side *side;
    int64_t low[RESHARD_NDIM_MAX], high[RESHARD_NDIM_MAX]; /* relative to the link's box */
    rs_link_box box;
    rs_link_box_fn fn;
    void *user;
} box_listing;

int64_t rs_link_before(const rs_link *link, const rs_link_side *side, int32_t dim, int64_t place)
{
    const int32_t *members = side->members + side->first[dim];
    int32_t count = side->first[dim + 1] - side->first[dim];
    int64_t before = 0, rest = rs_max(0, place);
    for (int32_t i = 0; i < count; i++) {
        int64_t size = link->size[members[i]], step = side->weight[members[i]];
        if (size == 1) /* whatever its step is */
            continue;
        int64_t digit = rest / step;
        before *= size;
        if (digit >= size) { /* beyond everything that is left */
            for (before += size; ++i < count;)
                before *= link->size[members[i]];
            return before;
        }
        before += digit;
        rest -= digit * step;
    }
    return before + (rest > 0);
}

/* Goes on from dim to dim. The range of a dim that consists of one link dim with step 1 is taken as
 * it is; any other is split like a flat range. */
static reshard_status list_dim(box_listing *w, int32_t dim)
{
    if (dim == w->side->ndim)
        return w->fn(w->user, &w->box);
    const int32_t *members = w->side->members + w->side->first[dim];
    int32_t count = w->side->first[dim + 1] - w->side->first[dim];
    if (count == 1 && w->side->weight[members[0]] == 1) {
        w->box.start[members[0]] = w->low[dim];
        w->box.size[members[0]] = w->high[dim] - w->low[dim];
        return list_dim(w, dim + 1);
    }
    /* Factors of 1 carry nothing. rs_link_resolve has made sure that no more than RESHARD_NDIM_MAX
     * others are left, which is what fits into a flat block. */
    rs_flat_block block = {.ndim = 0};
    int32_t kept[RESHARD_NDIM_MAX];
    for (int32_t i = 0; i < count; i++) {
        w->box.start[members[i]] = 0;
        w->box.size[members[i]] = 1;
        if (w->link->size[members[i]] != 1 && block.ndim < RESHARD_NDIM_MAX) {
            kept[block.ndim] = members[i];
            block.shape[block.ndim++] = w->link->size[members[i]];
        }
    }
    rs_flat_boxes boxes;
    rs_flat_split(&block, rs_link_before(w->link, w->side, dim, w->low[dim]),
                  rs_link_before(w->link, w->side, dim, w->high[dim]), &boxes);
    reshard_status status = RESHARD_OK;
    for (int32_t b = 0; b < boxes.count && status == RESHARD_OK; b++) {
        for (int32_t i = 0; i < block.ndim; i++) {
            w->box.start[kept[i]] = boxes.items[b].start[i];
            w->box.size[kept[i]] = boxes.items[b].size[i];
        }
        status = list_dim(w, dim + 1);
    }
    return status;
}

reshard_status rs_link_boxes(const rs_link *link, const rs_link_side *side, const int64_t *start,
                             const int64_t *size, rs_link_box_fn fn, void *user)
{
    box_listing w = {.link = link, .side = side, .fn = fn, .user = user};
    for (int32_t d = 0; d < side->ndim; d++) {
        w.low[d] = rs_max(0, start[d] - side->offset[d]);
        w.high[d] = rs_min(side->size[d], start[d] + size[d] - side->offset[d]);
        if (w.low[d] >= w.high[d])
            return RESHARD_OK;
    }
    for (int32_t i = 0; i < link->ndim && side->ndim == 0; i++)
        w.box.size[i] = 1;
    return list_dim(&w, 0);
}

void rs_link_bound(const rs_link *link, const rs_link_side *side, const rs_link_box *box,
                   int64_t *out_start, int64_t *out_size)
{
    for (int32_t d = 0; d < side->ndim; d++) {
        out_start[d] = side->offset[d];
        out_size[d] = 1;
    }
    for (int32_t i = 0; i < link->ndim && side->ndim != 0; i++) {
        out_start[side->dim[i]] += box->start[i] * side->weight[i];
        out_size[side->dim[i]] += (box->size[i] - 1) * side->weight[i];
    }
}

void rs_link_point(const rs_link *link, const rs_link_side *side, const int64_t *at,
                   int64_t *out_point)
{
    for (int32_t d = 0; d < side->ndim; d++)
        out_point[d] = side->offset[d];
    for (int32_t i = 0; i < link->ndim && side->ndim != 0; i++)
        out_point[side->dim[i]] += at[i] * side->weight[i];
}

void rs_link_strides(const rs_link *link, const rs_link_side *side, const int64_t *strides,
                     int64_t *out_strides)
{
    for (int32_t i = 0; i < link->ndim; i++)
        out_strides[i] = side->ndim != 0 ? strides[side->dim[i]] * side->weight[i] : 0;
}
