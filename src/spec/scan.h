/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan.h - a cursor over text, for the small grammars of this folder. Spaces, tabs and line ends
 * between tokens are skipped. Every error names the text and the byte, counted from 1, where it
 * went wrong.
 */
#ifndef RS_SPEC_SCAN_H
#define RS_SPEC_SCAN_H

#include "base/error.h"
#include "base/slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rs_scan {
    const char *what; /* the kind of text, such as "spec"; every error text begins with it */
    const char *text;
    size_t length;
    size_t position; /* index of the next byte */
} rs_scan;

/* Text as it is quoted in errors: printable, on one line, cut off with an ellipsis if it is
 * long. */
#define RS_EXCERPT_BYTES 64
typedef struct rs_excerpt {
    char text[RS_EXCERPT_BYTES];
} rs_excerpt;
rs_excerpt rs_excerpt_of(const char *text, size_t length);

/* Starts at the first byte. Errors: SYNTAX if the text is empty or NULL. */
reshard_status rs_scan_init(rs_scan *scan, const char *what, const char *text);

/* Fails with an error text that names a position. */
reshard_status rs_scan_fail(const rs_scan *scan, size_t position, reshard_status status,
                            const char *format, ...) RS_PRINTF(4, 5);
/* Puts the text and a position in front of an error text set elsewhere. */
reshard_status rs_scan_fail_within(const rs_scan *scan, size_t position, reshard_status status);
/* Fails at the next token: "expected <expected>, found <token>". */
reshard_status rs_scan_expected(rs_scan *scan, const char *expected);

/* Skips spaces and returns the next byte without taking it, or -1 at the end. */
int rs_scan_peek(rs_scan *scan);
/* Skips spaces and returns the position of the next byte. */
size_t rs_scan_here(rs_scan *scan);
/* Takes the next byte if it is c. */
bool rs_scan_accept(rs_scan *scan, char c);
reshard_status rs_scan_expect(rs_scan *scan, char c);
/* Takes ".." if it comes next. */
bool rs_scan_accept_dots(rs_scan *scan);
bool rs_scan_at_digit(rs_scan *scan);
bool rs_scan_at_letter(rs_scan *scan);
/* Takes a decimal number. Errors: SYNTAX; RANGE if it exceeds int64_t. */
reshard_status rs_scan_number(rs_scan *scan, int64_t *out_number);
/* Takes a word, [A-Za-z_][A-Za-z0-9_]*; it is empty if the next byte is no letter. */
rs_slice rs_scan_word(rs_scan *scan);
/* Takes [A-Za-z_]*. */
rs_slice rs_scan_letters(rs_scan *scan);

/* Takes a shape: "scalar", or n { "x" n }. Errors: SYNTAX, RANGE. */
reshard_status rs_scan_shape(rs_scan *scan, int32_t *out_ndim, int64_t *out_shape);

#endif
