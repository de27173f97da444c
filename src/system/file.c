/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c - open files: complete reads and writes at given offsets, and ranges copied by the kernel.
 */
#define _GNU_SOURCE /* copy_file_range */

#include "system/file.h"

#include "base/context.h"
#include "base/error.h"
#include "system/behind.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#endif

/* The most bytes requested from one system call; Linux stops a little below 2^31 anyway. */
#define CALL_BYTES_MAX ((size_t)1 << 30)
/* Writes are shorter. Linux sizes the folios of its page cache by the write, and one of 2 MiB takes
 * a whole free block of memory: exactly what a hypervisor takes back from its guests (free page
 * reporting), so that every page of it faults in the host. docs/benchmarks.md has the cost. */
#define WRITE_BYTES_MAX ((size_t)1 << 20)
/* a multiple of the block size of any file system that can share blocks */
#define SHARED_BYTES 4096
/* How often a reservation of disk space that signals interrupt is tried again. */
#define RESERVE_ATTEMPTS 100

struct rs_file {
    reshard_context *context;
    const rs_file_calls *calls;
    int descriptor;        /* -1 for made files (rs_file_create_made) */
    const rs_file *origin; /* this and the next three fields are for made files only */
    const rs_file_maker *maker;
    void *user;
    uint64_t bytes;
    _Atomic(rs_behind *) behind; /* NULL: reads leave what they find in the page cache */
    char path[];
};

static int64_t system_read(void *user, int descriptor, void *bytes, size_t count, uint64_t at)
{
    (void)user;
    return pread(descriptor, bytes, count, (off_t)at);
}

static int64_t system_write(void *user, int descriptor, const void *bytes, size_t count,
                            uint64_t at)
{
    (void)user;
    return pwrite(descriptor, bytes, count, (off_t)at);
}

#if defined(__linux__) && defined(FICLONERANGE)
/* Whether the target's file system can have its server or daemon copy, so that the bytes need not
 * pass through this machine. */
static bool copies_elsewhere(int file)
{
    static const uint32_t kinds[] = {0x6969,     /* NFS */
                                     0xff534d42, /* CIFS */
                                     0xfe534d42, /* SMB 2 */
                                     0x00c36400, /* Ceph */
                                     0x65735546 /* FUSE */};
    struct statfs facts;
    if (fstatfs(file, &facts) != 0)
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if ((uint32_t)facts.f_type == kinds[i])
            return true;
    }
    return false;
}

/* Asks the kernel to clone a range that no file system can share, because it begins inside a block.
 * File systems that can share blocks call it invalid; others say that they do not support the
 * operation. */
static bool shares_blocks(int source, int target)
{
    struct file_clone_range range = {.src_fd = source, .src_offset = 1, .src_length = 1};
    return ioctl(target, FICLONERANGE, &range) != 0 && errno == EINVAL;
}

/* Whether the kernel can do better than read and write. Otherwise copy_file_range copies page by
 * page and holds the target's lock even while it reads. Our threads are faster at that, most of all
 * if the two offsets differ modulo the page size. */
static bool is_for_the_kernel(int source, uint64_t source_at, int target, uint64_t target_at)
{
    if (copies_elsewhere(target))
        return true;
    return source_at % SHARED_BYTES == target_at % SHARED_BYTES && shares_blocks(source, target);
}

static int64_t system_copy(void *user, int source, uint64_t source_at, int target,
                           uint64_t target_at, size_t count)
{
    (void)user;
    off_t from = (off_t)source_at, to = (off_t)target_at;
    if (is_for_the_kernel(source, source_at, target, target_at))
        return copy_file_range(source, &from, target, &to, count, 0);
    errno = EOPNOTSUPP;
    return -1;
}
#else
static int64_t system_copy(void *user, int source, uint64_t source_at, int target,
                           uint64_t target_at, size_t count)
{
    (void)user, (void)source, (void)source_at, (void)target, (void)target_at, (void)count;
    errno = ENOSYS;
    return -1;
}
#endif

static int system_sync(void *user, int descriptor)
{
    (void)user;
    return fsync(descriptor);
}

