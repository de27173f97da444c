/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input_reshard.c - saved-tensor hooks around a module's forward that keep only chunks of
 * replicated tensors (pack.c). The tensor layer knows which local tensors are replicated: it
 * follows their sameness through operations. Parameters and buffers are recognized by their memory.
 *
 * A packed object holds the state, because the graph may outlive hook and module.
 */
#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "base/references.h"
#include "nn/module.h"
#include "nn/pack.h"
#include "tensor/core/scope.h"

#include <string.h>

typedef struct state {
    rs_references references;
    reshard_context *context;
    reshard_device_mesh *mesh;
    rs_pack_way way;
    int (*select)(void *user, const reshard_tensor *tensor);
    void *user;
    reshard_saved_counts counts;
    int64_t depth; /* calls in progress */
    int64_t memory_count, memory_capacity;
    const rs_storage **memory; /* of parameters and buffers, during a call */
} state;

static void release_state(void *user)
{
    state *s = user;
    if (s == NULL || !rs_reference_drop(&s->references))
        return;
    rs_release(s->context, s->memory);
    reshard_device_mesh_release(s->mesh);
    rs_release(s->context, s);
}

static void count_gone(void *user, size_t bytes)
{
    state *s = user;
    s->counts.held_bytes -= bytes;
    release_state(s);
}

/* ---- the module's own memory ----------------------------------------------------------------- */

static reshard_status add_memory(state *s, const reshard_tensor *tensor)
{
    if (tensor->distribution != NULL) {
        reshard_status status = RESHARD_OK;
        for (int64_t i = 0; i < tensor->distribution->shard_count && status == RESHARD_OK; i++)
            status = add_memory(s, tensor->distribution->shards[i]);
        return status;
    }
    if (s->memory_count == s->memory_capacity) {
        reshard_status status = rs_grow(s->context, &s->memory, &s->memory_capacity,
                                        s->memory_count + 1, sizeof *s->memory);
        if (status != RESHARD_OK)
            return status;
    }
    s->memory[s->memory_count++] = tensor->storage;
    return RESHARD_OK;
}

static reshard_status list_memory(state *s, const reshard_module *module)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < module->holding_count && status == RESHARD_OK; i++) {
        const rs_holding *holding = &module->holdings[i];
        if (holding->tensor != NULL)
            status = add_memory(s, holding->tensor);
        if (holding->child != NULL && status == RESHARD_OK)
            status = list_memory(s, holding->child);
    }
    return status;
}

static bool is_own_memory(const state *s, const reshard_tensor *tensor)
{
    if (tensor->distribution != NULL)
        return tensor->distribution->shard_count > 0 &&
               is_own_memory(s, tensor->distribution->shards[0]);
    for (int64_t i = 0; i < s->memory_count; i++) {
        if (s->memory[i] == tensor->storage)
            return true;
    }
    return false;
}

/* ---- saved tensors --------------------------------------------------------------------------- */

static bool is_replicated(const reshard_tensor *tensor)
{
    const rs_distribution *d = tensor->distribution;
    if (d != NULL)
        return d->shard_count == 1 &&
               rs_layout_sameness(d->layout, rs_distributed_group(tensor)) == RS_SAME_YES;
    return tensor->sameness != RS_SAME_NO; /* unknown: as the module promises */
}

static bool is_wanted(const state *s, const reshard_tensor *tensor)
{
    return is_replicated(tensor) && !is_own_memory(s, tensor) &&
           (s->select == NULL || s->select(s->user, tensor) != 0);
}

/* The tensor that has the memory: itself, or the one shard of a distributed tensor. */
static reshard_tensor *memory_of(reshard_tensor *tensor)
{
    return tensor->distribution != NULL ? tensor->distribution->shards[0] : tensor;
}

/* Finds the chunk of the same elements of the same memory, if they were not written to since
 * then. */
static reshard_packed *find_packed(const state *s, reshard_tensor *tensor)
{
    const reshard_tensor *local = memory_of(tensor);
    const rs_distribution *d = tensor->distribution;
    reshard_packed *p = local->storage->attachment;
    if (p == NULL || p->owner != s || p->data != local->data || p->ndim != local->ndim ||
        p->outer_layout != (d != NULL ? d->layout : NULL) ||
        p->outer_cache != (d != NULL ? d->cache : NULL) ||
        p->version != atomic_load_explicit(&local->storage->version, memory_order_relaxed))
        return NULL;
    bool same = true;
    for (int32_t i = 0; i < local->ndim && same; i++)
        same = p->shape[i] == local->shape[i] && p->strides[i] == local->strides[i];
    return same ? p : NULL;
}

static void forget_attachment(void *attachment)
{
    ((reshard_packed *)attachment)->storage = NULL;
}

/* Storage remembers the chunk that was cut from it last. */
static void attach(const state *s, const reshard_tensor *local, reshard_packed *p)
{
    rs_storage *storage = local->storage;
    if (storage->forget_attachment != NULL)
        storage->forget_attachment(storage->attachment);
    p->owner = s;
    p->data = local->data;
    p->version = atomic_load_explicit(&storage->version, memory_order_relaxed);
    memcpy(p->strides, local->strides, sizeof p->strides);
    p->storage = storage;
    storage->attachment = p;
    storage->forget_attachment = forget_attachment;
}

static void count_packed(state *s, const reshard_tensor *tensor, reshard_packed *p)
{
    if (!p->is_chunk) {
        s->counts.other_bytes += rs_tensor_bytes(tensor);
        return;
    }
    size_t bytes = rs_packed_bytes(p);
    s->counts.packed++;
    s->counts.whole_bytes += rs_tensor_bytes(tensor);
    s->counts.chunk_bytes += bytes;
    s->counts.held_bytes += bytes;
    rs_reference_add(&s->references);
    p->gone = count_gone;
    p->user = s;
}

