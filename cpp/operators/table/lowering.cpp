#include "operators/table/lowering.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/error.h"
#include "core/rounding.h"
#include "dispatch/kernel/driver_bug_test.h"
#include "dispatch/kernel/grid_folding.h"
#include "operators/table/operator_row.h"
#include "operators/table/precision_support.h"

namespace pumice {
namespace {

template <typename T>
void write_value(std::byte* target, T value) {
  std::memcpy(target, &value, sizeof value);
}

void write_push_constant(const KernelVariant& kernel, const PushConstant& member, std::byte* target, double real, int64_t integer) {
  switch (member.scalar) {
    case ScalarType::float32:
      return write_value(target, static_cast<float>(real));
    case ScalarType::int32:
      if (integer < INT32_MIN || integer > INT32_MAX) break;
      return write_value(target, static_cast<int32_t>(integer));
    case ScalarType::uint32:
      if (integer < 0 || integer > UINT32_MAX) break;
      return write_value(target, static_cast<uint32_t>(integer));
    default:
      throw Error("kernel '" + kernel.name() + "': push constant '" + member.name + "' has a type that lowering does not set");
  }
  throw UnsupportedError("kernel '" + kernel.name() + "': " + std::to_string(integer) + " does not fit in push constant '" + member.name +
                         "'; the tensor is too large for 32-bit indices");
}

}  // namespace

StepBuilder::StepBuilder(std::shared_ptr<const KernelVariant> kernel) {
  const ShaderInterface& interface = kernel->interface();
  step_.operands.resize(interface.bindings.size());
  step_.push.resize(interface.push_bytes);
  bound_.resize(interface.bindings.size());
  pushed_.resize(interface.push_constants.size());
  step_.kernel = std::move(kernel);
}

const PushConstant& StepBuilder::get_push_constant(std::string_view name) {
  const auto& members = step_.kernel->interface().push_constants;
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].name != name) continue;
    pushed_[i] = true;
    return members[i];
  }
  throw Error("kernel '" + step_.kernel->name() + "' has no push constant '" + std::string(name) + "'");
}

StepBuilder& StepBuilder::bind(std::string_view name, const Operand& operand) {
  const auto& bindings = step_.kernel->interface().bindings;
  for (size_t i = 0; i < bindings.size(); ++i) {
    if (bindings[i].name != name) continue;
    step_.operands[i] = operand;
    bound_[i] = true;
    return *this;
  }
  throw Error("kernel '" + step_.kernel->name() + "' has no binding '" + std::string(name) + "'");
}

StepBuilder& StepBuilder::bind(std::string_view name, Operand operand, int64_t first, int64_t count, size_t element_bits) {
  const uint64_t begin = static_cast<uint64_t>(first) * element_bits / 8, slack = begin % kBindingBoundary;
  operand.byte_offset += begin - slack;
  operand.bytes = round_up(slack + ceil_div(static_cast<uint64_t>(count) * element_bits, 8), 16);
  return bind(name, operand).set(std::string(name) + "_offset", slack * 8 / element_bits);
}

StepBuilder& StepBuilder::set_integer(std::string_view name, int64_t value) {
  const auto& found = get_push_constant(name);
  write_push_constant(*step_.kernel, found, step_.push.data() + found.offset, static_cast<double>(value), value);
  return *this;
}

StepBuilder& StepBuilder::set(std::string_view name, double value) {
  const auto& found = get_push_constant(name);
  if (found.scalar != ScalarType::float32)
    throw Error("kernel '" + step_.kernel->name() + "': push constant '" + std::string(name) + "' does not accept a real number");
  write_value(step_.push.data() + found.offset, static_cast<float>(value));
  return *this;
}

