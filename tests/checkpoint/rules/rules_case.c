/* SPDX-License-Identifier: Apache-2.0 */
/* rules_case.c - rules applied as text. */
#include "rules_case.h"

#include "spec/spec.h"

#include <reshard/layout.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool rules_case_find(void *user, const char *key, int64_t *out_value)
{
    const rules_case *given = user;
    size_t length = strlen(key);
    for (const char *at = given->keys; at != NULL; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, key, length) == 0 && at[length] == '=') {
            *out_value = strtoll(at + length + 1, NULL, 10);
            return true;
        }
    }
    return false;
}

const char *rules_case_find_text(void *user, const char *key)
{
    static char text[64];
    const rules_case *given = user;
    size_t length = strlen(key);
    for (const char *at = given->keys; at != NULL; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, key, length) == 0 && at[length] == '=') {
            (void)snprintf(text, sizeof text, "%.*s", (int)strcspn(at + length + 1, " "),
                           at + length + 1);
            return text;
        }
    }
    return NULL;
}

reshard_mesh *rules_case_mesh(const char *text)
{
    char buffer[256];
    reshard_spec *spec = NULL;
    int axes = 1;
    for (const char *at = text; *at != '\0' && *at != '['; at++)
        axes += *at == ',';
    int length = snprintf(buffer, sizeof buffer, "%s: R", text);
    while (--axes > 0)
        length += snprintf(buffer + length, sizeof buffer - (size_t)length, ",R");
    if (reshard_spec_parse(NULL, buffer, &spec) != RESHARD_OK) {
        fprintf(stderr, "%s\n", reshard_error_text());
        return NULL;
    }
    reshard_mesh *mesh = reshard_mesh_retain(spec->mesh);
    reshard_spec_release(spec);
    return mesh;
}

static void write_result(const rs_rule_result *result, char *buffer, size_t capacity)
{
    size_t length = 0;
    if (result->drop) {
        snprintf(buffer, capacity, "drop");
        return;
    }
    if (reshard_spec_text(result->spec, buffer, capacity, &length) != RESHARD_OK)
        length = (size_t)snprintf(buffer, capacity, "%s", reshard_error_text());
    if (result->padded)
        length += (size_t)snprintf(buffer + length, capacity - length, " padded");
    for (int32_t d = 0; result->padded && d < result->ndim; d++)
        length += (size_t)snprintf(buffer + length, capacity - length, d == 0 ? " %lld" : "x%lld",
                                   (long long)result->padded_shape[d]);
    if (result->new_name != NULL)
        snprintf(buffer + length, capacity - length, " name %s", result->new_name);
}

void rules_case_text(const rs_rules *rules, const rules_case *given, char *buffer, size_t capacity)
{
    rs_rules_keys keys = {rules_case_find, (void *)(uintptr_t)given, rules_case_find_text};
    int64_t shape[RESHARD_NDIM_MAX];
    int32_t ndim = 0;
    rs_rule_result result;
    reshard_mesh *mesh = rules_case_mesh(given->mesh);
    reshard_status status =
        mesh != NULL ? reshard_shape_parse(given->shape, &ndim, shape) : RESHARD_ERR_INVALID;
    if (status == RESHARD_OK)
        status = rs_rules_check_mesh(rules, mesh);
    if (status == RESHARD_OK)
        status = rs_rules_apply(rules, mesh, &keys, given->name, strlen(given->name), ndim, shape,
                                &result);
    if (status == RESHARD_OK) {
        write_result(&result, buffer, capacity);
        rs_rule_result_release(&result);
    } else {
        snprintf(buffer, capacity, "%s", reshard_error_text());
    }
    reshard_mesh_release(mesh);
}
