/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folders.h - folders that measurements create and remove. Calls that return an int return
 * CLI_DONE, or print a message and return another code.
 */
#ifndef BENCH_FOLDERS_H
#define BENCH_FOLDERS_H

#include <stdint.h>

/* The prefix followed by the text. The caller frees it. */
char *bench_path_add(const char *prefix, const char *text);
/* Makes a new folder inside `inside` that only this user may enter. The caller frees the path. */
int bench_folder_make_private(const char *inside, char **out_path);
/* Removes the folder and everything in it. Succeeds if it does not exist. */
int bench_folder_remove(const char *path);
/* Syncs the folder's files and their names to disk. */
int bench_folder_sync(const char *path);

typedef struct bench_folder_facts {
    uint64_t bytes;            /* of all files */
    uint64_t header_bytes_max; /* the longest header of a safetensors file */
} bench_folder_facts;
/* A path that is one file is examined as such. */
int bench_folder_examine(const char *path, bench_folder_facts *out_facts);

#endif
