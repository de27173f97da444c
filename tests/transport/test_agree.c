/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_agree.c - agreement: every rank as the one that fails, as the odd one out, in every size;
 * majorities against a plain count; and how many messages it takes. All ranks must hear the same.
 */
#include "base/error.h"
#include "tests/support/check.h"
#include "tests/support/limited.h"
#include "tests/support/random.h"
#include "tests/support/ranks.h"
#include "tests/support/ways.h"
#include "transport/agree.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { RANKS_MAX = 9, TEXT_MAX = 600 };

/* What ranks bring, and what they heard. */
typedef struct meeting {
    int64_t claims[RANKS_MAX]; /* -1: none */
    bool fails[RANKS_MAX];
    bool with_words;
    reshard_status heard[RANKS_MAX];
    uint64_t numbers[RANKS_MAX][RS_AGREE_NUMBERS];
    char text[RANKS_MAX][TEXT_MAX];
} meeting;

static reshard_status attend(void *user, reshard_group *group)
{
    meeting *m = user;
    int32_t rank = reshard_group_rank(group);
    char words[40];
    (void)snprintf(words, sizeof words, "claim %d", (int)m->claims[rank]);
    rs_claim claim = {.digest = {7, (uint64_t)m->claims[rank]}, .what = "meeting: the claim"};
    claim.words = m->with_words ? words : NULL;
    m->numbers[rank][0] = (uint64_t)rank;
    m->numbers[rank][1] = (uint64_t)(100 - rank);
    m->numbers[rank][2] = rank == 1;
    reshard_dtype unused;
    reshard_status before = m->fails[rank] ? reshard_dtype_parse("f99", &unused) : RESHARD_OK;
    m->heard[rank] =
        rs_group_agree_on(group, before, m->claims[rank] >= 0 ? &claim : NULL, m->numbers[rank]);
    (void)snprintf(m->text[rank], TEXT_MAX, "%s", reshard_error_text());
    return RESHARD_OK;
}

/* All ranks have heard this. */
static void check_heard(const meeting *m, int32_t size, reshard_status status, const char *text)
{
    for (int32_t r = 0; r < size; r++) {
        assert_int_equal(m->heard[r], status);
        if (status != RESHARD_OK)
            assert_string_equal(m->text[r], text);
    }
}

static void test_agree__all_alike(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        for (int32_t size = 1; size <= RANKS_MAX; size++) {
            meeting m = {.with_words = size % 2};
            m.claims[size / 2] = size > 1 ? -1 : 0; /* one goes along with any */
            assert_int_equal(run_way(&ways[w], size, attend, &m), RESHARD_OK);
            check_heard(&m, size, RESHARD_OK, NULL);
            for (int32_t r = 0; r < size; r++) {
                assert_int_equal(m.numbers[r][0], size - 1);
                assert_int_equal(m.numbers[r][1], 100);
                assert_int_equal(m.numbers[r][2], size > 1);
            }
        }
    }
}

static void test_agree__odd_one(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        for (int32_t size = 2; size <= RANKS_MAX; size++) {
            for (int32_t odd = 0; odd < size; odd++) {
                char wanted[TEXT_MAX];
                meeting m = {.with_words = (size + odd) % 2};
                m.claims[odd] = 5;
                assert_int_equal(run_way(&ways[w], size, attend, &m), RESHARD_OK);
                int32_t named = size == 2 ? 1 : odd, other = named == 0 ? 1 : 0;
                if (m.with_words)
                    (void)snprintf(wanted, sizeof wanted, "rank %d: claim %d, but rank", named,
                                   (int)m.claims[named]);
                else
                    (void)snprintf(wanted, sizeof wanted,
                                   "rank %d: meeting: the claim differs from what rank", named);
                assert_int_equal(strncmp(m.text[other], wanted, strlen(wanted)), 0);
                check_heard(&m, size, RESHARD_ERR_MISMATCH, m.text[other]);
            }
        }
    }
}

/* A failure counts for more than different claims, and the lowest rank's for more than others'. */
static void test_agree__failing_rank(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        for (int32_t size = 1; size <= RANKS_MAX; size++) {
            for (int32_t bad = 0; bad < size; bad++) {
                char wanted[40];
                meeting m = {.with_words = true};
                m.claims[size / 2] = 3;
                m.fails[bad] = m.fails[size - 1] = true;
                assert_int_equal(run_way(&ways[w], size, attend, &m), RESHARD_OK);
                (void)snprintf(wanted, sizeof wanted, "rank %d: dtype \"f99\"", bad);
                assert_int_equal(strncmp(m.text[0], wanted, strlen(wanted)), 0);
                check_heard(&m, size, RESHARD_ERR_NOT_FOUND, m.text[0]);
            }
        }
    }
}

