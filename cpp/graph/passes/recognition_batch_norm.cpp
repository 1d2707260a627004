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

class NormSearch {
 public:
  explicit NormSearch(ProgramGraph& graph) : graph_(graph), flow_(graph) {}

  // Returns the convolution with known weights that has the node as its only reader, or null.
  const ProgramNode* convolution_before(const ProgramNode& norm) const {
    if (norm.attributes.integer("training_mode", 0) != 0) return nullptr;
    for (size_t k = 1; k < 5; ++k)
      if (!graph_.value(norm.inputs[k]).constant) return nullptr;
    const ProgramNode* conv = flow_.producer(norm.inputs[0]);
    if (!conv || !flow_.only_reader(norm.inputs[0])) return nullptr;
    const bool turned = conv->row->name == "ConvTranspose";
    if (conv->row->name != "Conv" && !(turned && conv->attributes.integer("group", 1) == 1)) return nullptr;
    const auto& weights = graph_.value(conv->inputs[1]).constant;
    const bool has_bias = conv->inputs.size() > 2 && conv->inputs[2] != kAbsent;
    if (!weights || (has_bias && !graph_.value(conv->inputs[2]).constant)) return nullptr;
    const auto channels = static_cast<size_t>(weights->desc.shape[turned ? 1 : 0]);
    return affine(norm).factor.size() == channels ? conv : nullptr;
  }

  ProgramNode joined(const ProgramNode& conv, const ProgramNode& norm) const {
    ProgramNode node = conv;
    const Affine by = affine(norm);
    node.inputs[1] = scaled(conv, norm, by.factor);
    node.inputs.resize(3, kAbsent);
    node.inputs[2] = shifted(node.inputs[2], norm, by);
    node.outputs[0] = norm.outputs[0];
    return node;
  }

 private:
  Affine affine(const ProgramNode& norm) const {
    const auto numbers = [&](size_t input) { return graph_.value(norm.inputs[input]).constant->as_double(); };
    const std::vector<double> scale = numbers(1), bias = numbers(2), mean = numbers(3), variance = numbers(4);
    const double epsilon = norm.attributes.real("epsilon", 1e-5);
    Affine by;
    if (std::min({bias.size(), mean.size(), variance.size()}) < scale.size()) return by;
    for (size_t c = 0; c < scale.size(); ++c) {
      by.factor.push_back(scale[c] / std::sqrt(variance[c] + epsilon));
      by.shift.push_back(bias[c] - mean[c] * by.factor[c]);
    }
    return by;
  }

  ValueId add_constant(std::string name, const Shape& shape, const std::vector<float>& numbers) const {
    GraphValue made{std::move(name), DType::float32, shape};
    made.constant = HostTensor::copy_of(TensorDesc(DType::float32, shape), numbers.data());
    return graph_.add_value(std::move(made));
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

  ValueId shifted(ValueId bias, const ProgramNode& norm, const Affine& by) const {
    std::vector<double> own(by.factor.size(), 0.0);
    if (bias != kAbsent) own = graph_.value(bias).constant->as_double();
    std::vector<float> numbers;
    for (size_t c = 0; c < own.size(); ++c) numbers.push_back(static_cast<float>(own[c] * by.factor[c] + by.shift[c]));
    return add_constant("bias with " + norm.name, {static_cast<int64_t>(numbers.size())}, numbers);
  }

  ProgramGraph& graph_;
  ValueFlow flow_;
};

}  // namespace

void recognise_norms(ProgramGraph& graph) {
  std::vector<std::pair<size_t, size_t>> pairs;  // a convolution and its normalisation
  Absorbed absorbed(graph);
  const NormSearch search(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].row->name != "BatchNormalization") continue;
    if (const ProgramNode* conv = search.convolution_before(graph.nodes[i]))
      pairs.emplace_back(static_cast<size_t>(conv - graph.nodes.data()), i);
  }
  std::vector<bool> gone(graph.nodes.size(), false);
  for (const auto& [conv, norm] : pairs) {
    absorbed.note({graph.nodes[norm].report}, graph.nodes[conv], Fusion::batch_normalization);
    graph.nodes[conv] = search.joined(graph.nodes[conv], graph.nodes[norm]);
    gone[norm] = true;
  }
  graph.erase_nodes(gone);
  absorbed.remove();
}

}  // namespace pumice
