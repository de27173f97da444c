/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h - a tensor kept as one rank's chunk, counted by reference. */
#ifndef RS_NN_PACK_H
#define RS_NN_PACK_H

#include <reshard/input_reshard.h>

#include "tensor/core/distribution.h"

struct reshard_packed {
    rs_references references;
    reshard_context *context;
    bool is_chunk;
    reshard_tensor *kept; /* the chunk, dense and of its own; or the whole tensor, by alias */
    uint64_t version;     /* of the whole tensor's memory */
    /* How the chunks of all ranks make up the tensor. Layouts are made when they are needed: they
     * would take more memory than small chunks do. */
    rs_exec_cache *cache;
    int32_t dim; /* that is cut; -1: the elements in a row are */
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
    /* The tensor was distributed: how. */
    rs_exec_cache *outer_cache;
    reshard_layout *outer_layout;
    /* What was packed, for whoever asks to pack the same again: neither holds the other, and the
     * one that goes first tells. */
    rs_storage *storage; /* that has this as its attachment; NULL: none */
    const unsigned char *data;
    int64_t strides[RESHARD_NDIM_MAX];
    const void *owner;
    /* Told when the chunk is gone. */
    void (*gone)(void *user, size_t bytes);
    void *user;
};

/* Which ranks, and along what. */
typedef struct rs_pack_way {
    reshard_group *group;
    int32_t dim;
    bool verify;
} rs_pack_way;

reshard_status rs_pack(reshard_context *context, reshard_tensor *tensor, const rs_pack_way *way,
                       bool replicated, reshard_packed **out_packed);
reshard_packed *rs_packed_retain(reshard_packed *packed);

#endif
