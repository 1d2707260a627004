// A compute shader on a device: source, precision variants and specialization variants of one kernel.
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
#include "dispatch/kernel/number.h"
#include "shader/shader.h"

namespace pumice {

class MessageLog;
struct DebugSink;

// Options of debugging a kernel.
struct DebugOptions {
  bool check_bounds = false;
  uint64_t ring_bytes = uint64_t{1} << 20;  // for the messages of one execution
};

// Tells the engine's kernels from a user's: the engine's own are told what the driver is like and keep the signs of zeros.
enum class KernelOrigin : uint8_t { user, engine };

// Specialization constants by name; values are converted to the reflected type.
using SpecValues = std::vector<std::pair<std::string, Number>>;

// One compiled and specialised form of a kernel. Immutable; the pipeline is made on first use, by any thread.
class KernelVariant {
 public:
  // Besides its own constants a shader without a local size takes "local_size_x", "_y", "_z"; one whose local size was given to compile()
  // has them already.
  // Throws BindingError (unknown constant, value out of range), UnsupportedError (all that the device lacks, with names and numbers).
  KernelVariant(const std::shared_ptr<Context>& context, std::shared_ptr<const Shader> shader, const SpecValues& spec, KernelOrigin origin);
  // Makes the form of `ordinary` for folded grids.
  struct Folded {};
  KernelVariant(const KernelVariant& ordinary, Folded);
  const Interface& interface() const { return shader_->interface; }
  const std::string& name() const { return shader_->name; }
  const std::shared_ptr<const Shader>& shader() const { return shader_; }
  std::shared_ptr<Context> context() const;                                  // StateError where it is gone
  const std::array<uint32_t, 3>& local_size() const { return local_size_; }  // after specialization
  const Pipeline& pipeline() const;                                          // made here on first use
  bool has_pipeline() const { return has_pipeline_; }
  const std::array<uint64_t, 3>& most_groups() const { return most_groups_; }  // on each axis of a grid that the device takes
  // The number of axes of a grid that the shader can fold where the device does not take the grid as it is (shaders/include/grid.glsl): 1
  // where its grid is a line, 3 where it has up to three axes, 0 where it cannot fold. Users' kernels: 1 where they ask for their
  // invocation alone.
  uint32_t grid_axes() const { return grid_axes_; }
  // The form of this kernel whose workgroups find their place in a folded grid; made on first use. Throws Error where grid_axes() is 0.
  std::shared_ptr<const KernelVariant> folded() const;
  bool is_folded() const { return is_folded_; }
  // Whether pairs of words stand for the shader's 64-bit integers, which the device lacks.
  bool is_paired() const { return paired_ != nullptr; }
  // Whether its loops are watched (LoopWatch): its pipeline then has one more buffer, behind the interface's.
  bool is_watched() const { return watch_number_ != 0; }
  uint32_t watch_number() const { return watch_number_; }
  // The driver compiles the kernel once more and says of the programs that it makes how they use the device.
  // Throws UnsupportedError where the driver says nothing (pipelineExecutableInfo).
  std::vector<PipelineExecutable> executables(Capture capture = Capture::all) const;
  size_t spirv_bytes() const;  // the module as the driver gets it
  // The amount that the driver spilled to memory for want of registers, as it counts it: 0 where it has not or does not tell. It is asked
  // once, by compiling the kernel once more; the cache keeps its answer.
  uint64_t spills() const;
  std::optional<uint64_t> known_spills() const;         // none where the driver has to be asked
  void ask_with_pipeline() const { is_asked_ = true; }  // the driver is asked for its spills as soon as the pipeline is made

 private:
  std::weak_ptr<Context> context_;  // kernels sit in a cache of their context and must not keep it alive
  std::shared_ptr<const Shader> shader_;
  std::shared_ptr<const std::vector<uint32_t>> paired_;  // the shader's module with pairs of words; null where it stays as it is
  std::vector<Specialization> specialization_;
  std::array<uint32_t, 3> local_size_;
  std::array<uint64_t, 3> most_groups_{};
  uint32_t grid_axes_ = 0;
  bool is_folded_ = false;
  KernelOrigin origin_;
  uint32_t watch_binding() const;
  std::set<std::string> pair_words(const Context& context);  // returns the uses that pairs cannot stand for
  const std::vector<uint32_t>& spirv() const { return paired_ ? *paired_ : shader_->spirv; }
  std::vector<uint32_t> contained() const;  // a user's shader as a driver gets it
  std::vector<uint32_t> submitted() const;  // any shader as a driver gets it
  PipelineDesc description(const std::vector<uint32_t>& module) const;

