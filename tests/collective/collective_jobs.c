/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/collective/collective_jobs.h"

#include "tests/support/check.h"

#include <stdio.h>
#include <string.h>

const char *const operation_names[] = {
#define OPERATION_NAME(name) #name,
    OPERATION_LIST(OPERATION_NAME)
#undef OPERATION_NAME
};

/* ---- values ---------------------------------------------------------------------------------- */

bool has_values(reshard_dtype dtype)
{
    return reshard_dtype_bits(dtype) >= 8 &&
           (dtype < RESHARD_F8_E5M2 || dtype > RESHARD_F8_E5M2FNUZ);
}

static bool is_signed(reshard_dtype dtype)
{
    return dtype == RESHARD_I8 || dtype == RESHARD_I16 || dtype == RESHARD_I32 ||
           dtype == RESHARD_I64;
}

static bool is_float(reshard_dtype dtype)
{
    return dtype == RESHARD_F16 || dtype == RESHARD_BF16 || dtype == RESHARD_F32 ||
           dtype == RESHARD_F64 || dtype == RESHARD_C64 || dtype == RESHARD_C128;
}

/* Bits of a 16-bit floating type: cut off, so exact for the small numbers of these tests, and close
 * enough for their averages. */
static uint16_t to_half(reshard_dtype dtype, double value)
{
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    if (dtype == RESHARD_BF16 || value == 0)
        return (uint16_t)(bits >> 16);
    uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
    return (uint16_t)((bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff));
}

static double from_half(reshard_dtype dtype, uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    if (dtype == RESHARD_F16 && (half & 0x7fff) != 0)
        bits = (half & 0x8000u) << 16 | ((half >> 10 & 0x1fu) + 127 - 15) << 23 |
               (half & 0x3ffu) << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void put(void *buffer, reshard_dtype dtype, int64_t i, double value)
{
    size_t bytes = (size_t)reshard_dtype_bits(dtype) / 8;
    char *at = (char *)buffer + (size_t)i * bytes;
    float narrow[2] = {(float)value, 0};
    double wide[2] = {value, 0};
    uint16_t half = to_half(dtype, value);
    int64_t whole = (int64_t)value; /* its low bytes: machines here are little-endian */
    const void *from = dtype == RESHARD_F64 || dtype == RESHARD_C128   ? (const void *)wide
                       : dtype == RESHARD_F32 || dtype == RESHARD_C64  ? (const void *)narrow
                       : dtype == RESHARD_F16 || dtype == RESHARD_BF16 ? (const void *)&half
                                                                       : (const void *)&whole;
    memcpy(at, from, bytes);
}

static double get(const void *buffer, reshard_dtype dtype, int64_t i)
{
    size_t bytes = (size_t)reshard_dtype_bits(dtype) / 8;
    const char *at = (const char *)buffer + (size_t)i * bytes;
    if (dtype == RESHARD_F64 || dtype == RESHARD_C128) {
        double value;
        memcpy(&value, at, sizeof value);
        return value;
    }
    if (dtype == RESHARD_F32 || dtype == RESHARD_C64) {
        float value;
        memcpy(&value, at, sizeof value);
        return (double)value;
    }
    uint64_t whole = 0;
    memcpy(&whole, at, bytes);
    if (dtype == RESHARD_F16 || dtype == RESHARD_BF16)
        return from_half(dtype, (uint16_t)whole);
    if (is_signed(dtype) && (whole >> (8 * bytes - 1)) != 0)
        whole |= bytes < 8 ? ~(uint64_t)0 << 8 * bytes : 0;
    return is_signed(dtype) ? (double)(int64_t)whole : (double)whole;
}

/* ---- what is where --------------------------------------------------------------------------- */

static int64_t count_of(const job *j, int32_t rank)
{
    return j->has_counts ? j->counts[rank] : j->count;
}

/* What lower ranks have; for `size`, the total. */
static int64_t offset_of(const job *j, int32_t rank)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < rank; i++)
        sum += count_of(j, i);
    return sum;
}

static int64_t sent_before(const job *j, int32_t sender, int32_t receiver)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < receiver; i++)
        sum += j->matrix[sender][i];
    return sum;
}

static int64_t received_before(const job *j, int32_t receiver, int32_t sender)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < sender; i++)
        sum += j->matrix[i][receiver];
    return sum;
}

