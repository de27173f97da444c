/* SPDX-License-Identifier: Apache-2.0 */
/* plan_tensors.h - `reshard plan CKPT --tensors`: each tensor, how it is cut, and which rule says
 * so. */
#ifndef CLI_PLAN_TENSORS_H
#define CLI_PLAN_TENSORS_H

#include "cli/common/names.h"
#include "cli/converting.h"

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

#endif
