/* SPDX-License-Identifier: Apache-2.0 */
/*
 * example.h - how the examples fail. A function that calls TRY leaves by its label `out` at the
 * first call that fails, and releases there what it holds, as it does at its end:
 *
 *     reshard_status status = RESHARD_OK;
 *     reshard_layout *rows = NULL;
 *     TRY(reshard_layout_parse(NULL, "4: S(0)", 2, shape, &rows));
 *     ...
 * out:
 *     reshard_layout_release(rows);
 *     return status;
 *
 * What is released there starts as NULL before the first TRY, because releasing NULL does nothing.
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <reshard/base.h>

#include <stdio.h>

#define TRY(call)                 \
    do {                          \
        status = (call);          \
        if (status != RESHARD_OK) \
            goto out;             \
    } while (0)

/* An error of its own if what an example expects does not hold. */
static inline reshard_status check(int holds, const char *what)
{
    return holds ? RESHARD_OK : reshard_error_set(RESHARD_ERR_CHECK, what);
}

/* Prints the error, if there is one, and returns the program's exit code. */
static inline int finish(reshard_status status)
{
    if (status != RESHARD_OK)
        fprintf(stderr, "%s\n", reshard_error_text());
    return status != RESHARD_OK;
}

#ifdef RESHARD_TENSOR_H
/* Closes a scope, if it is open, and returns the first error: that of the function, or that of a
 * computation in the scope. */
static inline reshard_status close_scope(reshard_scope **scope, reshard_status status)
{
    reshard_status closed = *scope != NULL ? reshard_scope_close(*scope) : RESHARD_OK;
    *scope = NULL;
    return status != RESHARD_OK ? status : closed;
}
#endif

#endif
