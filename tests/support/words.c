/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words.c - see words.h.
 */
#include "tests/support/words.h"

#include <stdarg.h>
#include <stdio.h>

bool words_say(words *said, const char *format, ...)
{
    if (said->text[0] == '\0') {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(said->text, sizeof said->text, format, arguments);
        va_end(arguments);
    }
    return false;
}
