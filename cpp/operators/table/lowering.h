// Lowers operators to dispatches. Weights are packed at compile time; steps are built at bind time, when all shapes are known.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"
#include "dispatch/kernel/kernel.h"
#include "operators/expression/expression.h"
#include "operators/table/attributes.h"
#include "operators/table/measured_variants.h"
#include "operators/table/spilled_variants.h"

namespace pumice {

// Kind of memory that an operand is in. Indices are local to the node; planning a graph renumbers them.
enum class MemoryKind : uint8_t { none, input, output, temporary, persistent, host };

struct Operand {
  MemoryKind memory = MemoryKind::none;
  uint32_t index = 0;
  uint64_t byte_offset = 0;
  uint64_t bytes = 0;  // size of the range that the step accesses from byte_offset on; 0: up to the end
  uint32_t element_bits =
      0;  // element size of a tensor in scratch memory, which has no TensorDesc; 0: the size that the kernel declares for its array
  bool is_exact = false;  // bind exactly `bytes`, because the kernel may query its array's length
  uint32_t part = 0;      // steps with different non-zero values write disjoint elements of an output; 0: the step writes the whole output
};

// A dispatch without assigned memory. Built with StepBuilder.
struct Step {
  std::shared_ptr<const KernelVariant> kernel;
  std::vector<Operand> operands;  // indexed like kernel->interface().bindings
  std::vector<std::byte> push;
  std::array<uint32_t, 3> groups{1, 1, 1};
  std::shared_ptr<const StepChoice> choice = nullptr;  // set if the program was compiled with measured variants
  std::string variant = {};                            // name of the kernel variant that runs, if the node has several; else ""
  std::string spilled = {};                            // variant that was skipped because its kernel spills; "" if none
};

inline constexpr uint64_t kBindingBoundary = 256;  // bytes; largest minStorageBufferOffsetAlignment of any device

// Fills a step using the names that the shader declares. Throws Error for unknown or missing names (internal errors).
class StepBuilder {
 public:
  explicit StepBuilder(std::shared_ptr<const KernelVariant> kernel);
  StepBuilder& bind(std::string_view name, const Operand& operand);
  // Binds `count` elements of `element_bits` bits each, from element `first` on. The binding starts at the preceding multiple of
  // kBindingBoundary. The push constant `<name>_offset` is the remaining distance in elements.
  StepBuilder& bind(std::string_view name, Operand operand, int64_t first, int64_t count, size_t element_bits);
  template <std::integral T>
  StepBuilder& set(std::string_view name, T value) {
    return set_integer(name, static_cast<int64_t>(value));
  }  // sets a push constant, converted to the reflected type
  StepBuilder& set(std::string_view name, double value);
  StepBuilder& set(std::string_view name, std::span<const int64_t> values);
  // Sets workgroup counts for at least this many invocations per axis. If the grid exceeds device limits, a kernel variant with a folded
  // grid is used: see make_launch(), also for the errors it throws.
  StepBuilder& set_threads(uint64_t x, uint64_t y = 1, uint64_t z = 1);
  StepBuilder& set_workgroups(uint64_t x, uint64_t y = 1, uint64_t z = 1);
  // Names the variant that the step runs, if its node has several. The driver is then queried for register spills.
  StepBuilder& set_variant(std::string name, std::string spilled);
  Step build();  // returns the step after checking that all declared bindings and push constants are set

 private:
  const PushConstant& get_push_constant(std::string_view name);
  StepBuilder& set_integer(std::string_view name, int64_t value);

  Step step_;
  std::vector<bool> bound_;
  std::vector<bool> pushed_;
};

// A packed weight. Constants are packed once on the device, other weights at every execution.
struct PackedWeight {
  TensorDesc desc;  // dtype and shape of the packed weight (row-major)
  // Appends the steps that pack `source` (described by PackContext::input) to `target`.
  std::function<void(std::vector<Step>&, const Operand& source, const Operand& target)> steps;
};

// Returns a function for PackedWeight::steps. It runs a kernel that computes each of `count` elements of `y` from `x`. `set` sets its push
// constants.
std::function<void(std::vector<Step>&, const Operand&, const Operand&)> make_elementwise_packing(
    std::shared_ptr<const KernelVariant> kernel, int64_t count, std::function<void(StepBuilder&)> set);

// Input index of the residual: a second tensor that the epilogue reads, with the output's shape or broadcast to it.
inline constexpr size_t kResidualInput = 3;

// An fp32 GEMM whose constant operand, scaled by 2^-exponent, fits into sums of two fp16 values (shaders/include/split_fp16.glsl).
struct SplitFp16Params {
  int exponent;
  bool exact_left;  // the left operand is exact in fp16; otherwise it is split too
};

// Node properties for packing and lowering, which must make the same choices.
class NodeContext {
 public:
  std::shared_ptr<Context> context;
  KernelLibrary* library = nullptr;
  const Attributes* attributes = nullptr;
  std::string_view node;
  DType float_dtype = DType::float32;          // dtype of float values inside the program
  bool deterministic = false;                  // results are bitwise reproducible across runs
  const MeasuredVariants* measured = nullptr;  // kernel variants measured on this device; null: the engine chooses
  const VariantNames* spilled = nullptr;       // variants of this node whose kernels spill; null: none known
  std::optional<SplitFp16Params> split_fp16;   // set if the node's operands are each split into two fp16 values
  std::vector<std::optional<Shape>> shapes;    // input shapes that are known before binding; empty if none are

