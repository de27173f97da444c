/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_rival.c - carries a plan out by MPI_Alltoallw, and by packing and MPI_Alltoallv, as a careful
 * user of MPI would write it.
 *
 * Both ends know the order of the single moves between two ranks. Moves that follow each other at
 * constant steps are folded into one block with one more dim, and both ends sort dims by their
 * strides in the target. So a cyclic split becomes one subarray for each peer instead of thousands,
 * and the target is written in memory order.
 */
#include "bench/mpi_rival.h"

#include "cli/common/input.h"

#include <reshard/mpi.h>
#include <reshard/plan_inspect.h>

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- structures ------------------------------------------------------------------------------ */

enum { DIMS_MAX = RESHARD_FACTORS_MAX + 4 };

/* One end of a block: its elements in a shard. */
typedef struct end {
    int32_t shard;
    int64_t at;
    int64_t strides[DIMS_MAX];
} end;

typedef struct block {
    int32_t ndim;
    int64_t size[DIMS_MAX];
    end source, target;
} block;

/* The blocks that go to one rank, or come from it. */
typedef struct traffic {
    int64_t count;
    block *blocks;
    int64_t elements;
    char *packed;
} traffic;

struct bench_mpi_rival {
    MPI_Comm comm;
    int rank, size;
    size_t item; /* bytes per element */
    MPI_Datatype element;
    const void *const *sources;
    void *const *targets;
    traffic *out, *in; /* by rank; this rank's own `in` is empty, and its `out` has what stays */
    /* for MPI_Alltoallw */
    MPI_Datatype *out_types, *in_types;
    int *ones_out, *ones_in, *zeros;
    /* for MPI_Alltoallv, in elements */
    int *out_counts, *in_counts, *out_starts, *in_starts;
    char *out_bytes, *in_bytes;
};

