/* SPDX-License-Identifier: Apache-2.0 */
/* power.c - see power.h. Whatever should not happen to a recorder ends the program. */
#define _GNU_SOURCE
#include "tests/support/power.h"

#include "system/thread.h"
#include "tests/support/copying.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OBJECTS_MAX = 256, NAMES_MAX = 256, PATH_BYTES = 512, PAGE = 4096, SECTOR = 512 };

typedef struct object {
    bool is_folder;
    uint64_t inode; /* 0: it is gone */
    char name[POWER_NAME_MAX];
    char outside[PATH_BYTES]; /* a file elsewhere that a link leads to; "": none */
    /* When recording began. */
    mode_t mode;
    char *bytes;
    size_t count;
} object;

typedef struct entry {
    int folder, object;
    char name[POWER_NAME_MAX];
} entry;

typedef struct names {
    int count;
    entry items[NAMES_MAX];
} names;

typedef struct owner {
    power_log *log;
    int index;
} owner;

struct power_log {
    rs_mutex lock;
    char root[PATH_BYTES], prefix[POWER_NAME_MAX];
    owner owners[POWER_OWNERS_MAX];
    int object_count;
    object objects[OBJECTS_MAX];
    names first, now; /* when recording began, and at present */
    int op_count, op_capacity;
    power_op *ops;
};

static void must(bool condition, const char *what)
{
    if (condition)
        return;
    (void)fprintf(stderr, "power.c: %s\n", what);
    abort();
}

static void copy_text(char *to, size_t capacity, const char *from)
{
    must(strlen(from) < capacity, "a name is too long");
    memcpy(to, from, strlen(from) + 1);
}

/* ---- names ----------------------------------------------------------------------------------- */

static int find_name(const names *list, int folder, const char *name)
{
    for (int i = 0; i < list->count; i++) {
        if (list->items[i].folder == folder && strcmp(list->items[i].name, name) == 0)
            return i;
    }
    return -1;
}

static void add_name(names *list, int folder, const char *name, int number)
{
    must(list->count < NAMES_MAX && find_name(list, folder, name) < 0, "a name that is taken");
    entry *item = &list->items[list->count++];
    item->folder = folder;
    item->object = number;
    copy_text(item->name, sizeof item->name, name);
}

static void remove_name(names *list, int folder, const char *name)
{
    int index = find_name(list, folder, name);
    must(index >= 0, "a name that is not there");
    list->items[index] = list->items[--list->count];
}

/* The folder that a path leads into, and its last name; false for what is not recorded. */
static bool resolve(const power_log *log, const char *path, int *folder, const char **name)
{
    size_t root = strlen(log->root);
    if (strncmp(path, log->root, root) != 0 || path[root] != '/')
        return false;
    path += root + 1;
    if (strncmp(path, log->prefix, strlen(log->prefix)) != 0)
        return false;
    const char *slash = strchr(path, '/');
    *folder = 0;
    *name = path;
    if (slash == NULL)
        return true;
    char first[POWER_NAME_MAX];
    (void)snprintf(first, sizeof first, "%.*s", (int)(slash - path), path);
    int index = find_name(&log->now, 0, first);
    must(index >= 0 && strchr(slash + 1, '/') == NULL, "a path that leads nowhere");
    *folder = log->now.items[index].object;
    *name = slash + 1;
    return true;
}

/* ---- recording ------------------------------------------------------------------------------- */

static int find_object(const power_log *log, uint64_t inode)
{
    for (int i = 0; i < log->object_count; i++) {
        if (log->objects[i].inode == inode)
            return i;
    }
    return -1;
}

static int add_object(power_log *log, const char *path, const char *name)
{
    struct stat found;
    must(lstat(path, &found) == 0 && log->object_count < OBJECTS_MAX, path);
    object *made = &log->objects[log->object_count];
    *made = (object){.is_folder = S_ISDIR(found.st_mode),
                     .inode = (uint64_t)found.st_ino,
                     .mode = found.st_mode & 0777};
    copy_text(made->name, sizeof made->name, name);
    return log->object_count++;
}

