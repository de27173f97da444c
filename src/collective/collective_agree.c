/* SPDX-License-Identifier: Apache-2.0 */
/* collective_agree.c - do all ranks ask for the same? One gather when they do. */
#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/text.h"
#include "collective/collective.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Offers of so many ranks fit on the stack. */
#define STACK_OFFERS 32

void rs_collective_ask(rs_collective *c, int32_t dtype, int32_t root, int32_t reduction,
                       int64_t count, rs_digest *out_digest)
{
    rs_asked *asked = &c->asked;
    memset(asked, 0, sizeof *asked);
    (void)snprintf(asked->name, sizeof asked->name, "%s", c->name);
    asked->dtype = dtype;
    asked->root = root;
    asked->reduction = reduction;
    asked->count = count;
    rs_digest_init(out_digest);
    rs_digest_bytes(out_digest, asked->name, sizeof asked->name);
    rs_digest_u64(out_digest, (uint64_t)asked->dtype);
    rs_digest_u64(out_digest, (uint64_t)root);
    rs_digest_u64(out_digest, (uint64_t)reduction);
    rs_digest_u64(out_digest, (uint64_t)count);
}

static bool same(const rs_asked *a, const rs_asked *b)
{
    return memcmp(a->digest, b->digest, sizeof a->digest) == 0;
}

/* The odd one out is the one that fewest agree with; of two, the second. -1: all agree. */
static int32_t find_odd(const rs_asked *all, int32_t size)
{
    int32_t odd = -1, fewest = size;
    for (int32_t i = 1; i < size && odd < 0; i++) {
        if (!same(&all[i], &all[0]))
            odd = i;
    }
    for (int32_t i = 0; i < size && odd >= 0; i++) {
        int32_t alike = 0;
        for (int32_t k = 0; k < size; k++)
            alike += same(&all[i], &all[k]);
        if (alike <= fewest) {
            fewest = alike;
            odd = i;
        }
    }
    return odd;
}

static void describe(rs_text *text, const rs_asked *asked)
{
    rs_text_add(text, "%.*s", (int)sizeof asked->name - 1, asked->name);
    if (asked->count >= 0)
        rs_text_add(text, " of %" PRId64, asked->count);
    if (asked->dtype >= 0)
        rs_text_add(text, " %s", reshard_dtype_name((reshard_dtype)asked->dtype));
    if (asked->reduction >= 0)
        rs_text_add(text, " by %s", reshard_reduction_name((reshard_reduction)asked->reduction));
    if (asked->root >= 0)
        rs_text_add(text, " with root %d", asked->root);
}

static reshard_status compare(const rs_collective *c, const rs_asked *all, int32_t size,
                              reshard_status status)
{
    for (int32_t i = 0; i < size; i++) {
        if (all[i].failed)
            return reshard_group_agree(c->group, status);
    }
    int32_t odd = find_odd(all, size);
    if (odd < 0)
        return RESHARD_OK;
    int32_t other = odd == 0 ? 1 : 0;
    while (same(&all[other], &all[odd]))
        other++;
    char odd_words[120], other_words[120];
    rs_text odd_text, other_text;
    rs_text_init(&odd_text, odd_words, sizeof odd_words);
    rs_text_init(&other_text, other_words, sizeof other_words);
    describe(&odd_text, &all[odd]);
    describe(&other_text, &all[other]);
    if (strcmp(odd_words, other_words) == 0)
        return rs_fail(RESHARD_ERR_MISMATCH,
                       "rank %d asks for another %s than rank %d: what they pass differs", odd,
                       odd_words, other);
    return rs_fail(RESHARD_ERR_MISMATCH, "rank %d asks for %s, rank %d for %s", odd, odd_words,
                   other, other_words);
}

reshard_status rs_collective_agree(const rs_collective *c, reshard_status status)
{
    int32_t size = reshard_group_size(c->group);
    rs_asked few[STACK_OFFERS], *all = few;
    size_t bytes = (size_t)size * sizeof *all;
    if (size > STACK_OFFERS) {
        /* A rank without room for the offers cannot take part in gathering them. */
        all = rs_allocate(c->context, bytes);
        if (all == NULL)
            status = rs_allocation_status();
        status = reshard_group_agree(c->group, status);
        if (status != RESHARD_OK) {
            rs_release(c->context, all, bytes);
            return status;
        }
    }
    rs_asked mine = c->asked;
    mine.failed = status != RESHARD_OK;
    reshard_status gathered = reshard_group_gather_bytes(c->group, &mine, sizeof mine, all);
    if (gathered == RESHARD_OK)
        gathered = compare(c, all, size, status);
    if (all != few)
        rs_release(c->context, all, bytes);
    return gathered;
}
