/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.h - long work that a person may watch or stop. A work owns the context that library calls
 * use. If standard error is a terminal and the work takes more than a second, a bar shows its
 * progress. SIGINT, SIGTERM and SIGHUP make library calls return RESHARD_ERR_CANCELLED; a second
 * one ends the process.
 */
#ifndef CLI_WORK_H
#define CLI_WORK_H

#include <reshard/reshard.h>

typedef struct cli_work {
    reshard_context *context;
    double started, drawn; /* seconds of the monotonic clock */
    const char *what;      /* the current step, as the library calls it */
    int watched;           /* standard error is a terminal */
    int in_bytes;          /* set by the caller: progress counts bytes */
    int logs;              /* set by the caller: print what the library logs */
    int in_lines; /* set by the caller: without a terminal, print a line every ten seconds */
} cli_work;

/* Returns CLI_DONE, or prints a message and returns another code. At most one work at a time. */
int cli_work_begin(cli_work *work);
/* Erases the bar and lets signals end the process again. Call it before printing results. */
void cli_work_settle(cli_work *work);
/* Settles, and destroys the context; objects made with it must be gone. Does nothing for a zeroed
 * work. */
void cli_work_end(cli_work *work);

/* Draws the bar, at most ten times per second. `what` must be a static text. */
void cli_work_report(cli_work *work, const char *what, uint64_t done, uint64_t total);
/* Erases the bar, if one is on the screen. */
void cli_work_hide_bar(void);
/* Whether the user asked to stop. */
int cli_work_cancelled(void);

/* The signal by which the user asked to stop; 0: none. */
int cli_work_signal(void);

/* Seconds of a monotonic clock. */
double cli_seconds(void);

#endif