  // Returns the variant of an embedded shader that stores floats as `dtype`; see get_storage_type().
  std::shared_ptr<const KernelVariant> kernel(std::string_view shader, DType dtype, const Macros& macros = {},
                                              const SpecValues& spec = {}) const;
  // Whether to use the CPU variants of kernels, which work in registers: on software devices with subgroups of 8. Other devices use
  // variants that work in shared memory.
  bool prefers_cpu_kernels() const;
  // Subgroup size: a power of two, at least 16. 0 if the device lacks shuffles or full subgroups of a fixed size.
  int64_t subgroup_size() const;
  int64_t matrix_subgroup_size() const;  // of kernels with cooperative matrices; 0 if subgroup_size() is
  // Return the maximum size of a one-dimensional workgroup, and the largest power of two that exceeds neither this size nor `requested`.
  int64_t max_invocations() const;
  int64_t workgroup_size(int64_t requested) const;
  bool is_spilled(std::string_view variant) const { return spilled && spilled->contains(variant); }
  // Whether the device has 16x16x16 cooperative matrices of the program's float type with fp32 accumulation.
  bool has_coopmat() const;
  // Whether fp16 cooperative matrices have the m16n8k16 fragment layout that attention_mma.comp and gemm_mma.comp assume.
  bool has_mma() const;
  // Like has_mma(); also true if tests emulate the fragments (Quirk::emulated_fragments).
  bool has_or_emulates_mma() const { return has_mma() || emulates_mma(); }
  bool emulates_mma() const;
  // Returns the bytes of shared memory for emulated fragments: for both operands, and for values exchanged between invocations.
  int64_t count_emulation_shared_bytes(int64_t invocations) const { return emulates_mma() ? invocations * 68 : 0; }
  // Whether the device can run an fp32 GEMM as GEMMs of fp16 fragments. Does not depend on the program's float type.
  bool supports_split_fp16() const;
  // Returns the number of multiprocessors for cost models; the H200's number if the device does not report it.
  int64_t num_multiprocessors() const;
  // Throws UnsupportedError if the device has no arithmetic for this dtype (shaderFloat64).
  void check_arithmetic(DType dtype) const;
  // Throws UnsupportedError if an invocation would exceed the driver's loop limit. Some drivers (Quirk::loop_limit) silently end loops
  // after 65,535 iterations in total, nested or sequential. Unrolled loops do not count.
  void check_loop_limit(int64_t iterations) const;
  std::optional<int64_t> loop_limit() const;  // maximum total number of loop iterations per invocation, if the driver ends longer loops

 private:
  mutable std::optional<bool> prefers_cpu_kernels_;  // cached
};

// Returns the largest range in bytes that a kernel can bind, with room for aligning its start.
int64_t max_binding_bytes(const Context& context);

class PackContext : public NodeContext {
 public:
  std::vector<std::optional<TensorDesc>> inputs;  // set for constant inputs; may be empty for other inputs
  const TensorDesc& input(size_t i) const { return *inputs.at(i); }
};

// Packs constant input `input` as float32, times `scale`. Used for biases, scales and statistics, which kernels read at accumulator
// precision.
void pack_as_float32(const PackContext& node, size_t input, double scale, PackedWeight& packed);

// Kernels of earlier lowerings of a node, keyed by the shape properties that selected them. Most shapes share a kernel, so a linear search
// suffices.
class KernelCache {
 public:
  const std::shared_ptr<const KernelVariant>* find(std::string_view key) const;
  void add(std::string key, std::shared_ptr<const KernelVariant> kernel) { kernels_.emplace_back(std::move(key), std::move(kernel)); }

