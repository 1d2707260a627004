// Tracks engine calls by threads that do not block process exit (daemon threads).
#pragma once

namespace pumice {

// Marks the calling thread as inside an engine call for the lifetime of this object.
class ActiveCallGuard {
 public:
  ActiveCallGuard();
  ~ActiveCallGuard();
  ActiveCallGuard(const ActiveCallGuard&) = delete;
};

// Whether any thread is inside a call. Used at process exit, when no new calls can begin.
bool has_active_calls();

}  // namespace pumice
