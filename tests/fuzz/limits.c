/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/limits.h"

#include "tests/support/info.h"

#include <stdio.h>
#include <stdlib.h>

/* Sanitizers, and the fuzzer's counters, cost time. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 10
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLOWER 10
#endif
#endif
#if !defined(SLOWER)
#define SLOWER 2
#endif

void fuzz_find(const char *words, const char *more)
{
    (void)fprintf(stderr, "finding: %s: %s\n", words, more);
    abort();
}

int fuzz_passes(reshard_status status)
{
    if (status != RESHARD_OK && reshard_error_text()[0] == '\0')
        fuzz_find("a refusal without words", reshard_status_name(status));
    /* The limit of memory here is larger than any input needs. */
    if (status == RESHARD_ERR_MEMORY_LIMIT || status == RESHARD_ERR_NO_MEMORY)
        fuzz_find("memory", reshard_error_text());
    return status == RESHARD_OK;
}

void fuzz_limits_begin(fuzz_limits *limits, size_t bytes_max, double seconds_max,
                       int (*cancelled)(void *user), void *user)
{
    const reshard_context_options options = {.size = sizeof options,
                                             .memory_bytes_max = bytes_max,
                                             .cancelled = cancelled,
                                             .user = user};
    *limits = (fuzz_limits){
        .bytes_max = bytes_max, .seconds_max = seconds_max * SLOWER, .began = clock()};
    if (reshard_context_create(&options, &limits->context) != RESHARD_OK)
        fuzz_find("context", reshard_error_text());
}

void fuzz_limits_end(fuzz_limits *limits)
{
    char text[96];
    double seconds = (double)(clock() - limits->began) / CLOCKS_PER_SEC;
    if (info_memory(limits->context).bytes != 0)
        fuzz_find("memory", "is not given back");
    reshard_context_destroy(limits->context);
    (void)snprintf(text, sizeof text, "%.1f s, %.1f are allowed", seconds, limits->seconds_max);
    if (seconds > limits->seconds_max)
        fuzz_find("time", text);
}
