/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest user of the library: succeeds when its version is the one given as the argument. */
#include <reshard/reshard.h>

#include <stdio.h>
#include <string.h>

int main(int argument_count, char **arguments)
{
    reshard_context *context = NULL;
    if (reshard_context_create(NULL, &context) != RESHARD_OK) {
        fprintf(stderr, "%s\n", reshard_error_text());
        return 1;
    }
    reshard_context_destroy(context);
    if (argument_count != 2 || strcmp(arguments[1], reshard_version()) != 0) {
        fprintf(stderr, "the library says it is version %s\n", reshard_version());
        return 1;
    }
    return 0;
}
