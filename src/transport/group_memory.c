/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_memory.c - see group_memory.h. A share is a chain of blocks in the order of their
 * addresses, each after a header of its own. No two neighbours are both free. First fit is enough,
 * because a group has few blocks, and they are large.
 */
#include "transport/group_memory.h"

#include "base/context.h"
#include "base/error.h"
#include "transport/agree.h"

#include <assert.h>
#include <stdint.h>

#define ALIGNMENT ((size_t)64)
/* Making a share takes milliseconds, which is too long for every small block. */
#define GROWTH ((size_t)4 << 20)

/* Lies before the memory that the caller gets. */
typedef struct block {
    struct rs_share *share; /* NULL for plain memory */
    struct block *next;     /* in its share */
    size_t bytes;           /* including this header */
    bool free;
    void *base; /* plain memory only: what to release */
} block;

static_assert(sizeof(block) <= ALIGNMENT, "a header takes the room of one alignment");

struct rs_share {
    struct rs_share *next;
    char *memory;
    size_t bytes;
};

static block *first_block(const rs_share *share)
{
    return (block *)(void *)share->memory;
}

/* The bytes of a block with its header, rounded up so that the next block is aligned; 0 if they are
 * too many. */
static size_t block_bytes(size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return 0;
    return (bytes + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static block *find_room(const rs_root *root, size_t bytes)
{
    for (const rs_share *r = root->shares; r != NULL; r = r->next) {
        for (block *b = first_block(r); b != NULL; b = b->next) {
            if (b->free && b->bytes >= bytes)
                return b;
        }
    }
    return NULL;
}

/* ---- shares ---------------------------------------------------------------------------------- */

/* Collective over the endpoint. A rank that gets no share continues with plain memory. */
static void add_share(rs_root *root, size_t bytes)
{
    const reshard_endpoint *e = &root->endpoint;
    rs_share *share = rs_allocate_zeroed(root->context, sizeof *share);
    char *memory = e->share(e->state, bytes);
    if (memory == NULL || share == NULL) {
        rs_release(root->context, share);
        return;
    }
    *share = (rs_share){.next = root->shares, .memory = memory, .bytes = bytes};
    *first_block(share) = (block){.share = share, .bytes = bytes, .free = true};
    root->shares = share;
}

reshard_status rs_group_reserve(reshard_group *group, reshard_status status, size_t bytes)
{
    rs_root *root = group->root;
    size_t needed = block_bytes(bytes);
    if (status == RESHARD_OK && needed == 0)
        status = rs_fail(RESHARD_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
    bool grows = root->endpoint.share != NULL && group->parent_ranks == NULL;
    bool lacks = grows && bytes != 0 && find_room(root, needed) == NULL;
    uint64_t most[RS_AGREE_NUMBERS] = {lacks ? needed : 0};
    status = rs_group_agree_on(group, status, NULL, most);
    if (status == RESHARD_OK && most[0] != 0)
        add_share(root, most[0] > GROWTH ? (size_t)most[0] : GROWTH);
    return status;
}

void rs_shares_release(rs_root *root)
{
    for (rs_share *r = root->shares, *next; r != NULL; r = next) {
        next = r->next;
        rs_release(root->context, r);
    }
    root->shares = NULL;
}

bool rs_group_is_shared(const reshard_group *group, const void *address)
{
    for (const rs_share *r = group->root->shares; r != NULL; r = r->next) {
        if ((uintptr_t)address - (uintptr_t)r->memory < r->bytes)
            return true;
    }
    return false;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static block *cut(block *from, size_t bytes)
{
    assert(from->free && from->bytes >= bytes && bytes % ALIGNMENT == 0);
    if (from->bytes - bytes > ALIGNMENT) {
        block *rest = (block *)(void *)((char *)from + bytes);
        *rest = (block){
            .share = from->share, .next = from->next, .bytes = from->bytes - bytes, .free = true};
        from->next = rest;
        from->bytes = bytes;
    }
    from->free = false;
    return from;
}

static block *make_plain(reshard_context *context, size_t bytes)
{
    char *base = rs_allocate(context, bytes + ALIGNMENT);
    if (base == NULL)
        return NULL;
    size_t past = (size_t)((uintptr_t)base % ALIGNMENT);
    block *made = (block *)(void *)(base + (past != 0 ? ALIGNMENT - past : 0));
    *made = (block){.bytes = bytes, .base = base};
    return made;
}

reshard_status rs_group_take(reshard_group *group, size_t bytes, void **out_memory)
{
    size_t needed = block_bytes(bytes);
    if (needed == 0)
        return rs_fail(RESHARD_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
    block *found = find_room(group->root, needed);
    block *taken = found != NULL ? cut(found, needed) : make_plain(group->root->context, needed);
    if (taken == NULL)
        return rs_allocation_status();
    *out_memory = (char *)taken + ALIGNMENT;
    return RESHARD_OK;
}

static void join_free(rs_share *share)
{
    for (block *b = first_block(share); b != NULL;) {
        if (b->free && b->next != NULL && b->next->free) {
            b->bytes += b->next->bytes;
            b->next = b->next->next;
        } else {
            b = b->next;
        }
    }
}

void reshard_group_free(reshard_group *group, void *memory)
{
    if (memory == NULL || rs_group_choose(&group) != RESHARD_OK)
        return;
    block *given = (block *)(void *)((char *)memory - ALIGNMENT);
    if (given->share == NULL) {
        rs_release(group->root->context, given->base);
        return;
    }
    given->free = true;
    join_free(given->share);
}

reshard_status reshard_group_alloc(reshard_group *group, size_t bytes, void **out_memory)
{
    void *memory = NULL;
    reshard_status status = rs_group_choose(&group);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "alloc");
    status = rs_group_reserve(group, RESHARD_OK, bytes);
    if (status != RESHARD_OK)
        return status;
    status = reshard_group_agree(group, rs_group_take(group, bytes, &memory));
    if (status != RESHARD_OK) {
        reshard_group_free(group, memory);
        return status;
    }
    *out_memory = memory;
    return RESHARD_OK;
}
