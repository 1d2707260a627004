// Records dv commands in order, as compiled operators with their binding tables and as byte copies.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dispatch/command_list.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice::dv {

// An operand of an operator; it starts at `range.offset`, a multiple of kTensorAlignment.
struct Operand {
  TensorDesc desc;
  BufferRange range;
};

class Recorder {
 public:
  explicit Recorder(std::shared_ptr<pumice::Context> context) : context_(std::move(context)) {}
  const std::shared_ptr<pumice::Context>& context() const { return context_; }

  // Returns scratch memory that later commands reuse after end_command().
  BufferRange allocate_scratch(uint64_t bytes);
  void end_command();
  // Returns memory initialized with these values; it lives as long as the list.
  BufferRange upload_constant(const HostTensor& values);

  // Records one operator. Owned inputs are read at commit, all other inputs at every execution.
  void record_operator(std::string_view op, const Attributes& attributes, const std::vector<Operand>& inputs, const Operand& output,
                       const std::optional<Expression>& epilogue = {});
  // Records an elementwise expression of the inputs in0, in1, ...
  void record_expression(const Expression& expression, const std::vector<Operand>& inputs, const Operand& output);
  // Records a byte copy; offsets may be any even numbers. Bytes next to the target range are not written.
  void copy_bytes(const BufferRange& source, const BufferRange& target);
  void add(Dispatch dispatch) { items_.push_back({{}, {}, std::move(dispatch)}); }

  // Waits until the owned inputs have been read, and frees them.
  void initialize(const InterruptCallback& interrupted);
  std::unique_ptr<pumice::CommandList> make_command_list() const;

 private:
  struct RecordedItem {
    std::shared_ptr<const CompiledOperator> compiled;
    std::shared_ptr<const BindingTable> table;
    std::optional<Dispatch> dispatch;  // set instead of an operator
  };
  void add(const Operator& op, const std::vector<Operand>& inputs, const Operand& output, const std::optional<Expression>& epilogue);

  std::shared_ptr<pumice::Context> context_;
  std::vector<RecordedItem> items_;
  std::vector<std::shared_ptr<Buffer>> free_, used_;  // scratch memory
  // Operators to initialise, with the bindings of their owned inputs and persistent memory.
  std::vector<std::shared_ptr<const CompiledOperator>> owner_operators_;
  Bindings owned_bindings_, persistent_bindings_;
};

}  // namespace pumice::dv
