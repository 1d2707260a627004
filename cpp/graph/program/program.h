// A compiled graph: compiled once, bound per input shape, executed many times.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/description/graph.h"
#include "graph/passes/program_graph.h"
#include "graph/region/lease.h"
#include "graph/region/plan_report.h"
#include "graph/region/program_value.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

class ObservedRegion;
struct Observed;
struct FlowObservation;

// A compiled graph. Thread-safe.
class Program : public std::enable_shared_from_this<Program> {
 public:
  const std::string& name() const;
  const std::vector<ProgramValue>& inputs() const;
  const std::vector<ProgramValue>& outputs() const;
  const std::shared_ptr<Context>& context() const;

  bool has_control_flow() const;  // true also with cuts: the host decides, or reads, between lists of dispatches
  bool checks_indices() const;    // true only if there are indices that the device alone knows
  // Leases a recording for these shapes, binding them on first use. `values`: the elements of the inputs, of which those are read
  // that shapes depend on (see reads_values); may be empty where there are none. Where all recordings of these shapes are leased, waits
  // for one: `interrupted` is called about every 50 ms and may throw; with `wait` false throws StateError.
  // Throws BindingError for wrong shapes (K10, naming the input), GraphError, UnsupportedError.
  std::shared_ptr<Lease> lease(std::span<const ShapeView> shapes, std::span<const std::byte* const> values = {}, bool wait = true,
                               std::optional<double> timeout_seconds = {}, const std::function<void()>& interrupted = {});
  // A lease with a recording of its own, which measures the time on the device.
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
  // Runs once, and keeps a copy of the tensors that kernels store. Throws UnsupportedError for control flow and cuts.
  std::shared_ptr<ObservedRegion> observe(std::span<const ShapeView> shapes, std::span<const std::byte* const> inputs, const Observed& what,
                                          const std::function<void()>& interrupted = {});
  // The same for a program with control flow or cuts, of up to `most` runs of each of its regions.
  FlowObservation observe_runs(std::span<const ShapeView> shapes, std::span<const std::byte* const> inputs, const RunLimits& limits,
                               uint64_t most);
  BufferRange persistent() const;
  void close();  // frees device memory not leased; later use throws StateError. Idempotent.
  bool closed() const;

  // Programs are made by compile().
  Program(std::shared_ptr<Context> context, const Graph& graph, const ProgramOptions& options);
  ~Program();
  Program(const Program&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Finishes the graph. Throws GraphError, UnsupportedError.
std::shared_ptr<Program> compile(Graph& graph, std::shared_ptr<Context> context, const ProgramOptions& options = {});

}  // namespace pumice
