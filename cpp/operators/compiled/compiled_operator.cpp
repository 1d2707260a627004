#include "operators/compiled/compiled_operator.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/rounding.h"

namespace pumice {
namespace {

constexpr uint64_t kWordsPerInvocation = 4;  // words that an invocation of copy_words.comp copies
constexpr uint64_t kCopyAlignment = 256;
constexpr uint64_t kVectorBytes = 16;
constexpr uint64_t kMaxHostWriteBytes = 1 << 16;  // largest array, in bytes, that the host writes directly to device memory
constexpr std::string_view kCopyShader = "copy_words.comp";

struct BindingLimits {
  uint64_t alignment, largest;
};

const BufferRange& find_base_range(const PlannedOperand& operand, const BoundRanges& ranges, const BufferRange& host_values) {
  static const BufferRange none;
  switch (operand.memory) {
    case MemoryKind::input:
      return ranges.inputs.at(operand.index);
    case MemoryKind::output:
      return ranges.outputs.at(operand.index);
    case MemoryKind::temporary:
      return ranges.temporary;
    case MemoryKind::persistent:
      return ranges.persistent;
    case MemoryKind::host:
      return host_values;
    default:
      return none;
  }
}

// Adds the distance from the start of the binding to the operand, in elements, to the push constant `<binding>_offset`.
void add_binding_offset(const PlannedStep& step, const BindingInterface& binding, uint64_t slack_bytes, uint32_t element_bits,
                        std::vector<std::byte>& push) {
  const auto* member = step.kernel->interface().find_push_constant(binding.name + "_offset");
  if (!member || member->scalar != ScalarType::uint32)
    throw Error("kernel '" + step.kernel->name() + "' takes no offset for '" + binding.name + "', which starts " +
                std::to_string(slack_bytes) + " bytes after what the device can bind");
  if (slack_bytes * 8 % element_bits != 0)
    throw Error("kernel '" + step.kernel->name() + "': '" + binding.name + "' starts " + std::to_string(slack_bytes) +
                " bytes after what the device can bind, which is not a whole number of its elements");
  uint32_t offset = 0;
  std::memcpy(&offset, push.data() + member->offset, sizeof offset);
  offset += static_cast<uint32_t>(slack_bytes * 8 / element_bits);
  std::memcpy(push.data() + member->offset, &offset, sizeof offset);
}

// Returns the range to bind for an operand. Its offset is aligned as the device requires.
BufferRange resolve_range(const PlannedStep& step, size_t position, const BufferRange& base, const BindingLimits& limits,
                          std::vector<std::byte>& push) {
  const PlannedOperand& operand = step.operands[position];
  if (!base.buffer || operand.byte_offset >= base.bytes) return {};
  const uint64_t begin = base.offset + operand.byte_offset, slack = begin % limits.alignment;
  if (slack != 0 && operand.is_exact)
    throw BindingError("K7", "node '" + step.label + "'", step.kernel->interface().bindings[position].name,
                       "a tensor that starts at a multiple of " + std::to_string(limits.alignment) + " bytes, since kernel '" +
                           step.kernel->name() + "' reads it from its start; .contiguous() makes one",
                       "one that starts at byte " + std::to_string(begin));
  if (slack != 0) add_binding_offset(step, step.kernel->interface().bindings[position], slack, operand.element_bits, push);
  uint64_t bytes = std::min(operand.bytes, base.bytes - operand.byte_offset) + slack;
  // An operand that is too large to bind is bound only up to the vec4 that contains its last accessed element.
  if (operand.is_exact) bytes = std::min(bytes, operand.accessed_bytes);
  if (bytes > limits.largest && operand.accessed_bytes > 0) bytes = std::min(bytes, round_up(operand.accessed_bytes + slack, kVectorBytes));
  if (bytes > limits.largest)
    throw UnsupportedError("'" + step.label + "': a tensor of " + std::to_string(bytes) + " bytes; this device binds at most " +
                           std::to_string(limits.largest) + " bytes (maxStorageBufferRange)");
  return {base.buffer, begin - slack, bytes};
}

bool is_same_range(const BufferRange& a, const BufferRange& b) {
  return a.buffer == b.buffer && a.offset == b.offset;
}

// Uploads bytes to a new buffer. Small arrays are written directly to device memory, because a staged copy requires a wait.
std::shared_ptr<Buffer> upload_array(const std::shared_ptr<Context>& context, const std::vector<std::byte>& bytes) {
  if (bytes.empty()) return {};
  auto buffer = Buffer::create(context, bytes.size(), bytes.size() <= kMaxHostWriteBytes ? Heap::written : Heap::default_);
  if (buffer->mappable())
    copy_to_mapped(buffer->map(), bytes);
  else
    upload({buffer, 0, bytes.size()}, bytes);
  return buffer;
}

uint32_t count_descriptors(const std::vector<PlannedStep>& steps) {
  uint32_t count = 0;
  for (const auto& step : steps) count += static_cast<uint32_t>(step.operands.size());
  return count;
}

}  // namespace

bool is_word_copy(const PlannedStep& step) {
  return step.kernel->name() == kCopyShader;
}

void append_dispatches(const Context& context, const std::vector<PlannedStep>& steps, const BoundRanges& ranges,
                       const BufferRange& host_values, std::vector<Dispatch>& dispatches) {
  const BindingLimits limits{std::max<uint64_t>(context.limit("minStorageBufferOffsetAlignment"), 1),
                             context.limit("maxStorageBufferRange")};
  for (const auto& step : steps) {
    Dispatch& dispatch = dispatches.emplace_back();
    dispatch.kernel = step.kernel;
    dispatch.push = step.push;
    dispatch.groups = step.groups;
    dispatch.label = step.label;
    dispatch.flop = step.flop;
    dispatch.buffers.reserve(step.operands.size());
    for (size_t i = 0; i < step.operands.size(); ++i) {
      const BufferRange& base = find_base_range(step.operands[i], ranges, host_values);
      dispatch.buffers.push_back(resolve_range(step, i, base, limits, dispatch.push));
      if (step.operands[i].interleaved.period == 0 && step.operands[i].interleaved.writer == 0) continue;
      dispatch.interleaved.resize(step.operands.size());
      dispatch.interleaved[i] = step.operands[i].interleaved;
      dispatch.interleaved[i].origin += base.offset;
    }
    // If input and output are bound to the same range, no copy is needed.
    if (is_word_copy(step) && is_same_range(dispatch.buffers[0], dispatch.buffers[1])) dispatches.pop_back();
  }
}

void append_word_copies(const std::shared_ptr<Context>& context, const PlannedOperand& source, const PlannedOperand& target, uint64_t bytes,
                        std::string_view label, std::vector<PlannedStep>& steps) {
  if (bytes == 0) return;
  const auto kernel = context->attachment<KernelLibrary>()->get_variant(context, kCopyShader, StorageType::fp32);
  const uint64_t alignment = context->limit("minStorageBufferOffsetAlignment");
  const uint64_t largest = (context->limit("maxStorageBufferRange") - alignment) / kCopyAlignment * kCopyAlignment;
  const uint64_t per_group = kernel->local_size()[0] * kWordsPerInvocation;
  for (uint64_t done = 0; done < bytes; done += largest) {
    const uint64_t chunk_bytes = std::min(largest, bytes - done), words = (chunk_bytes + 3) / 4;
    const auto at = [&](PlannedOperand operand) {
      operand.byte_offset += done;
      operand.bytes = (chunk_bytes + 15) / 16 * 16;
      operand.element_bits = 32;
      return operand;
    };
    StepBuilder builder(kernel);
    Step step = builder.bind("x", {source.memory, 0, 0})
                    .bind("y", {target.memory, 0, 0})
                    .set("words", words)
                    .set_workgroups((words + per_group - 1) / per_group)
                    .build();
    steps.push_back({std::move(step.kernel), {at(source), at(target)}, std::move(step.push), step.groups, std::string(label)});
  }
}

CompiledOperator::CompiledOperator(std::shared_ptr<Context> context, ExecutionPlan plan, std::shared_ptr<InitializationState> state)
    : context_(std::move(context)), plan_(std::move(plan)), state_(state ? std::move(state) : std::make_shared<InitializationState>()) {
  if (!plan_.initialization) plan_.initialization = std::make_shared<InitializationPlan>();
  properties_.descriptors = count_descriptors(plan_.steps);
  properties_.temporary_bytes = plan_.temporary_bytes;
  properties_.persistent_bytes = plan_.initialization->persistent_bytes;
  host_values_ = upload_array(context_, plan_.host_values);
  if (plan_.constants.empty()) return;
  state_->constants = upload_array(context_, plan_.constants);
  plan_.constants = {};
}

bool CompiledOperator::supports_in_place(size_t input, size_t output) const {
  const auto is_update = [&](const auto& update) { return update.first == input && update.second == output; };
  return (plan_.in_place && plan_.in_place->supports_in_place(input, output)) || std::ranges::any_of(plan_.updates, is_update);
}

std::vector<Dispatch> CompiledOperator::lower(const BoundRanges& ranges) const {
  std::vector<Dispatch> dispatches;
  dispatches.reserve(plan_.steps.size());
  const BufferRange host_values{host_values_, 0, plan_.host_values.size()};
  append_dispatches(*context_, plan_.steps, ranges, host_values, dispatches);
  return dispatches;
}

BufferRange CompiledOperator::constants() const {
  const std::lock_guard lock(state_->mutex);
  return {state_->constants, 0, state_->constants ? state_->constants->bytes() : 0};
}

void CompiledOperator::check_persistent(const BufferRange& range) const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->initialised || (range.buffer->id() == state_->buffer_id && range.offset == state_->offset)) return;
  throw BindingError(
      "P5", "persistent", plan_.name,
      "the range that was initialised: buffer " + std::to_string(state_->buffer_id) + " at offset " + std::to_string(state_->offset),
      "buffer " + std::to_string(range.buffer->id()) + " at offset " + std::to_string(range.offset));
}

void CompiledOperator::begin_execution(const BoundRanges& ranges) const {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->initialised)
      throw BindingError("I5", "dispatchable", plan_.name, "an operator that an Initializer has initialised", "one that has not been");
  }
  if (ranges.persistent.buffer) check_persistent(ranges.persistent);
}

}  // namespace pumice
