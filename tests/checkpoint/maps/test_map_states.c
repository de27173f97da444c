/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_map_states.c - states of optimizers follow their parameters through maps. Tensors whose
 * names begin with "optim." are states: optim.NAME.KIND.
 */
#include "checkpoint/maps/maps.h"
#include "checkpoint/maps/resolve.h"
#include "map_case.h"
#include "tests/support/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Finds the parameter of "optim.a.w.exp_avg": "a.w", or "model.a.w". */
static void find_states(const map_case *given, rs_map_state *states)
{
    for (int64_t i = 0; i < given->count; i++) {
        const char *name = given->names[i], *back = strrchr(name, '.');
        states[i] = (rs_map_state){.parameter = -1};
        if (strncmp(name, "optim.", 6) != 0)
            continue;
        for (int64_t p = 0; p < given->count; p++) {
            const char *other = given->names[p];
            size_t skipped = strncmp(other, "model.", 6) == 0 ? 6 : 0;
            size_t length = (size_t)(back - name) - 6;
            if (strlen(other + skipped) != length || memcmp(other + skipped, name + 6, length) != 0)
                continue;
            states[i] = (rs_map_state){.parameter = p,
                                       .front = {name, 6},
                                       .back = {back, strlen(back)},
                                       .skipped = skipped,
                                       .same_shape = given->tensors[i].ndim != 0};
        }
    }
}

static void run(const char *text, const char *tensors, char *out, size_t capacity)
{
    static map_case given;
    static rs_map_state states[MAP_CASE_TENSORS_MAX];
    reshard_map *map = NULL;
    reshard_map_result *result = NULL;
    size_t length = 0;
    map_case_read(&given, tensors);
    find_states(&given, states);
    reshard_status status = reshard_map_parse(NULL, text, strlen(text), NULL, &map);
    if (status == RESHARD_OK)
        status = rs_map_resolve(map, RESHARD_MAP_LEFT, given.count, given.tensors, states, NULL,
                                &result);
    if (status != RESHARD_OK)
        (void)snprintf(out, capacity, "%s", reshard_error_text());
    for (int64_t t = 0; result != NULL && t < result->target_count; t++) {
        reshard_map_target target = {.size = sizeof target};
        int64_t volume = 1, elements[64];
        assert_int_equal(reshard_map_result_target(result, t, &target), RESHARD_OK);
        for (int32_t d = 0; d < target.ndim; d++)
            volume *= target.shape[d];
        map_case_elements(result, given.tensors, t, volume, elements);
        length += (size_t)snprintf(out + length, capacity - length, "%s:", target.name);
        for (int64_t i = 0; i < volume; i++)
            length += (size_t)snprintf(out + length, capacity - length, " %s/%" PRId64,
                                       given.names[elements[i] >> 32], elements[i] & UINT32_MAX);
        length += (size_t)snprintf(out + length, capacity - length, "%s\n",
                                   target.added != 0 ? " added" : "");
    }
    for (int64_t i = 0; result != NULL && i < given.count; i++) {
        reshard_map_use use = {.size = sizeof use};
        assert_int_equal(reshard_map_result_use(result, i, &use), RESHARD_OK);
        if (use.fate == RESHARD_MAP_REPEATED)
            length += (size_t)snprintf(out + length, capacity - length, "%s = %s\n", given.names[i],
                                       given.names[use.same_as]);
        if (use.fate == RESHARD_MAP_DROPPED)
            length +=
                (size_t)snprintf(out + length, capacity - length, "%s dropped\n", given.names[i]);
    }
    reshard_map_result_destroy(result);
    reshard_map_release(map);
}

typedef struct row {
    const char *map, *read, *expected;
} row;

static const row rows[] = {
    {"model.a = model.b add(1)", "model.a 2, optim.a.m 2, optim.a.step scalar",
     "model.b: model.a/0 model.a/1 added\noptim.b.m: optim.a.m/0 optim.a.m/1\n"
     "optim.b.step: optim.a.step/0\n"},
    {"{q,k} [i] = qk [(i + i)]",
     "q 1, k 1, optim.k.m 1, optim.k.step scalar, optim.q.step scalar, optim.q.m 1",
     "qk: q/0 k/0\noptim.qk.step: optim.q.step/0\noptim.qk.m: optim.q.m/0 optim.k.m/0\n"
     "optim.k.step = optim.q.step\n"},
    {"let i = 1\nqk [(i + i)] = q [i], k [i]", "qk 2, optim.qk.m 2, optim.qk.step scalar",
     "q: qk/0\nk: qk/1\noptim.q.m: optim.qk.m/0\noptim.q.step: optim.qk.step/0\n"
     "optim.k.m: optim.qk.m/1\noptim.k.step: optim.qk.step/0\n"},
    {"a = b\nfreqs drop =", "a 1, freqs 1, optim.freqs.m 1",
     "b: a/0\nfreqs dropped\n"
     "optim.freqs.m dropped\n"},
    {"a = b\n* = *", "a 1, c 1, optim.c.m 1", "b: a/0\nc: c/0\noptim.c.m: optim.c.m/0\n"},
    {"{q,k} [i] = qk [(i + i)]", "q 1, k 1, optim.q.m 1",
     "\"qk\" is joined from \"q\", which has optimizer state, and \"k\", which has other state or "
     "none: was it frozen? Leave the state out"},
    {"{q,k} [i] = qk [(i + i)]", "q 1, k 1, optim.k.m 1",
     "\"qk\" is joined from \"k\", which has optimizer state, and \"q\", which has other state or "
     "none: was it frozen? Leave the state out"},
    {"{q,k} [i] = qk [(i + i)]", "q 1, k 1, optim.q.m 1, optim.k.m 1, optim.k.v 1",
     "\"qk\" is joined from \"q\", which has optimizer state, and \"k\", which has other state or "
     "none: was it frozen? Leave the state out"},
    {"{q,k} [i] = qk [(i + i)]", "q 1, k 1, optim.q.m 1, optim.k.m f16 1",
     "\"optim.q.m\" and \"optim.k.m\" would be joined, but their dtypes differ"},
};

static void test_states__follow(void **state)
{
    (void)state;
    static char text[MAP_CASE_BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run(rows[i].map, rows[i].read, text, sizeof text);
        if (strcmp(text, rows[i].expected) != 0)
            fail_msg("%s: got\n%s\nexpected\n%s", rows[i].map, text, rows[i].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_states__follow)};
    return cmocka_run_group_tests_name("map_states", tests, NULL, NULL);
}
