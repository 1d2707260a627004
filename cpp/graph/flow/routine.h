// A graph with control flow as the list of steps that run it: regions of plain nodes, and IF and WHILE nodes between them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/region/region.h"

namespace pumice {

// A WHILE that counts: as long as an int32 that the body adds to is less than another one. Positions are those of the loop's values.
struct LoopCounter {
  size_t counter = 0;
  std::optional<size_t> limit_value;  // invariant; else `limit`
  int64_t limit = 0, step = 1;        // step > 0

  // The number of times that the body runs; none where the counter would pass its dtype's largest value.
  std::optional<uint64_t> trips(int64_t start, int64_t end) const;
};

// A step of a routine. Value ids are those of the routine's graph.
struct RoutineStep {
  enum class Kind : uint8_t { region, if_, while_ };

  Kind kind = Kind::region;
  std::shared_ptr<Region> region;  // none of an IF or WHILE
  std::string node;                // the name of an IF or WHILE, or of a region after a cut, with the graph that it is in
  std::string own_name;            // that of an IF or WHILE in its graph
  std::string cut;                 // which elements the host reads before a region, and for which nodes; "": none
  size_t first = 0, second = 0;    // routines: then and else, or condition and body
  size_t carried = 0, state = 0;   // numbers of values of a WHILE
  std::optional<LoopCounter> counter;
  std::optional<Macros> scalar;          // macros of its kernel, where all of it may be single elements
  std::vector<ValueId> inputs, outputs;  // input 0 of an IF is its condition, which may be absent
  std::vector<ValueId> released;         // values that no later step reads
};

// A constant that no region holds as a weight: an operand of an IF or WHILE, or an output.
struct RoutineConstant {
  ValueId value;
  HostTensor host;
  BufferRange range;
};

// One graph, compiled once however many nodes run it.
struct Routine {
  std::string name;
  std::vector<ValueId> inputs, outputs;
  std::vector<ProgramValue> input_values;
  std::vector<RoutineStep> steps;
  std::vector<RoutineConstant> constants;
  std::vector<bool> read_by_host;  // by value: a condition, or elements that shapes depend on
};

// The graph's own routine is the first. Nodes that no output needs are left out.
std::vector<Routine> make_routines(const std::shared_ptr<Context>& context, const Graph& graph, const ProgramOptions& options);

}  // namespace pumice
