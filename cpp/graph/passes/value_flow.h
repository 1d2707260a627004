// Who makes and who reads the values of a graph that a pass looks at.
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

class ValueFlow {
 public:
  explicit ValueFlow(const ProgramGraph& graph);

  // The node that makes the value as its first output; null where there is none, or where it is another operator.
  const ProgramNode* producer(ValueId id, std::string_view op = {}) const;
  // The node that alone reads the value, once; null where it is an output of the program.
  const ProgramNode* only_reader(ValueId id) const;
  const std::vector<const ProgramNode*>& readers(ValueId id) const { return readers_[static_cast<size_t>(id)]; }
  bool is_output(ValueId id) const { return is_output_[static_cast<size_t>(id)]; }
  // A constant of one element.
  std::optional<double> number(ValueId id) const;
  // One element by its shape, which follows from constants and shapes alone: known when the program is bound.
  bool is_known_number(ValueId id) const;
  // The sizes that a vector of int64 holds, each as a number or as that of an axis of a value; none where it cannot be told.
  struct Size {
    int64_t number = -1;
    ValueId value = kAbsent;
    size_t axis = 0;

    bool operator==(const Size&) const = default;
  };
  std::optional<std::vector<Size>> sizes_in(ValueId vector) const;
  // The sizes of the value itself, which has a rank.
  std::vector<Size> sizes_of(ValueId id) const;

 private:
  bool follows_from_shapes(ValueId id, int depth) const;
  std::optional<std::vector<Size>> gathered(const ProgramNode& gather) const;
  std::optional<std::vector<Size>> sliced(const ProgramNode& slice) const;

  const ProgramGraph& graph_;
  std::vector<const ProgramNode*> producers_;
  std::vector<std::vector<const ProgramNode*>> readers_;
  std::vector<bool> is_output_;
};

}  // namespace pumice
