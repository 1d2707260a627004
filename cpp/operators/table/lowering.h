// Lowers an operator to dispatches. Weights are packed at compile time; steps are built at bind time, when all shapes are known.
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

// Memory that a step's operand lives in. Indices are local to the node; a graph renumbers them.
enum class MemoryKind : uint8_t { none, input, output, temporary, persistent, host };

struct Operand {
  MemoryKind place = MemoryKind::none;
  uint32_t index = 0;
  uint64_t byte_offset = 0;
  uint64_t bytes = 0;  // size of the range that the step accesses from byte_offset on; 0: up to the end
  uint32_t element_bits =
      0;  // element size of a tensor in scratch memory, which has no TensorDesc; 0: the size that the kernel declares for its array
  bool is_exact = false;  // bind exactly `bytes`, because the kernel may query its array's length
  uint32_t part = 0;      // steps with different non-zero values write disjoint elements of an output; 0: the step writes the whole output
};

// A dispatch without assigned memory. Built with LowerContext::dispatch().
struct Step {
  std::shared_ptr<const KernelVariant> kernel;
  std::vector<Operand> operands;  // indexed like kernel->interface().bindings
  std::vector<std::byte> push;
  std::array<uint32_t, 3> groups{1, 1, 1};
  std::shared_ptr<const StepChoice> choice = nullptr;  // set if the program was compiled with measured variants
  std::string variant = {};                            // name of the kernel variant that runs, if the node has several; else ""
  std::string spilled = {};                            // variant that was skipped because its kernel spills; "" if none
};

inline constexpr uint64_t kBindingBoundary = 256;  // bytes; maximum binding alignment on any device

// Fills a step using the names that the shader declares. Throws Error for unknown or missing names (internal errors).
class StepBuilder {
 public:
  explicit StepBuilder(std::shared_ptr<const KernelVariant> kernel);
  StepBuilder& bind(std::string_view name, const Operand& operand);
  // Binds `count` elements of `element_bits` bits each, from element `first` on. The binding starts at the preceding kBindingBoundary,
  // which every device supports; the shader adds the remaining distance, `<name>_offset`.
  StepBuilder& bind(std::string_view name, Operand operand, int64_t first, int64_t count, size_t element_bits);
  template <std::integral T>
  StepBuilder& set(std::string_view name, T value) {
    return set_integer(name, static_cast<int64_t>(value));
  }  // sets a push constant, converted to the reflected type
  StepBuilder& set(std::string_view name, double value);
  StepBuilder& set(std::string_view name, std::span<const int64_t> values);
  // Sets workgroup counts to cover at least this many invocations per axis. The kernel uses its folded form if the grid exceeds device
  // limits: see make_launch(), also for the errors it throws.
  StepBuilder& threads(uint64_t x, uint64_t y = 1, uint64_t z = 1);
  StepBuilder& groups(uint64_t x, uint64_t y = 1, uint64_t z = 1);
  // Names the variant that the step runs, if its node has several. The driver is then queried for register spills.
  StepBuilder& variant(std::string name, std::string spilled);
  Step build();  // checks that all declared bindings and push constants are set

 private:
  const PushConstant& member(std::string_view name);
  StepBuilder& set_integer(std::string_view name, int64_t value);

  Step step_;
  std::vector<bool> bound_;
  std::vector<bool> pushed_;
};

// The packed form of a weight: packed once on the device if constant, else at every execution.
struct PackedWeight {
  TensorDesc desc;  // dtype and shape of the packed form (row-major)
  // Appends the steps that pack `source` (described by PackContext::input) to `target`.
  std::function<void(std::vector<Step>&, const Operand& source, const Operand& target)> steps;
};

// Returns a packing function with one kernel that computes each of `count` elements of `y` from `x`. `set` fills its push constants.
std::function<void(std::vector<Step>&, const Operand&, const Operand&)> elementwise_packing(std::shared_ptr<const KernelVariant> kernel,
                                                                                            int64_t count,
                                                                                            std::function<void(StepBuilder&)> set);

// Input index of the residual: a second tensor that the epilogue reads, with the output's shape or broadcast to it.
inline constexpr size_t kResidualInput = 3;

