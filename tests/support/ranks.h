/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.h - how tests check things on ranks: the only such macros in tests/.
 *
 * cmocka leaves a failing test by longjmp, which only the main thread may do. So a rank's body, and
 * every helper that it calls, returns a reshard_status. CHECK and TRY leave it with the place and
 * the words; the transport hands those of the first rank that failed to the main thread, and
 * run_ranks (or run_ways of ways.h) fails the test there:
 *
 *     static reshard_status gather(void *user, reshard_group *group)
 *     {
 *         int32_t mine = reshard_group_rank(group), all[4];
 *         TRY(reshard_group_gather_bytes(group, &mine, sizeof mine, all));
 *         CHECK(all[3] == 3);
 *         return RESHARD_OK;
 *     }
 *     ...
 *     run_ranks(4, gather, NULL);
 *
 * A body that must clean up although it failed keeps its status in a variable instead. Bodies whose
 * ranks see different things on purpose record them in `user`, and the main thread compares.
 */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include <reshard/group.h>

/* Returns RESHARD_ERR_CHECK from the calling function unless the condition holds. */
#define CHECK(condition)                                                         \
    do {                                                                         \
        if (!(condition))                                                        \
            return ranks_say(__FILE__, __LINE__, #condition, RESHARD_ERR_CHECK); \
    } while (0)

/* Returns the call's own status from the calling function unless it is RESHARD_OK. */
#define TRY(call)                                                    \
    do {                                                             \
        reshard_status try_status = (call);                          \
        if (try_status != RESHARD_OK)                                \
            return ranks_say(__FILE__, __LINE__, #call, try_status); \
    } while (0)

/* For set-up that cannot fail in a test, also in helpers that return something else: ends the
 * program unless the call gives RESHARD_OK. */
#define MUST(call)                                  \
    do {                                            \
        if ((call) != RESHARD_OK)                   \
            ranks_abort(__FILE__, __LINE__, #call); \
    } while (0)

/* Runs the body on ranks that are threads; the running test fails, with its words, if it does. For
 * the main thread. */
void run_ranks(int32_t size, reshard_rank_fn body, void *user);

/* What the macros call. The text: the last error's, then the place and what was tried there. */
reshard_status ranks_say(const char *file, int line, const char *what, reshard_status status);
_Noreturn void ranks_abort(const char *file, int line, const char *what);

#endif
