/* SPDX-License-Identifier: Apache-2.0 */
/* mapping.c - see mapping.h. */
#include "mpi/mapping.h"

#include "base/checked.h"

#include <sys/statvfs.h>
#include <unistd.h>

#define SHARED_FOLDER "/dev/shm"

static size_t page_bytes(void)
{
    long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (size_t)bytes : 4096;
}

void *rs_mapping_translate(const rs_mapping *mapping, const void *address, size_t bytes)
{
    uint64_t at = (uint64_t)(uintptr_t)address;
    if (at < mapping->owner_address || at - mapping->owner_address > mapping->bytes)
        return NULL;
    size_t offset = (size_t)(at - mapping->owner_address);
    return bytes <= mapping->bytes - offset ? mapping->view + offset : NULL;
}

size_t rs_mapping_bytes_needed(size_t bytes)
{
    size_t page = page_bytes();
    if (bytes > (size_t)PTRDIFF_MAX - 2 * page)
        return 0;
    return (bytes + page - 1) / page * page + page;
}

void *rs_mapping_align(void *address)
{
    size_t page = page_bytes();
    size_t past = (size_t)((uintptr_t)address % page);
    return (char *)address + (past != 0 ? page - past : 0);
}

bool rs_mapping_have_room(int32_t count, size_t bytes)
{
    size_t total;
    struct statvfs system;
    if (!rs_multiply_size((size_t)count, bytes, &total))
        return false;
    /* A system without this folder keeps shared memory elsewhere. Leave the answer to MPI then. */
    if (statvfs(SHARED_FOLDER, &system) != 0 || system.f_frsize == 0)
        return true;
    return total / system.f_frsize < system.f_bavail;
}