static power_op *add_op(power_log *log, const owner *who, power_kind kind, int number)
{
    if (log->op_count == log->op_capacity) {
        log->op_capacity = log->op_capacity * 2 + 64;
        log->ops = realloc(log->ops, (size_t)log->op_capacity * sizeof *log->ops);
        must(log->ops != NULL, "no memory");
    }
    power_op *op = &log->ops[log->op_count++];
    *op = (power_op){.kind = kind, .owner = who->index, .object = number};
    return op;
}

static int object_of(const power_log *log, int descriptor)
{
    struct stat found;
    must(fstat(descriptor, &found) == 0, "fstat");
    return find_object(log, (uint64_t)found.st_ino);
}

static void record_bytes(const owner *who, int descriptor, int number, uint64_t at, uint64_t count)
{
    power_op *op = add_op(who->log, who, POWER_WRITE, number);
    op->at = at;
    op->count = count;
    op->bytes = malloc((size_t)count);
    must(op->bytes != NULL &&
             pread(descriptor, op->bytes, (size_t)count, (off_t)at) == (ssize_t)count,
         "what was written cannot be read");
}

static int64_t power_read(void *user, int descriptor, void *bytes, size_t count, uint64_t at)
{
    (void)user;
    return rs_file_calls_system()->read(NULL, descriptor, bytes, count, at);
}

/* What was written is read back under the lock: one process at a time changes the record. */
static void record_write(const owner *who, int descriptor, uint64_t at, int64_t done)
{
    if (done <= 0)
        return;
    rs_mutex_lock(&who->log->lock);
    int number = object_of(who->log, descriptor);
    if (number >= 0)
        record_bytes(who, descriptor, number, at, (uint64_t)done);
    rs_mutex_unlock(&who->log->lock);
}

static int64_t power_write(void *user, int descriptor, const void *bytes, size_t count, uint64_t at)
{
    int64_t done = rs_file_calls_system()->write(NULL, descriptor, bytes, count, at);
    record_write(user, descriptor, at, done);
    return done;
}

static int64_t power_copy(void *user, int source, uint64_t source_at, int target,
                          uint64_t target_at, size_t count)
{
    int64_t done = copying_call(source, source_at, target, target_at, count);
    record_write(user, target, target_at, done);
    return done;
}

static int power_sync(void *user, int descriptor)
{
    owner *who = user;
    rs_mutex_lock(&who->log->lock);
    int number = object_of(who->log, descriptor);
    if (number >= 0)
        (void)add_op(who->log, who, POWER_SYNC, number);
    rs_mutex_unlock(&who->log->lock);
    return 0;
}

/* A link to a file elsewhere makes that file one of ours. */
static int linked_object(power_log *log, const char *from, const char *name)
{
    struct stat found;
    must(stat(from, &found) == 0, from);
    int number = find_object(log, (uint64_t)found.st_ino);
    if (number >= 0)
        return number;
    number = add_object(log, from, name);
    copy_text(log->objects[number].outside, PATH_BYTES, from);
    return number;
}

static void forget_if_gone(power_log *log, int number)
{
    for (int i = 0; i < log->now.count; i++) {
        if (log->now.items[i].object == number)
            return;
    }
    log->objects[number].inode = 0; /* which may be another file's soon */
}

static void record_change(const owner *who, const char *what, const char *path, const char *other,
                          int folder, const char *name)
{
    power_log *log = who->log;
    int at = find_name(&log->now, folder, name);
    int number = at >= 0 ? log->now.items[at].object : -1;
    power_op *op = NULL;
    if (strcmp(what, "create") == 0) {
        number = add_object(log, path, name);
        add_name(&log->now, folder, name, number);
        op = add_op(log, who, POWER_CREATE, number);
    } else if (strcmp(what, "link") == 0) {
        number = linked_object(log, other, name);
        add_name(&log->now, folder, name, number);
        op = add_op(log, who, POWER_LINK, number);
    } else if (strcmp(what, "remove") == 0) {
        op = add_op(log, who, POWER_REMOVE, number);
        remove_name(&log->now, folder, name);
        forget_if_gone(log, number);
    } else {
        must(strcmp(what, "publish") == 0, what);
        op = add_op(log, who, POWER_PUBLISH, number);
    }
    op->folder = folder;
    copy_text(op->name, sizeof op->name, name);
}

