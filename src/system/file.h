/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h - all access to files and paths. Every error names the path and includes the system's
 * error message.
 *
 * Reads and writes take an offset and are complete: if the system transfers less than was asked
 * for, they continue. A test can replace the system's calls for a context (rs_file_calls), to cut
 * them short or make them fail. Several threads may read and write a file at the same time.
 */
#ifndef RS_SYSTEM_FILE_H
#define RS_SYSTEM_FILE_H

#include <reshard/base.h>

#include "base/export.h"

#include <stdbool.h>

/* The calls that a test may replace. read, write, copy and sync behave like the system calls they
 * stand for: they return the number of bytes transferred (0 for sync), or -1 with errno set. */
typedef struct rs_file_calls {
    int64_t (*read)(void *user, int descriptor, void *bytes, size_t count, uint64_t at);
    int64_t (*write)(void *user, int descriptor, const void *bytes, size_t count, uint64_t at);
    int64_t (*copy)(void *user, int source, uint64_t source_at, int target, uint64_t target_at,
                    size_t count);
    int (*sync)(void *user, int descriptor);
    void *user;
    /* Asked before a call that takes a path, changes a size or maps memory ("open", "create",
     * "resize", "map", "sync" of a folder, "rename", "link", "share", "remove", "publish"). Returns
     * 0 to allow it, or -1 with errno set. NULL allows everything. */
    int (*may)(void *user, const char *what, const char *path);
    /* Called after each of these calls that changed something. For "rename" and "link", `other` is
     * the old name; for "resize", `bytes` is the new size. May be NULL. */
    void (*did)(void *user, const char *what, const char *path, const char *other, uint64_t bytes);
} rs_file_calls;

/* The system's own calls, for tests that replace only some of them. */
const rs_file_calls *rs_file_calls_system(void);
/* `calls` must outlive the context's files; NULL restores the system's. Not for the default
 * context. */
void rs_file_calls_set(reshard_context *context, const rs_file_calls *calls);

/* Asks `may`. Returns false with errno set if it refuses. */
bool rs_file_may(reshard_context *context, const char *what, const char *path);
/* Calls `did`. */
void rs_file_did(reshard_context *context, const char *what, const char *path, const char *other,
                 uint64_t bytes);

typedef struct rs_file rs_file;

/* Opens a regular file for reading. Errors: NOT_FOUND if there is no such file; IO, also for a
 * folder. */
RS_EXPORT reshard_status rs_file_open(reshard_context *context, const char *path,
                                      rs_file **out_file);
/* Creates a file for reading and writing. Errors: IO, also if the path exists. */
reshard_status rs_file_create(reshard_context *context, const char *path, rs_file **out_file);
/* Opens an existing file for reading and writing; does not follow a symbolic link. */
reshard_status rs_file_open_write(reshard_context *context, const char *path, rs_file **out_file);
/* Takes NULL. Does not sync: call rs_file_sync first if the data has to be durable. */
RS_EXPORT void rs_file_close(rs_file *file);
const char *rs_file_path(const rs_file *file);

RS_EXPORT reshard_status rs_file_size(const rs_file *file, uint64_t *out_bytes);
/* What identifies one version of a file. Times are in nanoseconds. */
typedef struct rs_file_stamp {
    uint64_t bytes;
    int64_t modified; /* when its content was last modified; programs can set this back */
    int64_t changed;  /* when content, mode, owner or links last changed; cannot be set back */
    uint64_t inode;
    uint32_t mode; /* permission bits, such as 0644 */
} rs_file_stamp;
reshard_status rs_file_read_stamp(const rs_file *file, rs_file_stamp *out_stamp);
/* Whether the file has other names (hard links), whose content a write would change too. */
bool rs_file_has_links(const rs_file *file);
/* After a file system has refused to set permissions, which is no reason to fail: some have none
 * (vfat, some network ones). Logs that, unless `wanted` is granted anyway. */
void rs_file_log_mode(reshard_context *context, const char *path, uint32_t wanted);
/* Whether part of the file was never written and takes no disk space, as after it was truncated and
 * written to behind its end. False if the file system does not tell. */
bool rs_file_has_holes(const rs_file *file);
/* Gives a file the permissions of another, but its owner may always read and write it. */
reshard_status rs_file_copy_mode(const rs_file *from, rs_file *to);
/* Errors: CORRUPT if the file ends before the range does; IO. */
reshard_status rs_file_read(const rs_file *file, void *bytes, size_t count, uint64_t at);
reshard_status rs_file_write(rs_file *file, const void *bytes, size_t count, uint64_t at);
/* Sets the length of the file; new bytes are zero. With `reserve`, disk space is allocated too, so
 * that a full disk is noticed now. If there is not enough space, the file keeps its old length. */
reshard_status rs_file_resize(rs_file *file, uint64_t bytes, bool reserve);
/* Truncates a file that is no longer needed, to free its disk space. Ignores failure, because it is
 * called after an error whose text has to stay. */
void rs_file_give_back(rs_file *file);
/* Whether the file system can share blocks between the two files (reflink). It is tried out: on
 * success the target begins with 4096 bytes of the source. */
bool rs_file_try_share(const rs_file *source, rs_file *target);
reshard_status rs_file_sync(rs_file *file);
/* Locks the file until it is closed. Errors: IO if another process holds the lock. */
reshard_status rs_file_lock(rs_file *file);
/* Hints that these bytes will be read soon, so that the system can read ahead. */
void rs_file_announce(const rs_file *file, uint64_t at, uint64_t count);
/* Begins a pass over the file in which most of it is read, and once. Until the file is closed or
 * the next pass begins, what reads bring into the page cache is taken out again behind them, and
 * what is there now stays (behind.h). Does nothing for made files. Errors: NO_MEMORY. */