/* Rank 1 fails over a path of 2,000 bytes, in letters of two bytes each. */
static reshard_status fail_over_path(void *user, reshard_group *group)
{
    char path[2001] = "";
    for (int i = 0; i < 1000; i++)
        memcpy(path + 2 * i, "\xc3\xa4", 3);
    reshard_status status = RESHARD_OK;
    if (reshard_group_rank(group) == 1)
        status = rs_fail(RESHARD_ERR_IO, "/%s: no space left", path);
    return user != NULL ? reshard_group_agree(group, status) : status;
}

/* What a failure is about and its cause are both heard. Agreement, whose messages are small, leaves
 * out the middle of the path. */
static void test_agree__long_texts(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        for (int agrees = 0; agrees < 2; agrees++) {
            assert_int_equal(run_way(&ways[w], 3, fail_over_path, agrees ? &agrees : NULL),
                             RESHARD_ERR_IO);
            const char *text = reshard_error_text(), *middle = strstr(text, "\xa4..\xc3");
            size_t length = strlen(text);
            assert_int_equal(strncmp(text, "rank 1: /\xc3\xa4", 11), 0);
            assert_string_equal(text + length - 16, "\xa4: no space left");
            assert_true(agrees ? middle != NULL && length < 512 : middle == NULL && length > 2000);
        }
    }
}

/* What a rank heard, or what its group's run ended with. */
static void check_fields(const reshard_error *error, int32_t rank, const char *subject)
{
    assert_int_equal(error->status, RESHARD_ERR_NOT_FOUND);
    assert_int_equal(error->hint, RESHARD_HINT_SET_KEY);
    assert_true(error->has_rank != 0);
    assert_int_equal(error->rank, rank);
    assert_string_equal(error->subject, subject);
}

typedef struct hinting {
    bool agrees, ends_well;
    const char *subject;
    atomic_int right; /* ranks that heard all fields */
} hinting;

static reshard_status fail_with_hint(void *user, reshard_group *group)
{
    hinting *h = user;
    reshard_error error = {.size = sizeof error};
    reshard_status status = RESHARD_OK;
    (void)rs_fail_hint(RESHARD_ERR_IO, RESHARD_HINT_RESUME, "other", "an earlier error");
    if (reshard_group_rank(group) == 1)
        status = rs_fail_hint(RESHARD_ERR_NOT_FOUND, RESHARD_HINT_SET_KEY, h->subject, "it is odd");
    if (!h->agrees)
        return status;
    status = reshard_group_agree(group, status);
    (void)reshard_error_get(&error);
    h->right += error.status == status && error.hint == RESHARD_HINT_SET_KEY && error.has_rank &&
                error.rank == 1 && strcmp(error.subject, h->subject) == 0 &&
                strcmp(error.text, "rank 1: it is odd") == 0;
    return h->ends_well ? RESHARD_OK : status; /* failing may break the group before all heard */
}

/* All ranks hear what helps and what the error is about, and so does who runs them. */
static void test_agree__fields(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        hinting heard = {.agrees = true, .ends_well = true, .subject = "head_dim"};
        assert_int_equal(run_way(&ways[w], 3, fail_with_hint, &heard), RESHARD_OK);
        assert_int_equal(heard.right, 3);
        for (int agrees = 0; agrees < 2; agrees++) {
            hinting h = {.agrees = agrees != 0, .subject = "head_dim"};
            reshard_error error = {.size = sizeof error};
            assert_int_equal(run_way(&ways[w], 3, fail_with_hint, &h), RESHARD_ERR_NOT_FOUND);
            assert_int_equal(reshard_error_get(&error), RESHARD_OK);
            check_fields(&error, 1, "head_dim");
            assert_string_equal(error.text, "rank 1: it is odd");
        }
    }
}

