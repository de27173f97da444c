/* SPDX-License-Identifier: Apache-2.0 */
#include "elements.h"

#include "base/shape.h"

#include <stdlib.h>
#include <string.h>

static reshard_layout *make_layout(const char *text, int32_t ndim, const int64_t *shape)
{
    reshard_spec *spec = NULL;
    reshard_layout *layout = NULL;
    assert_int_equal(reshard_spec_parse(NULL, text, &spec), RESHARD_OK);
    assert_int_equal(reshard_layout_create(NULL, spec, ndim, shape, &layout), RESHARD_OK);
    reshard_spec_release(spec);
    return layout;
}

void linked_init(linked *made, const char *source, const char *target, int32_t ndim,
                 const int64_t *shape)
{
    rs_given_link whole = {.plain = reshard_link_whole(0, 0)};
    made->source = make_layout(source, ndim, shape);
    made->target = make_layout(target, ndim, shape);
    assert_int_equal(rs_link_resolve(&whole, made->source, made->target, &made->link), RESHARD_OK);
}

void linked_free(linked *made)
{
    reshard_layout_release(made->source);
    reshard_layout_release(made->target);
}

static void add_elements(elements *made, const linked *given, element_list list,
                         const reshard_move *move, const int64_t *start)
{
    int64_t strides[RESHARD_FACTORS_MAX], index[RESHARD_FACTORS_MAX] = {0};
    rs_dense_strides(given->link.ndim, given->link.size, strides);
    int64_t volume = rs_volume(move->ndim, move->size);
    for (int64_t i = 0; i < volume; i++) {
        element e = {list,
                     move->kind,
                     move->source_rank,
                     move->target_rank,
                     move->source_shard,
                     move->target_shard,
                     move->contributor,
                     move->contributor_count,
                     move->reduction,
                     move->divisor,
                     0,
                     move->source_at,
                     move->target_at};
        for (int32_t d = 0; d < move->ndim; d++) {
            e.place += (start[d] + index[d]) * strides[d];
            e.source_at += index[d] * move->source_strides[d];
            e.target_at += index[d] * move->target_strides[d];
        }
        if (made->count == made->capacity) {
            made->capacity = made->capacity * 2 + 64;
            made->items = realloc(made->items, (size_t)made->capacity * sizeof *made->items);
            assert_non_null(made->items);
        }
        made->items[made->count++] = e;
        for (int32_t d = move->ndim - 1; d >= 0 && ++index[d] == move->size[d]; d--)
            index[d] = 0;
    }
}

static void add_list(elements *made, const linked *given, element_list list, rs_family *family,
                     int32_t rank)
{
    reshard_moves moves;
    assert_int_equal(rs_family_finish(family, &moves), RESHARD_OK);
    made->records += moves.count;
    int64_t singles = 0, before = made->count;
    for (int64_t i = 0; i < moves.count; i++) {
        for (int64_t k = 0; k < reshard_move_count(&moves.items[i]); k++) {
            int64_t start[RESHARD_FACTORS_MAX];
            reshard_move single;
            reshard_move_single(&moves.items[i], rank, k, &single, start);
            add_elements(made, given, list, &single, start);
            singles++;
        }
    }
    assert_int_equal(family->single_count, singles);
    assert_int_equal(family->element_count, made->count - before);
    rs_family_release(family);
}

static int compare_elements(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    for (size_t i = 0; i < sizeof(element) / sizeof(int64_t); i++) {
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    }
    return 0;
}

void elements_init(elements *made, const linked *given, moves_fn list, int32_t rank)
{
    rs_arena arena;
    rs_rank_moves moves;
    memset(made, 0, sizeof *made);
    rs_arena_init(&arena, NULL);
    rs_family_init(&moves.receives, NULL, &arena);
    rs_family_init(&moves.sends, NULL, &arena);
    rs_family_init(&moves.keeps, NULL, &arena);
    assert_int_equal(list(given, rank, &moves), RESHARD_OK);
    add_list(made, given, ELEMENT_RECEIVED, &moves.receives, rank);
    add_list(made, given, ELEMENT_SENT, &moves.sends, rank);
    add_list(made, given, ELEMENT_KEPT, &moves.keeps, rank);
    if (made->count != 0)
        qsort(made->items, (size_t)made->count, sizeof *made->items, compare_elements);
    rs_arena_release(&arena);
}

void elements_free(elements *made)
{
    free(made->items);
}

const element *elements_find(const elements *all, element_list list, int64_t place,
                             int64_t contributor)
{
    const element *found = NULL;
    for (int64_t i = 0; i < all->count; i++) {
        const element *e = &all->items[i];
        if (e->list != (int64_t)list || e->place != place || e->contributor != contributor)
            continue;
        assert_null(found);
        found = e;
    }
    return found;
}

reshard_status list_single(const linked *given, int32_t rank, rs_rank_moves *moves)
{
    rs_sender_rule rule;
    rs_sender_rule_init(&rule, &given->link);
    return rs_sender_rank(&rule, rank, moves);
}
