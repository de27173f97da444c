/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_callback.c - a user's own kind of spec, told by a function: the grid that PyTorch's tests
 * define, and functions that get it wrong.
 */
#include "spec/spec.h"
#include "tests/support/compare.h"
#include "tests/support/context.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

typedef struct grid {
    int64_t side; /* of a box */
    int64_t grow; /* how much larger than the side boxes really are */
    int skip;     /* this box is left out; -1: none */
    int forgotten;
    reshard_status refuse;
} grid;

static void set_box(const grid *given, const int64_t *corner, reshard_piece *piece,
                    reshard_shard *shard)
{
    memset(piece, 0, sizeof *piece);
    memset(shard, 0, sizeof *shard);
    piece->box.ndim = 2;
    shard->ndim = 2;
    shard->piece_count = 1;
    shard->pieces = piece;
    for (int d = 0; d < 2; d++) {
        piece->box.offset[d] = corner[d];
        piece->box.size[d] = given->side + given->grow;
        shard->shape[d] = piece->box.size[d];
    }
    piece->strides[0] = piece->box.size[1];
    piece->strides[1] = 1;
}

/* Boxes of side x side, in reverse order, over ranks in turn. */
static reshard_status tell_grid(void *user, int32_t ndim, const int64_t *shape,
                                reshard_shard_sink *sink)
{
    const grid *given = user;
    if (ndim != 2 || shape[0] % given->side != 0 || shape[1] % given->side != 0)
        return RESHARD_ERR_INVALID;
    int64_t columns = shape[1] / given->side;
    int64_t count = shape[0] / given->side * columns;
    for (int64_t i = count - 1; i >= 0; i--) {
        reshard_piece piece;
        reshard_shard shard;
        int64_t corner[2] = {i / columns * given->side, i % columns * given->side};
        if (i == given->skip)
            continue;
        set_box(given, corner, &piece, &shard);
        shard.rank = (int32_t)i;
        reshard_status status = reshard_shard_sink_add(sink, &shard);
        if (status != RESHARD_OK)
            return status;
    }
    return given->refuse;
}

static void forget(void *user)
{
    ((grid *)user)->forgotten++;
}

static void test_callback__grid(void **state)
{
    (void)state;
    grid given = {.side = 4, .skip = -1};
    static const int64_t shape[] = {8, 8}, other[] = {4, 12}, odd[] = {8, 9};
    reshard_spec *spec = NULL;
    reshard_layout *layout = NULL, *expected = NULL;
    words said = {""};
    size_t length;
    assert_int_equal(reshard_spec_callback(NULL, 0, tell_grid, &given, forget, &spec), RESHARD_OK);
    assert_int_equal(spec->kind, RESHARD_SPEC_CALLBACK);
    assert_null(spec->mesh);
    assert_int_equal(reshard_spec_text(spec, NULL, 0, &length), RESHARD_ERR_UNSUPPORTED);
    assert_int_equal(reshard_layout_create(NULL, spec, 2, shape, &layout), RESHARD_OK);
    assert_int_equal(reshard_layout_parse(NULL, "2,2: S(0), S(1)", 2, shape, &expected),
                     RESHARD_OK);
    if (!compare_layouts(layout, expected, &said))
        fail_msg("%s", said.text);
    assert_true(reshard_layout_equals(layout, layout));
    reshard_layout_release(layout);
    reshard_layout_release(expected);
    layout = NULL;
    expected = NULL;
    /* The same spec for another shape, and for one that it refuses. */
    assert_int_equal(reshard_layout_create(NULL, spec, 2, other, &layout), RESHARD_OK);
    assert_int_equal(reshard_layout_parse(NULL, "3: S(1)", 2, other, &expected), RESHARD_OK);
    if (!compare_layouts(layout, expected, &said))
        fail_msg("%s", said.text);
    reshard_layout_release(layout);
    reshard_layout_release(expected);
    layout = NULL;
    assert_int_equal(reshard_layout_create(NULL, spec, 2, odd, &layout), RESHARD_ERR_INVALID);
    assert_null(layout);
    assert_int_equal(given.forgotten, 0);
    reshard_spec_release(spec);
    assert_int_equal(given.forgotten, 1);
}

static reshard_status create(grid *given, int cover, const int64_t *shape)
{
    reshard_spec *spec = NULL;
    reshard_layout *layout = NULL;
    assert_int_equal(reshard_spec_callback(NULL, cover, tell_grid, given, forget, &spec),
                     RESHARD_OK);
    reshard_status status = reshard_layout_create(NULL, spec, 2, shape, &layout);
    reshard_spec_release(spec);
    /* A layout keeps its spec. */
    assert_int_equal(given->forgotten, layout != NULL ? 0 : 1);
    reshard_layout_release(layout);
    assert_int_equal(given->forgotten, 1);
    return status;
}

static void test_callback__wrong(void **state)
{
    (void)state;
    static const int64_t shape[] = {4, 4};
    grid hole = {.side = 2, .skip = 1};
    grid large = {.side = 2, .skip = -1, .grow = 1};
    grid small = {.side = 2, .skip = -1, .grow = -1};
    grid fine = {.side = 2, .skip = -1};
    grid none = {.side = 4, .skip = 0};
    grid refused = {.side = 2, .skip = -1, .refuse = RESHARD_ERR_NOT_FOUND};
    assert_int_equal(create(&fine, 0, shape), RESHARD_OK);
    assert_int_equal(create(&hole, 0, shape), RESHARD_ERR_GAP);
    hole.forgotten = 0;
    assert_int_equal(create(&hole, 1, shape), RESHARD_ERR_GAP);
    assert_int_equal(create(&large, 0, shape), RESHARD_ERR_RANGE);
    assert_int_equal(create(&small, 0, shape), RESHARD_ERR_GAP);
    assert_int_equal(create(&none, 0, shape), RESHARD_ERR_INVALID);
    assert_int_equal(create(&refused, 0, shape), RESHARD_ERR_NOT_FOUND);
}

static reshard_status create_once(reshard_context *context, void *user)
{
    static const int64_t shape[] = {8, 8};
    reshard_spec *spec = NULL;
    reshard_layout *layout = NULL;
    reshard_status status = reshard_spec_callback(context, 0, tell_grid, user, NULL, &spec);
    if (status == RESHARD_OK)
        status = reshard_layout_create(context, spec, 2, shape, &layout);
    reshard_layout_release(layout);
    reshard_spec_release(spec);
    return status;
}

static void test_callback__faults(void **state)
{
    (void)state;
    grid given = {.side = 2, .skip = -1};
    words said = {""};
    if (!context_fail_each(create_once, &given, &said))
        fail_msg("%s", said.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_callback__grid),
        cmocka_unit_test(test_callback__wrong),
        cmocka_unit_test(test_callback__faults),
    };
    return cmocka_run_group_tests_name("layout_callback", tests, NULL, NULL);
}
