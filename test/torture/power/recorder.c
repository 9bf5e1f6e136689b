/*
 * Preloaded into a process of the tests: writes to SVC_POWER_LOG what the process does to files below SVC_POWER_ROOT,
 * in order: what it writes, names, cuts and syncs. disk-log.ts reads it. A record is complete when the call has
 * returned; a sync has two, since it covers what was written before it began.
 *
 * SVC_POWER_FAIL=<n>:<suffix>  the n-th sync of a file whose name ends so fails with EIO, and is not made
 * SVC_POWER_FAIL_WHEN=<file>   and it is counted from when this file is there
 * SVC_POWER_LIE=<suffix>       syncs of such files return without being made: a disk that answers before it has written
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, WRITE, CUT, SYNC_BEGIN, SYNC_END, RENAME, UNLINK, MKDIR, LINK };

struct record {
  uint32_t kind, flags;
  uint64_t node;
  int64_t at;
  uint32_t first, second; /* lengths of what follows: a path or bytes, a second path */
};

#define MOST 65536
static uint64_t nodes[MOST]; /* of open descriptors below the root; 0: none of ours */
static uint8_t synced[MOST]; /* opened so that each write is synced */
static uint8_t fails[MOST], lies[MOST];
static int log_fd = -1;
static const char *root;
static size_t root_length;
static long fail_at = -1;
static const char *fail_suffix, *fail_when, *lie_suffix;
static uint64_t sync_number;
static long matching;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define LOOKED_UP(name) static __typeof__(&name) real_##name; if (!real_##name) real_##name = REAL(name)

static int ends_with(const char *text, const char *suffix) {
  size_t a = strlen(text), b = strlen(suffix);
  return a >= b && strcmp(text + a - b, suffix) == 0;
}

__attribute__((constructor)) static void begin(void) {
  root = getenv("SVC_POWER_ROOT");
  const char *log = getenv("SVC_POWER_LOG");
  if (!root || !log) { root = NULL; return; }
  root_length = strlen(root);
  LOOKED_UP(open);
  log_fd = real_open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  const char *fail = getenv("SVC_POWER_FAIL");
  if (fail && strchr(fail, ':')) {
    fail_at = atol(fail);
    fail_suffix = strchr(fail, ':') + 1;
  }
  fail_when = getenv("SVC_POWER_FAIL_WHEN");
  lie_suffix = getenv("SVC_POWER_LIE");
}

static void tell(struct record head, const void *a, const void *b) {
  LOOKED_UP(writev);
  struct iovec parts[3] = {{&head, sizeof head}, {(void *)a, head.first}, {(void *)b, head.second}};
  int before = errno;
  if (real_writev(log_fd, parts, 3) != (ssize_t)(sizeof head + head.first + head.second)) abort();
  errno = before;
}

static int ours(const char *path) { return root && strncmp(path, root, root_length) == 0 && !ends_with(path, "-shm"); }

/* Held while a call is made and recorded: a process that kills itself has recorded what it did. */
static pthread_rwlock_t making = PTHREAD_RWLOCK_INITIALIZER;
#define MAKE(result, call, ...)          \
  pthread_rwlock_rdlock(&making);         \
  result = call;                          \
  __VA_ARGS__;                            \
  pthread_rwlock_unlock(&making)

int kill(pid_t process, int signal) {
  LOOKED_UP(kill);
  if (process == getpid() && signal == SIGKILL) pthread_rwlock_wrlock(&making);
  return real_kill(process, signal);
}

static void opened(int fd, int flags) {
  if (!root || fd < 0 || fd >= MOST || fd == log_fd) return;
  nodes[fd] = 0;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = 0;
  if (!ours(path)) return;
  struct stat found;
  if (fstat(fd, &found) != 0) return;
  nodes[fd] = found.st_ino;
  synced[fd] = (flags & O_DSYNC) != 0;
  fails[fd] = fail_suffix && ends_with(path, fail_suffix);
  lies[fd] = lie_suffix && ends_with(path, lie_suffix);
  struct record head = {OPEN, (flags & O_TRUNC ? 1 : 0) | (S_ISDIR(found.st_mode) ? 2 : 0), found.st_ino, 0, length, 0};
  tell(head, path, "");
}

