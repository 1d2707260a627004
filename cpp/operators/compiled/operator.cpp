// Describes a single operator and compiles it into a plan.
#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/split_node.h"
#include "operators/compiled/compiled_operator.h"
#include "operators/elementwise/elementwise_expression.h"

namespace pumice {
namespace {

constexpr uint64_t kGrain = 16;       // tensor sizes in memory are multiples of this, in bytes
constexpr uint64_t kAlignment = 256;  // alignment of offsets in the temporary and persistent resources, in bytes

// Returns the dtype in which the operator stores floats: the dtype of the first float output or, without one, of the first float input.
DType find_float_dtype(const std::vector<std::optional<TensorDesc>>& outputs, const std::vector<std::optional<TensorDesc>>& inputs) {
  for (const auto* descs : {&outputs, &inputs})
    for (const auto& desc : *descs)
      if (desc && is_float(desc->dtype)) return desc->dtype;
  return DType::float32;
}

// Whether the operator can be used as an activation: one float input, one float output and a scalar expression.
bool is_activation(const OperatorRow& row) {
  const auto &inputs = row.schema.inputs, &outputs = row.schema.outputs;
  return !row.expression.empty() && inputs.size() == 1 && !inputs[0].variadic && contains(inputs[0].dtypes, DType::float32) &&
         outputs.size() == 1 && outputs[0].dtypes == inputs[0].dtypes;
}

std::string list_activation_names() {
  std::string names;
  for (const OperatorRow& row : operators())
    if (is_activation(row)) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

// Whether the operator is a cast that drops fractions. As in a graph, it reads its input unrounded: 16.98 becomes 16 at any precision,
// whereas bfloat16 would round it to 17 first.
bool casts_float_to_integer(const Operator& op) {
  return op.row().casts && op.inputs()[0] && is_float(op.inputs()[0]->dtype) && op.outputs()[0] && !is_float(op.outputs()[0]->dtype);
}

// Builds the plan of a single operator.
class OperatorPlanBuilder {
 public:
  OperatorPlanBuilder(const Operator& op, const Attributes& attributes, std::shared_ptr<Context> context, const ExecutionOptions& options)
      : op_(op) {
    if (options.precision && !casts_float_to_integer(op)) working_dtype_ = get_precision_dtype(*options.precision);
    library_ = context->attachment<KernelLibrary>();
    node_.context = std::move(context);
    node_.library = library_.get();
    node_.attributes = &attributes;
    node_.node = op.row().name;
    node_.row = &op.row();
    node_.float_dtype = working_dtype_.value_or(find_float_dtype(op.outputs(), op.inputs()));
    for (const TensorDesc* operand : op.operands())
      node_.inputs.push_back(operand ? std::optional(get_stored_desc(*operand)) : std::nullopt);
    node_.outputs = op.outputs();
    node_.expression = op.expression();
    node_.deterministic = options.deterministic;
    if (options.epilogue) node_.epilogue_source = options.epilogue->to_glsl({{"x", ExprType::f32}});
    node_.hosts = op.constants();
    node_.constant_packed.resize(op.inputs().size());
    persistent_.resize(op.inputs().size());
  }

  ExecutionPlan build() {
    ExecutionPlan plan;
    plan.name = op_.row().name;
    for (size_t i = 0; i < op_.inputs().size(); ++i) plan.inputs.push_back({format_role_name(op_.row().schema.inputs, i), op_.inputs()[i]});
    for (size_t i = 0; i < op_.outputs().size(); ++i)
      plan.outputs.push_back({format_role_name(op_.row().schema.outputs, i), op_.outputs()[i]});
    plan.initialization = build_initialization();
    const bool has_epilogue = node_.epilogue_source != "x";
    working_dtype_ ? lower_in_dtype(node_, *working_dtype_) : lower_strided(node_);
    if (has_epilogue && !node_.epilogue_read && !node_.steps.empty())
      throw UnsupportedError("operator " + plan.name + " with an activation: its kernels cannot apply one to a result like " +
                             to_string(*op_.outputs()[0]));
    for (const uint64_t bytes : node_.temporaries) {
      temporary_offsets_.push_back(plan.temporary_bytes);
      plan.temporary_bytes += round_up(bytes, kAlignment);
    }
    for (const auto& bytes : node_.host_blocks) {
      host_block_offsets_.push_back(round_up(plan.host_values.size(), kAlignment));
      plan.host_values.resize(host_block_offsets_.back() + round_up(bytes.size(), kGrain));
      std::copy(bytes.begin(), bytes.end(), plan.host_values.begin() + static_cast<std::ptrdiff_t>(host_block_offsets_.back()));
    }
    for (auto& step : node_.steps) plan.steps.push_back(plan_step(std::move(step), true));
    if (plan.steps.size() == 1) plan.in_place = &op_.row().schema;  // with several dispatches, a later one could read an overwritten input
    return plan;
  }

 private:
  struct PersistentRange {
    uint64_t offset = 0, bytes = 0;
    bool owned = false;
  };

  // Returns the description of a tensor as it is stored in the persistent resource. It differs from `desc` only for owned tensors that the
  // operator does not pack.
  TensorDesc get_stored_desc(const TensorDesc& desc) const {
    const bool converted = desc.owned && working_dtype_ && is_operator_float(desc.dtype) && desc.dtype != *working_dtype_;
    return converted ? TensorDesc(*working_dtype_, desc.shape, {}, true) : desc;
  }

  std::shared_ptr<const InitializationPlan> build_initialization() {
    auto plan = std::make_shared<InitializationPlan>();
    PackContext pack;
    static_cast<NodeContext&>(pack) = node_;
    pack.inputs = node_.inputs;
    for (size_t i = 0; i < op_.inputs().size(); ++i)
      if (op_.inputs()[i] && op_.inputs()[i]->owned && op_.inputs()[i]->dtype == DType::float32 && op_.inputs()[i]->is_packed())
        pack.inputs[i] = op_.inputs()[i];  // packing kernels read fp32 sources for any output dtype
    for (size_t i = 0; i < op_.inputs().size(); ++i) {
      if (!op_.inputs()[i] || !op_.inputs()[i]->owned) continue;
      PackedWeight weight;
      node_.constant_packed[i] = op_.row().pack && op_.row().pack(pack, i, weight);
      const TensorDesc &source_desc = *op_.inputs()[i], &stored = *node_.inputs[i];
      const uint64_t bytes = round_up(node_.constant_packed[i] ? weight.desc.bytes() : stored.bytes(), kGrain);
      persistent_[i] = {plan->persistent_bytes, bytes, true};
      plan->persistent_bytes += round_up(bytes, kAlignment);
      const PlannedOperand source{MemoryKind::input, static_cast<uint32_t>(i), 0, round_up(source_desc.bytes(), kGrain),
                                  static_cast<uint32_t>(bits(source_desc.dtype))};
      const PlannedOperand target{MemoryKind::persistent, 0, persistent_[i].offset, bytes, static_cast<uint32_t>(bits(stored.dtype))};
      if (!node_.constant_packed[i] && source_desc.dtype == stored.dtype)
        append_word_copies(node_.context, source, target, source_desc.bytes(), op_.row().name, plan->steps);
      else if (!node_.constant_packed[i])
        append_conversion(source_desc, source, stored, target, *plan);
      else
        append_packing(weight, i,
                       pack.inputs[i]->dtype == source_desc.dtype ? source : add_source_conversion(source_desc, source, stored, *plan),
                       *plan);
    }
    return plan;
  }

  void append_packing(const PackedWeight& weight, size_t i, const PlannedOperand& source, InitializationPlan& plan) const {
    const auto index = static_cast<uint32_t>(i);
    std::vector<Step> steps;
    weight.steps(steps, {MemoryKind::input, index, 0}, {MemoryKind::persistent, index, 0});
    for (Step& step : steps) {
      std::vector<bool> reads;
      for (const Operand& operand : step.operands) reads.push_back(operand.memory == MemoryKind::input);
      PlannedStep& planned_step = plan.steps.emplace_back(plan_step(std::move(step), false));
      for (size_t k = 0; k < reads.size(); ++k)
        if (reads[k]) planned_step.operands[k] = advance_operand(source, planned_step.operands[k].byte_offset);
    }
  }

  static PlannedOperand advance_operand(PlannedOperand operand, uint64_t bytes) {
    operand.byte_offset += bytes;
    operand.bytes -= bytes;
    return operand;
  }

  // Converts a weight to its storage dtype in the initialisation's temporary resource.
  PlannedOperand add_source_conversion(const TensorDesc& source_desc, const PlannedOperand& source, const TensorDesc& stored,
                                       InitializationPlan& plan) const {
    const PlannedOperand target{MemoryKind::temporary, 0, plan.temporary_bytes, round_up(stored.bytes(), kGrain),
                                static_cast<uint32_t>(bits(stored.dtype))};
    plan.temporary_bytes += round_up(target.bytes, kAlignment);
    append_conversion(source_desc, source, stored, target, plan);
    return target;
  }

  void append_conversion(const TensorDesc& source_desc, const PlannedOperand& source, const TensorDesc& stored,
                         const PlannedOperand& target, InitializationPlan& plan) const {
    LowerContext cast;
    static_cast<NodeContext&>(cast) = node_;
    cast.row = find_operator("Cast");
    cast.inputs = {TensorDesc(source_desc.dtype, {source_desc.elements()})}, cast.outputs = {TensorDesc(stored.dtype, {stored.elements()})};
    lower_operator_row(cast);
    for (Step& step : cast.steps) {
      PlannedStep& planned_step = plan.steps.emplace_back(std::move(step.kernel), std::vector<PlannedOperand>(), std::move(step.push),
                                                          step.groups, std::string(op_.row().name));
      for (const Operand& operand : step.operands)
        planned_step.operands.push_back(advance_operand(operand.memory == MemoryKind::input ? source : target, operand.byte_offset));
    }
  }

  // Assigns memory to a step's operands. `execution`: the step runs during execution, when owned inputs are in the persistent resource.
  PlannedStep plan_step(Step step, bool execution) const {
    PlannedStep planned{std::move(step.kernel), {}, std::move(step.push), step.groups, std::string(op_.row().name)};
    for (size_t i = 0; i < step.operands.size(); ++i)
      planned.operands.push_back(plan_operand(step.operands[i], planned.kernel->interface().bindings[i], execution));
    return planned;
  }

  PlannedOperand plan_operand(const Operand& operand, const BindingInterface& binding, bool execution) const {
    const auto rest = [&](uint64_t bytes) { return bytes > operand.byte_offset ? bytes - operand.byte_offset : 0; };
    const uint32_t declared = binding.element_bytes * 8 / std::max(binding.components, 1u);
    PlannedOperand result{operand.memory, operand.index, operand.byte_offset, 0, operand.element_bits ? operand.element_bits : declared};
    const auto set_tensor_size = [&](const TensorDesc& desc) {
      result.bytes = rest(round_up(desc.bytes(), kGrain));
      result.element_bits = static_cast<uint32_t>(bits(desc.dtype));
    };
    if (operand.memory == MemoryKind::output) set_tensor_size(*op_.outputs()[operand.index]);
    if (operand.memory == MemoryKind::temporary)
      result = {operand.memory, 0, temporary_offsets_[operand.index] + operand.byte_offset,
                rest(round_up(node_.temporaries[operand.index], kGrain)), result.element_bits};
    if (operand.memory == MemoryKind::host)
      result = {operand.memory, 0, host_block_offsets_[operand.index], round_up(node_.host_blocks[operand.index].size(), kGrain), 32};
    if (operand.memory == MemoryKind::input) set_tensor_size(get_bound_input(operand.index));
    const bool persistent =
        operand.memory == MemoryKind::persistent || (operand.memory == MemoryKind::input && execution && persistent_[operand.index].owned);
    if (persistent) {
      const PersistentRange& stored = persistent_[operand.index];
      if (operand.memory == MemoryKind::input) result.element_bits = static_cast<uint32_t>(bits(node_.inputs[operand.index]->dtype));
      result = {MemoryKind::persistent, 0, stored.offset + operand.byte_offset, rest(stored.bytes), result.element_bits};
    }
    result.accessed_bytes = operand.bytes, result.is_exact = operand.is_exact;
    return result;
  }

  const TensorDesc& get_bound_input(size_t i) const {
    if (const auto& desc = op_.inputs()[i]) return *desc;
    throw Error("operator '" + std::string(op_.row().name) + "': a kernel reads '" + format_role_name(op_.row().schema.inputs, i) +
                "', which is the host's");
  }

  const Operator& op_;
  std::optional<DType> working_dtype_;  // dtype of intermediate floats; nullopt: floats keep their declared dtypes
  std::shared_ptr<KernelLibrary> library_;
  LowerContext node_;
  std::vector<PersistentRange> persistent_;   // ranges of owned inputs, indexed by input
  std::vector<uint64_t> temporary_offsets_;   // offsets of the temporaries
  std::vector<uint64_t> host_block_offsets_;  // offsets of host blocks
};

}  // namespace

std::string format_role_name(const std::vector<ValueRole>& roles, size_t i) {
  if (roles.empty()) return std::to_string(i);
  const size_t last = roles.size() - 1;
  if (!roles.back().variadic) return std::string(roles[std::min(i, last)].name);
  return i < last ? std::string(roles[i].name) : std::string(roles[last].name) + std::to_string(i - last);
}

Operator::Operator(std::string_view name, std::vector<std::optional<TensorDesc>> inputs, std::vector<std::optional<TensorDesc>> outputs,
                   const Attributes& attributes, std::vector<std::optional<HostTensor>> constants)
    : row_(find_operator(name)), inputs_(std::move(inputs)), outputs_(std::move(outputs)), constants_(std::move(constants)) {
  constants_.resize(inputs_.size());
  if (!row_) throw UnsupportedError("operator " + std::string(name) + ": expected one listed by pumice.operators()");
  if (!row_->lower) throw UnsupportedError("operator " + std::string(name) + " outside of a graph: its result is computed on the host");
  attributes_ = validate_attributes(*row_, name, attributes);
  const auto last = std::find_if(outputs_.rbegin(), outputs_.rend(), [](const auto& output) { return output.has_value(); });
  check_inputs(*row_, name, operands(), static_cast<size_t>(outputs_.rend() - last));  // omitted outputs are nullopt
  check_constants();
  check_outputs();
}

Operator::Operator(Expression expression, const std::vector<TensorDesc>& inputs, const TensorDesc& output)
    : row_(&get_custom_elementwise_row(inputs.size())),
      inputs_(inputs.begin(), inputs.end()),
      outputs_{output},
      constants_(inputs.size()),
      expression_(std::move(expression)) {
  attributes_.set(std::string(kOutputDtype), static_cast<int64_t>(output.dtype));
  check_outputs();
}

std::vector<const HostTensor*> Operator::constants() const {
  std::vector<const HostTensor*> values;
  for (const auto& constant : constants_) values.push_back(constant ? &*constant : nullptr);
  return values;
}

std::vector<const TensorDesc*> Operator::operands() const {
  std::vector<const TensorDesc*> descs;
  for (size_t i = 0; i < inputs_.size(); ++i) descs.push_back(inputs_[i] ? &*inputs_[i] : constants_[i] ? &constants_[i]->desc : nullptr);
  return descs;
}

// Checks that the inputs that the operator reads on the host have constants, and that no other inputs have any.
void Operator::check_constants() const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const bool is_read = has_bit(row_->host_inputs, i);
    const std::string input = "input '" + format_role_name(row_->schema.inputs, i) + "'";
    if (is_read && inputs_[i])
      throw GraphError(std::string(row_->name), input + " is read on the host: expected its values, given " + to_string(*inputs_[i]));
    if (!is_read && constants_[i])
      throw GraphError(std::string(row_->name),
                       input + " is read on the device: expected a TensorDesc, given the values of " + to_string(constants_[i]->desc));
  }
}

