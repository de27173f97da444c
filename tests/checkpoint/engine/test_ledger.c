/* SPDX-License-Identifier: Apache-2.0 */
/* A ledger of ten blocks, and what each verb does to it. States are written as O, D, N and R. */
#include "checkpoint/engine/ledger.h"
#include "tests/support/check.h"

enum { BLOCKS = 10 };

static void check(const rs_ledger *ledger, const char *states)
{
    char found[BLOCKS + 1] = {0};
    for (int64_t i = 0; i < BLOCKS; i++) {
        found[i] = "ODNR"[rs_ledger_state(ledger, i)];
        assert_int_equal(rs_ledger_is_done(ledger, i), states[i] != 'O');
    }
    assert_string_equal(found, states);
}

static void test_ledger__from_open_to_recorded(void **state)
{
    (void)state;
    rs_ledger ledger;
    int64_t first = 0, count = 0;
    assert_int_equal(rs_ledger_init(&ledger, NULL, BLOCKS), RESHARD_OK);
    check(&ledger, "OOOOOOOOOO");
    rs_ledger_recall(&ledger, 8, 2);
    rs_ledger_mark_done(&ledger, 1);
    rs_ledger_mark_done(&ledger, 2);
    rs_ledger_mark_done(&ledger, 5);
    check(&ledger, "ODDOODOORR");
    rs_ledger_note(&ledger);
    rs_ledger_mark_done(&ledger, 3); /* too late for this time */
    check(&ledger, "ONNDONOORR");
    assert_true(rs_ledger_record(&ledger, &first, &count));
    assert_true(first == 1 && count == 2);
    first += count;
    assert_true(rs_ledger_record(&ledger, &first, &count));
    assert_true(first == 5 && count == 1);
    first += count;
    assert_false(rs_ledger_record(&ledger, &first, &count));
    check(&ledger, "ORRDOROORR");
    rs_ledger_release(&ledger);
}

/* What other ranks report is noted, unless it is in the journal already. */
static void test_ledger__merge(void **state)
{
    (void)state;
    rs_ledger ledger;
    int64_t first = 0, count = 0;
    assert_int_equal(rs_ledger_init(&ledger, NULL, BLOCKS), RESHARD_OK);
    rs_ledger_recall(&ledger, 3, 1);
    rs_ledger_mark_done(&ledger, 4); /* this rank's own */
    rs_ledger_merge(&ledger, 2, 4);
    rs_ledger_merge(&ledger, 9, 0);
    check(&ledger, "OONRNNOOOO");
    assert_true(rs_ledger_record(&ledger, &first, &count));
    assert_true(first == 2 && count == 1);
    first += count;
    assert_true(rs_ledger_record(&ledger, &first, &count));
    assert_true(first == 4 && count == 2);
    rs_ledger_release(&ledger);
}

static void test_ledger__of_nothing(void **state)
{
    (void)state;
    rs_ledger ledger;
    int64_t first = 0, count = 0;
    assert_int_equal(rs_ledger_init(&ledger, NULL, 0), RESHARD_OK);
    rs_ledger_note(&ledger);
    assert_false(rs_ledger_record(&ledger, &first, &count));
    rs_ledger_release(&ledger);
    rs_ledger_release(&ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ledger__from_open_to_recorded),
        cmocka_unit_test(test_ledger__merge),
        cmocka_unit_test(test_ledger__of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
