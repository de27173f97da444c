/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.c - keeps this rank's chunk of a replicated tensor, and restores the whole.
 *
 * A tensor that has the dim is cut along it by the chunk rule; otherwise its elements are cut in
 * row-major order. Unpacking is a move from the layout of chunks to the replicated one, so uneven
 * and empty chunks are no special case.
 */
#include "nn/pack.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/shape.h"
#include "base/thread_state.h"
#include "tensor/core/move.h"

#include <reshard/group.h>

#include <assert.h>
#include <string.h>

/* ---- releasing ------------------------------------------------------------------------------- */

reshard_packed *rs_packed_retain(reshard_packed *packed)
{
    rs_reference_add(&packed->references);
    return packed;
}

size_t rs_packed_bytes(const reshard_packed *packed)
{
    return rs_tensor_bytes(packed->kept);
}

void reshard_packed_destroy(reshard_packed *packed)
{
    if (packed == NULL || !rs_reference_drop(&packed->references))
        return;
    if (packed->storage != NULL) {
        packed->storage->attachment = NULL;
        packed->storage->forget_attachment = NULL;
    }
    if (packed->gone != NULL)
        packed->gone(packed->user, packed->kept != NULL ? rs_packed_bytes(packed) : 0);
    reshard_tensor_release(packed->kept);
    reshard_layout_release(packed->outer_layout);
    rs_exec_cache_release(packed->cache);
    rs_exec_cache_release(packed->outer_cache);
    rs_release(packed->context, packed);
}

/* ---- packing --------------------------------------------------------------------------------- */

/* The digest covers shape and dtype: the same bytes in another shape are another tensor. */
static void digest_tensor(const reshard_tensor *dense, uint64_t out_digest[2])
{
    rs_digest digest;
    rs_digest_init(&digest);
    rs_digest_u64(&digest, (uint64_t)dense->dtype);
    rs_digest_i64s(&digest, dense->shape, dense->ndim);
    rs_digest_bytes(&digest, dense->data, rs_tensor_bytes(dense));
    rs_digest_finish(&digest, out_digest);
}

static reshard_status verify_same(reshard_context *context, reshard_tensor *tensor,
                                  reshard_group *group)
{
    uint64_t digest[2] = {0, 0};
    reshard_tensor *dense = NULL;
    reshard_status status = rs_tensor_densify(context, tensor, &dense);
    if (status == RESHARD_OK)
        digest_tensor(dense, digest);
    reshard_tensor_release(dense);
    char what[224];
    rs_tensor_words words = rs_tensor_describe(tensor);
    (void)strcpy(what, "a tensor of ");
    (void)strcat(what, words.text);
    (void)strcat(what, " is not replicated");
    return rs_agree_on(group, status, digest, what, 0, NULL);
}

/* Copies the chunk. A view would keep the memory of the whole tensor. */
static reshard_status copy_chunk(reshard_packed *p, const reshard_tensor *tensor, int32_t dim)
{
    const reshard_group *group = rs_exec_cache_group(p->cache);
    reshard_tensor *view = NULL;
    int64_t shape[RESHARD_NDIM_MAX], length = tensor->shape[dim];
    int64_t step = rs_divide_up(length, reshard_group_size(group));
    int64_t start = rs_min(step * reshard_group_rank(group), length);
    memcpy(shape, tensor->shape, sizeof shape);
    shape[dim] = rs_min(step, length - start);
    reshard_status status = rs_tensor_view(p->context, tensor, tensor->ndim, shape, tensor->strides,
                                           start * tensor->strides[dim], &view);
    if (status == RESHARD_OK)
        status = rs_tensor_make(p->context, tensor->dtype, tensor->ndim, shape, &p->kept);
    if (status == RESHARD_OK && view->volume != 0)
        rs_tensor_copy(view, p->kept);
    reshard_tensor_release(view);
    return status;
}

/* Packs a local tensor. */
static reshard_status cut_tensor(reshard_packed *p, reshard_tensor *tensor, const rs_pack_way *way)
{
    int32_t dim = way->dim < 0 ? way->dim + tensor->ndim : way->dim;
    reshard_tensor *dense = NULL, *row = NULL;
    reshard_status status = rs_exec_cache_of(way->group, &p->cache);
    if (status != RESHARD_OK)
        return status;
    p->dim = dim >= 0 && dim < tensor->ndim ? dim : -1;
    if (p->dim >= 0)
        return copy_chunk(p, tensor, dim);
    const int64_t one = 1;
    status = rs_tensor_densify(p->context, tensor, &dense);
    if (status == RESHARD_OK)
        status = rs_tensor_view(p->context, dense, 1, &tensor->volume, &one, 0, &row);
    if (status == RESHARD_OK)
        status = copy_chunk(p, row, 0);
    reshard_tensor_release(row);
    reshard_tensor_release(dense);
    return status;
}

static reshard_status keep_whole(reshard_packed *p, const reshard_tensor *tensor)
{
    p->version = rs_tensor_version(tensor);
    return rs_tensor_alias(p->context, tensor, &p->kept);
}