void Operator::check_outputs() const {
  const std::string_view op = row_->name;
  ShapeContext shapes(op, attributes_, operands(), constants(), outputs_.size());
  row_->shape(shapes);
  const auto expected = shapes.take_outputs();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const std::string output = format_role_name(row_->schema.outputs, i);
    const auto& actual = outputs_[i];
    if (!actual) {
      const auto& roles = row_->schema.outputs;
      if (i >= roles.size() || !roles[i].optional) throw GraphError(std::string(op), "output '" + output + "' must be described");
      continue;
    }
    if (actual->owned) throw GraphError(std::string(op), "output '" + output + "' is owned; only inputs can be", "O1");
    if (has_internal_overlap(actual->shape, actual->strides))
      throw GraphError(std::string(op), "output '" + output + "', " + to_string(*actual) + ": several indices share one element", "R9");
    if (i >= expected.size() || !expected[i]) throw GraphError(std::string(op), "has no output " + std::to_string(i));
    if (actual->dtype != expected[i]->dtype || actual->shape != expected[i]->shape)
      throw GraphError(std::string(op), "output '" + output + "': expected " +
                                            to_string(TensorDesc(expected[i]->dtype, expected[i]->shape)) + ", given " +
                                            to_string(*actual));
  }
}

ExecutionOptions parse_execution_options(const std::optional<std::string>& precision, const std::vector<std::string>& flags) {
  if (precision) (void)get_precision_dtype(*precision);
  ExecutionOptions options{precision};
  for (const std::string& flag : flags) {
    if (flag == "ALLOW_HALF_PRECISION_COMPUTATION")
      options.precision = options.precision.value_or("fp32") == "fp32" ? "fp16" : options.precision;
    else if (flag == "DESCRIPTORS_VOLATILE")
      options.has_volatile_descriptors = true;
    else if (flag == "DETERMINISTIC")
      options.deterministic = true;
    else if (flag != "DISABLE_META_COMMANDS")
      throw UnsupportedError(
          "execution flag '" + flag +
          "'; supported: ALLOW_HALF_PRECISION_COMPUTATION, DETERMINISTIC, DISABLE_META_COMMANDS and DESCRIPTORS_VOLATILE");
  }
  return options;
}

void Operator::set_activation(std::string_view name, const Attributes& attributes) {
  const OperatorRow* row = find_operator(name);
  if (!row || !is_activation(*row))
    throw UnsupportedError("the activation '" + std::string(name) + "'; supported: " + list_activation_names());
  if (outputs_.size() != 1 || !outputs_[0] || !is_float(outputs_[0]->dtype))
    throw UnsupportedError("operator " + std::string(row_->name) + " with an activation: it does not have a single float output");
  const Expression x = Expression::name("x");
  activation_ = make_elementwise_expression(*row, validate_attributes(*row, name, attributes), {true})
                    .substitute({{std::string(row->schema.inputs[0].name), x}});
}

std::shared_ptr<CompiledOperator> Operator::compile(std::shared_ptr<Context> context, const ExecutionOptions& options) const {
  ExecutionOptions activated = options;
  if (activation_) activated.epilogue = options.epilogue ? options.epilogue->substitute({{"x", *activation_}}) : activation_;
  ExecutionPlan plan = OperatorPlanBuilder(*this, attributes_, context, activated).build();
  plan.has_volatile_descriptors = options.has_volatile_descriptors;
  return std::make_shared<CompiledOperator>(std::move(context), std::move(plan));
}

}  // namespace pumice
