/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_map_compose.c - two maps one after the other, as one: the elements of each target are those
 * that the two maps bring one by one. map_property composes random maps with their inverses.
 */
#include "checkpoint/maps/maps.h"
#include "checkpoint/maps/resolve.h"
#include "map_case.h"
#include "tests/support/check.h"
#include "tests/support/harness.h"
#include "tests/support/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOLUME_MAX = 1024 };

static reshard_map *parse(const char *text)
{
    reshard_map *map = NULL;
    if (reshard_map_parse(NULL, text, strlen(text), NULL, &map) != RESHARD_OK)
        fail_msg("%s: %s", text, reshard_error_text());
    return map;
}

static int64_t read_target(const reshard_map_result *result, int64_t index,
                           reshard_map_target *target)
{
    int64_t volume = 1;
    *target = (reshard_map_target){.size = sizeof *target};
    assert_int_equal(reshard_map_result_target(result, index, target), RESHARD_OK);
    for (int32_t d = 0; d < target->ndim; d++)
        volume *= target->shape[d];
    return volume;
}

static void check_elements(const reshard_map_result *first, const reshard_map_tensor *read,
                           const reshard_map_result *second, const reshard_map_tensor *between,
                           const reshard_map_result *both, const char *what)
{
    static int64_t direct[VOLUME_MAX], outer[VOLUME_MAX], inner[VOLUME_MAX];
    int64_t count = second->target_count;
    assert_int_equal(both->target_count, count);
    for (int64_t t = 0; t < count; t++) {
        reshard_map_target target, middle, same;
        int64_t volume = read_target(second, t, &target);
        assert_true(volume <= VOLUME_MAX);
        assert_int_equal(read_target(both, t, &same), volume);
        assert_string_equal(same.name, target.name);
        map_case_elements(both, read, t, volume, direct);
        map_case_elements(second, between, t, volume, outer);
        for (int64_t i = 0; i < volume; i++) {
            int64_t m = outer[i] >> 32;
            map_case_elements(first, read, m, read_target(first, m, &middle), inner);
            if (direct[i] < 0 || direct[i] != inner[outer[i] & UINT32_MAX])
                fail_msg("%s: element %" PRId64 " of %s", what, i, target.name);
        }
    }
}

