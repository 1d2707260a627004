// Kernel calls with host arrays, one submission per call. Calls that differ only in their data reuse cached recordings.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "dispatch/command_list.h"
#include "dispatch/kernel/kernel_arguments.h"
#include "dispatch/staging_slot.h"

namespace pumice {

// A row-major host array. Kernel results are written to `target`, which may equal the source; null: read-only array.
struct ArrayArgument {
  std::string name;
  DType dtype;
  std::span<const std::byte> source;
  std::byte* target;
  uint64_t last_axis = 1;
  const MemoryLayout* layout = nullptr;  // struct layout, used instead of dtype
};

// Calls a kernel with fixed macros and constants. Caches the recordings of finished calls. Thread-safe.
class KernelCaller {
 public:
  KernelCaller(std::shared_ptr<Context> context, std::shared_ptr<Kernel> kernel, Macros macros, SpecValues spec);
  ~KernelCaller();
  Dispatch bind(const KernelArguments& arguments, const LaunchSize& size) const;
  // Runs the kernel once and waits. Throws like bind_kernel(), and BindingError (K9) if the kernel writes a read-only array. After a
  // TimeoutError the execution continues, but its results are not written to the arrays.
  void run(const KernelArguments& arguments, std::span<const ArrayArgument> arrays, const LaunchSize& size,
           std::optional<double> timeout_seconds, const std::function<void()>& interrupted);

 private:
  struct RecordedCall;
  std::shared_ptr<RecordedCall> take_cached_call(const std::string& key);
  void cache_call(std::shared_ptr<RecordedCall> call);
  std::shared_ptr<RecordedCall> record_call(const KernelArguments& arguments, std::span<const ArrayArgument> arrays,
                                            const LaunchSize& size) const;

  std::shared_ptr<Context> context_;
  std::shared_ptr<Kernel> kernel_;
  Macros macros_;
  SpecValues spec_;
  std::mutex mutex_;
  std::list<std::shared_ptr<RecordedCall>> cached_;  // most recently used first; none is running
};

}  // namespace pumice
