// Records a list of dv commands as compiled operators with their tables, and moves of bytes, in order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dispatch/command_list.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice::dv {

// A tensor as an operator sees it: its first byte is at `range.offset`, a multiple of kTensorAlignment.
struct Operand {
  TensorDesc desc;
  BufferRange range;
};

class Recorder {
 public:
  explicit Recorder(std::shared_ptr<pumice::Context> context) : context_(std::move(context)) {}
  const std::shared_ptr<pumice::Context>& context() const { return context_; }

  // Scratch memory until end_command(), after which later commands use it again.
  BufferRange scratch(uint64_t bytes);
  void end_command();
  // Memory with these values for the life of the list.
  BufferRange constant(const HostTensor& values);

  // Records one operator. Owned inputs are read when the list is committed, the others at every execution.
  void run(std::string_view op, const Attributes& attributes, const std::vector<Operand>& inputs, const Operand& output,
           const std::optional<Expression>& epilogue = {});
  // Records an expression over the inputs, which are in0, in1, ...
  void map(const Expression& expression, const std::vector<Operand>& inputs, const Operand& output);
  // Records a move of bytes from any even offset to any other; nothing beside them is written.
  void move(const BufferRange& source, const BufferRange& target);
  void add(Dispatch dispatch) { items_.push_back({{}, {}, std::move(dispatch)}); }

  // Waits until the owned inputs have been read, and frees them.
  void initialize(const Interrupted& interrupted);
  std::unique_ptr<pumice::CommandList> list() const;

 private:
  struct Item {
    std::shared_ptr<const CompiledOperator> compiled;
    std::shared_ptr<const BindingTable> table;
    std::optional<Dispatch> dispatch;  // in place of an operator
  };
  void add(const Operator& op, const std::vector<Operand>& inputs, const Operand& output, const std::optional<Expression>& epilogue);

  std::shared_ptr<pumice::Context> context_;
  std::vector<Item> items_;
  std::vector<std::shared_ptr<Buffer>> free_, taken_;  // scratch memory
  // The operators with owned inputs, with those inputs and their persistent memory.
  std::vector<std::shared_ptr<const CompiledOperator>> owners_;
  Bindings owned_, persistent_;
};

}  // namespace pumice::dv
