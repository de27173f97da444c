/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlpack.h - tensors to and from other libraries in the same process, without a copy: NumPy,
 * PyTorch, JAX and others speak DLPack.
 */
#ifndef RESHARD_DLPACK_H
#define RESHARD_DLPACK_H

#include <reshard/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== explicit ===================================================================================
 * One pair of calls for each of the two structures that DLPack has had; exchange the versioned one
 * where both sides know it.
 */

/*
 * The structures of DLPack (dlpack.h of dmlc), declared here so that nothing has to be installed.
 * Only the names differ, so pointers may be cast. CPU memory only.
 */
typedef struct reshard_dl_tensor {
    void *data;
    struct {
        int32_t device_type; /* 1: CPU */
        int32_t device_id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code; /* 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool */
        uint8_t bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; may be NULL on import, but not on export */
    uint64_t byte_offset;
} reshard_dl_tensor;

/* DLManagedTensor. */
typedef struct reshard_dl_managed {
    reshard_dl_tensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct reshard_dl_managed *self);
} reshard_dl_managed;

/* DLManagedTensorVersioned of version 1.x. */
typedef struct reshard_dl_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager_ctx;
    void (*deleter)(struct reshard_dl_versioned *self);
    uint64_t flags; /* bit 0: read only. bit 1: copied */
    reshard_dl_tensor dl_tensor;
} reshard_dl_versioned;

/* Takes over the structure: its deleter is called when the memory is no longer used, but not if
 * this call fails. Errors: UNSUPPORTED (a device other than the CPU, several lanes, a type without
 * an equivalent here, another major version, read-only memory), RANGE, INVALID. */
RESHARD_API reshard_status reshard_tensor_from_dlpack(reshard_context *context,
                                                      reshard_dl_managed *managed,
                                                      reshard_tensor **out_tensor);
RESHARD_API reshard_status reshard_tensor_from_dlpack_versioned(reshard_context *context,
                                                                reshard_dl_versioned *managed,
                                                                reshard_tensor **out_tensor);
/* Makes a new structure that holds a reference to the tensor. Whoever receives it calls its
 * deleter. Errors: UNSUPPORTED for distributed tensors. */
RESHARD_API reshard_status reshard_tensor_to_dlpack(reshard_tensor *tensor,
                                                    reshard_dl_managed **out_managed);
RESHARD_API reshard_status reshard_tensor_to_dlpack_versioned(reshard_tensor *tensor,
                                                              reshard_dl_versioned **out_managed);

#ifdef __cplusplus
}
#endif
#endif