  mutable std::once_flag once_, folded_once_;
  mutable std::atomic<bool> is_asked_{false};
  mutable std::mutex spills_mutex_;  // guards the next
  mutable std::optional<uint64_t> spills_;
  mutable std::atomic<bool> has_pipeline_{false};
  mutable std::shared_ptr<const Pipeline> pipeline_;
  mutable std::shared_ptr<const KernelVariant> folded_;
  uint32_t watch_number_ = 0;  // what it reports to the LoopWatch; 0: it is not watched
};

// The device's limits on one launch.
struct LaunchLimits {
  uint64_t alignment = 1, largest = 0;  // bytes of a buffer's range
  std::array<uint64_t, 3> groups{};
};

// The options that a kernel is compiled with, of those that follow from the device and the storage asked for. Where there is none, the
// kernel takes those.
using OptionSource = std::function<ShaderOptions(const ShaderOptions&)>;

// The text of a kernel, with all that it is compiled with but options, macros and constants. path: the file that it comes from, beside
// which #include looks; "" for none.
struct KernelText {
  std::string source, name, path = {};
  Includes includes = {};
  std::optional<LocalSize> local_size = {};
  std::vector<uint32_t> spirv = {};  // a module in place of the source
};

// Source text and the variants made of it so far. Thread-safe.
class Kernel {
 public:
  Kernel(const std::shared_ptr<Context>& context, KernelText text, OptionSource options = {}, const DebugOptions& debug = {},
         KernelOrigin origin = KernelOrigin::user);
  const std::string& name() const { return name_; }
  const std::string& source() const { return source_; }
  const std::shared_ptr<const DebugSink>& debug() const { return debug_; }
  const LaunchLimits& limits() const { return limits_; }
  // Options that the kernel was made with may stand whatever the storage asked for. A text without a local size whose invocations work
  // together has the one that the kernel was made with, or that of `spec` ("local_size_x", ..).
  // Throws ShaderCompileError, UnsupportedError (the device or the compiler lacks the mode), BindingError (unknown constant).
  std::shared_ptr<const KernelVariant> variant(Storage storage, const Macros& macros = {}, const SpecValues& spec = {});
  std::vector<std::shared_ptr<const KernelVariant>> variants();  // the variants made so far
  // Tells the log, once, why arrays of this dtype are stored as words of two where that is so.
  void tell_stand_in(const DeviceInfo& device, DType dtype);

 private:
  std::shared_ptr<const Shader> compiled(const ShaderOptions& options, const Macros& macros, const SpecValues& spec) const;
  void watch_loops(Context& context, const KernelVariant& variant, const Macros& macros) const;

  std::weak_ptr<Context> context_;
  std::string source_, name_, path_;  // path: of the source's file, or empty
  LaunchLimits limits_;
  Includes includes_;
  OptionSource options_;
  std::optional<LocalSize> local_size_;
  bool check_bounds_;
  KernelOrigin origin_;
  std::shared_ptr<const DebugSink> debug_;
  void tell_pairs();
  std::atomic<bool> told_{false}, told_pairs_{false};
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const KernelVariant>> variants_;  // by storage, macros, spec
  std::vector<uint32_t> spirv_;                                           // in place of the source
};

// The engine's own kernels of one context, by path of the embedded shader ("conv_lanes.comp"). They are told, where the macros do not say
// it, the LOCAL_SIZE of the device, and the invocations of a large WORKGROUP: 256, or fewer where the device takes no more; and what the
// driver is like: PM_CORRECT_DIVISION and the like.
class KernelLibrary {
 public:
  // The kernel of an embedded shader, in a variant. Throws UnsupportedError where the driver's arithmetic is not that of float32, and what
  // Kernel::variant() throws.
  std::shared_ptr<const KernelVariant> find(const std::shared_ptr<Context>& context, std::string_view shader, Storage storage,
                                            const Macros& macros = {}, const SpecValues& spec = {});
  // The kernel of a text of the user's: one for all nodes that run it.
  std::shared_ptr<Kernel> user(const std::shared_ptr<Context>& context, const KernelText& text);

 private:
  std::mutex mutex_;
  Macros sizes_;  // LOCAL_SIZE and WORKGROUP
  std::map<std::string, std::shared_ptr<Kernel>, std::less<>> kernels_;
  std::map<std::string, std::shared_ptr<Kernel>> users_;  // by all that their text says
};

// The bytes of a range that a dispatch touches: those whose distance from `origin` (a byte of the buffer) modulo `period` is from `begin`
// up to `end`. Parts of one tensor that interleave are told apart by it. Period 0: all of them.
struct Lane {
  uint64_t origin = 0, period = 0, begin = 0, end = 0;
  uint64_t writer = 0;  // one of its kind in the process; parts with other numbers that it makes share no element. 0: there are no parts
  uint32_t part = 0;
};

// One run of a kernel: its buffers, push constants and workgroups. Everything that runs is a list of dispatches.
struct Dispatch {
  std::shared_ptr<const KernelVariant> kernel;
  std::vector<BufferRange> buffers;            // by position in interface().bindings; offsets aligned for the device
  std::vector<std::shared_ptr<Image>> images;  // by position in interface().images
  std::vector<std::byte> push;                 // interface().push_bytes of them
  std::array<uint32_t, 3> groups{1, 1, 1};
  std::string label;                       // node name, for profiles and errors
  std::vector<Lane> lanes;                 // by position like buffers, or empty
  std::shared_ptr<const DebugSink> debug;  // set for a kernel that prints or checks its bounds
  std::vector<uint64_t> exact_bytes;       // by position, what of a range may be touched: where bounds are checked
  // Memory, written by other dispatches, that decides on the device whether this one runs: a word, zero for not at all (needs
  // conditionalRendering), or three words, the group counts in place of `groups`. Without a guard the dispatch always runs.
  BufferRange guard;
  uint64_t flop = 0;  // floating-point operations of the node that it is of, for profiles; 0: none, or not known
};

inline constexpr uint64_t kGuardWord = 4, kGuardCounts = 12;  // bytes of either

}  // namespace pumice
