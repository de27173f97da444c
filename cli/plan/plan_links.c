/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_links.c - the links of a map, in words. A link takes, along each dim, a range, every n-th
 * element of one, or ranges that repeat, and its two ends are written as such: [0:64, :] is a box,
 * [0:12:2] every second element, and [0:4 x2 every 8] four elements, twice, 8 apart.
 */
#include "cli/plan/plan_tensors.h"

#include "cli/common/memory.h"
#include "cli/common/names.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACE_TEXT 512

/* One end of a link. */
typedef struct link_end {
    const reshard_strided_link *link;
    int is_target;
    int32_t ndim;
    const int64_t *shape;
} link_end;

typedef struct digit {
    int64_t size, step;
} digit;

/* The axes along a dim, those with the largest steps first; two that make one range are one. */
static int list_digits(const link_end *end, int32_t dim, digit *digits)
{
    int count = 0, merged = 0;
    for (int32_t i = 0; i < end->link->axis_count; i++) {
        const reshard_link_axis *axis = &end->link->axes[i];
        digit added = {axis->size, end->is_target ? axis->target_step : axis->source_step};
        int at = count;
        if ((end->is_target ? axis->target_dim : axis->source_dim) != dim || axis->size == 1)
            continue;
        for (; at > 0 && digits[at - 1].step < added.step; at--)
            digits[at] = digits[at - 1];
        digits[at] = added;
        count++;
    }
    for (int i = 1; i < count; i++) {
        digit *last = &digits[merged];
        if (last->step == digits[i].size * digits[i].step)
            *last = (digit){last->size * digits[i].size, digits[i].step};
        else
            digits[++merged] = digits[i];
    }
    return count == 0 ? 0 : merged + 1;
}

static void add_text(char *text, const char *format, ...) CLI_PRINTF(2, 3);
static void add_text(char *text, const char *format, ...)
{
    size_t length = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text + length, PLACE_TEXT - length, format, arguments);
    va_end(arguments);
}

/* Returns whether it is all of the dim. */
static int add_dim(const link_end *end, int32_t dim, char *text)
{
    digit digits[RESHARD_FACTORS_MAX] = {{1, 1}};
    int count = list_digits(end, dim, digits);
    digit last = count == 0 ? (digit){1, 1} : digits[count - 1];
    int64_t at = end->is_target ? end->link->target_at[dim] : end->link->source_at[dim];
    if (count <= 1 && last.step == 1 && last.size == end->shape[dim]) {
        add_text(text, ":");
        return 1;
    }
    add_text(text, "%" PRId64 ":%" PRId64, at, at + (last.size - 1) * last.step + 1);
    if (last.step != 1)
        add_text(text, ":%" PRId64, last.step);
    for (int i = count - 2; i >= 0; i--)
        add_text(text, " x%" PRId64 " every %" PRId64, digits[i].size, digits[i].step);
    return 0;
}

/* The elements at one end; an empty text if they are all of the tensor, as they are of one that has
 * too many dims for anything else. */
static void print_end(const link_end *end, char text[PLACE_TEXT])
{
    int is_whole = 1;
    text[0] = '\0';
    add_text(text, "[");
    for (int32_t d = 0; d < end->ndim && end->ndim <= RESHARD_NDIM_MAX; d++) {
        add_text(text, "%s", d > 0 ? ", " : "");
        is_whole &= add_dim(end, d, text);
    }
    add_text(text, "]");
    if (is_whole)
        text[0] = '\0';
}

/* Whether an axis changes more slowly than another one. */
static int is_slower(int32_t dim, int64_t step, int32_t other_dim, int64_t other_step)
{
    return dim != other_dim ? dim < other_dim : step > other_step;
}

/* Whether elements that follow each other in the source do so in the target too. */
static int is_in_order(const reshard_strided_link *link)
{
    for (int32_t i = 0; i < link->axis_count; i++) {
        for (int32_t k = 0; k < i; k++) {
            const reshard_link_axis *a = &link->axes[i], *b = &link->axes[k];
            if (a->size > 1 && b->size > 1 &&
                is_slower(a->source_dim, a->source_step, b->source_dim, b->source_step) !=
                    is_slower(a->target_dim, a->target_step, b->target_dim, b->target_step))
                return 0;
        }
    }
    return 1;
}

/* By where they lie in the target. */
static int compare_links(const void *a, const void *b)
{
    const int64_t *left = ((const reshard_strided_link *)a)->target_at;
    const int64_t *right = ((const reshard_strided_link *)b)->target_at;
    for (int d = 0; d < RESHARD_NDIM_MAX; d++) {
        if (left[d] != right[d])
            return left[d] < right[d] ? -1 : 1;
    }
    return 0;
}

/* All links of a tensor, sorted; free(*out_links) in any case. */
static reshard_status list_links(const cli_conversion *made, int64_t index,
                                 const reshard_conversion_tensor *tensor,
                                 reshard_strided_link **out_links)
{
    size_t count = (size_t)tensor->link_count;
    reshard_strided_link *links = cli_allocate(count, sizeof *links);
    reshard_status status = RESHARD_OK;
    *out_links = links;
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        links[i].size = sizeof links[i];
        status = reshard_conversion_get_link(made->conversion, index, (int64_t)i, &links[i]);
    }
    if (status == RESHARD_OK && count > 1)
        qsort(links, count, sizeof *links, compare_links);
    return status;
}

