/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oracle.c - layouts element by element; see oracle.h.
 *
 * Every rule is one function from a place in a list to the number of the piece it belongs to. No
 * start or length of a piece is ever computed, which is how the library does it.
 */
#include "tests/support/oracle.h"

#include "tests/support/oracle_boxes.h"

#include <stdlib.h>
#include <string.h>

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

int64_t oracle_volume(int32_t ndim, const int64_t *shape)
{
    int64_t volume = 1;
    for (int32_t d = 0; d < ndim; d++)
        volume *= shape[d];
    return volume;
}

int32_t oracle_mesh_size(const oracle_spec *spec)
{
    int32_t size = 1;
    for (int32_t i = 0; i < spec->axis_count; i++)
        size *= spec->sizes[i];
    return size;
}

/* ---- the rules: to which piece does a place belong? ------------------------------------------ */

static int64_t chunk_piece(int64_t n, int64_t pieces, int64_t place)
{
    return place / ceil_div(n, pieces);
}

static int64_t balanced_piece(int64_t n, int64_t pieces, int64_t place)
{
    int64_t end = 0;
    for (int64_t piece = 0; piece < pieces; piece++) {
        end += n / pieces + (piece < n % pieces ? 1 : 0);
        if (place < end)
            return piece;
    }
    return -1;
}

static int64_t strided_piece(int64_t n, int64_t pieces, int64_t q, int64_t place)
{
    int64_t chunk_length = ceil_div(n, q);
    int64_t chunk = place / chunk_length;
    int64_t length = smaller(n - chunk * chunk_length, chunk_length);
    return chunk_piece(length, pieces, place - chunk * chunk_length);
}

static int64_t ragged_piece(const oracle_cut *cut, int64_t place)
{
    int64_t end = 0;
    for (int32_t i = 0; i < cut->count; i++) {
        end += cut->values[i];
        if (place < end)
            return i;
    }
    return -1;
}

static int64_t piece_limit(int64_t max, int64_t axis_size)
{
    return max > 0 ? smaller(max, axis_size) : axis_size;
}

/* Which piece a coordinate takes when there are fewer pieces than coordinates. */
static int64_t piece_taken(int64_t coordinate, int64_t pieces, int64_t axis_size)
{
    return coordinate * pieces / axis_size;
}

static bool packed_is_mine(const oracle_cut *cut, int64_t place, int64_t unit, int64_t coordinate,
                           int64_t axis_size)
{
    int64_t begin = 0;
    int32_t part = 0;
    while (place >= begin + cut->values[part])
        begin += cut->values[part++];
    int64_t pieces = piece_limit(cut->max, axis_size);
    pieces = piece_limit(cut->part_max[part], pieces);
    int64_t units = ceil_div(cut->values[part], unit);
    return chunk_piece(units, pieces, (place - begin) / unit) ==
           piece_taken(coordinate, pieces, axis_size);
}

static bool is_mine(const oracle_cut *cut, int64_t n, int64_t place, int64_t coordinate,
                    int64_t axis_size)
{
    int64_t unit = cut->unit > 0 ? cut->unit : 1;
    int64_t pieces = piece_limit(cut->max, axis_size);
    int64_t mine = piece_taken(coordinate, pieces, axis_size);
    int64_t units = ceil_div(n, unit);
    switch (cut->rule) {
    case RESHARD_CHUNK:
        return chunk_piece(units, pieces, place / unit) == mine;
    case RESHARD_BALANCED:
        return balanced_piece(units, pieces, place / unit) == mine;
    case RESHARD_PACKED:
        return packed_is_mine(cut, place, unit, coordinate, axis_size);
    case RESHARD_STRIDED:
        return strided_piece(units, pieces, cut->factor, place / unit) == mine;
    case RESHARD_RAGGED:
        return ragged_piece(cut, place) == mine;
    case RESHARD_CYCLIC:
        return place / cut->factor % pieces == mine;
    }
    return false;
}

static const char *why_not_cut(const oracle_cut *cut, int64_t n, int64_t axis_size)
{
    int64_t unit = cut->unit > 0 ? cut->unit : 1;
    int64_t sum = 0;
    if (cut->rule == RESHARD_CYCLIC && cut->factor % unit != 0)
        return "the block is no multiple of the unit";
    if (cut->rule == RESHARD_RAGGED && cut->count != piece_limit(cut->max, axis_size))
        return "not one size for each piece";
    if (cut->rule != RESHARD_RAGGED && cut->rule != RESHARD_PACKED)
        return NULL;
    for (int32_t i = 0; i < cut->count; i++) {
        sum += cut->values[i];
        if (cut->rule == RESHARD_RAGGED && sum % unit != 0 && sum != n)
            return "a size is no multiple of the unit";
    }
    return sum == n ? NULL : "sizes or parts do not add up";
}

