// Lifecycle: Operator (a description) -> CompiledOperator (for a device and a precision) -> Initializer (runs once) -> many executions.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/dispatchable.h"
#include "operators/table/lowering.h"
#include "operators/table/operator_table.h"

namespace pumice {

// Memory location of a step's operand: a byte offset into input or output number `index`, or, with index 0, into the temporary resource,
// the persistent resource or the plan's host values.
struct PlannedOperand {
  MemoryKind memory = MemoryKind::none;
  uint32_t index = 0;
  uint64_t byte_offset = 0;
  uint64_t bytes = 0;            // number of bytes from byte_offset on
  uint32_t element_bits = 32;    // element size of the tensor, the unit of `<binding>_offset` regardless of the kernel's array type
  InterleavedRange interleaved;  // interleaved.origin is a byte offset in the same memory
  int32_t value = -1;            // graph value in this memory, for reports; -1: scratch memory, or not a graph
  uint64_t accessed_bytes = 0;   // number of bytes that the step accesses; 0: unknown. The binding is larger if the device allows it
  bool is_exact = false;         // bind at most `accessed_bytes` bytes
};

// A dispatch whose memory is assigned, except for the ranges that the binding table supplies.
struct PlannedStep {
  std::shared_ptr<const KernelVariant> kernel;
  std::vector<PlannedOperand> operands;  // indexed like kernel->interface().bindings
  std::vector<std::byte> push;
  std::array<uint32_t, 3> groups{1, 1, 1};
  std::string label;      // node name
  uint32_t wave = 0;      // steps of the same wave are independent
  int64_t additions = 0;  // LoweredNode::additions of its node
  uint64_t flop = 0;      // LoweredNode::flop of its node
  std::shared_ptr<const StepChoice> choice = nullptr;
  std::string variant = {};  // see Step
};

// Steps that fill the persistent resource. They are independent of data shapes and shared by all plans of a program.
struct InitializationPlan {
  std::vector<PlannedStep> steps;  // steps that read owned inputs and constants, and write the persistent resource
  uint64_t temporary_bytes = 0, persistent_bytes = 0;
};

// Everything that a CompiledOperator runs: the steps of an operator or of a whole graph.
struct ExecutionPlan {
  std::string name;
  std::vector<TensorSlot> inputs, outputs;
  std::shared_ptr<const InitializationPlan> initialization;  // CompiledOperator replaces null by an empty plan
  std::vector<PlannedStep> steps;
  uint64_t temporary_bytes = 0;
  std::vector<std::byte> host_values;        // values that the host computes at bind time and the device reads (MemoryKind::host)
  std::vector<std::byte> constants;          // constants for the initialisation steps (MemoryKind::host); released after the upload
  const OperatorSchema* in_place = nullptr;  // schema that declares which outputs may alias inputs; null: only the outputs in `updates`
  std::vector<std::pair<uint32_t, uint32_t>>
      updates;  // pairs of input and output: the input has no reader except its copy to the output, which precedes all other writes
  bool has_volatile_descriptors = false;
};

// Tracks initialisation of the persistent range; shared by plans of one program for different input shapes.
struct InitializationState {
  std::mutex mutex;
  bool initialised = false;
  uint64_t buffer_id = 0, offset = 0;  // range of the persistent resource; buffer_id 0: no persistent data
  std::shared_ptr<Buffer> constants;   // the plan's constants; released after the initialisation has read them
};

// A plan on a device. Immutable and thread-safe, except for the initialisation state, which tracks the submitted GPU work.
class CompiledOperator : public Dispatchable, public std::enable_shared_from_this<CompiledOperator> {
 public:
  CompiledOperator(std::shared_ptr<Context> context, ExecutionPlan plan, std::shared_ptr<InitializationState> state = {});
  const std::shared_ptr<Context>& context() const override { return context_; }
  const std::string& name() const override { return plan_.name; }
  const std::vector<TensorSlot>& inputs() const override { return plan_.inputs; }
  const std::vector<TensorSlot>& outputs() const override { return plan_.outputs; }
  BindingProperties binding_properties() const override { return properties_; }
  bool supports_in_place(size_t input, size_t output) const override;
  bool has_volatile_descriptors() const override { return plan_.has_volatile_descriptors; }
  // Returns the dispatches that execute the plan. Throws UnsupportedError with both sizes if a range exceeds the largest binding.
  std::vector<Dispatch> lower(const BoundRanges& ranges) const override;
  void check_persistent(const BufferRange& range) const override;  // no-op before initialisation
  void begin_execution(const BoundRanges& ranges) const override;  // checks rules I5 and P5
  const ExecutionPlan& plan() const { return plan_; }
  const std::shared_ptr<InitializationState>& state() const { return state_; }
  BufferRange constants() const;  // constants that the initialisation reads; empty afterwards

