// Compute shaders on a device: source, storage variants and specialisations of a kernel.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "device/buffer.h"
#include "device/context.h"
#include "device/image.h"
#include "device/pipeline.h"
#include "device/pipeline_executables.h"
#include "dispatch/kernel/kernel_options.h"
#include "dispatch/kernel/scalar_number.h"
#include "shader/shader.h"

namespace pumice {

class MessageLog;
struct DebugMessageSink;

// Debugging options of a kernel.
struct DebugOptions {
  bool check_bounds = false;
  uint64_t ring_bytes = uint64_t{1} << 20;  // size of the message ring of one execution
};

// Whether a user or the engine wrote the kernel. Internal kernels get macros for driver quirks and preserve signed zeros.
enum class KernelOrigin : uint8_t { user, engine };

// Specialization constants by name; values are converted to the reflected type.
using SpecValues = std::vector<std::pair<std::string, Number>>;

// A compiled and specialised kernel. Immutable; the pipeline is created on first use. Thread-safe.
class KernelVariant {
 public:
  // A shader without a local size also accepts the constants "local_size_x", "_y", "_z"; a local size given to compile() is already built
  // in. Throws BindingError (unknown constant, value out of range), UnsupportedError (lists every missing feature and exceeded limit).
  KernelVariant(const std::shared_ptr<Context>& context, std::shared_ptr<const Shader> shader, const SpecValues& spec, KernelOrigin origin);
  // Creates the variant of `base` for folded grids.
  struct FoldedTag {};
  KernelVariant(const KernelVariant& base, FoldedTag);
  const ShaderInterface& interface() const { return shader_->interface; }
  const std::string& name() const { return shader_->name; }
  const std::shared_ptr<const Shader>& shader() const { return shader_; }
  std::shared_ptr<Context> context() const;                                  // throws StateError if it was destroyed
  const std::array<uint32_t, 3>& local_size() const { return local_size_; }  // local size after specialisation
  const Pipeline& pipeline() const;                                          // the pipeline, created on first use
  bool has_pipeline() const { return has_pipeline_; }
  const std::array<uint64_t, 3>& max_groups() const { return max_groups_; }  // the device's maximum group count on each axis
  // Number of grid axes that the shader can fold if the grid exceeds the device's limits (shaders/include/grid.glsl): 1 for one-dimensional
  // grids, 3 for up to three axes, 0 if it cannot fold. User kernels: 1 if they only use their global invocation id.
  uint32_t foldable_grid_axes() const { return foldable_grid_axes_; }
  // Returns the variant that computes its position in a folded grid; created on first use. Throws Error if foldable_grid_axes() is 0.
  std::shared_ptr<const KernelVariant> get_folded_variant() const;
  bool is_folded() const { return is_folded_; }
  // Whether 64-bit integers are emulated with pairs of 32-bit words because the device lacks them.
  bool emulates_int64() const { return emulated_spirv_ != nullptr; }
  // Whether the kernel's loops are monitored (LoopWatchdog). The pipeline then has an extra buffer, bound after the interface's buffers.
  bool has_loop_watchdog() const { return watchdog_id_ != 0; }
  uint32_t watchdog_id() const { return watchdog_id_; }
  // Recompiles the kernel and returns the driver's statistics of its executables. Throws UnsupportedError if the driver does not report
  // them (pipelineExecutableInfo).
  std::vector<PipelineExecutable> query_executables(CaptureMode capture = CaptureMode::all) const;
  size_t spirv_bytes() const;  // size of the module passed to the driver
  // Register spills as reported by the driver; 0 if there are none or the driver does not report them. Queried once, by recompiling the
  // kernel; the result is cached on disk.
  uint64_t query_spills() const;
  std::optional<uint64_t> get_cached_spills() const;                          // nullopt if the driver has to be queried
  void query_spills_at_pipeline_creation() const { queries_spills_ = true; }  // queries the spills when the pipeline is created

 private:
  std::weak_ptr<Context> context_;  // weak: the context's cache owns the kernels
  std::shared_ptr<const Shader> shader_;
  std::shared_ptr<const std::vector<uint32_t>> emulated_spirv_;  // module with emulated 64-bit integers; null if unchanged
  std::vector<SpecializationConstant> specialization_;
  std::array<uint32_t, 3> local_size_;
  std::array<uint64_t, 3> max_groups_{};
  uint32_t foldable_grid_axes_ = 0;
  bool is_folded_ = false;
  KernelOrigin origin_;
  uint32_t find_loop_watchdog_binding() const;
  std::set<std::string> emulate_int64(const Context& context);  // returns the operations that cannot be emulated
  const std::vector<uint32_t>& spirv() const { return emulated_spirv_ ? *emulated_spirv_ : shader_->spirv; }
  std::vector<uint32_t> make_sandboxed_spirv() const;  // a user shader's module as it is passed to the driver
  std::vector<uint32_t> make_driver_spirv() const;     // any shader's module as it is passed to the driver
  PipelineDesc make_pipeline_desc(const std::vector<uint32_t>& module) const;

