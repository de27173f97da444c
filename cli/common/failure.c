/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.c - messages and exit codes.
 */
#include "cli/common/failure.h"

#include "cli/common/ranks.h"
#include "cli/common/work.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 1024 };

/* Escapes the message: an argument with newlines or escape sequences could forge lines and
 * colours. */
static void print_line(const char *message)
{
    /* Print in one write, because other processes may print too. Escaping makes at most four of a
     * byte. */
    static const char program[] = "reshard: ";
    char line[sizeof program + 4 * MESSAGE_BYTES + 1];
    size_t length = sizeof program - 1;
    memcpy(line, program, length);
    length += reshard_text_escape(message, strlen(message), line + length, sizeof line - length);
    line[length++] = '\n';
    cli_work_hide_bar();
    (void)fwrite(line, 1, length, stderr);
}

/* If the library says that something has to be given, adds which option gives it. */
static void add_option_name(char message[MESSAGE_BYTES])
{
    static const struct {
        const char *words, *option;
    } rows[] = {
        {"the mesh they were split over has to be given", "--from"},
        {"needs a mesh to split over, and none is given", "--to"},
    };
    size_t length = strlen(message);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strstr(message, rows[i].words) != NULL)
            (void)snprintf(message + length, MESSAGE_BYTES - length, " (%s)", rows[i].option);
    }
}

int cli_fail(int code, const char *format, ...)
{
    char message[MESSAGE_BYTES];
    va_list arguments;
    if (!cli_ranks_may_fail())
        return code;
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (length >= (int)sizeof message)
        memcpy(message + sizeof message - 4, "...", 4);
    add_option_name(message);
    print_line(message);
    return code;
}

static int exit_code_of(reshard_status status)
{
    switch (status) {
    case RESHARD_ERR_NO_MEMORY:
    case RESHARD_ERR_MEMORY_LIMIT:
    case RESHARD_ERR_CANCELLED:
        return CLI_FAILED;
    default:
        return status > -100 ? CLI_USAGE : CLI_FAILED;
    }
}

int cli_fail_status(reshard_status status)
{
    const char *words = reshard_error_text();
    return cli_fail(exit_code_of(status), "%s",
                    words[0] != '\0' ? words : reshard_status_text(status));
}

int cli_finish(int code)
{
    errno = 0;
    int failed = fflush(stdout) != 0;
    if (!failed && !ferror(stdout))
        return code;
    return cli_fail(CLI_FAILED, "standard output cannot be written: %s",
                    errno != 0 ? strerror(errno) : "an earlier write failed");
}
