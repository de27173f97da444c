/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/ran.h"

#include "tests/support/ranks.h"

#include <reshard/base.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void write_line(const char *upstream, const char *format, va_list arguments)
{
    static FILE *file; /* one for the program, which begins it anew */
    const char *path = getenv("RESHARD_TEST_RAN");
    if (path == NULL || upstream == NULL)
        return;
    if (file == NULL)
        file = fopen(path, "w");
    if (file == NULL) {
        (void)fprintf(stderr, "%s: cannot be written\n", path);
        abort();
    }
    (void)fprintf(file, "%s: ", upstream);
    (void)vfprintf(file, format, arguments);
    (void)fprintf(file, "\n");
    (void)fflush(file);
}

void ran(const char *upstream, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_line(upstream, format, arguments);
    va_end(arguments);
}

void ran_here(const reshard_group *group, const char *upstream, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (reshard_group_rank(group) == 0)
        write_line(upstream, format, arguments);
    va_end(arguments);
}

ran_text ran_spec(const reshard_spec *spec)
{
    ran_text made;
    size_t length = 0;
    MUST(reshard_spec_text(spec, made.text, sizeof made.text, &length));
    return made;
}

ran_text ran_shape(reshard_dtype dtype, int32_t ndim, const int64_t *shape)
{
    ran_text made;
    int used = snprintf(made.text, sizeof made.text, "%s ", reshard_dtype_name(dtype));
    for (int32_t d = 0; d < ndim; d++)
        used += snprintf(made.text + used, sizeof made.text - (size_t)used, "%s%" PRId64,
                         d > 0 ? "x" : "", shape[d]);
    if (ndim == 0)
        (void)snprintf(made.text + used, sizeof made.text - (size_t)used, "scalar");
    return made;
}
