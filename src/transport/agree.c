/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.c - see agree.h. Ballots are joined on their way up a binomial tree to rank 0, and the
 * result comes back down.
 *
 * A ballot holds one claim and its weight. Ballots are joined as in the majority vote of Boyer and
 * Moore (1981): equal claims add their weights; of different claims, the heavier one stays, with
 * the difference of the weights. If more than half of the ranks make the same claim, it is the one
 * that is left. Only if claims differ is there a second round, in which each rank compares its own
 * claim with the one that is left, and fails if it differs. The lowest of these ranks is the odd
 * one out.
 */
#include "transport/agree.h"

#include "base/error.h"
#include "base/shorten.h"

#include <assert.h>
#include <string.h>

typedef struct ballot {
    int32_t failed; /* the lowest rank that failed, or -1 */
    reshard_status status;
    int32_t holder;        /* a rank that makes this claim; -1 if nobody has claimed anything */
    int32_t weight;        /* of the claim; 0 if as many ranks are against it as for it */
    int32_t differs;       /* non-zero if there are different claims */
    int16_t hint;          /* a reshard_hint */
    int16_t subject_bytes; /* of the failure's subject, with its NUL; it ends where `text` ends */
    uint64_t digest[2];
    uint64_t numbers[RS_AGREE_NUMBERS];
    char text[448]; /* of the failure; without one, the claim's words */
} ballot;

static bool claims_equal(const ballot *a, const ballot *b)
{
    return memcmp(a->digest, b->digest, sizeof a->digest) == 0;
}

/* `other` comes from higher ranks. */
static void join_claims(ballot *mine, const ballot *other)
{
    int32_t differs = mine->differs || other->differs;
    if (other->holder < 0)
        return;
    if (mine->holder < 0) {
        *mine = *other;
    } else if (claims_equal(mine, other)) {
        mine->weight += other->weight;
        mine->differs = differs;
    } else {
        int32_t weight = mine->weight - other->weight;
        if (weight < 0)
            *mine = *other;
        mine->weight = weight < 0 ? -weight : weight;
        mine->differs = 1;
    }
}

static void join(ballot *mine, const ballot *other)
{
    uint64_t numbers[RS_AGREE_NUMBERS];
    for (int i = 0; i < RS_AGREE_NUMBERS; i++)
        numbers[i] = mine->numbers[i] > other->numbers[i] ? mine->numbers[i] : other->numbers[i];
    if (mine->failed < 0 && other->failed < 0)
        join_claims(mine, other);
    else if (mine->failed < 0 || (other->failed >= 0 && other->failed < mine->failed))
        *mine = *other;
    memcpy(mine->numbers, numbers, sizeof numbers);
}

/* Goes up the tree that rs_group_broadcast_small goes down: a rank hands its ballot to the rank
 * from which it will hear the result. */
static reshard_status combine(reshard_group *group, ballot *mine)
{
    int64_t step = 1;
    while (step < group->size)
        step *= 2;
    reshard_status status = RESHARD_OK;
    for (step /= 2; step >= 1 && status == RESHARD_OK; step /= 2) {
        if (group->rank < step && group->rank + step < group->size) {
            ballot other;
            status =
                rs_group_receive_small(group, (int32_t)(group->rank + step), &other, sizeof other);
            if (status == RESHARD_OK)
                join(mine, &other);
        } else if (group->rank >= step && group->rank < 2 * step) {
            status = rs_group_send_small(group, (int32_t)(group->rank - step), mine, sizeof *mine);
        }
    }
    return status;
}

static reshard_status vote(reshard_group *group, ballot *b)
{
    reshard_status status = combine(group, b);
    if (status == RESHARD_OK)
        status = rs_group_broadcast_small(group, b, sizeof *b);
    if (status == RESHARD_OK && b->failed >= 0)
        status = rs_fail_of_rank(
            b->failed, b->status, (reshard_hint)b->hint,
            b->subject_bytes != 0 ? b->text + sizeof b->text - b->subject_bytes : "", b->text);
    return status;
}

static void fill(ballot *b, const reshard_group *group, reshard_status status,
                 const rs_claim *claim, const uint64_t *numbers)
{
    memset(b, 0, sizeof *b);
    b->failed = status != RESHARD_OK ? group->rank : -1;
    b->status = status;
    b->holder = claim != NULL ? group->rank : -1;
    b->weight = claim != NULL;
    if (claim != NULL)
        memcpy(b->digest, claim->digest, sizeof b->digest);
    if (numbers != NULL)
        memcpy(b->numbers, numbers, sizeof b->numbers);
    const char *text = claim != NULL && claim->words != NULL ? claim->words : "";
    const rs_error *error = rs_error_last();
    rs_shorten(status != RESHARD_OK ? error->text : text, b->text, sizeof b->text);
    if (status == RESHARD_OK)
        return;
    b->hint = (int16_t)error->hint;
    /* The text matters more: a subject that does not fit beside it is left out. */
    size_t bytes = strlen(error->subject) + 1;
    if (bytes > 1 && bytes <= sizeof b->text - strlen(b->text) - 1) {
        memcpy(b->text + sizeof b->text - bytes, error->subject, bytes);
        b->subject_bytes = (int16_t)bytes;
    }
}

/* The status of a rank after comparing its claim with the one that is left. */
static reshard_status judge(const ballot *left, const rs_claim *claim)
{
    if (claim == NULL || memcmp(left->digest, claim->digest, sizeof left->digest) == 0)
        return RESHARD_OK;
    if (claim->words != NULL && strcmp(claim->words, left->text) != 0)
        return rs_fail(RESHARD_ERR_MISMATCH, "%s, but rank %d: %s", claim->words, left->holder,
                       left->text);
    return rs_fail(RESHARD_ERR_MISMATCH, "%s differs from what rank %d has", claim->what,
                   left->holder);
}

reshard_status rs_group_agree_on(reshard_group *group, reshard_status status, const rs_claim *claim,
                                 uint64_t *numbers)
{
    assert(claim == NULL || claim->what != NULL);
    ballot left, second;
    fill(&left, group, status, claim, numbers);
    status = vote(group, &left);
    if (status == RESHARD_OK && left.differs) {
        fill(&second, group, judge(&left, claim), NULL, NULL);
        status = vote(group, &second);
        assert(status != RESHARD_OK);
    }
    if (status == RESHARD_OK && numbers != NULL)
        memcpy(numbers, left.numbers, sizeof left.numbers);
    return status;
}

reshard_status reshard_group_agree(reshard_group *group, reshard_status status)
{
    /* An error of the caller's own says more than that there is nobody to tell. */
    if (group == NULL && status != RESHARD_OK && rs_group_current() == NULL)
        return status;
    reshard_status chosen = rs_group_choose(&group);
    return chosen == RESHARD_OK ? rs_group_agree_on(group, status, NULL, NULL)
                                : rs_fail_within(chosen, "agree");
}
