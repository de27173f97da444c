/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.c - the context: allocator, memory limit, callbacks.
 *
 * Invariants:
 *  1. bytes_now is the sum of all sizes handed out and not yet released. It never exceeds
 *     bytes_max, because the bytes are reserved before the allocator is called and given back if
 *     the call fails.
 *  2. Before the allocator is called, kept blocks are freed until everything in use and everything
 *     kept fit into bytes_max together, and until large blocks, in use or kept, take no more than
 *     blocks_most. Both are decided by counts that do not change while a block goes from one thread
 *     to the next: if another thread counted it as kept and as used at once, it would free a block
 *     without need, and every page of the next one would have to be cleared again.
 */
#include "base/context.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/kept.h"
#include "base/options.h"
#include "base/pages.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Smallest block that is kept after release, and smallest one that gets huge pages. */
#define KEEP_BYTES_MIN ((size_t)1 << 20)
#define HUGE_BYTES_MIN ((size_t)4 << 20)

struct reshard_context {
    reshard_allocator allocator;
    size_t bytes_max;
    atomic_size_t bytes_now;
    atomic_size_t bytes_peak;
    atomic_size_t others_now;  /* those of bytes_now that no block has that can be kept */
    atomic_size_t blocks_now;  /* bytes of large blocks in use */
    atomic_size_t blocks_most; /* the maximum of blocks_now since the last trim */
    rs_kept kept; /* used with malloc only; a user's allocator may do its own caching */
    rs_pages_record pages;
    void (*log)(void *user, const char *line);
    void (*progress)(void *user, const char *what, uint64_t done, uint64_t total);
    int (*cancelled)(void *user);
    const volatile int *cancel_flag;
    void *user;
    const struct rs_file_calls *calls; /* replaces the system's file calls, or NULL */
};

static _Thread_local reshard_status allocation_status;

static void *malloc_allocate(void *user, size_t bytes)
{
    (void)user;
    return malloc(bytes);
}

static void *malloc_resize(void *user, void *memory, size_t bytes_old, size_t bytes_new)
{
    (void)user;
    (void)bytes_old;
    return realloc(memory, bytes_new);
}

static void malloc_release(void *user, void *memory, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(memory);
}

static const reshard_allocator malloc_allocator = {malloc_allocate, malloc_resize, malloc_release,
                                                   NULL};

static void *malloc_huge(reshard_context *context, size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, RS_HUGE_PAGE_BYTES, bytes) != 0)
        return NULL;
    rs_pages_record none = {0};
    rs_pages_make(context != NULL ? &context->pages : &none, memory, bytes);
    return memory;
}

static const reshard_allocator *allocator_of(const reshard_context *context)
{
    return context != NULL ? &context->allocator : &malloc_allocator;
}

reshard_status reshard_context_create(const reshard_context_options *options,
                                      reshard_context **out_context)
{
    reshard_context_options chosen;
    reshard_status status = rs_options_read("context options", options, &chosen, sizeof chosen);
    if (status != RESHARD_OK)
        return status;
    const reshard_allocator *allocator =
        chosen.allocator != NULL ? chosen.allocator : &malloc_allocator;
    if (allocator->allocate == NULL || allocator->resize == NULL || allocator->release == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "context options: the allocator lacks a function");
    reshard_context *context = allocator->allocate(allocator->user, sizeof *context);
    if (context == NULL)
        return rs_fail(RESHARD_ERR_NO_MEMORY, "no memory for a context");
    memset(context, 0, sizeof *context);
    context->allocator = *allocator;
    atomic_init(&context->bytes_now, 0);
    atomic_init(&context->bytes_peak, 0);
    atomic_init(&context->others_now, 0);
    atomic_init(&context->blocks_now, 0);
    atomic_init(&context->blocks_most, 0);
    context->bytes_max = chosen.memory_bytes_max;
    context->log = chosen.log;
    context->progress = chosen.progress;
    context->cancelled = chosen.cancelled;
    context->cancel_flag = chosen.cancel_flag;
    context->user = chosen.user;
    *out_context = context;
    return RESHARD_OK;
}

void reshard_context_destroy(reshard_context *context)
{
    if (context == NULL)
        return;
    reshard_context_trim(context);
    reshard_allocator allocator = context->allocator;
    allocator.release(allocator.user, context, sizeof *context);
}

reshard_status reshard_context_get_memory(const reshard_context *context,
                                          reshard_memory_info *out_memory)
{
    reshard_memory_info memory = {.bytes = 0};
    if (context != NULL) {
        memory.bytes = atomic_load(&context->bytes_now);
        memory.bytes_peak = atomic_load(&context->bytes_peak);
        memory.bytes_kept = atomic_load(&context->kept.bytes);
    }
    return rs_report_write("memory info", &memory, sizeof memory, out_memory);
}

