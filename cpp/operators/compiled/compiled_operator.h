// Operator (described) -> CompiledOperator (for a device and a precision) -> Initializer (runs once) -> executed many times.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/dispatchable.h"
#include "operators/row/lowering.h"
#include "operators/row/operator_table.h"

namespace pumice {

// A step's operand as a place of the whole plan: input or output `index`, or (index 0) a byte offset into the temporary or the
// persistent resource or the plan's own block of host values.
struct PlannedOperand {
  Place place = Place::none;
  uint32_t index = 0;
  uint64_t byte_offset = 0;
  uint64_t bytes = 0;          // from byte_offset on
  uint32_t element_bits = 32;  // the tensor's: what `<binding>_offset` counts, whatever the kernel's array is declared as
  Lane lane;                   // its origin is a byte of the place
  int32_t value = -1;          // the graph's value, for reports; -1: scratch memory, or no graph
  uint64_t touched = 0;        // bytes that the step reads or writes; 0: not known. More is bound only where the device can
  bool is_exact = false;       // no more than `touched` is bound
};

// A dispatch whose memory is known but for the bindings of a table.
struct PlannedStep {
  std::shared_ptr<const KernelVariant> kernel;
  std::vector<PlannedOperand> operands;  // by position in kernel->interface().bindings
  std::vector<std::byte> push;
  std::array<uint32_t, 3> groups{1, 1, 1};
  std::string label;      // node name
  uint32_t wave = 0;      // steps of one wave do not depend on each other
  int64_t additions = 0;  // of its node, see LoweredNode
  uint64_t flop = 0;      // likewise
  std::shared_ptr<const StepChoice> choice = nullptr;
  std::string variant = {};  // see Step
};

// The steps that fill the persistent resource: free of data shapes, so that all plans of one program share them.
struct InitializationPlan {
  std::vector<PlannedStep> steps;  // owned inputs and constants -> persistent
  uint64_t temporary_bytes = 0, persistent_bytes = 0;
};

// Everything a CompiledOperator runs: one operator's steps or a whole graph's.
struct Plan {
  std::string name;
  std::vector<Slot> inputs, outputs;
  std::shared_ptr<const InitializationPlan> initialization;  // never null in use
  std::vector<PlannedStep> steps;
  uint64_t temporary_bytes = 0;
  std::vector<std::byte> host_values;                  // made on the host at bind, read by the device: Place::host
  std::vector<std::byte> constants;                    // read by the initialisation's steps at Place::host; given up once on the device
  const Schema* in_place = nullptr;                    // decides which outputs may lie on inputs; null: `updates` alone does
  std::vector<std::pair<uint32_t, uint32_t>> updates;  // inputs that are copied to outputs before these change, and that nothing else reads
  bool descriptors_volatile = false;
};

// The persistent range that has been initialised; shared by the plans of one program for different input shapes.
struct InitializationState {
  std::mutex mutex;
  bool initialised = false;
  uint64_t buffer_id = 0, offset = 0;  // 0: nothing is persistent
  std::shared_ptr<Buffer> constants;   // the plan's constants, until they have been read
};

// A plan on a device. Immutable and thread-safe; its initialisation state is that of the GPU work submitted so far.
class CompiledOperator : public Dispatchable, public std::enable_shared_from_this<CompiledOperator> {
 public:
  CompiledOperator(std::shared_ptr<Context> context, Plan plan, std::shared_ptr<InitializationState> state = {});
  const std::shared_ptr<Context>& context() const override { return context_; }
  const std::string& name() const override { return plan_.name; }
  const std::vector<Slot>& inputs() const override { return plan_.inputs; }
  const std::vector<Slot>& outputs() const override { return plan_.outputs; }
  BindingProperties binding_properties() const override { return properties_; }
  bool supports_in_place(size_t input, size_t output) const override;
  bool descriptors_volatile() const override { return plan_.descriptors_volatile; }
  // The dispatches that execute the plan. Throws UnsupportedError where a range is larger than the device binds (both numbers).
  std::vector<Dispatch> lower(const BoundRanges& ranges) const override;
  void check_persistent(const BufferRange& range) const override;  // no-op before an initialisation
  void begin_execution(const BoundRanges& ranges) const override;  // I5, P5
  const Plan& plan() const { return plan_; }
  const std::shared_ptr<InitializationState>& state() const { return state_; }
  BufferRange constants() const;  // read by its initialisation; none afterwards

