#include "dv/command_recorder.h"

#include <algorithm>

#include "core/rounding.h"

namespace pumice::dv {
namespace {

constexpr uint64_t kScratchGranularity = 256;  // sizes of scratch buffers are multiples of this

// Returns the binding of an operand.
DescribedRange make_bound_range(const Operand& operand) {
  return BufferRange{operand.range.buffer, operand.range.offset, operand.desc.bytes()};
}

}  // namespace

BufferRange Recorder::allocate_scratch(uint64_t bytes) {
  if (bytes == 0) return {};
  const auto fits = [&](const std::shared_ptr<Buffer>& buffer) { return buffer->bytes() >= bytes; };
  const auto found = std::find_if(free_.begin(), free_.end(), fits);
  if (found != free_.end()) {
    used_.push_back(*found);
    free_.erase(found);
  } else {
    used_.push_back(Buffer::create(context_, round_up(bytes, kScratchGranularity)));
  }
  return {used_.back(), 0, bytes};
}

void Recorder::end_command() {
  free_.insert(free_.end(), used_.begin(), used_.end());
  used_.clear();
  std::ranges::sort(free_, {},
                    [](const auto& buffer) { return buffer->bytes(); });  // smallest first, so that the search finds the best fit
}

BufferRange Recorder::upload_constant(const HostTensor& values) {
  const auto buffer = Buffer::create(context_, values.desc.bytes());
  upload({buffer, 0, values.desc.element_bytes()}, {values.data, values.desc.element_bytes()});
  return {buffer, 0, buffer->bytes()};
}

void Recorder::record_operator(std::string_view op, const Attributes& attributes, const std::vector<Operand>& inputs, const Operand& output,
                               const std::optional<Expression>& epilogue) {
  std::vector<std::optional<TensorDesc>> descs;
  for (const Operand& input : inputs) descs.emplace_back(input.desc);
  add(Operator(op, std::move(descs), {output.desc}, attributes), inputs, output, epilogue);
}

void Recorder::record_expression(const Expression& expression, const std::vector<Operand>& inputs, const Operand& output) {
  std::vector<TensorDesc> descs;
  for (const Operand& input : inputs) descs.push_back(input.desc);
  add(Operator(expression, descs, output.desc), inputs, output, {});
}

void Recorder::add(const Operator& op, const std::vector<Operand>& inputs, const Operand& output,
                   const std::optional<Expression>& epilogue) {
  const auto compiled = op.compile(context_, {.epilogue = epilogue});
  const auto table = std::make_shared<BindingTable>(compiled);
  Bindings executed;
  BufferArray owned;
  for (const Operand& input : inputs) {
    executed.push_back(input.desc.owned ? Binding() : Binding(make_bound_range(input)));
    owned.push_back(input.desc.owned ? make_bound_range(input) : DescribedRange());
  }
  table->bind(std::move(executed), {make_bound_range(output)});
  const BindingProperties properties = compiled->binding_properties();
  if (properties.temporary_bytes > 0) table->bind_temporary(DescribedRange(allocate_scratch(properties.temporary_bytes)));
  const bool has_owned = std::ranges::any_of(inputs, [](const Operand& input) { return input.desc.owned; });
  Binding persistent;
  if (properties.persistent_bytes > 0) {
    persistent = DescribedRange({Buffer::create(context_, properties.persistent_bytes), 0, properties.persistent_bytes});
    table->bind_persistent(persistent);
  }
  owner_operators_.push_back(compiled);
  owned_bindings_.push_back(has_owned ? Binding(std::move(owned)) : Binding());
  persistent_bindings_.push_back(std::move(persistent));
  items_.push_back({compiled, table, {}});
}

void Recorder::copy_bytes(const BufferRange& source, const BufferRange& target) {
  const auto kernel = context_->attachment<KernelLibrary>()->get_variant(context_, "copy_16bit.comp", StorageType::fp32);
  const uint64_t alignment = std::max<uint64_t>(context_->limit("minStorageBufferOffsetAlignment"), kTensorAlignment);
  const uint64_t largest = context_->limit("maxStorageBufferRange") / alignment * alignment - 2 * alignment;
  for (uint64_t copied_bytes = 0; copied_bytes < source.bytes; copied_bytes += largest) {
    const uint64_t bytes = std::min(largest, source.bytes - copied_bytes), from = source.offset + copied_bytes,
                   to = target.offset + copied_bytes;
    const uint64_t from_slack = from % alignment, to_slack = to % alignment;
    const Step step = StepBuilder(kernel)
                          .bind("x", {})
                          .bind("y", {})
                          .set("x_first", from_slack / 2)
                          .set("y_first", to_slack / 2)
                          .set("count", ceil_div(bytes, 2))
                          .set_threads(ceil_div(to_slack + bytes, 4))
                          .build();
    const auto aligned = [&](const BufferRange& range, uint64_t offset, uint64_t slack) {
      return BufferRange{range.buffer, offset - slack,
                         std::min(round_up(slack + bytes, kTensorAlignment), range.buffer->bytes() - offset + slack)};
    };
    add(Dispatch{.kernel = step.kernel,
                 .buffers = {aligned(source, from, from_slack), aligned(target, to, to_slack)},
                 .push = step.push,
                 .groups = step.groups,
                 .label = "move"});
  }
}

void Recorder::initialize(const InterruptCallback& interrupted) {
  if (owner_operators_.empty()) return;
  const auto initializer = std::make_shared<Initializer>(context_, owner_operators_);
  BindingTable table(initializer);
  table.bind(owned_bindings_, persistent_bindings_);
  if (const uint64_t bytes = initializer->binding_properties().temporary_bytes; bytes > 0)
    table.bind_temporary(DescribedRange({Buffer::create(context_, bytes), 0, bytes}));
  pumice::CommandList commands(context_);
  commands.dispatch(initializer, table);
  commands.commit();
  commands.exec().wait({}, interrupted);
  owner_operators_.clear(), owned_bindings_.clear(), persistent_bindings_.clear();
}

std::unique_ptr<pumice::CommandList> Recorder::make_command_list() const {
  auto commands = std::make_unique<pumice::CommandList>(context_);
  for (const RecordedItem& item : items_) {
    if (item.dispatch)
      commands->dispatch(*item.dispatch);
    else
      commands->dispatch(item.compiled, *item.table);
  }
  commands->commit({.total_time = true});
  return commands;
}

}  // namespace pumice::dv
