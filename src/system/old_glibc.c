/* SPDX-License-Identifier: Apache-2.0 */
/*
 * old_glibc.c - lets libreshard.so run with glibc 2.28, whichever glibc it was built with.
 *
 * glibc 2.33 and 2.34 gave some functions a new symbol version without changing what they do, and
 * the linker picks the newest. The wrappers here call the old versions. The linker redirects the
 * library's calls to them (--wrap, in src/CMakeLists.txt), in the shared library only. Before 2.34,
 * threads are in libpthread, so that is linked explicitly.
 */
#include "system/thread.h"

#include <sys/stat.h>

#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
enum { STAT_VERSION = 1 };
#elif defined(__aarch64__)
#define OLDEST "GLIBC_2.17"
enum { STAT_VERSION = 0 };
#endif

/* Declares old_<name> as the oldest version of <name>, which every glibc for this architecture
 * has. */
#define OLD(name) __asm__(".symver old_" #name ", " #name "@" OLDEST)

int old_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int old_pthread_join(pthread_t, void **);
int old___xstat(int, const char *, struct stat *);
int old___lxstat(int, const char *, struct stat *);
int old___fxstat(int, int, struct stat *);
OLD(pthread_create);
OLD(pthread_join);
OLD(__xstat);
OLD(__lxstat);
OLD(__fxstat);

int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_join(pthread_t, void **);
int __wrap_stat(const char *, struct stat *);
int __wrap_lstat(const char *, struct stat *);
int __wrap_fstat(int, struct stat *);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *user)
{
    return old_pthread_create(thread, attributes, body, user);
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    return old_pthread_join(thread, result);
}

int __wrap_stat(const char *path, struct stat *information)
{
    return old___xstat(STAT_VERSION, path, information);
}

int __wrap_lstat(const char *path, struct stat *information)
{
    return old___lxstat(STAT_VERSION, path, information);
}

int __wrap_fstat(int descriptor, struct stat *information)
{
    return old___fxstat(STAT_VERSION, descriptor, information);
}
