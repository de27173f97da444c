/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - cmocka with the headers that it wants before itself. A failing assertion leaves its
 * test by longjmp, so only the main thread asserts: other threads record what they saw.
 */
#ifndef TESTS_SUPPORT_CHECK_H
#define TESTS_SUPPORT_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
