/* SPDX-License-Identifier: Apache-2.0 */
/* plan_tensors.c - prints the tensors of a planned conversion, one by one. */
#include "cli/plan_tensors.h"

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
    static const char *const titles[] = {"tensor", "dtype", "shape", "cut", "local", "rule"};
    cli_name *names = NULL;
    cli_table *table = cli_table_create(6);
    reshard_status status = cli_plan_tensors_sort(made, &names);
    for (int i = 0; i < 6; i++) {
        cli_table_add(table, CLI_BOLD, "%s", titles[i]);
        cli_table_align(table, i, CLI_LEFT);
    }
    for (int64_t i = 0; status == RESHARD_OK && i < made->stats.tensor_count; i++) {
        reshard_conversion_tensor tensor = {.size = sizeof tensor};
        status = reshard_conversion_get_tensor(made->conversion, names[i].index, &tensor);
        if (status == RESHARD_OK)
            add_tensor(table, &tensor);
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
    reshard_layout *layout = NULL;
    reshard_shards *shards = NULL;
    reshard_status status =
        reshard_layout_parse(NULL, tensor->cut, tensor->ndim, tensor->padded_shape, &layout);
    if (status == RESHARD_OK && reshard_layout_rank_count(layout) <= CLI_PLAN_SHARDS_MAX) {
        status = reshard_layout_all_shards(layout, &shards);
        cli_json_begin_list(json, "shards");
        for (int64_t i = 0; status == RESHARD_OK && i < shards->count; i++)
            write_shard(json, &shards->items[i]);
        cli_json_end_list(json);
    }
    reshard_shards_destroy(shards);
    reshard_layout_release(layout);
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

static reshard_status write_tensor(cli_json *json, const reshard_conversion_tensor *tensor)
{
    reshard_status status = RESHARD_OK;
    cli_json_begin_object(json, NULL);
    cli_plan_tensor_write(json, tensor);
    if (tensor->local_shape != NULL)
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
            status = write_tensor(json, &tensor);
    }
    cli_json_end_list(json);
    free(names);
    return status;
}