static int64_t source_count(const job *j, int32_t rank)
{
    switch (j->what) {
    case ALL_GATHER:
    case GATHER:
        return count_of(j, rank);
    case REDUCE_SCATTER:
        return offset_of(j, j->size);
    case SCATTER:
        return rank == j->root ? offset_of(j, j->size) : 0;
    case BROADCAST:
        return rank == j->root ? j->count : 0;
    case ALL_TO_ALL_SINGLE:
    case ALL_TO_ALL:
        return sent_before(j, rank, j->size);
    default:
        return j->count;
    }
}

static int64_t target_count(const job *j, int32_t rank)
{
    switch (j->what) {
    case ALL_GATHER:
        return offset_of(j, j->size);
    case GATHER:
        return rank == j->root ? offset_of(j, j->size) : 0;
    case REDUCE_SCATTER:
    case SCATTER:
        return count_of(j, rank);
    case REDUCE:
        return rank == j->root ? j->count : 0;
    case ALL_TO_ALL_SINGLE:
    case ALL_TO_ALL:
        return received_before(j, rank, j->size);
    default:
        return j->count;
    }
}

bool reduces(operation what)
{
    return what == REDUCE_SCATTER || what == ALL_REDUCE || what == REDUCE;
}

bool has_root(operation what)
{
    return what == BROADCAST || what == SCATTER || what == GATHER || what == REDUCE;
}

bool has_parts(operation what)
{
    return what == ALL_GATHER || what == REDUCE_SCATTER || what == SCATTER || what == GATHER;
}

/* Contributions are small, so that products are exact; what is only moved is told apart as far as
 * its type can. */
static double source_value(const job *j, int32_t rank, int64_t i)
{
    int64_t small = rank * 7 + i * 3, wide = rank * 1000 + i;
    if (j->dtype == RESHARD_BOOL)
        return (double)(small % 2);
    if (reduces(j->what))
        return (double)(is_signed(j->dtype) || is_float(j->dtype) ? small % 6 - 2 : small % 4);
    return (double)(reshard_dtype_bits(j->dtype) <= 16 ? wide % 127 : wide);
}

static double combine(const job *j, double a, double b)
{
    bool logical = j->dtype == RESHARD_BOOL;
    switch (j->reduction) {
    case RESHARD_PROD:
        return a * b;
    case RESHARD_MIN:
        return b < a ? b : a;
    case RESHARD_MAX:
        return b > a ? b : a;
    case RESHARD_BAND:
        return (double)((int64_t)a & (int64_t)b);
    case RESHARD_BOR:
        return (double)((int64_t)a | (int64_t)b);
    case RESHARD_BXOR:
        return (double)((int64_t)a ^ (int64_t)b);
    default:
        return logical ? (double)(a + b > 0) : a + b;
    }
}

static double reduce_values(const job *j, int64_t i)
{
    double value = source_value(j, 0, i);
    for (int32_t rank = 1; rank < j->size; rank++)
        value = combine(j, value, source_value(j, rank, i));
    if (j->reduction == RESHARD_AVG)
        value = is_float(j->dtype) ? value / j->size : (double)((int64_t)value / j->size);
    if (j->dtype == RESHARD_I8) /* 3^5 does not fit */
        value = (double)(int8_t)(int64_t)value;
    return value;
}

static double target_value(const job *j, int32_t rank, int64_t i)
{
    int32_t from = 0;
    switch (j->what) {
    case ALL_GATHER:
    case GATHER:
        while (i >= offset_of(j, from + 1))
            from++;
        return source_value(j, from, i - offset_of(j, from));
    case REDUCE_SCATTER:
        return reduce_values(j, offset_of(j, rank) + i);
    case SCATTER:
        return source_value(j, j->root, offset_of(j, rank) + i);
    case BROADCAST:
        return source_value(j, j->root, i);
    case ALL_TO_ALL_SINGLE:
    case ALL_TO_ALL:
        while (i >= received_before(j, rank, from + 1))
            from++;
        return source_value(j, from,
                            sent_before(j, from, rank) + i - received_before(j, rank, from));
    default:
        return reduce_values(j, i);
    }
}

/* ---- buffers --------------------------------------------------------------------------------- */

static bool is_in_place(const job *j, int32_t rank)
{
    bool takes_part = !has_root(j->what) || rank == j->root;
    return takes_part && j->what != ALL_TO_ALL && j->what != ALL_TO_ALL_SINGLE &&
           (j->in_place >> rank & 1) != 0;
}

