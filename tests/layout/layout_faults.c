/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_faults.c - the n-th allocation fails, for every n, in all that makes specs and layouts and
 * asks them.
 */
#include "tests/support/context.h"

#include "layout/layout.h"

#include <reshard/pytorch.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

typedef struct attempt {
    const char *spec;
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
} attempt;

static reshard_status ask(reshard_context *context, const reshard_layout *layout, int infer)
{
    reshard_shards *all = NULL, *mine = NULL;
    reshard_spec *spec = NULL;
    int32_t ndim = layout->ndim;
    const int64_t *shape = layout->shape;
    reshard_status status = reshard_layout_shards(layout, reshard_layout_rank_at(layout, 0), &mine);
    if (status == RESHARD_OK)
        status = reshard_layout_shards(layout, RESHARD_ALL_RANKS, &all);
    if (status == RESHARD_OK && infer)
        status = reshard_shards_check(context, ndim, shape, all->count, all->items);
    if (status == RESHARD_OK && infer)
        status = reshard_shards_check(context, 0, NULL, all->count, all->items);
    if (status == RESHARD_OK && infer)
        status = reshard_spec_infer(context, ndim, shape, all->count, all->items, &spec);
    reshard_spec_release(spec);
    reshard_shards_destroy(all);
    reshard_shards_destroy(mine);
    return status;
}

static reshard_status make_and_ask(reshard_context *context, void *user)
{
    const attempt *given = user;
    reshard_spec *spec = NULL;
    reshard_layout *layout = NULL;
    reshard_status status = reshard_spec_parse(context, given->spec, &spec);
    if (status == RESHARD_OK)
        status = reshard_layout_create(context, spec, given->ndim, given->shape, &layout);
    if (status == RESHARD_OK)
        status = ask(context, layout,
                     strchr(given->spec, 'R') == NULL && strncmp(given->spec, "cover", 5) != 0);
    reshard_layout_release(layout);
    reshard_spec_release(spec);
    return status;
}

static void test_faults__layouts(void **state)
{
    (void)state;
    static const attempt attempts[] = {
        {"4: S(0)", 2, {10, 7}},
        {"4[3,1,0,2]: S(1)", 2, {10, 7}},
        {"dp=2,tp=3: R, S(-1;2,5|2)", 2, {10, 7}},
        {"a=2,b=3: S(0*2), S(0/1)", 1, {13}},
        {"a=2,b=3: S(flat), S(flat=4,0,3)", 2, {7, 2}},
        {"boxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]", 2, {6, 6}},
        {"boxes 6x6: 0[0:2,0:4]+[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]", 2, {6, 6}},
        {"cover 6x6: 0[0:4,0:6] 1[2:6,0:6]", 2, {6, 6}},
    };
    for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++) {
        words said = {""};
        attempt given = attempts[i];
        if (!context_fail_each(make_and_ask, &given, &said))
            fail_msg("%s: %s", given.spec, said.text);
    }
}

static reshard_status build_metadata(reshard_context *context, void *user)
{
    static const int64_t shape[] = {10, 7};
    static const int32_t ranks[] = {2, 0, 1};
    int32_t order[3];
    reshard_shards *shards = NULL;
    (void)user;
    reshard_status status = reshard_build_metadata(context, 2, shape, 1, ranks, 3, order, &shards);
    reshard_shards_destroy(shards);
    return status;
}

static void test_faults__metadata(void **state)
{
    (void)state;
    words said = {""};
    if (!context_fail_each(build_metadata, NULL, &said))
        fail_msg("%s", said.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults__layouts),
        cmocka_unit_test(test_faults__metadata),
    };
    return cmocka_run_group_tests_name("layout_faults", tests, NULL, NULL);
}