StepBuilder& StepBuilder::set(std::string_view name, std::span<const int64_t> values) {
  const auto& found = get_push_constant(name);
  if (values.size() > found.count)
    throw Error("kernel '" + step_.kernel->name() + "': " + std::to_string(values.size()) + " values for push constant '" +
                std::string(name) + "'");
  for (size_t i = 0; i < values.size(); ++i)
    write_push_constant(*step_.kernel, found, step_.push.data() + found.offset + i * bytes(found.scalar), static_cast<double>(values[i]),
                        values[i]);
  return *this;
}

StepBuilder& StepBuilder::set_threads(uint64_t x, uint64_t y, uint64_t z) {
  const auto& local = step_.kernel->local_size();
  const bool is_1d = step_.kernel->foldable_grid_axes() == 1;
  set_workgroups(ceil_div(x, local[0]), ceil_div(y, local[1]), ceil_div(z, local[2]));
  const std::array<uint32_t, 3>& group_counts = step_.groups;
  if (is_1d && uint64_t{group_counts[0]} * group_counts[1] * group_counts[2] > (uint64_t{1} << 32) / local[0])
    throw UnsupportedError("kernel '" + step_.kernel->name() + "' needs " + std::to_string(x) + " invocations, more than fit in 32 bits");
  return *this;
}

StepBuilder& StepBuilder::set_workgroups(uint64_t x, uint64_t y, uint64_t z) {
  KernelLaunch launch = make_launch(step_.kernel, {x, y, z});
  step_.kernel = std::move(launch.kernel);
  step_.groups = launch.groups;
  return *this;
}

StepBuilder& StepBuilder::set_variant(std::string name, std::string spilled) {
  step_.variant = std::move(name), step_.spilled = std::move(spilled);
  return *this;
}

Step StepBuilder::build() {
  if (!step_.variant.empty()) step_.kernel->query_spills_at_pipeline_creation();  // query the variant selected for the grid
  const ShaderInterface& interface = step_.kernel->interface();
  for (size_t i = 0; i < bound_.size(); ++i)
    if (!bound_[i]) throw Error("kernel '" + step_.kernel->name() + "': nothing is bound to '" + interface.bindings[i].name + "'");
  for (size_t i = 0; i < pushed_.size(); ++i)
    if (!pushed_[i] && !interface.push_constants[i].name.ends_with("_offset"))
      throw Error("kernel '" + step_.kernel->name() + "': push constant '" + interface.push_constants[i].name + "' is not set");
  return std::move(step_);
}

std::function<void(std::vector<Step>&, const Operand&, const Operand&)> make_elementwise_packing(
    std::shared_ptr<const KernelVariant> kernel, int64_t count, std::function<void(StepBuilder&)> set) {
  return [kernel = std::move(kernel), count, set = std::move(set)](std::vector<Step>& steps, const Operand& source, const Operand& target) {
    if (count == 0) return;
    StepBuilder step(kernel);
    set(step.bind("x", source).bind("y", target));
    steps.push_back(step.set_threads(static_cast<uint64_t>(count)).build());
  };
}

std::shared_ptr<const KernelVariant> NodeContext::kernel(std::string_view shader, DType dtype, const Macros& macros,
                                                         const SpecValues& spec) const {
  for (const auto& [macro, value] : macros)  // a fused expression may compute in fp64 even if no tensor is fp64
    if (macro == "PM_HAS_FLOAT64") check_arithmetic(DType::float64);
  return library->get_variant(context, shader, get_storage_type(context->info(), dtype), macros, spec);
}

bool NodeContext::prefers_cpu_kernels() const {
  const DeviceInfo& device = context->info();
  if (!prefers_cpu_kernels_)
    prefers_cpu_kernels_ = device.kind == DeviceKind::software && device.feature("subgroupShuffle") && device.limit("subgroupSize") == 8;
  return *prefers_cpu_kernels_;
}

int64_t NodeContext::subgroup_size() const {
  const DeviceInfo& device = context->info();
  const uint64_t size = device.limit("subgroupSize");
  const bool usable = device.feature("subgroupShuffle") && device.feature("subgroupSizeControl") && device.feature("computeFullSubgroups");
  return usable && std::has_single_bit(size) && size >= 16 && size <= 128 ? static_cast<int64_t>(size) : 0;
}

