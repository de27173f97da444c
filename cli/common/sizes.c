/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sizes.c - reading and writing numbers and sizes.
 */
#define _POSIX_C_SOURCE 200809L
#include "cli/common/sizes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Reads digits and advances *text past them. */
static int take_digits(const char **text, uint64_t *out_number)
{
    const char *digit = *text;
    uint64_t number = 0;
    if (*digit < '0' || *digit > '9')
        return -1;
    for (; *digit >= '0' && *digit <= '9'; digit++) {
        uint64_t value = (uint64_t)(*digit - '0');
        if (number > (UINT64_MAX - value) / 10)
            return -1;
        number = number * 10 + value;
    }
    *text = digit;
    *out_number = number;
    return 0;
}

int cli_number_parse(const char *text, uint64_t max, uint64_t *out_number)
{
    uint64_t number = 0;
    if (take_digits(&text, &number) != 0 || *text != '\0' || number > max)
        return -1;
    *out_number = number;
    return 0;
}

/* The bytes of a unit, or 0 if there is no such unit. */
static uint64_t unit_bytes(const char *unit)
{
    static const char letters[] = "kmgt";
    if (unit[0] == '\0' || strcasecmp(unit, "b") == 0)
        return 1;
    char lower[2] = {(char)(unit[0] | 0x20), '\0'};
    const char *letter = strchr(letters, lower[0]);
    uint64_t base = 0;
    if (unit[1] == '\0' || strcasecmp(unit + 1, "ib") == 0)
        base = 1024;
    else if (strcasecmp(unit + 1, "b") == 0)
        base = 1000;
    if (letter == NULL || base == 0)
        return 0;
    uint64_t bytes = 1;
    for (const char *power = letters; power <= letter; power++)
        bytes *= base;
    return bytes;
}

int cli_size_parse(const char *text, size_t *out_bytes)
{
    uint64_t number = 0;
    if (take_digits(&text, &number) != 0)
        return -1;
    uint64_t unit = unit_bytes(text);
    if (unit == 0 || number > SIZE_MAX / unit)
        return -1;
    *out_bytes = (size_t)(number * unit);
    return 0;
}

const char *cli_size_text(uint64_t bytes, char buffer[CLI_SIZE_TEXT])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(buffer, CLI_SIZE_TEXT, "%" PRIu64 " B", bytes);
        return buffer;
    }
    double scaled = (double)bytes / 1024;
    size_t unit = 0;
    while (scaled >= 1023.95 && unit + 1 < sizeof units / sizeof units[0]) {
        scaled /= 1024;
        unit++;
    }
    char digits[16];
    snprintf(digits, sizeof digits, "%.1f", scaled);
    size_t length = strlen(digits);
    if (strcmp(digits + length - 2, ".0") == 0)
        digits[length - 2] = '\0';
    snprintf(buffer, CLI_SIZE_TEXT, "%s %s", digits, units[unit]);
    return buffer;
}

const char *cli_count_text(uint64_t count, char buffer[CLI_SIZE_TEXT])
{
    static const char *const words[] = {"million", "billion", "trillion", "quadrillion"};
    double shown = (double)count / 1e6;
    int word = 0;
    if (count < 1000000) {
        (void)snprintf(buffer, CLI_SIZE_TEXT, "%" PRIu64, count);
        return buffer;
    }
    for (; word < 3 && shown >= 999.5; word++)
        shown /= 1000;
    int digits = shown < 9.995 ? 2 : shown < 99.95 ? 1 : 0;
    (void)snprintf(buffer, CLI_SIZE_TEXT, "%.*f %s", digits, shown, words[word]);
    return buffer;
}
