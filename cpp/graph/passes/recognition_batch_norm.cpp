// Folds BatchNormalization into the weights of the convolution before it.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "graph/passes/recognition.h"
#include "graph/passes/use_def_chains.h"

namespace pumice {
namespace {

// y = factor * x + shift, per channel.
struct Affine {
  std::vector<double> factor, shift;
};

class BatchNormSearch {
 public:
  explicit BatchNormSearch(ProgramGraph& graph) : graph_(graph), use_def_(graph) {}

  // Returns the convolution with known weights that has the node as its only reader, or null.
  const ProgramNode* convolution_before(const ProgramNode& norm) const {
    if (norm.attributes.integer("training_mode", 0) != 0) return nullptr;
    for (size_t k = 1; k < 5; ++k)
      if (!graph_.value(norm.inputs[k]).constant) return nullptr;
    const ProgramNode* conv = use_def_.producer(norm.inputs[0]);
    if (!conv || !use_def_.only_reader(norm.inputs[0])) return nullptr;
    const bool is_transposed = conv->row->name == "ConvTranspose";
    if (conv->row->name != "Conv" && !(is_transposed && conv->attributes.integer("group", 1) == 1)) return nullptr;
    const auto& weights = graph_.value(conv->inputs[1]).constant;
    const bool has_bias = conv->inputs.size() > 2 && conv->inputs[2] != kAbsent;
    if (!weights || (has_bias && !graph_.value(conv->inputs[2]).constant)) return nullptr;
    const auto channels = static_cast<size_t>(weights->desc.shape[is_transposed ? 1 : 0]);
    return affine(norm).factor.size() == channels ? conv : nullptr;
  }

  ProgramNode fold(const ProgramNode& conv, const ProgramNode& norm) const {
    ProgramNode node = conv;
    const Affine channel_affine = affine(norm);
    node.inputs[1] = scaled(conv, norm, channel_affine.factor);
    node.inputs.resize(3, kAbsent);
    node.inputs[2] = shifted(node.inputs[2], norm, channel_affine);
    node.outputs[0] = norm.outputs[0];
    return node;
  }

 private:
  Affine affine(const ProgramNode& norm) const {
    const auto numbers = [&](size_t input) { return graph_.value(norm.inputs[input]).constant->as_double(); };
    const std::vector<double> scale = numbers(1), bias = numbers(2), mean = numbers(3), variance = numbers(4);
    const double epsilon = norm.attributes.real("epsilon", 1e-5);
    Affine channel_affine;
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

  ValueId scaled(const ProgramNode& conv, const ProgramNode& norm, const std::vector<double>& factor) const {
    const HostTensor weights = graph_.value(conv.inputs[1]).constant->converted(DType::float32);
    const Shape& shape = weights.desc.shape;
    const size_t axis = conv.row->name == "ConvTranspose" ? 1 : 0;
    const auto inner = static_cast<size_t>(element_count(shape, axis + 1, shape.size()));
    std::vector<float> numbers(static_cast<size_t>(weights.desc.elements()));
    std::memcpy(numbers.data(), weights.data, numbers.size() * sizeof(float));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(numbers[i] * factor[i / inner % factor.size()]);
    return add_constant(graph_.value(conv.inputs[1]).name + " with " + norm.name, shape, numbers);
  }

  ValueId shifted(ValueId bias, const ProgramNode& norm, const Affine& channel_affine) const {
    std::vector<double> own(channel_affine.factor.size(), 0.0);
    if (bias != kAbsent) own = graph_.value(bias).constant->as_double();
    std::vector<float> numbers;
    for (size_t c = 0; c < own.size(); ++c)
      numbers.push_back(static_cast<float>(own[c] * channel_affine.factor[c] + channel_affine.shift[c]));
    return add_constant("bias with " + norm.name, {static_cast<int64_t>(numbers.size())}, numbers);
  }

  ProgramGraph& graph_;
  UseDefChains use_def_;
};

}  // namespace

void fold_batch_norm(ProgramGraph& graph) {
  std::vector<std::pair<size_t, size_t>> pairs;  // a convolution and its normalisation
  ReplacedNodes replaced(graph);
  const BatchNormSearch search(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].row->name != "BatchNormalization") continue;
    if (const ProgramNode* conv = search.convolution_before(graph.nodes[i]))
      pairs.emplace_back(static_cast<size_t>(conv - graph.nodes.data()), i);
  }
  std::vector<bool> removed(graph.nodes.size(), false);
  for (const auto& [conv, norm] : pairs) {
    replaced.add_match({graph.nodes[norm].report}, graph.nodes[conv], Fusion::batch_normalization);
    graph.nodes[conv] = search.fold(graph.nodes[conv], graph.nodes[norm]);
    removed[norm] = true;
  }
  graph.erase_nodes(removed);
  replaced.remove();
}

}  // namespace pumice
