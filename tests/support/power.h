/* SPDX-License-Identifier: Apache-2.0 */
/*
 * power.h - what a disk may hold after the power was cut. The file calls of contexts are recorded
 * (rs_file_calls); a state is everything that was synced before the cut, and of the rest a part
 * drawn from a seed, as a journalling file system may have come to write it:
 *
 *  - bytes: each page of a write is there or is not, and one may be torn at a sector;
 *  - sizes: a new size is there or is not; what was not written reads as zeros;
 *  - names: all up to some change, in the order they were made, or each name by itself up to some
 *    change of it. A rename is whole or did not happen.
 *
 * fsync of a file is all that makes its bytes and size last, fsync of a folder its names and mode.
 * Several ranks are several machines: each syncs what it wrote itself.
 */
#ifndef TESTS_SUPPORT_POWER_H
#define TESTS_SUPPORT_POWER_H

#include "system/file.h"
#include "tests/support/random.h"

enum { POWER_OWNERS_MAX = 8, POWER_NAME_MAX = 128 };

typedef enum power_kind {
    POWER_WRITE,
    POWER_RESIZE,
    POWER_SYNC, /* a file's bytes and size, or a folder's names and mode */
    POWER_CREATE,
    POWER_LINK,
    POWER_REMOVE,
    POWER_RENAME,
    POWER_PUBLISH /* of a folder: others may read it */
} power_kind;

/* A change, or a sync. Objects are numbered; 0 is the root. */
typedef struct power_op {
    power_kind kind;
    int owner;
    int object;                    /* that is written, synced, named, .. */
    int folder;                    /* where a name changes */
    char name[POWER_NAME_MAX];     /* that appears or goes */
    int old_folder;                /* where a rename takes a name away */
    char old_name[POWER_NAME_MAX]; /* that name */
    uint64_t at, count;            /* of a write; the new size is `count` */
    char *bytes;
} power_op;

typedef struct power_log power_log;

/* Records what happens to names in `root` that begin with `prefix`, and in folders of such names.
 * What is there now is on disk. */
power_log *power_begin(const char *root, const char *prefix);
/* Takes NULL. */
void power_end(power_log *log);
/* Calls for one rank's context; sync is not waited for. */
rs_file_calls power_calls(power_log *log, int owner);

int power_count(const power_log *log);
const power_op *power_at(const power_log *log, int index);
/* How many objects there are, and the name that one had first. */
int power_object_count(const power_log *log);
const char *power_object_name(const power_log *log, int object);
bool power_is_folder(const power_log *log, int object);

/* Brings the root to a state of a cut just before the operation `at` (or behind the last one). */
void power_cut(const power_log *log, int at, draw_state *draw);
/* Removes all names with the prefix. */
void power_clear(const power_log *log);

#endif