static const rs_file_calls system_calls = {system_read, system_write, system_copy, system_sync,
                                           NULL,        NULL,         NULL};

const rs_file_calls *rs_file_calls_system(void)
{
    return &system_calls;
}

void rs_file_calls_set(reshard_context *context, const rs_file_calls *calls)
{
    rs_context_set_calls(context, calls);
}

bool rs_file_may(reshard_context *context, const char *what, const char *path)
{
    const rs_file_calls *calls = rs_context_calls(context);
    return calls == NULL || calls->may == NULL || calls->may(calls->user, what, path) == 0;
}

void rs_file_did(reshard_context *context, const char *what, const char *path, const char *other,
                 uint64_t bytes)
{
    const rs_file_calls *calls = rs_context_calls(context);
    if (calls != NULL && calls->did != NULL)
        calls->did(calls->user, what, path, other, bytes);
}

static reshard_status fail(const char *path, const char *what)
{
    reshard_status status = errno == ENOENT   ? RESHARD_ERR_NOT_FOUND
                            : errno == ENOMEM ? RESHARD_ERR_NO_MEMORY
                                              : RESHARD_ERR_IO;
    return rs_fail_about(status, path, "%s: %s", what, strerror(errno));
}

/* Returns NULL like rs_allocate. */
static rs_file *make_file(reshard_context *context, const char *path)
{
    size_t path_bytes = strlen(path) + 1;
    rs_file *file = rs_allocate(context, sizeof *file + path_bytes);
    if (file == NULL)
        return NULL;
    *file = (rs_file){.context = context, .calls = rs_context_calls(context), .descriptor = -1};
    if (file->calls == NULL)
        file->calls = &system_calls;
    memcpy(file->path, path, path_bytes);
    return file;
}

static reshard_status open_file(reshard_context *context, const char *path, int flags,
                                rs_file **out_file)
{
    struct stat information;
    rs_file *file = make_file(context, path);
    if (file == NULL)
        return rs_allocation_status();
    do {
        if (rs_file_may(context, (flags & O_CREAT) != 0 ? "create" : "open", path))
            file->descriptor = open(path, flags | O_CLOEXEC, 0666);
    } while (file->descriptor < 0 && errno == EINTR);
    reshard_status status = RESHARD_OK;
    if (file->descriptor < 0)
        status = fail(path, (flags & O_CREAT) != 0 ? "cannot be created" : "cannot be opened");
    else if (fstat(file->descriptor, &information) != 0)
        status = fail(path, "cannot be examined");
    else if (!S_ISREG(information.st_mode))
        status = rs_fail_about(RESHARD_ERR_IO, path, "is not a regular file");
    if (status != RESHARD_OK) {
        rs_file_close(file);
        return status;
    }
    if ((flags & O_CREAT) != 0)
        rs_file_did(context, "create", path, NULL, 0);
    *out_file = file;
    return RESHARD_OK;
}

reshard_status rs_file_open(reshard_context *context, const char *path, rs_file **out_file)
{
    /* Without O_NONBLOCK, opening a pipe that was put in place of the file would wait for a
     * writer. */
    return open_file(context, path, O_RDONLY | O_NONBLOCK, out_file);
}

reshard_status rs_file_create(reshard_context *context, const char *path, rs_file **out_file)
{
    return open_file(context, path, O_RDWR | O_CREAT | O_EXCL, out_file);
}

reshard_status rs_file_open_write(reshard_context *context, const char *path, rs_file **out_file)
{
    return open_file(context, path, O_RDWR | O_NOFOLLOW, out_file);
}

reshard_status rs_file_create_made(const rs_file *origin, const char *path, uint64_t bytes,
                                   const rs_file_maker *maker, void *user, rs_file **out_file)
{
    rs_file *file = make_file(origin->context, path);
    if (file == NULL) {
        maker->destroy(user);
        return rs_allocation_status();
    }
    file->origin = origin;
    file->maker = maker;
    file->user = user;
    file->bytes = bytes;
    *out_file = file;
    return RESHARD_OK;
}

