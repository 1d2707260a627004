// Use-def chains: the producer and the readers of each value.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/passes/program_graph.h"

namespace pumice {

inline bool contains_name(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

class UseDefChains {
 public:
  explicit UseDefChains(const ProgramGraph& graph);

  // Returns the node whose first output is `id`; null if there is none, or its operator is not `op`.
  const ProgramNode* find_producer(ValueId id, std::string_view op = {}) const;
  // Returns the only reader of the value; null if it has other uses or is a program output.
  const ProgramNode* find_only_reader(ValueId id) const;
  const std::vector<const ProgramNode*>& readers(ValueId id) const { return readers_[static_cast<size_t>(id)]; }
  bool is_output(ValueId id) const { return is_output_[static_cast<size_t>(id)]; }
  // Returns the element of a float constant with one element; nullopt for other values.
  std::optional<double> get_float_scalar(ValueId id) const;
  // Whether the value is a scalar that depends only on constants and shapes, and so is known at binding.
  bool is_known_scalar(ValueId id) const;
  // Returns the sizes in an int64 vector, each as a number or as an axis of a value; nullopt if they cannot be determined.
  struct SymbolicSize {
    int64_t number = -1;
    ValueId value = kAbsent;
    size_t axis = 0;

    bool operator==(const SymbolicSize&) const = default;
  };
  std::optional<std::vector<SymbolicSize>> trace_sizes(ValueId vector) const;
  // Returns the sizes of a value, whose rank must be known.
  std::vector<SymbolicSize> get_sizes(ValueId id) const;

 private:
  bool depends_only_on_shapes(ValueId id, int depth) const;
  std::optional<std::vector<SymbolicSize>> trace_gathered_sizes(const ProgramNode& gather) const;
  std::optional<std::vector<SymbolicSize>> trace_sliced_sizes(const ProgramNode& slice) const;

  const ProgramGraph& graph_;
  std::vector<const ProgramNode*> producers_;
  std::vector<std::vector<const ProgramNode*>> readers_;
  std::vector<bool> is_output_;
};

}  // namespace pumice
