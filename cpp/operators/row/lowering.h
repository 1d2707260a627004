// How an operator turns into dispatches: at compile its weights' packed form, at bind (all shapes known) its steps.
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
#include "operators/row/attributes.h"
#include "operators/row/measured_variants.h"
#include "operators/row/spilled_variants.h"

namespace pumice {

// Which memory a step's operand lives in. Indices count values of the node; a graph renumbers them.
enum class Place : uint8_t { none, input, output, temporary, persistent, host };

struct Operand {
  Place place = Place::none;
  uint32_t index = 0;
  uint64_t byte_offset = 0;
  uint64_t bytes = 0;         // that a step reads or writes from there on; 0: all up to the end
  uint32_t element_bits = 0;  // of a tensor in scratch memory, which no description tells of; 0: as the kernel declares its array
  bool is_exact = false;      // `bytes` are all that is bound: the kernel may ask for its array's length
  uint32_t part = 0;          // of a result: steps that write parts with other numbers write no element of this one; 0: the whole
};

// One dispatch before its memory is known. Built through LowerContext::dispatch().
struct Step {
  std::shared_ptr<const KernelVariant> kernel;
  std::vector<Operand> operands;  // by position in kernel->interface().bindings
  std::vector<std::byte> push;
  std::array<uint32_t, 3> groups{1, 1, 1};
  std::shared_ptr<const StepChoice> choice = nullptr;  // where the program was told of measured variants
  std::string variant = {};  // the name of the variant that it runs, where a node could take others; "": it has none
  std::string spilled = {};  // the one that stands back for it, since its kernel spills; "" where none does
};

inline constexpr uint64_t kBindingBoundary = 256;  // bytes; no device binds at a coarser one

// Fills a step by the names that the shader itself declares. Throws Error for unknown or missing names (our own mistakes).
class StepBuilder {
 public:
  explicit StepBuilder(std::shared_ptr<const KernelVariant> kernel);
  StepBuilder& bind(std::string_view name, const Operand& operand);
  // From element `first` on, of so many bits, of which `count` are read or written: from the boundary before it, which every device binds
  // at; what lies between them is told to `<name>_offset`.
  StepBuilder& bind(std::string_view name, Operand operand, int64_t first, int64_t count, size_t element_bits);
  template <std::integral T>
  StepBuilder& set(std::string_view name, T value) {
    return set_integer(name, static_cast<int64_t>(value));
  }  // push constant, converted to the reflected type
  StepBuilder& set(std::string_view name, double value);
  StepBuilder& set(std::string_view name, std::span<const int64_t> values);
  // Workgroup counts so that every axis has at least that many invocations; the kernel takes its folded form where the device takes no such
  // grid: see launch_of(), also for what is thrown.
  StepBuilder& threads(uint64_t x, uint64_t y = 1, uint64_t z = 1);
  StepBuilder& groups(uint64_t x, uint64_t y = 1, uint64_t z = 1);
  // The variant that the step runs, of several that its node could take. The driver will be asked whether its kernel spills.
  StepBuilder& variant(std::string name, std::string spilled);
  Step build();  // checks that everything declared was given

 private:
  const PushConstant& member(std::string_view name);
  StepBuilder& set_integer(std::string_view name, int64_t value);

  Step step_;
  std::vector<bool> bound_;
  std::vector<bool> pushed_;
};

// A weight's packed form: made once on the device from the constant, or at every execution where the weight is not constant.
struct PackedWeight {
  TensorDesc desc;  // dtype, shape and so bytes of the packed form (row-major)
  // Adds the steps from `source` (as described by PackContext::input) to `target`.
  std::function<void(std::vector<Step>&, const Operand& source, const Operand& target)> steps;
};

// Steps of one kernel, which makes each of `count` elements of `y` from `x`; `set` gives it its push constants.
std::function<void(std::vector<Step>&, const Operand&, const Operand&)> packing_each(std::shared_ptr<const KernelVariant> kernel,
                                                                                     int64_t count, std::function<void(StepBuilder&)> set);

// The input of a node whose epilogue reads a second tensor, of the result's shape or one that broadcasts with it.
inline constexpr size_t kResidualInput = 3;

// HalvesOfFactors tells of a product in float32 that the elements of its constant factor, times 2^-exponent, fit sums of two halves
// (shaders/include/halves.glsl).
struct HalvesOfFactors {
  int exponent;
  bool exact_left;  // the other factor is of halves; else its rows are split too
};

// Facts that both packing and lowering decide by, so that they decide alike.
class NodeContext {
 public:
  std::shared_ptr<Context> context;
  KernelLibrary* library = nullptr;
  const Attributes* attributes = nullptr;
  std::string_view node;
  DType float_dtype = DType::float32;          // of float values inside the program
  bool deterministic = false;                  // results are the same bits in every run
  const MeasuredVariants* measured = nullptr;  // variants of steps that were measured on this device; none: the engine chooses
  const VariantNames* spilled = nullptr;       // variants of this node's steps whose kernels spill; none: not known of any
  std::optional<HalvesOfFactors> halves;       // of a node whose row splits factors; none where they do not fit
  std::vector<std::optional<Shape>> shapes;    // of the inputs of a graph's node: those that are known before it is bound

