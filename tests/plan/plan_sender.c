/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes: who sends what to whom, in rows worked out by hand from the three rules of sender.h, and
 * what is combined.
 */
#include "elements.h"

#include <string.h>

/* senders[e]: the rank that `rank` has element e from, itself if it keeps it; -1: it needs none. */
typedef struct sender_row {
    const char *source, *target;
    int32_t rank;
    int32_t senders[8];
} sender_row;

static void check_row(const sender_row *row)
{
    static const int64_t shape[] = {8};
    linked given;
    elements all;
    linked_init(&given, row->source, row->target, 1, shape);
    elements_init(&all, &given, list_single, row->rank);
    for (int64_t e = 0; e < 8; e++) {
        const element *received = elements_find(&all, ELEMENT_RECEIVED, e, 0);
        const element *kept = elements_find(&all, ELEMENT_KEPT, e, 0);
        assert_false(received != NULL && kept != NULL);
        const element *found = received != NULL ? received : kept;
        int32_t sender = found != NULL ? (int32_t)found->source_rank : -1;
        assert_int_equal(sender, row->senders[e]);
        assert_true(kept == NULL || sender == row->rank);
        if (found == NULL)
            continue;
        /* The sender's own list says the same. */
        elements theirs;
        elements_init(&theirs, &given, list_single, sender);
        int64_t sent = 0;
        for (int64_t i = 0; i < theirs.count; i++)
            sent += theirs.items[i].list == ELEMENT_SENT && theirs.items[i].place == e &&
                    theirs.items[i].target_rank == row->rank &&
                    theirs.items[i].source_at == found->source_at &&
                    theirs.items[i].target_at == found->target_at;
        assert_int_equal(sent, received != NULL);
        elements_free(&theirs);
    }
    elements_free(&all);
    linked_free(&given);
}

