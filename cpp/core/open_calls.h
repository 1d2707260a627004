// Tracks engine calls by threads that do not block process exit (daemon threads).
#pragma once

namespace pumice {

// Marks the calling thread as inside an engine call for the lifetime of this object.
class OpenCall {
 public:
  OpenCall();
  ~OpenCall();
  OpenCall(const OpenCall&) = delete;
};

// Whether any thread is inside a call. Used at process exit, when no new calls can begin.
bool has_open_calls();

}  // namespace pumice
