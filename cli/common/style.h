/* SPDX-License-Identifier: Apache-2.0 */
/*
 * style.h - bold and dim text on a terminal, plain text elsewhere. Standard output is styled if it
 * is a terminal, NO_COLOR is unset or empty, and TERM is set and not "dumb".
 */
#ifndef CLI_STYLE_H
#define CLI_STYLE_H

#include <stddef.h>

typedef enum cli_style { CLI_PLAIN, CLI_BOLD, CLI_DIM } cli_style;

/* Whether styles and colours may be printed. */
int cli_output_is_styled(void);

/* The bytes that begin and end a style; "" if output is not styled. Static. */
const char *cli_style_begin(cli_style style);
const char *cli_style_end(cli_style style);

/* The window's width according to the terminal, otherwise to COLUMNS, otherwise 80. */
int cli_window_columns(void);

/* Prints untrusted text, such as a path or the name of a tensor, escaped by reshard_text_escape, so
 * that it stays on its line and cannot control the terminal. */
void cli_print_shown(const char *text);
void cli_print_shown_part(const char *bytes, size_t count);

#endif