int64_t NodeContext::matrix_subgroup_size() const {
  return subgroup_size() > 0 ? static_cast<int64_t>(context->info().matrix_subgroup_size()) : 0;
}

int64_t NodeContext::max_invocations() const {
  return static_cast<int64_t>(std::min(context->limit("maxComputeWorkGroupInvocations"), context->limit("maxComputeWorkGroupSize_0")));
}

int64_t NodeContext::workgroup_size(int64_t requested) const {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::min(requested, max_invocations()))));
}

bool NodeContext::has_coopmat() const {
  return get_precision_support(context->info(), float_dtype).matrices;
}

bool NodeContext::has_mma() const {
  return float_dtype == DType::float16 && subgroup_size() == 32 && has_coopmat() &&
         !get_driver_quirks(context).has(Quirk::other_matrix_layout);
}

bool NodeContext::emulates_mma() const {
  return float_dtype == DType::float16 && get_driver_quirks(context).has(Quirk::emulated_fragments);
}

bool NodeContext::supports_split_fp16() const {
  const QuirkSet quirks = get_driver_quirks(context);
  const bool has_fp16_coopmat = subgroup_size() == 32 && get_precision_support(context->info(), DType::float16).matrices;
  return quirks.has(Quirk::emulated_fragments) || (has_fp16_coopmat && !quirks.has(Quirk::other_matrix_layout));
}

int64_t NodeContext::num_multiprocessors() const {
  constexpr int64_t kH200Multiprocessors = 132;
  const auto& limits = context->info().limits;
  const auto found = limits.find("shaderSMCount");
  return found == limits.end() || found->second == 0 ? kH200Multiprocessors : static_cast<int64_t>(found->second);
}

void NodeContext::check_arithmetic(DType dtype) const {
  if (dtype != DType::float64 || context->feature("shaderFloat64")) return;
  throw UnsupportedError("node '" + std::string(node) + "': arithmetic on " + std::string(name(dtype)) +
                         " needs the feature shaderFloat64, which the device lacks");
}

std::optional<int64_t> NodeContext::loop_limit() const {
  constexpr int64_t kMaxIterations = 65000;
  return get_driver_quirks(context).has(Quirk::loop_limit) ? std::optional(kMaxIterations) : std::nullopt;
}

void NodeContext::check_loop_limit(int64_t iterations) const {
  const auto max_iterations = loop_limit();
  if (!max_iterations || iterations <= *max_iterations) return;
  throw UnsupportedError("node '" + std::string(node) + "': one invocation would loop " + std::to_string(iterations) +
                         " times; this driver ends loops after " + std::to_string(*max_iterations));
}

int64_t max_binding_bytes(const Context& context) {
  constexpr uint64_t kAlignmentSlack = 1024;  // alignment slack before and after the requested range, on any device
  const uint64_t largest = context.limit("maxStorageBufferRange");
  return static_cast<int64_t>(largest > 2 * kAlignmentSlack ? largest - kAlignmentSlack : largest);
}

const std::shared_ptr<const KernelVariant>* KernelCache::find(std::string_view key) const {
  const auto found = std::ranges::find(kernels_, key, [](const auto& entry) -> std::string_view { return entry.first; });
  return found == kernels_.end() ? nullptr : &found->second;
}

Operand LowerContext::get_packed_input(size_t i) {
  if (i < constant_packed.size() && constant_packed[i]) return input_operand(i);
  PackContext pack;
  static_cast<NodeContext&>(pack) = *this;
  pack.inputs = inputs;
  pack.shapes.clear();  // non-constant weights are packed without knowledge of other shapes
  PackedWeight weight;
  if (!row->pack || !row->pack(pack, i, weight)) return input_operand(i);
  const Operand target = add_temporary(weight.desc.bytes());
  weight.steps(steps, input_operand(i), target);
  return target;
}

}  // namespace pumice
