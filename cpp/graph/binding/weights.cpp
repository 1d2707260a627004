#include "graph/binding/weights.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "core/error.h"
#include "core/half.h"
#include "graph/binding/arena.h"
#include "operators/common/split_node.h"

namespace pumice {
namespace {

// Assigns device memory to all weights, and collects their sources and initialisation steps.
class WeightPlacer {
 public:
  WeightPlacer(const std::shared_ptr<Context>& context, const ProgramGraph& graph)
      : graph_(graph), context_(context), library_(context->attachment<KernelLibrary>()) {}

  Weights run() {
    weights_.by_node.resize(graph_.nodes.size());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) place_node_weights(graph_.nodes[i], weights_.by_node[i]);
    for (const auto& [name, value] : graph_.outputs)
      weights_.by_output.push_back(is_weight(value) ? std::optional(place_unpacked_weight(value, get_desc(value).dtype, name))
                                                    : std::nullopt);
    for (const ValueId input : graph_.inputs) {
      const auto copy = copies_.find({input, get_unpacked_dtype(input)});
      weights_.by_input.push_back(copy != copies_.end() ? std::optional(copy->second) : std::nullopt);
    }
    plan_->persistent_bytes = bytes_;
    weights_.initialization = plan_;
    return std::move(weights_);
  }

 private:
  void place_node_weights(const ProgramNode& node, std::vector<std::optional<PlacedWeight>>& uses) {
    if (node.on_host || !node.row->lower) return;
    PackContext pack = make_pack_context(node);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool is_host_only = has_bit(node.row->host_inputs, i);
      if (node.inputs[i] == kAbsent || is_host_only || !is_weight(node.inputs[i])) continue;
      uses.resize(node.inputs.size());
      uses[i] = place_weight(node, i, pack);
    }
  }

  PackContext make_pack_context(const ProgramNode& node) const {
    PackContext pack;
    pack.context = context_;
    pack.library = library_.get();
    pack.attributes = &node.attributes;
    pack.node = node.name;
    pack.measured = graph_.measured.get();
    pack.float_dtype = graph_.float_dtype_of(node);
    pack.split_fp16 = node.split_fp16;
    for (const ValueId input : node.inputs) {
      const bool weight = input != kAbsent && is_weight(input);
      pack.shapes.push_back(graph_.known_shape(input));
      pack.inputs.push_back(weight ? std::optional(get_desc(input)) : std::nullopt);
      if (weight) pack.inputs.back()->dtype = get_pack_input_dtype(input);
    }
    return pack;
  }

  bool is_weight(ValueId value) const { return graph_.value(value).constant || graph_.value(value).owned; }

  TensorDesc get_desc(ValueId value) const {
    const GraphValue& weight = graph_.value(value);
    return weight.constant ? weight.constant->desc : TensorDesc(weight.dtype, *weight.shape);
  }

  // Returns the dtype in which nodes read an unpacked weight.
  DType get_unpacked_dtype(ValueId value) const { return graph_.stored_dtype(graph_.value(value)); }

  // Returns the dtype of the source that packing kernels read: float32, or the internal float dtype of the program.
  DType get_pack_input_dtype(ValueId value) const {
    const DType dtype = get_desc(value).dtype;
    return is_operator_float(dtype) && dtype != DType::float32 ? get_unpacked_dtype(value) : dtype;
  }

  PlacedWeight place_weight(const ProgramNode& node, size_t input, const PackContext& pack) {
    const ValueId value = node.inputs[input];
    PackedWeight packed;
    if (!node.row->pack || !has_inferred_shapes(node) || !node.row->pack(pack, input, packed))
      return place_unpacked_weight(value, get_unpacked_dtype(value), node.name);
    const PlacedWeight use = reserve_bytes(packed.desc.bytes(), true);
    const PlannedOperand source = get_source_operand(value, get_pack_input_dtype(value));
    std::vector<Step> steps;
    packed.steps(steps, {MemoryKind::input, 0, 0}, {MemoryKind::persistent, 0, 0});
    add_steps(std::move(steps), source, make_target_operand(use), node.name);
    return use;
  }

  // Returns whether shape inference has accepted the node. With unknown sizes it may still fail at binding, and packing requires weights of
  // the right shape.
  bool has_inferred_shapes(const ProgramNode& node) const {
    return std::ranges::all_of(node.outputs, [&](ValueId output) { return output == kAbsent || graph_.value(output).shape.has_value(); });
  }

  // All nodes that read the weight in this dtype share one copy.
  PlacedWeight place_unpacked_weight(ValueId value, DType dtype, const std::string& label) {
    const auto [found, added] = copies_.try_emplace({value, dtype});
    if (!added) return found->second;
    const uint64_t bytes = TensorDesc(dtype, get_desc(value).shape).bytes();
    const PlacedWeight use = found->second = reserve_bytes(bytes, false);
    if (graph_.value(value).constant && bytes > kStagingChunkBytes)
      copy_weight_in_chunks(value, dtype, use, label);
    else
      append_word_copies(context_, get_source_operand(value, dtype), make_target_operand(use), bytes, label, plan_->steps);
    return use;
  }