#define OPENER(name)                                                          \
  int name(const char *path, int flags, ...) {                                \
    LOOKED_UP(name);                                                          \
    va_list more; va_start(more, flags);                                      \
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0; \
    va_end(more);                                                             \
    int fd; MAKE(fd, real_##name(path, flags, mode), opened(fd, flags));        \
                                                        \
    return fd;                                                                \
  }
OPENER(open)
OPENER(open64)

#define OPENER_AT(name)                                                       \
  int name(int folder, const char *path, int flags, ...) {                    \
    LOOKED_UP(name);                                                          \
    va_list more; va_start(more, flags);                                      \
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0; \
    va_end(more);                                                             \
    int fd; MAKE(fd, real_##name(folder, path, flags, mode), opened(fd, flags)); \
                                                        \
    return fd;                                                                \
  }
OPENER_AT(openat)
OPENER_AT(openat64)

int close(int fd) {
  LOOKED_UP(close);
  if (fd >= 0 && fd < MOST) nodes[fd] = 0;
  return real_close(fd);
}

static int watched(int fd) { return fd >= 0 && fd < MOST && nodes[fd] != 0; }

static void wrote(int fd, int64_t at, const void *bytes, size_t length) {
  if (length == 0) return;
  struct record head = {WRITE, synced[fd], nodes[fd], at, length, 0};
  tell(head, bytes, "");
}

static void wrote_parts(int fd, int64_t at, const struct iovec *parts, int count, ssize_t written) {
  for (int i = 0; i < count && written > 0; i++) {
    size_t length = (size_t)written < parts[i].iov_len ? (size_t)written : parts[i].iov_len;
    wrote(fd, at, parts[i].iov_base, length);
    at += length;
    written -= length;
  }
}

ssize_t write(int fd, const void *bytes, size_t length) {
  LOOKED_UP(write);
  ssize_t written; MAKE(written, real_write(fd, bytes, length),
  if (written > 0 && watched(fd)) wrote(fd, lseek(fd, 0, SEEK_CUR) - written, bytes, written));
  return written;
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
  LOOKED_UP(writev);
  ssize_t written; MAKE(written, real_writev(fd, parts, count),
  if (written > 0 && watched(fd)) wrote_parts(fd, lseek(fd, 0, SEEK_CUR) - written, parts, count, written));
  return written;
}
#define PWRITER(name, offset_type)                                       \
  ssize_t name(int fd, const void *bytes, size_t length, offset_type at) { \
    LOOKED_UP(name);                                                     \
    ssize_t written; MAKE(written, real_##name(fd, bytes, length, at),                \
    if (written > 0 && watched(fd)) wrote(fd, at, bytes, written));       \
    return written;                                                      \
  }
PWRITER(pwrite, off_t)
PWRITER(pwrite64, off64_t)
#define PWRITERV(name, offset_type)                                              \
  ssize_t name(int fd, const struct iovec *parts, int count, offset_type at) {    \
    LOOKED_UP(name);                                                             \
    ssize_t written; MAKE(written, real_##name(fd, parts, count, at),                         \
    if (written > 0 && watched(fd)) wrote_parts(fd, at, parts, count, written));  \
    return written;                                                              \
  }
PWRITERV(pwritev, off_t)
PWRITERV(pwritev64, off64_t)

#define CUTTER(name, offset_type)                                       \
  int name(int fd, offset_type length) {                                \
    LOOKED_UP(name);                                                    \
    int result; MAKE(result, real_##name(fd, length),                               \
    if (result == 0 && watched(fd)) tell((struct record){CUT, 0, nodes[fd], length, 0, 0}, "", "")); \
    return result;                                                      \
  }
CUTTER(ftruncate, off_t)
CUTTER(ftruncate64, off64_t)

static int sync_with(int fd, int (*sync)(int)) {
  if (!watched(fd)) return sync(fd);
  if (lies[fd]) return 0;
  uint64_t number = __sync_add_and_fetch(&sync_number, 1) | ((uint64_t)getpid() << 32);
  uint64_t node = nodes[fd];
  tell((struct record){SYNC_BEGIN, 0, node, (int64_t)number, 0, 0}, "", "");
  int counted = fails[fd] && (!fail_when || access(fail_when, F_OK) == 0);
  int fault = counted && __sync_add_and_fetch(&matching, 1) == fail_at;
  int result = fault ? -1 : sync(fd);
  if (fault) errno = EIO;
  tell((struct record){SYNC_END, result == 0 ? 0 : 1, node, (int64_t)number, 0, 0}, "", "");
  return result;
}
int fsync(int fd) { LOOKED_UP(fsync); return sync_with(fd, real_fsync); }
int fdatasync(int fd) { LOOKED_UP(fdatasync); return sync_with(fd, real_fdatasync); }

static const char *whole(const char *path, char *buffer) {
  if (path[0] == '/') return path;
  if (!getcwd(buffer, PATH_MAX)) return path;
  size_t length = strlen(buffer);
  snprintf(buffer + length, PATH_MAX - length, "/%s", path);
  return buffer;
}
static void named(int kind, const char *a, const char *b) {
  char first[PATH_MAX], second[PATH_MAX];
  a = whole(a, first);
  if (b) b = whole(b, second);
  if (ours(a)) tell((struct record){kind, 0, 0, 0, strlen(a), b ? strlen(b) : 0}, a, b ? b : "");
}
int rename(const char *from, const char *to) {
  LOOKED_UP(rename);
  int result; MAKE(result, real_rename(from, to), if (result == 0) named(RENAME, from, to));
  return result;
}
int link(const char *from, const char *to) {
  LOOKED_UP(link);
  int result; MAKE(result, real_link(from, to), if (result == 0) named(LINK, from, to));
  return result;
}
int unlink(const char *path) {
  LOOKED_UP(unlink);
  int result; MAKE(result, real_unlink(path), if (result == 0) named(UNLINK, path, NULL));
  return result;
}
int mkdir(const char *path, mode_t mode) {
  LOOKED_UP(mkdir);
  int result; MAKE(result, real_mkdir(path, mode), if (result == 0) named(MKDIR, path, NULL));
  return result;
}
