/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert_case.h - a small model to convert, in a folder of its own, and system calls that fail,
 * come short or kill the process the n-th time.
 */
#ifndef TESTS_CHECKPOINT_CONVERT_CONVERT_CASE_H
#define TESTS_CHECKPOINT_CONVERT_CONVERT_CASE_H

#include "system/file.h"

#include <reshard/conversion.h>

#include <stdatomic.h>

typedef struct convert_case {
    char folder[64], source[96], expected[96], target[96], partial[112], rules[96];
    uint64_t source_bytes[2];
    int64_t source_changed[2]; /* model.safetensors and config.json */
} convert_case;

/* Tensors a to f of f32[600,200] in one file; rules cut a and d by rows, b and e by columns. For
 * cmocka's set-up and tear-down; the latter takes away the outputs too. */
int convert_case_begin(convert_case *c);
int convert_case_end(convert_case *c);

/* Is target what expected is: a file of the same bytes, or a folder of the same names and bytes? */
bool convert_case_is_whole(const convert_case *c);
/* Is the source as it was made? */
bool convert_case_source_is_same(const convert_case *c);
bool convert_case_exists(const char *path);
bool convert_case_is_file(const char *path);
/* Removes target and target.partial. */
void convert_case_remove(const convert_case *c);

typedef struct convert_faults {
    atomic_int countdown; /* the call that brings it to 0 fails */
    int error;
    int kills;         /* the process dies there instead, in the middle of a write */
    size_t most;       /* bytes of one call; 0: no limit */
    int no_copy;       /* the kernel copies nothing; 2: it stops at every other call */
    atomic_int copies; /* of a tensor, that it was asked for */
} convert_faults;

/* Calls that behave as `faults` says; sync is not waited for. */
rs_file_calls convert_faults_calls(convert_faults *faults);

#endif
