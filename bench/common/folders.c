/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folders.c - makes, examines and removes folders.
 */
#define _XOPEN_SOURCE 700 /* nftw */
#include "bench/common/folders.h"

#include "cli/common/failure.h"
#include "cli/common/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPEN_FOLDERS_MAX = 16, LENGTH_BYTES = 8 };

static int fail(const char *path, const char *what)
{
    return cli_fail(CLI_FAILED, "%s: %s: %s", path, what, strerror(errno));
}

char *bench_path_add(const char *prefix, const char *text)
{
    size_t room = strlen(prefix) + strlen(text) + 1;
    char *path = cli_allocate(room, 1);
    snprintf(path, room, "%s%s", prefix, text);
    return path;
}

int bench_folder_make_private(const char *inside, char **out_path)
{
    char *path = bench_path_add(inside, "/reshard-bench-XXXXXX");
    if (mkdtemp(path) == NULL) {
        int code = fail(inside, "no folder can be made there");
        free(path);
        return code;
    }
    *out_path = path;
    return CLI_DONE;
}

static int remove_one(const char *path, const struct stat *information, int kind, struct FTW *walk)
{
    (void)information, (void)kind, (void)walk;
    return remove(path);
}

int bench_folder_remove(const char *path)
{
    if (nftw(path, remove_one, OPEN_FOLDERS_MAX, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT)
        return CLI_DONE;
    return fail(path, "cannot be removed");
}

static int sync_path(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return fail(path, "cannot be opened");
    int code = fsync(descriptor) == 0 ? CLI_DONE : fail(path, "cannot be brought to the disk");
    close(descriptor);
    return code;
}

/* Reads the header length at the start of a safetensors file; 0 for other files. */
static int read_header_bytes(const char *path, uint64_t *out_bytes)
{
    unsigned char bytes[LENGTH_BYTES];
    size_t length = strlen(path);
    *out_bytes = 0;
    if (length < 12 || strcmp(path + length - 12, ".safetensors") != 0)
        return CLI_DONE;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return fail(path, "cannot be opened");
    int is_read = fread(bytes, 1, sizeof bytes, file) == sizeof bytes;
    fclose(file);
    if (!is_read)
        return cli_fail(CLI_FAILED, "%s: too short", path);
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        *out_bytes = *out_bytes << 8 | bytes[i];
    return CLI_DONE;
}

static int examine_file(const char *path, bench_folder_facts *facts)
{
    struct stat information;
    uint64_t header_bytes = 0;
    if (stat(path, &information) != 0)
        return fail(path, "cannot be examined");
    int code = read_header_bytes(path, &header_bytes);
    facts->bytes += (uint64_t)information.st_size;
    if (header_bytes > facts->header_bytes_max)
        facts->header_bytes_max = header_bytes;
    return code;
}

static int visit(const char *path, bench_folder_facts *facts);

static int visit_one(const char *path, bench_folder_facts *facts)
{
    struct stat information;
    if (stat(path, &information) != 0)
        return fail(path, "cannot be examined");
    int code = S_ISDIR(information.st_mode) ? visit(path, facts) : CLI_DONE;
    if (code != CLI_DONE)
        return code;
    if (facts == NULL)
        return sync_path(path);
    return S_ISDIR(information.st_mode) ? CLI_DONE : examine_file(path, facts);
}

/* Examines every file of a folder, also in those inside of it, or, if facts is NULL, syncs it. */
static int visit(const char *path, bench_folder_facts *facts)
{
    struct dirent *entry;
    int code = CLI_DONE;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return fail(path, "cannot be opened");
    while (code == CLI_DONE && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        char *prefix = bench_path_add(path, "/"), *name = bench_path_add(prefix, entry->d_name);
        code = visit_one(name, facts);
        free(name);
        free(prefix);
    }
    closedir(folder);
    return code;
}

int bench_folder_sync(const char *path)
{
    int code = visit(path, NULL);
    return code == CLI_DONE ? sync_path(path) : code;
}

int bench_folder_examine(const char *path, bench_folder_facts *out_facts)
{
    bench_folder_facts facts = {0};
    struct stat information;
    if (stat(path, &information) == 0 && S_ISREG(information.st_mode)) {
        *out_facts = (bench_folder_facts){.bytes = (uint64_t)information.st_size};
        return CLI_DONE;
    }
    int code = visit(path, &facts);
    if (code == CLI_DONE)
        *out_facts = facts;
    return code;
}
