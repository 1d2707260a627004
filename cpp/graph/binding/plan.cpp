#include "graph/binding/plan.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/error.h"
#include "core/injected_fault.h"
#include "graph/binding/arena.h"
#include "graph/binding/memory_plan.h"
#include "graph/binding/step_order.h"
#include "graph/description/shape_inference.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/split_node.h"
#include "operators/common/strided_copy.h"
#include "operators/geometry/index_bounds.h"

namespace pumice {
namespace {

// Adds to plan.updates each input, among the first `inputs`, whose only use is a copy to an output of the same shape and dtype.
void find_in_place_updates(ExecutionPlan& plan, size_t inputs) {
  std::vector<uint32_t> reads(inputs, 0);
  for (const PlannedStep& step : plan.steps)
    for (const PlannedOperand& operand : step.operands)
      if (operand.memory == MemoryKind::input) ++reads[operand.index];
  for (const PlannedStep& step : plan.steps) {
    if (!is_word_copy(step)) continue;
    const PlannedOperand &x = step.operands[0], &y = step.operands[1];
    if (x.memory != MemoryKind::input || y.memory != MemoryKind::output || x.byte_offset != 0 || y.byte_offset != 0 || reads[x.index] != 1)
      continue;
    const TensorDesc &from = *plan.inputs[x.index].desc, &to = *plan.outputs[y.index].desc;
    if (from.dtype == to.dtype && from.shape == to.shape) plan.updates.emplace_back(x.index, y.index);
  }
}

// Adds the variants of a node's steps whose kernels spilled registers in this process or according to the cache. Does not query the
// driver. Returns whether any was added.
bool add_known_spills(const std::string& node, const std::vector<Step>& steps, SpilledVariants& spilled) {
  bool is_new = false;
  for (const Step& step : steps)
    if (!step.variant.empty() && step.kernel->get_cached_spills().value_or(0) > 0) is_new |= spilled.add(node, step.variant);
  return is_new;
}

// Returns whether any step runs a variant in `spilled`.
bool uses_spilled_variant(const std::vector<Step>& steps, const VariantNames* spilled) {
  return spilled && std::ranges::any_of(steps, [&](const Step& step) { return spilled->contains(step.variant); });
}

// Builds one plan. Until order_steps(), `index` of a MemoryKind::temporary operand is the index of its StorageRoot.
class PlanBuilder {
 public:
  PlanBuilder(const std::shared_ptr<Context>& context, const ProgramGraph& graph, const Weights& weights, BindCache* cache)
      : graph_(graph), weights_(weights), cache_(cache), context_(context), library_(context->attachment<KernelLibrary>()) {
    lowering_.context = context;
    lowering_.library = library_.get();
    lowering_.deterministic = graph.deterministic;
    lowering_.measured = graph.measured.get();
  }

  BoundPlan build(const BindInputs& inputs, bool list_values) {
    result_.kernels.resize(graph_.report.size());
    result_.choices.resize(graph_.report.size()), result_.spills.resize(graph_.report.size());
    host_offsets_.assign(graph_.values.size(), kNoOffset);
    infer_values(inputs);
    memory_plan_ = plan_memory(graph_, weights_, shapes_);
    steps_.reserve(graph_.nodes.size() * 2);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) lower_node(i);
    if (!rejected_.empty()) throw UnsupportedError(rejected_);
    for (size_t j = 0; j < graph_.outputs.size(); ++j) add_output_copy(j);
    add_plan_slots();
    result_.index_checks = bind_index_checks(graph_, shapes_);
    if (list_values) find_stored_values();
    OrderedSteps ordered = order_steps(std::move(steps_), memory_plan_, result_.stored);
    result_.plan.steps = std::move(ordered.steps);
    result_.plan.temporary_bytes = ordered.temporary_bytes;
    result_.lower_bound_bytes = ordered.sequential_peak_bytes;
    result_.wave_count = ordered.wave_count;
    find_in_place_updates(result_.plan, graph_.inputs.size());
    for (const InputCheck& check : graph_.checks) result_.checked_inputs.push_back(bind_check_inputs(check, shapes_));
    if (cache_) cache_->shapes = std::move(shapes_);
    return std::move(result_);
  }

