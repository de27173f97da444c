/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.c - messages and exit codes.
 */
#include "cli/common/failure.h"

#include "cli/common/json.h"
#include "cli/common/ranks.h"
#include "cli/common/work.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A text, and the option that is added behind it. */
enum { TEXT_BYTES = 1024, MESSAGE_BYTES = TEXT_BYTES + 256 };

static int is_of_second; /* of two checkpoints */
static int is_json;      /* --json is given, and standard output can be written */

void cli_failure_init(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        is_json = is_json || strcmp(argv[i], "--json") == 0;
}

/* The library's name of the status, without what all of them begin with. Errors of the command
 * itself have none. */
static const char *find_name(reshard_status status, int code)
{
    static const char prefix[] = "RESHARD_ERR_";
    if (status == RESHARD_OK)
        return code == CLI_USAGE ? "USAGE" : "FAILED";
    const char *name = reshard_status_name(status);
    return strncmp(name, prefix, sizeof prefix - 1) == 0 ? name + sizeof prefix - 1 : name;
}

/* hint, subject: as reshard_error has them. */
static void print_json(const char *name, const char *text, reshard_hint hint, const char *subject)
{
    static const char *const hints[RESHARD_HINT_COUNT] = {
#define ROW(name, number, text) [number] = (text),
        RESHARD_HINT_LIST(ROW)
#undef ROW
    };
    cli_json json = {.stream = stdout};
    cli_json_begin_object(&json, NULL);
    cli_json_begin_object(&json, "error");
    cli_json_text(&json, "status", name);
    cli_json_text(&json, "text", text);
    cli_json_text(&json, "hint", hint < RESHARD_HINT_COUNT ? hints[hint] : "unknown");
    cli_json_text(&json, "subject", subject);
    cli_json_end_object(&json);
    cli_json_end_object(&json);
    (void)putchar('\n');
}

/* Escapes the message: an argument with newlines or escape sequences could forge lines and
 * colours. name: the status for JSON; NULL: nothing failed. */
static void print_line(const char *name, const char *message, reshard_hint hint,
                       const char *subject)
{
    /* Print in one write, because other processes may print too. Escaping makes at most four of a
     * byte. */
    static const char program[] = "reshard: ";
    char line[sizeof program + 4 * MESSAGE_BYTES + 1];
    size_t length = sizeof program - 1;
    memcpy(line, program, length);
    length += reshard_text_escape(message, strlen(message), line + length, sizeof line - length);
    cli_work_hide_bar();
    if (is_json && name != NULL && !cli_json_has_begun() && cli_ranks_are_first())
        print_json(name, line + sizeof program - 1, hint, subject);
    line[length++] = '\n';
    (void)fwrite(line, 1, length, stderr);
}

void cli_failure_is_of_second(int second)
{
    is_of_second = second;
}

