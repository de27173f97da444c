/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.c - the file of a page. It is written under a temporary name and renamed once it is
 * complete, so that nobody ever opens half a page.
 */
#include "cli/page/page.h"

#include "cli/common/failure.h"
#include "cli/common/memory.h"
#include "cli/common/replace.h"
#include "cli/page/pieces.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The page before and after its data; generated from web/ by cmake/JoinPage.cmake. */
extern const char cli_page_head[], cli_page_tail[];

static int open_page(cli_page *page)
{
    struct stat status;
    int is_there = stat(page->path, &status) == 0;
    int code = CLI_DONE;
    if (is_there && S_ISREG(status.st_mode))
        code = cli_replace_check(page->path, "<!doctype html>\n<!-- reshard", "a page of reshard");
    if (code != CLI_DONE)
        return code;
    if (!is_there || S_ISREG(status.st_mode)) {
        size_t room = strlen(page->path) + sizeof ".partial";
        page->partial = cli_allocate(room, 1);
        snprintf(page->partial, room, "%s.partial", page->path);
    }
    const char *path = page->partial != NULL ? page->partial : page->path;
    page->json.stream = fopen(path, "w");
    if (page->json.stream == NULL)
        code = cli_fail(CLI_FAILED, "cannot write \"%s\": %s", path, strerror(errno));
    return code;
}

/* Quotes a word for a shell, in single quotes if necessary. Returns the length written. */
static size_t quote_word(const char *word, char *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=/.,:@%^";
    size_t length = strlen(word), at = 0;
    if (length > 0 && strspn(word, plain) == length) {
        memcpy(out, word, length);
        return length;
    }
    out[at++] = '\'';
    for (const char *c = word; *c != '\0'; c++) {
        if (*c == '\'') {
            memcpy(out + at, "'\\''", 4);
            at += 4;
        } else {
            out[at++] = *c;
        }
    }
    out[at++] = '\'';
    return at;
}

static void write_command(cli_json *json, const char *command, int argc, char **argv)
{
    size_t room = strlen(command) + sizeof "reshard ";
    for (int i = 0; i < argc; i++)
        room += 4 * strlen(argv[i]) + 3;
    char *text = cli_allocate(room, 1);
    size_t length = (size_t)snprintf(text, room, "reshard %s", command);
    for (int i = 0; i < argc; i++) {
        text[length++] = ' ';
        length += quote_word(argv[i], text + length);
    }
    cli_json_text_part(json, "command", text, length);
    free(text);
}

int cli_page_begin(cli_page *page, const char *path, const char *command, int argc, char **argv)
{
    *page = (cli_page){.path = path, .json = {.in_html = 1}, .pieces_left = CLI_PAGE_PIECES_MAX};
    int code = open_page(page);
    if (code != CLI_DONE)
        return code;
    fputs(cli_page_head, page->json.stream);
    cli_json_begin_object(&page->json, NULL);
    cli_json_text(&page->json, "version", reshard_version());
    write_command(&page->json, command, argc, argv);
    return CLI_DONE;
}

int cli_page_end(cli_page *page, int code)
{
    FILE *stream = page->json.stream;
    if (stream != NULL) {
        cli_json_integer(&page->json, "pictures_missed", page->pictures_missed);
        cli_json_end_object(&page->json);
        fputs(cli_page_tail, stream);
        int failed = ferror(stream);
        failed |= fclose(stream) != 0;
        if (!failed && code == CLI_DONE && page->partial != NULL)
            failed = rename(page->partial, page->path) != 0;
        if (failed && code == CLI_DONE)
            code = cli_fail(CLI_FAILED, "cannot write \"%s\": %s", page->path, strerror(errno));
        if (code != CLI_DONE && page->partial != NULL)
            (void)unlink(page->partial);
    }
    free(page->partial);
    *page = (cli_page){0};
    return code;
}
