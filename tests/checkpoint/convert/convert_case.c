/* SPDX-License-Identifier: Apache-2.0 */
#include "convert_case.h"

#include "base/context.h"
#include "tests/support/copying.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { TENSOR_COUNT = 6, TENSOR_BYTES = 600 * 200 * 4, DATA_BYTES = TENSOR_COUNT * TENSOR_BYTES };

static const char *const names[] = {"model.safetensors", "config.json"};

/* ---- files ----------------------------------------------------------------------------------- */

static bool write_file(const char *folder, const char *name, const void *head, size_t head_count,
                       const void *body, size_t body_count)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return false;
    bool done = fwrite(head, 1, head_count, file) == head_count &&
                fwrite(body, 1, body_count, file) == body_count;
    return fclose(file) == 0 && done;
}

static bool write_model(const convert_case *c)
{
    unsigned char head[1024] = {0};
    char *text = (char *)head + 8;
    int count = 0;
    for (int i = 0; i < TENSOR_COUNT; i++)
        count += snprintf(text + count, sizeof head - 8 - (size_t)count,
                          "%c\"%c\":{\"dtype\":\"F32\",\"shape\":[600,200],"
                          "\"data_offsets\":[%d,%d]}%s",
                          i == 0 ? '{' : ',', 'a' + i, i * TENSOR_BYTES, (i + 1) * TENSOR_BYTES,
                          i == TENSOR_COUNT - 1 ? "}" : "");
    for (int i = 0; i < 8; i++)
        head[i] = (unsigned char)((unsigned long long)count >> (8 * i) & 0xff);
    char *data = malloc(DATA_BYTES);
    if (data == NULL)
        return false;
    for (int i = 0; i < DATA_BYTES; i++)
        data[i] = (char)(i * 7 + i / 251);
    bool done = write_file(c->source, names[0], head, 8 + (size_t)count, data, DATA_BYTES);
    free(data);
    return done;
}

static bool stamp(const convert_case *c, int index, uint64_t *bytes, int64_t *changed)
{
    char path[256];
    struct stat found;
    (void)snprintf(path, sizeof path, "%s/%s", c->source, names[index]);
    if (stat(path, &found) != 0)
        return false;
    *bytes = (uint64_t)found.st_size;
    *changed = (int64_t)found.st_mtim.tv_sec * 1000000000 + (int64_t)found.st_mtim.tv_nsec;
    return true;
}

bool convert_case_source_is_same(const convert_case *c)
{
    for (int i = 0; i < 2; i++) {
        uint64_t bytes = 0;
        int64_t changed = 0;
        if (!stamp(c, i, &bytes, &changed) || bytes != c->source_bytes[i] ||
            changed != c->source_changed[i])
            return false;
    }
    return true;
}

int convert_case_begin(convert_case *c)
{
    memset(c, 0, sizeof *c);
    /* In memory where that is possible: folders are really synced. */
    (void)snprintf(c->folder, sizeof c->folder, "/dev/shm/reshard-test-XXXXXX");
    if (mkdtemp(c->folder) == NULL) {
        (void)snprintf(c->folder, sizeof c->folder, "/tmp/reshard-test-XXXXXX");
        if (mkdtemp(c->folder) == NULL)
            return -1;
    }
    (void)snprintf(c->source, sizeof c->source, "%s/source", c->folder);
    (void)snprintf(c->expected, sizeof c->expected, "%s/expected", c->folder);
    (void)snprintf(c->target, sizeof c->target, "%s/target", c->folder);
    (void)snprintf(c->partial, sizeof c->partial, "%s.partial", c->target);
    (void)snprintf(c->rules, sizeof c->rules, "%s/rules", c->folder);
    static const char rules[] = "{a,d} S(0)@tp\n{b,e} S(1)@tp\n* R\n";
    bool done = mkdir(c->source, 0700) == 0 && write_model(c) &&
                write_file(c->source, names[1], "{}", 2, "", 0) &&
                write_file(c->folder, "rules", rules, sizeof rules - 1, "", 0);
    for (int i = 0; i < 2; i++)
        done = done && stamp(c, i, &c->source_bytes[i], &c->source_changed[i]);
    return done ? 0 : -1;
}

bool convert_case_exists(const char *path)
{
    struct stat found;
    return lstat(path, &found) == 0;
}

