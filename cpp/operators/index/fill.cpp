// Tensors out of a shape, and those that keep or turn parts of another.
#include <algorithm>

#include "core/error.h"
#include "operators/index/lowerings.h"
#include "operators/means/strided.h"
#include "operators/row/host_elements.h"
#include "operators/row/operator_table.h"

namespace pumice {
namespace {

std::vector<int64_t> words_of(const HostTensor& element) {
  const auto words = element_bits_of(element);
  return {words[0], words[1]};
}

// The diagonal, cut to a range that no matrix reaches beyond: all diagonals further off are alike.
int64_t diagonal(int64_t k) {
  constexpr int64_t kFar = int64_t{1} << 30;
  return std::clamp(k, -kFar, kFar);
}

}  // namespace

void lower_constant_of_shape(LowerContext& node) {
  const DType dtype = node.output(0).dtype;
  const HostTensor* value = node.attributes->tensor("value");
  add_dense(node, 0, "fill.comp", {{"DIAGONAL", "0"}}, [&](StepBuilder& step) {
    step.set("value", words_of(value ? value->converted(dtype) : HostWriter(TensorDesc(dtype, {})).take()));
  });
}

void lower_eye_like(LowerContext& node) {
  const TensorDesc& y = node.output(0);
  HostWriter one(TensorDesc(y.dtype, {}));
  one.store(0, int64_t{1});
  add_dense(node, 0, "fill.comp", {{"DIAGONAL", "1"}}, [&](StepBuilder& step) {
    step.set("value", words_of(one.take())).set("columns", y.shape[1]).set("k", diagonal(node.attributes->integer("k")));
  });
}

void lower_one_hot(LowerContext& node) {
  const TensorDesc &indices = node.input(0), &y = node.output(0);
  const int64_t given = node.attributes->integer("axis", -1);
  const auto axis = static_cast<size_t>(given < 0 ? given + y.rank() : given);
  add_dense(node, 0, "one_hot.comp", {}, [&](StepBuilder& step) {
    step.bind("indices", dense_input(node, 0)).bind("values", dense_input(node, 2));
    step.set("index_words", bits(indices.dtype) / 32).set("depth", y.shape[axis]).set("inner", packed_strides(y.shape)[axis]);
  });
}

void lower_trilu(LowerContext& node) {
  const Shape& shape = node.output(0).shape;
  int64_t k = 0;
  if (node.has_input(1)) {
    const HostTensor* host = node.host(1);
    if (!host) throw UnsupportedError("node '" + std::string(node.node) + "': Trilu with a k that is not known on the host");
    k = host->as_int64()[0];
  }
  add_dense(node, 0, "triangle.comp", {}, [&](StepBuilder& step) {
    step.bind("x", dense_input(node, 0)).set("k", diagonal(k)).set("upper", node.attributes->integer("upper", 1) != 0 ? 1 : 0);
    step.set("rows", shape[shape.size() - 2]).set("columns", shape.back());
  });
}

void lower_reverse_sequence(LowerContext& node) {
  const Shape& shape = node.output(0).shape;
  const bool time_first = node.attributes->integer("time_axis", 0) == 0;
  add_dense(node, 0, "reverse_sequence.comp", {}, [&](StepBuilder& step) {
    step.bind("x", dense_input(node, 0)).bind("indices", dense_input(node, 1)).set("index_words", 2);
    step.set("inner", packed_strides(shape)[1]).set("size", shape[1]);
    step.set("time", shape[time_first ? 0 : 1]).set("time_first", time_first ? 1 : 0);
  });
}

}  // namespace pumice
