/* SPDX-License-Identifier: Apache-2.0 */
/* plan_tensors.c - prints the tensors of a planned conversion, one by one. */
#include "cli/plan/plan_tensors.h"

#include "cli/common/input.h"
#include "cli/common/memory.h"
#include "cli/common/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

reshard_status cli_plan_tensors_sort(const cli_conversion *made, cli_name **out_names)
{
    int64_t count = made->stats.tensor_count;
    cli_name *names = cli_allocate((size_t)count, sizeof *names);
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < count; i++) {
        reshard_conversion_tensor tensor = {.size = sizeof tensor};
        status = reshard_conversion_get_tensor(made->conversion, i, &tensor);
        names[i] = (cli_name){tensor.name, tensor.name_bytes, i};
    }
    if (status == RESHARD_OK)
        cli_names_sort(names, (size_t)count);
    *out_names = names;
    return status;
}

/* ---- as a table ------------------------------------------------------------------------------ */

/* Whether a map made any of them; some may come from the file that a format follows. */
static reshard_status find_map(const cli_conversion *made, int *out_has_map)
{
    reshard_status status = RESHARD_OK;
    *out_has_map = 0;
    for (int64_t i = 0; status == RESHARD_OK && !*out_has_map && i < made->stats.tensor_count;
         i++) {
        reshard_conversion_tensor tensor = {.size = sizeof tensor};
        status = reshard_conversion_get_tensor(made->conversion, i, &tensor);
        *out_has_map = status == RESHARD_OK && tensor.map_file != NULL;
    }
    return status;
}

static void add_tensor(cli_table *table, const reshard_conversion_tensor *tensor)
{
    char name[CLI_NAME_TEXT], shape[CLI_SHAPE_TEXT], local[CLI_SHAPE_TEXT] = "";
    char clipped[CLI_SPEC_SHOWN];
    const char *mesh_end = tensor->cut != NULL ? strstr(tensor->cut, ": ") : NULL;
    cli_shape_text(tensor->ndim, tensor->shape, shape);
    if (tensor->local_shape != NULL)
        cli_shape_text(tensor->local_ndim, tensor->local_shape, local);
    cli_table_add(table, CLI_PLAIN, "%s", cli_name_text(tensor->name, tensor->name_bytes, name));
    cli_table_add(table, CLI_PLAIN, "%s", reshard_dtype_name(tensor->dtype));
    cli_table_add(table, CLI_PLAIN, "%s", shape);
    cli_table_add(table, CLI_PLAIN, "%s",
                  mesh_end != NULL ? cli_text_clip(mesh_end + 2, clipped) : "whole");
    cli_table_add(table, CLI_PLAIN, "%s", tensor->local_shape != NULL ? local : shape);
    if (tensor->rule_file != NULL)
        cli_table_add(table, CLI_DIM, "%s:%" PRId32, tensor->rule_file, tensor->rule_line);
    else
        cli_table_add(table, CLI_DIM, "-");
}

