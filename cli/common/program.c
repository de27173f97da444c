/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.c - finds the folder of the running program, prints its version, and ends it.
 */
#include "cli/common/program.h"

#include "cli/common/failure.h"
#include "cli/common/work.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int cli_program_folder(char *buffer, size_t bytes)
{
    ssize_t length = readlink("/proc/self/exe", buffer, bytes);
    if (length <= 0 || (size_t)length >= bytes)
        return -1;
    buffer[length] = '\0';
    char *slash = strrchr(buffer, '/');
    if (slash == NULL)
        return -1;
    *slash = '\0';
    return 0;
}

void cli_program_print_version(void)
{
    printf("reshard %s\n", reshard_version());
}

int cli_program_end(int code)
{
    enum { STOPPED = 128 };
    if (code == CLI_DONE)
        return cli_finish(code);
    return cli_work_signal() != 0 ? STOPPED + cli_work_signal() : code;
}
