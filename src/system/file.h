/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h - the one place with file access. Every error names the path and has the system's words.
 *
 * Reads and writes are at given places and whole: what the system does in parts is gone on with.
 * A test can put its own calls under a context (rs_file_calls) to cut them short or let them fail.
 * A file may be read and written by several threads at once.
 */
#ifndef RS_SYSTEM_FILE_H
#define RS_SYSTEM_FILE_H

#include <reshard/base.h>

#include "base/export.h"

#include <stdbool.h>

/* What a test may replace. Each behaves like the system call of that name: it returns the bytes
 * done, or -1 with errno set. */
typedef struct rs_file_calls {
    int64_t (*read)(void *user, int descriptor, void *bytes, size_t count, uint64_t at);
    int64_t (*write)(void *user, int descriptor, const void *bytes, size_t count, uint64_t at);
    int64_t (*copy)(void *user, int source, uint64_t source_at, int target, uint64_t target_at,
                    size_t count);
    int (*sync)(void *user, int descriptor);
    void *user;
    /* Asked before a call that goes by a name, changes a size or maps ("open", "create", "resize",
     * "map", "sync" of a folder, "rename", "link", "share", "remove", "publish"): 0, or -1 and
     * errno. NULL: all may. */
    int (*may)(void *user, const char *what, const char *path);
    /* Told of each of those calls that changes something, once it is done. For "rename" and "link",
     * `other` is the name it had before; for "resize", `bytes` is the new size. NULL: nobody
     * listens. */
    void (*did)(void *user, const char *what, const char *path, const char *other, uint64_t bytes);
} rs_file_calls;

/* The system's own calls, for tests that change only some of them. */
const rs_file_calls *rs_file_calls_system(void);
/* calls must outlive the context's files; NULL: the system's. Not for the default context. */
void rs_file_calls_set(reshard_context *context, const rs_file_calls *calls);

/* Asks `may`; when it refuses, returns false with errno set. */
bool rs_file_may(reshard_context *context, const char *what, const char *path);
/* Tells `did`. */
void rs_file_did(reshard_context *context, const char *what, const char *path, const char *other,
                 uint64_t bytes);

typedef struct rs_file rs_file;

/* Errors: NOT_FOUND when there is no such file; IO. A folder is no file. */
RS_EXPORT reshard_status rs_file_open(reshard_context *context, const char *path,
                                      rs_file **out_file);
/* A new file, for reading and writing. Errors: IO, also when the path exists. */
reshard_status rs_file_create(reshard_context *context, const char *path, rs_file **out_file);
/* An existing file, for reading and writing. */
reshard_status rs_file_open_write(reshard_context *context, const char *path, rs_file **out_file);
/* Takes NULL. Whoever needs the data to be durable syncs first. */
RS_EXPORT void rs_file_close(rs_file *file);
const char *rs_file_path(const rs_file *file);

RS_EXPORT reshard_status rs_file_size(const rs_file *file, uint64_t *out_bytes);
/* What the system knows of a file, to tell one version of it from another. Times are in
 * nanoseconds. */
typedef struct rs_file_stamp {
    uint64_t bytes;
    int64_t modified; /* when its bytes were; a program can set this back */
    int64_t changed;  /* when its bytes, mode, owner or links were; nobody can set this back */
    uint64_t inode;
    uint32_t mode; /* who may do what with it: 0644 */
} rs_file_stamp;
reshard_status rs_file_read_stamp(const rs_file *file, rs_file_stamp *out_stamp);
/* Whether the file has other names (hard links): writing it would change those too. */
bool rs_file_has_links(const rs_file *file);
/* Gives a file the permissions of another; its owner may read and write it in any case. */
reshard_status rs_file_copy_mode(const rs_file *from, rs_file *to);
/* Errors: CORRUPT when the file ends before that; IO. */
reshard_status rs_file_read(const rs_file *file, void *bytes, size_t count, uint64_t at);
reshard_status rs_file_write(rs_file *file, const void *bytes, size_t count, uint64_t at);
/* Makes the file exactly this long; new bytes are zero. reserve: asks for its room on the disk, so
 * that a full disk shows now; if there is not enough, the file keeps the size it had. */
reshard_status rs_file_resize(rs_file *file, uint64_t bytes, bool reserve);
/* Empties a file that nobody needs any more, so that others can have its room on the disk. Keeps
 * silent if that fails: it is called after an error that has its own words. */
void rs_file_give_back(rs_file *file);
/* Can the file system share blocks between the two (reflink)? Tries it: the target then begins with
 * 4096 bytes of the source. */
