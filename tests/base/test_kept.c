/* SPDX-License-Identifier: Apache-2.0 */
/* Large blocks that a context keeps: who gets them again, what bounds them, when they go back. */
#include "base/context.h"
#include "base/kept.h"
#include "system/thread.h"
#include "tests/support/check.h"
#include "tests/support/info.h"
#include "tests/support/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)

/* Sanitizers have memory of their own, so that the process's own says nothing. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static reshard_context *make_context(size_t bytes_max)
{
    reshard_context_options options = {.size = sizeof options, .memory_bytes_max = bytes_max};
    reshard_context *context = NULL;
    assert_int_equal(reshard_context_create(&options, &context), RESHARD_OK);
    return context;
}

static void *take(reshard_context *context, size_t bytes)
{
    char *memory = rs_block_allocate(context, bytes);
    if (memory == NULL)
        fail_msg("%zu bytes: %s", bytes, reshard_error_text());
    memory[0] = memory[bytes - 1] = 1;
    return memory;
}

static void test_kept__the_next_of_the_same_size_gets_it(void **state)
{
    (void)state;
    reshard_context *context = make_context(0);
    void *first = take(context, 8 * MIB), *second = take(context, 8 * MIB);
    assert_int_equal(info_memory(context).bytes_kept, 0);
    rs_block_release(context, first, 8 * MIB);
    assert_int_equal(info_memory(context).bytes, 8 * MIB);
    assert_int_equal(info_memory(context).bytes_kept, 8 * MIB);
    assert_ptr_equal(take(context, 8 * MIB), first);
    assert_int_equal(info_memory(context).bytes, 16 * MIB);
    assert_int_equal(info_memory(context).bytes_kept, 0);
    rs_block_release(context, first, 8 * MIB);
    rs_block_release(context, second, 8 * MIB);
    assert_int_equal(info_memory(context).bytes, 0);
    assert_int_equal(info_memory(context).bytes_peak, 16 * MIB);
    reshard_context_destroy(context); /* which leaks nothing, says the sanitizer */
}

static void test_kept__not_what_is_small_nor_of_others(void **state)
{
    (void)state;
    reshard_context *context = make_context(0);
    rs_block_release(context, take(context, MIB - 1), MIB - 1);
    rs_release(context, rs_allocate(context, 4 * MIB));
    rs_block_release(context, NULL, 4 * MIB);
    assert_int_equal(info_memory(context).bytes_kept, 0);
    rs_block_release(context, take(context, MIB), MIB);
    assert_int_equal(info_memory(context).bytes_kept, MIB);
    reshard_context_destroy(context);
    rs_block_release(NULL, take(NULL, 4 * MIB), 4 * MIB);
    assert_int_equal(info_memory(NULL).bytes_kept, 0);
    reshard_context_trim(NULL);
}

static int live;

static void *count_allocate(void *user, size_t bytes)
{
    (void)user;
    live++;
    return malloc(bytes);
}

static void *count_resize(void *user, void *memory, size_t bytes_old, size_t bytes_new)
{
    (void)user;
    (void)bytes_old;
    return realloc(memory, bytes_new);
}

static void count_release(void *user, void *memory, size_t bytes)
{
    (void)user;
    (void)bytes;
    live--;
    free(memory);
}

static void test_kept__not_memory_of_a_user_allocator(void **state)
{
    (void)state;
    reshard_allocator allocator = {count_allocate, count_resize, count_release, NULL};
    reshard_context_options options = {.size = sizeof options, .allocator = &allocator};
    reshard_context *context = NULL;
    assert_int_equal(reshard_context_create(&options, &context), RESHARD_OK);
    void *memory = take(context, 4 * MIB);
    assert_int_equal(live, 2); /* the context and the block */
    rs_block_release(context, memory, 4 * MIB);
    assert_int_equal(live, 1);
    reshard_context_destroy(context);
}

