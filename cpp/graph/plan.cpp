#include "graph/plan.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "graph/arena.h"
#include "graph/placement.h"
#include "graph/schedule.h"
#include "graph/shape_inference.h"
#include "operators/strided.h"

namespace pumice {
namespace {

// Makes one plan. Until the end an operand at Place::temporary names its storage root as its index.
class Binder {
 public:
  Binder(const std::shared_ptr<Context>& context, const ProgramGraph& graph, const Weights& weights, std::vector<NodeMemo>* memos)
      : graph_(graph), weights_(weights), memos_(memos), context_(context), library_(context->attachment<KernelLibrary>()) {
    lowering_.context = context;
    lowering_.library = library_.get();
    lowering_.float_dtype = graph.float_dtype;
  }

  BoundPlan bind(const BindInputs& inputs) {
    result_.kernels.resize(graph_.report.size());
    host_offsets_.assign(graph_.values.size(), kNowhere);
    infer(inputs);
    placement_ = place_values(graph_, weights_, shapes_);
    steps_.reserve(graph_.nodes.size() * 2);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) lower_node(i);
    if (!refused_.empty()) throw UnsupportedError(refused_);
    for (size_t j = 0; j < graph_.outputs.size(); ++j) fill_output(j);
    describe();
    order_and_place();
    find_updates();
    return std::move(result_);
  }

 private:
  static constexpr uint64_t kNowhere = ~uint64_t{0};

  static size_t index(ValueId value) { return static_cast<size_t>(value); }

