/* SPDX-License-Identifier: Apache-2.0 */
/* plan_page.h - what plans and conversions put on a page, beside the fields of --json. */
#ifndef CLI_PLAN_PAGE_H
#define CLI_PLAN_PAGE_H

#include "cli/converting.h"
#include "cli/page/page.h"
#include "cli/plan_report.h"

/* Beyond so many ranks a page shows no figures of single ranks and pairs. */
enum { CLI_PAGE_RANKS_MAX = 2048 };
/* Beyond so many tensors, names of files, or entries of the matrix from file to file, a page leaves
 * the rest out. */
enum { CLI_PAGE_TENSORS_MAX = 10000, CLI_PAGE_FILES_MAX = 10000, CLI_PAGE_ENTRIES_MAX = 4 << 20 };

/* The figures of all ranks must be there. Returns CLI_DONE, or another code after a message. */
int cli_plan_page_write(reshard_context *context, const cli_plan_report *report, cli_page *page);

/* seconds: how long the conversion may take; negative: not known. Errors are the library's. */
reshard_status cli_conversion_page_write(const cli_conversion *made, double seconds,
                                         cli_page *page);

#endif
