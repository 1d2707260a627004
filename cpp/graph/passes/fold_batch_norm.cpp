// Folds BatchNormalization into the weights of the convolution before it.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "graph/passes/recognise_patterns.h"
#include "graph/passes/use_def_chains.h"

namespace pumice {
namespace {

// y = factor * x + shift, per channel.
struct ChannelAffine {
  std::vector<double> factor, shift;
};

class BatchNormMatcher {
 public:
  explicit BatchNormMatcher(ProgramGraph& graph) : graph_(graph), use_def_(graph) {}

  // Returns the convolution before `norm` if its weights are constant and it has no other reader, else null.
  const ProgramNode* find_foldable_conv(const ProgramNode& norm) const {
    if (norm.attributes.integer("training_mode", 0) != 0) return nullptr;
    for (size_t k = 1; k < 5; ++k)
      if (!graph_.value(norm.inputs[k]).constant) return nullptr;
    const ProgramNode* conv = use_def_.find_producer(norm.inputs[0]);
    if (!conv || !use_def_.find_only_reader(norm.inputs[0])) return nullptr;
    const bool is_transposed = conv->row->name == "ConvTranspose";
    if (conv->row->name != "Conv" && !(is_transposed && conv->attributes.integer("group", 1) == 1)) return nullptr;
    const auto& weights = graph_.value(conv->inputs[1]).constant;
    const bool has_bias = conv->inputs.size() > 2 && conv->inputs[2] != kAbsent;
    if (!weights || (has_bias && !graph_.value(conv->inputs[2]).constant)) return nullptr;
    const auto channels = static_cast<size_t>(weights->desc.shape[is_transposed ? 1 : 0]);
    return compute_affine(norm).factor.size() == channels ? conv : nullptr;
  }

  ProgramNode fold_into_conv(const ProgramNode& conv, const ProgramNode& norm) const {
    ProgramNode node = conv;
    const ChannelAffine channel_affine = compute_affine(norm);
    node.inputs[1] = add_bn_scaled_weights_constant(conv, norm, channel_affine.factor);
    node.inputs.resize(3, kAbsent);
    node.inputs[2] = add_bn_folded_bias_constant(node.inputs[2], norm, channel_affine);
    node.outputs[0] = norm.outputs[0];
    return node;
  }

 private:
  ChannelAffine compute_affine(const ProgramNode& norm) const {
    const auto numbers = [&](size_t input) { return graph_.value(norm.inputs[input]).constant->as_double(); };
    const std::vector<double> scale = numbers(1), bias = numbers(2), mean = numbers(3), variance = numbers(4);
    const double epsilon = norm.attributes.real("epsilon", 1e-5);
    ChannelAffine channel_affine;
    if (std::min({bias.size(), mean.size(), variance.size()}) < scale.size()) return channel_affine;
    for (size_t c = 0; c < scale.size(); ++c) {
      channel_affine.factor.push_back(scale[c] / std::sqrt(variance[c] + epsilon));
      channel_affine.shift.push_back(bias[c] - mean[c] * channel_affine.factor[c]);
    }
    return channel_affine;
  }

  ValueId add_constant(std::string name, const Shape& shape, const std::vector<float>& numbers) const {
    GraphValue new_value{std::move(name), DType::float32, shape};
    new_value.constant = HostTensor::copy_of(TensorDesc(DType::float32, shape), numbers.data());
    return graph_.add_value(std::move(new_value));
  }

  ValueId add_bn_scaled_weights_constant(const ProgramNode& conv, const ProgramNode& norm, const std::vector<double>& factor) const {
    const HostTensor weights = graph_.value(conv.inputs[1]).constant->converted(DType::float32);
    const Shape& shape = weights.desc.shape;
    const size_t axis = conv.row->name == "ConvTranspose" ? 1 : 0;
    const auto inner = static_cast<size_t>(element_count(shape, axis + 1, shape.size()));
    std::vector<float> numbers(static_cast<size_t>(weights.desc.elements()));
    std::memcpy(numbers.data(), weights.data, numbers.size() * sizeof(float));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(numbers[i] * factor[i / inner % factor.size()]);
    return add_constant(graph_.value(conv.inputs[1]).name + " with " + norm.name, shape, numbers);
  }

  ValueId add_bn_folded_bias_constant(ValueId bias, const ProgramNode& norm, const ChannelAffine& channel_affine) const {
    std::vector<double> bias_values(channel_affine.factor.size(), 0.0);
    if (bias != kAbsent) bias_values = graph_.value(bias).constant->as_double();
    std::vector<float> numbers;
    for (size_t c = 0; c < bias_values.size(); ++c)
      numbers.push_back(static_cast<float>(bias_values[c] * channel_affine.factor[c] + channel_affine.shift[c]));
    return add_constant("bias with " + norm.name, {static_cast<int64_t>(numbers.size())}, numbers);
  }

  ProgramGraph& graph_;
  UseDefChains use_def_;
};

}  // namespace

void fold_batch_norm(ProgramGraph& graph) {
  std::vector<std::pair<size_t, size_t>> pairs;  // node indices of a convolution and its BatchNormalization
  ReplacedNodes replaced(graph);
  const BatchNormMatcher matcher(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].row->name != "BatchNormalization") continue;
    if (const ProgramNode* conv = matcher.find_foldable_conv(graph.nodes[i]))
      pairs.emplace_back(static_cast<size_t>(conv - graph.nodes.data()), i);
  }
  std::vector<bool> removed(graph.nodes.size(), false);
  for (const auto& [conv, norm] : pairs) {
    replaced.report_fused_rows({graph.nodes[norm].report}, graph.nodes[conv], Fusion::batch_normalization);
    graph.nodes[conv] = matcher.fold_into_conv(graph.nodes[conv], graph.nodes[norm]);
    removed[norm] = true;
  }
  graph.erase_nodes(removed);
  replaced.erase_unread_nodes();
}

}  // namespace pumice
