// Threads of the engine take no signals, and have names.
#pragma once

#include <pthread.h>

#include <csignal>

namespace pumice {

// While this lives, the calling thread and the threads that it makes have all signals blocked. A process that takes its signals by
// sigwait() has them blocked in each of its threads; one that reached a thread of the engine would end it.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

// Names the calling thread, so that a debugger and /proc tell whose it is: at most 15 characters.
inline void name_thread(const char* name) {
  pthread_setname_np(pthread_self(), name);
}

}  // namespace pumice