 private:
  std::shared_ptr<Context> context_;
  ExecutionPlan plan_;
  BindingProperties properties_;
  std::shared_ptr<InitializationState> state_;
  std::shared_ptr<Buffer> host_values_;
};

// Initialises N compiled operators. Inputs: one buffer array per operator. Outputs: their persistent ranges, in order (I1 .. I7).
class Initializer : public Dispatchable {
 public:
  Initializer(std::shared_ptr<Context> context, std::vector<std::shared_ptr<const CompiledOperator>> operators);
  // Replaces the operators to initialise. Throws BindingError while an earlier initialisation by this object is still running (I6).
  void reset(std::vector<std::shared_ptr<const CompiledOperator>> operators);
  const std::vector<std::shared_ptr<const CompiledOperator>>& operators() const { return operators_; }
  const std::shared_ptr<Context>& context() const override { return context_; }
  const std::string& name() const override { return name_; }
  const std::vector<TensorSlot>& inputs() const override { return inputs_; }    // one slot per operator
  const std::vector<TensorSlot>& outputs() const override { return outputs_; }  // one slot per operator
  BindingProperties binding_properties() const override;
  bool is_initializer() const override { return true; }
  uint64_t generation() const override { return generation_; }
  std::vector<const Dispatchable*> get_initialized_operators() const override;
  std::vector<Dispatch> lower(const BoundRanges& ranges) const override;  // ranges.inputs: inputs of all operators, concatenated
  void begin_execution(const BoundRanges& ranges) const override;
  void cancel_execution() const override;
  void on_submitted(uint64_t id) const override;

 private:
  std::shared_ptr<Context> context_;
  std::string name_ = "initializer";
  std::vector<std::shared_ptr<const CompiledOperator>> operators_;
  std::vector<TensorSlot> inputs_, outputs_;
  void revoke_initialization(size_t count) const;

  mutable std::atomic<uint64_t> busy_until_{0};  // timeline id of the last initialisation
  std::atomic<uint64_t> generation_{0};
};

// Compile options for anything that is executed with a binding table.
struct ExecutionOptions {
  std::optional<std::string> precision = {};  // "fp32", "fp16" or "bf16"; nullopt: intermediate floats keep their declared dtypes
  bool has_volatile_descriptors = false;      // bindings may change between recording and executing a command list
  bool deterministic = false;                 // results are bitwise reproducible across runs
  std::optional<Expression> epilogue = {};    // expression over "x", applied before rounding and storing; only for operators with epilogues
};

// Returns the options for a precision ("fp32", "fp16" or "bf16") and a list of execution flags. ALLOW_HALF_PRECISION_COMPUTATION selects
// fp16 if the precision is fp32 or not given. DISABLE_META_COMMANDS has no effect, because there are no vendor kernels. The other flags are
// DESCRIPTORS_VOLATILE and DETERMINISTIC. Throws UnsupportedError for an unknown flag or precision.
ExecutionOptions parse_execution_options(const std::optional<std::string>& precision, const std::vector<std::string>& flags);

// An operator described by its ONNX name, tensors and attributes. Has no GPU state.
class Operator {
 public:
  // `constants`: the value of each input that the operator reads on the host. These inputs have no binding (C4). Throws UnsupportedError or
  // GraphError (O1, R4 .. R9).
  Operator(std::string_view name, std::vector<std::optional<TensorDesc>> inputs, std::vector<std::optional<TensorDesc>> outputs,
           const Attributes& attributes, std::vector<std::optional<HostTensor>> constants = {});
  // A custom elementwise operator: an expression over "in0", "in1", .., with at most kMaxCustomInputs inputs.
  Operator(Expression expression, const std::vector<TensorDesc>& inputs, const TensorDesc& output);
  // Fuses an activation, an elementwise operator on one float, which the kernel applies before rounding and storing. Throws
  // UnsupportedError listing the supported activations, or GraphError for invalid attributes.
  void set_activation(std::string_view name, const Attributes& attributes);
  // Compiles the operator for a device. The precision changes the arithmetic and the contents of the temporary and persistent resources,
  // but not the sizes of the bindings. Throws UnsupportedError if no kernel of the operator supports the activation.
  std::shared_ptr<CompiledOperator> compile(std::shared_ptr<Context> context, const ExecutionOptions& options = {}) const;
  const OperatorRow& row() const { return *row_; }
  const std::vector<std::optional<TensorDesc>>& inputs() const { return inputs_; }  // nullopt for inputs that are not bound
  const std::vector<std::optional<TensorDesc>>& outputs() const { return outputs_; }
  std::vector<const HostTensor*> constants() const;  // indexed by input; null if bound or absent
  std::vector<const TensorDesc*> operands() const;   // indexed by input, bound or constant; null if absent
  const Expression* expression() const { return expression_ ? &*expression_ : nullptr; }

 private:
  void check_constants() const;
  void check_outputs() const;

  const OperatorRow* row_;
  std::vector<std::optional<TensorDesc>> inputs_, outputs_;
  std::vector<std::optional<HostTensor>> constants_;
  Attributes attributes_;
  std::optional<Expression> expression_;
  std::optional<Expression> activation_;  // expression over "x"
};

// Returns the name of input or output `i` of an operator, with a number if it is variadic ("X", "inputs2").
std::string format_role_name(const std::vector<ValueRole>& roles, size_t i);

// Appends steps that copy `bytes` bytes (a multiple of 4) from `source` to `target`, each at most as large as the device's largest binding.
void append_word_copies(const std::shared_ptr<Context>& context, const PlannedOperand& source, const PlannedOperand& target, uint64_t bytes,
                        std::string_view label, std::vector<PlannedStep>& steps);

// Whether the step copies its first operand to its second. Such a step is skipped if both are bound to the same range.
bool is_word_copy(const PlannedStep& step);
// Appends the dispatches of `steps` with their bindings in `ranges`. `host_values`: buffer with the plan's host values, if any.
void append_dispatches(const Context& context, const std::vector<PlannedStep>& steps, const BoundRanges& ranges,
                       const BufferRange& host_values, std::vector<Dispatch>& dispatches);

}  // namespace pumice
