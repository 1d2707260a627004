#include "graph/weights.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "core/error.h"
#include "core/half.h"
#include "graph/arena.h"

namespace pumice {
namespace {

// Collects sources and steps while it walks the nodes.
class WeightPlacer {
 public:
  WeightPlacer(const std::shared_ptr<Context>& context, const ProgramGraph& graph)
      : graph_(graph), context_(context), library_(context->attachment<KernelLibrary>()) {}

  Weights place() {
    weights_.of_nodes.resize(graph_.nodes.size());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) place_node(graph_.nodes[i], weights_.of_nodes[i]);
    for (const auto& [name, value] : graph_.outputs) {
      const auto& constant = graph_.value(value).constant;
      weights_.of_outputs.push_back(constant ? std::optional(as_it_is(value, constant->desc.dtype, name)) : std::nullopt);
    }
    plan_->persistent_bytes = bytes_;
    weights_.initialization = plan_;
    return std::move(weights_);
  }

 private:
  void place_node(const ProgramNode& node, std::vector<std::optional<WeightUse>>& uses) {
    if (node.on_host || !node.row->lower) return;
    PackContext pack = pack_context(node);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool host_only = i < 32 && (node.row->host_inputs >> i & 1);
      if (node.inputs[i] == kAbsent || host_only || !graph_.value(node.inputs[i]).constant) continue;
      uses.resize(node.inputs.size());
      uses[i] = place_input(node, i, pack);
    }
  }

  PackContext pack_context(const ProgramNode& node) const {
    PackContext pack;
    pack.context = context_;
    pack.library = library_.get();
    pack.attributes = &node.attributes;
    pack.node = node.name;
    pack.float_dtype = graph_.float_dtype;
    for (const ValueId input : node.inputs) {
      const bool constant = input != kAbsent && graph_.value(input).constant;
      pack.inputs.push_back(constant ? std::optional(graph_.value(input).constant->desc) : std::nullopt);
      if (constant) pack.inputs.back()->dtype = packed_from(input);
    }
    return pack;
  }

  // What packing kernels read: float32, or floats as they are inside.
  DType packed_from(ValueId value) const {
    const DType dtype = graph_.value(value).constant->desc.dtype;
    return is_working_float(dtype) && dtype != DType::float32 ? graph_.float_dtype : dtype;
  }

  WeightUse place_input(const ProgramNode& node, size_t input, const PackContext& pack) {
    const ValueId value = node.inputs[input];
    PackedWeight packed;
    if (!node.row->pack || !node.row->pack(pack, input, packed)) {
      const DType dtype = graph_.value(value).constant->desc.dtype;
      return as_it_is(value, is_working_float(dtype) ? graph_.float_dtype : dtype, node.name);
    }
    const WeightUse use = reserve(packed.desc.bytes(), true);
    const uint32_t source = source_of(value, packed_from(value));
    std::vector<Step> steps;
    packed.steps(steps, {Place::input, source, 0}, {Place::persistent, 0, 0});
    for (auto& step : steps) plan_->steps.push_back(planned(std::move(step), source, use, node.name));
    return use;
  }

  // One copy serves all nodes that read the constant in this dtype.
  WeightUse as_it_is(ValueId value, DType dtype, const std::string& label) {
    const auto [found, added] = copies_.try_emplace({value, dtype});
    if (!added) return found->second;
    const uint32_t source = source_of(value, dtype);
    const uint64_t bytes = weights_.sources[source - graph_.inputs.size()].desc.bytes();
    found->second = reserve(bytes, false);
    append_word_copies(context_, {Place::input, source, 0}, {Place::persistent, 0, found->second.offset}, bytes, label, plan_->steps);
    return found->second;
  }

  WeightUse reserve(uint64_t bytes, bool packed) {
    const WeightUse use{bytes_, round_up(bytes, kTensorGrain), packed};
    bytes_ += round_up(bytes, kArenaAlignment);
    return use;
  }

  // The owned input slot that holds the constant in this dtype.
  uint32_t source_of(ValueId value, DType dtype) {
    const auto [found, added] = sources_.try_emplace({value, dtype}, static_cast<uint32_t>(graph_.inputs.size() + weights_.sources.size()));
    if (!added) return found->second;
    const HostTensor& constant = *graph_.value(value).constant;
    weights_.sources.push_back(constant.converted(dtype));
    TensorDesc desc(dtype, constant.desc.shape, {}, true);
    const std::string& name = graph_.value(value).name;
    weights_.slots.push_back({dtype == constant.desc.dtype ? name : name + " as " + std::string(pumice::name(dtype)), std::move(desc)});
    return found->second;
  }

  PlannedStep planned(Step step, uint32_t source, const WeightUse& target, const std::string& label) const {
    PlannedStep planned{std::move(step.kernel), {}, std::move(step.push), step.groups, label};
    for (const Operand& operand : step.operands) {
      const bool reads = operand.place == Place::input;
      const TensorDesc& desc = *weights_.slots[source - graph_.inputs.size()].desc;
      if (reads)
        planned.operands.push_back({Place::input, source, operand.byte_offset, round_up(desc.bytes(), kTensorGrain) - operand.byte_offset,
                                    static_cast<uint32_t>(bits(desc.dtype))});
      else
        planned.operands.push_back({Place::persistent, 0, target.offset + operand.byte_offset, target.bytes - operand.byte_offset, 32});
    }
    return planned;
  }

  const ProgramGraph& graph_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<KernelLibrary> library_;
  std::shared_ptr<InitializationPlan> plan_ = std::make_shared<InitializationPlan>();
  Weights weights_;
  std::map<std::pair<ValueId, DType>, WeightUse> copies_;
  std::map<std::pair<ValueId, DType>, uint32_t> sources_;
  uint64_t bytes_ = 0;
};

}  // namespace

Weights place_weights(const std::shared_ptr<Context>& context, const ProgramGraph& graph) {
  return WeightPlacer(context, graph).place();
}

}  // namespace pumice
