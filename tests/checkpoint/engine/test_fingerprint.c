/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fingerprint.c - the digest does not see how a tensor is split and sees everything else; the
 * fast arithmetic equals the plain one. That both equal what docs/digest.md says is
 * test_fingerprint.py's to show.
 */
#include "checkpoint/engine/fingerprint_code.h"
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/harness.h"

#include <string.h>

#define BYTES 6000

typedef struct fixture {
    rs_fingerprint_code *code;
    unsigned char bytes[BYTES];
    char whole[RS_FINGERPRINT_TEXT]; /* of all bytes, as u8 */
} fixture;

static void digest_bytes(fixture *given, const unsigned char *bytes, int64_t count, char *out_text)
{
    rs_fingerprint_writer writer;
    rs_fingerprint_begin(&writer, given->code);
    rs_fingerprint_add_run(&writer, 0, bytes, (size_t)count);
    assert_int_equal(
        rs_fingerprint_final(given->code, &writer.sum, RESHARD_U8, 1, &count, out_text),
        RESHARD_OK);
}

static int set_up(void **state)
{
    static fixture made;
    draw_state draw;
    draw_seed(&draw, harness_seed());
    for (int i = 0; i < BYTES; i++)
        made.bytes[i] = (unsigned char)draw_bits(&draw);
    memset(made.bytes + 1000, 0, 1000); /* zeros must count like other bytes */
    assert_int_equal(rs_fingerprint_code_create(NULL, &made.code), RESHARD_OK);
    digest_bytes(&made, made.bytes, BYTES, made.whole);
    *state = &made;
    return 0;
}

static int tear_down(void **state)
{
    fixture *given = *state;
    rs_fingerprint_code_destroy(given->code);
    rs_fingerprint_code_destroy(NULL);
    return 0;
}

/* ---- splits ---------------------------------------------------------------------------------- */

typedef struct run {
    int32_t first, count;
} run;

static int32_t draw_runs(draw_state *draw, run *runs)
{
    int32_t count = 0;
    int64_t longest = draw_chance(draw, 50) ? 20 : 2000;
    for (int32_t at = 0; at < BYTES; count++) {
        int64_t size = draw_between(draw, 1, longest);
        runs[count] = (run){at, (int32_t)(size < BYTES - at ? size : BYTES - at)};
        at += runs[count].count;
    }
    return count;
}

/* Runs in any order, by several writers, give the digest of the whole. */
static void test_fingerprint__any_split(void **state)
{
    fixture *given = *state;
    static run runs[BYTES];
    static int32_t order[BYTES];
    for (int64_t round = 0; round < harness_count(100); round++) {
        draw_state draw;
        draw_seed(&draw, harness_seed() + (uint64_t)round);
        int32_t count = draw_runs(&draw, runs);
        for (int32_t i = 0; i < count; i++)
            order[i] = i;
        if (draw_chance(&draw, 70))
            draw_shuffle(&draw, count, order);
        rs_fingerprint_writer writers[3];
        rs_fingerprint sum = {.bytes = 0};
        for (int i = 0; i < 3; i++)
            rs_fingerprint_begin(&writers[i], given->code);
        for (int32_t i = 0; i < count; i++) {
            run chosen = runs[order[i]];
            rs_fingerprint_add_run(&writers[draw_below(&draw, 3)], (uint64_t)chosen.first,
                                   given->bytes + chosen.first, (size_t)chosen.count);
        }
        for (int i = 0; i < 3; i++)
            rs_fingerprint_merge(&sum, &writers[i].sum);
        char text[RS_FINGERPRINT_TEXT];
        const int64_t shape[] = {BYTES};
        assert_int_equal(rs_fingerprint_final(given->code, &sum, RESHARD_U8, 1, shape, text),
                         RESHARD_OK);
        assert_string_equal(text, given->whole);
    }
}

/* Runs that overlap or leave holes never give a digest, not even of zeros and of the right size. */
static void test_fingerprint__runs_that_do_not_tile(void **state)
{
    fixture *given = *state;
    static run runs[BYTES];
    const int64_t shape[] = {BYTES};
    for (int64_t round = 0; round < harness_count(100); round++) {
        draw_state draw;
        draw_seed(&draw, harness_seed() + (uint64_t)round);
        int32_t count = draw_runs(&draw, runs);
        int32_t victim = (int32_t)draw_below(&draw, count);
        int32_t moved = (int32_t)draw_below(&draw, BYTES - runs[victim].count);
        if (moved == runs[victim].first)
            continue;
        rs_fingerprint_writer writer;
        rs_fingerprint_begin(&writer, given->code);
        for (int32_t i = 0; i < count; i++) {
            int32_t first = i == victim ? moved : runs[i].first;
            rs_fingerprint_add_run(&writer, (uint64_t)first, given->bytes + first,
                                   (size_t)runs[i].count);
        }
        char text[RS_FINGERPRINT_TEXT] = "as before";
        assert_int_equal(rs_fingerprint_final(given->code, &writer.sum, RESHARD_U8, 1, shape, text),
                         RESHARD_ERR_CHECK);
        assert_string_equal(text, "as before");
        assert_non_null(strstr(reshard_error_text(), "6000 bytes, but some of them twice"));
    }
}

