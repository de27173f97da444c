/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - runs a fuzz target on every file of the folders that it is given, and on every prefix
 * of the short ones, without libFuzzer.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef PREFIXES_MAX
#define PREFIXES_MAX 512
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* From a copy of exactly that size, so that a sanitizer sees a read beyond the end. */
static void run(const uint8_t *bytes, size_t count)
{
    uint8_t *copy = malloc(count + (count == 0));
    if (copy == NULL)
        abort();
    memcpy(copy, bytes, count);
    (void)LLVMFuzzerTestOneInput(copy, count);
    free(copy);
}

static int replay(const char *path)
{
    static uint8_t bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return 0;
    size_t count = fread(bytes, 1, sizeof bytes, file);
    (void)fclose(file);
    for (size_t i = 0; i < count && i < PREFIXES_MAX; i++)
        run(bytes, i);
    run(bytes, count);
    return 1;
}

int main(int argc, char **argv)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (folder == NULL) {
            perror(argv[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            char path[4096];
            (void)snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            if (entry->d_name[0] != '.')
                count += replay(path);
        }
        (void)closedir(folder);
    }
    printf("%d inputs replayed\n", count);
    return count == 0;
}