reshard_status cli_plan_tensors_print(const cli_conversion *made)
{
    static const char *const titles[] = {"tensor", "dtype", "shape", "cut", "local",
                                         "rule",   "from",  "into",  "map"};
    cli_name *names = NULL;
    int has_map = 0;
    reshard_status status = cli_plan_tensors_sort(made, &names);
    if (status == RESHARD_OK)
        status = find_map(made, &has_map);
    int columns = has_map ? 9 : 6;
    cli_table *table = cli_table_create(columns);
    for (int i = 0; i < columns; i++) {
        cli_table_add(table, CLI_BOLD, "%s", titles[i]);
        cli_table_align(table, i, CLI_LEFT);
    }
    for (int64_t i = 0; status == RESHARD_OK && i < made->stats.tensor_count; i++) {
        reshard_conversion_tensor tensor = {.size = sizeof tensor};
        status = reshard_conversion_get_tensor(made->conversion, names[i].index, &tensor);
        if (status == RESHARD_OK)
            add_tensor(table, &tensor);
        if (status == RESHARD_OK && has_map)
            status = cli_plan_links_add(table, 6, made, names[i].index, &tensor);
    }
    if (status == RESHARD_OK) {
        putchar('\n');
        cli_table_print(table);
    }
    cli_table_destroy(table);
    free(names);
    return status;
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static void write_shard(cli_json *json, const reshard_shard *shard)
{
    cli_json_begin_object(json, NULL);
    cli_json_integer(json, "rank", shard->rank);
    cli_json_integers(json, "shape", shard->ndim, shard->shape);
    cli_json_begin_list(json, "pieces");
    for (int64_t i = 0; i < shard->piece_count; i++) {
        const reshard_box *box = &shard->pieces[i].box;
        cli_json_begin_object(json, NULL);
        cli_json_integers(json, "offset", box->ndim, box->offset);
        cli_json_integers(json, "size", box->ndim, box->size);
        cli_json_end_object(json);
    }
    cli_json_end_list(json);
    cli_json_end_object(json);
}

static reshard_status write_shards(cli_json *json, const reshard_conversion_tensor *tensor)
{
    reshard_shards *shards = NULL;
    reshard_status status = RESHARD_OK;
    if (cli_layout_info(tensor->layout).rank_count <= CLI_PLAN_SHARDS_MAX) {
        status = reshard_layout_shards(tensor->layout, RESHARD_ALL_RANKS, &shards);
        cli_json_begin_list(json, "shards");
        for (int64_t i = 0; status == RESHARD_OK && i < shards->count; i++)
            write_shard(json, &shards->items[i]);
        cli_json_end_list(json);
    }
    reshard_shards_destroy(shards);
    return status;
}

void cli_plan_tensor_write(cli_json *json, const reshard_conversion_tensor *tensor)
{
    cli_json_text_part(json, "name", tensor->name, tensor->name_bytes);
    cli_json_text(json, "dtype", reshard_dtype_name(tensor->dtype));
    cli_json_integers(json, "shape", tensor->ndim, tensor->shape);
    if (tensor->cut != NULL) {
        cli_json_text(json, "cut", tensor->cut);
        cli_json_text(json, "rules", tensor->rule_file);
        cli_json_integer(json, "line", tensor->rule_line);
    }
    if (tensor->local_shape != NULL) {
        cli_json_integers(json, "padded_shape", tensor->ndim, tensor->padded_shape);
        cli_json_integers(json, "local_shape", tensor->local_ndim, tensor->local_shape);
    }
}

static void write_sources(cli_json *json, const cli_conversion *made,
                          const reshard_conversion_tensor *tensor)
{
    cli_json_begin_list(json, "sources");
    for (int64_t i = 0; i < tensor->source_count; i++) {
        reshard_stored_tensor source = {.size = sizeof source};
        if (reshard_checkpoint_tensor(made->checkpoint, tensor->sources[i], &source) == RESHARD_OK)
            cli_json_text_part(json, NULL, source.name, source.name_bytes);
    }
    cli_json_end_list(json);
}

static reshard_status write_tensor(cli_json *json, const cli_conversion *made, int64_t index,
                                   const reshard_conversion_tensor *tensor)
{
    reshard_status status = RESHARD_OK;
    cli_json_begin_object(json, NULL);
    cli_plan_tensor_write(json, tensor);
    if (tensor->map_file != NULL) {
        write_sources(json, made, tensor);
        status = cli_plan_links_write(json, made, index, tensor, INT64_MAX);
    }
    if (status == RESHARD_OK && tensor->local_shape != NULL)
        status = write_shards(json, tensor);
    cli_json_end_object(json);
    return status;
}

reshard_status cli_plan_tensors_write(const cli_conversion *made, cli_json *json)
{
    cli_name *names = NULL;
    reshard_status status = cli_plan_tensors_sort(made, &names);
    cli_json_begin_list(json, "tensor_list");
    for (int64_t i = 0; status == RESHARD_OK && i < made->stats.tensor_count; i++) {
        reshard_conversion_tensor tensor = {.size = sizeof tensor};
        status = reshard_conversion_get_tensor(made->conversion, names[i].index, &tensor);
        if (status == RESHARD_OK)
            status = write_tensor(json, made, names[i].index, &tensor);
    }
    cli_json_end_list(json);
    free(names);
    return status;
}
