/* SPDX-License-Identifier: Apache-2.0 */
/* replace.c - looks at the beginning of a file that is about to be replaced. */
#include "cli/common/replace.h"

#include "cli/common/failure.h"
#include "cli/common/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cli_replace_check(const char *path, const char *beginning, const char *kind)
{
    FILE *file = fopen(path, "r");
    if (file == NULL && errno == ENOENT)
        return CLI_DONE;
    size_t wanted = strlen(beginning), count = 0;
    char *found = cli_allocate(wanted, 1);
    if (file != NULL)
        count = fread(found, 1, wanted, file);
    int why = file == NULL || ferror(file) ? errno : 0;
    int is_ours = count == 0 || (count == wanted && memcmp(found, beginning, wanted) == 0);
    if (file != NULL)
        (void)fclose(file);
    free(found);
    if (why != 0)
        return cli_fail(CLI_FAILED, "%s cannot be read: %s; it is left alone", path, strerror(why));
    if (!is_ours)
        return cli_fail(CLI_USAGE, "%s exists and is not %s; it is left alone", path, kind);
    return CLI_DONE;
}