 private:
  std::vector<std::pair<std::string, std::shared_ptr<const KernelVariant>>> kernels_;
};

inline constexpr int64_t kUnknownAdditions = INT64_MAX;  // for kernels that do not report their additions: as many as the sum has terms

// Result of lowering a node.
struct LoweredNode {
  std::vector<Step> steps;
  std::vector<uint64_t> temporaries;  // size of each temporary, in bytes
  std::vector<std::vector<std::byte>> host_blocks;
  // Maximum number of roundings of a term in the node's sums: its multiplication and all later additions. 0: not reported; callers assume
  // as many as a sum has terms.
  int64_t additions = 0;
  uint64_t flop = 0;  // FLOP count of the node, from count_node_flops()
};

// A node at bind time. All TensorDescs are concrete; floats have dtype float_dtype, or float32 at the graph's inputs and outputs.
class LowerContext : public NodeContext, public LoweredNode {
 public:
  bool has_input(size_t i) const { return i < inputs.size() && inputs[i].has_value(); }
  bool has_output(size_t i) const { return i < outputs.size() && outputs[i].has_value(); }
  const TensorDesc& input(size_t i) const { return *inputs.at(i); }
  const TensorDesc& output(size_t i) const { return *outputs.at(i); }
  const HostTensor* host_tensor(size_t i) const { return i < hosts.size() ? hosts[i] : nullptr; }
  // Byte distance of input i from the preceding 16-byte boundary.
  uint64_t input_misalignment(size_t i) const { return i < input_misalignments.size() ? input_misalignments[i] : 0; }
  Operand input_operand(size_t i) const { return {MemoryKind::input, static_cast<uint32_t>(i), 0}; }
  Operand output_operand(size_t i) const { return {MemoryKind::output, static_cast<uint32_t>(i), 0}; }
  // Allocates scratch memory for this node, aligned to 16 bytes.
  Operand add_temporary(uint64_t bytes) {
    temporaries.push_back(bytes);
    return {MemoryKind::temporary, static_cast<uint32_t>(temporaries.size() - 1), 0};
  }
  // Adds bytes from the host that the device reads: tables, and parameters that are too large for push constants.
  Operand add_host_block(std::vector<std::byte> bytes) {
    host_blocks.push_back(std::move(bytes));
    return {MemoryKind::host, static_cast<uint32_t>(host_blocks.size() - 1), 0};
  }
  // Returns input i packed: the copy in the persistent resource if it is constant, else a temporary that it is packed into.
  Operand get_packed_input(size_t i);
  // Returns the fused epilogue as a GLSL expression of `x` ("x" if nothing is fused). Contraction, window, reduce and map operators support
  // epilogues.
  const std::string& epilogue() const {
    epilogue_read = true;
    return epilogue_source;
  }
  // Returns epilogue macros for kernels that use no elementary functions outside of the epilogue. For 16-bit results they select faster
  // approximations, as separate elementwise kernels do.
  Macros make_epilogue_macros() const {
    Macros macros{{"EPILOGUE(x)", epilogue()}};
    const bool is_approximate = !exact_epilogue && !outputs.empty() && outputs[0] && is_16bit_float(outputs[0]->dtype);
    if (is_approximate && epilogue_source.find("pm_") != std::string::npos) macros.emplace_back("PM_BRIEF", "1");
    return macros;
  }
  // Returns the tensor that the epilogue reads as `residual`; null if there is none. It has the output's layout and starts at a binding
  // boundary.
  const Operand* residual() const {
    residual_read = true;
    return residual_operand ? &*residual_operand : nullptr;
  }
  // Returns the dtype of the residual's elements, or `fallback` if there is no residual.
  DType get_residual_dtype(DType fallback) const { return residual() ? input(kResidualInput).dtype : fallback; }
  void add(Step step) { steps.push_back(std::move(step)); }
  // Reports the longest chain of additions in the node's sums. Call this only from a lowering that knows all chains.
  void report_additions(int64_t additions_of_step) { additions = std::max(additions, additions_of_step); }

  std::vector<std::optional<TensorDesc>> inputs, outputs;
  std::vector<const HostTensor*> hosts;
  std::vector<uint64_t> input_misalignments;  // empty: all inputs start at a 16-byte boundary
  std::vector<bool> constant_packed;          // input i is already packed in the persistent resource
  std::vector<bool> constant;                 // input i is in the persistent resource, packed or not; set only for nodes of programs
  const struct OperatorRow* row = nullptr;
  std::string epilogue_source = "x";
  bool exact_epilogue = false;  // use fp32-accurate functions in the epilogue
  int64_t concurrent = 1;       // number of equal-sized GEMMs on the same rows that run concurrently, including this one
  std::optional<Operand> residual_operand = {};
  mutable bool epilogue_read = false, residual_read = false;
  const Expression* expression =
      nullptr;  // fused expression of an elementwise operator or, with a residual, the epilogue; null: the operator's expression
  KernelCache* kernel_cache = nullptr;    // kernels of earlier lowerings of this node, or null
  uint64_t unsplit_bytes = ~uint64_t{0};  // for a chunk of a node split for size: largest binding of the unsplit node, in bytes
};

}  // namespace pumice
