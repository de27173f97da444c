/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listed shards: their text, what is made of it, the constructor, and the check that pieces fill
 * their shard, which is held against a count of every element.
 */
#include "base/shape.h"
#include "spec/spec.h"
#include "spec_case.h"
#include "tests/support/random.h"

#include <inttypes.h>

/* ---- text ------------------------------------------------------------------------------------ */

static void test_boxes__text(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *canonical;
    } rows[] = {
        {"boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]",
         "boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]"},
        {" cover\n6 x 6 :\t0 [ 0 : 2 , 0 : 4 ]1[0:4,4:6]", "cover 6x6: 0[0:2,0:4] 1[0:4,4:6]"},
        {"boxes 5: 3[0:5]", "boxes 5: 3[0:5]"},
        {"boxes scalar: 2147483647[]", "boxes scalar: 2147483647[]"},
        {"boxes scalar: 0[]@0", "boxes scalar: 0[]@0"},
        {"cover scalar: 0[]+[]", "cover scalar: 0[]@0+[]@1"},
        /* Several shards of a rank, in their order. */
        {"boxes 4: 1[0:1] 0[1:2] 1[3:4] 0[2:3]", "boxes 4: 1[0:1] 0[1:2] 1[3:4] 0[2:3]"},
        /* Several pieces: in a line, by a number or without. */
        {"boxes 4x4: 0[0:2,0:4]+[3:4,0:4]", "boxes 4x4: 0[0:2,0:4]@0+[3:4,0:4]@8"},
        {"boxes 4x4: 0[3:4,0:4]@8+[0:2,0:4]@0", "boxes 4x4: 0[3:4,0:4]@8+[0:2,0:4]@0"},
        {"boxes 4x4: 0[0:2,0:4]@0", "boxes 4x4: 0[0:2,0:4]@0"},
        {"boxes 9: 0[0:2]+[4:5]", "boxes 9: 0[0:2]@0+[4:5]@2"},
        /* By coordinates. */
        {"boxes 4x4: 0[0:2,0:4]@0,0", "boxes 4x4: 0[0:2,0:4]"},
        {"boxes 4x4: 0[0:2,0:4]@0,0+[3:4,0:4]@2,0", "boxes 4x4: 0[0:2,0:4]@0,0+[3:4,0:4]@2,0"},
        {"boxes 4x4: 0[0:2,0:1]@0,1+[0:2,3:4]@0,0", "boxes 4x4: 0[0:2,0:1]@0,1+[0:2,3:4]@0,0"},
        {"boxes 9: 0[0:2]@1+[4:5]@0", "boxes 9: 0[0:2]@1+[4:5]@0"},
        /* Empty boxes. */
        {"boxes 4x4: 0[2:2,0:4] 1[0:4,0:4]", "boxes 4x4: 0[2:2,0:4] 1[0:4,0:4]"},
        {"boxes 4x4: 0[2:2,1:1]@0", "boxes 4x4: 0[2:2,1:1]@0"},
        {"boxes 4x4: 0[2:2,1:3]@7", "boxes 4x4: 0[2:2,1:1]@0"},
        {"boxes 4x4: 0[2:2,1:3]@7,9", "boxes 4x4: 0[2:2,1:3]"},
        {"boxes 4x4: 0[4:4,0:4]+[0:1,0:4]", "boxes 4x4: 0[0:1,0:4]@0"},
        {"boxes 4x4: 0[0:1,0:4]@0,0+[4:4,0:4]@9,9", "boxes 4x4: 0[0:1,0:4]"},
        {"boxes 4x4: 0[1:1,2:2]+[4:4,0:4]", "boxes 4x4: 0[1:1,2:2]@0"},
        {"boxes 0x4: 0[0:0,0:4]", "boxes 0x4: 0[0:0,0:4]"},
        {"boxes 4: 0[4:4]@5", "boxes 4: 0[4:4]"},
        /* A pinwheel of five pieces in three dimensions. */
        {"boxes 9x9x1: "
         "0[0:1,0:2,0:1]@0,0,0+[0:2,2:3,0:1]@0,2,0+[2:3,1:3,0:1]@2,1,0+[1:3,0:1,0:1]@1,0,0+[1:2,1:"
         "2,0:1]@1,1,0",
         "boxes 9x9x1: "
         "0[0:1,0:2,0:1]@0,0,0+[0:2,2:3,0:1]@0,2,0+[2:3,1:3,0:1]@2,1,0+[1:3,0:1,0:1]@1,0,0+[1:2,1:"
         "2,0:1]@1,1,0"},
        {"boxes 9223372036854775807: 0[0:1] 1[1:9223372036854775807]",
         "boxes 9223372036854775807: 0[0:1] 1[1:9223372036854775807]"},
        /* Elements may occur in several pieces of a shard; the memory is what is checked here. */
        {"cover 4: 0[0:4]+[0:4]", "cover 4: 0[0:4]@0+[0:4]@4"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        spec_case_expect_canonical(rows[i].text, rows[i].canonical);
}

static void test_boxes__errors(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        reshard_status status;
        const char *words;
    } rows[] = {
        {"boxes", RESHARD_ERR_SYNTAX, "at byte 6: expected a shape"},
        {"boxes: 0[]", RESHARD_ERR_SYNTAX, "at byte 6: expected a shape"},
        {"boxes 4", RESHARD_ERR_SYNTAX, "at byte 8: expected \"x\" or \":\", found the end"},
        {"boxes 4y: 0[0:4]", RESHARD_ERR_SYNTAX, "at byte 8: expected \"x\" or \":\", found \"y\""},
        {"boxes 4:", RESHARD_ERR_INVALID, "at byte 9: no shards are given"},
        {"boxes 4: [0:4]", RESHARD_ERR_SYNTAX, "at byte 10: expected a rank, found \"[\""},
        {"boxes 4: 0", RESHARD_ERR_SYNTAX, "at byte 11: expected \"[\", found the end"},
        {"boxes 4: 0[", RESHARD_ERR_SYNTAX, "at byte 12: expected a number, found the end"},
        {"boxes 4: 0[0", RESHARD_ERR_SYNTAX, "at byte 13: expected \":\", found the end"},
        {"boxes 4: 0[0:4", RESHARD_ERR_SYNTAX,
         "at byte 15: expected \",\" or \"]\", found the end"},
        {"boxes 4: 0[0:4]+", RESHARD_ERR_SYNTAX, "at byte 17: expected \"[\", found the end"},
        {"boxes 4: 0[0:4]@", RESHARD_ERR_SYNTAX, "at byte 17: expected a number, found the end"},
        {"boxes 4: 0[0:4],1[0:4]", RESHARD_ERR_SYNTAX, "at byte 16: expected a rank, found \",\""},
        {"boxes 4: 0[0:4]@0[0:4]", RESHARD_ERR_SYNTAX, "at byte 18: expected a rank, found \"[\""},
        {"boxes 4: -1[0:4]", RESHARD_ERR_SYNTAX, "at byte 10: expected a rank, found \"-\""},
        {"boxes 4: 2147483648[0:4]", RESHARD_ERR_RANGE,
         "at byte 10: rank 2147483648 is beyond 2^31-1"},
        {"boxes 4: 0[3:2]", RESHARD_ERR_INVALID, "at byte 12: 3:2 ends before it begins"},
        {"boxes 4x4: 0[0:4,2:5]", RESHARD_ERR_RANGE, "at byte 18: 2:5 is not within 0:4"},
        {"boxes 4x4: 0[0:4]", RESHARD_ERR_INVALID,
         "at byte 13: a box of 1 dimensions in a tensor of 2"},
        {"boxes 4x4: 0[0:4,0:4,9:99]", RESHARD_ERR_INVALID,
         "a box of 3 dimensions in a tensor of 2"},
        {"boxes 4x4: 0[]", RESHARD_ERR_INVALID, "a box of 0 dimensions in a tensor of 2"},
        {"boxes scalar: 0[0:1]", RESHARD_ERR_INVALID, "a box of 1 dimensions in a tensor of 0"},
        {"boxes 4x4x4: 0[0:1,0:1,0:1]@0,0", RESHARD_ERR_INVALID, "at byte 28: 2 numbers after @"},
        {"boxes scalar: 0[]@0,0", RESHARD_ERR_INVALID, "at byte 18: 2 numbers after @"},
        {"boxes 4x4: 0[0:1,0:1]@0+[1:2,0:1]", RESHARD_ERR_INVALID,
         "at byte 25: the pieces of one shard"},
        {"boxes 4x4: 0[0:1,0:1]@0+[1:2,0:1]@0,1", RESHARD_ERR_INVALID,
         "at byte 25: the pieces of one shard"},
        {"boxes 4x4: 0[0:1,0:1] 1[0:1,0:1]@1", RESHARD_ERR_INVALID,
         "at byte 23: shard of rank 1: no piece fills element (0)"},
        {"boxes 4x4: 0[0:1,0:1]@1,0", RESHARD_ERR_INVALID, "no piece fills element (0,0)"},
        {"boxes 4x4: 0[0:1,0:2]@0+[1:2,0:2]@1", RESHARD_ERR_INVALID,
         "more than one piece fills element (1)"},
        {"boxes 4x4: 0[0:1,0:2]@0+[1:2,0:2]@3", RESHARD_ERR_INVALID, "no piece fills element (2)"},
        {"boxes 4x4: 0[0:2,0:2]@0,0+[1:3,0:2]@1,1", RESHARD_ERR_INVALID,
         "no piece fills element (0,2)"},
        {"boxes 4x4: 0[0:2,0:2]@0,0+[0:2,0:2]@0,0", RESHARD_ERR_INVALID,
         "more than one piece fills element (0,0)"},
        {"boxes 4x4: 0[0:1,0:1]@9223372036854775807", RESHARD_ERR_RANGE, "2^63-1 elements"},
        {"boxes 4x4: 0[0:1,0:1]@9223372036854775807,0", RESHARD_ERR_RANGE, "2^63-1 elements"},
        {"boxes 4x4: 0[0:1,0:1]@4294967296,2147483647", RESHARD_ERR_RANGE, "2^63-1 elements"},
        {"boxes 9223372036854775808: 0[0:1]", RESHARD_ERR_RANGE, "number too large"},
        {"boxes 4294967296x4294967296: 0[0:1,0:1]", RESHARD_ERR_RANGE,
         "at byte 7: the shape has more than"},
        {"boxes 1x1x1x1x1x1x1x1x1: 0[]", RESHARD_ERR_RANGE, "more than 8 dimensions"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        spec_case_expect_error(rows[i].text, rows[i].status, rows[i].words);
}

static void test_boxes__as_written(void **state)
{
    (void)state;
    reshard_spec *spec = spec_case_parse("boxes 6x8: 4[2:4,1:3]+[0:1,4:8]+[5:5,0:8] 2[0:6,8:8] "
                                         "4[3:4,5:8]@1,0+[2:3,5:8]@0,0 4[0:1,0:1]");
    assert_int_equal(spec->kind, RESHARD_SPEC_BOXES);
    assert_null(spec->mesh);
    assert_int_equal(spec->ndim, 2);
    assert_int_equal(spec->shape[1], 8);
    assert_int_equal(spec->shard_count, 4);
    const reshard_shard *flat = &spec->shards[0];
    assert_int_equal(flat->rank, 4);
    assert_int_equal(flat->index, 0);
    assert_int_equal(flat->ndim, 1);
    assert_int_equal(flat->shape[0], 8);
    assert_int_equal(flat->contributor_count, 1);
    assert_int_equal(flat->piece_count, 2);
    assert_int_equal(flat->offset[0], 0);
    assert_int_equal(flat->offset[1], 1);
    assert_int_equal(flat->pieces[0].at, 0);
    assert_int_equal(flat->pieces[0].strides[0], 2);
    assert_int_equal(flat->pieces[0].strides[1], 1);
    assert_int_equal(flat->pieces[1].at, 4);
    assert_int_equal(flat->pieces[1].box.offset[1], 4);
    const reshard_shard *empty = &spec->shards[1];
    assert_int_equal(empty->rank, 2);
    assert_int_equal(empty->index, 0);
    assert_int_equal(empty->ndim, 2);
    assert_int_equal(empty->piece_count, 0);
    assert_int_equal(empty->shape[0], 6);
    assert_int_equal(empty->shape[1], 0);
    assert_int_equal(empty->offset[1], 8);
    const reshard_shard *dense = &spec->shards[2];
    assert_int_equal(dense->index, 1);
    assert_int_equal(dense->ndim, 2);
    assert_int_equal(dense->shape[0], 2);
    assert_int_equal(dense->shape[1], 3);
    assert_int_equal(dense->pieces[0].at, 3);
    assert_int_equal(dense->pieces[0].strides[0], 3);
    assert_int_equal(dense->pieces[1].at, 0);
    assert_int_equal(dense->offset[0], 2);
    assert_int_equal(dense->offset[1], 5);
    assert_int_equal(spec->shards[3].index, 2);
    reshard_spec_release(spec);
    spec = spec_case_parse("cover 6: 0[0:6] 0[0:3]");
    assert_int_equal(spec->kind, RESHARD_SPEC_COVER);
    assert_int_equal(spec->shards[0].index, 0);
    assert_int_equal(spec->shards[1].index, 1);
    reshard_spec_release(spec);
}

/* ---- constructor ----------------------------------------------------------------------------- */

static void test_boxes__constructor(void **state)
{
    (void)state;
    const int64_t shape[] = {4, 6};
    /* Strides of dimensions of one element are of no account. */
    const reshard_piece dense[] = {
        {.box = {2, {0, 1}, {2, 2}}, .at = 0, .strides = {3, 1}},
        {.box = {2, {0, 5}, {2, 1}}, .at = 2, .strides = {3, -77}},
    };
    const reshard_piece line[] = {
        {.box = {2, {2, 0}, {2, 3}}, .at = 1, .strides = {3, 1}},
        {.box = {2, {0, 0}, {1, 1}}, .at = 0, .strides = {0, 0}},
        {.box = {2, {4, 6}, {0, 0}}, .at = -5, .strides = {0, 0}},
    };
    const reshard_shard shards[] = {
        {.rank = 1,
         .index = 77,
         .ndim = 2,
         .shape = {2, 3},
         .partial = 77,
         .piece_count = 2,
         .pieces = dense},
        {.rank = 0, .ndim = 1, .shape = {7}, .contributor = 77, .piece_count = 3, .pieces = line},
        {.rank = 5, .ndim = 2, .shape = {4, 0}},
        {.rank = 6, .ndim = 1, .shape = {0}},
    };
    reshard_spec *spec = NULL;
    assert_int_equal(reshard_spec_boxes(NULL, 1, 2, shape, 4, shards, &spec), RESHARD_OK);
    assert_int_equal(spec->shards[0].index, 0);
    assert_int_equal(spec->shards[0].partial, 0);
    assert_int_equal(spec->shards[0].pieces[1].strides[1], 1);
    assert_int_equal(spec->shards[1].contributor, 0);
    spec_case_expect_text(spec, "cover 4x6: 1[0:2,1:3]@0,0+[0:2,5:6]@0,2 0[2:4,0:3]@1+[0:1,0:1]@0 "
                                "5[0:4,0:0] 6[0:0,0:0]@0");
    assert_int_equal(reshard_spec_boxes(NULL, 0, 2, shape, 4, shards, &spec), RESHARD_OK);
    assert_int_equal(spec->kind, RESHARD_SPEC_BOXES);
    reshard_spec_release(spec);
}

static void expect_shard_error(int32_t ndim, const reshard_shard *shard, reshard_status expected,
                               const char *words)
{
    const int64_t shape[RESHARD_NDIM_MAX] = {4, 6, 2, 2, 2, 2, 2, 2};
    reshard_spec *spec = NULL;
    reshard_status status = reshard_spec_boxes(NULL, 0, ndim, shape, 1, shard, &spec);
    spec_case_expect_failure(words, status, expected, words);
    assert_null(spec);
}

static void test_boxes__wrong_shards(void **state)
{
    (void)state;
    const struct {
        reshard_piece piece;
        int32_t ndim;
        int64_t shape[2];
        reshard_status status;
        const char *words;
    } rows[] = {
        {{.box = {1, {0}, {4}}},
         2,
         {4, 1},
         RESHARD_ERR_INVALID,
         "rank 3: piece 0: a box of 1 dimensions"},
        {{.box = {2, {0, 0}, {4, -1}}},
         2,
         {4, 1},
         RESHARD_ERR_RANGE,
         "dimension 1 has the negative size -1"},
        {{.box = {2, {0, -1}, {4, 1}}},
         2,
         {4, 1},
         RESHARD_ERR_RANGE,
         "dimension 1: 1 elements from -1 on"},
        {{.box = {2, {0, 6}, {4, 1}}},
         2,
         {4, 1},
         RESHARD_ERR_RANGE,
         "1 elements from 6 on are not within 0:6"},
        {{.box = {2, {0, INT64_MAX}, {4, 1}}}, 2, {4, 1}, RESHARD_ERR_RANGE, "are not within 0:6"},
        {{.box = {2, {0, 1}, {4, INT64_MAX}}}, 2, {4, 1}, RESHARD_ERR_RANGE, "are not within 0:6"},
        {{.box = {2, {0, 0}, {4, 2}}, .strides = {1, 4}},
         2,
         {4, 2},
         RESHARD_ERR_UNSUPPORTED,
         "dimension 0 has the stride 1"},
        {{.box = {2, {0, 0}, {4, 2}}, .strides = {3, 1}},
         1,
         {8},
         RESHARD_ERR_UNSUPPORTED,
         "dense in a flat shard"},
        {{.box = {2, {0, 0}, {4, 2}}, .at = -1, .strides = {2, 1}},
         2,
         {4, 2},
         RESHARD_ERR_RANGE,
         "begins at -1"},
        {{.box = {2, {0, 0}, {4, 2}}, .at = 8, .strides = {2, 1}},
         2,
         {4, 2},
         RESHARD_ERR_RANGE,
         "begins at 8"},
        {{.box = {2, {0, 0}, {4, 2}}, .at = 1, .strides = {2, 1}},
         2,
         {4, 2},
         RESHARD_ERR_INVALID,
         "2 elements from 1 on along dimension 1"},
        {{.box = {2, {0, 0}, {4, 2}}, .at = 1, .strides = {2, 1}},
         1,
         {8},
         RESHARD_ERR_INVALID,
         "8 elements from 1 on along dimension 0"},
        {{.box = {2, {0, 0}, {4, 2}}, .strides = {2, 1}},
         2,
         {0, 2},
         RESHARD_ERR_RANGE,
         "a shard of 0 elements"},
        {{.box = {2, {0, 0}, {4, 2}}, .strides = {2, 1}},
         2,
         {5, 2},
         RESHARD_ERR_INVALID,
         "no piece fills element (4,0)"},
        {{.box = {2, {0, 0}, {0, 2}}},
         2,
         {4, 2},
         RESHARD_ERR_INVALID,
         "no piece fills element (0,0)"},
        {{.box = {2, {3, 0}, {0, 2}}},
         2,
         {2, 0},
         RESHARD_ERR_RANGE,
         "empty, but 2 elements from 3 on"},
        {{.box = {2, {0, 0}, {4, 2}}, .strides = {2, 1}},
         2,
         {-4, 2},
         RESHARD_ERR_RANGE,
         "rank 3: dimension 0 has the negative length -4"},
        {{.box = {2, {0, 0}, {4, 2}}, .strides = {2, 1}},
         0,
         {0},
         RESHARD_ERR_INVALID,
         "rank 3: 0 dimensions, of a tensor of 2"},
        {{.box = {2, {0, 0}, {4, 2}}, .strides = {2, 1}},
         9,
         {0},
         RESHARD_ERR_INVALID,
         "9 dimensions, of a tensor of 2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reshard_shard shard = {
            .rank = 3, .ndim = rows[i].ndim, .piece_count = 1, .pieces = &rows[i].piece};
        memcpy(shard.shape, rows[i].shape, sizeof rows[i].shape);
        expect_shard_error(2, &shard, rows[i].status, rows[i].words);
    }
}

static void test_boxes__wrong_lists(void **state)
{
    (void)state;
    const int64_t shape[] = {4, 6};
    reshard_spec *spec = NULL;
    const reshard_shard negative = {.rank = -1, .ndim = 1};
    const reshard_shard absent = {.rank = 3, .ndim = 1, .piece_count = 1};
    const reshard_shard fewer = {.rank = 3, .ndim = 1, .piece_count = -1};
    const reshard_shard scalar = {.rank = 3, .ndim = 1};
    expect_shard_error(2, &negative, RESHARD_ERR_RANGE, "negative rank -1");
    expect_shard_error(2, &absent, RESHARD_ERR_INVALID, "1 pieces at NULL");
    expect_shard_error(2, &fewer, RESHARD_ERR_INVALID, "-1 pieces");
    expect_shard_error(0, &scalar, RESHARD_ERR_INVALID, "a scalar has no empty shards");
    expect_shard_error(9, &scalar, RESHARD_ERR_RANGE, "9 dimensions");
    assert_int_equal(reshard_spec_boxes(NULL, 0, 2, shape, 0, NULL, &spec), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_spec_boxes(NULL, 0, 2, shape, 1, NULL, &spec), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_spec_boxes(NULL, 0, 2, shape, -1, &scalar, &spec),
                     RESHARD_ERR_INVALID);
    assert_int_equal(reshard_spec_boxes(NULL, 0, 2, NULL, 1, &scalar, &spec), RESHARD_ERR_INVALID);
    assert_null(spec);
}

/* ---- the check that pieces fill their shard -------------------------------------------------- */

enum { SIDE_MAX = 4, PIECES_MAX = 8, VOLUME_MAX = SIDE_MAX * SIDE_MAX * SIDE_MAX };

typedef struct filling {
    int32_t ndim;
    int64_t shape[3];
    int32_t piece_count;
    reshard_box boxes[PIECES_MAX]; /* of the shard's memory */
} filling;

/* Cuts the last box at a random place, as often as there is room: what results fills the shard. */
static void draw_filling(draw_state *draw, filling *made)
{
    made->ndim = (int32_t)draw_between(draw, 1, 3);
    made->piece_count = 1;
    made->boxes[0] = (reshard_box){.ndim = made->ndim};
    for (int32_t d = 0; d < made->ndim; d++)
        made->boxes[0].size[d] = made->shape[d] = draw_between(draw, 1, SIDE_MAX);
    for (int64_t left = draw_below(draw, PIECES_MAX); left > 0; left--) {
        reshard_box *box = &made->boxes[draw_below(draw, made->piece_count)];
        int64_t d = draw_below(draw, made->ndim);
        if (box->size[d] < 2)
            continue;
        reshard_box *other = &made->boxes[made->piece_count++];
        int64_t length = draw_between(draw, 1, box->size[d] - 1);
        *other = *box;
        box->size[d] = length;
        other->offset[d] += length;
        other->size[d] -= length;
    }
}

/* Moves or resizes a box a little, or forgets one. */
static void spoil_filling(draw_state *draw, filling *made)
{
    reshard_box *box = &made->boxes[draw_below(draw, made->piece_count)];
    int64_t d = draw_below(draw, made->ndim);
    if (made->piece_count > 1 && draw_chance(draw, 20)) {
        *box = made->boxes[--made->piece_count];
        return;
    }
    box->offset[d] = draw_below(draw, made->shape[d]);
    box->size[d] = draw_between(draw, 1, made->shape[d] - box->offset[d]);
}

/* How many boxes hold each element, row-major over three dimensions. */
static void count_fillings(const filling *made, int *counts)
{
    int64_t sides[3] = {1, 1, 1};
    memcpy(sides, made->shape, (size_t)made->ndim * sizeof *sides);
    memset(counts, 0, VOLUME_MAX * sizeof *counts);
    for (int32_t i = 0; i < made->piece_count; i++) {
        int64_t from[3] = {0, 0, 0};
        int64_t to[3] = {1, 1, 1};
        for (int32_t d = 0; d < made->ndim; d++) {
            from[d] = made->boxes[i].offset[d];
            to[d] = from[d] + made->boxes[i].size[d];
        }
        for (int64_t x = from[0]; x < to[0]; x++) {
            for (int64_t y = from[1]; y < to[1]; y++) {
                for (int64_t z = from[2]; z < to[2]; z++)
                    counts[(x * sides[1] + y) * sides[2] + z]++;
            }
        }
    }
}

/* The words for the first element that is not filled once; "" when all are. */
static void expected_words(const filling *made, const int *counts, char *words, size_t capacity)
{
    int64_t volume = rs_volume(made->ndim, made->shape);
    int64_t element = 0;
    int64_t point[3] = {0, 0, 0};
    words[0] = '\0';
    while (element < volume && counts[element] == 1)
        element++;
    if (element == volume)
        return;
    int64_t rest = element;
    for (int32_t d = made->ndim - 1; d >= 0; d--) {
        point[d] = rest % made->shape[d];
        rest /= made->shape[d];
    }
    int used =
        snprintf(words, capacity, "%s element (%" PRId64,
                 counts[element] > 1 ? "more than one piece fills" : "no piece fills", point[0]);
    for (int32_t d = 1; d < made->ndim; d++)
        used += snprintf(words + used, capacity - (size_t)used, ",%" PRId64, point[d]);
    (void)snprintf(words + used, capacity - (size_t)used, ")");
}

static void check_filling(const filling *made, uint64_t seed)
{
    reshard_piece pieces[PIECES_MAX];
    reshard_shard shard = {.ndim = made->ndim, .piece_count = made->piece_count, .pieces = pieces};
    memcpy(shard.shape, made->shape, sizeof made->shape);
    memset(pieces, 0, sizeof pieces);
    for (int32_t i = 0; i < made->piece_count; i++) {
        int64_t stride = 1;
        pieces[i].box = made->boxes[i];
        for (int32_t d = made->ndim - 1; d >= 0; d--) {
            pieces[i].strides[d] = stride;
            pieces[i].at += made->boxes[i].offset[d] * stride;
            stride *= made->shape[d];
        }
    }
    int counts[VOLUME_MAX];
    char words[128];
    reshard_spec *spec = NULL;
    count_fillings(made, counts);
    expected_words(made, counts, words, sizeof words);
    reshard_status status = reshard_spec_boxes(NULL, 1, made->ndim, made->shape, 1, &shard, &spec);
    reshard_spec_release(spec);
    if (words[0] == '\0' && status != RESHARD_OK)
        fail_msg("seed %" PRIu64 ": %s", seed, reshard_error_text());
    if (words[0] != '\0')
        spec_case_expect_failure("a random filling", status, RESHARD_ERR_INVALID, words);
}

static void test_boxes__filling_against_counts(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        draw_state draw;
        filling made;
        draw_seed(&draw, seed);
        draw_filling(&draw, &made);
        if (draw_chance(&draw, 60))
            spoil_filling(&draw, &made);
        check_filling(&made, seed);
    }
}

/* All eight dimensions cut in two: 256 pieces, 2^8 corners each. */
static void test_boxes__eight_dimensions(void **state)
{
    (void)state;
    int64_t shape[RESHARD_NDIM_MAX];
    static reshard_piece pieces[256];
    for (int32_t d = 0; d < RESHARD_NDIM_MAX; d++)
        shape[d] = 3;
    memset(pieces, 0, sizeof pieces);
    for (int32_t i = 0; i < 256; i++) {
        int64_t stride = 1;
        pieces[i].box.ndim = RESHARD_NDIM_MAX;
        for (int32_t d = RESHARD_NDIM_MAX - 1; d >= 0; d--) {
            bool far = (i >> d & 1) != 0;
            pieces[i].box.offset[d] = far ? 1 : 0;
            pieces[i].box.size[d] = far ? 2 : 1;
            pieces[i].strides[d] = stride;
            pieces[i].at += pieces[i].box.offset[d] * stride;
            stride *= 3;
        }
    }
    reshard_shard shard = {.ndim = 8, .piece_count = 256, .pieces = pieces};
    memcpy(shard.shape, shape, sizeof shape);
    reshard_spec *spec = NULL;
    assert_int_equal(reshard_spec_boxes(NULL, 0, 8, shape, 1, &shard, &spec), RESHARD_OK);
    reshard_spec_release(spec);
    shard.piece_count = 255;
    spec = NULL;
    spec_case_expect_failure("255 of 256", reshard_spec_boxes(NULL, 0, 8, shape, 1, &shard, &spec),
                             RESHARD_ERR_INVALID, "no piece fills element (1,1,1,1,1,1,1,1)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_boxes__text),
        cmocka_unit_test(test_boxes__errors),
        cmocka_unit_test(test_boxes__as_written),
        cmocka_unit_test(test_boxes__constructor),
        cmocka_unit_test(test_boxes__wrong_shards),
        cmocka_unit_test(test_boxes__wrong_lists),
        cmocka_unit_test(test_boxes__filling_against_counts),
        cmocka_unit_test(test_boxes__eight_dimensions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