static void *add_bytes(void *start, int64_t count, size_t bytes)
{
    return count == 0 ? start : (char *)start + (size_t)count * bytes;
}

static void prepare_buffers(job *j, int32_t rank)
{
    size_t bytes = (size_t)reshard_dtype_bits(j->dtype) / 8;
    void **owned = j->owned[rank];
    bool in_place = is_in_place(j, rank);
    bool source_is_part = j->what == ALL_GATHER || j->what == GATHER;
    int64_t offset = has_parts(j->what) ? offset_of(j, rank) : 0;
    if (!in_place || !source_is_part)
        owned[0] = j->sources[rank] = make(source_count(j, rank), bytes);
    if (!in_place || source_is_part)
        owned[1] = j->targets[rank] = make(target_count(j, rank), bytes);
    if (in_place && source_is_part)
        j->sources[rank] = add_bytes(j->targets[rank], offset, bytes);
    else if (in_place)
        j->targets[rank] = add_bytes(j->sources[rank], offset, bytes);
    for (int32_t i = 0; i < j->size && j->what == ALL_TO_ALL; i++) {
        j->source_lists[rank][i] = make(j->matrix[rank][i], bytes);
        j->target_lists[rank][i] = make(j->matrix[i][rank], bytes);
    }
}

/* Targets get other bytes than they should have, then sources their values. */
static void fill_buffers(job *j, int32_t rank)
{
    size_t bytes = (size_t)reshard_dtype_bits(j->dtype) / 8;
    if (target_count(j, rank) != 0)
        memset(j->targets[rank], 0xee, (size_t)target_count(j, rank) * bytes);
    for (int64_t i = 0; i < source_count(j, rank); i++)
        put(j->sources[rank], j->dtype, i, source_value(j, rank, i));
    for (int32_t i = 0; i < j->size && j->what == ALL_TO_ALL; i++) {
        if (j->matrix[i][rank] != 0)
            memset(j->target_lists[rank][i], 0xee, (size_t)j->matrix[i][rank] * bytes);
        for (int64_t k = 0; k < j->matrix[rank][i]; k++)
            put(j->source_lists[rank][i], j->dtype, k,
                source_value(j, rank, sent_before(j, rank, i) + k));
    }
}

void prepare_job(job *j)
{
    for (int32_t rank = 0; rank < j->size; rank++) {
        prepare_buffers(j, rank);
        fill_buffers(j, rank);
    }
}

void forget_job(job *j)
{
    for (int32_t rank = 0; rank < j->size; rank++) {
        free(j->owned[rank][0]);
        free(j->owned[rank][1]);
        for (int32_t i = 0; i < j->size; i++) {
            free(j->source_lists[rank][i]);
            free(j->target_lists[rank][i]);
        }
    }
}

/* ---- calling --------------------------------------------------------------------------------- */

reshard_status call_job(reshard_context *context, job *j, reshard_group *group,
                        reshard_work **out_work)
{
    static const reshard_exchange_kind kinds[] = {
#define KIND(name) [name] = RESHARD_##name,
        OPERATION_LIST(KIND)
#undef KIND
    };
    int32_t rank = reshard_group_rank(group);
    int64_t receives[RANKS_MAX];
    for (int32_t i = 0; i < j->size; i++)
        receives[i] = j->matrix[i][rank];
    const reshard_exchange exchange = {.size = sizeof exchange,
                                       .kind = kinds[j->what],
                                       .dtype = j->dtype,
                                       .reduction = j->reduction,
                                       .root = j->root,
                                       .count = j->count,
                                       .counts = j->has_counts ? j->counts : NULL,
                                       .send_counts = j->matrix[rank],
                                       .receive_counts = receives,
                                       .source = j->sources[rank],
                                       .target = j->targets[rank],
                                       .sources = (const void *const *)j->source_lists[rank],
                                       .targets = j->target_lists[rank]};
    return reshard_exchange_run(context, group, &exchange, out_work);
}

/* ---- running --------------------------------------------------------------------------------- */

static void note(job *j, int32_t rank, reshard_status status)
{
    j->status[rank] = status;
    if (status != RESHARD_OK)
        (void)snprintf(j->text[rank], TEXT_MAX, "%s", reshard_error_text());
}