__attribute__((format(printf, 2, 3))) static reshard_status fail(reshard_status status,
                                                                 const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return reshard_error_set(status, text);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static reshard_status make_block(const reshard_move *move, block *b)
{
    if (move->kind != RESHARD_MOVE_COPY)
        return fail(RESHARD_ERR_UNSUPPORTED, "the plan does more than copy");
    *b = (block){.source = {.shard = move->source_shard, .at = move->source_at},
                 .target = {.shard = move->target_shard, .at = move->target_at}};
    for (int32_t d = 0; d < move->ndim; d++) {
        if (move->size[d] == 1)
            continue;
        b->size[b->ndim] = move->size[d];
        b->source.strides[b->ndim] = move->source_strides[d];
        b->target.strides[b->ndim] = move->target_strides[d];
        b->ndim++;
    }
    return RESHARD_OK;
}

static bool has_same_shape(const block *a, const block *b)
{
    size_t bytes = (size_t)a->ndim * sizeof *a->size;
    return a->ndim == b->ndim && a->source.shard == b->source.shard &&
           a->target.shard == b->target.shard && memcmp(a->size, b->size, bytes) == 0 &&
           memcmp(a->source.strides, b->source.strides, bytes) == 0 &&
           memcmp(a->target.strides, b->target.strides, bytes) == 0;
}

/* How many blocks, from this one on, follow each other at constant steps. */
static int64_t count_regular(const block *blocks, int64_t count)
{
    int64_t n = 1;
    while (n < count && blocks[0].ndim < DIMS_MAX && has_same_shape(&blocks[0], &blocks[n]) &&
           blocks[n].source.at - blocks[n - 1].source.at ==
               blocks[1].source.at - blocks[0].source.at &&
           blocks[n].target.at - blocks[n - 1].target.at ==
               blocks[1].target.at - blocks[0].target.at)
        n++;
    return n;
}

static bool fold(traffic *t)
{
    int64_t folded = 0;
    for (int64_t i = 0, n; i < t->count; i += n) {
        n = count_regular(&t->blocks[i], t->count - i);
        block b = t->blocks[i];
        if (n > 1) {
            b.size[b.ndim] = n;
            b.source.strides[b.ndim] = t->blocks[i + 1].source.at - b.source.at;
            b.target.strides[b.ndim] = t->blocks[i + 1].target.at - b.target.at;
            b.ndim++;
        }
        t->blocks[folded++] = b;
    }
    bool changed = folded != t->count;
    t->count = folded;
    return changed;
}

static void swap_numbers(int64_t *a, int64_t *b)
{
    int64_t kept = *a;
    *a = *b;
    *b = kept;
}

/* Sorts dims by decreasing stride in the target, then merges dims that are contiguous on both
 * ends. */
static void sort_dims(block *b)
{
    for (int32_t i = 1; i < b->ndim; i++) {
        for (int32_t d = i; d > 0 && b->target.strides[d] > b->target.strides[d - 1]; d--) {
            swap_numbers(&b->size[d], &b->size[d - 1]);
            swap_numbers(&b->source.strides[d], &b->source.strides[d - 1]);
            swap_numbers(&b->target.strides[d], &b->target.strides[d - 1]);
        }
    }
    int32_t kept = 0;
    for (int32_t d = 1; d < b->ndim; d++) {
        if (b->source.strides[kept] == b->size[d] * b->source.strides[d] &&
            b->target.strides[kept] == b->size[d] * b->target.strides[d]) {
            b->size[kept] *= b->size[d];
        } else {
            kept++;
            b->size[kept] = b->size[d];
        }
        b->source.strides[kept] = b->source.strides[d];
        b->target.strides[kept] = b->target.strides[d];
    }
    b->ndim = b->ndim > 0 ? kept + 1 : 0;
}

static int64_t count_elements(const block *b)
{
    int64_t count = 1;
    for (int32_t d = 0; d < b->ndim; d++)
        count *= b->size[d];
    return count;
}

static void finish_traffic(traffic *t)
{
    while (fold(t))
        ;
    for (int64_t i = 0; i < t->count; i++) {
        sort_dims(&t->blocks[i]);
        t->elements += count_elements(&t->blocks[i]);
    }
}

static reshard_status allocate_blocks(traffic *t, int64_t count)
{
    t->blocks = calloc((size_t)count + 1, sizeof *t->blocks);
    return t->blocks != NULL
               ? RESHARD_OK
               : fail(RESHARD_ERR_NO_MEMORY, "no memory for %lld blocks", (long long)count);
}

static reshard_status list_peer(const reshard_part *part, int32_t peer, int sending, traffic *t)
{
    reshard_stream *stream = NULL;
    reshard_status status = reshard_stream_create(part, 0, peer, sending, &stream);
    if (status != RESHARD_OK)
        return status;
    status = allocate_blocks(t, stream->count);
    for (int64_t i = 0; i < stream->count && status == RESHARD_OK; i++)
        status = make_block(&stream->moves[i], &t->blocks[t->count++]);
    reshard_stream_destroy(stream);
    if (status == RESHARD_OK)
        finish_traffic(t);
    return status;
}

static reshard_status list_keeps(const reshard_part *part, int32_t rank, traffic *t)
{
    const reshard_moves *keeps = &reshard_part_link(part, 0, 0)->keeps;
    int64_t count = 0;
    for (int64_t i = 0; i < keeps->count; i++)
        count += reshard_move_count(&keeps->items[i]);
    reshard_status status = allocate_blocks(t, count);
    for (int64_t i = 0; i < keeps->count && status == RESHARD_OK; i++) {
        int64_t singles = reshard_move_count(&keeps->items[i]);
        for (int64_t k = 0; k < singles && status == RESHARD_OK; k++) {
            reshard_move single;
            int64_t start[RESHARD_FACTORS_MAX];
            reshard_move_single(&keeps->items[i], rank, k, &single, start);
            status = make_block(&single, &t->blocks[t->count++]);
        }
    }
    if (status == RESHARD_OK)
        finish_traffic(t);
    return status;
}

static MPI_Datatype find_element(size_t item)
{
    switch (item) {
    case 1:
        return MPI_BYTE;
    case 2:
        return MPI_INT16_T;
    case 4:
        return MPI_INT32_T;
    case 8:
        return MPI_INT64_T;
    default:
        return MPI_C_DOUBLE_COMPLEX; /* 16 bytes */
    }
}

static reshard_status list_blocks(bench_mpi_rival *r, reshard_plan *plan)
{
    reshard_stage_link link = {.size = sizeof link};
    if (cli_plan_info(plan).stage_count != 1 || reshard_plan_stage_link_count(plan, 0) != 1 ||
        cli_plan_info(plan).is_adjoint)
        return fail(RESHARD_ERR_UNSUPPORTED, "the plan has more than one stage or link");
    reshard_status status = reshard_plan_stage_link(plan, 0, 0, &link);
    if (status == RESHARD_OK && link.source_dtype != link.target_dtype)
        status = fail(RESHARD_ERR_UNSUPPORTED, "the plan converts between dtypes");
    if (status == RESHARD_OK && cli_plan_info(plan).rank_count > r->size)
        status = fail(RESHARD_ERR_RANGE, "the plan has ranks that MPI lacks");
    if (status != RESHARD_OK)
        return status;
    r->item = (size_t)reshard_dtype_bits(link.source_dtype) / 8;
    r->element = find_element(r->item);
    reshard_part *part = NULL;
    status = reshard_part_create(NULL, plan, r->rank, &part);
    for (int i = 0; i < r->size && status == RESHARD_OK; i++) {
        if (i == r->rank) {
            status = list_keeps(part, r->rank, &r->out[i]);
            continue;
        }
        status = list_peer(part, i, 1, &r->out[i]);
        if (status == RESHARD_OK)
            status = list_peer(part, i, 0, &r->in[i]);
    }
    reshard_part_destroy(part);
    return status;
}

/* ---- types ----------------------------------------------------------------------------------- */

static reshard_status check_mpi(int code, const char *call)
{
    return code == MPI_SUCCESS ? RESHARD_OK : fail(RESHARD_ERR_GROUP_BROKEN, "%s failed", call);
}

/* Finds an array that has these strides, and where the block begins in it. Returns false if there
 * is no such array, or it is too large for int. */
static bool find_array(const block *b, const end *e, int *sizes, int *subsizes, int *starts)
{
    int64_t at = e->at;
    if (b->ndim == 0 || e->strides[b->ndim - 1] != 1)
        return false;
    for (int32_t d = 0; d < b->ndim; d++) {
        int64_t start = at / e->strides[d], size = start + b->size[d];
        at %= e->strides[d];
        if (d > 0) {
            if (e->strides[d - 1] % e->strides[d] != 0 || size > e->strides[d - 1] / e->strides[d])
                return false;
            size = e->strides[d - 1] / e->strides[d];
        }
        if (size > INT_MAX)
            return false;
        sizes[d] = (int)size;
        subsizes[d] = (int)b->size[d];
        starts[d] = (int)start;
    }
    return true;
}

/* Makes vectors of vectors, for strides that fit no array. */
static int make_vectors(const bench_mpi_rival *r, const block *b, const end *e,
                        MPI_Datatype *out_type)
{
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int code = MPI_Type_contiguous(1, r->element, &type);
    for (int32_t d = b->ndim - 1; d >= 0 && code == MPI_SUCCESS; d--) {
        MPI_Datatype outer = MPI_DATATYPE_NULL;
        code = b->size[d] > INT_MAX
                   ? MPI_ERR_COUNT
                   : MPI_Type_create_hvector((int)b->size[d], 1,
                                             (MPI_Aint)(e->strides[d] * (int64_t)r->item), type,
                                             &outer);
        (void)MPI_Type_free(&type);
        type = outer;
    }
    if (code == MPI_SUCCESS) {
        MPI_Aint place = (MPI_Aint)(e->at * (int64_t)r->item);
        code = MPI_Type_create_hindexed_block(1, 1, &place, type, out_type);
        (void)MPI_Type_free(&type);
    }
    return code;
}

static int make_type(const bench_mpi_rival *r, const block *b, const end *e, MPI_Datatype *out_type)
{
    int sizes[DIMS_MAX], subsizes[DIMS_MAX], starts[DIMS_MAX];
    return find_array(b, e, sizes, subsizes, starts)
               ? MPI_Type_create_subarray(b->ndim, sizes, subsizes, starts, MPI_ORDER_C, r->element,
                                          out_type)
               : make_vectors(r, b, e, out_type);
}

/* Joins all blocks of one peer into one type, relative to the memory of the first shard. */
static reshard_status join_types(const bench_mpi_rival *r, const traffic *t, bool sending,
                                 MPI_Datatype *out_type)
{
    size_t count = (size_t)t->count;
    MPI_Datatype *types = calloc(count + 1, sizeof *types);
    MPI_Aint *places = calloc(count + 1, sizeof *places);
    int *ones = calloc(count + 1, sizeof *ones);
    int code = types == NULL || places == NULL || ones == NULL ? MPI_ERR_NO_MEM : MPI_SUCCESS;
    int64_t made = 0;
    while (made < t->count && code == MPI_SUCCESS) {
        const end *e = sending ? &t->blocks[made].source : &t->blocks[made].target;
        const void *const *buffers = sending ? r->sources : (const void *const *)r->targets;
        MPI_Aint base = 0;
        (void)MPI_Get_address(buffers[0], &base);
        (void)MPI_Get_address(buffers[e->shard], &places[made]);
        places[made] -= base;
        ones[made] = 1;
        code = make_type(r, &t->blocks[made], e, &types[made]);
        made += code == MPI_SUCCESS;
    }
    if (code == MPI_SUCCESS && made == 1 && places[0] == 0) {
        *out_type = types[0];
        made = 0;
    } else if (code == MPI_SUCCESS) {
        code = MPI_Type_create_struct((int)made, ones, places, types, out_type);
    }
    for (int64_t i = 0; i < made; i++)
        (void)MPI_Type_free(&types[i]);
    if (code == MPI_SUCCESS)
        code = MPI_Type_commit(out_type);
    free(types);
    free(places);
    free(ones);
    return check_mpi(code, "making a datatype");
}

static reshard_status make_types(bench_mpi_rival *r)
{
    reshard_status status = RESHARD_OK;
    for (int i = 0; i < r->size && status == RESHARD_OK; i++) {
        const traffic *in = i == r->rank ? &r->out[i] : &r->in[i];
        r->ones_out[i] = r->out[i].count != 0;
        r->ones_in[i] = in->count != 0;
        if (r->ones_out[i])
            status = join_types(r, &r->out[i], true, &r->out_types[i]);
        if (r->ones_in[i] && status == RESHARD_OK)
            status = join_types(r, in, false, &r->in_types[i]);
    }
    return status;
}

/* ---- packing --------------------------------------------------------------------------------- */

static void copy_dims(int32_t ndim, const int64_t *size, const int64_t *source_strides,
                      const int64_t *target_strides, size_t item, const char *source, char *target)
{
    if (ndim == 0) {
        memcpy(target, source, item);
        return;
    }
    if (ndim == 1 && *source_strides == 1 && *target_strides == 1) {
        memcpy(target, source, (size_t)*size * item);
        return;
    }
    int64_t source_step = *source_strides * (int64_t)item;
    int64_t target_step = *target_strides * (int64_t)item;
    if (ndim == 1 && item == 4) { /* a constant size, so that the compiler can inline it */
        for (int64_t i = 0; i < *size; i++)
            memcpy(target + i * target_step, source + i * source_step, 4);
        return;
    }
    for (int64_t i = 0; i < *size; i++)
        copy_dims(ndim - 1, size + 1, source_strides + 1, target_strides + 1, item,
                  source + i * source_step, target + i * target_step);
}

static void dense_strides(const block *b, int64_t *strides)
{
    int64_t step = 1;
    for (int32_t d = b->ndim - 1; d >= 0; d--) {
        strides[d] = step;
        step *= b->size[d];
    }
}

typedef enum carry_way { PACK, UNPACK, KEEP } carry_way;

/* Copies the blocks of one peer: from the sources, into the targets, or both if they stay. */
static void carry(const bench_mpi_rival *r, const traffic *t, carry_way way)
{
    char *packed = t->packed;
    for (int64_t i = 0; i < t->count; i++) {
        const block *b = &t->blocks[i];
        int64_t dense[DIMS_MAX], item = (int64_t)r->item;
        dense_strides(b, dense);
        const char *source = way == UNPACK
                                 ? packed
                                 : (const char *)r->sources[b->source.shard] + b->source.at * item;
        char *target =
            way == PACK ? packed : (char *)r->targets[b->target.shard] + b->target.at * item;
        copy_dims(b->ndim, b->size, way == UNPACK ? dense : b->source.strides,
                  way == PACK ? dense : b->target.strides, r->item, source, target);
        if (way != KEEP)
            packed += (size_t)count_elements(b) * r->item;
    }
}

/* Sets counts and positions for one direction, and allocates its memory. */
static reshard_status place_packed(const bench_mpi_rival *r, traffic *all, int *counts, int *starts,
                                   char **out_bytes)
{
    int64_t total = 0;
    for (int i = 0; i < r->size; i++) {
        int64_t elements = i != r->rank ? all[i].elements : 0;
        if (total + elements > INT_MAX)
            return fail(RESHARD_ERR_UNSUPPORTED, "more elements than MPI counts in one exchange");
        counts[i] = (int)elements;
        starts[i] = (int)total;
        total += elements;
    }
    *out_bytes = malloc((size_t)total * r->item + 1);
    if (*out_bytes == NULL)
        return fail(RESHARD_ERR_NO_MEMORY, "no memory to pack %lld elements", (long long)total);
    memset(*out_bytes, 1, (size_t)total * r->item + 1); /* touch the pages */
    for (int i = 0; i < r->size; i++)
        all[i].packed = *out_bytes + (size_t)starts[i] * r->item;
    return RESHARD_OK;
}

/* ---- the calls ------------------------------------------------------------------------------- */

static reshard_status allocate(bench_mpi_rival *r)
{
    size_t n = (size_t)r->size;
    r->out = calloc(n, sizeof *r->out);
    r->in = calloc(n, sizeof *r->in);
    r->out_types = calloc(n, sizeof *r->out_types);
    r->in_types = calloc(n, sizeof *r->in_types);
    int *numbers = calloc(7 * n, sizeof *numbers); /* `zeros` owns all seven arrays */
    r->zeros = numbers;
    for (size_t i = 0; i < n && r->out_types != NULL; i++)
        r->out_types[i] = MPI_BYTE;
    for (size_t i = 0; i < n && r->in_types != NULL; i++)
        r->in_types[i] = MPI_BYTE;
    if (r->out == NULL || r->in == NULL || r->out_types == NULL || r->in_types == NULL ||
        numbers == NULL)
        return fail(RESHARD_ERR_NO_MEMORY, "no memory for %d ranks", r->size);
    int **arrays[] = {&r->ones_out,  &r->ones_in,    &r->out_counts,
                      &r->in_counts, &r->out_starts, &r->in_starts};
    for (size_t i = 0; i < 6; i++)
        *arrays[i] = numbers + (i + 1) * n;
    return RESHARD_OK;
}

static reshard_status build(bench_mpi_rival *r, reshard_plan *plan)
{
    reshard_status status = allocate(r);
    if (status == RESHARD_OK)
        status = list_blocks(r, plan);
    if (status == RESHARD_OK)
        status = make_types(r);
    if (status == RESHARD_OK)
        status = place_packed(r, r->out, r->out_counts, r->out_starts, &r->out_bytes);
    if (status == RESHARD_OK)
        status = place_packed(r, r->in, r->in_counts, r->in_starts, &r->in_bytes);
    return status;
}

/* All ranks get the lowest status; the rank that found it keeps its own error text. */
static reshard_status agree(MPI_Comm comm, reshard_status status)
{
    int mine = status, lowest = RESHARD_OK;
    if (MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, comm) != MPI_SUCCESS)
        return fail(RESHARD_ERR_GROUP_BROKEN, "MPI_Allreduce failed");
    return lowest == status ? status
                            : fail(lowest, "another rank cannot run the plan by MPI alone");
}

