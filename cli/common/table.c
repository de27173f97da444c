/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - aligned tables.
 *
 * The texts of all cells are in one growing buffer, each with its NUL, and cells keep offsets into
 * it, so a table of 131,072 rows is three arrays. A line between rows is a cell with is_line set.
 * It may only be added where a row begins, so that cells and columns stay in step.
 */
#include "cli/common/table.h"

#include "cli/common/memory.h"

#include <reshard/base.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first column has at least LEAST_WIDTH; what is printed below a row begins after INDENT. */
enum { LEAST_WIDTH = 12, INDENT = 4 };

typedef struct cell {
    size_t offset;
    int width;
    cli_style style;
    int is_line;
} cell;

typedef struct column {
    cli_align align;
    int width;
    int apart; /* wider cells are printed on a line of their own; 0: none are */
} column;

struct cli_table {
    int column_count, column_next;
    column *columns;
    cell *cells;
    size_t cell_count, cell_capacity;
    char *text;
    size_t text_length, text_capacity;
    char *raw; /* the text of the cell that is being added, before it is escaped */
    size_t raw_capacity;
};

cli_table *cli_table_create(int column_count)
{
    cli_table *table = cli_allocate(1, sizeof *table);
    table->column_count = column_count;
    table->columns = cli_allocate((size_t)column_count, sizeof *table->columns);
    for (int i = 0; i < column_count; i++)
        table->columns[i].align = CLI_RIGHT;
    return table;
}

void cli_table_destroy(cli_table *table)
{
    if (table == NULL)
        return;
    free(table->columns);
    free(table->cells);
    free(table->text);
    free(table->raw);
    free(table);
}

void cli_table_align(cli_table *table, int column_index, cli_align align)
{
    table->columns[column_index].align = align;
}

static cell *add_cell(cli_table *table, cli_style style, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    size_t raw_bytes = (length > 0 ? (size_t)length : 0) + 1;
    table->raw = cli_grow(table->raw, &table->raw_capacity, raw_bytes, 1);
    vsnprintf(table->raw, raw_bytes, format, again);
    va_end(again);
    /* Names in cells are untrusted. */
    size_t width = reshard_text_escape(table->raw, raw_bytes - 1, NULL, 0), bytes = width + 1;
    table->text = cli_grow(table->text, &table->text_capacity, table->text_length + bytes, 1);
    (void)reshard_text_escape(table->raw, raw_bytes - 1, table->text + table->text_length, bytes);
    table->cells =
        cli_grow(table->cells, &table->cell_capacity, table->cell_count + 1, sizeof *table->cells);
    cell *added = &table->cells[table->cell_count++];
    *added = (cell){.offset = table->text_length, .width = (int)width, .style = style};
    table->text_length += bytes;
    return added;
}

void cli_table_add(cli_table *table, cli_style style, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const cell *added = add_cell(table, style, format, arguments);
    va_end(arguments);
    column *under = &table->columns[table->column_next];
    if (added->width > under->width)
        under->width = added->width;
    table->column_next = (table->column_next + 1) % table->column_count;
}

void cli_table_add_line(cli_table *table, cli_style style, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_cell(table, style, format, arguments)->is_line = 1;
    va_end(arguments);
}

void cli_table_fit(cli_table *table, int columns)
{
    column *first = &table->columns[0], *last = &table->columns[table->column_count - 1];
    int room = columns;
    for (int i = 1; i < table->column_count; i++)
        room -= 2 + (i < table->column_count - 1 ? table->columns[i].width : 0);
    if (first->width + last->width <= room)
        return;
    /* The last column gets what the first leaves, or else about a third. */
    int least = room / 3 < last->width ? room / 3 : last->width;
    int left = room - first->width;
    if (last->width > (left > least ? left : least))
        last->width = last->apart = left > least ? left : least;
    if (first->width > room - last->width)
        first->width = first->apart =
            room - last->width > LEAST_WIDTH ? room - last->width : LEAST_WIDTH;
}

static void print_styled(const cli_table *table, const cell *printed)
{
    printf("%s%s%s", cli_style_begin(printed->style), table->text + printed->offset,
           cli_style_end(printed->style));
}

/* Writes padding only once text follows it, so that no line ends in spaces. Returns the padding
 * that is still owed. */
static int print_cell(const cli_table *table, const cell *printed, const column *under, int owed)
{
    int padding = under->width - printed->width;
    int before = under->align == CLI_RIGHT ? padding : 0;
    if (printed->width == 0)
        return owed + padding;
    printf("%*s", owed + before, "");
    print_styled(table, printed);
    return padding - before;
}

/* Prints a row. A first cell that is too wide gets a line above it, a last one a line below. */
static void print_row(const cli_table *table, const cell *cells)
{
    int owed = 0;
    const cell *below = NULL;
    for (int i = 0; i < table->column_count; i++) {
        const column *under = &table->columns[i];
        const cell *printed = &cells[i];
        int is_apart = under->apart != 0 && printed->width > under->apart;
        if (is_apart && i == 0) {
            print_styled(table, printed);
            putchar('\n');
            owed = under->width + 2;
        } else if (is_apart) {
            below = printed;
        } else {
            owed = print_cell(table, printed, under, owed) + 2;
        }
    }
    putchar('\n');
    if (below != NULL) {
        printf("%*s", INDENT, "");
        print_styled(table, below);
        putchar('\n');
    }
}

void cli_table_print(const cli_table *table)
{
    for (size_t i = 0; i < table->cell_count;) {
        const cell *printed = &table->cells[i];
        if (printed->is_line) {
            print_styled(table, printed);
            putchar('\n');
            i++;
            continue;
        }
        print_row(table, printed);
        i += (size_t)table->column_count;
    }
}
