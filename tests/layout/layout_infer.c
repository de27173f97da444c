/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_infer.c - specs worked out from shards: they must give back the same shards, and be chunk
 * specs exactly when the shards are chunks by every offset and size.
 */
#include "layout/layout.h"
#include "tests/support/compare.h"
#include "tests/support/harness.h"
#include "tests/support/ran.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- random tilings -------------------------------------------------------------------------- */

static bool infer_again(const reshard_layout *layout, reshard_layout **out_inferred, words *said)
{
    reshard_shards *shards = NULL;
    reshard_spec *spec = NULL;
    int32_t ndim = layout->ndim;
    const int64_t *shape = layout->shape;
    if (reshard_layout_shards(layout, RESHARD_ALL_RANKS, &shards) != RESHARD_OK)
        return words_say(said, "all shards: %s", reshard_error_text());
    bool right =
        reshard_spec_infer(NULL, ndim, shape, shards->count, shards->items, &spec) == RESHARD_OK &&
        reshard_layout_create(NULL, spec, ndim, shape, out_inferred) == RESHARD_OK;
    if (!right)
        (void)words_say(said, "infer: %s", reshard_error_text());
    reshard_spec_release(spec);
    reshard_shards_destroy(shards);
    return right;
}

static bool check_inferred(const harness_case *given, words *said)
{
    reshard_layout *layout = NULL, *inferred = NULL;
    oracle_layout *suits = oracle_layout_create(&given->specs[0], given->ndim, given->shape, NULL);
    bool right = true;
    if (suits != NULL) {
        right = compare_create(&given->specs[0], false, given->ndim, given->shape, &layout) ==
                    RESHARD_OK &&
                infer_again(layout, &inferred, said) && compare_layouts(layout, inferred, said);
        if (!right)
            (void)words_say(said, "no layout: %s", reshard_error_text());
    }
    oracle_layout_destroy(suits);
    reshard_layout_release(layout);
    reshard_layout_release(inferred);
    return right;
}

/* Shrinking may turn a tiling into copies, of which no spec can be inferred: such cases pass. */
static bool check_tiling(const harness_case *given, words *said)
{
    oracle_layout *layout = oracle_layout_create(&given->specs[0], given->ndim, given->shape, NULL);
    bool tiles = layout != NULL;
    if (tiles) {
        uint8_t *held = oracle_held(layout, layout->rank_max + 1);
        for (int64_t i = 0; i < layout->volume; i++) {
            int owners = 0;
            for (int32_t rank = 0; rank <= layout->rank_max; rank++)
                owners += held[rank * layout->volume + i];
            tiles = tiles && owners == 1;
        }
        free(held);
    }
    oracle_layout_destroy(layout);
    return !tiles || check_inferred(given, said);
}

static void generate_tilings(draw_state *draw, harness_case *made)
{
    made->spec_count = 1;
    generate_shape(draw, 1500, &made->ndim, made->shape);
    generate_spec(draw, GENERATE_TILING | GENERATE_LISTED, made->ndim, made->shape,
                  &made->specs[0]);
}

