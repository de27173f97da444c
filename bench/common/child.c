/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.c - fork, work, wait.
 *
 * A child starts with its parent's pages. For the figures to be the child's own, the parent must
 * stay small: it never holds data. It also starts no threads before it forks.
 */
#define _DEFAULT_SOURCE /* wait4 */
#include "bench/common/child.h"

#include "bench/common/folders.h"
#include "cli/common/failure.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static double read_seconds(const struct timeval *time)
{
    return (double)time->tv_sec + (double)time->tv_usec * 1e-6;
}

static int wait_for(pid_t child, const char *what, double started, bench_child_report *out_report)
{
    int state = 0;
    struct rusage usage;
    pid_t done;
    do {
        done = wait4(child, &state, 0, &usage);
    } while (done < 0 && errno == EINTR);
    if (done < 0)
        return cli_fail(CLI_FAILED, "%s: cannot be waited for: %s", what, strerror(errno));
    if (cli_work_cancelled())
        return cli_fail(CLI_FAILED, "cancelled");
    if (WIFSIGNALED(state))
        return cli_fail(CLI_FAILED, "%s: ended by signal %d", what, WTERMSIG(state));
    if (WEXITSTATUS(state) != 0)
        return CLI_FAILED; /* the child has printed why */
    out_report->seconds = cli_seconds() - started;
    out_report->cpu_seconds = read_seconds(&usage.ru_utime) + read_seconds(&usage.ru_stime);
    out_report->peak_bytes = (uint64_t)usage.ru_maxrss * 1024;
    return CLI_DONE;
}

static int fail_fork(void)
{
    return cli_fail(CLI_FAILED, "no process can be started: %s", strerror(errno));
}

static reshard_status plan(reshard_context *context, const char *source, const char *target,
                           const reshard_conversion_options *planning)
{
    const reshard_conversion_run_options running = {.size = sizeof running, .no_sync = 1};
    reshard_checkpoint *checkpoint = NULL;
    reshard_conversion *conversion = NULL;
    double seconds = 0;
    reshard_status status = reshard_checkpoint_open(context, source, NULL, &checkpoint);
    if (status == RESHARD_OK)
        status = reshard_conversion_create(context, checkpoint, planning, &conversion);
    if (status == RESHARD_OK)
        status = reshard_conversion_estimate(conversion, target, &running, &seconds);
    reshard_conversion_destroy(conversion);
    reshard_checkpoint_destroy(checkpoint);
    return status;
}

int bench_child_run(cli_work *work, int (*body)(void *user), void *user, const char *what,
                    bench_child_report *out_report)
{
    fflush(NULL);
    (void)malloc_trim(0); /* what earlier cases left would count as the child's memory */
    double started = cli_seconds();
    pid_t child = fork();
    if (child < 0)
        return fail_fork();
    if (child == 0) {
        work->watched = 0; /* only the parent draws a progress bar */
        _exit(body(user));
    }
    return wait_for(child, what, started, out_report);
}

typedef struct converting {
    const cli_work *work;
    const char *source, *target;
    const reshard_conversion_options *planning;
    const reshard_conversion_run_options *running; /* NULL: only plan */
} converting;

static int convert(void *user)
{
    const converting *c = user;
    reshard_context *context = c->work->context;
    reshard_status status =
        c->running == NULL
            ? plan(context, c->source, c->target, c->planning)
            : reshard_convert(context, c->source, c->target, NULL, c->planning, c->running, NULL);
    if (status != RESHARD_OK && !cli_work_cancelled())
        cli_fail(CLI_FAILED, "%s", reshard_error_text());
    return status == RESHARD_OK ? CLI_DONE : CLI_FAILED;
}

int bench_child_convert(cli_work *work, const char *source, const char *target,
                        const reshard_conversion_options *planning,
                        const reshard_conversion_run_options *running,
                        bench_child_report *out_report)
{
    converting c = {work, source, target, planning, running};
    return bench_child_run(work, convert, &c, "the conversion", out_report);
}

int bench_child_copy(const char *source, const char *target, int no_reflink, int sync,
                     bench_child_report *out_report)
{
    fflush(NULL);
    double started = cli_seconds();
    pid_t child = fork();
    if (child < 0)
        return fail_fork();
    if (child == 0) {
        if (no_reflink)
            execlp("cp", "cp", "-r", "--reflink=never", source, target, (char *)NULL);
        else
            execlp("cp", "cp", "-r", source, target, (char *)NULL);
        cli_fail(CLI_FAILED, "cp cannot be run: %s", strerror(errno));
        _exit(CLI_FAILED);
    }
    int code = wait_for(child, "cp", started, out_report);
    if (code == CLI_DONE && sync) {
        code = bench_folder_sync(target);
        out_report->seconds = cli_seconds() - started;
    }
    return code;
}
