/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_memory.c - memory of groups: blocks of random sizes taken and given back against a plain
 * list of what is in use; what peers of a node see; and every allocation failing once. Ranks return
 * what they found wrong as an error; the main thread checks.
 */
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/random.h"
#include "tests/support/ranks.h"

#include "transport/group_memory.h"

#include <reshard/sim.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 4, NODE = 2, BLOCKS = 24, TURNS = 400 };

/* ---- blocks ---------------------------------------------------------------------------------- */

typedef struct held {
    unsigned char *memory;
    size_t bytes;
    unsigned char mark;
} held;

static bool is_intact(const held *h)
{
    for (size_t i = 0; i < h->bytes; i++) {
        if (h->memory[i] != h->mark)
            return false;
    }
    return (uintptr_t)h->memory % 64 == 0;
}

/* Ranks ask for different sizes, and free different blocks; what each holds stays as it was. */
static reshard_status take_and_give(void *user, reshard_group *group)
{
    (void)user;
    held blocks[BLOCKS] = {{0}};
    draw_state draw;
    draw_seed(&draw, 77 + (uint64_t)reshard_group_rank(group));
    for (int turn = 0; turn < TURNS; turn++) {
        held *h = &blocks[turn % BLOCKS];
        CHECK(h->memory == NULL || is_intact(h));
        reshard_group_free(group, h->memory);
        *h = (held){.bytes = (size_t)draw_below(&draw, 300000), .mark = (unsigned char)turn};
        void *memory = NULL;
        TRY(reshard_group_alloc(group, h->bytes, &memory));
        h->memory = memory;
        if (h->bytes != 0)
            memset(h->memory, h->mark, h->bytes);
    }
    for (int i = 0; i < BLOCKS; i++)
        reshard_group_free(group, blocks[i].memory);
    return RESHARD_OK;
}

static void test_memory__blocks(void **state)
{
    (void)state;
    assert_int_equal(reshard_group_run(NULL, RANKS, take_and_give, NULL), RESHARD_OK);
    reshard_sim_options options = {.size = sizeof options, .seed = 5, .node_size = NODE};
    if (reshard_sim_run(NULL, RANKS, &options, take_and_give, NULL) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
    reshard_group *self = NULL;
    assert_int_equal(reshard_group_self(NULL, &self), RESHARD_OK);
    assert_int_equal(take_and_give(NULL, self), RESHARD_OK);
    void *memory = NULL;
    assert_int_equal(reshard_group_alloc(self, SIZE_MAX - 5, &memory), RESHARD_ERR_NO_MEMORY);
    reshard_group_release(self);
}

/* Blocks side by side that were given back are one block again. */
static reshard_status take_both(void *user, reshard_group *group)
{
    (void)user;
    void *small[2] = {NULL, NULL}, *large = NULL;
    for (int i = 0; i < 2; i++)
        TRY(reshard_group_alloc(group, 5000, &small[i]));
    void *first = small[0] < small[1] ? small[0] : small[1];
    CHECK(rs_group_is_shared(group, first));
    for (int i = 0; i < 2; i++)
        reshard_group_free(group, small[i]);
    TRY(reshard_group_alloc(group, 10000, &large));
    CHECK(large == first);
    reshard_group_free(group, large);
    return RESHARD_OK;
}

static void test_memory__neighbours_are_joined(void **state)
{
    (void)state;
    reshard_sim_options options = {.size = sizeof options, .seed = 6, .node_size = NODE};
    if (reshard_sim_run(NULL, RANKS, &options, take_both, NULL) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
}

/* ---- what peers see -------------------------------------------------------------------------- */

static reshard_status look(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group);
    void *memory = NULL;
    void *all[RANKS];
    TRY(reshard_group_alloc(group, 1000, &memory));
    memset(memory, 10 + rank, 1000);
    CHECK(rs_group_is_shared(group, memory) && !rs_group_is_shared(group, &memory));
    TRY(reshard_group_gather_bytes(group, &memory, sizeof memory, all));
    for (int32_t peer = 0; peer < RANKS; peer++) {
        const unsigned char *seen = rs_group_map(group, peer, all[peer], 1000);
        bool near = peer / NODE == rank / NODE; /* sight ends with the node */
        CHECK(near == (seen != NULL) && near == rs_group_is_near(group, peer));
        CHECK(!near || (seen[0] == 10 + peer && seen[999] == 10 + peer));
        CHECK(rs_group_map(group, peer, &memory, 8) == NULL);
    }
    TRY(reshard_group_barrier(group));
    reshard_group_free(group, memory);
    return RESHARD_OK;
}

static void test_memory__nodes(void **state)
{
    (void)state;
    reshard_sim_options options = {.size = sizeof options, .seed = 6, .node_size = NODE};
    if (reshard_sim_run(NULL, RANKS, &options, look, NULL) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
}

/* A subset is served from what is there, and gets plain memory when that is not enough. */
static reshard_status take_in_subset(void *user, reshard_group *group)
{
    (void)user;
    static const int32_t ranks[] = {2, 0};
    reshard_group *subset = NULL;
    void *first = NULL, *served = NULL, *plain = NULL;
    TRY(reshard_group_alloc(group, 100, &first));
    TRY(reshard_group_subset(group, 2, ranks, &subset));
    if (subset != NULL) {
        TRY(reshard_group_alloc(subset, 5000, &served));
        TRY(reshard_group_alloc(subset, (size_t)64 << 20, &plain));
        CHECK(rs_group_is_shared(subset, served) && !rs_group_is_shared(subset, plain));
        reshard_group_free(subset, plain);
        reshard_group_free(subset, served);
    }
    reshard_group_free(group, first);
    reshard_group_release(subset);
    return RESHARD_OK;
}

static void test_memory__subset(void **state)
{
    (void)state;
    reshard_sim_options options = {.size = sizeof options, .seed = 7, .node_size = NODE};
    if (reshard_sim_run(NULL, RANKS, &options, take_in_subset, NULL) != RESHARD_OK)
        fail_msg("%s", reshard_error_text());
}

/* ---- failures -------------------------------------------------------------------------------- */

static reshard_status take_two(void *user, reshard_group *group)
{
    (void)user;
    void *a = NULL, *b = NULL;
    reshard_status status = reshard_group_alloc(group, 100000, &a);
    if (status == RESHARD_OK)
        status = reshard_group_alloc(group, (size_t)8 << 20, &b);
    reshard_group_free(group, a);
    reshard_group_free(group, b);
    return status;
}

static reshard_status attempt(reshard_context *context, void *user)
{
    (void)user;
    reshard_sim_options options = {.size = sizeof options, .seed = 8, .node_size = NODE};
    return reshard_sim_run(context, RANKS, &options, take_two, NULL);
}

static void test_memory__faults(void **state)
{
    (void)state;
    words said = {0};
    if (!context_fail_each(attempt, NULL, &said))
        fail_msg("%s", said.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory__blocks), cmocka_unit_test(test_memory__neighbours_are_joined),
        cmocka_unit_test(test_memory__nodes),  cmocka_unit_test(test_memory__subset),
        cmocka_unit_test(test_memory__faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
