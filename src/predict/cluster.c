/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cluster.c - parses the text of a cluster, such as "nodes=2,per_node=8,nic=50GB/s,latency=5us".
 * One table lists the names and the kind of each value.
 */
#include <reshard/predict.h>

#include "base/error.h"
#include "base/options.h"
#include "text/decimal.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { VALUE_MAX_BYTES = 48 };
static const double counts_max = 16777216; /* the most nodes, or ranks per node */

typedef enum kind { COUNT, SPEED, TIME } kind;

static const struct field {
    const char *name;
    kind kind;
    size_t at;
} fields[] = {
    {"nodes", COUNT, offsetof(reshard_cluster, nodes)},
    {"per_node", COUNT, offsetof(reshard_cluster, per_node)},
    {"nic", SPEED, offsetof(reshard_cluster, nic)},
    {"intra", SPEED, offsetof(reshard_cluster, intra)},
    {"memory", SPEED, offsetof(reshard_cluster, memory)},
    {"scattered", SPEED, offsetof(reshard_cluster, scattered)},
    {"latency", TIME, offsetof(reshard_cluster, latency)},
    {"read", SPEED, offsetof(reshard_cluster, read)},
    {"write", SPEED, offsetof(reshard_cluster, write)},
    {"copy", SPEED, offsetof(reshard_cluster, copy)},
    {"cast", SPEED, offsetof(reshard_cluster, cast)},
};
enum { FIELD_COUNT = sizeof fields / sizeof fields[0] };

static const struct unit {
    const char *name;
    kind kind;
    double factor;
} units[] = {
    {"", COUNT, 1},
    {"B/s", SPEED, 1},
    {"KB/s", SPEED, 1e3},
    {"MB/s", SPEED, 1e6},
    {"GB/s", SPEED, 1e9},
    {"TB/s", SPEED, 1e12},
    {"KiB/s", SPEED, 1024.0},
    {"MiB/s", SPEED, 1048576.0},
    {"GiB/s", SPEED, 1073741824.0},
    {"TiB/s", SPEED, 1099511627776.0},
    {"s", TIME, 1},
    {"ms", TIME, 1e-3},
    {"us", TIME, 1e-6},
    {"ns", TIME, 1e-9},
};

static const char *const examples[] = {
    [COUNT] = "a whole number from 1 on", [SPEED] = "50GB/s", [TIME] = "5us"};

static const struct field *find_field(const char *name, size_t bytes)
{
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (strlen(fields[i].name) == bytes && memcmp(fields[i].name, name, bytes) == 0)
            return &fields[i];
    }
    return NULL;
}

/* Parses a number and a unit. The checks before it refuse what rs_parse_double would accept as
 * well: " 1", "0x1" and "nan". */
static bool read_value(const char *text, kind wanted, double *out_value)
{
    char *end = NULL;
    if (text[0] < '0' || text[0] > '9' || (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')))
        return false;
    double number = rs_parse_double(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (units[i].kind == wanted && strcmp(units[i].name, end) == 0) {
            *out_value = number * units[i].factor;
            return isfinite(*out_value) != 0;
        }
    }
    return false;
}

static reshard_status store(const struct field *field, const char *text, reshard_cluster *cluster)
{
    double value = 0;
    if (!read_value(text, field->kind, &value))
        return rs_fail(RESHARD_ERR_SYNTAX, "cluster: %s=%s; it takes %s", field->name, text,
                       examples[field->kind]);
    bool is_count = field->kind == COUNT;
    if ((is_count && (value < 1 || value > counts_max || value != floor(value))) ||
        (field->kind == SPEED && value <= 0))
        return rs_fail(RESHARD_ERR_RANGE, "cluster: %s=%s is out of range", field->name, text);
    unsigned char *place = (unsigned char *)cluster + field->at;
    int32_t whole = is_count ? (int32_t)value : 0;
    if (is_count)
        memcpy(place, &whole, sizeof whole);
    else
        memcpy(place, &value, sizeof value);
    return RESHARD_OK;
}

static reshard_status read_field(const char *text, size_t bytes, unsigned *seen,
                                 reshard_cluster *cluster)
{
    char value[VALUE_MAX_BYTES];
    const char *equals = memchr(text, '=', bytes);
    size_t name_bytes = equals == NULL ? bytes : (size_t)(equals - text);
    int shown = (int)(bytes < VALUE_MAX_BYTES ? bytes : VALUE_MAX_BYTES);
    const struct field *field = find_field(text, name_bytes);
    if (field == NULL)
        return rs_fail(
            RESHARD_ERR_SYNTAX,
            "cluster: \"%.*s\"; there are nodes, per_node, nic, intra, memory, scattered, "
            "latency, read, write, copy and cast, as in nodes=2,nic=50GB/s",
            shown, text);
    size_t value_bytes = equals == NULL ? 0 : bytes - name_bytes - 1;
    if (value_bytes == 0 || value_bytes >= VALUE_MAX_BYTES)
        return rs_fail(RESHARD_ERR_SYNTAX, "cluster: \"%.*s\"; it takes %s", shown, text,
                       examples[field->kind]);
    if (*seen & 1u << (field - fields))
        return rs_fail(RESHARD_ERR_SYNTAX, "cluster: %s is there twice", field->name);
    *seen |= 1u << (field - fields);
    memcpy(value, equals + 1, value_bytes);
    value[value_bytes] = '\0';
    return store(field, value, cluster);
}

reshard_status reshard_cluster_parse(const char *text, reshard_cluster *out_cluster)
{
    reshard_cluster cluster = {.size = sizeof cluster};
    unsigned seen = 0;
    for (const char *at = text;; at++) {
        size_t bytes = strcspn(at, ",");
        reshard_status status = read_field(at, bytes, &seen, &cluster);
        if (status != RESHARD_OK)
            return status;
        at += bytes;
        if (*at == '\0')
            break;
    }
    return rs_report_write("cluster", &cluster, sizeof cluster, out_cluster);
}