/* Adds the option that the hint is about. */
static void add_option(char message[MESSAGE_BYTES], reshard_hint hint, const char *subject)
{
#define DRAFT \
    "reshard rules --for MODEL drafts rules: fill them in, and give them with --rules FILE"
    static const char *const options[RESHARD_HINT_COUNT] = {
        [RESHARD_HINT_SOURCE_MESH] = " (--from MESH, as in --from tp=4)",
        [RESHARD_HINT_TARGET_MESH] = " (--to MESH, as in --to tp=4)",
        [RESHARD_HINT_RULES] = "; reshard rules lists the families; " DRAFT,
        [RESHARD_HINT_CONFIG] = " (--config BASE gives one); " DRAFT,
        [RESHARD_HINT_DTYPE] = "; --dtype gives them one",
        [RESHARD_HINT_EXCLUDE] = " (--exclude GLOB)",
        [RESHARD_HINT_PADDING] = "; --padding any cuts it off nevertheless",
        [RESHARD_HINT_RESUME] = "; --resume continues it",
        [RESHARD_HINT_FINISH] = " (reshard convert --resume)",
        [RESHARD_HINT_DEQUANTIZE] = " (--dequantize bf16)",
        [RESHARD_HINT_LIKE] = " (--like BASE.gguf)",
        [RESHARD_HINT_BLOCK_TYPE] = " (--dtype q8_0)",
    };
#undef DRAFT
    size_t length = strlen(message);
    if (hint == RESHARD_HINT_SOURCE_MESH && is_of_second)
        (void)snprintf(message + length, MESSAGE_BYTES - length,
                       " (--from-b MESH, as in --from-b tp=4)");
    else if (hint == RESHARD_HINT_ONLY)
        (void)snprintf(message + length, MESSAGE_BYTES - length, " (--only %s)", subject);
    else if (hint == RESHARD_HINT_SET_KEY)
        (void)snprintf(message + length, MESSAGE_BYTES - length, "; --set %s=N gives it one",
                       subject[0] != '\0' ? subject : "KEY");
    else if (hint < RESHARD_HINT_COUNT && options[hint] != NULL)
        (void)snprintf(message + length, MESSAGE_BYTES - length, "%s", options[hint]);
}

/* Begins a message, unless it is left to the first rank: returns how long it is now, or -1. */
static int begin_message(char message[MESSAGE_BYTES])
{
    message[0] = '\0';
    if (cli_ranks_are_connected() || cli_ranks_are_first())
        return 0;
    if (!cli_ranks_outlive_first())
        return -1;
    return snprintf(message, MESSAGE_BYTES, "rank %d: ", (int)cli_ranks_rank());
}

int cli_fail(int code, const char *format, ...)
{
    char message[MESSAGE_BYTES];
    int length = begin_message(message);
    if (length < 0)
        return code;
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(message + length, sizeof message - (size_t)length, format, arguments);
    va_end(arguments);
    if (length >= (int)sizeof message)
        memcpy(message + sizeof message - 4, "...", 4);
    print_line(find_name(RESHARD_OK, code), message, RESHARD_HINT_NONE, "");
    return code;
}

void cli_warn(const char *line)
{
    char message[MESSAGE_BYTES];
    (void)snprintf(message, sizeof message, "warning: %s", line);
    print_line(NULL, message, RESHARD_HINT_NONE, "");
}

static int exit_code_of(reshard_status status)
{
    switch (status) {
    case RESHARD_ERR_NO_MEMORY:
    case RESHARD_ERR_MEMORY_LIMIT:
    case RESHARD_ERR_CANCELLED:
        return CLI_FAILED;
    default:
        return status > -100 ? CLI_USAGE : CLI_FAILED;
    }
}

int cli_fail_library(reshard_status status, int code, const char *within)
{
    char message[MESSAGE_BYTES];
    reshard_error error = {.size = sizeof error};
    int length = begin_message(message);
    if (length < 0)
        return code;
    (void)reshard_error_get(&error);
    const char *text = error.text[0] != '\0' ? error.text : reshard_status_text(status);
    length += snprintf(message + length, TEXT_BYTES - (size_t)length, "%s%s%s",
                       within != NULL ? within : "", within != NULL ? ": " : "", text);
    if (length >= TEXT_BYTES)
        memcpy(message + TEXT_BYTES - 4, "...", 4);
    add_option(message, error.hint, error.subject);
    print_line(find_name(status, code), message, error.hint, error.subject);
    return code;
}

int cli_fail_status(reshard_status status)
{
    return cli_fail_library(status, exit_code_of(status), NULL);
}

int cli_finish(int code)
{
    errno = 0;
    int failed = fflush(stdout) != 0;
    if (!failed && !ferror(stdout))
        return code;
    is_json = 0; /* it has no reader */
    return cli_fail(CLI_FAILED, "standard output cannot be written: %s",
                    errno != 0 ? strerror(errno) : "an earlier write failed");
}
