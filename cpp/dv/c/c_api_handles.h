// The objects of the C interface's handles, and its error handling.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.h"
#include "dv/command_list.h"
#include "dv/include/dmp_dv.h"
#include "dv/memory/dv_error.h"

namespace pumice::dv {

// Returns a process-wide unique number. Handles are never reused, so a stale one cannot refer to another object.
uintptr_t next_handle_number();

// Live objects of one kind by handle. A handle is a number, not an address, so a stale one is detected instead of dereferenced.
// Thread-safe; an object stays alive while a call uses it.
template <typename Handle, typename Object>
class HandleTable {
 public:
  Handle insert(std::shared_ptr<Object> object) {
    const uintptr_t number = next_handle_number();
    const std::lock_guard lock(mutex_);
    live_.emplace(number, HandleEntry{std::move(object), 1});
    return reinterpret_cast<Handle>(number);
  }

  // Returns the object of a handle, or null.
  std::shared_ptr<Object> find(Handle handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(reinterpret_cast<uintptr_t>(handle));
    return found == live_.end() ? nullptr : found->second.object;
  }

  // Returns the new reference count; negative for an invalid handle.
  int retain(Handle handle) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(reinterpret_cast<uintptr_t>(handle));
    return found == live_.end() ? -1 : ++found->second.count;
  }

  // Returns the new reference count; negative for an invalid handle. At 0 the object is destroyed, after any call that still uses it.
  int release(Handle handle) {
    std::shared_ptr<Object> last;  // destroyed after the lock is released
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(reinterpret_cast<uintptr_t>(handle));
    if (found == live_.end()) return -1;
    const int left = --found->second.count;
    if (left > 0) return left;
    last = std::move(found->second.object);
    live_.erase(found);
    return 0;
  }

 private:
  struct HandleEntry {
    std::shared_ptr<Object> object;
    int count;
  };

  mutable std::mutex mutex_;
  std::map<uintptr_t, HandleEntry> live_;
};

// Objects with handles. Each retains the handles that it uses until it is destroyed.
struct MemoryObject {
  dmp_dv_context context = nullptr;
  std::shared_ptr<Memory> memory;
  ~MemoryObject();
};

struct CommandListObject {
  dmp_dv_context context = nullptr;  // retained once, plus once for each kind of device with commands
  std::unique_ptr<CommandList> list;
  std::vector<dmp_dv_mem> memories = {};  // one entry per use in a command
  unsigned devices = 0;                   // bit mask of device kinds
  ~CommandListObject();
};

// The process's live objects by kind. The tables are never freed, because programs may call at exit.
HandleTable<dmp_dv_context, Context>& get_context_handles();
HandleTable<dmp_dv_mem, MemoryObject>& get_memory_handles();
HandleTable<dmp_dv_cmdlist, CommandListObject>& get_command_list_handles();

void set_error(const std::string& text);

// Sets the last error message from the current exception and returns its error code.
int handle_exception();

// Returns the result of `call`, or `failed(code)` if it throws: exceptions must not leave the C interface.
template <typename Call, typename Failed>
auto catch_errors(const Call& call, const Failed& failed) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    return failed(handle_exception());
  }
}

template <typename Call>
int catch_errors(const Call& call) noexcept {
  return catch_errors(call, [](int number) { return number; });
}

inline int fail_with(int number, const std::string& text) {
  set_error(text);
  return number;
}

}  // namespace pumice::dv