reshard_status rs_file_begin_pass(rs_file *file);
/* Has the kernel share a range between the files, or a server copy it. *out_done is the number of
 * bytes copied. It is less than count if the kernel cannot copy (the rest of) the range, or would
 * only read and write it, which the caller does faster. That is not an error. */
reshard_status rs_file_copy(const rs_file *source, uint64_t source_at, rs_file *target,
                            uint64_t target_at, uint64_t count, uint64_t *out_done);

/* A made file: its bytes are computed while they are read, such as the content of a compressed
 * file. It can be read and has a size; it supports nothing else. */
typedef struct rs_file_maker {
    /* Like rs_file_read; the range is inside the file. Several threads may call it at once. */
    reshard_status (*read)(void *user, void *bytes, size_t count, uint64_t at);
    void (*destroy)(void *user);
} rs_file_maker;

/* `path` is the name used in errors. `origin` is the file that the bytes are made from; it must
 * outlive this file and provides its time stamps. `maker` must outlive the file too. `user` is
 * destroyed with the file, and also if this call fails. */
reshard_status rs_file_create_made(const rs_file *origin, const char *path, uint64_t bytes,
                                   const rs_file_maker *maker, void *user, rs_file **out_file);

/* A range of a file mapped as memory. The mapping is private: writing to it changes this process's
 * copy of a page, never the file. Pages are read when they are first touched. If the file is
 * truncated meanwhile, touching a lost page kills the process (SIGBUS). */
typedef struct rs_file_mapping {
    void *bytes; /* the first byte of the range */
    void *base;  /* the start of the mapped pages */
    size_t base_count;
} rs_file_mapping;

/* count must not be 0. The file may be closed while it is mapped. Errors: CORRUPT if the file ends
 * before the range does; UNSUPPORTED for a made file; IO. */
RS_EXPORT reshard_status rs_file_map(const rs_file *file, uint64_t at, size_t count,
                                     rs_file_mapping *out_mapping);
RS_EXPORT void rs_file_unmap(const rs_file_mapping *mapping);

/* Reads a whole small file. A NUL follows the last byte, so release *out_count + 1 bytes. Errors:
 * those of open and read; RANGE if the file is larger than bytes_max. */
reshard_status rs_file_read_all(reshard_context *context, const char *path, size_t bytes_max,
                                char **out_bytes, size_t *out_count);

/* ---- paths ----------------------------------------------------------------------------------- */

typedef enum rs_path_kind {
    RS_PATH_NONE,
    RS_PATH_FILE,
    RS_PATH_FOLDER,
    RS_PATH_OTHER
} rs_path_kind;

reshard_status rs_path_kind_of(const char *path, rs_path_kind *out_kind);
/* Whether both paths lead to the same file or folder; false if one of them leads nowhere. */
bool rs_path_same(const char *a, const char *b);
/* Whether the path itself is a symbolic link. */
bool rs_path_is_link(const char *path);
/* The absolute path without symbolic links; free it with rs_text_free. Errors: NOT_FOUND, IO. */
reshard_status rs_path_resolve(reshard_context *context, const char *path, char **out_path);
/* Returns "folder/name"; release strlen + 1 bytes. Returns NULL like rs_allocate. */
char *rs_path_join(reshard_context *context, const char *folder, const char *name);
/* Creates a folder with mode 0700. Errors: IO, also if it exists. */
reshard_status rs_folder_create(reshard_context *context, const char *path);
/* Whether the path is a folder (not a link to one) that belongs to this user and that nobody else
 * may enter. */
bool rs_folder_is_private(const char *path);
/* Makes the names in a folder durable (syncs it). */
reshard_status rs_folder_sync(reshard_context *context, const char *path);
/* The folder that contains the path; release strlen + 1 bytes. Returns NULL like rs_allocate. */
char *rs_path_parent(reshard_context *context, const char *path);
/* Renames a file or folder; fails if the new name exists. */
reshard_status rs_path_rename(reshard_context *context, const char *from, const char *to);
reshard_status rs_path_link(reshard_context *context, const char *from, const char *to);
reshard_status rs_path_remove(reshard_context *context, const char *path);
/* Removes a folder and the files in it. Fails if it contains folders. */
reshard_status rs_folder_remove(reshard_context *context, const char *path);
/* Opens a private folder (0700) to those who may read the file `like`, which this program created:
 * the folder gets that file's mode, and whoever may read may also enter. (The file's mode shows the
 * umask. Asking for the umask directly would change it, for all threads.) */
reshard_status rs_folder_publish(reshard_context *context, const char *path, const rs_file *like);

/* A list of names; rs_names_release frees it. */
typedef struct rs_names {
    reshard_context *context;
    int64_t count, capacity;
    char **items;
} rs_names;
/* The names in a folder, except those that begin with a dot, in byte order. */
reshard_status rs_folder_list(reshard_context *context, const char *path, rs_names *out_names);
/* All names in a folder except "." and "..", in byte order. */
reshard_status rs_folder_list_all(reshard_context *context, const char *path, rs_names *out_names);
/* Appends a copy of a name. The list is not sorted then. */
reshard_status rs_names_add(rs_names *names, const char *name);
void rs_names_sort(rs_names *names);
/* Whether the list, which must be sorted, contains a name. */
bool rs_names_contain(const rs_names *names, const char *name);
void rs_names_release(rs_names *names);

#endif
