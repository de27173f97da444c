/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.h - long work that a person may watch or stop. A work owns the context that library calls
 * are made with: when standard error is a terminal and the work takes over a second, a bar tells
 * how far it is; an interrupt (SIGINT) makes library calls return RESHARD_ERR_CANCELLED, and a
 * second one ends the process.
 */
#ifndef CLI_WORK_H
#define CLI_WORK_H

#include <reshard/reshard.h>

typedef struct cli_work {
    reshard_context *context;
    double started, drawn; /* seconds of the monotonic clock */
    const char *what;      /* what the bar is about now */
    int watched;           /* standard error is a terminal */
    int in_bytes;          /* to be set by the caller: what is counted are bytes */
    int in_lines; /* likewise: without a terminal, a line every ten seconds in place of the bar */
} cli_work;

/* Returns CLI_DONE, or another code after a message. At most one work may be under way. */
int cli_work_begin(cli_work *work);
/* Erases the bar and lets SIGINT end the process again; to be called before results are printed. */
void cli_work_settle(cli_work *work);
/* Settles, and destroys the context: objects made with it must be gone. Fine on a zeroed work. */
void cli_work_end(cli_work *work);

/* Draws the bar, at most ten times a second. `what` is a static text. */
void cli_work_report(cli_work *work, const char *what, uint64_t done, uint64_t total);
/* Erases the bar, if one is on the screen. */
void cli_work_hide_bar(void);
/* Whether the user asked to stop. */
int cli_work_cancelled(void);

/* Seconds of a clock that never goes back. */
double cli_seconds(void);

#endif