void reshard_context_reset_peak(reshard_context *context)
{
    if (context != NULL)
        atomic_store(&context->bytes_peak, atomic_load(&context->bytes_now));
}

void reshard_context_trim(reshard_context *context)
{
    if (context == NULL)
        return;
    while (rs_kept_drop(&context->kept, &context->allocator)) {
    }
    atomic_store(&context->blocks_most, atomic_load(&context->blocks_now));
}

static void note_most(atomic_size_t *most, size_t bytes)
{
    size_t before = atomic_load(most);
    while (before < bytes && !atomic_compare_exchange_weak(most, &before, bytes)) {
    }
}

static bool reserve(reshard_context *context, size_t bytes)
{
    if (context == NULL)
        return true;
    size_t now = atomic_load(&context->bytes_now);
    size_t after;
    do {
        bool fits = rs_add_size(now, bytes, &after);
        if (!fits || (context->bytes_max != 0 && after > context->bytes_max)) {
            allocation_status = rs_fail(RESHARD_ERR_MEMORY_LIMIT,
                                        "%zu bytes more would exceed the limit of %zu (%zu in use)",
                                        bytes, context->bytes_max, now);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&context->bytes_now, &now, after));
    note_most(&context->bytes_peak, after);
    return true;
}

static void give_back(reshard_context *context, size_t bytes)
{
    if (context != NULL)
        (void)atomic_fetch_sub(&context->bytes_now, bytes);
}

/* The same for memory that is never kept. */
static bool reserve_other(reshard_context *context, size_t bytes)
{
    if (!reserve(context, bytes))
        return false;
    if (context != NULL)
        (void)atomic_fetch_add(&context->others_now, bytes);
    return true;
}

static void give_back_other(reshard_context *context, size_t bytes)
{
    if (context != NULL)
        (void)atomic_fetch_sub(&context->others_now, bytes);
    give_back(context, bytes);
}

static size_t at_least_one(size_t bytes)
{
    return bytes != 0 ? bytes : 1;
}

static bool is_too_much(reshard_context *context)
{
    size_t held = atomic_load(&context->kept.held);
    return held > atomic_load(&context->blocks_most) ||
           (context->bytes_max != 0 &&
            atomic_load(&context->others_now) + held > context->bytes_max);
}

/* Frees kept blocks to make room for an allocation that has already been reserved. */
static void make_way(reshard_context *context)
{
    while (context != NULL && is_too_much(context) &&
           rs_kept_drop(&context->kept, &context->allocator)) {
    }
}

static void *call_allocator(reshard_context *context, size_t bytes, bool huge)
{
    const reshard_allocator *allocator = allocator_of(context);
    make_way(context);
    for (;;) {
        void *memory =
            huge ? malloc_huge(context, bytes) : allocator->allocate(allocator->user, bytes);
        if (memory != NULL || context == NULL || !rs_kept_drop(&context->kept, allocator))
            return memory;
    }
}