 private:
  static constexpr uint64_t kNoOffset = ~uint64_t{0};

  // Infers the shape, dtype and known elements of each value. Nodes with unchanged inputs keep the outputs of the last binding.
  void infer_values(const BindInputs& inputs) {
    assumes_sizes_ = context_->compile_only() && std::ranges::any_of(inputs.values, [](const auto& value) { return value.has_value(); });
    const bool is_new = !cache_ || !cache_->shapes;
    changed_.assign(graph_.values.size(), is_new);
    if (is_new) {
      shapes_.reserve(graph_.values.size());
      infer_constants();
    } else {
      shapes_ = *std::exchange(cache_->shapes, std::nullopt);
      shapes_.reset_strides();
    }
    for (size_t i = 0; i < graph_.inputs.size(); ++i) infer_input(i, inputs);
    for (const ProgramNode& node : graph_.nodes) {
      if (std::ranges::none_of(node.inputs, [&](ValueId input) { return input != kAbsent && changed_[to_index(input)]; }) && !is_new)
        continue;
      previous_outputs_.clear();
      for (const ValueId output : node.outputs)
        previous_outputs_.push_back(output == kAbsent ? ShapeInference::InferredValue{} : shapes_.take_inferred_value(output));
      infer_node(node);
      for (size_t j = 0; j < node.outputs.size(); ++j)
        if (node.outputs[j] != kAbsent) changed_[to_index(node.outputs[j])] = !shapes_.is_unchanged(node.outputs[j], previous_outputs_[j]);
    }
  }

  void infer_input(size_t i, const BindInputs& inputs) {
    const ValueId id = graph_.inputs[i];
    const GraphValue& input = graph_.value(id);
    const bool converted = input.owned && is_operator_float(input.dtype);  // converted once at initialisation, like constants
    const ShapeInference::InferredValue before = shapes_.take_inferred_value(id);
    shapes_.set(id, TensorDesc(converted ? graph_.float_dtype : input.dtype, inputs.shapes[i]));
    if (i < inputs.values.size() && inputs.values[i]) shapes_.set_host_elements(id, *inputs.values[i]);
    changed_[to_index(id)] = !shapes_.is_unchanged(id, before);
  }

  void infer_constants() {
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const auto& constant = graph_.values[i].constant;
      if (!constant) continue;
      const auto id = static_cast<ValueId>(i);
      shapes_.set(id, constant->desc);
      shapes_.mutable_desc(id)->dtype = graph_.stored_dtype(graph_.values[i]);
      if (constant->data || constant->desc.elements() == 0) shapes_.set_constant(id, *constant);
    }
  }

  void infer_node(const ProgramNode& node) {
    shapes_.check_requirement(node);
    if (!node.may_fail) return infer_outputs(node);
    // A node that is needed only for its shape may get inputs it cannot run on, for example in the body of a loop with zero iterations. Its
    // outputs are then empty.
    try {
      infer_outputs(node);
    } catch (const GraphError&) {
      for (const ValueId output : node.outputs) {
        if (output == kAbsent) continue;
        const GraphValue& output_value = graph_.value(output);
        Shape likely = output_value.shape.value_or(Shape());
        std::ranges::replace(likely, kUnknownSize, 0);
        shapes_.forget(output);
        shapes_.set(output, TensorDesc(output_value.dtype, std::move(likely)));
      }
    }
  }

  // In a compile-only context, sizes that depend on data are assumed, and may contradict the number of elements of a reshaped tensor.
  bool infer_assumed_outputs(const ProgramNode& node) {
    try {
      return shapes_.infer_node(node);
    } catch (const GraphError&) {
      const std::optional<Shape>& known = graph_.value(node.outputs[0]).shape;
      if (!shapes_.fit_assumed_shape(node, known ? std::optional(known->size()) : std::nullopt)) throw;
      return true;
    }
  }

