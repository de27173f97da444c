/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - aligned tables. Cells are added from left to right and row by row; widths are known
 * when the table is printed.
 */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include "cli/common/failure.h"
#include "cli/common/style.h"

typedef struct cli_table cli_table;

typedef enum cli_align { CLI_LEFT, CLI_RIGHT } cli_align;

/* Every column is aligned to the right until it is told otherwise. */
cli_table *cli_table_create(int column_count);
void cli_table_destroy(cli_table *table);
void cli_table_align(cli_table *table, int column, cli_align align);

/* Adds the next cell. Rows end by themselves after the last column. */
void cli_table_add(cli_table *table, cli_style style, const char *format, ...) CLI_PRINTF(3, 4);
/* Adds a line of its own between two rows, which takes no part in the widths. */
void cli_table_add_line(cli_table *table, cli_style style, const char *format, ...)
    CLI_PRINTF(3, 4);

/* On standard output. Columns are two spaces apart; no line ends in spaces. */
void cli_table_print(const cli_table *table);

#endif