  // The kernel of an embedded shader whose values are stored as `dtype`; see storage_of().
  std::shared_ptr<const KernelVariant> kernel(std::string_view shader, DType dtype, const Macros& macros = {},
                                              const SpecValues& spec = {}) const;
  // Family by device facts: a software device with subgroups of 8 has kernels in registers ("lanes"), any other device ones that work
  // through shared memory ("tiled").
  bool prefers_lanes() const;
  // Invocations of a subgroup that exchange values, a power of two from 16 on; 0 where a device has none, or several sizes of them.
  int64_t subgroup() const;
  // Invocations that a workgroup of one axis may have, and the largest power of two of them up to `wanted`.
  int64_t most_invocations() const;
  int64_t workgroup(int64_t wanted) const;
  bool is_spilled(std::string_view variant) const { return spilled && spilled->contains(variant); }
  // Matrix units that multiply floats as they are inside, 16 by 16 by 16, and sum in float32.
  bool has_matrices() const;
  // Matrix units of halves whose components lie as attention_quads.comp and product_quads.comp take them to lie.
  bool has_quads() const;
  // Whether the device has such units of halves, or tests have them emulated (Quirk::emulated_fragments).
  bool has_fragments() const { return has_quads() || emulates_fragments(); }
  bool emulates_fragments() const;
  // Bytes of shared memory of so many invocations whose units are emulated: both operands, and values that they give each other.
  int64_t emulated_bytes(int64_t invocations) const { return emulates_fragments() ? invocations * 68 : 0; }
  // Whether a product in float32 can be one of halves in fragments, whatever the floats are otherwise.
  bool takes_halves() const;
  // Multiprocessors of the device, for models of what a choice costs: as many as an H200 has where it does not tell.
  int64_t multiprocessors() const;
  // Throws UnsupportedError where the device has no arithmetic on such elements (shaderFloat64).
  void check_arithmetic(DType dtype) const;
  // Throws UnsupportedError where an invocation's loops would run too often in all: some drivers (Quirk::loop_limit) end them silently
  // after 65,535 iterations, nested or one after the other. Unrolled loops do not count.
  void check_loops(int64_t iterations) const;
  std::optional<int64_t> loop_limit() const;  // how often an invocation's loops may run in all, where this driver ends longer ones

 private:
  mutable std::optional<bool> prefers_lanes_;  // once asked
};

// Bytes that a kernel can bind of a tensor that begins anywhere.
int64_t largest_range(const Context& context);

class PackContext : public NodeContext {
 public:
  std::vector<std::optional<TensorDesc>> inputs;  // known for constants; others may be empty
  const TensorDesc& input(size_t i) const { return *inputs.at(i); }
};

// Packs constant input `input` to float32, times `scale`: biases, scales and statistics, which kernels read as they accumulate.
void pack_floats(const PackContext& node, size_t input, double scale, PackedWeight& packed);

// The kernels that a node was lowered to before, keyed by the facts of its shapes that chose them. There are few: other shapes mostly
// share one.
class KernelMemo {
 public:
  const std::shared_ptr<const KernelVariant>* find(std::string_view key) const;
  void add(std::string key, std::shared_ptr<const KernelVariant> kernel) { kernels_.emplace_back(std::move(key), std::move(kernel)); }

