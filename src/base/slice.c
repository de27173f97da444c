/* SPDX-License-Identifier: Apache-2.0 */
#include "base/slice.h"

#include <string.h>

rs_slice rs_slice_of(const char *text)
{
    return (rs_slice){text, strlen(text)};
}

bool rs_slice_equals(rs_slice slice, const char *text)
{
    return rs_slice_compare(slice, rs_slice_of(text)) == 0;
}

bool rs_slice_begins(rs_slice slice, const char *text)
{
    size_t count = strlen(text);
    return slice.count >= count && rs_slice_equals((rs_slice){slice.bytes, count}, text);
}

bool rs_slice_ends(rs_slice slice, const char *text)
{
    size_t count = strlen(text);
    return slice.count >= count &&
           rs_slice_equals((rs_slice){slice.bytes + slice.count - count, count}, text);
}

int rs_slice_compare(rs_slice a, rs_slice b)
{
    size_t count = a.count < b.count ? a.count : b.count;
    int order = count != 0 && a.bytes != b.bytes ? memcmp(a.bytes, b.bytes, count) : 0;
    return order != 0 ? order : (a.count > b.count) - (a.count < b.count);
}

bool rs_slice_is_marked(rs_slice slice)
{
    return rs_slice_begins(slice, "\xef\xbb\xbf");
}

rs_slice rs_slice_unmarked(const char *text, size_t bytes)
{
    size_t mark = rs_slice_is_marked((rs_slice){text, bytes}) ? 3 : 0;
    return (rs_slice){text + mark, bytes - mark};
}

int rs_compare_slices(const void *a, const void *b)
{
    return rs_slice_compare(*(const rs_slice *)a, *(const rs_slice *)b);
}

int rs_slice_shown(rs_slice slice)
{
    return slice.count < 200 ? (int)slice.count : 200;
}
