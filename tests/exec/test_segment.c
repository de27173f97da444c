/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_segment.c - moves packed and unpacked in two segments, cut at every byte, against the
 * obvious loop over elements. Random boxes and strides; plain copies and casts on the way.
 */
#include "exec/segment.h"
#include "kernel/values/cast.h"
#include "tests/support/check.h"
#include "tests/support/random.h"

#include <string.h>

enum { DIMS_MAX = 4, BYTES_MAX = 1 << 16, CASES = 150 };

static const reshard_dtype types[][2] = {
    /* in memory, on the wire */
    {RESHARD_U8, RESHARD_U8},   {RESHARD_I16, RESHARD_I16},   {RESHARD_F32, RESHARD_F32},
    {RESHARD_C64, RESHARD_C64}, {RESHARD_F32, RESHARD_BF16},  {RESHARD_F64, RESHARD_F16},
    {RESHARD_F64, RESHARD_F32}, {RESHARD_C128, RESHARD_C128},
};

enum { TYPES = (int)(sizeof types / sizeof *types) };

typedef struct segment_case {
    reshard_move move;
    rs_segment_move ours;
    int64_t size[DIMS_MAX], strides[DIMS_MAX];
    int64_t volume, extent; /* elements of the box, and of the memory it lies in */
    size_t own, wire;       /* bytes of an element */
    bool dense;
} segment_case;

/* Dims in a random order of nesting, some with gaps. */
static void draw_case(draw_state *draw, const reshard_dtype *type, segment_case *c)
{
    memset(c, 0, sizeof *c);
    c->move.ndim = (int32_t)draw_below(draw, DIMS_MAX + 1);
    c->volume = c->extent = 1;
    int32_t order[DIMS_MAX] = {0, 1, 2, 3};
    bool turned = draw_chance(draw, 50), gaps = draw_chance(draw, 50);
    for (int32_t d = 0; d < c->move.ndim; d++)
        c->size[d] = 1 + draw_below(draw, 4);
    for (int32_t d = c->move.ndim - 1; d > 0 && turned; d--) {
        int64_t other = draw_below(draw, d + 1);
        int32_t kept = order[d];
        order[d] = order[other];
        order[other] = kept;
    }
    for (int32_t k = c->move.ndim - 1; k >= 0; k--) {
        int32_t d = order[k];
        c->strides[d] = c->extent;
        c->volume *= c->size[d];
        c->extent *= c->size[d] + (gaps ? draw_below(draw, 2) : 0);
    }
    c->move.size = c->size;
    c->ours = (rs_segment_move){
        .move = &c->move, .strides = c->strides, .dtype = type[0], .wire = type[1]};
    c->own = (size_t)reshard_dtype_bits(type[0]) / 8;
    c->wire = (size_t)reshard_dtype_bits(type[1]) / 8;
}

static int64_t place_of(const segment_case *c, int64_t element)
{
    int64_t at = 0;
    for (int32_t d = c->move.ndim - 1; d >= 0; d--) {
        at += element % c->size[d] * c->strides[d];
        element /= c->size[d];
    }
    return at;
}

static void convert(reshard_dtype from, reshard_dtype to, const char *source, char *target)
{
    if (from == to)
        memcpy(target, source, (size_t)reshard_dtype_bits(to) / 8);
    else
        rs_cast_reference(from, to, source, target);
}

/* The obvious loop, either way. */
static void pack_plainly(const segment_case *c, const char *memory, char *out)
{
    for (int64_t i = 0; i < c->volume; i++)
        convert(c->ours.dtype, c->ours.wire, memory + (size_t)place_of(c, i) * c->own,
                out + (size_t)i * c->wire);
}

static void unpack_plainly(const segment_case *c, const char *in, char *memory)
{
    for (int64_t i = 0; i < c->volume; i++)
        convert(c->ours.wire, c->ours.dtype, in + (size_t)i * c->wire,
                memory + (size_t)place_of(c, i) * c->own);
}

/* Any bytes; where they are cast, numbers that are rounded. */
static void fill(const segment_case *c, draw_state *draw, char *memory)
{
    for (size_t i = 0; i < (size_t)c->extent * c->own; i++)
        memory[i] = (char)draw_below(draw, 256);
    for (int64_t i = 0; i < c->extent && c->own != c->wire; i++) {
        double value = (double)draw_below(draw, 100000) / 7;
        convert(RESHARD_F64, c->ours.dtype, (char *)&value, memory + (size_t)i * c->own);
    }
}

static void check_case(segment_case *c, draw_state *draw)
{
    static char memory[BYTES_MAX], expected[BYTES_MAX], packed[BYTES_MAX], there[BYTES_MAX];
    size_t bytes = (size_t)c->volume * c->wire, room = (size_t)c->extent * c->own;
    assert_true(bytes <= BYTES_MAX && room <= BYTES_MAX);
    fill(c, draw, memory);
    pack_plainly(c, memory, expected);
    for (size_t cut = 0; cut <= bytes; cut++) {
        char carry[16];
        memset(packed, 0x5a, sizeof packed);
        c->ours.memory = memory;
        rs_segment_pack(&c->ours, 0, cut, packed);
        rs_segment_pack(&c->ours, cut, bytes, packed + cut);
        assert_memory_equal(packed, expected, bytes);
        assert_int_equal(packed[bytes], 0x5a);

        static char wanted[BYTES_MAX];
        memset(there, 0x33, room + 1);
        memset(wanted, 0x33, room + 1);
        unpack_plainly(c, expected, wanted);
        c->ours.memory = there;
        rs_segment_unpack(&c->ours, 0, cut, packed, carry);
        rs_segment_unpack(&c->ours, cut, bytes, packed + cut, carry);
        assert_memory_equal(there, wanted, room + 1); /* gaps too are as they were */
    }
    char *first = rs_segment_dense(&c->ours);
    if (first != NULL)
        assert_memory_equal(first, expected, bytes);
    c->dense = first != NULL;
}

static void test_segment__cut_at_every_byte(void **state)
{
    (void)state;
    draw_state draw;
    draw_seed(&draw, 3);
    int dense = 0;
    for (int i = 0; i < CASES; i++) {
        segment_case c;
        draw_case(&draw, types[i % TYPES], &c);
        check_case(&c, &draw);
        dense += c.dense;
    }
    assert_true(dense > 10 && dense < CASES - 10); /* both kinds were there */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segment__cut_at_every_byte),
    };
    return cmocka_run_group_tests_name("segment", tests, NULL, NULL);
}