static void test_route__senders(void **state)
{
    (void)state;
    static const sender_row rows[] = {
        /* single owners */
        {"2: S(0)", "4: S(0)", 1, {-1, -1, 0, 0, -1, -1, -1, -1}},
        {"2: S(0)", "4: S(0)", 0, {0, 0, -1, -1, -1, -1, -1, -1}},
        {"4: S(0)", "1[9]: R", 9, {0, 0, 1, 1, 2, 2, 3, 3}},
        /* rule 1: what a needer holds it keeps */
        {"4: R", "4: R", 2, {2, 2, 2, 2, 2, 2, 2, 2}},
        {"2: S(0)", "2: R", 1, {0, 0, 0, 0, 1, 1, 1, 1}},
        /* rule 2: two holders, four needers: needer j has holder j mod 2 */
        {"2[0,1]: R", "4[2..5]: R", 2, {0, 0, 0, 0, 0, 0, 0, 0}},
        {"2[0,1]: R", "4[2..5]: R", 3, {1, 1, 1, 1, 1, 1, 1, 1}},
        {"2[0,1]: R", "4[2..5]: R", 4, {0, 0, 0, 0, 0, 0, 0, 0}},
        /* rule 3: four holders, two needers: needer j divides the line between j and j+2 */
        {"4[0..3]: R", "2[8,9]: R", 8, {0, 0, 0, 0, 2, 2, 2, 2}},
        {"4[0..3]: R", "2[8,9]: R", 9, {1, 1, 1, 1, 3, 3, 3, 3}},
        {"3[0..2]: R", "1[9]: R", 9, {0, 0, 1, 1, 1, 2, 2, 2}},
        /* rule 3 where the source is flat: its halves take turns by the needer's rank */
        {"2,2: R, S(flat)", "1[8]: R", 8, {0, 0, 0, 0, 1, 1, 1, 1}},
        {"2,2: R, S(flat)", "1[9]: R", 9, {2, 2, 2, 2, 3, 3, 3, 3}},
        /* and each needer only with its own holders: four, two needers */
        {"4,2: R, S(flat)", "2[8,9]: R", 8, {0, 0, 0, 0, 1, 1, 1, 1}},
        {"4,2: R, S(flat)", "2[8,9]: R", 9, {6, 6, 6, 6, 7, 7, 7, 7}},
        {"4,2: R, S(flat)", "2[9,8]: R", 9, {4, 4, 4, 4, 5, 5, 5, 5}},
        {"4,2: R, S(flat)", "2[9,8]: R", 8, {2, 2, 2, 2, 3, 3, 3, 3}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_row(&rows[i]);
}

/* What rank 0 does at the first element: its list, kind and how contributions are combined. */
static void test_route__combinations(void **state)
{
    (void)state;
    static const int64_t shape[] = {8};
    static const struct {
        const char *source, *target;
        int32_t rank;
        int64_t lists[2]; /* of the first contributions, -1: there is none */
        int64_t kind, count, reduction, divisor;
    } rows[] = {
        {"2: P",
         "2: R",
         0,
         {ELEMENT_KEPT, ELEMENT_RECEIVED},
         RESHARD_MOVE_COMBINE,
         2,
         RESHARD_SUM,
         1},
        {"2: P",
         "2: R",
         1,
         {ELEMENT_RECEIVED, ELEMENT_KEPT},
         RESHARD_MOVE_COMBINE,
         2,
         RESHARD_SUM,
         1},
        {"2: P(avg)",
         "1[7]: R",
         7,
         {ELEMENT_RECEIVED, ELEMENT_RECEIVED},
         RESHARD_MOVE_COMBINE,
         2,
         RESHARD_AVG,
         2},
        {"2: P(max)", "2: P(max)", 1, {ELEMENT_KEPT, -1}, RESHARD_MOVE_COPY, 1, RESHARD_SUM, 1},
        /* a whole value becomes one contribution of a sum; the others get its identity */
        {"1: R", "2: P", 0, {ELEMENT_KEPT, -1}, RESHARD_MOVE_COPY, 1, RESHARD_SUM, 1},
        {"1: R", "2: P", 1, {ELEMENT_KEPT, -1}, RESHARD_MOVE_FILL, 1, RESHARD_SUM, 1},
        /* of several that hold it, the first */
        {"2: R", "2: P", 0, {ELEMENT_KEPT, -1}, RESHARD_MOVE_COPY, 1, RESHARD_SUM, 1},
        {"2: R", "2: P", 1, {ELEMENT_KEPT, -1}, RESHARD_MOVE_FILL, 1, RESHARD_SUM, 1},
        {"1[1]: R", "2: P(prod)", 0, {ELEMENT_KEPT, -1}, RESHARD_MOVE_FILL, 1, RESHARD_PROD, 1},
        {"1[1]: R", "2: P(prod)", 1, {ELEMENT_KEPT, -1}, RESHARD_MOVE_COPY, 1, RESHARD_SUM, 1},
        /* for max every contribution may be the value itself */
        {"1: R", "2: P(max)", 1, {ELEMENT_RECEIVED, -1}, RESHARD_MOVE_COPY, 1, RESHARD_SUM, 1},
        /* four contributions to two: the first ones of several to the first of fewer */
        {"4: P",
         "2: P",
         0,
         {ELEMENT_KEPT, ELEMENT_RECEIVED},
         RESHARD_MOVE_COMBINE,
         2,
         RESHARD_SUM,
         1},
        {"2: P", "4: P", 3, {ELEMENT_KEPT, -1}, RESHARD_MOVE_FILL, 1, RESHARD_SUM, 1},
        /* as many contributions of another average: every one becomes the value */
        {"2,2: P, P(avg)",
         "4: P(avg)",
         0,
         {ELEMENT_KEPT, ELEMENT_RECEIVED},
         RESHARD_MOVE_COMBINE,
         4,
         RESHARD_AVG,
         2},
        {"4: P(avg)", "4: P(avg)", 2, {ELEMENT_KEPT, -1}, RESHARD_MOVE_COPY, 1, RESHARD_SUM, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        linked given;
        elements all;
        linked_init(&given, rows[i].source, rows[i].target, 1, shape);
        elements_init(&all, &given, list_single, rows[i].rank);
        for (int64_t contributor = 0; contributor < 2; contributor++) {
            const element *received = elements_find(&all, ELEMENT_RECEIVED, 0, contributor);
            const element *kept = elements_find(&all, ELEMENT_KEPT, 0, contributor);
            const element *found = received != NULL ? received : kept;
            assert_int_equal(found != NULL ? found->list : -1, rows[i].lists[contributor]);
            if (found == NULL)
                continue;
            assert_int_equal(found->kind, rows[i].kind);
            assert_int_equal(found->contributor_count, rows[i].count);
            assert_int_equal(found->reduction, rows[i].reduction);
            assert_int_equal(found->divisor, rows[i].divisor);
            assert_int_equal(found->source_rank < 0, rows[i].kind == RESHARD_MOVE_FILL);
        }
        elements_free(&all);
        linked_free(&given);
    }
}

static void test_route__mixed_averages_are_refused(void **state)
{
    (void)state;
    static const int64_t shape[] = {8};
    linked given;
    linked_init(&given, "4: R", "2,2: P, P(avg)", 1, shape);
    assert_int_equal(rs_sender_check(given.source, given.target), RESHARD_ERR_UNSUPPORTED);
    assert_non_null(strstr(reshard_error_text(), "mixes P(sum) and P(avg)"));
    assert_int_equal(rs_sender_check(given.target, given.source), RESHARD_OK);
    assert_int_equal(rs_sender_check(given.target, given.target), RESHARD_OK);
    linked_free(&given);
}

/* Rule 3 divides the dim that is long enough, and of those the one that the target cuts most. */
static void test_route__division_dim(void **state)
{
    (void)state;
    static const int64_t wide[] = {2, 64}, square[] = {64, 64};
    static const struct {
        const char *source, *target;
        const int64_t *shape;
        int32_t dim;
    } rows[] = {
        {"8: R", "1[9]: R", wide, 1},
        {"8: R", "2[8,9]: S(1)", square, 1},
        {"8: R", "2[8,9]: S(0)", square, 0},
        {"2,2: R, S(flat)", "1[9]: R", square, -1},
        {"cover 64x64: 0[0:64,0:64] 1[0:64,0:64]", "1[9]: R", square, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        linked given;
        rs_sender_rule rule;
        linked_init(&given, rows[i].source, rows[i].target, 2, rows[i].shape);
        rs_sender_rule_init(&rule, &given.link);
        assert_int_equal(rule.division_dim, rows[i].dim);
        linked_free(&given);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_route__senders),
        cmocka_unit_test(test_route__combinations),
        cmocka_unit_test(test_route__mixed_averages_are_refused),
        cmocka_unit_test(test_route__division_dim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