void rs_file_close(rs_file *file)
{
    if (file == NULL)
        return;
    if (file->maker != NULL)
        file->maker->destroy(file->user);
    rs_behind_destroy(atomic_load(&file->behind));
    if (file->descriptor >= 0)
        (void)close(file->descriptor);
    rs_release(file->context, file);
}

const char *rs_file_path(const rs_file *file)
{
    return file->path;
}

static int64_t nanoseconds_of(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000000 + (int64_t)time->tv_nsec;
}

reshard_status rs_file_read_stamp(const rs_file *file, rs_file_stamp *out_stamp)
{
    struct stat information;
    if (file->maker != NULL) {
        reshard_status status = rs_file_read_stamp(file->origin, out_stamp);
        out_stamp->bytes = file->bytes;
        return status;
    }
    if (fstat(file->descriptor, &information) != 0)
        return fail(file->path, "cannot be examined");
    *out_stamp = (rs_file_stamp){.bytes = (uint64_t)information.st_size,
                                 .modified = nanoseconds_of(&information.st_mtim),
                                 .changed = nanoseconds_of(&information.st_ctim),
                                 .inode = (uint64_t)information.st_ino,
                                 .mode = (uint32_t)information.st_mode & 0777};
    return RESHARD_OK;
}

reshard_status rs_file_size(const rs_file *file, uint64_t *out_bytes)
{
    rs_file_stamp stamp = {.bytes = 0};
    reshard_status status = rs_file_read_stamp(file, &stamp);
    if (status == RESHARD_OK)
        *out_bytes = stamp.bytes;
    return status;
}

bool rs_file_has_holes(const rs_file *file)
{
#ifdef SEEK_HOLE
    uint64_t bytes = 0;
    if (file->descriptor < 0 || rs_file_size(file, &bytes) != RESHARD_OK || bytes == 0)
        return false;
    /* Nobody uses the position: reads and writes have offsets of their own. */
    off_t hole = lseek(file->descriptor, 0, SEEK_HOLE);
    return hole >= 0 && (uint64_t)hole < bytes;
#else
    (void)file;
    return false;
#endif
}

bool rs_file_has_links(const rs_file *file)
{
    struct stat information;
    return fstat(file->descriptor, &information) == 0 && information.st_nlink > 1;
}

reshard_status rs_file_copy_mode(const rs_file *from, rs_file *to)
{
    struct stat information;
    if (fstat(from->descriptor, &information) != 0)
        return fail(from->path, "its permissions cannot be read");
    mode_t mode = (information.st_mode & 0777) | 0600;
    if (fchmod(to->descriptor, mode) != 0)
        rs_file_log_mode(to->context, to->path, mode);
    return RESHARD_OK;
}

static reshard_status fail_short(const rs_file *file, uint64_t at, size_t count)
{
    return rs_fail_about(RESHARD_ERR_CORRUPT, file->path,
                         "ends at byte %llu, %zu bytes before it should", (unsigned long long)at,
                         count);
}

static reshard_status read_made(const rs_file *file, void *bytes, size_t count, uint64_t at)
{
    uint64_t left = at < file->bytes ? file->bytes - at : 0;
    if (count > left)
        return fail_short(file, at + left, count - (size_t)left);
    return count != 0 ? file->maker->read(file->user, bytes, count, at) : RESHARD_OK;
}

