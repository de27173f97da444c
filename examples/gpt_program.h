/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt_program.h - what 09_train_gpt.c needs besides reshard: its options, the text to learn, and a
 * folder for the checkpoint.
 */
#ifndef GPT_PROGRAM_H
#define GPT_PROGRAM_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct settings {
    int64_t ranks, then, steps, layers, width, heads, batch, length;
    int64_t sequence; /* 2: activations between attention and mlp are cut along the sequence */
    const char *text;
    size_t text_bytes;
    char *text_read;    /* the text of a file, freed at the end; or NULL */
    const char *folder; /* of the checkpoint */
    char temporary[64]; /* the folder around it, if --save was not given; or "" */
    char temporary_folder[80];
} settings;

static const char built_in[] =
    "A mesh names axes over ranks. A spec says what each axis does to a tensor. With a shape it "
    "becomes a layout, which knows who owns which box. Two layouts make a plan, a plan meets a "
    "group and moves bytes. What is replicated need not be kept by all: a chunk will do, until "
    "somebody asks for the whole of it again. ";

/* Returns 0 if a word is not an option, or a number is not positive. */
static inline int read_options(int count, char **words, settings *set, const char **out_text)
{
    struct {
        const char *name;
        int64_t *value;
    } options[] = {
        {"--ranks", &set->ranks},   {"--then", &set->then},     {"--steps", &set->steps},
        {"--layers", &set->layers}, {"--width", &set->width},   {"--heads", &set->heads},
        {"--batch", &set->batch},   {"--length", &set->length}, {"--sequence", &set->sequence}};
    for (int i = 1; i + 1 < count; i += 2) {
        size_t k = 0, n = sizeof options / sizeof *options;
        while (k < n && strcmp(options[k].name, words[i]) != 0)
            k++;
        if (k < n)
            *options[k].value = strtoll(words[i + 1], NULL, 10);
        else if (strcmp(words[i], "--text") == 0)
            *out_text = words[i + 1];
        else if (strcmp(words[i], "--save") == 0)
            set->folder = words[i + 1];
        else
            return 0;
        if (k < n && *options[k].value < 1)
            return 0;
    }
    return count % 2 == 1;
}

static inline int read_text(const char *path, settings *set)
{
    FILE *file = fopen(path, "rb");
    long bytes = 0;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0 && (bytes = ftell(file)) > 0 &&
        fseek(file, 0, SEEK_SET) == 0 && (set->text_read = malloc((size_t)bytes)) != NULL)
        set->text_bytes = fread(set->text_read, 1, (size_t)bytes, file);
    if (file != NULL)
        fclose(file);
    set->text = set->text_read;
    return set->text != NULL && set->text_bytes > 0;
}

/* Without --save, the checkpoint is in a temporary folder, which is removed at the end. */
static inline int make_folder(settings *set)
{
    if (set->folder != NULL)
        return access(set->folder, F_OK) != 0;
    (void)snprintf(set->temporary, sizeof set->temporary, "/tmp/reshard-gpt-XXXXXX");
    if (mkdtemp(set->temporary) == NULL) {
        set->temporary[0] = '\0';
        return 0;
    }
    (void)snprintf(set->temporary_folder, sizeof set->temporary_folder, "%s/checkpoint",
                   set->temporary);
    set->folder = set->temporary_folder;
    return 1;
}

/* Removes a folder and the files in it. */
static inline void remove_folder(const char *folder)
{
    char path[512];
    DIR *list = opendir(folder);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        (void)unlink(path);
    }
    if (list != NULL)
        (void)closedir(list);
    (void)rmdir(folder);
}

/* Settings from the command line; returns the exit code if there is nothing to run, or -1. */
static inline int begin_program(int count, char **words, settings *set)
{
    const char *path = NULL;
    *set = (settings){.ranks = 2,
                      .then = 4,
                      .steps = 2,
                      .layers = 12,
                      .width = 256,
                      .heads = 8,
                      .batch = 8,
                      .length = 64,
                      .text = built_in,
                      .text_bytes = sizeof built_in - 1};
    if (!read_options(count, words, set, &path)) {
        fprintf(stderr, "usage: 09_train_gpt [--text FILE] [--save DIR] [--ranks N] [--then M] "
                        "[--steps S] [--layers L] [--width W] [--heads H] [--batch B] "
                        "[--length T] [--sequence 2]\n");
        return 2;
    }
    if (path != NULL && !read_text(path, set)) {
        fprintf(stderr, "09_train_gpt: %s cannot be read, or is empty\n", path);
        free(set->text_read);
        return 1;
    }
    if (!make_folder(set)) {
        fprintf(stderr, "09_train_gpt: %s exists already, or cannot be made\n",
                set->folder != NULL ? set->folder : "a temporary folder");
        free(set->text_read);
        return 1;
    }
    return -1;
}

static inline void end_program(settings *set)
{
    if (set->temporary[0] != '\0') {
        remove_folder(set->folder);
        remove_folder(set->temporary);
        printf("%s is removed again; with --save DIR it stays\n", set->folder);
    }
    free(set->text_read);
}

#endif