/* There is room for 32 blocks; a newer one takes the place of the oldest. */
static void test_kept__the_oldest_goes_first(void **state)
{
    (void)state;
    enum { BLOCKS = 33 };
    void *blocks[BLOCKS];
    reshard_context *context = make_context(0);
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = take(context, MIB + i);
    for (size_t i = 0; i < BLOCKS; i++)
        rs_block_release(context, blocks[i], MIB + i);
    assert_int_equal(info_memory(context).bytes_kept, 32 * MIB + BLOCKS * (BLOCKS - 1) / 2);
    for (size_t i = 1; i < BLOCKS; i++)
        assert_ptr_equal(take(context, MIB + i), blocks[i]);
    assert_int_equal(info_memory(context).bytes_kept, 0);
    for (size_t i = 1; i < BLOCKS; i++)
        rs_block_release(context, blocks[i], MIB + i);
    reshard_context_destroy(context);
}

/* What is kept goes before an allocation of any kind fails. */
static void test_kept__makes_way_at_the_limit(void **state)
{
    (void)state;
    reshard_context *context = make_context(10 * MIB);
    rs_block_release(context, take(context, 4 * MIB), 4 * MIB);
    rs_release(context, rs_allocate(context, 6 * MIB));
    assert_int_equal(info_memory(context).bytes_kept, 4 * MIB); /* there is room for both */
    void *other = rs_allocate(context, 7 * MIB);
    assert_non_null(other);
    assert_int_equal(info_memory(context).bytes_kept, 0);
    assert_null(rs_block_allocate(context, 4 * MIB));
    assert_int_equal(rs_allocation_status(), RESHARD_ERR_MEMORY_LIMIT);
    assert_int_equal(info_memory(context).bytes, 7 * MIB);
    rs_release(context, other);

    void *items = NULL;
    int64_t capacity = 0;
    assert_int_equal(rs_grow(context, &items, &capacity, 8, 8), RESHARD_OK);
    rs_block_release(context, take(context, 9 * MIB), 9 * MIB);
    assert_int_equal(info_memory(context).bytes_kept, 9 * MIB);
    assert_int_equal(rs_grow(context, &items, &capacity, 1 << 20, 8), RESHARD_OK);
    assert_int_equal(info_memory(context).bytes_kept, 0);
    rs_release(context, items);
    reshard_context_destroy(context);
}

/* Random sizes: in use and kept are together never more than was in use at once. */
static void test_kept__never_more_than_was_in_use(void **state)
{
    (void)state;
    enum { BLOCKS = 48, STEPS = 20000 };
    static struct {
        void *memory;
        size_t bytes;
    } blocks[BLOCKS];
    size_t limit = 100 * MIB, in_use = 0, most = 0;
    reshard_context *context = make_context(limit);
    draw_state random;
    draw_seed(&random, 13);
    for (int step = 0; step < STEPS; step++) {
        size_t i = (size_t)draw_below(&random, BLOCKS);
        if (blocks[i].memory != NULL) {
            rs_block_release(context, blocks[i].memory, blocks[i].bytes);
            in_use -= blocks[i].bytes;
            blocks[i].memory = NULL;
        } else {
            blocks[i].bytes = (size_t)(1 + draw_below(&random, 8)) * MIB + (i % 2);
            blocks[i].memory = rs_block_allocate(context, blocks[i].bytes);
            bool fits = in_use + blocks[i].bytes <= limit;
            assert_int_equal(blocks[i].memory != NULL, fits);
            in_use += fits ? blocks[i].bytes : 0;
        }
        if (draw_below(&random, 500) == 0) {
            reshard_context_trim(context);
            assert_int_equal(info_memory(context).bytes_kept, 0);
            most = in_use;
        }
        most = in_use > most ? in_use : most;
        size_t kept = info_memory(context).bytes_kept;
        assert_int_equal(info_memory(context).bytes, in_use);
        assert_true(in_use + kept <= most);
    }
    for (int i = 0; i < BLOCKS; i++)
        rs_block_release(context, blocks[i].memory, blocks[i].bytes);
    reshard_context_destroy(context);
}

static size_t resident_bytes(void)
{
    size_t total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%zu %zu", &total, &resident) != 2)
        resident = 0;
    if (file != NULL)
        (void)fclose(file);
    return resident * 4096;
}

