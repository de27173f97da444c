/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_info.c - `reshard info`: describes this program and this machine, for bug reports. What a
 * folder's file system can do is tried out on two small files, which are unlinked as soon as they
 * are open, so that nothing is left behind.
 */
#define _GNU_SOURCE /* O_DIRECT */
#include "cli/commands/commands.h"
#include "cli/common/failure.h"
#include "cli/common/json.h"
#include "cli/common/library.h"
#include "cli/common/sizes.h"
#include "cli/common/style.h"

#include <reshard/checkpoint.h>
#include <reshard/model_rules.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <unistd.h>

typedef struct info_values {
    int json;
} info_values;

static const cli_option options[] = {
    {"json", CLI_FLAG, offsetof(info_values, json), NULL, 0, "one JSON object on one line"},
};

/* ---- a folder -------------------------------------------------------------------------------- */

typedef struct folder_facts {
    uint64_t bytes_free;
    int clones;    /* blocks can be shared between files (reflink) */
    int is_direct; /* files can be read and written without the page cache */
} folder_facts;

enum { TRIED_BYTES = 4096 };

/* Opens a new file in the folder and unlinks it. Returns -1 with errno on failure. *is_direct is
 * set to whether the file could also be opened for direct access. */
static int open_nameless(const char *folder, int *is_direct)
{
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/.reshard-info-XXXXXX", folder);
    if (length < 0 || (size_t)length >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int descriptor = mkstemp(path);
    if (descriptor < 0)
        return -1;
    int direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    *is_direct = direct >= 0;
    if (direct >= 0)
        close(direct);
    unlink(path);
    return descriptor;
}

static int try_folder(const char *folder, folder_facts *facts)
{
    static const char zeros[TRIED_BYTES];
    struct statvfs space;
    *facts = (folder_facts){0};
    int source = open_nameless(folder, &facts->is_direct);
    int target = source >= 0 ? open_nameless(folder, &facts->is_direct) : -1;
    if (target < 0 || write(source, zeros, sizeof zeros) != (ssize_t)sizeof zeros ||
        statvfs(folder, &space) != 0) {
        int code = cli_fail(CLI_FAILED, "%s: %s", folder, strerror(errno));
        if (source >= 0)
            close(source);
        if (target >= 0)
            close(target);
        return code;
    }
    struct file_clone_range range = {.src_fd = source, .src_length = TRIED_BYTES};
    facts->clones = ioctl(target, FICLONERANGE, &range) == 0;
    facts->bytes_free = (uint64_t)space.f_bavail * space.f_frsize;
    close(source);
    close(target);
    return CLI_DONE;
}

/* ---- the machine ----------------------------------------------------------------------------- */

typedef struct machine_facts {
    int64_t processors;
    uint64_t memory_bytes;
    uint64_t cache_bytes[3]; /* levels 1 to 3; 0: not known */
    int has_mpi;             /* libreshard_mpi can be loaded */
} machine_facts;

static uint64_t ask_system(int name)
{
    long answer = sysconf(name);
    return answer > 0 ? (uint64_t)answer : 0;
}

static void ask_machine(machine_facts *facts)
{
    *facts = (machine_facts){
        .processors = (int64_t)ask_system(_SC_NPROCESSORS_ONLN),
        .memory_bytes = ask_system(_SC_PHYS_PAGES) * ask_system(_SC_PAGESIZE),
        .has_mpi = cli_library_can_open() && cli_library_open("reshard_mpi") != NULL,
    };
#ifdef _SC_LEVEL1_DCACHE_SIZE
    static const int levels[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE,
                                 _SC_LEVEL3_CACHE_SIZE};
    for (int i = 0; i < 3; i++)
        facts->cache_bytes[i] = ask_system(levels[i]);
#endif
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_json(const machine_facts *machine, const char *path, const folder_facts *folder)
{
    cli_json json = {.stream = stdout};
    reshard_format format = {.size = sizeof format};
    reshard_family family = {.size = sizeof family};
    cli_json_begin_object(&json, NULL);
    cli_json_text(&json, "version", reshard_version());
    cli_json_integer(&json, "abi", reshard_abi_version());
    cli_json_begin_list(&json, "formats");
    for (int32_t i = 0; reshard_format_at(i, &format) == RESHARD_OK; i++) {
        cli_json_begin_object(&json, NULL);
        cli_json_text(&json, "name", format.name);
        cli_json_bool(&json, "reads", format.reads);
        cli_json_bool(&json, "writes", format.writes);
        cli_json_end_object(&json);
    }
    cli_json_end_list(&json);
    cli_json_begin_list(&json, "families");
    for (int32_t i = 0; reshard_family_at(i, &family) == RESHARD_OK; i++)
        cli_json_text(&json, NULL, family.name);
    cli_json_end_list(&json);
    cli_json_begin_list(&json, "transports");
    cli_json_text(&json, NULL, "threads");
    if (machine->has_mpi)
        cli_json_text(&json, NULL, "mpi");
    cli_json_end_list(&json);
    cli_json_integer(&json, "processors", machine->processors);
    cli_json_unsigned(&json, "memory_bytes", machine->memory_bytes);
    cli_json_begin_list(&json, "cache_bytes");
    for (int i = 0; i < 3; i++)
        cli_json_unsigned(&json, NULL, machine->cache_bytes[i]);
    cli_json_end_list(&json);
    cli_json_integer(&json, "dims_max", RESHARD_NDIM_MAX);
    cli_json_integer(&json, "axes_max", RESHARD_AXES_MAX);
    if (path != NULL) {
        cli_json_begin_object(&json, "folder");
        cli_json_text(&json, "path", path);
        cli_json_unsigned(&json, "bytes_free", folder->bytes_free);
        cli_json_bool(&json, "reflink", folder->clones);
        cli_json_bool(&json, "direct", folder->is_direct);
        cli_json_end_object(&json);
    }
    cli_json_end_object(&json);
    putchar('\n');
}

/* Prints names one after another, wrapping long lines. */
typedef struct name_lines {
    int column;
} name_lines;

static void print_name(name_lines *lines, const char *name)
{
    enum { INDENT = 12, WIDTH = 80 };
    int length = (int)strlen(name) + 1;
    if (lines->column + length > WIDTH) {
        printf("\n%*s", INDENT - 1, "");
        lines->column = INDENT - 1;
    }
    printf(" %s", name);
    lines->column += length;
}

static void print_label(name_lines *lines, const char *label)
{
    lines->column = printf("%-11s", label);
}

static void print_formats(name_lines *lines, const char *label, int writing)
{
    reshard_format format = {.size = sizeof format};
    print_label(lines, label);
    for (int32_t i = 0; reshard_format_at(i, &format) == RESHARD_OK; i++) {
        if (writing ? format.writes : format.reads)
            print_name(lines, format.name);
    }
    putchar('\n');
}

static void print_machine(const machine_facts *machine)
{
    char size[CLI_SIZE_TEXT];
    printf("transports  threads%s\n", machine->has_mpi ? " mpi" : "; no mpi");
    printf("processors  %" PRId64 "\n", machine->processors);
    printf("memory      %s\n", cli_size_text(machine->memory_bytes, size));
    printf("caches     ");
    for (int i = 0; i < 3; i++)
        printf(" %s%s",
               machine->cache_bytes[i] != 0 ? cli_size_text(machine->cache_bytes[i], size)
                                            : "unknown",
               i < 2 ? "," : "\n");
    printf("limits      %d dims, %d axes of a mesh; docs/limits.md has the others\n",
           RESHARD_NDIM_MAX, RESHARD_AXES_MAX);
}

static void print_text(const machine_facts *machine, const char *path, const folder_facts *folder)
{
    name_lines lines = {0};
    reshard_family family = {.size = sizeof family};
    char size[CLI_SIZE_TEXT];
    printf("%sreshard %s%s  ABI %" PRId32 "\n\n", cli_style_begin(CLI_BOLD), reshard_version(),
           cli_style_end(CLI_BOLD), reshard_abi_version());
    print_formats(&lines, "reads", 0);
    print_formats(&lines, "writes", 1);
    print_label(&lines, "families");
    for (int32_t i = 0; reshard_family_at(i, &family) == RESHARD_OK; i++)
        print_name(&lines, family.name);
    putchar('\n');
    print_machine(machine);
    if (path == NULL)
        return;
    fputs("folder      ", stdout);
    cli_print_shown(path);
    printf(": %s free, %s blocks (reflink), %s direct access\n",
           cli_size_text(folder->bytes_free, size), folder->clones ? "shares" : "does not share",
           folder->is_direct ? "has" : "has no");
}

static int run(const cli_command *command, int argc, char **argv)
{
    info_values values = {0};
    const char *path = NULL;
    machine_facts machine;
    folder_facts folder = {0};
    int code = cli_options_parse(command, argc, argv, &values, &path);
    if (code == CLI_DONE && path != NULL)
        code = try_folder(path, &folder);
    if (code != CLI_DONE)
        return code;
    ask_machine(&machine);
    if (values.json)
        print_json(&machine, path, &folder);
    else
        print_text(&machine, path, &folder);
    return CLI_DONE;
}

const cli_command cli_command_info = {
    .name = "info",
    .summary = "what this program and this machine offer",
    .synopsis = "[FOLDER] [--json]",
    .description =
        "Prints the version, the formats that are read and written, the families of rules, the\n"
        "transports, processors, memory and caches. With a folder, also prints the free space,\n"
        "and whether its file system can share blocks between files (reflink) and has direct\n"
        "access; this is tried with two small files without names. Please include it in bug\n"
        "reports.\n",
    .operand = "FOLDER",
    .operand_is_optional = 1,
    CLI_OPTIONS(options),
    .examples = "  reshard info\n"
                "  reshard info out/ --json\n",
    .run = run,
};
