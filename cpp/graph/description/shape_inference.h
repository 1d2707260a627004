// Shape inference: shapes and dtypes of all values for given input shapes, and their elements if known on the host.
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

// Maximum number of elements computed on the host: in general, and if shapes depend on them.
inline constexpr int64_t kMaxHostElements = 4096, kMaxRequiredHostElements = 1 << 20;

// Trials: shapes are inferred for several choices of the unknown sizes; a size that is equal in all trials is known. No single choice suits
// every node, so a node counts as inferred if two of the first kLargeTrials trials succeed. The other trials use sizes of 0, and sizes too
// small to reach size limits.
inline constexpr size_t kTrials = 8, kLargeTrials = 6;
Shape make_trial_shape(const Shape& shape, size_t trial);

// Trial sizes of named input dimensions. A name has the same size on all axes, so that rows [N, 1] match images [4, N, 1].
class NamedTrialSizes {
 public:
  // Returns the shape of an input in each trial. `names`: names of its axes, empty if unnamed.
  std::array<Shape, kTrials> assign_trial_shapes(const Shape& shape, const std::vector<std::string>& names);

 private:
  std::unordered_map<std::string, std::array<int64_t, kTrials>> sizes_;
};
// Returns the shape with the sizes that are equal in all trials; nullopt if fewer than two large trials succeeded or their ranks differ.
std::optional<Shape> find_common_shape(const std::array<const TensorDesc*, kTrials>& trials);

// Broadcasts shapes with unknown sizes: a size is known if any operand has a known size other than 1 there. Returns nullopt if known sizes
// conflict.
std::optional<Shape> broadcast_unknown_shapes(const std::vector<const Shape*>& shapes);

// A sparse map from values to facts. Dense arrays for eight trials of a large graph would take megabytes that the OS zeroes at each load.
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
  // Whether sizes are trial sizes, so that errors may not be real.
  void set_uses_trial_sizes(bool uses_trial_sizes) { uses_trial_sizes_ = uses_trial_sizes; }
  void set(ValueId value, TensorDesc desc);
  void set_host_elements(ValueId value, HostTensor host);
  // Sets the elements, and the description unless set() has already set it. `host` must outlive this object.
  void set_constant(ValueId value, const HostTensor& host);
  void reserve(size_t values);  // `values`: number of values in the graph
  void forget(ValueId value);
  // Resets the strides of all values to row-major.
  void reset_strides();
  TensorDesc* mutable_desc(ValueId value);               // null if unknown
  const TensorDesc* desc(ValueId value) const;           // null if unknown or absent
  const HostTensor* host_elements(ValueId value) const;  // null if unknown
  // Runs the NodeCheck of the node, if any; the input shapes must be known. Throws GraphError if it fails.
  void check_requirement(const GraphNode& node) const;
  // Runs the shape rule of the node; returns false and leaves the outputs unknown if an input is unknown. Throws GraphError if the inputs
  // violate the rule.
  bool infer_node(const GraphNode& node);
  // Broadcasts the first output of a node with the residual of its epilogue, after infer_node(). Throws GraphError naming the residual if
  // they do not broadcast.
  void broadcast_residual(const GraphNode& node, ValueId residual, const std::string& residual_name);
  // Sets an output shape from known facts, for a node whose shape rule could not run. If input 1 is the output shape
  // (AssumedHostValues::shape), uses its known sizes, and trial sizes for unknown ones. Returns false if nothing is known.
  bool assume_output_shape(const GraphNode& node, DType dtype, size_t trial);
  // Sets the output shape of a reshape to sizes that are assumed and do not match the number of elements: the first size takes the
  // difference. `rank`: of the output, if known. Returns false if this is no reshape.
  bool fit_assumed_shape(const GraphNode& node, std::optional<size_t> rank);
  // Computes the outputs on the host, after infer_node(). Returns false if the elements of an input are unknown, an output has more than
  // `max_elements` elements, or the operator cannot be evaluated on the host.
  bool evaluate_node(const GraphNode& node, int64_t max_elements = kMaxHostElements);

  // Facts about a value: its description and, unless it is a constant, its elements.
  struct InferredValue {
    std::optional<TensorDesc> desc;
    std::optional<HostTensor> host;
  };
  InferredValue take_inferred_value(ValueId value);  // removes the facts and returns them
  bool is_unchanged(ValueId value, const InferredValue& known) const;

 private:
  const HostTensor* constant(ValueId value) const;
  bool can_evaluate_on_host(const GraphNode& node, int64_t max_elements) const;

  bool uses_trial_sizes_ = false;
  ValueMap<TensorDesc> descs_;
  ValueMap<HostTensor> hosts_;
  std::vector<const HostTensor*> constants_;
};

}  // namespace pumice
