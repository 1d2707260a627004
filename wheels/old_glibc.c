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
int __fxstat(int version, int file, struct stat* result);
int __xstat(int version, const char* path, struct stat* result);
int __lxstat(int version, const char* path, struct stat* result);
int __fxstatat(int version, int folder, const char* path, struct stat* result, int flags);
int __fxstat64(int version, int file, struct stat64* result);
int __xstat64(int version, const char* path, struct stat64* result);
int __lxstat64(int version, const char* path, struct stat64* result);
int __fxstatat64(int version, int folder, const char* path, struct stat64* result, int flags);

int fstat(int file, struct stat* result) {
  return __fxstat(kStatVersion, file, result);
}
int stat(const char* path, struct stat* result) {
  return __xstat(kStatVersion, path, result);
}
int lstat(const char* path, struct stat* result) {
  return __lxstat(kStatVersion, path, result);
}
int fstatat(int folder, const char* path, struct stat* result, int flags) {
  return __fxstatat(kStatVersion, folder, path, result, flags);
}
int fstat64(int file, struct stat64* result) {
  return __fxstat64(kStatVersion, file, result);
}
int stat64(const char* path, struct stat64* result) {
  return __xstat64(kStatVersion, path, result);
}
int lstat64(const char* path, struct stat64* result) {
  return __lxstat64(kStatVersion, path, result);
}
int fstatat64(int folder, const char* path, struct stat64* result, int flags) {
  return __fxstatat64(kStatVersion, folder, path, result, flags);
}

// glibc 2.30 waits by a clock of the caller's choice. The system's own is used where there is one: without it a wait by the
// monotonic clock is one by the real-time clock for as long as is left, which a change of that clock makes longer or shorter.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const struct timespec* until) {
  typedef int Wait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  static void* known = NULL;
  static int looked = 0;
  if (!__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) {
    __atomic_store_n(&known, dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"), __ATOMIC_RELAXED);
    __atomic_store_n(&looked, 1, __ATOMIC_RELEASE);
  }
  Wait* const wait = (Wait*)__atomic_load_n(&known, __ATOMIC_RELAXED);
  if (wait) return wait(condition, mutex, clock, until);

  enum { kSecond = 1000000000 };
  struct timespec now, real;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &real) != 0) return EINVAL;
  real.tv_sec += until->tv_sec - now.tv_sec;
  real.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (real.tv_nsec < 0) {
    real.tv_nsec += kSecond;
    real.tv_sec -= 1;
  } else if (real.tv_nsec >= kSecond) {
    real.tv_nsec -= kSecond;
    real.tv_sec += 1;
  }
  if (real.tv_sec < 0) return ETIMEDOUT;  // long past
  return pthread_cond_timedwait(condition, mutex, &real);
}

// glibc 2.36 has random numbers; std::random_device names them.
uint32_t arc4random(void) {
  uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) abort();
  return number;
}
