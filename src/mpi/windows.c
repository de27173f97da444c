/* SPDX-License-Identifier: Apache-2.0 */
/* windows.c - memory that the ranks of one node share: MPI windows, in each of which every rank has
 * a part. They live until the endpoint is closed. */
#include "mpi/endpoint.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- shared memory --------------------------------------------------------------------------- */

/* Collective over the node. If one rank gets no memory, the result is false on all. */
static bool open_window(rs_mpi *e, rs_mpi_window *w, size_t bytes, uint64_t *addresses)
{
    void *base = NULL;
    MPI_Info info = MPI_INFO_NULL;
    if (MPI_Info_create(&info) == MPI_SUCCESS)
        (void)MPI_Info_set(info, "alloc_shared_noncontig", "true");
    if (MPI_Win_allocate_shared((MPI_Aint)bytes, 1, info, e->comms.node, &base, &w->handle) !=
        MPI_SUCCESS)
        base = NULL;
    if (info != MPI_INFO_NULL)
        (void)MPI_Info_free(&info);
    if (base != NULL)
        /* MPI does not promise zeros, and pages should lie near their first user */
        memset(base, 0, bytes);
    uint64_t mine = (uint64_t)(uintptr_t)base;
    bool fine = rs_mpi_succeeded(
        e, MPI_Allgather(&mine, 1, MPI_UINT64_T, addresses, 1, MPI_UINT64_T, e->comms.node),
        "MPI_Allgather");
    for (int i = 0; i < e->node_size && fine; i++) {
        MPI_Aint size = 0;
        int unit = 0;
        void *view = NULL;
        fine = addresses[i] != 0;
        if (fine)
            fine = MPI_Win_shared_query(w->handle, i, &size, &unit, &view) == MPI_SUCCESS;
        w->mappings[i] =
            (rs_mapping){.owner_address = addresses[i], .view = view, .bytes = (size_t)size};
    }
    return fine;
}

void *rs_mpi_share(void *state, size_t bytes)
{
    rs_mpi *e = state;
    size_t count = (size_t)e->node_size, needed = rs_mapping_bytes_needed(bytes);
    rs_mpi_window *w = calloc(1, sizeof *w + count * sizeof *w->mappings);
    uint64_t *addresses = calloc(count, sizeof *addresses);
    void *memory = NULL;
    bool opened = false;
    bool possible =
        needed != 0 && w != NULL && addresses != NULL && rs_mapping_have_room(e->node_size, needed);
    if (!rs_mpi_vote(e, possible))
        goto out;
    opened = open_window(e, w, needed, addresses);
    if (!rs_mpi_vote(e, opened))
        goto out;
    int mine = e->node_ranks[e->standing.rank];
    memory = rs_mapping_align(w->mappings[mine].view);
    w->next = e->windows;
    e->windows = w;
    w = NULL;
out:
    if (w != NULL && opened && !e->standing.broken) /* another node failed */
        (void)MPI_Win_free(&w->handle);
    free(addresses);
    free(w);
    return memory;
}

void *rs_mpi_map(void *state, int32_t peer, const void *address, size_t bytes)
{
    const rs_mpi *e = state;
    if (peer == e->standing.rank)
        return (void *)(uintptr_t)address;
    int node_rank = e->node_ranks[peer];
    void *found = NULL;
    for (const rs_mpi_window *w = e->windows;
         w != NULL && node_rank != MPI_UNDEFINED && found == NULL; w = w->next)
        found = rs_mapping_translate(&w->mappings[node_rank], address, bytes);
    return found;
}

int rs_mpi_shares_with(void *state, int32_t peer)
{
    const rs_mpi *e = state;
    return e->node_ranks[peer] != MPI_UNDEFINED;
}

/* Messages tell when shared memory may be touched. The fences keep reads and writes of it between
 * the message before and the message after: begin pairs with the end on the peer whose message has
 * arrived. */
reshard_status rs_mpi_touch(void *state, int begin)
{
    const rs_mpi *e = state;
    atomic_thread_fence(memory_order_seq_cst);
    return begin && e->standing.broken ? rs_standing_fail(&e->standing) : RESHARD_OK;
}
