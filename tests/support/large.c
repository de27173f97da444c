/* SPDX-License-Identifier: Apache-2.0 */
/*
 * large.c - see large.h. Byte g of a global tensor, in row-major order, holds a number that depends
 * on g modulo the period.
 */
#include "tests/support/large.h"

#include <reshard/reshard.h>

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    WIDTH = 10 * PAGE,  /* of a row, in bytes */
    FIRST_WIDTH = PAGE, /* of which rank 0 gets these columns */
    PERIOD_ROWS = 127,  /* a prime */
    PERIOD = PERIOD_ROWS * WIDTH,
    ROWS = 120000,
    FIRST_ROWS = 118000, /* rank 0 has these: times what rank 1 gets of each, beyond 2^32 */
    WINDOW = 1000        /* elements */
};

static unsigned char byte_at(uint64_t g)
{
    return (unsigned char)((g % PERIOD * UINT64_C(0x9e3779b97f4a7c15)) >> 40);
}

/* ---- memory that repeats itself -------------------------------------------------------------- */

typedef struct repeated {
    char *bytes;
    size_t count, period; /* whole pages; period 0: memory of its own */
} repeated;

static int open_memory(size_t bytes)
{
    char name[64]; /* its address: no other thread has the same */
    (void)snprintf(name, sizeof name, "/reshard-%ld-%p", (long)getpid(), (void *)name);
    int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0)
        return -1;
    (void)shm_unlink(name);
    if (posix_fallocate(file, 0, (off_t)bytes) == 0)
        return file;
    (void)close(file);
    return -1;
}