static void test_kept__trim_gives_memory_back_to_the_system(void **state)
{
    (void)state;
    if (resident_bytes() == 0 || SANITIZED)
        skip();
    reshard_context *context = make_context(0);
    void *memory = take(context, 64 * MIB);
    memset(memory, 1, 64 * MIB);
    rs_block_release(context, memory, 64 * MIB);
    size_t before = resident_bytes();
    reshard_context_trim(context);
    assert_int_equal(info_memory(context).bytes_kept, 0);
    assert_true(resident_bytes() + 60 * MIB < before);
    reshard_context_destroy(context);
}

/* malloc itself fails, while there is memory that nobody uses. */
static void test_kept__makes_way_when_malloc_fails(void **state)
{
    (void)state;
    struct rlimit before, tight;
    size_t total = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%zu", &total) != 1 || SANITIZED)
        skip();
    (void)fclose(file);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    tight = before;
    tight.rlim_cur = total * 4096 + 600 * MIB;
    reshard_context *context = make_context(0);
    rs_block_release(context, rs_block_allocate(context, 700 * MIB), 700 * MIB);
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    void *a = rs_block_allocate(context, 200 * MIB), *b = rs_block_allocate(context, 300 * MIB);
    assert_true(a != NULL && b != NULL);
    rs_block_release(context, a, 200 * MIB);
    void *small = rs_block_allocate(context, 150 * MIB); /* which only fits if 200 MiB go */
    void *none = rs_block_allocate(context, 400 * MIB);
    reshard_status status = rs_allocation_status();
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_non_null(small);
    assert_null(none);
    assert_int_equal(status, RESHARD_ERR_NO_MEMORY);
    assert_int_equal(info_memory(context).bytes, 450 * MIB);
    assert_int_equal(info_memory(context).bytes_kept, 0);
    rs_block_release(context, small, 150 * MIB);
    rs_block_release(context, b, 300 * MIB);
    reshard_context_destroy(context);
}

/* The same for an array that grows. */
static void test_kept__makes_way_when_realloc_fails(void **state)
{
    (void)state;
    struct rlimit before, tight;
    size_t total = 0;
    int64_t capacity = 0;
    void *items = NULL;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%zu", &total) != 1 || SANITIZED)
        skip();
    (void)fclose(file);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    tight = before;
    tight.rlim_cur = total * 4096 + 600 * MIB;
    reshard_context *context = make_context(0);
    rs_block_release(context, rs_block_allocate(context, 500 * MIB), 500 * MIB);
    assert_int_equal(rs_grow(context, &items, &capacity, 64, MIB), RESHARD_OK);
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    reshard_status status = rs_grow(context, &items, &capacity, 256, MIB);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(status, RESHARD_OK);
    assert_int_equal(capacity, 256);
    assert_int_equal(info_memory(context).bytes, 256 * MIB);
    assert_int_equal(info_memory(context).bytes_kept, 0);
    rs_release(context, items);
    reshard_context_destroy(context);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, TURNS = 1000 };

typedef struct worker {
    reshard_context *context;
    size_t limit;
    uint64_t seed;
    int64_t wrong; /* blocks that another thread wrote to */
    int64_t over;  /* times that more than the limit was held */
} worker;

static void churn(void *user)
{
    worker *w = user;
    draw_state random;
    draw_seed(&random, w->seed);
    for (int turn = 0; turn < TURNS; turn++) {
        size_t bytes = (size_t)(1 + draw_below(&random, 3)) * MIB;
        uint64_t mark = w->seed << 32 | (uint64_t)turn;
        char *memory = rs_block_allocate(w->context, bytes);
        if (memory == NULL)
            continue;
        memcpy(memory, &mark, sizeof mark);
        memcpy(memory + bytes - sizeof mark, &mark, sizeof mark);
        rs_thread_yield();
        w->wrong += memcmp(memory, &mark, sizeof mark) != 0 ||
                    memcmp(memory + bytes - sizeof mark, &mark, sizeof mark) != 0;
        w->over += info_memory(w->context).bytes > w->limit;
        rs_block_release(w->context, memory, bytes);
        if (turn % 100 == 99)
            reshard_context_trim(w->context);
    }
}