/* Starts some, asks for them out of turn, waits, and once more on buffers that were filled anew. */
static void run_together(job *first, int64_t count, reshard_group *group)
{
    enum { TOGETHER_MAX = 8 };
    reshard_work *works[TOGETHER_MAX] = {NULL};
    int32_t rank = reshard_group_rank(group);
    for (int64_t i = 0; i < count; i++)
        note(&first[i], rank, call_job(NULL, &first[i], group, &works[i]));
    for (int64_t i = count - 1; i >= 0; i--) {
        int done = 0;
        if (first[i].status[rank] == RESHARD_OK)
            note(&first[i], rank, reshard_work_test(works[i], &done));
    }
    for (int64_t i = 0; i < count; i++) {
        if (first[i].status[rank] == RESHARD_OK)
            note(&first[i], rank, reshard_work_wait(works[i]));
    }
    for (int64_t i = 0; i < count; i++) {
        fill_buffers(&first[i], rank);
        if (first[i].status[rank] == RESHARD_OK)
            note(&first[i], rank, reshard_work_restart(works[i]));
    }
    /* Releasing waits. */
    for (int64_t i = 0; i < count; i++)
        reshard_work_destroy(works[i]);
}

static reshard_status run_body(void *user, reshard_group *group)
{
    jobs *all = user;
    reshard_group *sub = NULL;
    reshard_status status = RESHARD_OK;
    if (all->member_count != 0) {
        status = reshard_group_subset(group, all->member_count, all->members, &sub);
        group = sub;
    }
    for (int64_t i = 0; i < all->count && group != NULL && all->together == 0; i++)
        note(&all->items[i], reshard_group_rank(group),
             call_job(NULL, &all->items[i], group, NULL));
    for (int64_t i = 0; i < all->count && group != NULL && all->together != 0; i += all->together) {
        int64_t left = all->count - i;
        run_together(&all->items[i], left < all->together ? left : all->together, group);
    }
    reshard_group_release(sub);
    return status;
}

/* ---- checking -------------------------------------------------------------------------------- */

static void check_element(const job *j, int32_t rank, int64_t i, double seen, double wanted)
{
    double difference = seen - wanted, limit = 0;
    if (j->reduction == RESHARD_AVG && is_float(j->dtype))
        limit = j->dtype == RESHARD_BF16 ? 0.02 : j->dtype == RESHARD_F16 ? 0.003 : 1e-6;
    if (!(difference >= -limit && difference <= limit))
        fail_msg("%s of %d ranks, %s, %s, root %d, in place %x: rank %d has %g for element %d, not "
                 "%g",
                 operation_names[j->what], j->size, reshard_dtype_name(j->dtype),
                 reshard_reduction_name(j->reduction), j->root, j->in_place, rank, seen, (int)i,
                 wanted);
}

void check_job(const job *j)
{
    for (int32_t rank = 0; rank < j->size; rank++) {
        if (j->status[rank] != RESHARD_OK)
            fail_msg("%s of %d ranks: %s", operation_names[j->what], j->size, j->text[rank]);
        for (int64_t i = 0; i < target_count(j, rank) && j->what != ALL_TO_ALL; i++)
            check_element(j, rank, i, get(j->targets[rank], j->dtype, i), target_value(j, rank, i));
        for (int32_t from = 0; from < j->size && j->what == ALL_TO_ALL; from++) {
            int64_t first = received_before(j, rank, from);
            for (int64_t i = 0; i < j->matrix[from][rank]; i++)
                check_element(j, rank, first + i, get(j->target_lists[rank][from], j->dtype, i),
                              target_value(j, rank, first + i));
        }
    }
}

void add_job(jobs *all, const job *made)
{
    if (all->offered++ % all->step != all->phase)
        return;
    if (all->count == all->capacity) {
        all->capacity = all->capacity * 2 + 64;
        all->items = realloc(all->items, (size_t)all->capacity * sizeof *all->items);
        if (all->items == NULL)
            abort();
    }
    all->items[all->count] = *made;
    prepare_job(&all->items[all->count++]);
}

void run_jobs(const way *w, int32_t world, jobs *all)
{
    assert_int_equal(run_way(w, world, run_body, all), RESHARD_OK);
    for (int64_t i = 0; i < all->count; i++) {
        check_job(&all->items[i]);
        forget_job(&all->items[i]);
    }
    free(all->items);
}