/* What a saved slot holds. The state must live as long as the slot, even if no chunk was cut. */
typedef struct held {
    state *owner;
    reshard_packed *packed;
} held;

static reshard_status pack(void *user, reshard_tensor *tensor, void **out_packed)
{
    state *s = user;
    held *h = rs_allocate(s->context, sizeof *h);
    if (h == NULL)
        return rs_allocation_status();
    bool wanted = is_wanted(s, tensor);
    reshard_packed *p = wanted ? find_packed(s, tensor) : NULL;
    if (p != NULL) {
        (void)rs_packed_retain(p);
        s->counts.shared++;
    } else {
        reshard_status status = rs_pack(s->context, tensor, &s->way, wanted, &p);
        if (status != RESHARD_OK) {
            rs_release(s->context, h);
            return status;
        }
        count_packed(s, tensor, p);
        if (p->is_chunk)
            attach(s, memory_of(tensor), p);
    }
    s->counts.saved++;
    rs_reference_add(&s->references);
    *h = (held){s, p};
    *out_packed = h;
    return RESHARD_OK;
}

static reshard_status unpack(void *user, void *packed, reshard_tensor **out_tensor)
{
    (void)user;
    return reshard_unpack_replicated(((held *)packed)->packed, out_tensor);
}

static void forget(void *user, void *packed)
{
    held *h = packed;
    state *s = h->owner;
    (void)user;
    reshard_packed_destroy(h->packed);
    rs_release(s->context, h);
    release_state(s);
}

/* ---- around forward -------------------------------------------------------------------------- */

static reshard_status enter(void *user, reshard_module *module, rs_around_frame *frame)
{
    state *s = user;
    rs_thread_state *thread = rs_thread_state_get();
    if (s->way.group == NULL)
        return RESHARD_OK;
    frame->hooks = thread->hooks;
    frame->replicas = thread->replicas;
    reshard_status status = RESHARD_OK;
    if (s->depth == 0) {
        s->memory_count = 0;
        status = list_memory(s, module);
    }
    reshard_saved_tensor_hooks hooks = {pack, unpack, forget, s};
    if (status == RESHARD_OK)
        status = reshard_saved_tensor_hooks_push(s->context, &hooks);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "input_reshard");
    thread->replicas = s->way.group;
    s->depth++;
    return RESHARD_OK;
}

static void leave(void *user, reshard_module *module, const rs_around_frame *frame)
{
    state *s = user;
    (void)module;
    if (s->way.group == NULL)
        return;
    s->depth--;
    rs_hook_pairs_unwind(frame->hooks);
    rs_thread_state_get()->replicas = frame->replicas;
}

/* ---- adding the hook ------------------------------------------------------------------------- */

static reshard_status mark_varying(const reshard_module *module,
                                   const reshard_input_reshard_options *options, bool mark)
{
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < options->varying_count && status == RESHARD_OK; i++) {
        reshard_tensor *tensor = NULL;
        status = rs_module_find_parameter(module, options->varying[i], &tensor);
        if (status == RESHARD_OK && mark && tensor != NULL)
            tensor->sameness = RS_SAME_NO;
    }
    return status;
}

static reshard_status check(const reshard_module *module, const reshard_device_mesh *mesh,
                            const reshard_input_reshard_options *given,
                            reshard_input_reshard_options *options)
{
    reshard_status status = rs_options_read("options", given, options, sizeof *options);
    if (status != RESHARD_OK)
        return status;
    if (mesh == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the mesh is NULL");
    for (const rs_hook_entry *entry = module->hooks[RS_HOOK_AROUND]; entry != NULL;
         entry = entry->next) {
        if (!entry->removed)
            return rs_fail(RESHARD_ERR_INVALID, "the module of kind %s has one already",
                           module->kind_name);
    }
    return mark_varying(module, options, false);
}

reshard_status reshard_module_input_reshard(reshard_module *module, reshard_device_mesh *mesh,
                                            int32_t dim, const reshard_input_reshard_options *given,
                                            reshard_hook **out_hook)
{
    reshard_input_reshard_options options;
    reshard_status status = check(module, mesh, given, &options);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "input_reshard");
    state *s = rs_allocate_zeroed(module->context, sizeof *s);
    if (s == NULL)
        return rs_allocation_status();
    atomic_init(&s->references, 1);
    s->context = module->context;
    s->mesh = reshard_device_mesh_retain(mesh);
    s->way = rs_pack_way_over(mesh, dim, options.verify != 0);
    s->select = options.select;
    s->user = options.user;
    rs_hook_entry entry = {
        .kind = RS_HOOK_AROUND, .around = {enter, leave}, .user = s, .forget = release_state};
    status = rs_hook_add(module, &entry, false, out_hook);
    if (status == RESHARD_OK)
        status = mark_varying(module, &options, true);
    else
        release_state(s);
    return status;
}

static reshard_status find_state(const reshard_hook *hook, state **out_state)
{
    if (hook == NULL || hook->entry->kind != RS_HOOK_AROUND || hook->entry->around.enter != enter)
        return rs_fail(RESHARD_ERR_INVALID, "the hook was not made by input_reshard");
    *out_state = hook->entry->user;
    return RESHARD_OK;
}

reshard_status reshard_input_reshard_counts(const reshard_hook *hook,
                                            reshard_saved_counts *out_counts)
{
    state *s = NULL;
    reshard_status status = find_state(hook, &s);
    if (status == RESHARD_OK)
        status = rs_report_write("saved counts", &s->counts, sizeof s->counts, out_counts);
    return status;
}
