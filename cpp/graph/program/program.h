// A compiled graph: compiled once, bound per input shape, executed many times.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dispatch/command_list.h"
#include "graph/description/graph.h"
#include "graph/passes/program_graph.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

// An input or output of a program as its caller sees it.
struct ProgramValue {
  std::string name;
  DType dtype;
  std::optional<Shape> shape;  // kUnknownSize for unknown sizes; none: unknown rank
  std::vector<std::string> dimension_names;
};

struct ArenaReport {
  uint64_t arena_bytes = 0;        // planned
  uint64_t lower_bound_bytes = 0;  // largest sum of simultaneously live tensors, each padded to the arena's grain
  uint64_t persistent_bytes = 0;
  size_t dispatches = 0, barriers = 0, waves = 0;
};

// One dispatch of a plan, as recorded.
struct StepReport {
  struct Operand {
    std::string name;   // the binding's
    std::string value;  // of the graph; empty for scratch memory
    Place place;
    uint32_t index = 0;           // of the input or output
    uint64_t begin = 0, end = 0;  // bytes of that place
    bool read = false, write = false;
  };
  std::string label, kernel;
  uint32_t wave = 0;
  bool barrier = false;              // before it
  std::array<uint32_t, 3> groups{};  // workgroups on each axis
  bool folded = false;               // which number the kernel's own grid
  std::vector<Operand> operands;
};

// The sizes of one input.
using ShapeView = std::span<const int64_t>;

inline constexpr double kLoopSeconds = 2, kMostLoopSeconds = 15;
// A loop's limit as it holds: one over kMostLoopSeconds is clamped, with a warning in the log. Throws BindingError for what is no time.
std::optional<double> checked_loop_timeout(std::optional<double> seconds);

// What an execution may take. Loops and executions that take longer throw TimeoutError; what they left undone has no defined results.
struct RunLimits {
  std::optional<double> timeout_seconds;              // of the whole, from start() on
  std::optional<double> loop_seconds = kLoopSeconds;  // of each WHILE, from each time that it is entered
  std::function<void()> interrupted;                  // called about every 50 ms while waiting; may throw
};

// What one loop of a program did in an execution; one that was entered several times counts all of them.
struct LoopReport {
  std::string node;                                             // with the graphs that it is in: "outer/inner"
  std::string kind;                                             // "host": the host drives it
  uint64_t entries = 0, trips = 0, host_syncs = 0, wasted = 0;  // wasted: recorded iterations that were skipped
};

struct RunReport {
  uint64_t submissions = 0, dispatches = 0, host_syncs = 0;  // host_syncs: times that the host waited to decide what comes next
  uint64_t read_backs = 0;                                   // of these, those to read elements that shapes depend on
  std::vector<LoopReport> loops;                             // those that were entered
};

// Memory and recordings for one execution of a program, with host-visible slots; leased for the whole of it. It goes back to its pool when
// the last owner drops it, and is not thread-safe.
class Lease {
 public:
  virtual ~Lease() = default;
  virtual const TensorDesc& input_desc(size_t i) const = 0;
  // Of a program with control flow or cuts known after start().
  virtual const TensorDesc& output_desc(size_t j) const = 0;
  // Where to write input i before start(), and where output j is after wait(): packed row-major.
  virtual std::byte* input(size_t i) = 0;
  virtual const std::byte* output(size_t j) const = 0;
  // Without control flow and cuts returns at once and keeps to no limits; else when the work has finished. Throws TimeoutError, GraphError.
  virtual Submission start(const RunLimits& limits) = 0;
  virtual uint64_t last_submission() const = 0;
  virtual RunReport report() const = 0;  // of the last start()
  // Seconds on the device of the last start(), once it has finished; none where it was not to be measured.
  virtual std::optional<double> device_seconds() const = 0;
};

// Thread-safe.
class Program : public std::enable_shared_from_this<Program> {
 public:
  const std::string& name() const;
  const std::vector<ProgramValue>& inputs() const;
  const std::vector<ProgramValue>& outputs() const;
  const std::shared_ptr<Context>& context() const;

  bool has_control_flow() const;  // or cuts: the host decides, or reads, between lists of dispatches
  bool checks_indices() const;    // and has some that only the device knows
  // Leases a recording for these shapes, binding them on first use. `values`: the elements of the inputs, of which those are read
  // that shapes depend on (see reads_values); may be empty where there are none. Where all recordings of these shapes are leased, waits
  // for one: `interrupted` is called about every 50 ms and may throw; with `wait` false throws StateError.
  // Throws BindingError for wrong shapes (K10, naming the input), GraphError, UnsupportedError.
  std::shared_ptr<Lease> lease(std::span<const ShapeView> shapes, std::span<const std::byte* const> values = {}, bool wait = true,
                               std::optional<double> timeout_seconds = {}, const std::function<void()>& interrupted = {});
  // One of its own that measures the time on the device.
  std::shared_ptr<Lease> measured_lease(std::span<const ShapeView> shapes, std::span<const std::byte* const> values = {});
  // Whether the elements of input i decide about shapes.
  bool reads_values(size_t i) const;
  // The compiled operator for these shapes, for use with binding tables and command lists of the caller's own. Its owned inputs are the
  // program's constants: the persistent resource is the program's own and already initialised.
  std::shared_ptr<CompiledOperator> compiled(std::span<const ShapeView> shapes, std::span<const std::byte* const> values = {});

  std::vector<ReportRow> report() const;  // kernels are those of the last binding
  ArenaReport arena(std::span<const ShapeView> shapes, std::span<const std::byte* const> values = {});
  std::vector<StepReport> plan(std::span<const ShapeView> shapes, std::span<const std::byte* const> values = {});
  // The device's time of every dispatch of one execution after another that is not measured; recorded with timestamps for the purpose.
  std::vector<DispatchTime> profile(std::span<const ShapeView> shapes, std::span<const std::byte* const> inputs,
                                    const std::function<void()>& interrupted = {});
  BufferRange persistent() const;
  void close();  // frees device memory not leased; later use throws StateError. Idempotent.
  bool closed() const;

  // Through Graph::compile().
  Program(std::shared_ptr<Context> context, const Graph& graph, const ProgramOptions& options);
  ~Program();
  Program(const Program&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pumice
