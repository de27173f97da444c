/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ran.h - what a test that restates one of PyTorch's really ran. Cases are lines of text, made of
 * the values at hand (a tensor's own dtype, shape and spec), not of the tables that they came from.
 * They go to the file that RESHARD_TEST_RAN names, and nowhere without it; tests/upstream holds
 * them against PyTorch's own sizes, dtypes and specs.
 */
#ifndef TESTS_SUPPORT_RAN_H
#define TESTS_SUPPORT_RAN_H

#include <reshard/group.h>
#include <reshard/spec.h>

enum { RAN_MAX = 400 };

/* Adds a case of the test that PyTorch calls `upstream`; nothing when that is NULL. For the main
 * thread, or one rank while the others run. */
void ran(const char *upstream, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same on rank 0 alone. */
void ran_here(const reshard_group *group, const char *upstream, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

typedef struct ran_text {
    char text[RAN_MAX];
} ran_text;
/* "4[0,1,3,2]: S(0)" */
ran_text ran_spec(const reshard_spec *spec);
/* "f32 13x21" */
ran_text ran_shape(reshard_dtype dtype, int32_t ndim, const int64_t *shape);

#endif