/* ---- one position of a mesh ------------------------------------------------------------------ */

/* What a rank is left with: a list of coordinates for each dim, or after a flat cut one of
 * elements. */
typedef struct holding {
    bool flat;
    int64_t counts[RESHARD_NDIM_MAX];
    int64_t *lists[RESHARD_NDIM_MAX];
    int64_t flat_count;
    int64_t *flat_list;
} holding;

static int64_t *make_list(int64_t count)
{
    int64_t *list = malloc(sizeof *list * (size_t)(count + 1));
    if (list == NULL)
        abort();
    return list;
}

static void holding_init(holding *mine, int32_t ndim, const int64_t *shape)
{
    memset(mine, 0, sizeof *mine);
    for (int32_t d = 0; d < ndim; d++) {
        mine->counts[d] = shape[d];
        mine->lists[d] = make_list(shape[d]);
        for (int64_t i = 0; i < shape[d]; i++)
            mine->lists[d][i] = i;
    }
}

static void holding_free(holding *mine)
{
    for (int32_t d = 0; d < RESHARD_NDIM_MAX; d++)
        free(mine->lists[d]);
    free(mine->flat_list);
}

/* The elements that lie at all combinations of the coordinates, in row-major order. */
static int64_t *list_elements(const holding *mine, int32_t ndim, const int64_t *shape,
                              int64_t *out_count)
{
    int64_t count = oracle_volume(ndim, mine->counts);
    int64_t *elements = make_list(count);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i;
        int64_t element = 0;
        int64_t weight = 1;
        for (int32_t d = ndim - 1; d >= 0; d--) {
            element += mine->lists[d][rest % mine->counts[d]] * weight;
            rest /= mine->counts[d];
            weight *= shape[d];
        }
        elements[i] = element;
    }
    *out_count = count;
    return elements;
}

static const char *keep_mine(const oracle_cut *cut, int64_t coordinate, int64_t axis_size,
                             int64_t *list, int64_t *count)
{
    const char *why = why_not_cut(cut, *count, axis_size);
    int64_t kept = 0;
    if (why != NULL)
        return why;
    for (int64_t place = 0; place < *count; place++) {
        if (is_mine(cut, *count, place, coordinate, axis_size))
            list[kept++] = list[place];
    }
    *count = kept;
    return NULL;
}

static const char *apply_cut(const oracle_cut *cut, int64_t coordinate, int64_t axis_size,
                             int32_t ndim, const int64_t *shape, holding *mine)
{
    if (cut->kind != RESHARD_SHARD)
        return NULL;
    if (cut->dim == RESHARD_DIM_FLAT) {
        if (!mine->flat)
            mine->flat_list = list_elements(mine, ndim, shape, &mine->flat_count);
        mine->flat = true;
        return keep_mine(cut, coordinate, axis_size, mine->flat_list, &mine->flat_count);
    }
    int32_t dim = cut->dim < 0 ? cut->dim + ndim : cut->dim;
    if (dim < 0 || dim >= ndim)
        return "no such dim";
    if (mine->flat)
        return "a dim is cut after the flat order was";
    return keep_mine(cut, coordinate, axis_size, mine->lists[dim], &mine->counts[dim]);
}

static int32_t coordinate_of(const oracle_spec *spec, int32_t position, int32_t axis)
{
    for (int32_t i = spec->axis_count - 1; i > axis; i--)
        position /= spec->sizes[i];
    return position % spec->sizes[axis];
}

/* ---- cuts -> layout -------------------------------------------------------------------------- */

/* Sums and averages mix: one sum, divided afterwards. */
static bool commute(reshard_reduction a, reshard_reduction b)
{
    return a == b || (a == RESHARD_SUM && b == RESHARD_AVG) ||
           (a == RESHARD_AVG && b == RESHARD_SUM);
}

static bool names_a_rank_twice(const oracle_spec *spec)
{
    int32_t size = oracle_mesh_size(spec);
    for (int32_t i = 0; i < size && !spec->default_ranks; i++) {
        for (int32_t k = 0; k < i; k++) {
            if (spec->ranks[k] == spec->ranks[i])
                return true;
        }
    }
    return false;
}

