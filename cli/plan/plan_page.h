/* SPDX-License-Identifier: Apache-2.0 */
/* plan_page.h - the data that plans and conversions put on a page. */
#ifndef CLI_PLAN_PLAN_PAGE_H
#define CLI_PLAN_PLAN_PAGE_H

#include "cli/checkpoint/converting.h"
#include "cli/page/page.h"
#include "cli/plan/plan_report.h"

/* With more ranks than this, a page has no figures for single ranks and pairs. */
enum { CLI_PAGE_RANKS_MAX = 2048 };
/* A page has at most this many tensors and file names; a file-to-file matrix with more entries than
 * CLI_PAGE_ENTRIES_MAX is left out. */
enum { CLI_PAGE_TENSORS_MAX = 10000, CLI_PAGE_FILES_MAX = 10000, CLI_PAGE_ENTRIES_MAX = 4 << 20 };
/* It lists this many links of a tensor that a map makes, and says how many more there are. */
enum { CLI_PAGE_LINKS_MAX = 16 };

/* The report must have the figures of all ranks. Returns CLI_DONE, or another code after a
 * message. */
int cli_plan_page_write(reshard_context *context, const cli_plan_report *report, cli_page *page);

/* seconds: the estimated time of the conversion; negative: not known. Errors are the library's. */
reshard_status cli_conversion_page_write(const cli_conversion *made, double seconds,
                                         cli_page *page);

#endif