 private:
  std::shared_ptr<Context> context_;
  Plan plan_;
  BindingProperties properties_;
  std::shared_ptr<InitializationState> state_;
  std::shared_ptr<Buffer> host_values_;
};

// Initialises N compiled operators: inputs are one buffer array per operator, outputs their persistent ranges, in order (I1 .. I7).
class Initializer : public Dispatchable {
 public:
  Initializer(std::shared_ptr<Context> context, std::vector<std::shared_ptr<const CompiledOperator>> operators);
  // BindingError while an earlier initialisation by this object is still running (I6).
  void reset(std::vector<std::shared_ptr<const CompiledOperator>> operators);
  const std::vector<std::shared_ptr<const CompiledOperator>>& operators() const { return operators_; }
  const std::shared_ptr<Context>& context() const override { return context_; }
  const std::string& name() const override { return name_; }
  const std::vector<Slot>& inputs() const override { return inputs_; }    // one slot per operator
  const std::vector<Slot>& outputs() const override { return outputs_; }  // one slot per operator
  BindingProperties binding_properties() const override;
  bool is_initializer() const override { return true; }
  uint64_t generation() const override { return generation_; }
  std::vector<const Dispatchable*> targets() const override;
  std::vector<Dispatch> lower(const BoundRanges& ranges) const override;  // ranges.inputs: all operators' inputs, flattened in order
  void begin_execution(const BoundRanges& ranges) const override;
  void revoke_execution() const override;
  void submitted(uint64_t id) const override;

 private:
  std::shared_ptr<Context> context_;
  std::string name_ = "initializer";
  std::vector<std::shared_ptr<const CompiledOperator>> operators_;
  std::vector<Slot> inputs_, outputs_;
  void revoke(size_t count) const;

  mutable std::atomic<uint64_t> busy_until_{0};  // id on the timeline
  std::atomic<uint64_t> generation_{0};
};

// Options of compiling anything that tables are made for.
struct ExecutionOptions {
  std::optional<std::string> precision = {};  // "fp32", "fp16" or "bf16"; none: floats are inside as they are described
  bool descriptors_volatile = false;          // bindings may change between the recording of a list and its execution
  bool deterministic = false;                 // results are the same bits in every run
  std::optional<Expression> epilogue = {};    // over "x", a result before it is rounded and stored; of rows whose kernels apply one
};

// Options from a precision ("fp32", "fp16" or "bf16") and names of execution flags: ALLOW_HALF_PRECISION_COMPUTATION makes fp16 of fp32 and
// of no precision; DISABLE_META_COMMANDS changes nothing, as there are no kernels of vendors; DESCRIPTORS_VOLATILE; DETERMINISTIC. Throws
// UnsupportedError for another name or precision.
ExecutionOptions execution_options(const std::optional<std::string>& precision, const std::vector<std::string>& flags);

// One operator described by its ONNX name, tensors and attributes; no GPU state.
class Operator {
 public:
  // `constants`: by input, the values of those that the row reads on the host; nothing is bound to their slots (C4).
  // Throws UnsupportedError or GraphError (O1, R4 .. R9).
  Operator(std::string_view name, std::vector<std::optional<TensorDesc>> inputs, std::vector<std::optional<TensorDesc>> outputs,
           const Attributes& attributes, std::vector<std::optional<HostTensor>> constants = {});
  // An elementwise operator of its own: the expression over "in0", "in1", .., at most kMostMapOperands of them.
  Operator(Expression expression, const std::vector<TensorDesc>& inputs, const TensorDesc& output);
  // The kernel applies the activation, an elementwise operator of one float, to a result before it is rounded and stored. Throws
  // UnsupportedError naming those that there are, GraphError for wrong attributes.
  void set_activation(std::string_view name, const Attributes& attributes);
  // Descriptions alone fix the bytes that are bound: a precision changes arithmetic, and what temporary and persistent resources hold.
  // Throws UnsupportedError where no kernel of the row applies an activation.
  std::shared_ptr<CompiledOperator> compile(std::shared_ptr<Context> context, const ExecutionOptions& options = {}) const;
  const OperatorRow& row() const { return *row_; }
  const std::vector<std::optional<TensorDesc>>& inputs() const { return inputs_; }  // those that are bound
  const std::vector<std::optional<TensorDesc>>& outputs() const { return outputs_; }
  std::vector<const HostTensor*> constants() const;  // by input; null for those that are bound or absent
  std::vector<const TensorDesc*> operands() const;   // by input, bound or constant; null for absent ones
  const Expression* expression() const { return expression_ ? &*expression_ : nullptr; }

 private:
  void check_constants() const;
  void check_outputs() const;

  const OperatorRow* row_;
  std::vector<std::optional<TensorDesc>> inputs_, outputs_;
  std::vector<std::optional<HostTensor>> constants_;
  Attributes attributes_;
  std::optional<Expression> expression_;
  std::optional<Expression> activation_;  // over "x"
};

// Name of input or output `i` of a row: that of its role, numbered where the role repeats ("X", "inputs2").
std::string role_name(const std::vector<ValueRole>& roles, size_t i);

// Steps that copy `bytes` (of whole words) from one place to another, cut where the device binds no larger range.
void append_word_copies(const std::shared_ptr<Context>& context, const PlannedOperand& source, const PlannedOperand& target, uint64_t bytes,
                        std::string_view label, std::vector<PlannedStep>& steps);

// A step that append_word_copies() or a row has made to copy its first operand to its second; on one range it is nothing to be done.
bool is_copy(const PlannedStep& step);
// The dispatches of `steps` on bound ranges. `host_values`: the plan's own block, where it has one.
void append_dispatches(const Context& context, const std::vector<PlannedStep>& steps, const BoundRanges& ranges,
                       const BufferRange& host_values, std::vector<Dispatch>& dispatches);

}  // namespace pumice
