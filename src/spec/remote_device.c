/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_device.c - PyTorch's remote device strings: "owner/device", an owner alone, or a device
 * alone.
 *
 * The checks are made in PyTorch's order, because it decides which error a wrong text gives: split
 * at "/", empty owner, device, and only then the form of the owner. Text without "/" is a device if
 * the device parser accepts it, otherwise an owner on cpu: "cuda:foo" is an owner, and an invalid
 * one. Differences from PyTorch: a rank's digits are ASCII only (PyTorch accepts Unicode digits),
 * ranks and device indices are at most 2^31-1, and worker names have at most RESHARD_WORKER_MAX
 * bytes.
 */
#include "spec/scan.h"

#include <reshard/pytorch.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const device_types[] = {
    "cpu",    "cuda",   "meta",  "xpu", "mps", "hpu",  "xla",  "privateuseone", "ipu",    "mkldnn",
    "opengl", "opencl", "ideep", "hip", "ve",  "fpga", "maia", "lazy",          "vulkan", "mtia",
};

static bool is_device_type(rs_slice type)
{
    for (size_t i = 0; i < sizeof device_types / sizeof *device_types; i++) {
        if (rs_slice_equals(type, device_types[i]))
            return true;
    }
    return false;
}

/* Reads one or more ASCII digits with a value up to INT32_MAX. If there are only digits but the
 * value is larger, returns false with *out_digits set. */
static bool read_number(rs_slice slice, bool *out_digits, int32_t *out_number)
{
    int64_t number = 0;
    bool fits = true;
    *out_digits = slice.count > 0;
    for (size_t i = 0; i < slice.count; i++) {
        char c = slice.bytes[i];
        if (c < '0' || c > '9') {
            *out_digits = false;
            return false;
        }
        number = fits ? number * 10 + (c - '0') : number;
        fits = number <= INT32_MAX;
    }
    if (!*out_digits || !fits)
        return false;
    *out_number = (int32_t)number;
    return true;
}

/* Splits a slice at the first `c` into what is before and what is after it; returns false if there
 * is no `c`. */
static bool split(rs_slice slice, char c, rs_slice *out_head, rs_slice *out_tail)
{
    const char *found = slice.count > 0 ? memchr(slice.bytes, c, slice.count) : NULL;
    if (found == NULL)
        return false;
    size_t length = (size_t)(found - slice.bytes);
    *out_head = (rs_slice){slice.bytes, length};
    *out_tail = (rs_slice){found + 1, slice.count - length - 1};
    return true;
}

/* Reads a type, or type ":" index, where the index has no leading zeros. */
static bool read_device(rs_slice text, reshard_remote_device *device)
{
    rs_slice type = text;
    rs_slice index;
    bool digits;
    int32_t number = -1;
    if (split(text, ':', &type, &index)) {
        if (!read_number(index, &digits, &number) || (index.count > 1 && index.bytes[0] == '0'))
            return false;
    }
    if (!is_device_type(type))
        return false;
    memcpy(device->device, type.bytes, type.count);
    device->device[type.count] = '\0';
    device->device_index = number;
    return true;
}

static reshard_status read_owner(rs_slice owner, const char *quoted, reshard_remote_device *device)
{
    rs_slice head, tail;
    if (split(owner, ':', &head, &tail)) {
        bool digits;
        bool fits = read_number(tail, &digits, &device->rank);
        if (!rs_slice_equals(head, "rank") || !digits)
            return rs_fail(RESHARD_ERR_INVALID,
                           "remote device \"%s\": the owner is neither rank:N nor a worker name",
                           quoted);
        if (!fits)
            return rs_fail(RESHARD_ERR_RANGE, "remote device \"%s\": the rank is beyond 2^31-1",
                           quoted);
        return RESHARD_OK;
    }
    if (owner.count > RESHARD_WORKER_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "remote device \"%s\": a worker name of %zu bytes, where %d are possible",
                       quoted, owner.count, RESHARD_WORKER_MAX);
    memcpy(device->worker, owner.bytes, owner.count);
    device->worker[owner.count] = '\0';
    return RESHARD_OK;
}

reshard_status reshard_remote_device_parse(const char *text, reshard_remote_device *out_device)
{
    if (text == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the remote device is NULL");
    rs_slice whole = {text, strlen(text)};
    rs_excerpt quoted = rs_excerpt_of(whole.bytes, whole.count);
    rs_slice owner = whole;
    rs_slice place = {"cpu", 3};
    rs_slice head, tail;
    reshard_remote_device device;
    memset(&device, 0, sizeof device);
    device.rank = -1;
    device.device_index = -1;
    if (split(whole, '/', &owner, &place)) {
        if (split(place, '/', &head, &tail))
            return rs_fail(RESHARD_ERR_INVALID, "remote device \"%s\": more than one \"/\"",
                           quoted.text);
    } else if (read_device(whole, &device)) {
        *out_device = device;
        return RESHARD_OK;
    }
    if (owner.count == 0)
        return rs_fail(RESHARD_ERR_INVALID, "remote device \"%s\": the owner is empty",
                       quoted.text);
    if (!read_device(place, &device))
        return rs_fail(RESHARD_ERR_SYNTAX, "remote device \"%s\": \"%s\" is not a device",
                       quoted.text, rs_excerpt_of(place.bytes, place.count).text);
    reshard_status status = read_owner(owner, quoted.text, &device);
    if (status == RESHARD_OK)
        *out_device = device;
    return status;
}

void reshard_remote_device_text(const reshard_remote_device *device, char *buffer, size_t capacity)
{
    char owner[RESHARD_WORKER_MAX + 2] = "";
    char index[16] = "";
    if (device->worker[0] != '\0')
        (void)snprintf(owner, sizeof owner, "%s/", device->worker);
    else if (device->rank >= 0)
        (void)snprintf(owner, sizeof owner, "rank:%" PRId32 "/", device->rank);
    if (device->device_index >= 0)
        (void)snprintf(index, sizeof index, ":%" PRId32, device->device_index);
    (void)snprintf(buffer, capacity, "%s%s%s", owner, device->device, index);
}
