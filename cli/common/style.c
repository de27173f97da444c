/* SPDX-License-Identifier: Apache-2.0 */
/*
 * style.c - decides once, from the environment, whether standard output is styled, and prints
 * untrusted text.
 */
#define _DEFAULT_SOURCE
#include "cli/common/style.h"

#include "cli/common/memory.h"
#include "cli/common/ranks.h"
#include "cli/common/sizes.h"

#include <reshard/base.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int cli_output_is_styled(void)
{
    static int known = -1;
    if (known < 0) {
        const char *no_color = getenv("NO_COLOR");
        const char *terminal = getenv("TERM");
        /* mpirun may give its processes a terminal even if their output goes elsewhere. */
        known = cli_ranks_are_threads() && isatty(STDOUT_FILENO) &&
                (no_color == NULL || no_color[0] == '\0') && terminal != NULL &&
                strcmp(terminal, "dumb") != 0;
    }
    return known;
}

const char *cli_style_begin(cli_style style)
{
    if (style == CLI_PLAIN || !cli_output_is_styled())
        return "";
    return style == CLI_BOLD ? "\033[1m" : "\033[2m";
}

const char *cli_style_end(cli_style style)
{
    return style == CLI_PLAIN || !cli_output_is_styled() ? "" : "\033[0m";
}

void cli_print_shown_part(const char *bytes, size_t count)
{
    size_t length = reshard_text_escape(bytes, count, NULL, 0);
    char *shown = cli_allocate(length + 1, 1);
    (void)reshard_text_escape(bytes, count, shown, length + 1);
    (void)fwrite(shown, 1, length, stdout);
    free(shown);
}

void cli_print_shown(const char *text)
{
    cli_print_shown_part(text, strlen(text));
}

enum { COLUMNS_DEFAULT = 80, COLUMNS_MAX = 1000 };

int cli_window_columns(void)
{
    struct winsize window;
    uint64_t columns = COLUMNS_DEFAULT;
    const char *told = getenv("COLUMNS");
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col != 0)
        columns = window.ws_col;
    else if (told != NULL && cli_number_parse(told, COLUMNS_MAX, &columns) != 0)
        columns = COLUMNS_DEFAULT;
    return columns > COLUMNS_MAX ? COLUMNS_MAX : (int)columns;
}