  // Creates one source per chunk, so that the staging buffer need not hold the whole weight.
  void copy_weight_in_chunks(ValueId value, DType dtype, const PlacedWeight& use, const std::string& label) {
    const int64_t elements = get_desc(value).elements(), chunk_elements = static_cast<int64_t>(kStagingChunkBytes * 8) / bits(dtype);
    for (int64_t first = 0; first < elements; first += chunk_elements) {
      const PlannedOperand source = add_constant_source(value, dtype, first, std::min(chunk_elements, elements - first));
      PlannedOperand target = make_target_operand(use);
      target.byte_offset += static_cast<uint64_t>(first) * static_cast<uint64_t>(bits(dtype)) / 8;
      append_word_copies(context_, source, target, weights_.sources.back().bytes(), label, plan_->steps);
    }
  }

  PlacedWeight reserve_bytes(uint64_t bytes, bool packed) {
    const PlacedWeight use{bytes_, round_up(bytes, kTensorSizeAlignment), packed};
    bytes_ += round_up(bytes, kArenaAlignment);
    return use;
  }

  static PlannedOperand make_target_operand(const PlacedWeight& use) { return {MemoryKind::persistent, 0, use.offset, use.bytes}; }

  static PlannedOperand make_operand(MemoryKind memory, uint32_t index, uint64_t offset, const TensorDesc& desc) {
    return {memory, index, offset, round_up(desc.bytes(), kTensorSizeAlignment), static_cast<uint32_t>(bits(desc.dtype))};
  }

  // Returns the operand from which initialisation steps read the weight in this dtype: a graph input, a temporary with the converted
  // weight, or a source.
  PlannedOperand get_source_operand(ValueId value, DType dtype) {
    const auto [found, added] = sources_.try_emplace({value, dtype});
    if (added)
      found->second =
          graph_.value(value).constant ? add_constant_source(value, dtype, 0, get_desc(value).elements()) : add_input_source(value, dtype);
    return found->second;
  }

  PlannedOperand add_constant_source(ValueId value, DType dtype, int64_t first, int64_t count) {
    const auto slot = static_cast<uint32_t>(graph_.inputs.size() + weights_.sources.size());
    const HostTensor& constant = *graph_.value(value).constant;
    const bool is_complete = count == constant.desc.elements();
    std::string name = graph_.value(value).name;
    if (!is_complete) name += "[" + std::to_string(first) + ":" + std::to_string(first + count) + "]";
    if (dtype != constant.desc.dtype) name += " as " + std::string(pumice::name(dtype));
    TensorDesc desc(dtype, is_complete ? constant.desc.shape : Shape{count}, {}, true);
    const PlannedOperand source = make_operand(MemoryKind::input, slot, 0, desc);
    weights_.sources.push_back({constant, {std::move(name), std::move(desc)}, first});
    return source;
  }

  PlannedOperand add_input_source(ValueId value, DType dtype) {
    const TensorDesc source_desc = get_desc(value), target_desc(dtype, source_desc.shape);
    const auto slot = static_cast<uint32_t>(std::ranges::find(graph_.inputs, value) - graph_.inputs.begin());
    const PlannedOperand source = make_operand(MemoryKind::input, slot, 0, source_desc);
    if (source_desc.dtype == dtype) return source;
    const PlannedOperand target = make_operand(MemoryKind::temporary, 0, plan_->temporary_bytes, target_desc);
    plan_->temporary_bytes += round_up(target.bytes, kArenaAlignment);
    LowerContext cast;
    cast.context = context_;
    cast.library = library_.get();
    cast.node = graph_.value(value).name;
    cast.float_dtype = graph_.float_dtype;
    cast.row = find_operator("Cast");
    cast.inputs = {TensorDesc(source_desc.dtype, {source_desc.elements()})},
    cast.outputs = {TensorDesc(target_desc.dtype, {target_desc.elements()})};
    lower_operator_row(cast);
    add_steps(std::move(cast.steps), source, target, graph_.value(value).name);
    return target;
  }

  // Appends initialisation steps that read `source` and write `target`.
  void add_steps(std::vector<Step> steps, const PlannedOperand& source, const PlannedOperand& target, const std::string& label) {
    for (Step& step : steps) {
      PlannedStep& planned = plan_->steps.emplace_back();
      planned.kernel = std::move(step.kernel);
      planned.push = std::move(step.push);
      planned.groups = step.groups;
      planned.label = label;
      for (const Operand& operand : step.operands) {
        PlannedOperand& planned_operand = planned.operands.emplace_back(operand.memory == MemoryKind::input ? source : target);
        planned_operand.byte_offset += operand.byte_offset;
        planned_operand.bytes -= operand.byte_offset;
        planned_operand.accessed_bytes = operand.bytes;
      }
    }
  }

  const ProgramGraph& graph_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<KernelLibrary> library_;
  std::shared_ptr<InitializationPlan> plan_ = std::make_shared<InitializationPlan>();
  Weights weights_;
  std::map<std::pair<ValueId, DType>, PlacedWeight> copies_;
  std::map<std::pair<ValueId, DType>, PlannedOperand> sources_;
  uint64_t bytes_ = 0;
};

}  // namespace

void WeightSource::write_to(std::byte* target, uint64_t begin, uint64_t count) const {
  const DType dtype = slot.desc->dtype;
  const auto element = static_cast<int64_t>(begin * 8) / bits(dtype);
  constant.convert_to(dtype, first + element, {target + begin, count});
}

Weights place_weights(const std::shared_ptr<Context>& context, const ProgramGraph& graph) {
  return WeightPlacer(context, graph).run();
}

}  // namespace pumice
