/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlpack.c - imports and exports tensors through DLPack, with the original and the versioned
 * structure. Both contain a DLTensor, and each has a deleter that takes its own type.
 */
#include "base/context.h"
#include "base/error.h"
#include "tensor/core/tensor.h"

#include <reshard/dlpack.h>

#include <inttypes.h>
#include <string.h>

enum { DEVICE_CPU = 1, FLAG_READ_ONLY = 1, VERSION_MAJOR = 1, VERSION_MINOR = 1 };
enum {
    CODE_INT = 0,
    CODE_UINT = 1,
    CODE_FLOAT = 2,
    CODE_BFLOAT = 4,
    CODE_COMPLEX = 5,
    CODE_BOOL = 6,
    /* The 8-bit floats, from version 1.1 on. */
    CODE_F8_E4M3FN = 10,
    CODE_F8_E4M3FNUZ = 11,
    CODE_F8_E5M2 = 12,
    CODE_F8_E5M2FNUZ = 13,
    CODE_F8_E8M0FNU = 14,
};

static const struct {
    reshard_dtype dtype;
    uint8_t code, bits;
} types[] = {
    {RESHARD_BOOL, CODE_BOOL, 8},
    {RESHARD_U8, CODE_UINT, 8},
    {RESHARD_I8, CODE_INT, 8},
    {RESHARD_F8_E5M2, CODE_F8_E5M2, 8},
    {RESHARD_F8_E4M3, CODE_F8_E4M3FN, 8},
    {RESHARD_F8_E8M0, CODE_F8_E8M0FNU, 8},
    {RESHARD_F8_E4M3FNUZ, CODE_F8_E4M3FNUZ, 8},
    {RESHARD_F8_E5M2FNUZ, CODE_F8_E5M2FNUZ, 8},
    {RESHARD_I16, CODE_INT, 16},
    {RESHARD_U16, CODE_UINT, 16},
    {RESHARD_F16, CODE_FLOAT, 16},
    {RESHARD_BF16, CODE_BFLOAT, 16},
    {RESHARD_I32, CODE_INT, 32},
    {RESHARD_U32, CODE_UINT, 32},
    {RESHARD_F32, CODE_FLOAT, 32},
    {RESHARD_C64, CODE_COMPLEX, 64},
    {RESHARD_C128, CODE_COMPLEX, 128},
    {RESHARD_F64, CODE_FLOAT, 64},
    {RESHARD_I64, CODE_INT, 64},
    {RESHARD_U64, CODE_UINT, 64},
};
enum { TYPES = (int)(sizeof types / sizeof *types) };

/* ---- import ---------------------------------------------------------------------------------- */

static reshard_status find_dtype(const reshard_dl_tensor *dl, reshard_dtype *out_dtype)
{
    if (dl->dtype.lanes != 1)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "DLPack: elements of %u lanes",
                       (unsigned)dl->dtype.lanes);
    for (int i = 0; i < TYPES; i++) {
        if (types[i].code == dl->dtype.code && types[i].bits == dl->dtype.bits) {
            *out_dtype = types[i].dtype;
            return RESHARD_OK;
        }
    }
    return rs_fail(RESHARD_ERR_UNSUPPORTED, "DLPack: the type of code %u with %u bits",
                   (unsigned)dl->dtype.code, (unsigned)dl->dtype.bits);
}

static reshard_status borrow(reshard_context *context, const reshard_dl_tensor *dl,
                             void (*release)(void *user), void *user, reshard_tensor **out_tensor)
{
    reshard_dtype dtype = RESHARD_U8;
    if (dl->device.device_type != DEVICE_CPU)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "DLPack: memory of device type %d; only the CPU's (1) can be used",
                       (int)dl->device.device_type);
    if (dl->ndim > 0 && dl->shape == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "DLPack: %d dimensions without a shape", (int)dl->ndim);
    reshard_status status = find_dtype(dl, &dtype);
    if (status != RESHARD_OK)
        return status;
    void *data = dl->data != NULL ? (unsigned char *)dl->data + dl->byte_offset : NULL;
    if ((uintptr_t)data % (rs_element_bytes(dtype) > 8 ? 8 : rs_element_bytes(dtype)) != 0)
        return rs_fail(RESHARD_ERR_INVALID, "DLPack: data that are not aligned to %s",
                       reshard_dtype_name(dtype));
    return rs_fail_within(reshard_tensor_borrow(context, dtype, dl->ndim, dl->shape, dl->strides,
                                                data, release, user, out_tensor),
                          "DLPack");
}

