// What is behind the handles of the C interface, and how its functions fail.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "core/error.h"
#include "dv/command_list.h"
#include "dv/include/dmp_dv.h"
#include "dv/refusal.h"

struct dmp_dv_context_impl {
  std::atomic<int> count{1};
  std::shared_ptr<pumice::dv::Context> context;
};

struct dmp_dv_mem_impl {
  std::atomic<int> count{1};
  dmp_dv_context context;  // retained
  std::shared_ptr<pumice::dv::Memory> memory;
};

struct dmp_dv_cmdlist_impl {
  std::atomic<int> count{1};
  dmp_dv_context context;  // retained: once, and once for every kind of device that has commands
  std::unique_ptr<pumice::dv::CommandList> list;
  std::vector<dmp_dv_mem> memories;  // retained, as often as commands name them
  unsigned devices = 0;              // a bit for each kind
};

namespace pumice::dv {

void set_error(const std::string& text);

// The number for the exception at hand, whose text becomes the last error message.
int fail();

// What `call` returns, or `failed(number)`.
template <typename Call, typename Failed>
auto guarded(const Call& call, const Failed& failed) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    return failed(fail());
  }
}

template <typename Call>
int guarded(const Call& call) noexcept {
  return guarded(call, [](int number) { return number; });
}

inline int refuse(int number, const char* text) {
  set_error(text);
  return number;
}

}  // namespace pumice::dv