  mutable std::once_flag once_, folded_once_;
  mutable std::atomic<bool> queries_spills_{false};
  mutable std::mutex spills_mutex_;  // guards spills_
  mutable std::optional<uint64_t> spills_;
  mutable std::atomic<bool> has_pipeline_{false};
  mutable std::shared_ptr<const Pipeline> pipeline_;
  mutable std::shared_ptr<const KernelVariant> folded_;
  uint32_t watchdog_id_ = 0;  // id reported to the LoopWatchdog; 0: not monitored
};

// Device limits that apply to a kernel launch.
struct LaunchLimits {
  uint64_t alignment = 1, largest = 0;  // alignment of buffer offsets and maximum size of a range, in bytes
  std::array<uint64_t, 3> groups{};
};

// Derives the compile options of a kernel from the defaults for the device and requested storage. If there is no callback, the defaults are
// used.
using OptionsCallback = std::function<ShaderOptions(const ShaderOptions&)>;

// Kernel source with everything needed to compile it except options, macros and constants. `path`: source file, to which #include paths
// are relative; "" if none.
struct KernelSource {
  std::string source, name, path = {};
  IncludeSearchPath includes = {};
  std::optional<LocalSize> local_size = {};
  std::vector<uint32_t> spirv = {};  // SPIR-V module, instead of source
};

// A kernel and the variants compiled so far. Thread-safe.
class Kernel {
 public:
  Kernel(const std::shared_ptr<Context>& context, KernelSource source, OptionsCallback options = {}, const DebugOptions& debug = {},
         KernelOrigin origin = KernelOrigin::user);
  const std::string& name() const { return name_; }
  const std::string& source() const { return source_; }
  const std::shared_ptr<const DebugMessageSink>& debug() const { return debug_; }
  const LaunchLimits& limits() const { return limits_; }
  // The kernel's options may override the requested storage. If a kernel without a local size synchronises its invocations, it uses the
  // local size of the KernelSource or of `spec` ("local_size_x", ..). Throws ShaderCompileError, UnsupportedError (the device or the
  // compiler lacks the mode), BindingError (unknown constant).
  std::shared_ptr<const KernelVariant> get_variant(StorageType storage, const Macros& macros = {}, const SpecValues& spec = {});
  std::vector<std::shared_ptr<const KernelVariant>> list_variants();  // all variants compiled so far
  // Logs, once, why arrays of this dtype are stored packed in 32-bit words, if they are.
  void log_packed_storage(const DeviceInfo& device, DType dtype);

 private:
  std::shared_ptr<const Shader> compile_shader(const ShaderOptions& options, const Macros& macros, const SpecValues& spec) const;
  void register_with_loop_watchdog(Context& context, const KernelVariant& variant, const Macros& macros) const;

  std::weak_ptr<Context> context_;
  std::string source_, name_, path_;  // path: source file, or empty
  LaunchLimits limits_;
  IncludeSearchPath includes_;
  OptionsCallback options_;
  std::optional<LocalSize> local_size_;
  bool check_bounds_;
  KernelOrigin origin_;
  std::shared_ptr<const DebugMessageSink> debug_;
  void log_int64_emulation();
  std::atomic<bool> logged_packed_{false}, logged_emulation_{false};
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const KernelVariant>> variants_;  // keyed by storage, macros and spec
  std::vector<uint32_t> spirv_;                                           // the module, if given instead of source
};

// Internal kernels of a context, by name of the embedded shader ("conv_cpu.comp"). Unless the macros set them, they get LOCAL_SIZE for
// the device, WORKGROUP (256 invocations, or the device's maximum if smaller), and driver macros such as PM_CORRECT_DIVISION.
class KernelLibrary {
 public:
  // Returns a variant of an embedded shader. Throws UnsupportedError if the driver's fp32 arithmetic is wrong, and like Kernel::variant().
  std::shared_ptr<const KernelVariant> get_variant(const std::shared_ptr<Context>& context, std::string_view shader, StorageType storage,
                                                   const Macros& macros = {}, const SpecValues& spec = {});
  // Returns the kernel of a user's source, shared by all nodes that run it.
  std::shared_ptr<Kernel> get_user_kernel(const std::shared_ptr<Context>& context, const KernelSource& text);

 private:
  std::mutex mutex_;
  Macros sizes_;  // the macros LOCAL_SIZE and WORKGROUP
  std::map<std::string, std::shared_ptr<Kernel>, std::less<>> kernels_;
  std::map<std::string, std::shared_ptr<Kernel>> user_kernels_;  // keyed by all fields of KernelSource
};

// The strided subset of a range that a dispatch accesses: bytes whose distance from `origin` (a byte of the buffer) modulo `period` is in
// [begin, end). Distinguishes slices of a tensor that are interleaved in memory. Period 0: the whole range.
struct InterleavedRange {
  uint64_t origin = 0, period = 0, begin = 0, end = 0;
  uint64_t writer = 0;  // unique id of the node that writes; ranges of one writer with different `part` are disjoint. 0: none
  uint32_t part = 0;
};

// A kernel launch: buffers, push constants and group counts. Everything that the engine runs is a list of dispatches.
struct Dispatch {
  std::shared_ptr<const KernelVariant> kernel;
  std::vector<BufferRange> buffers;            // indexed like interface().bindings; offsets aligned for the device
  std::vector<std::shared_ptr<Image>> images;  // indexed like interface().images
  std::vector<std::byte> push;                 // push constants, interface().push_bytes bytes
  std::array<uint32_t, 3> groups{1, 1, 1};
  std::string label;                              // node name, for profiles and errors
  std::vector<InterleavedRange> interleaved;      // indexed like buffers, or empty
  std::shared_ptr<const DebugMessageSink> debug;  // set if the kernel uses printf or bounds checks
  std::vector<uint64_t> exact_bytes;              // number of accessible bytes, indexed like buffers, if bounds are checked
  // Device memory, written by other dispatches, that controls whether this dispatch runs: a word, 0 to skip it (needs
  // conditionalRendering), or three group counts that replace `groups`. Without a guard the dispatch always runs.
  BufferRange guard;
  uint64_t flop = 0;  // operations of the dispatch's node, for profiles; 0: none or unknown
};

inline constexpr uint64_t kGuardWord = 4, kGuardCounts = 12;  // size of Dispatch::guard: a word, or three group counts

}  // namespace pumice