static void record_rename(const owner *who, const char *other, int folder, const char *name)
{
    power_log *log = who->log;
    int old_folder = 0;
    const char *old_name = NULL;
    must(resolve(log, other, &old_folder, &old_name), other);
    int number = log->now.items[find_name(&log->now, old_folder, old_name)].object;
    power_op *op = add_op(log, who, POWER_RENAME, number);
    op->folder = folder;
    op->old_folder = old_folder;
    copy_text(op->name, sizeof op->name, name);
    copy_text(op->old_name, sizeof op->old_name, old_name);
    remove_name(&log->now, old_folder, old_name);
    add_name(&log->now, folder, name, number);
}

static void record_size(const owner *who, const char *what, const char *path, int number,
                        uint64_t bytes)
{
    if (strcmp(what, "resize") == 0) {
        add_op(who->log, who, POWER_RESIZE, number)->count = bytes;
        return;
    }
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    must(descriptor >= 0, path);
    record_bytes(who, descriptor, number, 0, bytes);
    (void)close(descriptor);
}

static void power_did(void *user, const char *what, const char *path, const char *other,
                      uint64_t bytes)
{
    owner *who = user;
    power_log *log = who->log;
    int folder = 0;
    const char *name = NULL;
    rs_mutex_lock(&log->lock);
    if (strcmp(path, log->root) == 0) {
        must(strcmp(what, "sync") == 0, what);
        (void)add_op(log, who, POWER_SYNC, 0);
    } else if (resolve(log, path, &folder, &name)) {
        int at = find_name(&log->now, folder, name);
        int number = at >= 0 ? log->now.items[at].object : -1;
        if (strcmp(what, "sync") == 0)
            (void)add_op(log, who, POWER_SYNC, number);
        else if (strcmp(what, "resize") == 0 || strcmp(what, "share") == 0)
            record_size(who, what, path, number, bytes);
        else if (strcmp(what, "rename") == 0)
            record_rename(who, other, folder, name);
        else
            record_change(who, what, path, other, folder, name);
    }
    rs_mutex_unlock(&log->lock);
}

rs_file_calls power_calls(power_log *log, int index)
{
    must(index >= 0 && index < POWER_OWNERS_MAX, "too many owners");
    log->owners[index] = (owner){log, index};
    return (rs_file_calls){.read = power_read,
                           .write = power_write,
                           .copy = power_copy,
                           .sync = power_sync,
                           .user = &log->owners[index],
                           .did = power_did};
}

/* ---- the beginning and the end --------------------------------------------------------------- */

static void read_file(object *file, const char *path)
{
    struct stat found;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    must(descriptor >= 0 && fstat(descriptor, &found) == 0, path);
    file->count = (size_t)found.st_size;
    file->bytes = malloc(file->count + 1);
    must(file->bytes != NULL && read(descriptor, file->bytes, file->count) == found.st_size, path);
    (void)close(descriptor);
}

static void read_folder(power_log *log, int number, const char *path)
{
    DIR *folder = opendir(path);
    must(folder != NULL, path);
    for (struct dirent *item; (item = readdir(folder)) != NULL;) {
        char inside[PATH_BYTES];
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0 ||
            (number == 0 && strncmp(item->d_name, log->prefix, strlen(log->prefix)) != 0))
            continue;
        must(snprintf(inside, sizeof inside, "%s/%s", path, item->d_name) < PATH_BYTES, path);
        int made = add_object(log, inside, item->d_name);
        add_name(&log->first, number, item->d_name, made);
        if (log->objects[made].is_folder)
            read_folder(log, made, inside);
        else
            read_file(&log->objects[made], inside);
    }
    (void)closedir(folder);
}

power_log *power_begin(const char *root, const char *prefix)
{
    power_log *log = calloc(1, sizeof *log);
    must(log != NULL && rs_mutex_init(&log->lock) == RESHARD_OK, "no memory");
    copy_text(log->root, sizeof log->root, root);
    copy_text(log->prefix, sizeof log->prefix, prefix);
    (void)add_object(log, root, "");
    read_folder(log, 0, root);
    log->now = log->first;
    return log;
}