bool rs_file_try_share(const rs_file *source, rs_file *target);
reshard_status rs_file_sync(rs_file *file);
/* Locks the file for this process until it is closed. Errors: IO when another process has it. */
reshard_status rs_file_lock(rs_file *file);
/* These bytes will be read soon: the system may fetch them in large pieces. */
void rs_file_announce(const rs_file *file, uint64_t at, uint64_t count);
/* Lets the kernel share a range, or have it copied by a server. *out_done is what was done: less
 * than count when the kernel cannot do (the rest of) this one, or would only read and write, which
 * the caller does faster. That is no error. */
reshard_status rs_file_copy(const rs_file *source, uint64_t source_at, rs_file *target,
                            uint64_t target_at, uint64_t count, uint64_t *out_done);

/* A file whose bytes somebody makes while they are read, such as the content of a compressed one.
 * It can be read, and tells its size; nothing else can be done with it. */
typedef struct rs_file_maker {
    /* As rs_file_read; the range lies inside. Called by several threads at once. */
    reshard_status (*read)(void *user, void *bytes, size_t count, uint64_t at);
    void (*destroy)(void *user);
} rs_file_maker;

/* path: what errors call it. origin: the file that it is made from, which must outlive it and tells
 * when it was last changed. maker must outlive it too; user is destroyed with it, here also when
 * the call fails. */
reshard_status rs_file_create_made(const rs_file *origin, const char *path, uint64_t bytes,
                                   const rs_file_maker *maker, void *user, rs_file **out_file);

/* A range of a file seen as memory. Private: writing changes this process's copy of a page, never
 * the file. Nothing is read before it is touched; what is cut off the file meanwhile ends the
 * process when it is touched. */
typedef struct rs_file_mapping {
    void *bytes; /* the first one asked for */
    void *base;  /* of the pages */
    size_t base_count;
} rs_file_mapping;

/* count is not 0. The file may be closed. Errors: CORRUPT when the file ends before that;
 * UNSUPPORTED for a file that is made; IO. */
RS_EXPORT reshard_status rs_file_map(const rs_file *file, uint64_t at, size_t count,
                                     rs_file_mapping *out_mapping);
RS_EXPORT void rs_file_unmap(const rs_file_mapping *mapping);

/* The whole of a small file. Errors: as open and read; RANGE beyond bytes_max. To be released with
 * *out_count + 1 bytes: there is a NUL behind the end. */
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
/* Whether both paths lead to the same file or folder. False when one leads nowhere. */
bool rs_path_same(const char *a, const char *b);
/* Whether the path itself is a symbolic link. */
bool rs_path_is_link(const char *path);
/* The absolute path without links; to be freed by rs_text_free. Errors: NOT_FOUND, IO. */
reshard_status rs_path_resolve(reshard_context *context, const char *path, char **out_path);
/* folder/name; to be released with strlen + 1. NULL as rs_allocate. */
char *rs_path_join(reshard_context *context, const char *folder, const char *name);
/* Mode 0700. Errors: IO, also when it exists. */
reshard_status rs_folder_create(reshard_context *context, const char *path);
/* A folder itself, not a link to one, that is this user's and nobody else's to enter. */
bool rs_folder_is_private(const char *path);
/* Makes the names in a folder durable. */
reshard_status rs_folder_sync(reshard_context *context, const char *path);
/* The folder that holds the path; to be released with strlen + 1. NULL as rs_allocate. */
char *rs_path_parent(reshard_context *context, const char *path);
/* Fails rather than replace what is there. */
reshard_status rs_path_rename(reshard_context *context, const char *from, const char *to);
reshard_status rs_path_link(reshard_context *context, const char *from, const char *to);
reshard_status rs_path_remove(reshard_context *context, const char *path);
/* Removes a folder and the files in it, but no folders in it. */
reshard_status rs_folder_remove(reshard_context *context, const char *path);
/* Makes a private folder (0700) as open to others as a file that this program created is: what the
 * user's umask left of that file's mode, and whoever may read may enter. (To ask for the umask is
 * to change it, for all threads.) */
reshard_status rs_folder_publish(reshard_context *context, const char *path, const rs_file *like);

/* Names, in byte order. Released in any case. */
typedef struct rs_names {
    reshard_context *context;
    int64_t count, capacity;
    char **items;
} rs_names;
/* The names in a folder, without those that begin with a dot. */
reshard_status rs_folder_list(reshard_context *context, const char *path, rs_names *out_names);
/* All names in a folder but . and .. */
reshard_status rs_folder_list_all(reshard_context *context, const char *path, rs_names *out_names);
/* Adds one at the end, out of order. */
reshard_status rs_names_add(rs_names *names, const char *name);
void rs_names_sort(rs_names *names);
/* In names that are in order. */
bool rs_names_contain(const rs_names *names, const char *name);
void rs_names_release(rs_names *names);

#endif