static void release_traffic(traffic *all, MPI_Datatype *types, int size)
{
    for (int i = 0; all != NULL && i < size; i++)
        free(all[i].blocks);
    for (int i = 0; types != NULL && i < size; i++) {
        if (types[i] != MPI_BYTE)
            (void)MPI_Type_free(&types[i]);
    }
    free(all);
    free(types);
}

static void destroy(bench_mpi_rival *r)
{
    if (r == NULL)
        return;
    release_traffic(r->out, r->out_types, r->size);
    release_traffic(r->in, r->in_types, r->size);
    (void)MPI_Comm_free(&r->comm);
    free(r->zeros);
    free(r->out_bytes);
    free(r->in_bytes);
    free(r);
}

static reshard_status create(reshard_plan *plan, const void *const *sources, void *const *targets,
                             bench_mpi_rival **out_rival)
{
    MPI_Comm comm = MPI_COMM_NULL;
    reshard_status status = check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
    if (status != RESHARD_OK)
        return status;
    bench_mpi_rival *r = calloc(1, sizeof *r);
    if (r == NULL) {
        status = fail(RESHARD_ERR_NO_MEMORY, "no memory for a rival");
    } else {
        r->sources = sources;
        r->targets = targets;
        (void)MPI_Comm_rank(comm, &r->rank);
        (void)MPI_Comm_size(comm, &r->size);
        status = build(r, plan);
    }
    status = agree(comm, status);
    if (r != NULL)
        r->comm = comm;
    else
        (void)MPI_Comm_free(&comm);
    if (status != RESHARD_OK) {
        destroy(r);
        return status;
    }
    *out_rival = r;
    return RESHARD_OK;
}