static const char *why_not_spec(const oracle_spec *spec)
{
    const oracle_cut *partial = NULL;
    bool repeated = names_a_rank_twice(spec);
    if (repeated && spec->axis_count > 1)
        return "a rank has several positions of several axes";
    for (int32_t i = 0; i < spec->cut_count; i++) {
        const oracle_cut *cut = &spec->cuts[i];
        if (cut->kind == RESHARD_PARTIAL) {
            if (repeated)
                return "a rank has several contributions";
            if (partial != NULL && !commute(partial->reduction, cut->reduction))
                return "reductions do not commute";
            partial = cut;
        }
        if (cut->kind == RESHARD_AT) {
            for (int32_t j = 0; j < cut->count; j++) {
                if (cut->values[j] < 0 || cut->values[j] >= spec->sizes[cut->axis] ||
                    (j > 0 && cut->values[j] <= cut->values[j - 1]))
                    return "coordinates are wrong";
            }
        }
    }
    return NULL;
}

bool oracle_may_be_refused(const oracle_spec *spec)
{
    bool partial = false, limited = false;
    int32_t shards = 0;
    for (int32_t i = 0; spec->kind == RESHARD_SPEC_CUTS && i < spec->cut_count; i++) {
        const oracle_cut *cut = &spec->cuts[i];
        partial = partial || cut->kind == RESHARD_PARTIAL;
        shards += cut->kind == RESHARD_SHARD;
        for (int32_t j = 0; j < cut->count; j++)
            limited = limited || (cut->kind == RESHARD_SHARD && cut->part_max[j] > 0);
    }
    return partial && limited && shards > 1;
}

/* Whether a rank that is named twice has the whole tensor already, from an earlier position. */
static bool has_it(const oracle_spec *spec, const oracle_layout *layout, int32_t position)
{
    bool cut = false, found = false;
    for (int32_t i = 0; i < spec->cut_count; i++)
        cut = cut || spec->cuts[i].kind == RESHARD_SHARD;
    for (int64_t i = 0; i < layout->shard_count && !spec->default_ranks; i++)
        found = found || layout->shards[i].rank == spec->ranks[position];
    return found && !cut && spec->axis_count == 1;
}

static bool takes_part(const oracle_spec *spec, int32_t position)
{
    for (int32_t i = 0; i < spec->cut_count; i++) {
        const oracle_cut *cut = &spec->cuts[i];
        bool listed = cut->kind != RESHARD_AT;
        for (int32_t j = 0; !listed && j < cut->count; j++)
            listed = cut->values[j] == coordinate_of(spec, position, cut->axis);
        if (!listed)
            return false;
    }
    return true;
}

static void number_contributors(const oracle_spec *spec, int32_t position, oracle_shard *shard)
{
    shard->contributor_count = 1;
    shard->divisor = 1;
    for (int32_t axis = 0; axis < spec->axis_count; axis++) {
        for (int32_t i = 0; i < spec->cut_count; i++) {
            const oracle_cut *cut = &spec->cuts[i];
            if (cut->axis != axis || cut->kind != RESHARD_PARTIAL)
                continue;
            if (!shard->partial || cut->reduction == RESHARD_AVG)
                shard->reduction = cut->reduction;
            if (cut->reduction == RESHARD_AVG)
                shard->divisor *= spec->sizes[axis];
            shard->partial = true;
            shard->contributor =
                shard->contributor * spec->sizes[axis] + coordinate_of(spec, position, axis);
            shard->contributor_count *= spec->sizes[axis];
        }
    }
}

/* An empty shard lies at the end of the dim, except that one of given sizes lies where they say. */
static bool has_given_sizes(const oracle_spec *spec)
{
    bool given = false;
    for (int32_t i = 0; i < spec->cut_count; i++)
        given =
            given || (spec->cuts[i].kind == RESHARD_SHARD && spec->cuts[i].rule == RESHARD_RAGGED);
    return given;
}

static void fill_dim_shard(holding *mine, int32_t ndim, const int64_t *shape, bool given_sizes,
                           oracle_shard *shard)
{
    shard->ndim = ndim;
    shard->offset_known = !given_sizes || oracle_volume(ndim, mine->counts) > 0;
    for (int32_t d = 0; d < ndim; d++) {
        shard->shape[d] = mine->counts[d];
        shard->offset[d] = mine->counts[d] > 0 ? mine->lists[d][0] : shape[d];
    }
    shard->elements = list_elements(mine, ndim, shape, &shard->count);
}

static void fill_flat_shard(holding *mine, int32_t ndim, const int64_t *shape, oracle_shard *shard)
{
    shard->ndim = 1;
    shard->shape[0] = mine->flat_count;
    shard->count = mine->flat_count;
    shard->elements = mine->flat_list;
    mine->flat_list = NULL;
    shard->offset_known = shard->count > 0;
    for (int64_t i = 0; i < shard->count; i++) {
        int64_t rest = shard->elements[i];
        for (int32_t d = ndim - 1; d >= 0; d--) {
            int64_t x = rest % shape[d];
            rest /= shape[d];
            if (i == 0 || x < shard->offset[d])
                shard->offset[d] = x;
        }
    }
}

