/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library.c - finds and opens libraries. The build sets CLI_LIBRARY_FOLDER, the relative path from
 * the folder of installed programs to the folder of installed libraries.
 */
#include "cli/common/library.h"

#include "cli/common/program.h"

#include <reshard/base.h>

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static char problem[1024];

static void *open_path(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    const char *why = library == NULL ? dlerror() : NULL;
    if (library == NULL)
        (void)snprintf(problem, sizeof problem, "%s", why != NULL ? why : "unknown error");
    return library;
}

void *cli_library_open(const char *name)
{
    static const char *const places[] = {"", CLI_LIBRARY_FOLDER "/"};
    char folder[3072], file[256], path[4096];
    (void)snprintf(file, sizeof file, "lib%s.so.%d.%d", name, RESHARD_VERSION_MAJOR,
                   RESHARD_VERSION_MINOR);
    int known = cli_program_folder(folder, sizeof folder) == 0;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && known; i++) {
        (void)snprintf(path, sizeof path, "%s/%s%s", folder, places[i], file);
        if (access(path, F_OK) == 0)
            return open_path(path);
    }
    return open_path(file);
}

void *cli_library_find(void *library, const char *name)
{
    return dlsym(library, name);
}

int cli_library_can_open(void)
{
    return 1;
}

const char *cli_library_error(void)
{
    return problem;
}
