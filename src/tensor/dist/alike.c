/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alike.c - see alike.h. Whether ranks communicate must not depend on values or addresses, which
 * differ between ranks, but only on what all ranks do alike: shapes, layouts, and how often a
 * parameter was used. A rank whose shapes differ nevertheless is found by the next agreement, as
 * every one here makes a claim.
 */
#include "tensor/dist/alike.h"

#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "layout/layout.h"
#include "spec/spec.h"
#include "tensor/core/failure.h"
#include "tensor/dist/lift.h"
#include "tensor/dist/outline.h"
#include "text/text.h"
#include "transport/agree.h"

#include <reshard/group.h>

#include <stdio.h>
#include <string.h>

/* ---- comparing values ------------------------------------------------------------------------ */

static void digest_outline(const char *what, int32_t slot, const reshard_tensor *tensor,
                           rs_digest *digest)
{
    rs_digest_init(digest);
    rs_digest_bytes(digest, what, strlen(what));
    rs_digest_u64(digest, (uint64_t)slot);
    rs_digest_u64(digest, (uint64_t)tensor->dtype);
    rs_digest_i64s(digest, tensor->shape, tensor->ndim);
}

static reshard_status digest_values(reshard_tensor *tensor, rs_digest *digest)
{
    reshard_tensor *dense = NULL;
    reshard_status status = rs_tensor_densify(tensor->context, tensor, &dense);
    if (status == RESHARD_OK)
        rs_digest_bytes(digest, dense->data, rs_tensor_bytes(dense));
    reshard_tensor_release(dense);
    return status;
}

/* Collective. A rank that is not a member accepts what the others have. */
static reshard_status compare(const char *what, int32_t slot, reshard_tensor *tensor, bool member,
                              reshard_group *group)
{
    char words[300];
    rs_digest digest;
    digest_outline(what, slot, tensor, &digest);
    reshard_status status = member ? digest_values(tensor, &digest) : RESHARD_OK;
    rs_text text;
    rs_text_init(&text, words, sizeof words);
    rs_text_add(&text, "%s: ", what);
    if (slot >= 0)
        rs_text_add(&text, "input %d, ", slot);
    rs_text_add(&text, "a local tensor of %s", rs_tensor_describe(tensor).text);
    rs_claim claim = {.what = words, .words = words};
    rs_digest_finish(&digest, claim.digest);
    rs_scope_use_group(group);
    status = rs_group_agree_on(group, status, member ? &claim : NULL, NULL);
    if (status == RESHARD_OK)
        return RESHARD_OK;
    if (status == RESHARD_ERR_MISMATCH) {
        char found[600];
        (void)snprintf(found, sizeof found, "%s", reshard_error_text());
        status = rs_fail(RESHARD_ERR_MISMATCH,
                         "%s; beside distributed tensors a local one must be the same on all "
                         "ranks: if each rank has rows of its own, wrap them "
                         "(reshard_tensor_from_local)",
                         found);
    }
    rs_scope_note_told(group);
    return status;
}

reshard_status rs_compare_whole(const char *what, reshard_tensor *tensor, reshard_group *group)
{
    return compare(what, -1, tensor, true, group);
}

static bool is_parameter(const reshard_tensor *tensor)
{
    return tensor->requires_grad && tensor->node == NULL;
}

/* Whether this group's ranks have compared the tensor, or one like it. */
static bool is_compared(const char *what, int32_t slot, const reshard_tensor *tensor,
                        const reshard_tensor *like)
{
    rs_digest digest;
    uint64_t key[2];
    if (is_parameter(tensor))
        return tensor->compared == rs_group_number(rs_distributed_group(like));
    digest_outline(what, slot, tensor, &digest);
    rs_digest_finish(&digest, key);
    return rs_exec_cache_knows(like->distribution->cache, key);
}

static void note_compared(const char *what, int32_t slot, reshard_tensor *tensor,
                          const reshard_tensor *like)
{
    rs_digest digest;
    uint64_t key[2];
    digest_outline(what, slot, tensor, &digest);
    rs_digest_finish(&digest, key);
    if (is_parameter(tensor))
        tensor->compared = rs_group_number(rs_distributed_group(like));
    else
        rs_exec_cache_remember(like->distribution->cache, key);
}

/* ---- what layouts tell ----------------------------------------------------------------------- */

/* Whether the ranks' numbers differ along an axis. */
static bool differs_along(const reshard_mesh *mesh, int32_t axis, const rs_outline *all)
{
    int32_t step = 1;
    for (int32_t i = axis + 1; i < mesh->axis_count; i++)
        step *= mesh->sizes[i];
    for (int32_t i = 0; i < mesh->size; i++) {
        int32_t first = i - i / step % mesh->sizes[axis] * step;
        if (all[reshard_mesh_rank_at(mesh, i)].number !=
            all[reshard_mesh_rank_at(mesh, first)].number)
            return true;
    }
    return false;
}

/* Collective. Cuts dim 0 over all axes along which the tensor differs; NULL if there are none. */
static reshard_status find_axes(const char *what, const reshard_tensor *tensor, reshard_mesh *mesh,
                                reshard_group *group, reshard_spec **out_rows)
{
    rs_outline mine = rs_outline_of(tensor), *all = NULL;
    reshard_cut cuts[RESHARD_AXES_MAX];
    int32_t count = 0;
    memcpy(&mine.number, &tensor->kin.number, sizeof mine.number);
    reshard_status status = rs_outlines_gather(group, RESHARD_OK, what, &mine, &all);
    if (status != RESHARD_OK)
        return status;
    for (int32_t axis = 0; axis < mesh->axis_count; axis++) {
        if (differs_along(mesh, axis, all))
            cuts[count++] = (reshard_cut){
                .axis = axis,
                .placement = {.kind = RESHARD_SHARD, .dim = 0, .rule = RESHARD_CHUNK}};
    }
    rs_release(NULL, all);
    if (count > 0)
        status = reshard_spec_create(rs_scope_context(), mesh, count, cuts, out_rows);
    return status;
}

reshard_status rs_find_rows(const char *what, int32_t slot, reshard_tensor *tensor,
                            const reshard_tensor *like, reshard_spec **out_rows)
{
    reshard_group *group = rs_distributed_group(like);
    bool told = tensor->kin.number != 0 && tensor->kin.group != rs_group_number(group);
    bool same = tensor->sameness == RS_SAME_YES;
    reshard_layout *layout = NULL;
    *out_rows = NULL;
    if (tensor->sameness == RS_SAME_NO && !told)
        return rs_fail(RESHARD_ERR_INVALID,
                       "input %d is a local tensor that was declared to differ between ranks, and "
                       "cannot be used beside distributed ones",
                       slot);
    if (!told && (same || is_compared(what, slot, tensor, like)))
        return RESHARD_OK; /* as in all steps of a training loop but the first */
    reshard_status status =
        rs_layout_replicated(rs_scope_context(), like, tensor->ndim, tensor->shape, &layout);
    if (status != RESHARD_OK)
        return status;
    reshard_mesh *mesh = layout->spec->mesh;
    bool member = reshard_mesh_position_of(mesh, reshard_group_rank(group)) >= 0;
    if (told)
        status = find_axes(what, tensor, mesh, group, out_rows);
    bool unknown = !told || (*out_rows == NULL && !same && !is_compared(what, slot, tensor, like));
    if (status == RESHARD_OK && unknown) {
        status = compare(what, slot, tensor, member, group);
        if (status == RESHARD_OK)
            note_compared(what, slot, tensor, like);
    }
    reshard_layout_release(layout);
    return status;
}