static reshard_status run_packed(const bench_mpi_rival *r)
{
    for (int k = 1; k < r->size; k++)
        carry(r, &r->out[(r->rank + k) % r->size], PACK);
    carry(r, &r->out[r->rank], KEEP);
    int code = MPI_Alltoallv(r->out_bytes, r->out_counts, r->out_starts, r->element, r->in_bytes,
                             r->in_counts, r->in_starts, r->element, r->comm);
    for (int k = 1; k < r->size; k++)
        carry(r, &r->in[(r->rank + k) % r->size], UNPACK);
    return check_mpi(code, "MPI_Alltoallv");
}

static reshard_status run(bench_mpi_rival *r, bench_mpi_rival_kind kind)
{
    if (kind == BENCH_MPI_ALLTOALLV)
        return run_packed(r);
    /* Types are relative to the first buffer. A rank without buffers has only counts of 0. */
    bool sends = false, receives = false;
    for (int i = 0; i < r->size; i++) {
        sends = sends || r->ones_out[i];
        receives = receives || r->ones_in[i];
    }
    return check_mpi(MPI_Alltoallw(sends ? r->sources[0] : NULL, r->ones_out, r->zeros,
                                   r->out_types, receives ? r->targets[0] : NULL, r->ones_in,
                                   r->zeros, r->in_types, r->comm),
                     "MPI_Alltoallw");
}

const bench_mpi_calls bench_mpi_rival_calls = {.create = create, .run = run, .destroy = destroy};