static void test_infer__gives_back_shards(void **state)
{
    (void)state;
    harness_run("spec inferred from shards", 3000, generate_tilings, check_tiling);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static bool check_chunk(const harness_case *given, words *said)
{
    reshard_layout *layout = NULL, *inferred = NULL;
    reshard_spec *expected = NULL;
    char texts[2][1024] = {"", ""};
    size_t length;
    const oracle_spec *spec = &given->specs[0];
    if (spec->sizes[0] < 2 || spec->cuts[0].kind != RESHARD_SHARD ||
        given->shape[spec->cuts[0].dim] < 2 || oracle_volume(given->ndim, given->shape) == 0)
        return true; /* shrunk to where several specs say the same */
    bool right =
        reshard_spec_chunk(NULL, spec->cuts[0].dim, spec->sizes[0], spec->ranks, &expected) == 0 &&
        reshard_layout_create(NULL, expected, given->ndim, given->shape, &layout) == 0 &&
        infer_again(layout, &inferred, said) && compare_layouts(layout, inferred, said) &&
        reshard_spec_text(expected, texts[0], sizeof texts[0], &length) == 0 &&
        reshard_spec_text(inferred->spec, texts[1], sizeof texts[1], &length) == 0;
    if (!right)
        (void)words_say(said, "chunks: %s", reshard_error_text());
    /* Of several empty chunks nothing tells which comes first. */
    int64_t n = given->shape[spec->cuts[0].dim];
    int64_t full = n > 0 ? (n + spec->sizes[0] - 1) / spec->sizes[0] : 1;
    bool exact = (n + full - 1) / full + 1 >= spec->sizes[0];
    if (right && exact && strcmp(texts[0], texts[1]) != 0)
        right = words_say(said, "inferred \"%s\" from chunks of \"%s\"", texts[1], texts[0]);
    reshard_spec_release(expected);
    reshard_layout_release(layout);
    reshard_layout_release(inferred);
    return right;
}

static void generate_chunks(draw_state *draw, harness_case *made)
{
    oracle_spec *spec = &made->specs[0];
    made->spec_count = 1;
    made->ndim = (int32_t)draw_between(draw, 1, 5);
    for (int32_t d = 0; d < made->ndim; d++)
        made->shape[d] = draw_between(draw, 1, 17);
    spec->kind = RESHARD_SPEC_CUTS;
    spec->axis_count = 1;
    spec->sizes[0] = (int32_t)draw_between(draw, 2, 8);
    for (int32_t i = 0; i < spec->sizes[0]; i++)
        spec->ranks[i] = i;
    draw_shuffle(draw, spec->sizes[0], spec->ranks);
    spec->cut_count = 1;
    spec->cuts[0].kind = RESHARD_SHARD;
    spec->cuts[0].dim = (int32_t)draw_below(draw, made->ndim);
    /* One row may be a chunk of any dim. */
    made->shape[spec->cuts[0].dim] = draw_between(draw, 2, 30);
}

static void test_infer__chunks(void **state)
{
    (void)state;
    harness_run("chunk spec inferred", 1500, generate_chunks, check_chunk);
}

static void check_pytorch_case(const int32_t *ranks, int32_t ndim, const int64_t *shape,
                               int32_t dim)
{
    static harness_case given;
    memset(&given, 0, sizeof given);
    given.spec_count = 1;
    given.ndim = ndim;
    memcpy(given.shape, shape, sizeof shape[0] * (size_t)ndim);
    oracle_spec *spec = &given.specs[0];
    spec->axis_count = 1;
    spec->sizes[0] = 4;
    memcpy(spec->ranks, ranks, 4 * sizeof *ranks);
    spec->cut_count = 1;
    spec->cuts[0].kind = RESHARD_SHARD;
    spec->cuts[0].dim = dim;
    harness_check("chunk spec inferred", &given, check_chunk);
    ran("test_infer_sharding_spec_from_shards_metadata", "%s 4[%d,%d,%d,%d]: S(%d)",
        ran_shape(RESHARD_F32, ndim, shape).text + 4, (int)ranks[0], (int)ranks[1], (int)ranks[2],
        (int)ranks[3], (int)dim);
}

static void test_infer__pytorch_sizes(void **state)
{
    (void)state;
    static const int32_t orders[][4] = {{2, 3, 1, 0}, {3, 1, 0, 2}, {2, 3, 0, 1}, {3, 2, 1, 0}};
    for (int i = 0; i < 4; i++) {
        check_pytorch_case(orders[i], 2, (const int64_t[]){4, 16}, 0);
        check_pytorch_case(orders[i], 2, (const int64_t[]){4, 16}, 1);
        check_pytorch_case(orders[i], 3, (const int64_t[]){5, 15, 16}, 0);
        check_pytorch_case(orders[i], 2, (const int64_t[]){12, 16}, 1);
        check_pytorch_case(orders[i], 3, (const int64_t[]){4, 18, 15}, 2);
        check_pytorch_case(orders[i], 4, (const int64_t[]){7, 12, 16, 37}, 3);
        check_pytorch_case(orders[i], 5, (const int64_t[]){50, 4, 18, 15, 77}, 4);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* What is inferred from the shards of a layout given as text. */
static void check_row(const char *text, int32_t ndim, const int64_t *shape, const char *expected)
{
    reshard_layout *layout = NULL, *inferred = NULL;
    words said = {""};
    char inferred_text[1024];
    size_t length;
    assert_int_equal(reshard_layout_parse(NULL, text, ndim, shape, &layout), RESHARD_OK);
    if (!infer_again(layout, &inferred, &said) || !compare_layouts(layout, inferred, &said))
        fail_msg("%s: %s", text, said.text);
    assert_int_equal(
        reshard_spec_text(inferred->spec, inferred_text, sizeof inferred_text, &length),
        RESHARD_OK);
    assert_string_equal(inferred_text, expected);
    ran("test_infer_sharding_spec_from_shards_metadata", "%s", text);
    reshard_layout_release(layout);
    reshard_layout_release(inferred);
}

static void test_infer__rows(void **state)
{
    (void)state;
    static const int64_t small[] = {2, 4}, matrix[] = {15, 10}, square[] = {6, 6};
    static const int64_t wide[] = {4, 25}, grid[] = {10, 10};
    /* Sorted sizes would make these chunks of dim 1; their offsets do not. */
    check_row("boxes 2x4: 0[0:1,0:3] 1[1:2,0:3] 2[0:2,3:4]", 2, small,
              "boxes 2x4: 0[0:1,0:3] 1[1:2,0:3] 2[0:2,3:4]");
    check_row("boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]", 2, square,
              "boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]");
    check_row("boxes 15x10: 0[0:8,0:10] 1[8:15,0:10]", 2, matrix, "2: S(0)");
    check_row("boxes 15x10: 1[0:8,0:10] 0[8:15,0:10]", 2, matrix, "2[1,0]: S(0)");
    /* What upstream calls enumerable: uneven in another way than chunks, two shards on one rank,
     * and a grid. */
    check_row("boxes 15x5: 0[0:5,0:5] 1[5:15,0:5]", 2, (const int64_t[]){15, 5}, "2: S(0=5,10)");
    check_row("boxes 25: 0[0:16] 0[16:25]", 1, (const int64_t[]){25}, "boxes 25: 0[0:16] 0[16:25]");
    check_row("boxes 10x10: 0[0:5,0:5] 1[5:10,0:5] 2[0:5,5:10] 3[5:10,5:10]", 2, grid,
              "2,2[0,2,1,3]: S(0), S(1)");
    check_row("boxes 15x10: 0[0:5,0:10] 1[5:15,0:10]", 2, matrix, "2: S(0=5,10)");
    check_row("boxes 4x25: 0[0:4,0:16] 1[0:4,16:25]", 2, wide, "2: S(1=16,9)");
    check_row("boxes 10x10: 0[0:5,0:5] 1[0:5,5:10] 2[5:10,0:5] 3[5:10,5:10]", 2, grid,
              "2,2: S(0), S(1)");
    /* The short chunk comes first: not the chunk rule. */
    check_row("boxes 15x10: 0[0:7,0:10] 1[7:15,0:10]", 2, matrix, "2: S(0=7,8)");
}

/* The boxes of a strided and of a flat cut, but in other places of the shards' memory. */
static void test_infer__elsewhere_in_memory(void **state)
{
    (void)state;
    static const struct {
        int32_t ndim;
        int64_t shape[2];
        const char *near; /* what it is but for the memory */
        bool turned;      /* pieces are column-major; else the two of a shard have changed places */
    } rows[] = {{1, {8, 0}, "2: S(0*2)", false}, {2, {4, 3}, "2: S(flat)", true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reshard_layout *layout = NULL, *inferred = NULL;
        reshard_shards *shards = NULL;
        reshard_spec *spec = NULL;
        reshard_piece pieces[2][2];
        reshard_shard given[2];
        char text[256];
        size_t length;
        assert_int_equal(
            reshard_layout_parse(NULL, rows[i].near, rows[i].ndim, rows[i].shape, &layout), 0);
        assert_int_equal(reshard_layout_shards(layout, RESHARD_ALL_RANKS, &shards), RESHARD_OK);
        for (int r = 0; r < 2; r++) {
            given[r] = shards->items[r];
            int64_t count = given[r].piece_count;
            memcpy(pieces[r], given[r].pieces, (size_t)count * sizeof *pieces[r]);
            given[r].pieces = pieces[r];
            if (rows[i].turned) {
                pieces[r][0].strides[0] = 1;
                pieces[r][0].strides[1] = pieces[r][0].box.size[0];
            } else {
                pieces[r][0].at = 2;
                pieces[r][1].at = 0;
            }
        }
        if (reshard_spec_infer(NULL, rows[i].ndim, rows[i].shape, 2, given, &spec) != RESHARD_OK)
            fail_msg("%s: %s", rows[i].near, reshard_error_text());
        assert_int_equal(reshard_spec_text(spec, text, sizeof text, &length), RESHARD_OK);
        if (strcmp(text, rows[i].near) == 0)
            fail_msg("shards that lie otherwise in memory are taken for \"%s\"", text);
        reshard_spec_release(spec);
        reshard_shards_destroy(shards);
        reshard_layout_release(layout);
        reshard_layout_release(inferred);
    }
}

/* The first piece suggests blocks of one element, and those would be too many to list. */
static void test_infer__guess_of_many_pieces(void **state)
{
    (void)state;
    static const char given[] = "boxes 1099511627776: 0[0:1]@0+[2:1099511627776]@1 1[1:2]@0";
    const int64_t shape = 1099511627776;
    reshard_layout *layout = NULL;
    reshard_spec *spec = NULL;
    assert_int_equal(reshard_layout_parse(NULL, given, 1, &shape, &layout), RESHARD_OK);
    if (reshard_layout_infer(layout, &spec) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    assert_ptr_equal(spec, layout->spec);
    reshard_spec_release(spec);
    reshard_layout_release(layout);
}

static void test_infer__errors(void **state)
{
    (void)state;
    static const int64_t shape[] = {4, 4};
    reshard_layout *layout = NULL;
    reshard_shards *shards = NULL;
    reshard_spec *spec = NULL;
    assert_int_equal(reshard_layout_parse(NULL, "2: S(0)", 2, shape, &layout), RESHARD_OK);
    assert_int_equal(reshard_layout_shards(layout, RESHARD_ALL_RANKS, &shards), RESHARD_OK);
    assert_int_equal(reshard_spec_infer(NULL, 2, shape, 0, NULL, &spec), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_spec_infer(NULL, 2, shape, 1, shards->items, &spec), RESHARD_ERR_GAP);
    assert_int_equal(reshard_spec_infer(NULL, 1, shape, 2, shards->items, &spec),
                     RESHARD_ERR_INVALID);
    assert_int_equal(reshard_spec_infer(NULL, 2, (const int64_t[]){3, 4}, 2, shards->items, &spec),
                     RESHARD_ERR_RANGE);
    reshard_shards_destroy(shards);
    reshard_layout_release(layout);
    layout = NULL;
    assert_int_equal(reshard_layout_parse(NULL, "2: R", 2, shape, &layout), RESHARD_OK);
    assert_int_equal(reshard_layout_shards(layout, RESHARD_ALL_RANKS, &shards), RESHARD_OK);
    assert_int_equal(reshard_spec_infer(NULL, 2, shape, 2, shards->items, &spec),
                     RESHARD_ERR_OVERLAP);
    assert_null(spec);
    reshard_shards_destroy(shards);
    reshard_layout_release(layout);
}

/* Several empty shards, before, between and after others: each has its owner, and all come back. */
static void test_infer__several_empty(void **state)
{
    (void)state;
    static const struct {
        const char *given, *inferred; /* NULL: boxes, which say as much */
    } rows[] = {{"5: S(0)", "5: S(0)"},
                {"6[3,0,1,2,5,4]: S(1)", "6[3,0..2,4,5]: S(1)"}, /* of equal ones, by rank */
                {"4: S(0=2,0,0,1)", NULL},
                {"5: S(0=0,0,3,0,0)", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reshard_layout *layout = NULL, *inferred = NULL;
        char text[80];
        size_t length = 0;
        words said = {0};
        const int64_t shape[] = {3, 2};
        assert_int_equal(reshard_layout_parse(NULL, rows[i].given, 2, shape, &layout), 0);
        if (!infer_again(layout, &inferred, &said))
            fail_msg("%s: %s", rows[i].given, reshard_error_text());
        assert_true(compare_layouts(layout, inferred, &said));
        assert_int_equal(reshard_spec_text(inferred->spec, text, sizeof text, &length), 0);
        if (rows[i].inferred != NULL)
            assert_string_equal(text, rows[i].inferred);
        reshard_layout_release(layout);
        reshard_layout_release(inferred);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_infer__guess_of_many_pieces),
        cmocka_unit_test(test_infer__rows),
        cmocka_unit_test(test_infer__pytorch_sizes),
        cmocka_unit_test(test_infer__chunks),
        cmocka_unit_test(test_infer__elsewhere_in_memory),
        cmocka_unit_test(test_infer__errors),
        cmocka_unit_test(test_infer__gives_back_shards),
        cmocka_unit_test(test_infer__several_empty),
    };
    return cmocka_run_group_tests_name("layout_infer", tests, NULL, NULL);
}
