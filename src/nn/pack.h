/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h - a tensor of which only this rank's chunk is kept. Reference-counted. */
#ifndef RS_NN_PACK_H
#define RS_NN_PACK_H

#include <reshard/input_reshard.h>

#include "base/references.h"
#include "tensor/core/distribution.h"

struct reshard_packed {
    rs_references references;
    reshard_context *context;
    bool is_chunk;
    /* the chunk, in dense memory of its own, or an alias of the whole tensor if it is not cut */
    reshard_tensor *kept;
    uint64_t version; /* of the whole tensor's memory when it was packed */
    /* How the chunks of all ranks make up the tensor. Layouts are made only when needed, because
     * they would take more memory than small chunks do. */
    rs_exec_cache *cache;
    int32_t dim; /* the dim that is cut; -1: the elements are cut in row-major order */
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    /* The group and layout of a distributed tensor; NULL for a local one. */
    rs_exec_cache *outer_cache;
    reshard_layout *outer_layout;
    /* What was packed, to recognize it when it is packed again. Storage and chunk point at each
     * other without holding each other; whichever is freed first clears the other's pointer. */
    rs_storage *storage; /* the storage that has this as its attachment; NULL: none */
    const unsigned char *data;
    int64_t strides[RESHARD_NDIM_MAX];
    const void *owner;
    /* Called when the chunk is freed. */
    void (*gone)(void *user, size_t bytes);
    void *user;
};

/* How to pack: over which ranks to cut, along which dim, and whether to verify first that all ranks
 * have the same values. */
typedef struct rs_pack_way {
    reshard_group *group;
    int32_t dim;
    bool verify;
} rs_pack_way;
rs_pack_way rs_pack_way_over(const reshard_device_mesh *mesh, int32_t dim, bool verify);

reshard_status rs_pack(reshard_context *context, reshard_tensor *tensor, const rs_pack_way *way,
                       bool replicated, reshard_packed **out_packed);
reshard_packed *rs_packed_retain(reshard_packed *packed);
/* The bytes that it keeps. */
size_t rs_packed_bytes(const reshard_packed *packed);

#endif