// An fp32 GEMM whose constant operand, scaled by 2^-exponent, fits into sums of two fp16 values (shaders/include/split_fp16.glsl).
struct SplitFp16Params {
  int exponent;
  bool exact_left;  // the other operand is exact in fp16; otherwise it is split too
};

// Facts used by both packing and lowering, which must make the same decisions.
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
  std::optional<SplitFp16Params> split_fp16;   // set if the node's operator splits operands into fp16 values and they fit
  std::vector<std::optional<Shape>> shapes;    // input shapes of a graph node known before binding

  // Returns the kernel of an embedded shader that stores values as `dtype`; see storage_of().
  std::shared_ptr<const KernelVariant> kernel(std::string_view shader, DType dtype, const Macros& macros = {},
                                              const SpecValues& spec = {}) const;
  // Whether to use the SIMD kernels of a software device with subgroups of 8, which work in registers ("lanes"). Other devices use kernels
  // that work in shared memory ("tiled").
  bool prefers_cpu_kernels() const;
  // Subgroup size: a power of two, at least 16. 0 if the device lacks shuffles or full subgroups of a fixed size.
  int64_t subgroup() const;
  // Return the maximum number of invocations of a one-dimensional workgroup, and the largest power of two within that limit and
  // `requested`.
  int64_t max_invocations() const;
  int64_t workgroup_size(int64_t requested) const;
  bool is_spilled(std::string_view variant) const { return spilled && spilled->contains(variant); }
  // Whether the device has 16x16x16 cooperative matrices of the program's float type with fp32 accumulation.
  bool has_coopmat() const;
  // Whether fp16 cooperative matrices have the m16n8k16 fragment layout that attention_mma.comp and gemm_mma.comp assume.
  bool has_mma() const;
  // Like has_mma(); also true if they are emulated for tests (Quirk::emulated_fragments).
  bool has_fragments() const { return has_mma() || emulates_mma(); }
  bool emulates_mma() const;
  // Bytes of shared memory for emulated fragments: both operands, and the values exchanged between invocations.
  int64_t emulated_bytes(int64_t invocations) const { return emulates_mma() ? invocations * 68 : 0; }
  // Whether an fp32 GEMM can run as fp16 fragment GEMMs, regardless of the program's float type.
  bool supports_split_fp16() const;
  // Number of multiprocessors for cost models; the H200's number if the device does not report it.
  int64_t multiprocessors() const;
  // Throws UnsupportedError if the device has no arithmetic for this dtype (shaderFloat64).
  void check_arithmetic(DType dtype) const;
  // Throws UnsupportedError if an invocation would exceed the driver's loop limit. Some drivers (Quirk::loop_limit) silently end loops
  // after 65,535 iterations in total, nested or sequential. Unrolled loops do not count.
  void check_loops(int64_t iterations) const;
  std::optional<int64_t> loop_limit() const;  // maximum total number of loop iterations per invocation, if the driver ends longer loops

 private:
  mutable std::optional<bool> prefers_cpu_kernels_;  // cached
};

// The largest range in bytes that a kernel can bind of a tensor that may start anywhere.
int64_t max_binding_bytes(const Context& context);

class PackContext : public NodeContext {
 public:
  std::vector<std::optional<TensorDesc>> inputs;  // set for constants; others may be empty
  const TensorDesc& input(size_t i) const { return *inputs.at(i); }
};

// Packs constant input `input` as float32, times `scale`. Used for biases, scales and statistics, which kernels read at accumulator
// precision.
void pack_floats(const PackContext& node, size_t input, double scale, PackedWeight& packed);

// Kernels that a node was lowered to before, keyed by the shape facts that selected them. The list is short: most shapes share a kernel.
class KernelMemo {
 public:
  const std::shared_ptr<const KernelVariant>* find(std::string_view key) const;
  void add(std::string key, std::shared_ptr<const KernelVariant> kernel) { kernels_.emplace_back(std::move(key), std::move(kernel)); }

 private:
  std::vector<std::pair<std::string, std::shared_ptr<const KernelVariant>>> kernels_;
};