static reshard_status make_repeated(repeated *r, size_t count, size_t period)
{
    *r = (repeated){.count = (count + PAGE - 1) / PAGE * PAGE, .period = period};
    int file = open_memory(period);
    if (file < 0)
        return reshard_error_set(RESHARD_ERR_NO_MEMORY, "no shared memory");
    /* The first mapping reserves the addresses, the others lie over it. */
    char *bytes = mmap(NULL, r->count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    bool mapped = bytes != MAP_FAILED;
    for (size_t at = 0; mapped && at < r->count; at += period) {
        size_t length = r->count - at < period ? r->count - at : period;
        mapped = mmap(bytes + at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                      0) != MAP_FAILED;
    }
    (void)close(file);
    if (bytes != MAP_FAILED)
        r->bytes = bytes;
    return mapped ? RESHARD_OK : reshard_error_set(RESHARD_ERR_NO_MEMORY, "no addresses");
}

static reshard_status make_plain(repeated *r, size_t count)
{
    *r = (repeated){.bytes = calloc(count, 1), .count = count};
    return r->bytes != NULL ? RESHARD_OK : reshard_error_set(RESHARD_ERR_NO_MEMORY, "no memory");
}

static void release_repeated(repeated *r)
{
    if (r->period == 0)
        free(r->bytes);
    else if (r->bytes != NULL)
        (void)munmap(r->bytes, r->count);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static reshard_status make_plan(const reshard_plan_tensor *from, const reshard_plan_tensor *to,
                                const reshard_link *link, reshard_plan **out_plan)
{
    return reshard_plan_create(NULL, 1, from, 1, to, 1, link, NULL, out_plan);
}

static reshard_status plan_exchange(reshard_plan **out_plan)
{
    const int64_t shape[] = {ROWS, WIDTH};
    reshard_plan_tensor from = {"rows", NULL, RESHARD_U8}, to = {"columns", NULL, RESHARD_U8};
    reshard_link link = reshard_link_whole(0, 0);
    char text[64];
    (void)snprintf(text, sizeof text, "2: S(0=%d,%d)", FIRST_ROWS, ROWS - FIRST_ROWS);
    reshard_status status = reshard_layout_parse(NULL, text, 2, shape, &from.layout);
    (void)snprintf(text, sizeof text, "2: S(1=%d,%d)", FIRST_WIDTH, WIDTH - FIRST_WIDTH);
    if (status == RESHARD_OK)
        status = reshard_layout_parse(NULL, text, 2, shape, &to.layout);
    if (status == RESHARD_OK)
        status = make_plan(&from, &to, &link, out_plan);
    reshard_layout_release(from.layout);
    reshard_layout_release(to.layout);
    return status;
}

/* A window of a long vector. */
#define BORDER (INT64_C(1) << 32)
#define LENGTH (BORDER + 2 * WINDOW)

static int64_t window_start(const large *l)
{
    return l->kind == LARGE_ACROSS ? BORDER - WINDOW / 2 : BORDER + 7;
}

static reshard_status plan_window(const large *l, reshard_plan **out_plan)
{
    int64_t length = LENGTH, window = WINDOW;
    reshard_dtype dtype = l->wide ? RESHARD_I64 : RESHARD_U8;
    reshard_plan_tensor from = {"long", NULL, dtype}, to = {"window", NULL, dtype};
    reshard_link link = reshard_link_whole(0, 0);
    link.source_box.ndim = 1;
    link.source_box.offset[0] = window_start(l);
    link.source_box.size[0] = WINDOW;
    reshard_status status = reshard_layout_parse(NULL, "2: A(0)", 1, &length, &from.layout);
    if (status == RESHARD_OK)
        status = reshard_layout_parse(NULL, "2: R", 1, &window, &to.layout);
    if (status == RESHARD_OK)
        status = make_plan(&from, &to, &link, out_plan);
    reshard_layout_release(from.layout);
    reshard_layout_release(to.layout);
    return status;
}

/* ---- one rank -------------------------------------------------------------------------------- */

typedef struct sizes {
    size_t source, target, target_period; /* bytes */
    uint64_t source_first;                /* the global byte that the source begins with */
} sizes;

static sizes find_sizes(const large *l, int32_t rank)
{
    if (l->kind == LARGE_EXCHANGE) {
        size_t width = rank == 0 ? FIRST_WIDTH : WIDTH - FIRST_WIDTH;
        return (sizes){
            .source = (size_t)WIDTH * (rank == 0 ? FIRST_ROWS : ROWS - FIRST_ROWS),
            .target = width * ROWS,
            .target_period = l->real_targets ? 0 : width * PERIOD_ROWS,
            .source_first = rank == 0 ? 0 : (uint64_t)FIRST_ROWS * WIDTH,
        };
    }
    size_t item = l->wide ? 8 : 1;
    return (sizes){.source = rank == 0 ? (size_t)LENGTH * item : 0, .target = WINDOW * item};
}

static int check_run(const unsigned char *found, size_t count, uint64_t first)
{
    for (size_t i = 0; i < count; i++) {
        if (found[i] != byte_at(first + i))
            return 0;
    }
    return 1;
}

static reshard_status check_target(const large *l, int32_t rank, const repeated *target)
{
    const unsigned char *bytes = (const unsigned char *)target->bytes;
    char text[120];
    if (l->kind != LARGE_EXCHANGE) {
        size_t item = l->wide ? 8 : 1;
        uint64_t first = (uint64_t)window_start(l) * item;
        return check_run(bytes, WINDOW * item, first)
                   ? RESHARD_OK
                   : reshard_error_set(RESHARD_ERR_CHECK, "the window holds wrong bytes");
    }
    size_t width = rank == 0 ? FIRST_WIDTH : WIDTH - FIRST_WIDTH;
    size_t rows = l->real_targets ? ROWS : PERIOD_ROWS;
    for (size_t row = 0; row < rows; row++) {
        uint64_t first = row * WIDTH + (rank == 0 ? 0 : FIRST_WIDTH);
        if (check_run(bytes + row * width, width, first))
            continue;
        (void)snprintf(text, sizeof text, "row %zu holds wrong bytes", row);
        return reshard_error_set(RESHARD_ERR_CHECK, text);
    }
    return RESHARD_OK;
}

static reshard_status move(const large *l, reshard_group *group, reshard_plan *plan,
                           const repeated *source, const repeated *target)
{
    reshard_exec *exec = NULL;
    reshard_exec_options options = {.size = sizeof options, .messages_only = l->messages_only};
    reshard_status status = reshard_exec_create(NULL, plan, group, &options, &exec);
    if (status == RESHARD_OK)
        status = reshard_exec_start(exec, (const void *const[]){source->bytes},
                                    (void *const[]){target->bytes});
    if (status == RESHARD_OK)
        status = reshard_exec_wait(exec);
    reshard_exec_destroy(exec);
    return status;
}

int large_is_wanted_real(void)
{
    const char *big = getenv("RESHARD_TEST_BIG");
    return big != NULL && strcmp(big, "1") == 0;
}

reshard_status large_run_rank(void *user, reshard_group *group)
{
    const large *l = user;
    int32_t rank = reshard_group_rank(group);
    sizes s = find_sizes(l, rank);
    repeated source = {0}, target = {0};
    reshard_plan *plan = NULL;
    reshard_status status = s.source != 0 ? make_repeated(&source, s.source, PERIOD) : RESHARD_OK;
    if (status == RESHARD_OK)
        status = s.target_period != 0 ? make_repeated(&target, s.target, s.target_period)
                                      : make_plain(&target, s.target);
    for (size_t i = 0; i < PERIOD && status == RESHARD_OK && s.source != 0; i++)
        source.bytes[i] = (char)byte_at(s.source_first + i);
    if (status == RESHARD_OK)
        status = l->kind == LARGE_EXCHANGE ? plan_exchange(&plan) : plan_window(l, &plan);
    status = reshard_group_agree(group, status);
    if (status == RESHARD_OK)
        status = move(l, group, plan, &source, &target);
    if (status == RESHARD_OK)
        status = check_target(l, rank, &target);
    reshard_plan_release(plan);
    release_repeated(&source);
    release_repeated(&target);
    return status;
}