 private:
  std::vector<std::pair<std::string, std::shared_ptr<const KernelVariant>>> kernels_;
};

inline constexpr int64_t kAsLongAsTheSum = INT64_MAX;  // additions of what does not tell of them

// A LoweredNode is what a node is lowered to.
struct LoweredNode {
  std::vector<Step> steps;
  std::vector<uint64_t> temporaries;  // bytes of each
  std::vector<std::vector<std::byte>> host_blocks;
  // The most roundings that one term goes through in the sums of the node's kernels: its own product's and those of the additions behind
  // it. 0: no kernel has told; it is as many as a sum has terms.
  int64_t additions = 0;
  uint64_t flop = 0;  // of the node: node_flop()
};

// One node at bind. The descs of inputs and outputs are concrete; float values have dtype float_dtype, or float32 at the border.
class LowerContext : public NodeContext, public LoweredNode {
 public:
  bool has_input(size_t i) const { return i < inputs.size() && inputs[i].has_value(); }
  bool has_output(size_t i) const { return i < outputs.size() && outputs[i].has_value(); }
  const TensorDesc& input(size_t i) const { return *inputs.at(i); }
  const TensorDesc& output(size_t i) const { return *outputs.at(i); }
  const HostTensor* host(size_t i) const { return i < hosts.size() ? hosts[i] : nullptr; }
  // Bytes from the last 16-byte boundary to where input i begins.
  uint64_t input_phase(size_t i) const { return i < input_phases.size() ? input_phases[i] : 0; }
  Operand in(size_t i) const { return {Place::input, static_cast<uint32_t>(i), 0}; }
  Operand out(size_t i) const { return {Place::output, static_cast<uint32_t>(i), 0}; }
  // Scratch memory of this node, 16-byte aligned.
  Operand temporary(uint64_t bytes) {
    temporaries.push_back(bytes);
    return {Place::temporary, static_cast<uint32_t>(temporaries.size() - 1), 0};
  }
  // Bytes made here that the device reads: tables and other parameters past what push constants hold.
  Operand host_block(std::vector<std::byte> bytes) {
    host_blocks.push_back(std::move(bytes));
    return {Place::host, static_cast<uint32_t>(host_blocks.size() - 1), 0};
  }
  // Input i in its packed form: the persistent copy where it is constant, else packed here into a temporary.
  Operand packed(size_t i);
  // GLSL for a fused epilogue as the body of a macro over `x` ("x" where nothing is fused); contraction, window, reduce and map rows honour
  // it.
  const std::string& epilogue() const {
    epilogue_read = true;
    return epilogue_text;
  }
  // The macros of the epilogue of a kernel that computes no elementary functions but its: those are the shorter ones where results have 16
  // bits, as in a map of its own.
  Macros epilogue_macros() const {
    Macros macros{{"EPILOGUE(x)", epilogue()}};
    const bool is_brief = !exact_epilogue && !outputs.empty() && outputs[0] && is_half_width(outputs[0]->dtype);
    if (is_brief && epilogue_text.find("pm_") != std::string::npos) macros.emplace_back("PM_BRIEF", "1");
    return macros;
  }
  // What the epilogue calls `residual`: it lies as the output does and begins at a boundary.
  const Operand* residual() const {
    residual_read = true;
    return residual_operand ? &*residual_operand : nullptr;
  }
  // The dtype of its elements; `otherwise` where there is no residual.
  DType residual_dtype(DType otherwise) const { return residual() ? input(kResidualInput).dtype : otherwise; }
  void add(Step step) { steps.push_back(std::move(step)); }
  // Tells of the longest chain of additions in a sum of the node. Only a lowering that knows all of the node's sums may.
  void tell_additions(int64_t most) { additions = std::max(additions, most); }

  std::vector<std::optional<TensorDesc>> inputs, outputs;
  std::vector<const HostTensor*> hosts;
  std::vector<uint64_t> input_phases;  // empty: all begin at a boundary
  std::vector<bool> constant_packed;   // input i is already packed in the persistent resource
  std::vector<bool> constant;          // input i lies in it, packed or as it is; of nodes of programs alone
  const struct OperatorRow* row = nullptr;
  std::string epilogue_text = "x";
  bool exact_epilogue = false;  // its functions are to be those of float32
  int64_t concurrent = 1;       // products of the same rows with matrices of one size that run beside each other, this one among them
  std::optional<Operand> residual_operand = {};
  mutable bool epilogue_read = false, residual_read = false;
  const Expression* expression = nullptr;  // of a fused map, over map_input_names(); null: the row's own. With a residual: the epilogue
  KernelMemo* memo = nullptr;              // of this very node, or none
  uint64_t whole_bound = ~uint64_t{0};     // where this is a part of a node that is lowered in parts: bytes that its steps would bind whole
};

}  // namespace pumice
