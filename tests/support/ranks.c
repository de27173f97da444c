/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/ranks.h"

#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>

reshard_status ranks_say(const char *file, int line, const char *what, reshard_status status)
{
    char text[1024];
    if (status == RESHARD_ERR_CHECK)
        (void)snprintf(text, sizeof text, "%s:%d: %s [%.300s]", file, line, what,
                       reshard_error_text());
    else
        (void)snprintf(text, sizeof text, "%.400s [%s:%d: %s]", reshard_error_text(), file, line,
                       what);
    return reshard_error_set(status, text);
}

_Noreturn void ranks_abort(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, reshard_error_text());
    abort();
}

void run_ranks(int32_t size, reshard_rank_fn body, void *user)
{
    if (reshard_group_run(NULL, size, body, user) != RESHARD_OK)
        fail_msg("%d ranks: %s", (int)size, reshard_error_text());
}
