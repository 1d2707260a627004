// A graph with control flow, compiled to a list of steps: regions of plain nodes, and IF and WHILE nodes between them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/region/region.h"

namespace pumice {

// A WHILE that counts: it runs while an int32 value that the body increments is below a limit. Indices refer to the values of the loop.
struct LoopCounter {
  size_t counter = 0;
  std::optional<size_t> limit_value;  // index of the invariant with the limit; nullopt: `limit` applies
  int64_t limit = 0, step = 1;        // step > 0

  // Returns the number of iterations; nullopt if the counter would overflow.
  std::optional<uint64_t> count_trips(int64_t start, int64_t end) const;
};

// A step of a routine. Value ids refer to the graph of the routine.
struct RoutineStep {
  enum class StepKind : uint8_t { region, if_, while_ };

  StepKind kind = StepKind::region;
  std::shared_ptr<Region> region;  // null for IF and WHILE
  std::string node;                // name of the IF or WHILE, or of a region after a host sync point, qualified by its graph
  std::string local_name;          // name of the IF or WHILE, without its graph
  std::string sync_point;          // host reads before a region and the nodes that need them, as text; "": none
  size_t first = 0, second = 0;    // routine indices: then and else, or condition and body
  size_t carried = 0, state = 0;   // numbers of carried and state values of a WHILE
  std::optional<LoopCounter> counter;
  std::optional<Macros> scalar;          // shader macros, if a single kernel can run the whole loop on scalars
  std::vector<ValueId> inputs, outputs;  // input 0 of an IF is its condition, which may be kAbsent
  std::vector<ValueId> released;         // values that no later step reads
};

// A constant that is an input of an IF or WHILE, or an output; regions hold their own constants.
struct RoutineConstant {
  ValueId value;
  HostTensor host;
  BufferRange range;
};

// A compiled graph. It is compiled once, even if several nodes run it.
struct Routine {
  std::string name;
  std::vector<ValueId> inputs, outputs;
  std::vector<ProgramValue> input_values;
  std::vector<RoutineStep> steps;
  std::vector<RoutineConstant> constants;
  std::vector<bool> read_by_host;  // for each value: whether it is a condition, or shapes depend on its elements
};

// Compiles a graph and the graphs that its nodes run; routine 0 is the graph itself. Omits nodes that no output depends on.
std::vector<Routine> make_routines(const std::shared_ptr<Context>& context, const Graph& graph, const ProgramOptions& options);

}  // namespace pumice
