/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/copying.h"

#include <sys/types.h>
#include <unistd.h>

int64_t copying_call(int source, uint64_t source_at, int target, uint64_t target_at, size_t count)
{
    char bytes[1 << 16];
    size_t done = 0;
    while (done < count) {
        size_t asked = count - done < sizeof bytes ? count - done : sizeof bytes;
        ssize_t part = pread(source, bytes, asked, (off_t)(source_at + done));
        if (part > 0)
            part = pwrite(target, bytes, (size_t)part, (off_t)(target_at + done));
        if (part < 0)
            return part;
        if (part == 0)
            break; /* the end of the source */
        done += (size_t)part;
    }
    return (int64_t)done;
}