  void infer_outputs(const ProgramNode& node) {
    if (!(assumes_sizes_ ? infer_assumed_outputs(node) : shapes_.infer_node(node)))
      throw GraphError(node.name, "an input's shape is not known");
    check_known_indices(node);
    if (node.has_residual) shapes_.broadcast_residual(node, node.inputs[kResidualInput], graph_.value(node.inputs[kResidualInput]).name);
    restore_output_dtypes(node);
    if (!node.on_host) return;
    const int64_t max_elements = node.host_required ? kMaxRequiredHostElements : kMaxHostElements;
    const bool evaluated = shapes_.evaluate_node(node, max_elements);
    restore_output_dtypes(node);
    if (!evaluated && !node.row->lower)
      throw UnsupportedError("node '" + node.name + "': " + std::string(node.row->name) +
                             " needs values that are known on the host, and at most " + std::to_string(max_elements) + " elements");
  }

  void check_known_indices(const ProgramNode& node) const {
    if (!node.row->indices) return;
    std::vector<Shape> sizes;
    for (const ValueId input : node.inputs) sizes.push_back(input == kAbsent ? Shape{} : shapes_.desc(input)->shape);
    const IndexBounds bounds = node.row->indices(node.attributes, sizes);
    const HostTensor* index_values = bounds.input < node.inputs.size() ? shapes_.host_elements(node.inputs[bounds.input]) : nullptr;
    if (index_values && index_values->data) check_indices(node.name, bounds, *index_values);
  }

  // Restores the output dtypes that graph passes chose. Shape rules do not know the internal float dtype.
  void restore_output_dtypes(const ProgramNode& node) {
    for (const ValueId output : node.outputs)
      if (output != kAbsent) shapes_.mutable_desc(output)->dtype = graph_.value(output).dtype;
  }

  void lower_node(size_t i) {
    const ProgramNode& node = graph_.nodes[i];
    if (memory_plan_.views[i]) {
      result_.kernels[node.report] = "view";
      return;
    }
    if (node.only_shape || node.may_fail || std::ranges::none_of(node.outputs, [&](ValueId output) { return needs_memory(output); })) {
      result_.kernels[node.report] = "host";
      return;
    }
    if (has_empty_outputs(node)) {
      result_.kernels[node.report] = "none";
      return;
    }
    try {
      if (!memory_plan_.concat_slices[i].empty())
        lower_concat(node, i);
      else
        lower_operator(node, i);
    } catch (const UnsupportedError& error) {
      rejected_.insert(rejected_.end(), error.items.begin(), error.items.end());
    }
  }

  bool has_empty_outputs(const ProgramNode& node) const {
    return std::ranges::all_of(node.outputs, [&](ValueId output) { return output == kAbsent || shapes_.desc(output)->elements() == 0; });
  }

  void lower_operator(const ProgramNode& node, size_t i) {
    inputs_.clear(), outputs_.clear();
    for (size_t k = 0; k < node.inputs.size(); ++k) inputs_.push_back(make_input_operand(node, i, k));
    for (const ValueId output : node.outputs) outputs_.push_back(needs_memory(output) ? make_operand(output) : PlannedOperand{});
    CachedLowering* cached = cache_ ? &cache_->nodes[i] : nullptr;
    const bool is_bound = cached && cached->inputs.size() == node.inputs.size() && !cached->inputs.empty();
    const bool is_unchanged =
        cached && is_unchanged_since(node, *cached) && !uses_spilled_variant(cached->lowered.steps, graph_.spilled->find(node.name));
    if ((is_bound && is_fault_injected("steps")) || is_unchanged) return add_steps(node, cached->lowered);
    do lower_steps(node, i, cached);
    while (add_known_spills(node.name, lowering_.steps, *graph_.spilled));
    if (is_bound && is_fault_injected("push")) inject_stale_push_constants(cached->lowered.steps);
    add_steps(node, cached ? cache_node_lowering(node, *cached) : lowering_);
  }