bool convert_case_is_file(const char *path)
{
    struct stat found;
    return lstat(path, &found) == 0 && S_ISREG(found.st_mode);
}

void convert_case_remove(const convert_case *c)
{
    if (convert_case_is_file(c->target))
        (void)remove(c->target);
    else if (convert_case_exists(c->target))
        (void)rs_folder_remove(NULL, c->target);
    if (convert_case_exists(c->partial))
        (void)rs_folder_remove(NULL, c->partial);
}

int convert_case_end(convert_case *c)
{
    convert_case_remove(c);
    (void)rs_folder_remove(NULL, c->source);
    (void)rs_folder_remove(NULL, c->expected);
    return rs_folder_remove(NULL, c->folder) == RESHARD_OK ? 0 : -1;
}

static bool same_file(const char *a, const char *b, const char *name)
{
    char *texts[2] = {NULL, NULL};
    size_t counts[2] = {0, 0};
    bool same = true;
    for (int i = 0; i < 2; i++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s%s%s", i == 0 ? a : b, name[0] != '\0' ? "/" : "",
                       name);
        same = same && rs_file_read_all(NULL, path, 1 << 24, &texts[i], &counts[i]) == RESHARD_OK;
    }
    same = same && counts[0] == counts[1] && memcmp(texts[0], texts[1], counts[0]) == 0;
    for (int i = 0; i < 2; i++) {
        rs_release(NULL, texts[i]);
    }
    return same;
}

bool convert_case_is_whole(const convert_case *c)
{
    int counts[2] = {0, 0};
    bool same = true;
    if (convert_case_is_file(c->expected))
        return same_file(c->expected, c->target, "");
    for (int i = 0; i < 2; i++) {
        DIR *folder = opendir(i == 0 ? c->expected : c->target);
        if (folder == NULL)
            return false;
        for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            /* The journal is there until the very last step. */
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                strcmp(entry->d_name, ".reshard-journal") == 0)
                continue;
            counts[i]++;
            same = same && (i == 1 || same_file(c->expected, c->target, entry->d_name));
        }
        (void)closedir(folder);
    }
    return same && counts[0] == counts[1] && counts[0] > 1;
}

/* ---- calls that fail ------------------------------------------------------------------------- */

static bool fails_now(convert_faults *given)
{
    if (atomic_fetch_sub(&given->countdown, 1) != 1)
        return false;
    if (given->kills)
        (void)raise(SIGKILL);
    errno = given->error;
    return true;
}

static size_t limit(const convert_faults *given, size_t count)
{
    return given->most != 0 && count > given->most ? given->most : count;
}

static int64_t read_call(void *user, int descriptor, void *bytes, size_t count, uint64_t at)
{
    if (fails_now(user))
        return -1;
    return rs_file_calls_system()->read(NULL, descriptor, bytes, limit(user, count), at);
}

static int64_t write_call(void *user, int descriptor, const void *bytes, size_t count, uint64_t at)
{
    convert_faults *given = user;
    if (given->kills && atomic_load(&given->countdown) == 1)
        (void)rs_file_calls_system()->write(NULL, descriptor, bytes, (count + 1) / 2, at);
    if (fails_now(given))
        return -1;
    return rs_file_calls_system()->write(NULL, descriptor, bytes, limit(given, count), at);
}

static int64_t copy_call(void *user, int from, uint64_t from_at, int to, uint64_t to_at,
                         size_t count)
{
    convert_faults *given = user;
    int before = atomic_fetch_add(&given->copies, count > 1000);
    if (given->no_copy == 1 || (given->no_copy == 2 && before % 2 != 0)) {
        errno = EXDEV;
        return -1;
    }
    if (fails_now(given))
        return -1;
    return copying_call(from, from_at, to, to_at, limit(given, count));
}

static int sync_call(void *user, int descriptor)
{
    (void)descriptor; /* not slowed down by a disk that nobody looks at */
    return fails_now(user) ? -1 : 0;
}

static int may_call(void *user, const char *what, const char *path)
{
    (void)what, (void)path;
    return fails_now(user) ? -1 : 0;
}

rs_file_calls convert_faults_calls(convert_faults *faults)
{
    return (rs_file_calls){read_call, write_call, copy_call, sync_call, faults, may_call, NULL};
}
