/* SPDX-License-Identifier: Apache-2.0 */
/*
 * style.c - decides whether standard output is styled. The environment is read once.
 */
#define _POSIX_C_SOURCE 200809L
#include "cli/common/style.h"

#include "cli/common/ranks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int output_is_styled(void)
{
    static int known = -1;
    if (known < 0) {
        const char *no_color = getenv("NO_COLOR");
        const char *terminal = getenv("TERM");
        /* mpirun may give its processes a terminal even when their output goes elsewhere. */
        known = cli_ranks_are_threads() && isatty(STDOUT_FILENO) &&
                (no_color == NULL || no_color[0] == '\0') && terminal != NULL &&
                strcmp(terminal, "dumb") != 0;
    }
    return known;
}

const char *cli_style_begin(cli_style style)
{
    if (style == CLI_PLAIN || !output_is_styled())
        return "";
    return style == CLI_BOLD ? "\033[1m" : "\033[2m";
}

const char *cli_style_end(cli_style style)
{
    return style == CLI_PLAIN || !output_is_styled() ? "" : "\033[0m";
}