  void infer(const BindInputs& inputs) {
    shapes_.reserve(graph_.values.size());
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const GraphValue& input = graph_.value(graph_.inputs[i]);
      const bool converted = input.owned && is_working_float(input.dtype);  // as constants are, at initialisation
      shapes_.set(graph_.inputs[i], TensorDesc(converted ? graph_.float_dtype : input.dtype, inputs.shapes[i]));
      if (i < inputs.values.size() && inputs.values[i]) shapes_.set_host(graph_.inputs[i], *inputs.values[i]);
    }
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const auto& constant = graph_.values[i].constant;
      if (!constant) continue;
      const auto id = static_cast<ValueId>(i);
      shapes_.set(id, constant->desc);
      if (is_working_float(constant->desc.dtype)) shapes_.mutable_desc(id)->dtype = graph_.float_dtype;
      if (constant->data || constant->desc.elements() == 0) shapes_.set_constant(id, *constant);
    }
    for (const ProgramNode& node : graph_.nodes) {
      if (!shapes_.run(node)) throw GraphError(node.name, "an input's shape is not known");
      keep_dtypes(node);
      if (!node.on_host) continue;
      const int64_t most = node.demanded ? kMostDemandedElements : kMostHostElements;
      const bool evaluated = shapes_.evaluate(node, most);
      keep_dtypes(node);
      if (!evaluated && !node.row->lower)
        throw UnsupportedError("node '" + node.name + "': " + std::string(node.row->name) +
                               " of values that only the device knows, or of more than " + std::to_string(most) + " elements");
    }
  }

  // The passes have the last word: they choose the dtype of floats inside.
  void keep_dtypes(const ProgramNode& node) {
    for (const ValueId output : node.outputs)
      if (output != kAbsent) shapes_.mutable_desc(output)->dtype = graph_.value(output).dtype;
  }

  void lower_node(size_t i) {
    const ProgramNode& node = graph_.nodes[i];
    if (placement_.views[i]) {
      result_.kernels[node.report] = "view";
      return;
    }
    if (node.only_shape ||
        std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) { return output == kAbsent || shapes_.host(output); })) {
      result_.kernels[node.report] = "host";
      return;
    }
    try {
      if (!placement_.parts[i].empty())
        lower_parts(node, i);
      else
        lower_whole(node, i);
    } catch (const UnsupportedError& error) {
      refused_.insert(refused_.end(), error.items.begin(), error.items.end());
    }
  }

  void lower_whole(const ProgramNode& node, size_t i) {
    prepare(node);
    lowering_.epilogue_text = node.epilogue;
    for (size_t k = 0; k < node.inputs.size(); ++k) add_input(node, i, k);
    for (const ValueId output : node.outputs) {
      const bool wanted = output != kAbsent && !shapes_.host(output);
      lowering_.outputs.push_back(wanted ? std::optional(*shapes_.desc(output)) : std::nullopt);
      outputs_.push_back(wanted ? place_of(output) : PlannedOperand{});
    }
    lowering_.expression = node.expression ? &*node.expression : nullptr;
    NodeMemo* memo = memos_ ? &(*memos_)[i] : nullptr;
    lowering_.memo = memo ? &memo->kernels : nullptr;
    if (memo && reads_made_values(node)) memo = nullptr;
    if (!memo || !recall(*memo)) {
      node.row->lower(lowering_);
      if (node.epilogue != "x" && !lowering_.steps.empty() && !lowering_.epilogue_read)
        throw Error("the lowering of '" + node.name + "' left out what is fused into it");
      if (memo) keep(*memo);
    }
    add_steps(node);
  }

  // Whether lowering a node may depend on values that are other ones at the next binding.
  bool reads_made_values(const ProgramNode& node) const {
    return std::ranges::any_of(node.inputs, [&](ValueId input) { return shapes_.host(input) && !graph_.value(input).constant; });
  }

  // Takes the steps of the last time where nothing that they depend on has changed.
  bool recall(const NodeMemo& memo) {
    if (!memo.is_kept || memo.inputs != lowering_.inputs || memo.outputs != lowering_.outputs ||
        memo.input_phases != lowering_.input_phases)
      return false;
    lowering_.steps = memo.steps, lowering_.temporaries = memo.temporaries, lowering_.host_blocks = memo.host_blocks;
    return true;
  }

  void keep(NodeMemo& memo) const {
    memo.inputs = lowering_.inputs, memo.outputs = lowering_.outputs, memo.input_phases = lowering_.input_phases;
    memo.steps = lowering_.steps, memo.temporaries = lowering_.temporaries, memo.host_blocks = lowering_.host_blocks;
    memo.is_kept = true;
  }

  // What is not in its part of a concatenation already is copied there.
  void lower_parts(const ProgramNode& node, size_t i) {
    result_.kernels[node.report] = "joined";
    const TensorDesc& whole = *shapes_.desc(node.outputs[0]);
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const ConcatPart& part = placement_.parts[i][k];
      if (part.root < 0 || part.joined) continue;
      prepare(node);
      add_input(node, i, k);
      const TensorDesc& x = lowering_.input(0);
      outputs_.push_back({Place::temporary,
                          static_cast<uint32_t>(part.root),
                          0,
                          placement_.roots[static_cast<size_t>(part.root)].bytes,
                          static_cast<uint32_t>(bits(whole.dtype)),
                          {},
                          node.outputs[0]});
      add_strided_copy(lowering_, whole.dtype, {x.shape, {x.strides, whole.strides}}, lowering_.in(0), 0, lowering_.out(0), 0,
                       part.whole_words, placement_.roots[static_cast<size_t>(part.root)].offset % kTensorGrain);
      add_steps(node);
    }
  }

  void prepare(const ProgramNode& node) {
    lowering_.attributes = &node.attributes;
    lowering_.node = node.name;
    lowering_.row = node.row;
    lowering_.epilogue_text = "x";
    lowering_.epilogue_read = false;
    lowering_.expression = nullptr;
    lowering_.memo = nullptr;
    lowering_.inputs.clear();
    lowering_.outputs.clear();
    lowering_.hosts.clear();
    lowering_.input_phases.clear();
    lowering_.constant_packed.clear();
    lowering_.shapes.clear();
    lowering_.steps.clear();
    lowering_.temporaries.clear();
    lowering_.host_blocks.clear();
    inputs_.clear();
    outputs_.clear();
  }

  void add_input(const ProgramNode& node, size_t i, size_t k) {
    const ValueId input = node.inputs[k];
    const TensorDesc* desc = shapes_.desc(input);
    lowering_.inputs.push_back(desc ? std::optional(*desc) : std::nullopt);
    lowering_.hosts.push_back(shapes_.host(input));
    const auto& uses = weights_.of_nodes[i];
    const bool is_weight = k < uses.size() && uses[k];
    lowering_.constant_packed.push_back(is_weight && uses[k]->packed);
    lowering_.shapes.push_back(graph_.known_shape(input));
    const bool host_only = k < 32 && (node.row->host_inputs >> k & 1);
    if (is_weight)
      inputs_.push_back({Place::persistent, 0, uses[k]->offset, uses[k]->bytes, static_cast<uint32_t>(bits(desc->dtype)), {}, input});
    else
      inputs_.push_back(desc && !host_only ? place_of(input) : PlannedOperand{});
    const PlannedOperand& place = inputs_.back();
    const uint64_t root_offset = place.place == Place::temporary ? outermost(place.index).second : 0;
    lowering_.input_phases.push_back((root_offset + place.byte_offset) % kTensorGrain);
  }

  // Where a value is, as an operand of its whole range.
  PlannedOperand place_of(ValueId value) {
    const TensorDesc& desc = *shapes_.desc(value);
    const auto element_bits = static_cast<uint32_t>(bits(desc.dtype));
    const ValuePlace& place = placement_.values[index(value)];
    if (place.place == Place::temporary)
      return {Place::temporary, place.index, place.offset, placement_.roots[place.index].bytes - place.offset, element_bits, {}, value};
    const uint64_t bytes = round_up(desc.bytes(), kTensorGrain);
    if (place.place != Place::none) return {place.place, place.index, place.offset, bytes, element_bits, {}, value};
    return {Place::host, 0, host_offset(value), bytes, element_bits, {}, value};
  }

  // Host values that the device reads lie in one block.
  uint64_t host_offset(ValueId value) {
    const HostTensor* host = shapes_.host(value);
    if (!host) throw Error("value '" + graph_.value(value).name + "' is nowhere");
    uint64_t& offset = host_offsets_[index(value)];
    if (offset != kNowhere) return offset;
    const DType dtype = shapes_.desc(value)->dtype;
    const HostTensor stored = host->converted(dtype);
    return offset = append_host_bytes({stored.data, static_cast<size_t>(stored.desc.element_bytes())});
  }

  uint64_t append_host_bytes(std::span<const std::byte> bytes) {
    auto& block = result_.plan.host_values;
    const uint64_t offset = round_up(block.size(), kArenaAlignment);
    block.resize(offset + round_up(bytes.size(), kTensorGrain));
    std::copy(bytes.begin(), bytes.end(), block.begin() + static_cast<std::ptrdiff_t>(offset));
    return offset;
  }

  void add_steps(const ProgramNode& node) {
    const auto first_temporary = static_cast<uint32_t>(placement_.roots.size());
    for (const uint64_t bytes : lowering_.temporaries) placement_.roots.push_back({round_up(bytes, kTensorGrain)});
    block_offsets_.clear();
    for (const auto& bytes : lowering_.host_blocks) block_offsets_.push_back(append_host_bytes(bytes));
    for (Step& step : lowering_.steps) {
      if (std::find(step.groups.begin(), step.groups.end(), 0u) != step.groups.end()) continue;
      note_kernel(node, step.kernel->name());
      PlannedStep& planned = steps_.emplace_back();
      planned.operands.reserve(step.operands.size());
      for (size_t k = 0; k < step.operands.size(); ++k)
        planned.operands.push_back(resolved(step.operands[k], step.kernel->interface().bindings[k], first_temporary));
      planned.kernel = std::move(step.kernel);
      planned.push = std::move(step.push);
      planned.groups = step.groups;
      planned.label = node.name;
    }
  }

  void note_kernel(const ProgramNode& node, const std::string& kernel) {
    std::string& kernels = result_.kernels[node.report];
    if (kernels == "joined") kernels.clear();
    if (kernels.find(kernel) == std::string::npos) kernels += (kernels.empty() ? "" : ", ") + kernel;
  }

  PlannedOperand resolved(const Operand& operand, const BindingInterface& binding, uint32_t first_temporary) const {
    PlannedOperand result;
    switch (operand.place) {
      case Place::input:
        result = inputs_.at(operand.index);
        break;
      case Place::output:
        result = outputs_.at(operand.index);
        break;
      case Place::temporary: {
        const uint32_t root = first_temporary + operand.index;
        result = {Place::temporary, root, 0, placement_.roots[root].bytes, binding.element_bytes * 8 / std::max(binding.components, 1u)};
        break;
      }
      case Place::host:
        result = {Place::host, 0, block_offsets_.at(operand.index), round_up(lowering_.host_blocks.at(operand.index).size(), kTensorGrain)};
        break;
      default:
        throw Error("a step of '" + std::string(lowering_.node) + "' has an operand that is nowhere");
    }
    result.byte_offset += operand.byte_offset;
    result.bytes = result.bytes > operand.byte_offset ? result.bytes - operand.byte_offset : 0;
    return result;
  }

  // An output of the program that is not made in its own memory is copied there.
  void fill_output(size_t j) {
    const auto& [name, value] = graph_.outputs[j];
    const TensorDesc& desc = *shapes_.desc(value);
    const ValuePlace& place = placement_.values[index(value)];
    if (place.place == Place::temporary && placement_.roots[place.index].output == static_cast<int32_t>(j)) return;
    const auto& weight = weights_.of_outputs[j];
    const PlannedOperand source =
        weight ? PlannedOperand{Place::persistent, 0, weight->offset, weight->bytes, 32, {}, value} : place_of(value);
    const uint64_t bytes = weight ? TensorDesc(graph_.value(value).dtype, desc.shape).bytes() : desc.bytes();  // kept in its own dtype
    if (desc.is_packed())
      return append_word_copies(context_, source, {Place::output, static_cast<uint32_t>(j), 0, 0, 32, {}, value}, bytes, name, steps_);
    throw Error("output '" + name + "' is strided");
  }

  void describe() {
    Plan& plan = result_.plan;
    plan.name = graph_.name;
    plan.inputs.reserve(graph_.inputs.size() + weights_.slots.size());
    for (const ValueId input : graph_.inputs) {
      const GraphValue& value = graph_.value(input);
      plan.inputs.push_back({value.name, TensorDesc(value.dtype, shapes_.desc(input)->shape, {}, value.owned)});
    }
    plan.inputs.insert(plan.inputs.end(), weights_.slots.begin(), weights_.slots.end());
    for (const auto& [name, value] : graph_.outputs) {
      TensorDesc desc = *shapes_.desc(value);
      desc.dtype = graph_.value(value).dtype;
      plan.outputs.push_back({name, std::move(desc)});
      const HostTensor* host = shapes_.host(value);
      result_.output_hosts.push_back(host && host->data && host->desc.dtype == plan.outputs.back().desc->dtype ? std::optional(*host)
                                                                                                               : std::nullopt);
    }
    plan.initialization = weights_.initialization;
  }

  std::pair<uint32_t, uint64_t> outermost(uint32_t root) const {
    uint64_t offset = 0;
    while (placement_.roots[root].parent >= 0) {
      offset += placement_.roots[root].offset;
      root = static_cast<uint32_t>(placement_.roots[root].parent);
    }
    return {root, offset};
  }

  ScheduleProblem problem() const {
    ScheduleProblem problem;
    problem.storages.reserve(placement_.roots.size());
    for (const StorageRoot& root : placement_.roots)
      problem.storages.push_back({root.output < 0 && root.parent < 0 ? round_up(root.bytes, kArenaAlignment) : 0, root.parent});
    for (const PlannedStep& step : steps_) {
      for (size_t k = 0; k < step.operands.size(); ++k)
        if (step.operands[k].place == Place::temporary)
          problem.accesses.push_back({step.operands[k].index, step.kernel->interface().bindings[k].access != Access::read});
      problem.end_step();
    }
    return problem;
  }

  // Waves, then the arena with lifetimes counted in waves, then every operand's offset.
  void order_and_place() {
    const ScheduleProblem wanted = problem();
    const Schedule order = schedule(wanted);
    std::vector<ArenaInterval> intervals(placement_.roots.size(), {0, UINT32_MAX, 0});
    for (uint32_t i = 0; i < steps_.size(); ++i) {
      steps_[i].wave = order.waves[i];
      for (const PlannedOperand& operand : steps_[i].operands) {
        if (operand.place != Place::temporary) continue;
        const uint32_t root = outermost(operand.index).first;
        ArenaInterval& interval = intervals[root];
        if (placement_.roots[root].output < 0) interval.bytes = placement_.roots[root].bytes;
        interval.first = std::min(interval.first, order.waves[i]);
        interval.last = std::max(interval.last, order.waves[i]);
      }
    }
    for (ArenaInterval& interval : intervals)
      if (interval.bytes == 0) interval = {};
    result_.plan.temporary_bytes = place_intervals(intervals);
    result_.lower_bound_bytes = order.sequential_peak_bytes;
    result_.wave_count = order.wave_count;
    auto& steps = result_.plan.segments.emplace_back().blocks.emplace_back().steps;
    steps.reserve(steps_.size());
    for (const uint32_t i : order.order) {
      for (PlannedOperand& operand : steps_[i].operands) settle(operand, intervals);
      steps.push_back(std::move(steps_[i]));
    }
  }

  // Inputs that are copied to an output of their own description, whole, and that nothing else reads.
  void find_updates() {
    Plan& plan = result_.plan;
    std::vector<uint32_t> reads(graph_.inputs.size(), 0);
    const auto& steps = plan.segments.back().blocks.back().steps;
    for (const PlannedStep& step : steps)
      for (const PlannedOperand& operand : step.operands)
        if (operand.place == Place::input) ++reads[operand.index];
    for (const PlannedStep& step : steps) {
      if (!is_copy(step)) continue;
      const PlannedOperand &x = step.operands[0], &y = step.operands[1];
      if (x.place != Place::input || y.place != Place::output || x.byte_offset != 0 || y.byte_offset != 0 || reads[x.index] != 1) continue;
      const TensorDesc &from = *plan.inputs[x.index].desc, &to = *plan.outputs[y.index].desc;
      if (from.dtype == to.dtype && from.shape == to.shape) plan.updates.emplace_back(x.index, y.index);
    }
  }

  void settle(PlannedOperand& operand, const std::vector<ArenaInterval>& intervals) const {
    if (operand.place != Place::temporary) return;
    const StorageRoot& own = placement_.roots[operand.index];
    const auto [root, offset] = outermost(operand.index);
    const int32_t output = placement_.roots[root].output;
    const uint64_t base = offset + (output >= 0 ? 0 : intervals[root].offset);
    operand.place = output >= 0 ? Place::output : Place::temporary;
    operand.index = output >= 0 ? static_cast<uint32_t>(output) : 0;
    operand.byte_offset += base;
    if (own.lane.period != 0) operand.lane = {base - own.offset, own.lane.period, own.lane.begin, own.lane.end};
  }

  const ProgramGraph& graph_;
  const Weights& weights_;
  std::vector<NodeMemo>* memos_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<KernelLibrary> library_;
  ShapeInference shapes_;
  Placement placement_;
  LowerContext lowering_;                         // of the node at hand
  std::vector<PlannedOperand> inputs_, outputs_;  // likewise
  std::vector<PlannedStep> steps_;
  std::vector<uint64_t> host_offsets_;   // by value
  std::vector<uint64_t> block_offsets_;  // of the node's host blocks
  std::vector<std::string> refused_;
  BoundPlan result_;
};

}  // namespace

BoundPlan bind_plan(const std::shared_ptr<Context>& context, const ProgramGraph& graph, const Weights& weights, const BindInputs& inputs,
                    std::vector<NodeMemo>* memos) {
  return Binder(context, graph, weights, memos).bind(inputs);
}

}  // namespace pumice