/* Resolves, composes, and compares; or expects words. */
static void check_pair(const char *a, reshard_map_side a_side, const char *b,
                       reshard_map_side b_side, const char *tensors, const char *refusal)
{
    static map_case given;
    static reshard_map_tensor between[MAP_CASE_TENSORS_MAX];
    reshard_map *maps[2] = {parse(a), parse(b)};
    reshard_map_result *first = NULL, *second = NULL, *both = NULL;
    char what[1024];
    (void)snprintf(what, sizeof what, "%s\n%s\n%s", a, b, tensors);
    map_case_read(&given, tensors);
    if (reshard_map_resolve(maps[0], a_side, given.count, given.tensors, NULL, &first) != 0)
        fail_msg("%s: %s", what, reshard_error_text());
    int64_t count = first->target_count;
    for (int64_t i = 0; i < count; i++) {
        reshard_map_target target;
        (void)read_target(first, i, &target);
        between[i] = (reshard_map_tensor){target.name, target.dtype, target.ndim, target.shape};
    }
    if (reshard_map_resolve(maps[1], b_side, count, between, NULL, &second) != 0)
        fail_msg("%s: %s", what, reshard_error_text());
    reshard_status status = rs_map_compose(first, second, &both);
    if (refusal == NULL && status != RESHARD_OK)
        fail_msg("%s: %s", what, reshard_error_text());
    if (refusal == NULL)
        check_elements(first, given.tensors, second, between, both, what);
    else if (status == RESHARD_OK || strstr(reshard_error_text(), refusal) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", what, reshard_error_text(), refusal);
    reshard_map_result_destroy(both);
    reshard_map_result_destroy(second);
    reshard_map_result_destroy(first);
    reshard_map_release(maps[0]);
    reshard_map_release(maps[1]);
}

#define LEFT RESHARD_MAP_LEFT
#define RIGHT RESHARD_MAP_RIGHT

static void test_compose__fixed(void **state)
{
    (void)state;
    static const char groups[] = "let g = 2, h = 3\nl.{n}.q [(g q h) ..], l.{n}.{k,v} [(g h) ..] = "
                                 "f.{n} [(g (q h + h + h)) ..]";
    check_pair(groups, RIGHT, "let a = 12\nl.{n}.q [a i], l.{n}.{k,v} [b i] = x [n (a + b + b) i]",
               LEFT, "f.0 24x2, f.1 24x2", NULL);
    check_pair("e.{e}.{g,u} [f i] = w13 [e (f + f) i]", RIGHT,
               "e.{e}.{p:g,u} [f i] = w [e i (f p)]", LEFT, "w13 3x4x2", NULL);
    check_pair("let a = 2\nq [(a 2 r) i] = wq [(a r 2) i]", RIGHT,
               "let b = 5\nq [(b + c) i] = x [b i], y [c i]", LEFT, "wq 12x2", NULL);
    /* Steps of 3 and of 2 in the tensor in between. */
    check_pair("let x = 3\na [(x y)] = m [(y x)]", LEFT, "let u = 6\nm [(u v)] = b [(v u)]", LEFT,
               "a 12", NULL);
    check_pair("a = m\nc [] = d []", LEFT, "m = b\nd [] = s []", LEFT, "a 2x2, c scalar", NULL);
}

static void test_compose__refused(void **state)
{
    (void)state;
    check_pair("a = m add(1)", LEFT, "m = b", LEFT, "a 1", "which adds to values");
    /* Steps of 3 and 2: one link for each few elements. */
    check_pair("let x = 3\na [(x y)] = m [(y x)]", LEFT, "let v = 2\nm [(u v)] = b [(v u)]", LEFT,
               "a 393216", "\"m\" is arranged so differently by the two maps");
    check_pair("a = m\n= s [] fill(1)", LEFT, "m = b\ns = t", LEFT, "a 1", "which is a constant");
}

/* What the second map wants compared is compared in the first one's tensors. */
static void test_compose__expectations(void **state)
{
    (void)state;
    check_pair("a = m\n= s [] fill(1)", LEFT, "m = b\ns [] fill(1) =", LEFT, "a 1", NULL);
    check_pair("a = m\nc = s", LEFT, "m = b\ns [] fill(1) =", LEFT, "a 1, c scalar", NULL);
    check_pair("a = m\n= s [] fill(2)", LEFT, "m = b\ns [] fill(1) =", LEFT, "a 1",
               "\"s\" has to be compared, and only exists in between");
    check_pair("a = m\n= s copy(m)", LEFT, "m = b\ns copy(m) =", LEFT, "a 1", NULL);
    check_pair("let i = 1\na = m\n{c,d} [i] = s [(i + i)]", LEFT, "m = b\ns copy(m) =", LEFT,
               "a 2, c 1, d 1", "\"s\" has to be compared");
}

/* ---- random arrangements of one dimension ---------------------------------------------------- */

/* "let x0 = 2\nNAME [(x0 x1)] = OTHER [(x1 x0)]": a random permutation of random factors. */
static void draw_map(draw_state *draw, int64_t volume, const char *from, const char *to, char *text)
{
    int64_t factors[8];
    int32_t count = 0, order[8];
    size_t length = 0;
    for (int64_t rest = volume; rest > 1 && count < 7;) {
        int64_t factor = count == 6 ? rest : draw_between(draw, 2, 4);
        if (rest % factor != 0)
            factor = draw_chance(draw, 50) ? rest : rest % 2 == 0 ? 2 : rest % 3 == 0 ? 3 : rest;
        factors[count] = factor;
        order[count] = count;
        count++;
        rest /= factor;
    }
    for (int32_t i = 0; i < count; i++)
        length += (size_t)sprintf(text + length, "let x%d = %" PRId64 "\n", (int)i, factors[i]);
    for (int side = 0; side < 2; side++) {
        length += (size_t)sprintf(text + length, "%s%s [(", side == 0 ? "" : " = ",
                                  side == 0 ? from : to);
        for (int32_t i = 0; i < count; i++)
            length += (size_t)sprintf(text + length, "%sx%d", i > 0 ? " " : "", (int)order[i]);
        length += (size_t)sprintf(text + length, ")]");
        draw_shuffle(draw, count, order);
    }
}

static void test_compose__random(void **state)
{
    (void)state;
    static const int64_t volumes[] = {12, 16, 24, 30, 36, 48, 60, 64};
    int64_t count = harness_count(1500);
    for (int64_t c = 0; c < count; c++) {
        char maps[2][512], tensors[32];
        draw_state draw;
        draw_seed(&draw, harness_seed() + (uint64_t)c);
        int64_t volume = volumes[draw_below(&draw, 8)];
        draw_map(&draw, volume, "a", "m", maps[0]);
        if (draw_chance(&draw, 30))
            (void)sprintf(maps[1], "let p = %" PRId64 "\nm [(p + q)] = b [p], c [q]",
                          draw_between(&draw, 1, volume - 1));
        else
            draw_map(&draw, volume, "m", "b", maps[1]);
        (void)sprintf(tensors, "a %" PRId64, volume);
        check_pair(maps[0], LEFT, maps[1], LEFT, tensors, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compose__fixed), cmocka_unit_test(test_compose__refused),
        cmocka_unit_test(test_compose__expectations), cmocka_unit_test(test_compose__random)};
    return cmocka_run_group_tests_name("map_compose", tests, NULL, NULL);
}