  void lower_steps(const ProgramNode& node, size_t i, CachedLowering* cached) {
    reset_lowering(node);
    lowering_.epilogue_source = node.epilogue, lowering_.exact_epilogue = node.exact_epilogue;
    for (size_t k = 0; k < node.inputs.size(); ++k) add_lowering_input(node, i, k);
    for (const ValueId output : node.outputs)
      lowering_.outputs.push_back(needs_memory(output) ? std::optional(*shapes_.desc(output)) : std::nullopt);
    lowering_.expression = node.expression ? &*node.expression : nullptr;
    lowering_.kernel_cache = cached ? &cached->kernels : nullptr;
    lower_with_splits(lowering_, node.has_residual ? lower_with_residual : node.row->lower);
    const bool all_read = lowering_.epilogue_read && (lowering_.residual_read || !node.has_residual);
    if (node.epilogue != "x" && !lowering_.steps.empty() && !all_read)
      throw Error("the lowering of '" + node.name + "' ignored the nodes fused into it");
  }

  // For fault injection ("push"): reuses the push constants of the last binding.
  void inject_stale_push_constants(const std::vector<Step>& last_steps) {
    for (size_t k = 0; k < std::min(last_steps.size(), lowering_.steps.size()); ++k)
      if (last_steps[k].push.size() == lowering_.steps[k].push.size()) lowering_.steps[k].push = last_steps[k].push;
  }

  bool needs_memory(ValueId output) const { return output != kAbsent && !shapes_.host_elements(output); }

  // Returns a value's elements on the host if they may differ between bindings, else null.
  const HostTensor* find_varying_host_elements(ValueId id) const {
    return id != kAbsent && !graph_.value(id).constant ? shapes_.host_elements(id) : nullptr;
  }

