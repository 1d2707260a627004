// Calls into the engine by threads that the end of the process does not wait for.
#pragma once

namespace pumice {

// A call that its thread is in for as long as this lives.
class OpenCall {
 public:
  OpenCall();
  ~OpenCall();
  OpenCall(const OpenCall&) = delete;
};

// Whether any thread is in such a call. Asked at the end of the process, when no thread begins another.
bool has_open_calls();

}  // namespace pumice
