// Producers and readers of a graph's values.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/passes/program_graph.h"

namespace pumice {

inline bool is_among(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

class UseDefChains {
 public:
  explicit UseDefChains(const ProgramGraph& graph);

  // Returns the node whose first output is the value; null if there is none or it is not `op`.
  const ProgramNode* producer(ValueId id, std::string_view op = {}) const;
  // Returns the only reader of the value; null if there are more uses or it is a program output.
  const ProgramNode* only_reader(ValueId id) const;
  const std::vector<const ProgramNode*>& readers(ValueId id) const { return readers_[static_cast<size_t>(id)]; }
  bool is_output(ValueId id) const { return is_output_[static_cast<size_t>(id)]; }
  // Returns the value of a float constant with one element; nullopt for other values.
  std::optional<double> number(ValueId id) const;
  // Whether the value is a scalar that depends only on constants and shapes, and so is known at binding.
  bool is_known_scalar(ValueId id) const;
  // Returns the sizes in an int64 vector, each as a number or as an axis of a value; nullopt if undetermined.
  struct Size {
    int64_t number = -1;
    ValueId value = kAbsent;
    size_t axis = 0;

    bool operator==(const Size&) const = default;
  };
  std::optional<std::vector<Size>> sizes_in(ValueId vector) const;
  // Returns the value's own sizes; its rank must be known.
  std::vector<Size> sizes_of(ValueId id) const;

 private:
  bool follows_from_shapes(ValueId id, int depth) const;
  std::optional<std::vector<Size>> gathered_sizes(const ProgramNode& gather) const;
  std::optional<std::vector<Size>> sliced_sizes(const ProgramNode& slice) const;

  const ProgramGraph& graph_;
  std::vector<const ProgramNode*> producers_;
  std::vector<std::vector<const ProgramNode*>> readers_;
  std::vector<bool> is_output_;
};

}  // namespace pumice
