// Descriptions of a graph's values for one choice of input shapes, and their elements where they are known on the host.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/description/graph_node.h"

namespace pumice {

// Elements of a value computed on the host: because it can be, and because shapes depend on them.
inline constexpr int64_t kMostHostElements = 4096, kMostDemandedElements = 1 << 20;

// Trials: a graph's shapes are inferred for several choices of the unknown sizes, and a size that comes out alike of all of them does not
// depend on the unknown ones. No trial is one that every node can take, so that a node counts as understood where two of the first
// kLargeTrials have a result. The other trials have such small sizes that limits on a size have no effect, and sizes of 0.
inline constexpr size_t kTrials = 8, kLargeTrials = 6;
Shape trial_shape(const Shape& shape, size_t trial);

// NamedTrials has the sizes that are tried for those of inputs that have names: sizes of one name are one size, whichever axes they are of,
// so that rows [N, 1] fit images [4, N, 1].
class NamedTrials {
 public:
  // An input's sizes in each trial. names: of its axes, empty where there is none.
  std::array<Shape, kTrials> of(const Shape& shape, const std::vector<std::string>& names);

 private:
  std::unordered_map<std::string, std::array<int64_t, kTrials>> sizes_;
};
// The sizes that came out alike of the trials; none where fewer than two of the large ones have a result, or their ranks differ.
std::optional<Shape> common_shape(const std::array<const TensorDesc*, kTrials>& trials);

// The sizes of shapes that are broadcast together, some of which are not known: a size is known where one is told that is not 1. None where
// two that are told do not fit.
std::optional<Shape> broadcast_unknown(const std::vector<const Shape*>& shapes);

// Facts of those values that have one. They lie apart: eight trials of a large graph would be arrays of megabytes, which the system clears
// anew in each load.
template <typename T>
class FactsOfValues {
 public:
  T* find(ValueId value) const {
    const auto at = static_cast<size_t>(value);
    return value == kAbsent || at >= facts_.size() ? nullptr : facts_[at].get();
  }
  void set(ValueId value, T fact) {
    const auto at = static_cast<size_t>(value);
    if (at >= facts_.size()) facts_.resize(std::max(at + 1, facts_.size() * 2));
    facts_[at] = std::make_unique<T>(std::move(fact));
  }
  void forget(ValueId value) {
    if (find(value)) facts_[static_cast<size_t>(value)].reset();
  }
  std::optional<T> take(ValueId value) {
    T* const fact = find(value);
    std::optional<T> taken;
    if (fact) taken = std::move(*fact);
    forget(value);
    return taken;
  }
  void reserve(size_t values) { facts_.resize(values); }
  const std::vector<std::unique_ptr<T>>& all() const { return facts_; }

 private:
  std::vector<std::unique_ptr<T>> facts_;
};

class ShapeInference {
 public:
  // `tried`: the sizes are some that the inputs may have.
  void set_tried(bool tried) { tried_ = tried; }
  void set(ValueId value, TensorDesc desc);
  void set_host(ValueId value, HostTensor host);
  // Elements, and the description where set() gives the value no other one. `host` must outlive this.
  void set_constant(ValueId value, const HostTensor& host);
  void reserve(size_t values);  // the values of the whole graph
  void forget(ValueId value);
  // Gives values with other strides the strides of row-major tensors.
  void pack();
  TensorDesc* mutable_desc(ValueId value);      // to be changed; null where unknown
  const TensorDesc* desc(ValueId value) const;  // null where unknown or absent
  const HostTensor* host(ValueId value) const;  // null where the elements are not known
  // Checks what the node requires of its inputs, whose descriptions are known. Throws GraphError.
  void check(const GraphNode& node) const;
  // Runs the node's shape rule; false, and nothing is known of the outputs, where an input is unknown. Throws GraphError.
  bool run(const GraphNode& node);
  // Broadcasts the node's first output with a value that is combined with it, after run(). Throws GraphError with that value's name.
  void join_residual(const GraphNode& node, ValueId residual, const std::string& residual_name);
  // For a node that could not run: assumes what is known of its output, of that dtype, whatever the node reads. Where input 1 is its shape
  // (HostGuess::shape), known sizes are as given; others have those of the trial. False where nothing is known.
  bool assume(const GraphNode& node, DType dtype, size_t trial);
  // Computes the outputs on the host; false where an input is not known there, an output has more
  // elements, or the row has no such evaluation. After run().
  bool evaluate(const GraphNode& node, int64_t most_elements = kMostHostElements);

  // The facts known of a value: its description and, where they are not a constant's, its elements.
  struct Known {
    std::optional<TensorDesc> desc;
    std::optional<HostTensor> host;
  };
  Known take(ValueId value);  // forgets the value
  bool is_still(ValueId value, const Known& known) const;

 private:
  const HostTensor* constant(ValueId value) const;
  bool is_on_host(const GraphNode& node, int64_t most_elements) const;

  bool tried_ = false;
  FactsOfValues<TensorDesc> descs_;
  FactsOfValues<HostTensor> hosts_;
  std::vector<const HostTensor*> constants_;
};

}  // namespace pumice