  // Returns whether all inputs of the last lowering are unchanged.
  bool is_unchanged_since(const ProgramNode& node, const CachedLowering& cached) const {
    if (cached.inputs.size() != node.inputs.size() || cached.outputs.size() != node.outputs.size()) return false;
    const auto is_unchanged = [](const std::optional<TensorDesc>& known, const TensorDesc* now) {
      return known ? now && *known == *now : !now;
    };
    for (size_t j = 0; j < node.outputs.size(); ++j)
      if (!is_unchanged(cached.outputs[j], needs_memory(node.outputs[j]) ? shapes_.desc(node.outputs[j]) : nullptr)) return false;
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (!is_unchanged(cached.inputs[k], shapes_.desc(node.inputs[k])) ||
          cached.input_misalignments[k] != compute_misalignment(inputs_[k]))
        return false;
      const HostTensor* host = find_varying_host_elements(node.inputs[k]);
      if (cached.hosts[k].has_value() != (host != nullptr) || (host && !have_same_elements(*cached.hosts[k], *host))) return false;
    }
    return true;
  }

  const LoweredNode& cache_node_lowering(const ProgramNode& node, CachedLowering& cached) {
    cached.inputs = lowering_.inputs, cached.outputs = lowering_.outputs, cached.input_misalignments = lowering_.input_misalignments;
    cached.hosts.clear();
    for (const ValueId input : node.inputs) {
      const HostTensor* host = find_varying_host_elements(input);
      cached.hosts.push_back(host ? std::optional(*host) : std::nullopt);
    }
    return cached.lowered = std::move(static_cast<LoweredNode&>(lowering_));
  }

  // Adds a copy of each Concat input to its slice of the output, unless its producer already writes there.
  void lower_concat(const ProgramNode& node, size_t i) {
    result_.kernels[node.report] = "joined";
    const TensorDesc& output = *shapes_.desc(node.outputs[0]);
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const ConcatSlice& slice = memory_plan_.concat_slices[i][k];
      if (slice.root < 0 || slice.written_in_place) continue;
      reset_lowering(node);
      inputs_.assign(1, make_input_operand(node, i, k));
      lowering_.kernel_cache = cache_ ? &cache_->nodes[i].kernels : nullptr;
      add_lowering_input(node, i, k);
      const TensorDesc& x = lowering_.input(0);
      outputs_.assign(1, {MemoryKind::temporary,
                          static_cast<uint32_t>(slice.root),
                          0,
                          memory_plan_.roots[static_cast<size_t>(slice.root)].bytes,
                          static_cast<uint32_t>(bits(output.dtype)),
                          {},
                          node.outputs[0]});
      add_strided_copy(lowering_, output.dtype, {x.shape, {x.strides, output.strides}}, {lowering_.input_operand(0)},
                       {.operand = lowering_.output_operand(0),
                        .owns_words = slice.whole_words,
                        .misalignment = memory_plan_.roots[static_cast<size_t>(slice.root)].offset % kTensorSizeAlignment});
      add_steps(node, lowering_);
    }
  }

  void reset_lowering(const ProgramNode& node) {
    lowering_.attributes = &node.attributes, lowering_.node = node.name;
    lowering_.spilled = graph_.spilled->find(node.name);
    lowering_.float_dtype = graph_.float_dtype_of(node);
    lowering_.split_fp16 = node.split_fp16;
    lowering_.row = node.row, lowering_.concurrent = node.concurrent;
    lowering_.epilogue_source = "x", lowering_.exact_epilogue = false;
    lowering_.residual_operand.reset();
    lowering_.epilogue_read = lowering_.residual_read = false;
    lowering_.expression = nullptr, lowering_.kernel_cache = nullptr;
    lowering_.inputs.clear(), lowering_.outputs.clear(), lowering_.hosts.clear(), lowering_.input_misalignments.clear();
    lowering_.constant_packed.clear(), lowering_.constant.clear(), lowering_.shapes.clear();
    static_cast<LoweredNode&>(lowering_) = {};
  }

  // Returns the operand from which node i reads input k.
  PlannedOperand make_input_operand(const ProgramNode& node, size_t i, size_t k) {
    if (k >= node.get_data_inputs().size()) return {};
    const ValueId input = node.inputs[k];
    const TensorDesc* desc = shapes_.desc(input);
    if (const PlacedWeight* weight = find_weight(i, k))
      return {MemoryKind::persistent, 0, weight->offset, weight->bytes, static_cast<uint32_t>(bits(desc->dtype)), {}, input};
    const bool host_only = has_bit(node.row->host_inputs, k);
    return desc && !host_only ? make_operand(input) : PlannedOperand{};
  }

  const PlacedWeight* find_weight(size_t i, size_t k) const {
    const auto& uses = weights_.by_node[i];
    return k < uses.size() && uses[k] ? &*uses[k] : nullptr;
  }

  // Returns the byte offset of an operand modulo 16.
  uint64_t compute_misalignment(const PlannedOperand& operand) const {
    const uint64_t root_offset = operand.memory == MemoryKind::temporary ? find_outermost_storage(memory_plan_, operand.index).second : 0;
    return (root_offset + operand.byte_offset) % kTensorSizeAlignment;
  }

  void add_lowering_input(const ProgramNode& node, size_t i, size_t k) {
    const ValueId input = node.inputs[k];
    const TensorDesc* desc = shapes_.desc(input);
    lowering_.inputs.push_back(desc ? std::optional(*desc) : std::nullopt);
    lowering_.hosts.push_back(shapes_.host_elements(input));
    const PlacedWeight* weight = find_weight(i, k);
    lowering_.constant_packed.push_back(weight && weight->packed);
    lowering_.constant.push_back(weight != nullptr);
    lowering_.shapes.push_back(graph_.known_shape(input));
    lowering_.input_misalignments.push_back(compute_misalignment(inputs_[lowering_.inputs.size() - 1]));
  }

  // Returns an operand for the whole memory of a value.
  PlannedOperand make_operand(ValueId value) {
    const TensorDesc& desc = *shapes_.desc(value);
    const auto element_bits = static_cast<uint32_t>(bits(desc.dtype));
    const ValueLocation& location = memory_plan_.values[to_index(value)];
    if (location.memory == MemoryKind::temporary) {
      const uint64_t remaining_bytes = memory_plan_.roots[location.index].bytes - location.offset;
      return {MemoryKind::temporary, location.index, location.offset, remaining_bytes, element_bits, {}, value};
    }
    const uint64_t bytes = round_up(desc.bytes(), kTensorSizeAlignment);
    if (location.memory != MemoryKind::none) return {location.memory, location.index, location.offset, bytes, element_bits, {}, value};
    return {MemoryKind::host, 0, get_host_offset(value), bytes, element_bits, {}, value};
  }

  // Host values that kernels read are packed into one block. Returns the byte offset of the value in it.
  uint64_t get_host_offset(ValueId value) {
    const HostTensor* host = shapes_.host_elements(value);
    if (!host) throw Error("value '" + graph_.value(value).name + "': expected a memory location or host elements, given neither");
    uint64_t& offset = host_offsets_[to_index(value)];
    if (offset != kNoOffset) return offset;
    const DType dtype = shapes_.desc(value)->dtype;
    const HostTensor stored = host->converted(dtype);
    return offset = append_host_bytes({stored.data, static_cast<size_t>(stored.desc.element_bytes())});
  }

  uint64_t append_host_bytes(std::span<const std::byte> bytes) {
    auto& block = result_.plan.host_values;
    const uint64_t offset = round_up(block.size(), kArenaAlignment);
    block.resize(offset + round_up(bytes.size(), kTensorSizeAlignment));
    std::copy(bytes.begin(), bytes.end(), block.begin() + static_cast<std::ptrdiff_t>(offset));
    return offset;
  }

  void add_steps(const ProgramNode& node, const LoweredNode& lowered) {
    const auto first_temporary = static_cast<uint32_t>(memory_plan_.roots.size());
    for (const uint64_t bytes : lowered.temporaries) memory_plan_.roots.push_back({round_up(bytes, kTensorSizeAlignment)});
    static std::atomic<uint64_t> writers = 0;
    const uint64_t writer = ++writers;
    blocks_.clear();
    for (const auto& bytes : lowered.host_blocks)
      blocks_.push_back({append_host_bytes(bytes), round_up(bytes.size(), kTensorSizeAlignment)});
    for (const Step& step : lowered.steps) {
      if (std::find(step.groups.begin(), step.groups.end(), 0u) != step.groups.end()) continue;
      add_kernel_name(node, step.kernel->name());
      PlannedStep& planned = steps_.emplace_back();
      planned.operands.reserve(step.operands.size());
      for (size_t k = 0; k < step.operands.size(); ++k)
        planned.operands.push_back(resolve_operand(step.operands[k], step.kernel->interface().bindings[k], first_temporary, writer));
      planned.kernel = step.kernel;
      planned.push = step.push;
      planned.groups = step.groups;
      planned.label = node.name;
      planned.additions = lowered.additions, planned.flop = lowered.flop;
      planned.choice = step.choice, planned.variant = step.variant;
      if (!step.spilled.empty()) append_unique(result_.spills[node.report], step.spilled + " spills, " + step.variant + " does not");
      if (step.choice) append_unique(result_.choices[node.report], step.choice->note());
    }
  }

  // Appends `text` to a comma-separated list unless the list already contains it.
  static void append_unique(std::string& list, const std::string& text) {
    if (list.find(text) == std::string::npos) list += (list.empty() ? "" : ", ") + text;
  }

  void add_kernel_name(const ProgramNode& node, const std::string& kernel) {
    std::string& kernels = result_.kernels[node.report];
    if (kernels == "joined") kernels.clear();
    append_unique(kernels, kernel);
  }

  PlannedOperand resolve_operand(const Operand& operand, const BindingInterface& binding, uint32_t first_temporary, uint64_t writer) const {
    PlannedOperand result;
    switch (operand.memory) {
      case MemoryKind::input:
        result = inputs_.at(operand.index);
        break;
      case MemoryKind::output:
        result = outputs_.at(operand.index);
        break;
      case MemoryKind::temporary: {
        const uint32_t root = first_temporary + operand.index;
        const uint32_t declared = binding.element_bytes * 8 / std::max(binding.components, 1u);
        result = {MemoryKind::temporary, root, 0, memory_plan_.roots[root].bytes, operand.element_bits ? operand.element_bits : declared};
        break;
      }
      case MemoryKind::host:
        result = {MemoryKind::host, 0, blocks_.at(operand.index).first, blocks_.at(operand.index).second};
        break;
      default:
        throw Error("a step has an operand without a memory location");
    }
    result.byte_offset += operand.byte_offset;
    result.accessed_bytes = operand.bytes, result.is_exact = operand.is_exact;
    if (operand.part != 0) result.interleaved.writer = writer, result.interleaved.part = operand.part;
    result.bytes = result.bytes > operand.byte_offset ? result.bytes - operand.byte_offset : 0;
    return result;
  }

  // Adds a copy to the output buffer unless kernels write the program output there directly.
  void add_output_copy(size_t j) {
    const auto& [name, value] = graph_.outputs[j];
    const TensorDesc& desc = *shapes_.desc(value);
    const ValueLocation& location = memory_plan_.values[to_index(value)];
    if (location.memory == MemoryKind::temporary && memory_plan_.roots[location.index].output == static_cast<int32_t>(j)) return;
    const auto& weight = weights_.by_output[j];
    const PlannedOperand source =
        weight ? PlannedOperand{MemoryKind::persistent, 0, weight->offset, weight->bytes, 32, {}, value} : make_operand(value);
    const uint64_t bytes = weight ? TensorDesc(graph_.value(value).dtype, desc.shape).bytes()
                                  : desc.bytes();  // weights that are outputs keep their original dtype
    if (desc.is_packed())
      return append_word_copies(context_, source, {MemoryKind::output, static_cast<uint32_t>(j), 0, 0, 32, {}, value}, bytes, name, steps_);
    throw Error("output '" + name + "' is strided");
  }

  void add_plan_slots() {
    ExecutionPlan& plan = result_.plan;
    plan.name = graph_.name;
    plan.inputs.reserve(graph_.inputs.size() + weights_.sources.size());
    for (const ValueId input : graph_.inputs) {
      const GraphValue& value = graph_.value(input);
      plan.inputs.push_back({value.name, TensorDesc(value.dtype, shapes_.desc(input)->shape, {}, value.owned)});
    }
    for (const WeightSource& source : weights_.sources) plan.inputs.push_back(source.slot);
    for (const auto& [name, value] : graph_.outputs) {
      TensorDesc desc = *shapes_.desc(value);
      desc.dtype = graph_.value(value).dtype;
      plan.outputs.push_back({name, std::move(desc)});
      const HostTensor* host = shapes_.host_elements(value);
      result_.output_hosts.push_back(host && host->data && host->desc.dtype == plan.outputs.back().desc->dtype ? std::optional(*host)
                                                                                                               : std::nullopt);
    }
    plan.initialization = weights_.initialization;
  }

  void find_stored_values() {
    std::vector<bool> is_stored(graph_.values.size(), false);
    for (const PlannedStep& step : steps_)
      for (size_t k = 0; k < step.operands.size(); ++k) {
        const PlannedOperand& operand = step.operands[k];
        if (operand.value < 0 || operand.memory != MemoryKind::temporary || is_stored[to_index(operand.value)]) continue;
        if (step.kernel->interface().bindings[k].access == ResourceAccess::read) continue;
        is_stored[to_index(operand.value)] = true;
        result_.stored.push_back({operand.value, *shapes_.desc(operand.value), make_operand(operand.value)});
      }
  }

  const ProgramGraph& graph_;
  const Weights& weights_;
  BindCache* cache_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<KernelLibrary> library_;
  ShapeInference shapes_;
  bool assumes_sizes_ = false;                                   // whether elements that shapes depend on are assumed
  std::vector<bool> changed_;                                    // for each value: whether it changed since the last binding
  std::vector<ShapeInference::InferredValue> previous_outputs_;  // outputs of the current node in the last binding
  MemoryPlan memory_plan_;
  LowerContext lowering_;                         // context of the current node
  std::vector<PlannedOperand> inputs_, outputs_;  // operands of the current node
  std::vector<PlannedStep> steps_;
  std::vector<uint64_t> host_offsets_;                 // indexed by value
  std::vector<std::pair<uint64_t, uint64_t>> blocks_;  // byte offset and size of each host block of the current node
  std::vector<std::string> rejected_;
  BoundPlan result_;
};

}  // namespace

BoundPlan bind_plan(const std::shared_ptr<Context>& context, const ProgramGraph& graph, const Weights& weights, const BindInputs& inputs,
                    BindCache* cache, bool list_values) {
  return PlanBuilder(context, graph, weights, cache).build(inputs, list_values);
}

}  // namespace pumice