static void let_go(void *user)
{
    reshard_dl_managed *managed = user;
    if (managed->deleter != NULL)
        managed->deleter(managed);
}

static void let_go_versioned(void *user)
{
    reshard_dl_versioned *managed = user;
    if (managed->deleter != NULL)
        managed->deleter(managed);
}

reshard_status reshard_tensor_from_dlpack(reshard_context *context, reshard_dl_managed *managed,
                                          reshard_tensor **out_tensor)
{
    return borrow(context, &managed->dl_tensor, let_go, managed, out_tensor);
}

reshard_status reshard_tensor_from_dlpack_versioned(reshard_context *context,
                                                    reshard_dl_versioned *managed,
                                                    reshard_tensor **out_tensor)
{
    /* With another major version, only version, manager_ctx and deleter may be read. */
    if (managed->version.major != VERSION_MAJOR)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "DLPack: version %" PRIu32 ".%" PRIu32 ", not %d.x",
                       managed->version.major, managed->version.minor, VERSION_MAJOR);
    if ((managed->flags & FLAG_READ_ONLY) != 0)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "DLPack: read-only memory");
    return borrow(context, &managed->dl_tensor, let_go_versioned, managed, out_tensor);
}

/* ---- export ---------------------------------------------------------------------------------- */

/* An exported structure and what it keeps alive. */
typedef struct holder {
    union {
        reshard_dl_managed old;
        reshard_dl_versioned versioned;
    } managed;
    reshard_context *context;
    reshard_tensor *tensor;
    int64_t shape[RESHARD_NDIM_MAX], strides[RESHARD_NDIM_MAX];
} holder;

static void delete_holder(holder *h)
{
    reshard_tensor_release(h->tensor);
    rs_release(h->context, h);
}

static void delete_old(reshard_dl_managed *self)
{
    if (self != NULL)
        delete_holder(self->manager_ctx);
}

static void delete_versioned(reshard_dl_versioned *self)
{
    if (self != NULL)
        delete_holder(self->manager_ctx);
}

static reshard_status make_holder(reshard_tensor *tensor, holder **out_holder)
{
    reshard_status status = rs_tensor_check_given(tensor, "DLPack");
    if (status != RESHARD_OK)
        return status;
    if (tensor->distribution != NULL)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "DLPack: a distributed tensor");
    holder *h = rs_allocate_zeroed(tensor->context, sizeof *h);
    if (h == NULL)
        return rs_allocation_status();
    h->context = tensor->context;
    h->tensor = reshard_tensor_retain(tensor);
    memcpy(h->shape, tensor->shape, sizeof h->shape);
    memcpy(h->strides, tensor->strides, sizeof h->strides);
    *out_holder = h;
    return RESHARD_OK;
}

static void describe(holder *h, reshard_dl_tensor *dl)
{
    const reshard_tensor *tensor = h->tensor;
    dl->data = tensor->data;
    dl->device.device_type = DEVICE_CPU;
    dl->ndim = tensor->ndim;
    dl->shape = h->shape;
    dl->strides = h->strides;
    dl->dtype.lanes = 1;
    for (int i = 0; i < TYPES; i++) {
        if (types[i].dtype == tensor->dtype) {
            dl->dtype.code = types[i].code;
            dl->dtype.bits = types[i].bits;
        }
    }
}

reshard_status reshard_tensor_to_dlpack(reshard_tensor *tensor, reshard_dl_managed **out_managed)
{
    holder *h = NULL;
    reshard_status status = make_holder(tensor, &h);
    if (status != RESHARD_OK)
        return status;
    reshard_dl_managed *managed = &h->managed.old;
    describe(h, &managed->dl_tensor);
    managed->manager_ctx = h;
    managed->deleter = delete_old;
    *out_managed = managed;
    return RESHARD_OK;
}

reshard_status reshard_tensor_to_dlpack_versioned(reshard_tensor *tensor,
                                                  reshard_dl_versioned **out_managed)
{
    holder *h = NULL;
    reshard_status status = make_holder(tensor, &h);
    if (status != RESHARD_OK)
        return status;
    reshard_dl_versioned *managed = &h->managed.versioned;
    describe(h, &managed->dl_tensor);
    managed->version.major = VERSION_MAJOR;
    managed->version.minor = VERSION_MINOR;
    managed->manager_ctx = h;
    managed->deleter = delete_versioned;
    *out_managed = managed;
    return RESHARD_OK;
}