static const char *hold_position(const oracle_spec *spec, int32_t position, int32_t ndim,
                                 const int64_t *shape, holding *mine)
{
    for (int32_t i = 0; i < spec->cut_count; i++) {
        const oracle_cut *cut = &spec->cuts[i];
        const char *why = apply_cut(cut, coordinate_of(spec, position, cut->axis),
                                    spec->sizes[cut->axis], ndim, shape, mine);
        if (why != NULL)
            return why;
    }
    return NULL;
}

static const char *add_positions(const oracle_spec *spec, oracle_layout *layout)
{
    const char *why = why_not_spec(spec);
    int32_t size = oracle_mesh_size(spec);
    layout->shards = calloc((size_t)size, sizeof *layout->shards);
    if (layout->shards == NULL)
        abort();
    for (int32_t position = 0; why == NULL && position < size; position++) {
        holding mine;
        holding_init(&mine, layout->ndim, layout->shape);
        why = hold_position(spec, position, layout->ndim, layout->shape, &mine);
        if (why == NULL && takes_part(spec, position) && !has_it(spec, layout, position)) {
            oracle_shard *shard = &layout->shards[layout->shard_count++];
            shard->rank = spec->default_ranks ? position : spec->ranks[position];
            number_contributors(spec, position, shard);
            if (mine.flat)
                fill_flat_shard(&mine, layout->ndim, layout->shape, shard);
            else
                fill_dim_shard(&mine, layout->ndim, layout->shape, has_given_sizes(spec), shard);
        }
        holding_free(&mine);
    }
    return why;
}

int64_t oracle_length_left(const oracle_spec *spec, int32_t ndim, const int64_t *shape, int32_t dim)
{
    holding mine;
    holding_init(&mine, ndim, shape);
    int64_t length = -1;
    if (hold_position(spec, 0, ndim, shape, &mine) == NULL) {
        if (dim != RESHARD_DIM_FLAT && !mine.flat)
            length = mine.counts[dim];
        else if (mine.flat)
            length = mine.flat_count;
        else
            length = oracle_volume(ndim, mine.counts);
    }
    holding_free(&mine);
    return length;
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* By rank, keeping the order in which shards of one rank were listed; few enough for the simplest
 * sort. */
static void sort_shards(oracle_layout *layout)
{
    for (int64_t i = 1; i < layout->shard_count; i++) {
        oracle_shard shard = layout->shards[i];
        int64_t place = i;
        for (; place > 0 && layout->shards[place - 1].rank > shard.rank; place--)
            layout->shards[place] = layout->shards[place - 1];
        layout->shards[place] = shard;
    }
    for (int64_t i = 0; i < layout->shard_count; i++) {
        bool again = i > 0 && layout->shards[i - 1].rank == layout->shards[i].rank;
        layout->shards[i].index = again ? layout->shards[i - 1].index + 1 : 0;
    }
    layout->rank_max = layout->shard_count > 0 ? layout->shards[layout->shard_count - 1].rank : -1;
}

oracle_layout *oracle_layout_create(const oracle_spec *spec, int32_t ndim, const int64_t *shape,
                                    const char **out_why)
{
    const char *why;
    oracle_layout *layout = calloc(1, sizeof *layout);
    if (layout == NULL)
        abort();
    layout->ndim = ndim;
    for (int32_t d = 0; d < ndim; d++)
        layout->shape[d] = shape[d];
    layout->volume = oracle_volume(ndim, shape);
    if (spec->kind == RESHARD_SPEC_CUTS)
        why = add_positions(spec, layout);
    else
        why = oracle_add_listed(spec, layout);
    if (why != NULL) {
        if (out_why != NULL)
            *out_why = why;
        oracle_layout_destroy(layout);
        return NULL;
    }
    sort_shards(layout);
    return layout;
}

void oracle_layout_destroy(oracle_layout *layout)
{
    if (layout == NULL)
        return;
    for (int64_t i = 0; i < layout->shard_count; i++)
        free(layout->shards[i].elements);
    free(layout->shards);
    free(layout);
}

uint8_t *oracle_held(const oracle_layout *layout, int32_t rank_count)
{
    uint8_t *held = calloc((size_t)rank_count * (size_t)layout->volume + 1, 1);
    if (held == NULL)
        abort();
    for (int64_t s = 0; s < layout->shard_count; s++) {
        const oracle_shard *shard = &layout->shards[s];
        for (int64_t i = 0; i < shard->count; i++)
            held[shard->rank * layout->volume + shard->elements[i]]++;
    }
    return held;
}
