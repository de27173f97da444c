/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.c - see context.h. Sizes are kept in front of each block, to check that the library tells
 * the right ones when it resizes and releases.
 */
#include "tests/support/context.h"

#include "tests/support/info.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct faults {
    atomic_llong until_failure; /* allocations that still succeed */
    atomic_llong blocks;        /* not yet released */
    atomic_llong wrong_sizes;
} faults;

enum { HEAD = 16 };

static void *allocate(void *user, size_t bytes)
{
    faults *counted = user;
    if (counted->until_failure-- <= 0)
        return NULL;
    char *block = malloc(bytes + HEAD);
    if (block == NULL)
        abort();
    memcpy(block, &bytes, sizeof bytes);
    memset(block + HEAD, 0xa5, bytes);
    counted->blocks++;
    return block + HEAD;
}

/* Whoever uses released memory finds this. Volatile, or compilers drop a write before free. */
static void *(*volatile overwrite)(void *, int, size_t) = memset;

static void release(void *user, void *memory, size_t bytes)
{
    faults *counted = user;
    size_t told;
    if (memory == NULL)
        return;
    memcpy(&told, (char *)memory - HEAD, sizeof told);
    counted->wrong_sizes += told != bytes;
    counted->blocks--;
    overwrite(memory, 0x5a, told);
    free((char *)memory - HEAD);
}

static void *resize(void *user, void *memory, size_t bytes_old, size_t bytes_new)
{
    void *fresh = allocate(user, bytes_new);
    if (fresh == NULL || memory == NULL)
        return fresh;
    memcpy(fresh, memory, bytes_old < bytes_new ? bytes_old : bytes_new);
    release(user, memory, bytes_old);
    return fresh;
}

static bool try_once(context_attempt_fn attempt, void *user, int64_t n, reshard_status *out_status,
                     words *said)
{
    faults counted = {0};
    reshard_allocator allocator = {allocate, resize, release, &counted};
    reshard_context_options options = {.size = sizeof options, .allocator = &allocator};
    reshard_context *context = NULL;
    counted.until_failure = 1;
    if (reshard_context_create(&options, &context) != RESHARD_OK)
        return words_say(said, "no context: %s", reshard_error_text());
    counted.until_failure = n;
    *out_status = attempt(context, user);
    size_t bytes = info_memory(context).bytes;
    reshard_context_destroy(context);
    if (*out_status != RESHARD_OK && *out_status != RESHARD_ERR_NO_MEMORY)
        return words_say(said, "allocation %lld failing gives %s: %s", (long long)n,
                         reshard_status_name(*out_status), reshard_error_text());
    if (bytes != 0 || counted.blocks != 0)
        return words_say(said, "allocation %lld failing leaves %zu bytes in %lld blocks",
                         (long long)n, bytes, (long long)counted.blocks);
    if (counted.wrong_sizes != 0)
        return words_say(said, "a block was released with another size than it had");
    return true;
}

bool context_fail_each(context_attempt_fn attempt, void *user, words *said)
{
    return context_fail_some(attempt, user, 1, said);
}

bool context_fail_some(context_attempt_fn attempt, void *user, int64_t step, words *said)
{
    reshard_status status = RESHARD_ERR_NO_MEMORY;
    for (int64_t n = 0; status != RESHARD_OK; n += step) {
        if (n > 100000)
            return words_say(said, "never succeeds");
        if (!try_once(attempt, user, n, &status, said))
            return false;
    }
    return true;
}
