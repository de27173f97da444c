/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.c - shows progress on a terminal, and stops when asked to.
 *
 * The bar is one line, redrawn in place after "\r" and erased at the end. The flag that asks to
 * stop is global because signal handlers get no user pointer. So is bar_is_shown, because every
 * message must erase the bar first.
 */
#define _POSIX_C_SOURCE 200809L
#include "cli/common/work.h"

#include "cli/common/failure.h"
#include "cli/common/sizes.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BAR_WIDTH = 24 };

static const double first_shown_seconds = 1.0;
static const double redraw_seconds = 0.1;
static const double line_seconds = 10.0;

/* Signals that ask a program to end: sent by Ctrl-C, by a scheduler or `kill`, by a closing
 * terminal. */
static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { STOP_SIGNALS = sizeof stop_signals / sizeof stop_signals[0] };

static volatile sig_atomic_t stop_wanted; /* the signal that asked for it; 0: none */
static int bar_is_shown;

static void want_stop(int number)
{
    stop_wanted = number;
}

double cli_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int cli_work_cancelled(void)
{
    return stop_wanted != 0;
}

int cli_work_signal(void)
{
    return stop_wanted;
}

static int ask_cancelled(void *user)
{
    (void)user;
    return cli_work_cancelled();
}

static void report(void *user, const char *what, uint64_t done, uint64_t total)
{
    cli_work_report(user, what, done, total);
}

static void log_line(void *user, const char *line)
{
    const cli_work *work = user;
    if (work->logs)
        cli_warn(line);
}

/* Leaves a signal alone if our parent ignores it, as nohup does, and shells for background jobs. */
static void catch_signal(int number)
{
    struct sigaction action;
    sigaction(number, NULL, &action);
    if (action.sa_handler == SIG_IGN)
        return;
    memset(&action, 0, sizeof action);
    action.sa_handler = want_stop;
    sigemptyset(&action.sa_mask);
    /* One-shot: if the work does not stop, a second signal ends the process. */
    action.sa_flags = SA_RESTART | (int)SA_RESETHAND;
    sigaction(number, &action, NULL);
}

static void release_signal(int number)
{
    struct sigaction action;
    sigaction(number, NULL, &action);
    if (action.sa_handler == want_stop)
        signal(number, SIG_DFL);
}

int cli_work_begin(cli_work *work)
{
    *work = (cli_work){.started = cli_seconds(), .watched = isatty(STDERR_FILENO)};
    reshard_context_options options = {
        .size = sizeof options,
        .log = log_line,
        .progress = report,
        .cancelled = ask_cancelled,
        .user = work,
    };
    reshard_status status = reshard_context_create(&options, &work->context);
    if (status != RESHARD_OK)
        return cli_fail_status(status);
    for (int i = 0; i < STOP_SIGNALS; i++)
        catch_signal(stop_signals[i]);
    return CLI_DONE;
}

void cli_work_hide_bar(void)
{
    if (!bar_is_shown)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    bar_is_shown = 0;
}

void cli_work_settle(cli_work *work)
{
    cli_work_hide_bar();
    for (int i = 0; work->context != NULL && i < STOP_SIGNALS; i++)
        release_signal(stop_signals[i]);
}

void cli_work_end(cli_work *work)
{
    cli_work_settle(work);
    reshard_context_destroy(work->context);
    work->context = NULL;
}

static void write_rate(double rate, int in_bytes)
{
    char text[CLI_SIZE_TEXT];
    if (in_bytes)
        fprintf(stderr, "  %s/s", cli_size_text((uint64_t)rate, text));
    else
        fprintf(stderr, "  %.0f/s", rate);
}

static void draw(const cli_work *work, uint64_t done, uint64_t total, double elapsed)
{
    double fraction = (double)done / (double)total;
    double rate = elapsed > 0 ? (double)done / elapsed : 0;
    int filled = (int)(fraction * BAR_WIDTH);
    char bar[BAR_WIDTH + 1];
    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '#', (size_t)filled);
    bar[BAR_WIDTH] = '\0';
    if (work->watched)
        fprintf(stderr, "\r%.20s [%s] %3.0f%%", work->what, bar, fraction * 100);
    else
        fprintf(stderr, "%.20s %3.0f%%", work->what, fraction * 100);
    write_rate(rate, work->in_bytes);
    if (rate > 0)
        fprintf(stderr, "  %.0f s left", (double)(total - done) / rate);
    fputs(work->watched ? "\033[K" : "\n", stderr);
    fflush(stderr);
}

/* Without a terminal, prints a line every ten seconds, for logs. */
static void report_line(cli_work *work, uint64_t done, uint64_t total, double now)
{
    double since = work->drawn > work->started ? work->drawn : work->started;
    if (!work->in_lines || now - since < line_seconds)
        return;
    draw(work, done, total, now - work->started);
    work->drawn = now;
}

void cli_work_report(cli_work *work, const char *what, uint64_t done, uint64_t total)
{
    double now = cli_seconds();
    if (work->what == NULL || strcmp(work->what, what) != 0) {
        work->what = what;
        work->started = now;
    }
    if (total == 0 || done > total)
        return;
    if (!work->watched) {
        report_line(work, done, total, now);
        return;
    }
    int early = bar_is_shown ? now - work->drawn < redraw_seconds
                             : now - work->started < first_shown_seconds;
    if (early)
        return;
    draw(work, done, total, now - work->started);
    bar_is_shown = 1;
    work->drawn = now;
}
