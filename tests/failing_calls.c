// A library for LD_PRELOAD: the N-th file operation or allocation of a process fails, or a signal comes before it.
//
// FAIL_AT=N, from 1; FAIL_WITH=an errno, or minus a signal; FAIL_WHAT=files or memory; FAIL_UNDER=the folder whose files count;
// FAIL_COUNT=a file for the number of operations. Programs that this one starts are not affected; with FAIL_COMPILER=1 only those with
// --compile-job are, and not this one.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static long at, counted, allocated;
static int with, armed, memory;
static const char *under = "", *count_file;

__attribute__((constructor)) static void begin(int argc, char **argv) {
    if (getenv("FAIL_COMPILER") && (argc < 2 || strcmp(argv[1], "--compile-job") != 0)) {
        return;
    }
    const char *number = getenv("FAIL_AT");
    with = getenv("FAIL_WITH") ? atoi(getenv("FAIL_WITH")) : EIO;
    under = getenv("FAIL_UNDER") ? getenv("FAIL_UNDER") : "/nowhere";
    memory = getenv("FAIL_WHAT") && strcmp(getenv("FAIL_WHAT"), "memory") == 0;
    count_file = getenv("FAIL_COUNT");
    unsetenv("LD_PRELOAD");
    at = number ? atol(number) : 0;
    armed = 1;
}

__attribute__((destructor)) static void end(void) {
    armed = 0;
    if (count_file) {
        char text[32];
        const int length = snprintf(text, sizeof text, "%ld", memory ? allocated : counted);
        const int file = (int)syscall(SYS_openat, AT_FDCWD, count_file, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        syscall(SYS_write, file, text, (size_t)length);
    }
}

// Whether this operation is the one that fails; then errno says why.
static int fails(void) {
    if (!armed || memory || __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST) != at) {
        return 0;
    }
    if (with < 0) {
        raise(-with);
        return 0;
    }
    errno = with;
    return 1;
}

static int counts(const char *path) {
    return armed && path && strncmp(path, under, strlen(under)) == 0;
}

static int counts_open(int file) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t length = armed ? readlink(link, path, sizeof path - 1) : -1;
    if (length < 0) {
        return 0;
    }
    path[length] = 0;
    return counts(path);
}

#define REAL(type, name, ...)                                                                                                              \
    static type (*real)(__VA_ARGS__);                                                                                                      \
    if (!real) {                                                                                                                           \
        real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name);                                                                               \
    }

#define OPEN(name)                                                                                                                         \
    int name(const char *path, int flags, ...) {                                                                                           \
        REAL(int, #name, const char *, int, ...)                                                                                           \
        va_list more;                                                                                                                      \
        va_start(more, flags);                                                                                                             \
        const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(more, mode_t) : 0;                                                  \
        va_end(more);                                                                                                                      \
        return counts(path) && fails() ? -1 : real(path, flags, mode);                                                                     \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                                                       \
    int name(int folder, const char *path, int flags, ...) {                                                                               \
        REAL(int, #name, int, const char *, int, ...)                                                                                      \
        va_list more;                                                                                                                      \
        va_start(more, flags);                                                                                                             \
        const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(more, mode_t) : 0;                                                  \
        va_end(more);                                                                                                                      \
        return counts(path) && fails() ? -1 : real(folder, path, flags, mode);                                                             \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                                                                                        \
    FILE *name(const char *path, const char *how) {                                                                                        \
        REAL(FILE *, #name, const char *, const char *)                                                                                    \
        return counts(path) && fails() ? NULL : real(path, how);                                                                           \
    }
FOPEN(fopen)
FOPEN(fopen64)

ssize_t write(int file, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t)
    if (counts_open(file) && fails()) {
        if (size > 1) {
            real(file, data, size / 2); // a full disk takes a part
        }
        errno = with;
        return -1;
    }
    return real(file, data, size);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int)
    return counts_open(file) && fails() ? -1 : real(file, parts, count);
}

#define OF_FILE(name)                                                                                                                      \
    int name(int file) {                                                                                                                   \
        REAL(int, #name, int)                                                                                                              \
        return counts_open(file) && fails() ? -1 : real(file);                                                                             \
    }
OF_FILE(fsync)

int ftruncate(int file, off_t size) {
    REAL(int, "ftruncate", int, off_t)
    return counts_open(file) && fails() ? -1 : real(file, size);
}

int ftruncate64(int file, off64_t size) {
    REAL(int, "ftruncate64", int, off64_t)
    return counts_open(file) && fails() ? -1 : real(file, size);
}

#define OF_TWO(name)                                                                                                                       \
    int name(const char *from, const char *to) {                                                                                           \
        REAL(int, #name, const char *, const char *)                                                                                       \
        return counts(to) && fails() ? -1 : real(from, to);                                                                                \
    }
OF_TWO(rename)
OF_TWO(link)

int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t)
    return counts(path) && fails() ? -1 : real(path, mode);
}

char *mkdtemp(char *pattern) {
    REAL(char *, "mkdtemp", char *)
    return counts(pattern) && fails() ? NULL : real(pattern);
}

DIR *opendir(const char *path) {
    REAL(DIR *, "opendir", const char *)
    return counts(path) && fails() ? NULL : real(path);
}

// What cannot be removed is left: only a signal comes before it.
int unlink(const char *path) {
    REAL(int, "unlink", const char *)
    if (counts(path) && with < 0) {
        fails();
    }
    return real(path);
}

int memfd_create(const char *name, unsigned flags) {
    REAL(int, "memfd_create", const char *, unsigned)
    return armed && fails() ? -1 : real(name, flags);
}

int pipe2(int ends[2], int flags) {
    REAL(int, "pipe2", int *, int)
    return armed && fails() ? -1 : real(ends, flags);
}

pid_t fork(void) {
    REAL(pid_t, "fork", void)
    return armed && fails() ? -1 : real();
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *with_what) {
    REAL(int, "pthread_create", pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)
    return armed && fails() ? EAGAIN : real(thread, how, run, with_what);
}

static int out_of_memory(void) {
    if (!armed || !memory || __atomic_add_fetch(&allocated, 1, __ATOMIC_SEQ_CST) != at) {
        return 0;
    }
    errno = ENOMEM;
    return 1;
}

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

void *malloc(size_t size) {
    return out_of_memory() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    return out_of_memory() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *block, size_t size) {
    return out_of_memory() ? NULL : __libc_realloc(block, size);
}
