// Operator (described) -> CompiledOperator (for a device and a precision) -> Initializer (runs once) -> executed many times.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dispatch/dispatchable.h"
#include "operators/lowering.h"
#include "operators/operator_table.h"

namespace pumice {

// A step whose operands are places of the whole plan: input i, output i, or a byte offset into temporary or persistent memory
// (index 0, byte_offset the arena offset).
struct PlannedStep {
  Step step;
  std::string label;                    // node name
  std::vector<uint64_t> operand_bytes;  // bytes of each operand's range
};

// Everything a CompiledOperator runs: one operator's steps or a whole graph's.
struct Plan {
  std::string name;
  std::vector<Slot> inputs, outputs;
  std::vector<PlannedStep> init_steps;  // owned inputs -> persistent
  std::vector<PlannedStep> steps;
  uint64_t temporary_bytes = 0, persistent_bytes = 0, init_temporary_bytes = 0;
  bool in_place = false;
};

// Which persistent range has been initialised; shared by the plans of one program for different input shapes.
struct InitializationState {
  std::mutex mutex;
  bool initialised = false;
  uint64_t buffer_id = 0, offset = 0;
};

class CompiledOperator : public Dispatchable, public std::enable_shared_from_this<CompiledOperator> {
 public:
  CompiledOperator(std::shared_ptr<Context> context, Plan plan, std::shared_ptr<InitializationState> state = {});
  const std::shared_ptr<Context>& context() const override { return context_; }
  const std::string& name() const override { return plan_.name; }
  const std::vector<Slot>& inputs() const override { return plan_.inputs; }
  const std::vector<Slot>& outputs() const override { return plan_.outputs; }
  BindingProperties binding_properties() const override;
  bool supports_in_place(size_t input, size_t output) const override;
  std::vector<Dispatch> lower(const BoundRanges& ranges) const override;
  void check_executable(const BoundRanges& ranges) const override;
  const Plan& plan() const { return plan_; }
  const std::shared_ptr<InitializationState>& state() const { return state_; }

 private:
  std::shared_ptr<Context> context_;
  Plan plan_;
  std::shared_ptr<InitializationState> state_;
};

// Initialises N compiled operators: inputs are one buffer array per operator, outputs their persistent ranges, in order (I1 .. I7).
class Initializer : public Dispatchable {
 public:
  Initializer(std::shared_ptr<Context> context, std::vector<std::shared_ptr<const CompiledOperator>> operators);
  void reset(std::vector<std::shared_ptr<const CompiledOperator>> operators);
  const std::vector<std::shared_ptr<const CompiledOperator>>& operators() const { return operators_; }
  const std::shared_ptr<Context>& context() const override { return context_; }
  const std::string& name() const override { return name_; }
  const std::vector<Slot>& inputs() const override { return inputs_; }    // one slot per operator
  const std::vector<Slot>& outputs() const override { return outputs_; }  // one slot per operator
  BindingProperties binding_properties() const override;
  bool is_initializer() const override { return true; }
  std::vector<const Dispatchable*> targets() const override;
  std::vector<Dispatch> lower(const BoundRanges& ranges) const override;  // ranges.inputs: all operators' inputs, flattened in order
  void check_executable(const BoundRanges& ranges) const override;
  void executed(const BoundRanges& ranges) const override;

 private:
  std::shared_ptr<Context> context_;
  std::string name_ = "initializer";
  std::vector<std::shared_ptr<const CompiledOperator>> operators_;
  std::vector<Slot> inputs_, outputs_;
};

// One operator described by its ONNX name, tensors and attributes; no GPU state.
class Operator {
 public:
  // Throws UnsupportedError or GraphError (O1, R4 .. R9).
  Operator(std::string_view name, std::vector<std::optional<TensorDesc>> inputs, std::vector<std::optional<TensorDesc>> outputs, const Attributes& attributes);
  std::shared_ptr<CompiledOperator> compile(std::shared_ptr<Context> context, std::string_view precision = "fp32") const;
  const OperatorRow& row() const { return *row_; }

 private:
  const OperatorRow* row_;
  std::vector<std::optional<TensorDesc>> inputs_, outputs_;
  Attributes attributes_;
};

}  // namespace pumice
