/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oracle_boxes.h - the part of the oracle that listed boxes need; for oracle.c.
 */
#ifndef TESTS_SUPPORT_ORACLE_BOXES_H
#define TESTS_SUPPORT_ORACLE_BOXES_H

#include "tests/support/oracle.h"

/* Adds the listed shards, in the order of the list; says why not when they do not tile, or cover,
 * the tensor. */
const char *oracle_add_listed(const oracle_spec *spec, oracle_layout *layout);

#endif
