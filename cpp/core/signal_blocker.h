// Signal blocking and names for engine threads.
#pragma once

#include <pthread.h>

#include <csignal>

namespace pumice {

// Blocks all signals in the calling thread, and in threads it creates, for the lifetime of this object. A process that uses sigwait()
// blocks its signals in every thread; a signal delivered to an engine thread would kill it.
class SignalBlocker {
 public:
  SignalBlocker() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalBlocker() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalBlocker(const SignalBlocker&) = delete;

 private:
  sigset_t before_;
};

// Names the calling thread for debuggers and /proc; at most 15 characters.
inline void set_thread_name(const char* name) {
  pthread_setname_np(pthread_self(), name);
}

}  // namespace pumice
