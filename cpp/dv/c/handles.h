// The objects behind the handles of the C interface, and the way its functions fail.
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
#include "dv/memory/refusal.h"

namespace pumice::dv {

// A number for each handle of the process, none of which comes twice: a handle that outlived its object is never another's.
uintptr_t next_handle_number();

// The live objects of one kind by their handles. A handle is a number and no address, so that a dead one is found out and not followed.
// Thread-safe; an object lives on while a call works with it.
template <typename Handle, typename Object>
class Handles {
 public:
  Handle insert(std::shared_ptr<Object> object) {
    const uintptr_t number = next_handle_number();
    const std::lock_guard lock(mutex_);
    live_.emplace(number, Entry{std::move(object), 1});
    return reinterpret_cast<Handle>(number);
  }

  // The object of a handle; null where there is none.
  std::shared_ptr<Object> find(Handle handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(reinterpret_cast<uintptr_t>(handle));
    return found == live_.end() ? nullptr : found->second.object;
  }

  // The count after the call; below 0 for a handle of no live object.
  int retain(Handle handle) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(reinterpret_cast<uintptr_t>(handle));
    return found == live_.end() ? -1 : ++found->second.count;
  }

  // The count after the call; below 0 for a handle of no live object. At 0 the object goes, unless another call works with it: then at the
  // end of that call.
  int release(Handle handle) {
    std::shared_ptr<Object> last;  // destroyed without the lock
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
  struct Entry {
    std::shared_ptr<Object> object;
    int count;
  };

  mutable std::mutex mutex_;
  std::map<uintptr_t, Entry> live_;
};

// The objects behind handles. Each retains the handles that it names until it is destroyed.
struct HeldMemory {
  dmp_dv_context context = nullptr;
  std::shared_ptr<Memory> memory;
  ~HeldMemory();
};

struct HeldList {
  dmp_dv_context context = nullptr;  // retained once, and once for every kind of device that has commands
  std::unique_ptr<CommandList> list;
  std::vector<dmp_dv_mem> memories = {};  // as often as commands name them
  unsigned devices = 0;                   // a bit for each kind
  ~HeldList();
};

// The process's live objects, by kind. The tables are never freed: a program may ask at its very end.
Handles<dmp_dv_context, Context>& contexts();
Handles<dmp_dv_mem, HeldMemory>& memories();
Handles<dmp_dv_cmdlist, HeldList>& lists();

void set_error(const std::string& text);

// The number for the exception at hand, whose text becomes the last error message.
int fail();

// Calls `call` and returns its result, or `failed(number)` where it throws: no exception may leave the C interface.
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

inline int refuse(int number, const std::string& text) {
  set_error(text);
  return number;
}

}  // namespace pumice::dv
