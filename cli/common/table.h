/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - aligned tables. Cells are added left to right, row by row; columns are as wide as their
 * widest cell.
 */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include "cli/common/failure.h"
#include "cli/common/style.h"

typedef struct cli_table cli_table;

typedef enum cli_align { CLI_LEFT, CLI_RIGHT } cli_align;

/* Columns are right-aligned by default. */
cli_table *cli_table_create(int column_count);
void cli_table_destroy(cli_table *table);
void cli_table_align(cli_table *table, int column, cli_align align);

/* Adds the next cell. A row ends after its last column. */
void cli_table_add(cli_table *table, cli_style style, const char *format, ...) CLI_PRINTF(3, 4);
/* Adds a line between two rows; it does not affect the widths. */
void cli_table_add_line(cli_table *table, cli_style style, const char *format, ...)
    CLI_PRINTF(3, 4);

/* Makes lines fit a width, as far as the columns between the first and the last allow: a first cell
 * that is too long is printed on a line of its own, above the rest of its row, and a last one below
 * it. */
void cli_table_fit(cli_table *table, int columns);

/* Prints to standard output. Columns are two spaces apart; no line ends in spaces. */
void cli_table_print(const cli_table *table);

#endif