inline constexpr int64_t kUnknownAdditions = INT64_MAX;  // as many additions as the sum has terms, for kernels that do not report them

// Result of lowering a node.
struct LoweredNode {
  std::vector<Step> steps;
  std::vector<uint64_t> temporaries;  // size in bytes of each
  std::vector<std::vector<std::byte>> host_blocks;
  // Longest chain of roundings of one term in the node's sums: its multiplication and all later additions. 0: not reported; callers assume
  // as many as a sum has terms.
  int64_t additions = 0;
  uint64_t flop = 0;  // operations of the node, from node_flop()
};

// A node at bind time. All TensorDescs are concrete; floats have dtype float_dtype, or float32 at the graph's inputs and outputs.
class LowerContext : public NodeContext, public LoweredNode {
 public:
  bool has_input(size_t i) const { return i < inputs.size() && inputs[i].has_value(); }
  bool has_output(size_t i) const { return i < outputs.size() && outputs[i].has_value(); }
  const TensorDesc& input(size_t i) const { return *inputs.at(i); }
  const TensorDesc& output(size_t i) const { return *outputs.at(i); }
  const HostTensor* host(size_t i) const { return i < hosts.size() ? hosts[i] : nullptr; }
  // Byte distance of input i from the preceding 16-byte boundary.
  uint64_t input_misalignment(size_t i) const { return i < input_misalignments.size() ? input_misalignments[i] : 0; }
  Operand in(size_t i) const { return {MemoryKind::input, static_cast<uint32_t>(i), 0}; }
  Operand out(size_t i) const { return {MemoryKind::output, static_cast<uint32_t>(i), 0}; }
  // Scratch memory of this node, 16-byte aligned.
  Operand temporary(uint64_t bytes) {
    temporaries.push_back(bytes);
    return {MemoryKind::temporary, static_cast<uint32_t>(temporaries.size() - 1), 0};
  }
  // Host-built bytes that the device reads: tables, and parameters that exceed push constants.
  Operand host_block(std::vector<std::byte> bytes) {
    host_blocks.push_back(std::move(bytes));
    return {MemoryKind::host, static_cast<uint32_t>(host_blocks.size() - 1), 0};
  }
  // Returns input i in packed form: the persistent copy if constant, else packed into a temporary.
  Operand packed(size_t i);
  // The fused epilogue, as the GLSL body of a macro over `x` ("x" if nothing is fused). Used by contraction, window, reduce and map
  // operators.
  const std::string& epilogue() const {
    epilogue_read = true;
    return epilogue_source;
  }
  // Epilogue macros for kernels that compute no other elementary functions. If results have 16 bits, the macros select the short
  // approximations, as in a separate elementwise kernel.
  Macros epilogue_macros() const {
    Macros macros{{"EPILOGUE(x)", epilogue()}};
    const bool is_approximate = !exact_epilogue && !outputs.empty() && outputs[0] && is_16bit_float(outputs[0]->dtype);
    if (is_approximate && epilogue_source.find("pm_") != std::string::npos) macros.emplace_back("PM_BRIEF", "1");
    return macros;
  }
  // The tensor called `residual` in the epilogue. It has the output's layout and starts at a binding boundary.
  const Operand* residual() const {
    residual_read = true;
    return residual_operand ? &*residual_operand : nullptr;
  }
  // Returns the dtype of the residual's elements, or `otherwise` if there is no residual.
  DType residual_dtype(DType otherwise) const { return residual() ? input(kResidualInput).dtype : otherwise; }
  void add(Step step) { steps.push_back(std::move(step)); }
  // Reports the longest chain of additions in the node's sums. Call only from a lowering that knows all of them.
  void report_additions(int64_t additions_of_step) { additions = std::max(additions, additions_of_step); }

  std::vector<std::optional<TensorDesc>> inputs, outputs;
  std::vector<const HostTensor*> hosts;
  std::vector<uint64_t> input_misalignments;  // empty: all inputs start at a boundary
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
  KernelMemo* memo = nullptr;             // memo of this node, or null
  uint64_t unsplit_bytes = ~uint64_t{0};  // bytes that the unsplit node would bind, if this is a part of a node that is split for size
};

}  // namespace pumice