void power_end(power_log *log)
{
    if (log == NULL)
        return;
    for (int i = 0; i < log->op_count; i++)
        free(log->ops[i].bytes);
    for (int i = 0; i < log->object_count; i++)
        free(log->objects[i].bytes);
    free(log->ops);
    rs_mutex_release(&log->lock);
    free(log);
}

int power_count(const power_log *log)
{
    return log->op_count;
}

const power_op *power_at(const power_log *log, int index)
{
    return &log->ops[index];
}

int power_object_count(const power_log *log)
{
    return log->object_count;
}

const char *power_object_name(const power_log *log, int number)
{
    return log->objects[number].name;
}

bool power_is_folder(const power_log *log, int number)
{
    return log->objects[number].is_folder;
}

/* ---- a state --------------------------------------------------------------------------------- */

/* A disk while operations are brought onto it. */
typedef struct disk {
    names names;
    struct {
        char *bytes;
        size_t count;
        mode_t mode;
    } objects[OBJECTS_MAX];
} disk;

static void set_size(disk *d, int number, size_t count)
{
    char *bytes = realloc(d->objects[number].bytes, count + 1);
    must(bytes != NULL, "no memory");
    if (count > d->objects[number].count)
        memset(bytes + d->objects[number].count, 0, count - d->objects[number].count);
    d->objects[number].bytes = bytes;
    d->objects[number].count = count;
}

static void put_bytes(disk *d, const power_op *op, uint64_t from, uint64_t to)
{
    if (from >= to)
        return;
    if (to > d->objects[op->object].count)
        set_size(d, op->object, (size_t)to);
    memcpy(d->objects[op->object].bytes + from, op->bytes + (from - op->at), (size_t)(to - from));
}

/* Some pages of a write, one of them up to some sector or from there on. */
static void put_some_bytes(disk *d, const power_op *op, draw_state *draw)
{
    uint64_t end = op->at + op->count;
    int percent = (int)draw_between(draw, 0, 3) * 33 + 1; /* of pages that are there: 1 .. 100 */
    uint64_t torn = op->at / PAGE + (uint64_t)draw_below(draw, (int64_t)(op->count / PAGE) + 1);
    for (uint64_t page = op->at / PAGE; page * PAGE < end; page++) {
        uint64_t from = page * PAGE, to = from + PAGE;
        if (page == torn && draw_chance(draw, 50)) {
            uint64_t sector = from + (uint64_t)draw_below(draw, PAGE / SECTOR) * SECTOR;
            if (draw_chance(draw, 50))
                to = sector;
            else
                from = sector;
        } else if (!draw_chance(draw, percent)) {
            continue;
        }
        put_bytes(d, op, from > op->at ? from : op->at, to < end ? to : end);
    }
}

static void change_names(disk *d, const power_op *op)
{
    if (op->kind == POWER_RENAME)
        remove_name(&d->names, op->old_folder, op->old_name);
    if (op->kind == POWER_REMOVE)
        remove_name(&d->names, op->folder, op->name);
    else
        add_name(&d->names, op->folder, op->name, op->object);
}

static bool names_change(const power_op *op)
{
    return op->kind == POWER_CREATE || op->kind == POWER_LINK || op->kind == POWER_REMOVE ||
           op->kind == POWER_RENAME;
}

/* Was it synced before the cut? A folder is synced for all: its names are on one server. */
static bool is_durable(const power_log *log, int index, int at)
{
    const power_op *op = &log->ops[index];
    int number = names_change(op) ? op->folder : op->object;
    bool any = names_change(op) || op->kind == POWER_PUBLISH;
    for (int i = index + 1; i < at; i++) {
        const power_op *sync = &log->ops[i];
        if (sync->kind == POWER_SYNC && sync->object == number && (any || sync->owner == op->owner))
            return true;
    }
    return false;
}

/* Names whose last changes did not come through: no later one of theirs can. */
typedef struct lost_names {
    bool in_order; /* one that is lost takes all later ones with it */
    names list;
} lost_names;