reshard_status rs_file_read(const rs_file *file, void *bytes, size_t count, uint64_t at)
{
    char *to = bytes;
    const uint64_t begin = at;
    if (file->maker != NULL)
        return read_made(file, bytes, count, at);
    while (count != 0) {
        size_t asked = count < CALL_BYTES_MAX ? count : CALL_BYTES_MAX;
        int64_t done = file->calls->read(file->calls->user, file->descriptor, to, asked, at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return fail(file->path, "cannot be read");
        if (done == 0)
            return fail_short(file, at, count);
        to += done;
        at += (uint64_t)done;
        count -= (size_t)done;
    }
    rs_behind_note(atomic_load_explicit(&file->behind, memory_order_acquire), begin,
                   (size_t)(at - begin));
    return RESHARD_OK;
}

reshard_status rs_file_begin_pass(rs_file *file)
{
    uint64_t bytes = 0;
    rs_behind *behind = atomic_load(&file->behind), *made = NULL;
    if (behind != NULL)
        rs_behind_begin(behind);
    if (behind != NULL || file->maker != NULL)
        return RESHARD_OK;
    reshard_status status = rs_file_size(file, &bytes);
    if (status == RESHARD_OK)
        status = rs_behind_create(file->context, file->descriptor, bytes, &made);
    if (made == NULL)
        return status;
    rs_behind_begin(made);
    if (!atomic_compare_exchange_strong(&file->behind, &behind, made))
        rs_behind_destroy(made); /* another thread was faster */
    return RESHARD_OK;
}

reshard_status rs_file_write(rs_file *file, const void *bytes, size_t count, uint64_t at)
{
    const char *from = bytes;
    while (count != 0) {
        size_t asked = count < WRITE_BYTES_MAX ? count : WRITE_BYTES_MAX;
        int64_t done = file->calls->write(file->calls->user, file->descriptor, from, asked, at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done == 0)
            errno = ENOSPC;
        if (done <= 0)
            return fail(file->path, "cannot be written");
        from += done;
        at += (uint64_t)done;
        count -= (size_t)done;
    }
    return RESHARD_OK;
}

#ifdef __linux__
/* Not posix_fallocate, which writes zeros if the file system does not support the call. A file
 * system may begin anew after a signal, so with a timer that fires often, it might never end. */
static bool reserve_room(const rs_file *file, uint64_t bytes)
{
    int failed = -1;
    for (int i = 0; i < RESERVE_ATTEMPTS; i++) {
        failed = fallocate(file->descriptor, 0, 0, (off_t)bytes);
        if (failed == 0 || errno != EINTR)
            break;
    }
    return failed == 0;
}
#endif

reshard_status rs_file_resize(rs_file *file, uint64_t bytes, bool reserve)
{
    if (bytes > INT64_MAX)
        return rs_fail_about(RESHARD_ERR_RANGE, file->path, "no file can have %llu bytes",
                             (unsigned long long)bytes);
    uint64_t before = 0;
    reshard_status status = rs_file_size(file, &before);
    if (status != RESHARD_OK)
        return status;
    if (!rs_file_may(file->context, "resize", file->path) ||
        ftruncate(file->descriptor, (off_t)bytes) != 0)
        return fail(file->path, "cannot be given its size");
    rs_file_did(file->context, "resize", file->path, NULL, bytes);
#ifdef __linux__
    if (reserve && bytes != 0 && !reserve_room(file, bytes) &&
        (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) {
        status = fail(file->path, "cannot be given its room on the disk");
        /* Release the blocks that were reserved before the disk was full. */
        if (ftruncate(file->descriptor, (off_t)before) == 0)
            rs_file_did(file->context, "resize", file->path, NULL, before);
    }
#else
    (void)reserve;
#endif
    return status;
}

void rs_file_give_back(rs_file *file)
{
    if (rs_file_may(file->context, "resize", file->path) && ftruncate(file->descriptor, 0) == 0)
        rs_file_did(file->context, "resize", file->path, NULL, 0);
}

bool rs_file_try_share(const rs_file *source, rs_file *target)
{
#ifdef FICLONERANGE
    struct file_clone_range range = {.src_fd = source->descriptor, .src_length = SHARED_BYTES};
    if (!rs_file_may(target->context, "share", target->path) ||
        ioctl(target->descriptor, FICLONERANGE, &range) != 0)
        return false;
    rs_file_did(target->context, "share", target->path, NULL, SHARED_BYTES);
    return true;
#else
    (void)source, (void)target;
    return false;
#endif
}

reshard_status rs_file_sync(rs_file *file)
{
    int done;
    do {
        done = file->calls->sync(file->calls->user, file->descriptor);
    } while (done != 0 && errno == EINTR);
    return done == 0 ? RESHARD_OK : fail(file->path, "cannot be brought to the disk");
}

void rs_file_announce(const rs_file *file, uint64_t at, uint64_t count)
{
    (void)posix_fadvise(file->descriptor, (off_t)at, (off_t)count, POSIX_FADV_WILLNEED);
}

reshard_status rs_file_lock(rs_file *file)
{
    int done;
    do {
        done = flock(file->descriptor, LOCK_EX | LOCK_NB);
    } while (done != 0 && errno == EINTR);
    if (done != 0 && errno == EWOULDBLOCK)
        return rs_fail_about(RESHARD_ERR_IO, file->path, "another process is at work here");
    /* A file system without locks is no reason to fail. */
    return RESHARD_OK;
}

static bool is_refusal(int error)
{
    return error == ENOSYS || error == EXDEV || error == EINVAL || error == EOPNOTSUPP ||
           error == EBADF || error == EPERM || error == ETXTBSY || error == EOVERFLOW;
}

reshard_status rs_file_copy(const rs_file *source, uint64_t source_at, rs_file *target,
                            uint64_t target_at, uint64_t count, uint64_t *out_done)
{
    uint64_t done_all = 0;
    while (source->maker == NULL && done_all < count) {
        uint64_t rest = count - done_all;
        size_t asked = rest < CALL_BYTES_MAX ? (size_t)rest : CALL_BYTES_MAX;
        int64_t done =
            source->calls->copy(source->calls->user, source->descriptor, source_at + done_all,
                                target->descriptor, target_at + done_all, asked);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && !is_refusal(errno))
            return fail(target->path, "cannot be written");
        if (done <= 0)
            break; /* if the source has ended, the caller's read will notice */
        done_all += (uint64_t)done;
    }
    *out_done = done_all;
    return RESHARD_OK;
}

/* ---- mappings -------------------------------------------------------------------------------- */

reshard_status rs_file_map(const rs_file *file, uint64_t at, size_t count,
                           rs_file_mapping *out_mapping)
{
    uint64_t size = 0, page = (uint64_t)sysconf(_SC_PAGESIZE);
    reshard_status status = rs_file_size(file, &size);
    if (status != RESHARD_OK)
        return status;
    if (file->maker != NULL)
        return rs_fail_about(RESHARD_ERR_UNSUPPORTED, file->path,
                             "is unpacked while it is read, and cannot be mapped");
    if (at > size || count > size - at)
        return rs_fail_about(RESHARD_ERR_CORRUPT, file->path,
                             "%zu bytes from byte %" PRIu64 " on, and the file has %" PRIu64, count,
                             at, size);
    /* Do not reserve memory for private copies of all pages. */
    int flags = MAP_PRIVATE;
#ifdef MAP_NORESERVE
    flags |= MAP_NORESERVE;
#endif
    size_t before = (size_t)(at % page);
    void *base = rs_file_may(file->context, "map", file->path)
                     ? mmap(NULL, before + count, PROT_READ | PROT_WRITE, flags, file->descriptor,
                            (off_t)(at - before))
                     : MAP_FAILED;
    if (base == MAP_FAILED)
        return fail(file->path, "cannot be mapped");
    *out_mapping = (rs_file_mapping){(char *)base + before, base, before + count};
    return RESHARD_OK;
}

void rs_file_unmap(const rs_file_mapping *mapping)
{
    (void)munmap(mapping->base, mapping->base_count);
}

reshard_status rs_file_read_all(reshard_context *context, const char *path, size_t bytes_max,
                                char **out_bytes, size_t *out_count)
{
    rs_file *file = NULL;
    char *bytes = NULL;
    uint64_t size = 0;
    reshard_status status = rs_file_open(context, path, &file);
    if (status == RESHARD_OK)
        status = rs_file_size(file, &size);
    if (status == RESHARD_OK && size > bytes_max)
        status = rs_fail_about(RESHARD_ERR_RANGE, path, "has %llu bytes, more than the %zu allowed",
                               (unsigned long long)size, bytes_max);
    if (status != RESHARD_OK)
        goto out;
    bytes = rs_allocate(context, (size_t)size + 1);
    status = bytes != NULL ? rs_file_read(file, bytes, (size_t)size, 0) : rs_allocation_status();
    if (status != RESHARD_OK)
        goto out;
    bytes[size] = '\0';
    *out_bytes = bytes;
    *out_count = (size_t)size;
    bytes = NULL;
out:
    rs_release(context, bytes);
    rs_file_close(file);
    return status;
}
