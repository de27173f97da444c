/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c - a list of blocks. Each block is twice as large as the one before, up to 1 MiB, and
 * allocating from the newest one only advances an offset. */
#include "base/arena.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

#define BLOCK_BYTES_MIN ((size_t)1024)
#define BLOCK_BYTES_MAX ((size_t)1 << 20)

struct rs_arena_block {
    rs_arena_block *next;
    size_t bytes; /* size of the whole allocation, including this header */
    size_t used;  /* bytes taken so far, including this header */
};

#define ALIGNMENT alignof(max_align_t)

static size_t round_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void rs_arena_init(rs_arena *arena, reshard_context *context)
{
    arena->context = context;
    arena->blocks = NULL;
}

static rs_arena_block *add_block(rs_arena *arena, size_t room)
{
    size_t bytes = arena->blocks == NULL ? BLOCK_BYTES_MIN : arena->blocks->bytes * 2;
    if (bytes > BLOCK_BYTES_MAX)
        bytes = BLOCK_BYTES_MAX;
    size_t head = round_up(sizeof(rs_arena_block));
    if (bytes - head < room)
        bytes = head + room;
    rs_arena_block *block = rs_allocate(arena->context, bytes);
    if (block == NULL)
        return NULL;
    block->next = arena->blocks;
    block->bytes = bytes;
    block->used = head;
    arena->blocks = block;
    return block;
}

void *rs_arena_allocate(rs_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return rs_allocate(arena->context, bytes); /* fails and sets the error text */
    bytes = round_up(bytes != 0 ? bytes : 1);
    rs_arena_block *block = arena->blocks;
    if (block == NULL || block->bytes - block->used < bytes) {
        block = add_block(arena, bytes);
        if (block == NULL)
            return NULL;
    }
    void *memory = (char *)block + block->used;
    block->used += bytes;
    return memory;
}

void *rs_arena_allocate_array(rs_arena *arena, size_t count, size_t item_bytes)
{
    size_t bytes;
    if (!rs_multiply_size(count, item_bytes, &bytes))
        /* fails and sets the error text */
        return rs_allocate_array(arena->context, count, item_bytes);
    return rs_arena_allocate(arena, bytes);
}

void *rs_arena_copy(rs_arena *arena, const void *items, size_t count, size_t item_bytes)
{
    void *copy = rs_arena_allocate_array(arena, count, item_bytes);
    if (copy != NULL && count != 0)
        memcpy(copy, items, count * item_bytes);
    return copy;
}

rs_arena_mark rs_arena_mark_now(const rs_arena *arena)
{
    return (rs_arena_mark){arena->blocks, arena->blocks != NULL ? arena->blocks->used : 0};
}

void rs_arena_return_to(rs_arena *arena, rs_arena_mark mark)
{
    while (arena->blocks != mark.block) {
        rs_arena_block *block = arena->blocks;
        assert(block != NULL);
        arena->blocks = block->next;
        rs_release(arena->context, block);
    }
    if (mark.block != NULL)
        mark.block->used = mark.used;
}

void rs_arena_release(rs_arena *arena)
{
    rs_arena_return_to(arena, (rs_arena_mark){NULL, 0});
}
