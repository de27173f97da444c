/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storage.c - tensors over memory-mapped files and over memory that ranks share. Both are borrowed
 * memory, with a record that gives it back.
 */
#include <reshard/distributed.h>

#include "base/context.h"
#include "base/error.h"
#include "system/file.h"
#include "tensor/core/tensor.h"
#include "transport/group.h"

#include <inttypes.h>
#include <string.h>

static reshard_status measure(reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                              size_t *out_bytes)
{
    int64_t volume = 0;
    reshard_status status = rs_extents_check(ndim, shape, &volume);
    return status == RESHARD_OK ? rs_count_bytes(dtype, volume, out_bytes) : status;
}

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct mapped {
    reshard_context *context;
    rs_file_mapping mapping; /* bytes is NULL if the tensor is empty and nothing is mapped */
} mapped;

static void unmap(void *user)
{
    mapped *m = user;
    if (m->mapping.bytes != NULL)
        rs_file_unmap(&m->mapping);
    rs_release(m->context, m);
}

static reshard_status check_offset(const char *path, uint64_t offset, reshard_dtype dtype)
{
    if (offset % rs_element_bytes(dtype) != 0)
        return rs_fail_about(RESHARD_ERR_INVALID, path,
                             "an offset of %" PRIu64 " bytes for elements of %s", offset,
                             reshard_dtype_name(dtype));
    return RESHARD_OK;
}

static reshard_status map_range(reshard_context *context, const char *path, uint64_t offset,
                                size_t bytes, mapped *m)
{
    rs_file *file = NULL;
    uint64_t size = 0;
    reshard_status status = rs_file_open(context, path, &file);
    if (status == RESHARD_OK && bytes != 0)
        status = rs_file_map(file, offset, bytes, &m->mapping);
    else if (status == RESHARD_OK)
        status = rs_file_size(file, &size);
    if (status == RESHARD_OK && bytes == 0 && offset > size)
        status =
            rs_fail_about(RESHARD_ERR_CORRUPT, path,
                          "a tensor at byte %" PRIu64 ", and the file has %" PRIu64, offset, size);
    rs_file_close(file);
    return status;
}

reshard_status reshard_tensor_map_file(reshard_context *context, const char *path, uint64_t offset,
                                       reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                                       reshard_tensor **out_tensor)
{
    size_t bytes = 0;
    mapped *m = NULL;
    reshard_status status = measure(dtype, ndim, shape, &bytes);
    if (status == RESHARD_OK)
        status = check_offset(path, offset, dtype);
    if (status == RESHARD_OK) {
        m = rs_allocate_zeroed(context, sizeof *m);
        status = m != NULL ? RESHARD_OK : rs_allocation_status();
    }
    if (status == RESHARD_OK) {
        m->context = context;
        status = map_range(context, path, offset, bytes, m);
    }
    if (status == RESHARD_OK)
        status = reshard_tensor_borrow(context, dtype, ndim, shape, NULL, m->mapping.bytes, unmap,
                                       m, out_tensor);
    if (status != RESHARD_OK && m != NULL)
        unmap(m);
    return status;
}

/* ---- groups ---------------------------------------------------------------------------------- */

typedef struct shared {
    reshard_context *context;
    reshard_group *group;
    void *memory;
} shared;

static void give_back(void *user)
{
    shared *s = user;
    reshard_group_free(s->group, s->memory);
    reshard_group_release(s->group);
    rs_release(s->context, s);
}

reshard_status reshard_tensor_create_shared(reshard_context *context, reshard_group *group,
                                            reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                                            reshard_tensor **out_tensor)
{
    size_t bytes = 0;
    shared *s = NULL;
    reshard_tensor *tensor = NULL;
    reshard_status status = rs_group_choose(&group);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "create_shared");
    status = measure(dtype, ndim, shape, &bytes);
    if (status == RESHARD_OK) {
        s = rs_allocate_zeroed(context, sizeof *s);
        status = s != NULL ? RESHARD_OK : rs_allocation_status();
    }
    if (status == RESHARD_OK) {
        s->context = context;
        s->group = reshard_group_retain(group);
        /* The tensor is made before the memory, with `s` in its place, so that nothing that can
         * fail on one rank alone comes after the collective allocation. */
        status = reshard_tensor_borrow(context, dtype, ndim, shape, NULL, s, give_back, s, &tensor);
        if (status != RESHARD_OK)
            give_back(s);
    }
    status = reshard_group_agree(group, rs_fail_within(status, "create_shared"));
    if (status == RESHARD_OK)
        status = reshard_group_alloc(group, bytes, &s->memory);
    if (status != RESHARD_OK) {
        reshard_tensor_release(tensor);
        return status;
    }
    if (bytes != 0)
        memset(s->memory, 0, bytes);
    tensor->storage->bytes = s->memory;
    tensor->data = s->memory;
    *out_tensor = tensor;
    return RESHARD_OK;
}
