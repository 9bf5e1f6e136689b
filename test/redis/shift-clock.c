/*
 * Loaded before redis-server: its wall clock is off by as many ms as stand, as a 64-bit number, at the beginning of the
 * file that SVC_TEST_CLOCK names, and jumps when that changes. Clocks that count are as they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *off_ms = NULL;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("SVC_TEST_CLOCK");
  int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) abort();
  void *page = mmap(NULL, sizeof *off_ms, PROT_READ, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) abort();
  close(file);
  off_ms = page;
}

static int64_t off(void) { return off_ms == NULL ? 0 : *off_ms; }

static int real_clock(clockid_t id, struct timespec *at) {
  static int (*next)(clockid_t, struct timespec *) = NULL;
  if (next == NULL) next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  return next(id, at);
}

int clock_gettime(clockid_t id, struct timespec *at) {
  int result = real_clock(id, at);
  if (result != 0 || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return result;
  int64_t nanos = at->tv_nsec + (off() % 1000) * 1000000;
  at->tv_sec += off() / 1000 + (nanos < 0 ? -1 : nanos / 1000000000);
  at->tv_nsec = (nanos + 1000000000) % 1000000000;
  return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  (void)zone;
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at != NULL) *at = now.tv_sec;
  return now.tv_sec;
}
