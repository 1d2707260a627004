// Descriptions of a graph's values for given input shapes, and their elements if known on the host.
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

// Maximum number of elements computed on the host: whenever possible, and if shapes depend on them.
inline constexpr int64_t kMaxHostElements = 4096, kMaxRequiredHostElements = 1 << 20;

// Trials: shapes are inferred for several choices of the unknown sizes; a size equal in all trials does not depend on them. No single
// choice suits every node, so a node counts as inferred if two of the first kLargeTrials trials succeed. The remaining trials use sizes of
// 0 and sizes so small that size limits have no effect.
inline constexpr size_t kTrials = 8, kLargeTrials = 6;
Shape trial_shape(const Shape& shape, size_t trial);

// Trial sizes of named input dimensions: the same name gets the same size on any axis, so that rows [N, 1] match images [4, N, 1].
class NamedTrialSizes {
 public:
  // Returns an input's sizes in each trial. names: names of its axes, empty if unnamed.
  std::array<Shape, kTrials> of(const Shape& shape, const std::vector<std::string>& names);

 private:
  std::unordered_map<std::string, std::array<int64_t, kTrials>> sizes_;
};
// Returns the sizes that are equal in all trials; none if fewer than two large trials succeeded or their ranks differ.
std::optional<Shape> common_shape(const std::array<const TensorDesc*, kTrials>& trials);

// Broadcasts shapes with unknown sizes: a size is known if any operand has a known size other than 1. Returns nullopt if known sizes
// conflict.
std::optional<Shape> broadcast_unknown(const std::vector<const Shape*>& shapes);

// A sparse map from values to facts. Eight dense arrays for a large graph would take megabytes that the OS zeroes at each load.
template <typename T>
class ValueMap {
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
    std::optional<T> result;
    if (fact) result = std::move(*fact);
    forget(value);
    return result;
  }
  void reserve(size_t values) { facts_.resize(values); }
  const std::vector<std::unique_ptr<T>>& all() const { return facts_; }

 private:
  std::vector<std::unique_ptr<T>> facts_;
};

class ShapeInference {
 public:
  // `uses_trial_sizes`: the sizes are trial sizes.
  void set_uses_trial_sizes(bool uses_trial_sizes) { uses_trial_sizes_ = uses_trial_sizes; }
  void set(ValueId value, TensorDesc desc);
  void set_host(ValueId value, HostTensor host);
  // Sets elements, and the description unless set() already did. `host` must outlive this.
  void set_constant(ValueId value, const HostTensor& host);
  void reserve(size_t values);  // number of values in the graph
  void forget(ValueId value);
  // Replaces the strides of all values with row-major ones.
  void pack();
  TensorDesc* mutable_desc(ValueId value);      // null if unknown
  const TensorDesc* desc(ValueId value) const;  // null if unknown or absent
  const HostTensor* host(ValueId value) const;  // null if unknown
  // Checks the node's requirements on its inputs, whose descriptions must be known. Throws GraphError if one is not met.
  void check(const GraphNode& node) const;
  // Runs the node's shape rule; returns false and leaves the outputs unknown if an input is unknown. Throws GraphError if the inputs break
  // the rule.
  bool run(const GraphNode& node);
  // Broadcasts the node's first output with the residual of its epilogue, after run(). Throws GraphError naming the residual if they do not
  // broadcast.
  void broadcast_residual(const GraphNode& node, ValueId residual, const std::string& residual_name);
  // For a node that could not run: assumes an output of this dtype with whatever is known. If input 1 is its shape
  // (AssumedHostValues::shape), known sizes are used and others come from the trial. Returns false if nothing is known.
  bool assume(const GraphNode& node, DType dtype, size_t trial);
  // Computes the outputs on the host, after run(). Returns false if an input's elements are unknown on the host, an output has more
  // elements than `max_elements`, or the operator has no host evaluation.
  bool evaluate(const GraphNode& node, int64_t max_elements = kMaxHostElements);

  // What is known about a value: its description and, unless it is a constant, its elements.
  struct Known {
    std::optional<TensorDesc> desc;
    std::optional<HostTensor> host;
  };
  Known take(ValueId value);  // removes and returns the facts
  bool is_unchanged(ValueId value, const Known& known) const;

 private:
  const HostTensor* constant(ValueId value) const;
  bool is_on_host(const GraphNode& node, int64_t max_elements) const;

  bool uses_trial_sizes_ = false;
  ValueMap<TensorDesc> descs_;
  ValueMap<HostTensor> hosts_;
  std::vector<const HostTensor*> constants_;
};

}  // namespace pumice