/* What is said of a link. */
typedef struct told_link {
    reshard_stored_tensor source;
    char from[PLACE_TEXT], into[PLACE_TEXT];
} told_link;

static reshard_status tell_link(const cli_conversion *made, const reshard_conversion_tensor *tensor,
                                const reshard_strided_link *link, told_link *told)
{
    told->source.size = sizeof told->source;
    reshard_status status =
        reshard_checkpoint_tensor(made->checkpoint, link->source, &told->source);
    if (status != RESHARD_OK)
        return status;
    print_end(&(link_end){link, 0, told->source.ndim, told->source.shape}, told->from);
    print_end(&(link_end){link, 1, tensor->ndim, tensor->shape}, told->into);
    return RESHARD_OK;
}

static void add_cells(cli_table *table, int count)
{
    for (int i = 0; i < count; i++)
        cli_table_add(table, CLI_PLAIN, "%s", "");
}

reshard_status cli_plan_links_add(cli_table *table, int before, const cli_conversion *made,
                                  int64_t index, const reshard_conversion_tensor *tensor)
{
    char name[CLI_NAME_TEXT];
    reshard_strided_link *links = NULL;
    int64_t count = tensor->link_count;
    int64_t shown = count > CLI_PLAN_LINKS_SHOWN ? CLI_PLAN_LINKS_SHOWN - 1 : count;
    if (tensor->map_file == NULL) {
        cli_table_add(table, CLI_PLAIN, "the file that is followed");
        cli_table_add(table, CLI_PLAIN, "all");
        cli_table_add(table, CLI_DIM, "-");
        return RESHARD_OK;
    }
    if (count == 0) {
        cli_table_add(table, CLI_PLAIN, "a constant");
        cli_table_add(table, CLI_PLAIN, "all");
        cli_table_add(table, CLI_DIM, "%s:%" PRId32, tensor->map_file, tensor->map_line);
    }
    reshard_status status = list_links(made, index, tensor, &links);
    for (int64_t i = 0; status == RESHARD_OK && i < shown; i++) {
        told_link told;
        status = tell_link(made, tensor, &links[i], &told);
        if (status != RESHARD_OK)
            break;
        add_cells(table, i > 0 ? before : 0);
        cli_table_add(table, CLI_PLAIN, "%s%s",
                      cli_name_text(told.source.name, told.source.name_bytes, name), told.from);
        cli_table_add(table, CLI_PLAIN, "%s%s", told.into[0] != '\0' ? told.into : "all",
                      is_in_order(&links[i]) ? "" : ", in another order");
        cli_table_add(table, CLI_DIM, "%s:%" PRId32, tensor->map_file, tensor->map_line);
    }
    if (shown < count) {
        add_cells(table, before);
        cli_table_add(table, CLI_DIM, "and %" PRId64 " more", count - shown);
        add_cells(table, 2);
    }
    free(links);
    return status;
}

static void write_axes(cli_json *json, const reshard_strided_link *link)
{
    cli_json_begin_list(json, "axes");
    for (int32_t i = 0; i < link->axis_count; i++) {
        const reshard_link_axis *axis = &link->axes[i];
        cli_json_begin_object(json, NULL);
        cli_json_integer(json, "size", axis->size);
        cli_json_integer(json, "source_dim", axis->source_dim);
        cli_json_integer(json, "source_step", axis->source_step);
        cli_json_integer(json, "target_dim", axis->target_dim);
        cli_json_integer(json, "target_step", axis->target_step);
        cli_json_end_object(json);
    }
    cli_json_end_list(json);
}

reshard_status cli_plan_links_write(cli_json *json, const cli_conversion *made, int64_t index,
                                    const reshard_conversion_tensor *tensor, int64_t limit)
{
    reshard_strided_link *links = NULL;
    reshard_status status = list_links(made, index, tensor, &links);
    cli_json_text(json, "map", tensor->map_file);
    cli_json_integer(json, "map_line", tensor->map_line);
    cli_json_integer(json, "link_count", tensor->link_count);
    cli_json_begin_list(json, "links");
    for (int64_t i = 0; status == RESHARD_OK && i < tensor->link_count && i < limit; i++) {
        told_link told;
        status = tell_link(made, tensor, &links[i], &told);
        if (status != RESHARD_OK)
            break;
        cli_json_begin_object(json, NULL);
        cli_json_text_part(json, "source", told.source.name, told.source.name_bytes);
        cli_json_text(json, "from", told.from);
        cli_json_text(json, "into", told.into);
        cli_json_bool(json, "in_order", is_in_order(&links[i]));
        if (told.source.ndim <= RESHARD_NDIM_MAX && tensor->ndim <= RESHARD_NDIM_MAX) {
            cli_json_integers(json, "source_at", told.source.ndim, links[i].source_at);
            cli_json_integers(json, "target_at", tensor->ndim, links[i].target_at);
            write_axes(json, &links[i]);
        }
        cli_json_end_object(json);
    }
    cli_json_end_list(json);
    free(links);
    return status;
}
