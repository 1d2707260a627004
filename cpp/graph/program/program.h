// A graph compiled once, bound per set of input shapes and executed many times.
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
struct ObserveOptions;
struct ControlFlowObservation;

// A compiled graph. Thread-safe.
class Program : public std::enable_shared_from_this<Program> {
 public:
  const std::string& name() const;
  const std::vector<ProgramValue>& inputs() const;
  const std::vector<ProgramValue>& outputs() const;
  const std::shared_ptr<Context>& context() const;

  // Whether the host makes decisions or reads values between lists of dispatches: control flow or host sync points.
  bool has_control_flow() const;
  bool checks_indices() const;  // whether it checks indices that are known only on the device
  // Leases a recording for these shapes, binding them on first use. `values`: elements of the inputs, read if shapes depend on them (see
  // reads_values); may be empty if none do. If all recordings of these shapes are leased, waits, calling `interrupted` about every 50 ms
  // (it may throw); with `wait` false throws StateError. Throws BindingError (K10) naming the input with a wrong shape, GraphError if a
  // shape rule is broken, UnsupportedError.
  std::shared_ptr<Lease> lease(std::span<const ShapeView> shapes, std::span<const std::byte* const> values = {}, bool wait = true,
                               std::optional<double> timeout_seconds = {}, const std::function<void()>& interrupted = {});
  // Returns a lease outside the pool that measures device time.
  std::shared_ptr<Lease> measured_lease(std::span<const ShapeView> shapes, std::span<const std::byte* const> values = {});
  // Whether shapes depend on the elements of input i.
  bool reads_values(size_t i) const;
  // Returns the compiled operator for these shapes, for binding tables and command lists of the caller. Its owned inputs are the program's
  // constants; it uses the program's persistent resource, which is already initialised.
  std::shared_ptr<CompiledOperator> compiled(std::span<const ShapeView> shapes, std::span<const std::byte* const> values = {});

  std::vector<ReportRow> report() const;  // lists the kernels of the last binding
  ArenaReport arena(std::span<const ShapeView> shapes, std::span<const std::byte* const> values = {});
  std::vector<StepReport> plan(std::span<const ShapeView> shapes, std::span<const std::byte* const> values = {});
  // Runs twice and returns the device time of each dispatch in the second run; uses a recording with timestamps.
  std::vector<DispatchTime> profile(std::span<const ShapeView> shapes, std::span<const std::byte* const> inputs,
                                    const std::function<void()>& interrupted = {});
  // Runs once and copies the tensors that kernels store. Throws UnsupportedError for control flow and host sync points.
  std::shared_ptr<ObservedRegion> observe(std::span<const ShapeView> shapes, std::span<const std::byte* const> inputs,
                                          const ObserveOptions& observe_options, const std::function<void()>& interrupted = {});
  // Like observe(), for programs with control flow or host sync points: observes up to `max_runs` runs of each region.
  ControlFlowObservation observe_runs(std::span<const ShapeView> shapes, std::span<const std::byte* const> inputs, const RunLimits& limits,
                                      uint64_t max_runs);
  BufferRange persistent() const;
  void close();  // frees device memory that is not leased; later use throws StateError. Idempotent
  bool closed() const;

  // Use compile().
  Program(std::shared_ptr<Context> context, const Graph& graph, const ProgramOptions& options);
  ~Program();
  Program(const Program&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Finishes the graph and compiles it. Throws GraphError if the graph is invalid, UnsupportedError if the device cannot run it.
std::shared_ptr<Program> compile(Graph& graph, std::shared_ptr<Context> context, const ProgramOptions& options = {});

}  // namespace pumice
