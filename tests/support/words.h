/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words.h - what a check has to say when it fails. Checks return false and fill in words instead of
 * failing at once, so that the same check can serve to shrink a case before it is reported.
 */
#ifndef TESTS_SUPPORT_WORDS_H
#define TESTS_SUPPORT_WORDS_H

#include <stdbool.h>

typedef struct words {
    char text[2048];
} words;

/* Keeps the first thing said, and gives false for the convenience of `return`. */
bool words_say(words *said, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