static void *allocate(reshard_context *context, size_t bytes, bool huge)
{
    void *memory = call_allocator(context, bytes, huge);
    if (memory == NULL)
        allocation_status = rs_fail(RESHARD_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
    return memory;
}

static void *allocate_other(reshard_context *context, size_t bytes, bool huge)
{
    if (!reserve_other(context, bytes))
        return NULL;
    void *memory = allocate(context, bytes, huge);
    if (memory == NULL)
        give_back_other(context, bytes);
    return memory;
}

/* What stands in front of memory that is released without its size. Figures and limits are about
 * what was asked for, without it. */
typedef struct header {
    _Alignas(max_align_t) size_t bytes;
} header;

void *rs_allocate(reshard_context *context, size_t bytes)
{
    if (!reserve_other(context, bytes))
        return NULL;
    header *memory = bytes <= SIZE_MAX - sizeof *memory
                         ? call_allocator(context, sizeof *memory + bytes, false)
                         : NULL;
    if (memory == NULL) {
        give_back_other(context, bytes);
        allocation_status = rs_fail(RESHARD_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
        return NULL;
    }
    memory->bytes = bytes;
    return memory + 1;
}

static bool is_kept(const reshard_context *context, size_t bytes)
{
    return bytes >= KEEP_BYTES_MIN && context != NULL &&
           context->allocator.allocate == malloc_allocate;
}

void *rs_block_allocate(reshard_context *context, size_t bytes)
{
    bool huge = bytes >= HUGE_BYTES_MIN && allocator_of(context)->allocate == malloc_allocate;
    if (!is_kept(context, bytes))
        return allocate_other(context, at_least_one(bytes), huge);
    if (!reserve(context, bytes))
        return NULL;
    size_t before = atomic_fetch_add(&context->blocks_now, bytes);
    note_most(&context->blocks_most, before + bytes);
    void *memory = rs_kept_take(&context->kept, bytes);
    if (memory != NULL)
        return memory;
    (void)atomic_fetch_add(&context->kept.held, bytes);
    memory = allocate(context, bytes, huge);
    if (memory == NULL) {
        (void)atomic_fetch_sub(&context->kept.held, bytes);
        (void)atomic_fetch_sub(&context->blocks_now, bytes);
        give_back(context, bytes);
    }
    return memory;
}

void rs_block_release(reshard_context *context, void *memory, size_t bytes)
{
    if (memory == NULL)
        return;
    if (!is_kept(context, bytes)) {
        bytes = at_least_one(bytes);
        allocator_of(context)->release(allocator_of(context)->user, memory, bytes);
        give_back_other(context, bytes);
        return;
    }
    /* If all slots are taken, free the block that has been kept longest. */
    while (!rs_kept_put(&context->kept, memory, bytes))
        (void)rs_kept_drop(&context->kept, &context->allocator);
    (void)atomic_fetch_sub(&context->blocks_now, bytes);
    give_back(context, bytes);
}

void *rs_allocate_zeroed(reshard_context *context, size_t bytes)
{
    void *memory = rs_allocate(context, bytes);
    if (memory != NULL)
        memset(memory, 0, bytes);
    return memory;
}

void *rs_allocate_array(reshard_context *context, size_t count, size_t item_bytes)
{
    size_t bytes;
    if (!rs_multiply_size(count, item_bytes, &bytes)) {
        allocation_status = rs_fail(RESHARD_ERR_NO_MEMORY, "no memory for %zu items of %zu bytes",
                                    count, item_bytes);
        return NULL;
    }
    return rs_allocate(context, bytes);
}

void rs_release(reshard_context *context, void *memory)
{
    if (memory == NULL)
        return;
    header *whole = (header *)memory - 1;
    size_t bytes = whole->bytes;
    const reshard_allocator *allocator = allocator_of(context);
    allocator->release(allocator->user, whole, sizeof *whole + bytes);
    give_back_other(context, bytes);
}

/* `bytes` with the header does not overflow. */
static void *resize(reshard_context *context, void *memory, size_t bytes)
{
    header *whole = (header *)memory - 1, *moved;
    size_t more = bytes - whole->bytes;
    if (!reserve_other(context, more))
        return NULL;
    const reshard_allocator *allocator = allocator_of(context);
    make_way(context);
    do {
        moved = allocator->resize(allocator->user, whole, sizeof *whole + whole->bytes,
                                  sizeof *whole + bytes);
    } while (moved == NULL && context != NULL && rs_kept_drop(&context->kept, allocator));
    if (moved == NULL) {
        give_back_other(context, more);
        allocation_status = rs_fail(RESHARD_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
        return NULL;
    }
    moved->bytes = bytes;
    return moved + 1;
}

reshard_status rs_grow(reshard_context *context, void *list, int64_t *capacity, int64_t needed,
                       size_t item_bytes)
{
    assert(needed >= 0 && *capacity >= 0);
    if (needed <= *capacity)
        return RESHARD_OK;
    void *items;
    memcpy(&items, list, sizeof items); /* pointers of all types look alike, but do not alias */
    int64_t larger = *capacity < 8 ? 8 : *capacity;
    while (larger < needed) {
        if (!rs_multiply(larger, 2, &larger))
            return rs_fail(RESHARD_ERR_NO_MEMORY, "no memory for %lld items", (long long)needed);
    }
    size_t bytes_new;
    if (!rs_multiply_size((size_t)larger, item_bytes, &bytes_new) ||
        bytes_new > SIZE_MAX - sizeof(header))
        return rs_fail(RESHARD_ERR_NO_MEMORY, "no memory for %lld items", (long long)needed);
    void *moved =
        items == NULL ? rs_allocate(context, bytes_new) : resize(context, items, bytes_new);
    if (moved == NULL)
        return allocation_status;
    memcpy(list, &moved, sizeof moved);
    *capacity = larger;
    return RESHARD_OK;
}

reshard_status rs_allocation_status(void)
{
    return allocation_status;
}

bool rs_context_cancelled(reshard_context *context)
{
    if (context == NULL)
        return false;
    if (context->cancel_flag != NULL && *context->cancel_flag != 0)
        return true;
    return context->cancelled != NULL && context->cancelled(context->user) != 0;
}

void rs_context_progress(reshard_context *context, const char *what, uint64_t done, uint64_t total)
{
    if (context != NULL && context->progress != NULL)
        context->progress(context->user, what, done, total);
}

void rs_context_log(reshard_context *context, const char *line)
{
    if (context != NULL && context->log != NULL)
        context->log(context->user, line);
}

const struct rs_file_calls *rs_context_calls(const reshard_context *context)
{
    return context != NULL ? context->calls : NULL;
}

void rs_context_set_calls(reshard_context *context, const struct rs_file_calls *calls)
{
    context->calls = calls;
}
