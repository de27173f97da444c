/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec_case.h - what the tests of this folder do again and again: parse, print, expect an error.
 */
#ifndef TESTS_SPEC_SPEC_CASE_H
#define TESTS_SPEC_SPEC_CASE_H

#include "tests/support/check.h"

#include <reshard/spec.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The canonical text, to be freed. */
static inline char *spec_case_text(const reshard_spec *spec)
{
    size_t length = 0;
    size_t again = 0;
    assert_int_equal(reshard_spec_text(spec, NULL, 0, &length), RESHARD_OK);
    char *text = malloc(length + 1);
    assert_non_null(text);
    assert_int_equal(reshard_spec_text(spec, text, length + 1, &again), RESHARD_OK);
    assert_int_equal(again, length);
    assert_int_equal(strlen(text), length);
    return text;
}

/* A copy in a block of its own size, so that a sanitizer sees reads beyond it. */
static inline char *spec_case_copy(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    assert_non_null(copy);
    return memcpy(copy, text, bytes);
}

/* Parses what must parse. */
static inline reshard_spec *spec_case_parse(const char *text)
{
    reshard_spec *spec = NULL;
    char *copy = spec_case_copy(text);
    reshard_status status = reshard_spec_parse(NULL, copy, &spec);
    free(copy);
    if (status != RESHARD_OK)
        fail_msg("\"%.200s\" does not parse: %s", text, reshard_error_text());
    return spec;
}

/* The spec prints as `expected`; takes the spec's reference. */
static inline void spec_case_expect_text(reshard_spec *spec, const char *expected)
{
    char *text = spec_case_text(spec);
    reshard_spec_release(spec);
    assert_string_equal(text, expected);
    free(text);
}

/* The text parses and prints as `expected`, which stays what it is when parsed in its turn. */
static inline void spec_case_expect_canonical(const char *text, const char *expected)
{
    spec_case_expect_text(spec_case_parse(text), expected);
    spec_case_expect_text(spec_case_parse(expected), expected);
}

static inline void spec_case_expect_failure(const char *what, reshard_status status,
                                            reshard_status expected, const char *words)
{
    if (status != expected)
        fail_msg("\"%.200s\": %s, not %s: %s", what, reshard_status_name(status),
                 reshard_status_name(expected), status != RESHARD_OK ? reshard_error_text() : "");
    if (strstr(reshard_error_text(), words) == NULL)
        fail_msg("\"%.200s\": the error text lacks \"%s\": %s", what, words, reshard_error_text());
}

/* The text does not parse, the spec's pointer stays untouched, and the error has the words. */
static inline void spec_case_expect_error(const char *text, reshard_status expected,
                                          const char *words)
{
    reshard_spec *untouched = (reshard_spec *)(uintptr_t)8;
    reshard_spec *spec = untouched;
    char *copy = spec_case_copy(text);
    reshard_status status = reshard_spec_parse(NULL, copy, &spec);
    free(copy);
    if (status == RESHARD_OK)
        reshard_spec_release(spec);
    spec_case_expect_failure(text, status, expected, words);
    assert_ptr_equal(spec, untouched);
}

#endif