static bool is_lost(const lost_names *lost, const power_op *op)
{
    return (lost->in_order && lost->list.count != 0) ||
           find_name(&lost->list, op->folder, op->name) >= 0 ||
           (op->kind == POWER_RENAME && find_name(&lost->list, op->old_folder, op->old_name) >= 0);
}

static void lose(lost_names *lost, const power_op *op)
{
    if (find_name(&lost->list, op->folder, op->name) < 0)
        add_name(&lost->list, op->folder, op->name, 0);
    if (op->kind == POWER_RENAME && find_name(&lost->list, op->old_folder, op->old_name) < 0)
        add_name(&lost->list, op->old_folder, op->old_name, 0);
}

static void apply(disk *d, const power_op *op, bool durable, lost_names *lost, draw_state *draw)
{
    bool whole = durable || draw_chance(draw, 50);
    if (op->kind == POWER_SYNC) {
        return;
    } else if (op->kind == POWER_WRITE) {
        if (durable)
            put_bytes(d, op, op->at, op->at + op->count);
        else
            put_some_bytes(d, op, draw);
    } else if (op->kind == POWER_RESIZE) {
        if (whole)
            set_size(d, op->object, (size_t)op->count);
    } else if (op->kind == POWER_PUBLISH) {
        if (whole)
            d->objects[op->object].mode = 0755;
    } else if (!durable && (!whole || is_lost(lost, op))) {
        lose(lost, op);
    } else {
        change_names(d, op);
    }
}

static void write_object(const power_log *log, const disk *d, int number, const char *path)
{
    if (log->objects[number].outside[0] != '\0') {
        must(link(log->objects[number].outside, path) == 0, path);
        return;
    }
    int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    must(descriptor >= 0, path);
    size_t count = d->objects[number].count;
    must(count == 0 || write(descriptor, d->objects[number].bytes, count) == (ssize_t)count, path);
    (void)close(descriptor);
}

static void write_names(const power_log *log, const disk *d, int folder, const char *path)
{
    for (int i = 0; i < d->names.count; i++) {
        const entry *item = &d->names.items[i];
        char inside[PATH_BYTES];
        if (item->folder != folder)
            continue;
        must(snprintf(inside, sizeof inside, "%s/%s", path, item->name) < PATH_BYTES, path);
        if (!log->objects[item->object].is_folder) {
            write_object(log, d, item->object, inside);
            continue;
        }
        must(mkdir(inside, 0700) == 0, inside);
        write_names(log, d, item->object, inside);
        must(chmod(inside, d->objects[item->object].mode) == 0, inside);
    }
}

void power_cut(const power_log *log, int at, draw_state *draw)
{
    disk *d = calloc(1, sizeof *d);
    lost_names *lost = calloc(1, sizeof *lost);
    must(d != NULL && lost != NULL && at >= 0 && at <= log->op_count, "no memory");
    d->names = log->first;
    lost->in_order = draw_chance(draw, 50);
    for (int i = 0; i < log->object_count; i++) {
        d->objects[i].mode = log->objects[i].mode;
        set_size(d, i, log->objects[i].count);
        if (log->objects[i].count != 0)
            memcpy(d->objects[i].bytes, log->objects[i].bytes, log->objects[i].count);
    }
    for (int i = 0; i < at; i++)
        apply(d, &log->ops[i], is_durable(log, i, at), lost, draw);
    power_clear(log);
    write_names(log, d, 0, log->root);
    for (int i = 0; i < log->object_count; i++)
        free(d->objects[i].bytes);
    free(lost);
    free(d);
}

void power_clear(const power_log *log)
{
    rs_names found = {.context = NULL};
    must(rs_folder_list_all(NULL, log->root, &found) == RESHARD_OK, log->root);
    for (int64_t i = 0; i < found.count; i++) {
        char path[PATH_BYTES];
        if (strncmp(found.items[i], log->prefix, strlen(log->prefix)) != 0)
            continue;
        must(snprintf(path, sizeof path, "%s/%s", log->root, found.items[i]) < PATH_BYTES, "path");
        must(remove(path) == 0 || rs_folder_remove(NULL, path) == RESHARD_OK, path);
    }
    rs_names_release(&found);
}