/* A subject travels whole or not at all. */
static void test_agree__long_subjects(void **state)
{
    (void)state;
    char subject[600];
    for (size_t length = 400; length < sizeof subject; length += 10) {
        memset(subject, 's', length);
        subject[length] = '\0';
        hinting h = {.agrees = true, .subject = subject};
        reshard_error error = {.size = sizeof error};
        assert_int_equal(run_way(&ways[0], 2, fail_with_hint, &h), RESHARD_ERR_NOT_FOUND);
        assert_int_equal(reshard_error_get(&error), RESHARD_OK);
        check_fields(&error, 1, length <= 430 ? subject : "");
        assert_string_equal(error.text, "rank 1: it is odd");
    }
}

/* The lowest rank without the majority's claim is named, where there is a majority. */
static void check_majority(const meeting *m, int32_t size)
{
    int32_t named = -1, compared = -1, with[RANKS_MAX] = {0};
    for (int32_t r = 0; r < size; r++) {
        for (int32_t i = 0; i < size; i++)
            with[r] += m->claims[i] == m->claims[r];
    }
    if (with[0] == size) {
        check_heard(m, size, RESHARD_OK, NULL);
        return;
    }
    check_heard(m, size, RESHARD_ERR_MISMATCH, m->text[0]);
    assert_int_equal(sscanf(m->text[0], "rank %d: meeting: the claim differs from what rank %d has",
                            &named, &compared),
                     2);
    assert_true(m->claims[named] != m->claims[compared]);
    for (int32_t r = 0; r < size; r++) {
        if (2 * with[r] > size) {
            assert_int_equal(m->claims[compared], m->claims[r]);
            for (int32_t i = 0; i < named; i++)
                assert_int_equal(m->claims[i], m->claims[r]);
        }
    }
}

static void test_agree__majorities(void **state)
{
    (void)state;
    draw_state draw;
    draw_seed(&draw, 11);
    for (int turn = 0; turn < 600; turn++) {
        meeting m = {0};
        int32_t size = 2 + (int32_t)draw_below(&draw, RANKS_MAX - 1);
        for (int32_t r = 0; r < size; r++)
            m.claims[r] = draw_below(&draw, 2 + turn % 3);
        assert_int_equal(run_way(&ways[1], size, attend, &m), RESHARD_OK);
        check_majority(&m, size);
    }
}

/* Every message fails once, and every rank leaves at each of its calls: all hear of it. */
static void test_agree__faults(void **state)
{
    (void)state;
    for (int32_t stop = -1; stop < 5; stop++) {
        int reached = 1;
        for (int64_t n = 1; reached; n++) {
            meeting m = {.claims = {0, 0, 1}};
            reshard_sim_options options = {
                .size = sizeof options, .seed = (uint64_t)n, .out_reached = &reached};
            options.fail_message = stop < 0 ? n : 0;
            options.stop_rank = stop < 0 ? 0 : stop;
            options.stop_after = stop < 0 ? 0 : n;
            (void)reshard_sim_run(NULL, 5, &options, attend, &m);
            for (int32_t r = 0; r < 5; r++)
                assert_true(m.heard[r] == RESHARD_ERR_MISMATCH ||
                            (reached && m.heard[r] == RESHARD_ERR_GROUP_BROKEN));
            assert_true(n < 200);
        }
    }
}

/* ---- how much it costs ----------------------------------------------------------------------- */

enum { MANY = 100, LOG_MANY = 7 };

static reshard_status agree_once(void *user, reshard_group *group)
{
    (void)user;
    rs_claim claim = {.what = "the claim"};
    TRY(rs_group_agree_on(group, RESHARD_OK, &claim, NULL));
    return RESHARD_OK;
}

static void test_agree__messages(void **state)
{
    (void)state;
    int64_t sent[MANY] = {0}, total = 0;
    limited count = {.message_bytes_max = 512, .body = agree_once, .sent = sent};
    run_ranks(MANY, limited_run_rank, &count);
    for (int32_t r = 0; r < MANY; r++) {
        assert_true(sent[r] <= LOG_MANY);
        total += sent[r];
    }
    assert_int_equal(total, 2 * (MANY - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agree__all_alike),     cmocka_unit_test(test_agree__odd_one),
        cmocka_unit_test(test_agree__failing_rank),  cmocka_unit_test(test_agree__long_texts),
        cmocka_unit_test(test_agree__majorities),    cmocka_unit_test(test_agree__faults),
        cmocka_unit_test(test_agree__messages),      cmocka_unit_test(test_agree__fields),
        cmocka_unit_test(test_agree__long_subjects),
    };
    return cmocka_run_group_tests_name("agree", tests, NULL, NULL);
}