reshard_status rs_pack(reshard_context *context, reshard_tensor *tensor, const rs_pack_way *way,
                       bool replicated, reshard_packed **out_packed)
{
    assert(way->group != NULL);
    reshard_packed *p = rs_allocate_zeroed(context, sizeof *p);
    if (p == NULL)
        return rs_allocation_status();
    atomic_init(&p->references, 1);
    p->context = context;
    reshard_tensor *local = tensor;
    reshard_status status = RESHARD_OK;
    if (tensor->distribution != NULL && replicated) {
        p->outer_cache = rs_exec_cache_retain(tensor->distribution->cache);
        p->outer_layout = reshard_layout_retain(tensor->distribution->layout);
        local = tensor->distribution->shards[0];
    }
    int32_t size = replicated ? reshard_group_size(way->group) : 1;
    p->is_chunk = size > 1 && local->volume >= size;
    if (p->is_chunk && way->verify)
        status = verify_same(context, local, way->group);
    if (status == RESHARD_OK)
        status = p->is_chunk ? cut_tensor(p, local, way) : keep_whole(p, tensor);
    if (status != RESHARD_OK) {
        reshard_packed_destroy(p);
        return status;
    }
    p->ndim = local->ndim;
    memcpy(p->shape, local->shape, sizeof p->shape);
    *out_packed = p;
    return RESHARD_OK;
}

/* ---- unpacking ------------------------------------------------------------------------------- */

/* Gives the gathered elements their shape back, and makes them a distributed tensor again if they
 * were one. */
static reshard_status restore(const reshard_packed *p, const reshard_tensor *gathered,
                              reshard_tensor **out_tensor)
{
    int64_t strides[RESHARD_NDIM_MAX];
    reshard_tensor *local = NULL;
    rs_dense_strides(p->ndim, p->shape, strides);
    reshard_status status = rs_tensor_view(p->context, gathered->distribution->shards[0], p->ndim,
                                           p->shape, strides, 0, &local);
    if (status == RESHARD_OK && p->outer_layout != NULL)
        status = rs_distributed_wrap(p->context, p->outer_cache, p->outer_layout, local->dtype,
                                     &local, out_tensor);
    else if (status == RESHARD_OK)
        *out_tensor = reshard_tensor_retain(local);
    reshard_tensor_release(local);
    return status;
}

/* Makes the layouts of chunks and of the whole, for the tensor or for its elements in row-major
 * order. */
static reshard_status make_layouts(const reshard_packed *p, reshard_layout **out_cut,
                                   reshard_layout **out_whole)
{
    int32_t size = reshard_group_size(rs_exec_cache_group(p->cache));
    int32_t dim = p->dim >= 0 ? p->dim : 0, ndim = p->dim >= 0 ? p->ndim : 1;
    int64_t volume = rs_volume(p->ndim, p->shape);
    reshard_mesh *mesh = NULL;
    reshard_spec *cut = NULL, *whole = NULL;
    const int64_t *shape = p->dim >= 0 ? p->shape : &volume;
    reshard_status status = reshard_spec_chunk(p->context, dim, size, NULL, &cut);
    if (status == RESHARD_OK)
        status = reshard_layout_create(p->context, cut, ndim, shape, out_cut);
    if (status == RESHARD_OK)
        status = reshard_mesh_create(p->context, 1, NULL, &size, NULL, &mesh);
    if (status == RESHARD_OK)
        status = reshard_spec_create(p->context, mesh, 0, NULL, &whole);
    if (status == RESHARD_OK)
        status = reshard_layout_create(p->context, whole, ndim, shape, out_whole);
    reshard_spec_release(cut);
    reshard_spec_release(whole);
    reshard_mesh_release(mesh);
    return status;
}

reshard_status reshard_unpack_replicated(reshard_packed *p, reshard_tensor **out_tensor)
{
    reshard_tensor *chunks = NULL, *gathered = NULL;
    reshard_layout *cut = NULL, *whole = NULL;
    if (!p->is_chunk) {
        if (rs_tensor_version(p->kept) != p->version)
            return rs_fail(RESHARD_ERR_INVALID, "a saved tensor (%s) was overwritten",
                           rs_tensor_describe(p->kept).text);
        *out_tensor = reshard_tensor_retain(p->kept);
        return RESHARD_OK;
    }
    reshard_status status = make_layouts(p, &cut, &whole);
    if (status == RESHARD_OK)
        status = rs_distributed_wrap(p->context, p->cache, cut, p->kept->dtype, &p->kept, &chunks);
    status = rs_redistribute_after(status, rs_exec_cache_group(p->cache), "unpack", p->context,
                                   chunks, whole, p->kept->dtype, &gathered);
    if (status == RESHARD_OK)
        status = restore(p, gathered, out_tensor);
    reshard_tensor_release(chunks);
    reshard_tensor_release(gathered);
    reshard_layout_release(cut);
    reshard_layout_release(whole);
    return status;
}

rs_pack_way rs_pack_way_over(const reshard_device_mesh *mesh, int32_t dim, bool verify)
{
    reshard_device_mesh_info info = {.size = sizeof info};
    (void)reshard_device_mesh_get_info(mesh, &info);
    return (rs_pack_way){info.group, dim, verify};
}

reshard_status reshard_pack_replicated(reshard_tensor *tensor, reshard_device_mesh *mesh,
                                       int32_t dim, int verify, reshard_packed **out_packed)
{
    rs_pack_way way = rs_pack_way_over(mesh, dim, verify != 0);
    bool replicated = way.group != NULL;
    if (tensor == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "pack: the tensor is NULL");
    if (tensor->distribution != NULL && replicated) {
        rs_thread_state *state = rs_thread_state_get();
        reshard_group *before = state->replicas;
        state->replicas = way.group;
        replicated = rs_layout_sameness(tensor->distribution->layout,
                                        rs_distributed_group(tensor)) == RS_SAME_YES;
        state->replicas = before;
    }
    return rs_pack(tensor->context, tensor, &way, replicated, out_packed);
}
