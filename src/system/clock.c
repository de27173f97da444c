/* SPDX-License-Identifier: Apache-2.0 */
#include "system/clock.h"

#include "base/digest.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

uint64_t rs_clock_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void rs_clock_identity(uint64_t out_identity[2])
{
    char boot[64], name[64];
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t boot_bytes = file >= 0 ? read(file, boot, sizeof boot) : -1;
    if (file >= 0)
        (void)close(file);
    out_identity[0] = out_identity[1] = 0;
    if (boot_bytes <= 0)
        return;
    /* Kernels without time namespaces do not have this link, and have only one clock. */
    ssize_t name_bytes = readlink("/proc/self/ns/time", name, sizeof name);
    rs_digest digest;
    rs_digest_init(&digest);
    rs_digest_bytes(&digest, boot, (size_t)boot_bytes);
    rs_digest_bytes(&digest, name, name_bytes > 0 ? (size_t)name_bytes : 0);
    rs_digest_finish(&digest, out_identity);
}
