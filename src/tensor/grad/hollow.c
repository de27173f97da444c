/* SPDX-License-Identifier: Apache-2.0 */
/* hollow.c - remembers for every saved tensor in which leaf it lies, and where. Saved tensors keep
 * their shapes and strides, and only lose their memory. */
#include "tensor/grad/hollow.h"

#include "base/context.h"
#include "tensor/grad/backward.h"

#include <assert.h>

typedef struct slot {
    rs_saved *saved;
    int32_t leaf;
    ptrdiff_t at; /* byte offset in the leaf */
} slot;

struct rs_hollow {
    reshard_context *context;
    int32_t leaf_count;
    reshard_tensor *const *leaves; /* the caller's array */
    int64_t count, capacity;
    slot *slots;
    bool complete; /* everything saved so far lies in a leaf */
};

/* Whether all elements of a tensor lie in the memory of a dense one. */
static bool lies_in(const reshard_tensor *tensor, const reshard_tensor *dense)
{
    assert(reshard_tensor_is_contiguous(dense));
    int64_t bytes = (int64_t)rs_element_bytes(tensor->dtype), last = 0;
    if (tensor->storage != dense->storage)
        return false;
    for (int32_t d = 0; d < tensor->ndim && tensor->volume > 0; d++)
        last += (tensor->shape[d] - 1) * tensor->strides[d];
    return tensor->volume == 0 ||
           (tensor->data >= dense->data &&
            tensor->data + (last + 1) * bytes <= dense->data + dense->volume * bytes);
}

static reshard_status add_slot(rs_hollow *h, rs_saved *saved, int32_t leaf)
{
    if (h->count == h->capacity) {
        void *slots = h->slots;
        reshard_status status =
            rs_grow(h->context, &slots, &h->capacity, h->count + 1, sizeof *h->slots);
        h->slots = slots;
        if (status != RESHARD_OK)
            return status;
    }
    ptrdiff_t at = saved->tensor->volume > 0 ? saved->tensor->data - h->leaves[leaf]->data : 0;
    h->slots[h->count++] = (slot){saved, leaf, at};
    return RESHARD_OK;
}

static reshard_status visit(void *user, rs_node *node)
{
    rs_hollow *h = user;
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < node->saved_count && h->complete && status == RESHARD_OK; i++) {
        rs_saved *saved = &node->saved[i];
        int32_t leaf = 0;
        if (saved->tensor == NULL && !saved->packed)
            continue;
        while (saved->tensor != NULL && leaf < h->leaf_count &&
               (h->leaves[leaf] == NULL || !lies_in(saved->tensor, h->leaves[leaf])))
            leaf++;
        h->complete = saved->tensor != NULL && leaf < h->leaf_count;
        if (h->complete)
            status = add_slot(h, saved, leaf);
    }
    /* The operation's own data may hold memory as well. */
    h->complete = h->complete && node->extra == NULL;
    return status;
}

reshard_status rs_hollow_make(reshard_context *context, reshard_tensor *output, int32_t count,
                              reshard_tensor *const *leaves, rs_hollow **out_hollow)
{
    rs_hollow *h = rs_allocate_zeroed(context, sizeof *h);
    if (h == NULL)
        return rs_allocation_status();
    *h = (rs_hollow){.context = context, .leaf_count = count, .leaves = leaves, .complete = true};
    reshard_status status = rs_graph_visit(context, output->node, visit, h);
    if (status != RESHARD_OK || !h->complete) {
        rs_hollow_destroy(h);
        return status;
    }
    rs_tensor_drop_data(output);
    rs_hollow_empty(h);
    *out_hollow = h;
    return RESHARD_OK;
}

void rs_hollow_fill(rs_hollow *h, reshard_tensor *const *contents)
{
    assert(h->complete);
    for (int32_t i = 0; i < h->leaf_count; i++) {
        if (h->leaves[i] != NULL)
            rs_tensor_lend_data(h->leaves[i], contents[i], 0);
    }
    for (int64_t i = 0; i < h->count; i++) {
        const slot *s = &h->slots[i];
        if (s->saved->tensor == NULL)
            continue; /* a backward pass has freed it */
        rs_tensor_lend_data(s->saved->tensor, contents[s->leaf], s->at);
        s->saved->version = rs_tensor_version(s->saved->tensor);
    }
}

void rs_hollow_empty(rs_hollow *h)
{
    for (int64_t i = 0; i < h->count; i++) {
        if (h->slots[i].saved->tensor != NULL)
            rs_tensor_drop_data(h->slots[i].saved->tensor);
    }
    for (int32_t i = 0; i < h->leaf_count; i++) {
        if (h->leaves[i] != NULL)
            rs_tensor_drop_data(h->leaves[i]);
    }
}

void rs_hollow_destroy(rs_hollow *h)
{
    if (h == NULL)
        return;
    rs_release(h->context, h->slots, (size_t)h->capacity * sizeof *h->slots);
    rs_release(h->context, h, sizeof *h);
}
