/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/copying.h"

#include <sys/types.h>
#include <unistd.h>

int64_t copying_call(int source, uint64_t source_at, int target, uint64_t target_at, size_t count)
{
    char bytes[1 << 16];
    size_t asked = count < sizeof bytes ? count : sizeof bytes;
    ssize_t done = pread(source, bytes, asked, (off_t)source_at);
    return done <= 0 ? done : pwrite(target, bytes, (size_t)done, (off_t)target_at);
}
