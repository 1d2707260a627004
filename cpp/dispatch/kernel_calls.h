// Calls of a kernel with arrays of the host: one submission each, and recordings that are kept for the next call of the same kind.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "dispatch/command_list.h"
#include "dispatch/host_slot.h"
#include "dispatch/kernel/kernel_arguments.h"

namespace pumice {

// An array in the host's memory, row-major. The kernel's results go to `target`, which may be the source; null: the array is read-only.
struct ArrayArgument {
  std::string name;
  DType dtype;
  std::span<const std::byte> source;
  std::byte* target;
  uint64_t last_axis = 1;
  const MemoryLayout* layout = nullptr;  // the layout of structures, in place of dtype
};

// Calls one kernel with one set of macros and constants, and keeps recordings of finished calls. Thread-safe.
class KernelCalls {
 public:
  KernelCalls(std::shared_ptr<Context> context, std::shared_ptr<Kernel> kernel, Macros macros, SpecValues spec);
  ~KernelCalls();
  Dispatch bind(const KernelArguments& arguments, const LaunchSize& size) const;
  // Runs once and waits. Throws what bind_kernel throws, and BindingError K9 where the kernel writes a read-only array. After a
  // TimeoutError the execution goes on without the arrays, which stay as they are.
  void run(const KernelArguments& arguments, std::span<const ArrayArgument> arrays, const LaunchSize& size,
           std::optional<double> timeout_seconds, const std::function<void()>& interrupted);

 private:
  struct Call;
  std::shared_ptr<Call> take(const std::string& key);
  void keep(std::shared_ptr<Call> call);
  std::shared_ptr<Call> record(const KernelArguments& arguments, std::span<const ArrayArgument> arrays, const LaunchSize& size) const;

  std::shared_ptr<Context> context_;
  std::shared_ptr<Kernel> kernel_;
  Macros macros_;
  SpecValues spec_;
  std::mutex mutex_;
  std::list<std::shared_ptr<Call>> kept_;  // the last used first; none is running
};

}  // namespace pumice
