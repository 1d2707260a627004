// A compiled graph: compiled once, bound per input shape, executed many times.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dispatch/command_list.h"
#include "graph/graph.h"
#include "operators/compiled_operator.h"

namespace pumice {

// An input or output of a program as its caller sees it.
struct ProgramValue {
  std::string name;
  DType dtype;
  std::optional<Shape> shape;
  std::vector<std::string> dimension_names;
};

// One line of a program's report: what runs a node, with what, and why.
struct ReportRow {
  std::string node, op, kernel, precision, note;  // note: "fused into conv1", "view", "folded", ""
};

struct ArenaReport {
  uint64_t arena_bytes = 0;       // planned
  uint64_t lower_bound_bytes = 0; // largest sum of simultaneously live tensors, each padded to the arena's grain
  uint64_t persistent_bytes = 0;
  size_t dispatches = 0, barriers = 0, waves = 0;
};

// The recordings of one set of input shapes with their host-visible input and output slots; leased for a whole execution.
class BoundProgram;

class Program : public std::enable_shared_from_this<Program> {
 public:
  const std::vector<ProgramValue>& inputs() const;
  const std::vector<ProgramValue>& outputs() const;
  const std::shared_ptr<Context>& context() const;

  // One execution from host to host. `inputs` in graph order with shapes; returns a lease holding the outputs.
  class Execution {
   public:
    virtual ~Execution() = default;
    // Where to write input i (packed row-major, desc(i).bytes() of it) before start(), and where output j is after wait().
    virtual std::byte* input(size_t i) = 0;
    virtual const TensorDesc& output_desc(size_t j) const = 0;
    virtual const std::byte* output(size_t j) = 0;
    virtual Submission start() = 0;
    virtual void wait(std::optional<double> timeout_seconds, const std::function<void()>& interrupted) = 0;
  };
  // Leases a pooled recording for these shapes (binding them on first use). Throws BindingError for wrong shapes, GraphError.
  std::shared_ptr<Execution> execution(const std::vector<Shape>& input_shapes);
  // The compiled operator for these shapes, for use with binding tables and command lists of the caller's own.
  std::shared_ptr<CompiledOperator> compiled(const std::vector<Shape>& input_shapes);

  std::vector<ReportRow> report() const;
  ArenaReport arena(const std::vector<Shape>& input_shapes);
  // Device nanoseconds per dispatch of one execution on the inputs that were written last; compiled with timestamps for the purpose.
  std::vector<std::pair<std::string, double>> profile(const std::vector<Shape>& input_shapes, const std::vector<const std::byte*>& inputs);
  void close();

  struct State;
  explicit Program(std::unique_ptr<State> state);
  ~Program();

 private:
  std::unique_ptr<State> state_;
};

}  // namespace pumice
