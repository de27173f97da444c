/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folders.h - folders that measurements make and take away again. Calls that return an int return
 * CLI_DONE, or another code after a message.
 */
#ifndef BENCH_FOLDERS_H
#define BENCH_FOLDERS_H

#include <stdint.h>

/* prefix followed by the other text; to be freed. */
char *bench_path_add(const char *prefix, const char *text);
/* A new folder inside this one, for this user alone; the path is to be freed. */
int bench_folder_make_private(const char *inside, char **out_path);
/* With all that is in it. Fine when it does not exist. */
int bench_folder_remove(const char *path);
/* Makes its files last, and their names. */
int bench_folder_sync(const char *path);

typedef struct bench_folder_facts {
    uint64_t bytes;            /* of all files */
    uint64_t header_bytes_max; /* the longest header of a safetensors file */
} bench_folder_facts;
int bench_folder_examine(const char *path, bench_folder_facts *out_facts);

#endif