static void test_fingerprint__missing_and_doubled(void **state)
{
    fixture *given = *state;
    rs_fingerprint_writer writer;
    char text[RS_FINGERPRINT_TEXT];
    const int64_t shape[] = {BYTES};
    rs_fingerprint_begin(&writer, given->code);
    assert_int_equal(rs_fingerprint_final(given->code, &writer.sum, RESHARD_U8, 1, shape, text),
                     RESHARD_ERR_CHECK);
    rs_fingerprint_add_run(&writer, 0, given->bytes, BYTES);
    rs_fingerprint_add_run(&writer, 1000, given->bytes + 1000, 4);
    assert_int_equal(rs_fingerprint_final(given->code, &writer.sum, RESHARD_U8, 1, shape, text),
                     RESHARD_ERR_CHECK);
    assert_string_equal(reshard_error_text(), "6004 bytes for a tensor of 6000");
}

/* ---- changes --------------------------------------------------------------------------------- */

static void expect_seen(fixture *given, const unsigned char *changed)
{
    char text[RS_FINGERPRINT_TEXT];
    digest_bytes(given, changed, BYTES, text);
    bool same = memcmp(changed, given->bytes, BYTES) == 0;
    assert_int_equal(strcmp(text, given->whole) == 0, same);
}

/* Single bits, swapped elements of each size, moved blocks. */
static void test_fingerprint__sees_changes(void **state)
{
    fixture *given = *state;
    static unsigned char changed[BYTES];
    draw_state draw;
    draw_seed(&draw, harness_seed());
    for (int64_t round = 0; round < harness_count(3000); round++) {
        size_t size = (size_t)1 << draw_below(&draw, 7);
        size_t a = (size_t)draw_below(&draw, BYTES / 64) * 64 + (size_t)draw_below(&draw, 2) * size;
        size_t b = (size_t)draw_below(&draw, BYTES / 64) * 64;
        if (a + size > BYTES || b + size > BYTES || (a < b ? b - a : a - b) < size)
            continue;
        memcpy(changed, given->bytes, BYTES);
        memcpy(changed + a, given->bytes + b, size);
        memcpy(changed + b, given->bytes + a, size);
        expect_seen(given, changed); /* swapped */
        memcpy(changed + a, given->bytes + a, size);
        expect_seen(given, changed); /* doubled over another */
        memcpy(changed, given->bytes, BYTES);
        changed[a] ^= (unsigned char)(1u << draw_below(&draw, 8));
        expect_seen(given, changed);
    }
    memmove(changed, given->bytes + 1, BYTES - 1);
    expect_seen(given, changed);
}

static void test_fingerprint__dtype_and_shape(void **state)
{
    static const struct {
        reshard_dtype dtype;
        int32_t ndim;
        int64_t shape[4];
    } rows[] = {{RESHARD_F32, 1, {6}},       {RESHARD_I32, 1, {6}},       {RESHARD_F32, 2, {6, 1}},
                {RESHARD_F32, 2, {1, 6}},    {RESHARD_F32, 2, {2, 3}},    {RESHARD_F32, 2, {3, 2}},
                {RESHARD_U8, 1, {24}},       {RESHARD_F64, 1, {3}},       {RESHARD_F4, 1, {48}},
                {RESHARD_F32, 3, {1, 2, 3}}, {RESHARD_F6_E2M3, 2, {8, 4}}};
    enum { ROWS = sizeof rows / sizeof *rows };
    fixture *given = *state;
    char texts[ROWS][RS_FINGERPRINT_TEXT];
    rs_fingerprint_writer writer;
    rs_fingerprint_begin(&writer, given->code);
    rs_fingerprint_add_run(&writer, 0, given->bytes, 24);
    for (size_t i = 0; i < ROWS; i++) {
        assert_int_equal(rs_fingerprint_final(given->code, &writer.sum, rows[i].dtype, rows[i].ndim,
                                              rows[i].shape, texts[i]),
                         RESHARD_OK);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(texts[i], texts[j]);
    }
}

