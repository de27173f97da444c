/* SPDX-License-Identifier: Apache-2.0 */
/* modules.h - small modules with a forward function of the test's own. */
#ifndef TESTS_NN_MODULES_H
#define TESTS_NN_MODULES_H

#include "tests/nn/meshes.h"

static inline reshard_module *
make_module(const char *name, reshard_value (*forward)(reshard_module *, void *, reshard_value))
{
    reshard_module_kind kind = {.name = name, .forward = forward};
    reshard_module *module = NULL;
    MUST(reshard_module_create(NULL, &kind, &module));
    return module;
}

/* Hands the reference over. */
static inline void add_child(reshard_module *module, const char *name, reshard_module *child)
{
    MUST(reshard_module_add_child(module, name, child));
    reshard_module_release(child);
}

#endif
