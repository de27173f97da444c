/* SPDX-License-Identifier: Apache-2.0 */
/* plan_tensors.h - `reshard plan CKPT --tensors`: each tensor, how it is cut, and which rule says
 * so. */
#ifndef CLI_PLAN_PLAN_TENSORS_H
#define CLI_PLAN_PLAN_TENSORS_H

#include "cli/checkpoint/converting.h"
#include "cli/common/names.h"
#include "cli/common/table.h"

/* Errors are the library's, with its text set. */
reshard_status cli_plan_tensors_print(const cli_conversion *made);
/* The same as a list in the open JSON object. Over meshes of up to CLI_PLAN_SHARDS_MAX ranks,
 * tensors have their shards too. */
enum { CLI_PLAN_SHARDS_MAX = 16 };
reshard_status cli_plan_tensors_write(const cli_conversion *made, cli_json *json);

/* Sorts the tensors as people read them (names.h). free(*out_names) in any case. */
reshard_status cli_plan_tensors_sort(const cli_conversion *made, cli_name **out_names);
/* Writes a tensor's fields, except its shards, into the open object. */
void cli_plan_tensor_write(cli_json *json, const reshard_conversion_tensor *tensor);

/* plan_links.c - of `reshard plan CKPT --as NAMING --tensors`: which part of which tensor becomes
 * which part of a tensor that a map makes. */

/* Tables and pages show this many links of a tensor, and how many more there are. */
enum { CLI_PLAN_LINKS_SHOWN = 4 };

/* Adds three cells to the row of tensor `index`, which has `before` cells already: what it comes
 * from, into where, and the line of the map; and a row for each further link. */
reshard_status cli_plan_links_add(cli_table *table, int before, const cli_conversion *made,
                                  int64_t index, const reshard_conversion_tensor *tensor);
/* The same in the open JSON object, with at most `limit` links. */
reshard_status cli_plan_links_write(cli_json *json, const cli_conversion *made, int64_t index,
                                    const reshard_conversion_tensor *tensor, int64_t limit);

#endif
