// A graph with control flow as a list of steps: regions of plain nodes, and IF and WHILE nodes between them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/region/region.h"

namespace pumice {

// A counting WHILE: runs while an int32 that the body increments is less than a limit. Indices refer to the loop's values.
struct LoopCounter {
  size_t counter = 0;
  std::optional<size_t> limit_value;  // index of an invariant; none: `limit` applies
  int64_t limit = 0, step = 1;        // step > 0

  // Returns how often the body runs; nullopt if the counter would overflow.
  std::optional<uint64_t> trips(int64_t start, int64_t end) const;
};

// A step of a routine. Value ids refer to the routine's graph.
struct RoutineStep {
  enum class Kind : uint8_t { region, if_, while_ };

  Kind kind = Kind::region;
  std::shared_ptr<Region> region;  // null for IF and WHILE
  std::string node;                // qualified name of an IF or WHILE, or of a region after a host sync point
  std::string local_name;          // unqualified name of an IF or WHILE
  std::string sync_point;          // elements that the host reads before a region, and the nodes that need them; "": none
  size_t first = 0, second = 0;    // routines: then and else, or condition and body
  size_t carried = 0, state = 0;   // how many WHILE values of each kind there are
  std::optional<LoopCounter> counter;
  std::optional<Macros> scalar;          // kernel macros, if one kernel can run the whole loop on scalars
  std::vector<ValueId> inputs, outputs;  // input 0 of an IF is its condition, which may be absent
  std::vector<ValueId> released;         // values that no later step reads
};

// A constant outside the regions' weights: an operand of an IF or WHILE, or an output.
struct RoutineConstant {
  ValueId value;
  HostTensor host;
  BufferRange range;
};

// A compiled graph; compiled once, even if several nodes run it.
struct Routine {
  std::string name;
  std::vector<ValueId> inputs, outputs;
  std::vector<ProgramValue> input_values;
  std::vector<RoutineStep> steps;
  std::vector<RoutineConstant> constants;
  std::vector<bool> read_by_host;  // for each value: whether it is a condition, or has elements that shapes depend on
};

// Creates the routines for a graph and the graphs it contains; the first is the graph itself. Omits nodes that no output depends on.
std::vector<Routine> make_routines(const std::shared_ptr<Context>& context, const Graph& graph, const ProgramOptions& options);

}  // namespace pumice
