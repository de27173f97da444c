/* SPDX-License-Identifier: Apache-2.0 */
/* collective_agree.c - describes what a rank asks for, in words and as a digest, and compares
 * ranks. */
#include "base/digest.h"
#include "base/error.h"
#include "collective/collective.h"
#include "text/text.h"
#include "transport/agree.h"
#include "transport/group.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

reshard_status rs_collective_choose(rs_collective *c)
{
    return rs_fail_within(rs_group_choose(&c->group), "%s", c->name);
}

void rs_collective_ask(rs_collective *c, int32_t dtype, int32_t root, int32_t reduction,
                       int64_t count, rs_digest *out_digest)
{
    rs_text text;
    rs_text_init(&text, c->asked.words, sizeof c->asked.words);
    rs_text_add(&text, "%s", c->name);
    if (count >= 0)
        rs_text_add(&text, " of %" PRId64, count);
    if (dtype >= 0)
        rs_text_add(&text, " %s", reshard_dtype_name((reshard_dtype)dtype));
    if (reduction >= 0)
        rs_text_add(&text, " by %s", reshard_reduction_name((reshard_reduction)reduction));
    if (root >= 0)
        rs_text_add(&text, " with root %d", root);
    rs_digest_init(out_digest);
    rs_digest_bytes(out_digest, c->name, strlen(c->name));
    rs_digest_u64(out_digest, (uint64_t)dtype);
    rs_digest_u64(out_digest, (uint64_t)root);
    rs_digest_u64(out_digest, (uint64_t)reduction);
    rs_digest_u64(out_digest, (uint64_t)count);
}

reshard_status rs_collective_agree(const rs_collective *c, reshard_status status)
{
    assert(c->group != NULL && (status != RESHARD_OK || c->asked.words[0] != '\0'));
    char what[160];
    (void)snprintf(what, sizeof what, "%s: what is passed", c->asked.words);
    rs_claim claim = {.what = what, .words = c->asked.words};
    memcpy(claim.digest, c->asked.digest, sizeof claim.digest);
    return rs_group_agree_on(c->group, status, &claim, NULL);
}
