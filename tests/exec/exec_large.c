/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_large.c - what does not fit into 32 bits, or into one message.
 *
 * RESHARD_TEST_BIG=1 (`make big`) gives the large targets memory of their own, about 5 GB, and
 * checks every byte of it.
 */
#include "tests/support/check.h"
#include "tests/support/large.h"
#include "tests/support/limited.h"
#include "tests/support/live.h"

#include <reshard/sim.h>

/* ---- beyond 32 bits -------------------------------------------------------------------------- */

static void check(reshard_status status)
{
    if (status != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
}

static void test_large__windows(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        large l = {
            .kind = i % 2 ? LARGE_ACROSS : LARGE_BEYOND, .wide = i / 2 % 2, .messages_only = i / 4};
        reshard_sim_options sim = {.size = sizeof sim, .seed = 7, .mapped = !l.messages_only};
        check(reshard_group_run(NULL, 2, large_run_rank, &l));
        check(reshard_sim_run(NULL, 2, &sim, large_run_rank, &l));
    }
}

static void test_large__exchange(void **state)
{
    (void)state;
    if (harness_scale() < 1)
        skip(); /* sanitizers take long over gigabytes */
    for (int messages = 0; messages < 2; messages++) {
        large l = {.kind = LARGE_EXCHANGE,
                   .messages_only = messages,
                   .real_targets = large_is_wanted_real()};
        check(reshard_group_run(NULL, 2, large_run_rank, &l));
    }
}

/* ---- small messages -------------------------------------------------------------------------- */

static reshard_status run_limited(const live_way *way, uint64_t seed, int32_t size,
                                  reshard_rank_fn body, void *user)
{
    (void)way;
    /* An odd number, so that elements are cut in two. */
    limited l = {.message_bytes_max = 1009, .body = body, .user = user};
    reshard_sim_options sim = {.size = sizeof sim, .seed = seed};
    return seed % 2 == 0 ? reshard_group_run(NULL, size, limited_run_rank, &l)
                         : reshard_sim_run(NULL, size, &sim, limited_run_rank, &l);
}

static const live_way way = {.name = "small messages", .run = run_limited};

static void generate_pair(draw_state *draw, harness_case *made)
{
    live_generate_pair(draw, 5, made); /* few, so that each pair has much to send */
}

static bool check_pair(const harness_case *given, words *said)
{
    return live_check_there(given, &way, said);
}

static void test_large__small_messages(void **state)
{
    (void)state;
    harness_run("small messages", 80, generate_pair, check_pair);
}

/* 7 ranks exchange 8 KB each way. */
static void test_large__many_small_messages(void **state)
{
    (void)state;
    harness_case given = {.seed = 3, .spec_count = 2};
    planning_set_shape(&given, 2, (const int64_t[]){203, 241});
    planning_set_chunks(&given.specs[0], 7, NULL, 0);
    planning_set_chunks(&given.specs[1], 7, NULL, 1);
    for (; given.seed < 7; given.seed++)
        harness_check("many small messages", &given, check_pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large__small_messages),
        cmocka_unit_test(test_large__many_small_messages),
        cmocka_unit_test(test_large__windows),
        cmocka_unit_test(test_large__exchange),
    };
    return cmocka_run_group_tests_name("large", tests, NULL, NULL);
}