static void test_fingerprint__refused_shapes(void **state)
{
    fixture *given = *state;
    const rs_fingerprint sum = {.bytes = 0};
    char text[RS_FINGERPRINT_TEXT];
    const int64_t negative[] = {2, -1}, large[] = {INT64_MAX, 4}, empty[] = {INT64_MAX, 4, 0};
    assert_int_equal(rs_fingerprint_final(given->code, &sum, RESHARD_U8, 2, negative, text),
                     RESHARD_ERR_INVALID);
    assert_int_equal(rs_fingerprint_final(given->code, &sum, RESHARD_U8, 2, large, text),
                     RESHARD_ERR_RANGE);
    assert_int_equal(rs_fingerprint_final(given->code, &sum, RESHARD_DTYPE_COUNT, 2, large, text),
                     RESHARD_ERR_INVALID);
    assert_int_equal(rs_fingerprint_final(given->code, &sum, RESHARD_U8, 3, empty, text),
                     RESHARD_OK);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* Each length up to where all loops have run, at each alignment; the plain way is the oracle. */
static void test_fingerprint__fast_equals_plain(void **state)
{
    fixture *given = *state;
    rs_fingerprint_code plain = *given->code, narrow = *given->code, wide = *given->code;
    const rs_fingerprint_code *ways[] = {&plain, &narrow, &wide, given->code};
    plain.remainder = rs_remainder_by_tables;
    plain.multiply = rs_multiply_by_bits;
    narrow.blocks_at_once = 1;
    if (wide.blocks_at_once == 4)
        wide.blocks_at_once = 2;
    for (size_t count = 1; count < 700; count++) {
        for (size_t at = 0; at < 16; at += count % 3 + 1) {
            rs_fingerprint_writer writers[4];
            for (int i = 0; i < 4; i++) {
                rs_fingerprint_begin(&writers[i], ways[i]);
                for (uint64_t place = 5; place < (uint64_t)1 << 62; place *= 123457)
                    rs_fingerprint_add_run(&writers[i], place, given->bytes + at, count);
                rs_fingerprint_add_run(&writers[i], 3, given->bytes + at, count);
                assert_memory_equal(&writers[i].sum, &writers[0].sum, sizeof writers[i].sum);
            }
        }
    }
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static const rs_fingerprint_entry entries[] = {
    {"", 0, "0123456789abcdef0123456789abcdef"},     {"a", 1, "0123456789abcdef0123456789abcde0"},
    {"a\0b", 3, "0123456789abcdef0123456789abcde1"}, {"ab", 2, "0123456789abcdef0123456789abcde2"},
    {"\xff", 1, "0123456789abcdef0123456789abcde3"},
};

static void hand_over(void *user, int64_t index, rs_fingerprint_entry *out_entry)
{
    const int *order = user;
    *out_entry = entries[order[index]];
}

static void test_fingerprint__checkpoint(void **state)
{
    fixture *given = *state;
    int sorted[] = {0, 1, 2, 3, 4}, wrong[] = {0, 2, 1, 3, 4}, twice[] = {0, 1, 1, 2, 3};
    char text[RS_FINGERPRINT_TEXT], shorter[RS_FINGERPRINT_TEXT];
    assert_int_equal(rs_fingerprint_checkpoint(given->code, 5, hand_over, sorted, text),
                     RESHARD_OK);
    assert_int_equal(rs_fingerprint_checkpoint(given->code, 4, hand_over, sorted, shorter),
                     RESHARD_OK);
    assert_string_not_equal(text, shorter);
    assert_int_equal(rs_fingerprint_checkpoint(given->code, 5, hand_over, wrong, text),
                     RESHARD_ERR_INVALID);
    assert_int_equal(rs_fingerprint_checkpoint(given->code, 5, hand_over, twice, text),
                     RESHARD_ERR_INVALID);
    assert_int_equal(rs_fingerprint_checkpoint(given->code, 0, hand_over, NULL, text), RESHARD_OK);
}

static reshard_status make_code(reshard_context *context, void *user)
{
    rs_fingerprint_code *code = NULL;
    (void)user;
    reshard_status status = rs_fingerprint_code_create(context, &code);
    rs_fingerprint_code_destroy(code);
    return status;
}

static void test_fingerprint__memory(void **state)
{
    words said = {0};
    (void)state;
    if (!context_fail_each(make_code, NULL, &said))
        fail_msg("%s", said.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fingerprint__any_split),
        cmocka_unit_test(test_fingerprint__runs_that_do_not_tile),
        cmocka_unit_test(test_fingerprint__missing_and_doubled),
        cmocka_unit_test(test_fingerprint__sees_changes),
        cmocka_unit_test(test_fingerprint__dtype_and_shape),
        cmocka_unit_test(test_fingerprint__refused_shapes),
        cmocka_unit_test(test_fingerprint__fast_equals_plain),
        cmocka_unit_test(test_fingerprint__checkpoint),
        cmocka_unit_test(test_fingerprint__memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
