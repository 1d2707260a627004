// What GCC 12's C++ library and headers use of glibc that glibc 2.28 lacks. It is linked into each library of a wheel and hidden there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

// glibc 2.32 sets this if the process has one thread; without it counters are always atomic.
char __libc_single_threaded = 0;

// glibc 2.33 made functions of these; before, the headers called the ones with a version of the structure.
#if defined(__x86_64__)
enum { kStatVersion = 1 };
#else
enum { kStatVersion = 0 };
#endif
#define DEFINE_STAT(prefix, type, bits)                                           \
  int __##prefix##xstat##bits(int version, type file, struct stat##bits* result); \
  int prefix##stat##bits(type file, struct stat##bits* result) {                  \
    return __##prefix##xstat##bits(kStatVersion, file, result);                   \
  }
DEFINE_STAT(, const char*, )
DEFINE_STAT(l, const char*, )
DEFINE_STAT(f, int, )
DEFINE_STAT(f, int, 64)

int __fxstatat(int version, int folder, const char* path, struct stat* result, int flags);
int fstatat(int folder, const char* path, struct stat* result, int flags) {
  return __fxstatat(kStatVersion, folder, path, result, flags);
}

// glibc 2.30 waits by a clock of the caller's choice. The system's own is used where there is one: without it a wait by the
// monotonic clock is one by the real-time clock for as long as is left, which a change of that clock makes longer or shorter.
typedef int Wait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
static Wait* system_wait;
__attribute__((constructor)) static void find_system_wait(void) {
  system_wait = (Wait*)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const struct timespec* until) {
  if (system_wait) return system_wait(condition, mutex, clock, until);

  enum { kSecond = 1000000000 };
  struct timespec now, real;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &real) != 0) return EINVAL;
  const int64_t nanoseconds = kSecond + (int64_t)real.tv_nsec + until->tv_nsec - now.tv_nsec;
  real.tv_sec += until->tv_sec - now.tv_sec + nanoseconds / kSecond - 1;
  real.tv_nsec = nanoseconds % kSecond;
  if (real.tv_sec < 0) return ETIMEDOUT;  // long past
  return pthread_cond_timedwait(condition, mutex, &real);
}

// glibc 2.36 has random numbers; std::random_device names them.
uint32_t arc4random(void) {
  uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) abort();
  return number;
}