static void test_kept__threads_never_share_a_block(void **state)
{
    (void)state;
    rs_thread threads[THREADS];
    worker workers[THREADS];
    reshard_context *context = make_context(7 * MIB); /* too little for all at once */
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.context = context, .limit = 7 * MIB, .seed = (uint64_t)i + 1};
        assert_int_equal(rs_thread_start(&threads[i], churn, &workers[i]), RESHARD_OK);
    }
    for (int i = 0; i < THREADS; i++)
        rs_thread_join(&threads[i]);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(workers[i].wrong, 0);
        assert_int_equal(workers[i].over, 0);
    }
    assert_int_equal(info_memory(context).bytes, 0);
    assert_true(info_memory(context).bytes_kept <= 7 * MIB);
    reshard_context_destroy(context);
}

/* ---- another thread at the worst moment ------------------------------------------------------ */

/* The program is linked so that the context's calls of rs_kept_take and rs_kept_put come here
 * first. So one thread can do what another one may do between any two counts of a block. */
void *__real_rs_kept_take(rs_kept *kept, size_t bytes);
bool __real_rs_kept_put(rs_kept *kept, void *memory, size_t bytes);
void *__wrap_rs_kept_take(rs_kept *kept, size_t bytes);
bool __wrap_rs_kept_put(rs_kept *kept, void *memory, size_t bytes);

static reshard_context *visited;
static int64_t visits;

/* An allocation looks whether something kept has to go. */
static void visit(void)
{
    if (visited == NULL)
        return;
    visits++;
    rs_release(visited, rs_allocate(visited, 64));
}

void *__wrap_rs_kept_take(rs_kept *kept, size_t bytes)
{
    visit();
    void *memory = __real_rs_kept_take(kept, bytes);
    visit();
    return memory;
}

bool __wrap_rs_kept_put(rs_kept *kept, void *memory, size_t bytes)
{
    visit();
    bool put = __real_rs_kept_put(kept, memory, bytes);
    visit();
    return put;
}

/* Nothing has to go: there is never more than one block. A block that was dropped shows by its
 * first bytes. It is too large for malloc's own stores, so another one comes from the system,
 * zeroed. */
static void check_nothing_lost(size_t bytes_max)
{
    const size_t bytes = 40 * MIB;
    const uint64_t mark = 0x6b657074;
    reshard_context *context = make_context(bytes_max);
    int64_t lost = 0;
    rs_block_release(context, take(context, 10 * MIB), 10 * MIB); /* goes for the first of them */
    visits = 0;
    visited = context;
    for (int turn = 0; turn < 10; turn++) {
        char *memory = rs_block_allocate(context, bytes);
        assert_non_null(memory);
        lost += turn > 0 && memcmp(memory, &mark, sizeof mark) != 0;
        memcpy(memory, &mark, sizeof mark);
        rs_block_release(context, memory, bytes);
    }
    visited = NULL;
    assert_int_equal(visits, 40);
    assert_int_equal(lost, 0);
    assert_int_equal(info_memory(context).bytes, 0);
    assert_int_equal(info_memory(context).bytes_kept, bytes);
    reshard_context_destroy(context);
}

static void test_kept__nothing_is_dropped_without_need(void **state)
{
    (void)state;
    check_nothing_lost(0);
    check_nothing_lost(41 * MIB); /* the same by the limit of memory */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept__the_next_of_the_same_size_gets_it),
        cmocka_unit_test(test_kept__not_what_is_small_nor_of_others),
        cmocka_unit_test(test_kept__not_memory_of_a_user_allocator),
        cmocka_unit_test(test_kept__the_oldest_goes_first),
        cmocka_unit_test(test_kept__makes_way_at_the_limit),
        cmocka_unit_test(test_kept__never_more_than_was_in_use),
        cmocka_unit_test(test_kept__trim_gives_memory_back_to_the_system),
        cmocka_unit_test(test_kept__makes_way_when_malloc_fails),
        cmocka_unit_test(test_kept__makes_way_when_realloc_fails),
        cmocka_unit_test(test_kept__threads_never_share_a_block),
        cmocka_unit_test(test_kept__nothing_is_dropped_without_need),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
