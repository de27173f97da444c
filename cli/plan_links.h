/* SPDX-License-Identifier: Apache-2.0 */
/* plan_links.h - of `reshard plan CKPT --as NAMING --tensors`: which part of which tensor becomes
 * which part of a tensor that a map makes. */
#ifndef CLI_PLAN_LINKS_H
#define CLI_PLAN_LINKS_H

#include "cli/common/table.h"
#include "cli/converting.h"

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
