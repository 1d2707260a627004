// A graph that is compiled once, bound for each set of input shapes, and executed many times.
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
#include "graph/region/execution_lease.h"
#include "graph/region/plan_report.h"
#include "graph/region/program_value.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

class IntermediateTensorCapture;
struct TensorCaptureOptions;
struct ControlFlowObservation;

// A compiled graph. Thread-safe.
class Program : public std::enable_shared_from_this<Program> {
 public:
  const std::string& name() const;
  const std::vector<ProgramValue>& inputs() const;
  const std::vector<ProgramValue>& outputs() const;
  const std::shared_ptr<Context>& context() const;

  // Whether the host decides or reads values between command lists: the graph has control flow or host sync points.
  bool has_control_flow() const;
  bool checks_indices() const;  // whether indices known only on the device are checked
  // Leases a recording for these shapes; binds them on first use. `values`: elements of the inputs, used if shapes depend on them (see
  // reads_values()); may be empty otherwise. If all recordings are leased, waits and calls `interrupted` about every 50 ms, which may
  // throw; with `wait` false, throws StateError. Throws BindingError (K10) naming an input with a wrong shape, GraphError if a shape rule
  // is violated, UnsupportedError.
  std::shared_ptr<ExecutionLease> acquire_lease(std::span<const ShapeView> shapes, std::span<const std::byte* const> values = {},
                                                bool wait = true, std::optional<double> timeout_seconds = {},
                                                const std::function<void()>& interrupted = {});
  // Returns a lease that measures device time and does not belong to the pool.
  std::shared_ptr<ExecutionLease> make_lease_with_timestamps(std::span<const ShapeView> shapes,
                                                             std::span<const std::byte* const> values = {});
  // Whether shapes depend on the elements of input i.
  bool reads_values(size_t i) const;
  // Returns the compiled operator for these shapes, to be used with binding tables and command lists of the caller. Its owned inputs are
  // the constants of the program; its persistent resource is that of the program, which is already initialised.
  std::shared_ptr<CompiledOperator> get_compiled_operator(std::span<const ShapeView> shapes, std::span<const std::byte* const> values = {});

  std::vector<ReportRow> report() const;  // names the kernels of the last binding
  ArenaReport report_arena(std::span<const ShapeView> shapes, std::span<const std::byte* const> values = {});
  std::vector<StepReport> report_steps(std::span<const ShapeView> shapes, std::span<const std::byte* const> values = {});
  // Runs the program twice, with timestamps, and returns the device time of each dispatch in the second run.
  std::vector<DispatchTime> profile(std::span<const ShapeView> shapes, std::span<const std::byte* const> inputs,
                                    const std::function<void()>& interrupted = {});
  // Runs the program once and copies the tensors that its kernels store. Throws UnsupportedError for control flow and host sync points.
  std::shared_ptr<IntermediateTensorCapture> observe(std::span<const ShapeView> shapes, std::span<const std::byte* const> inputs,
                                                     const TensorCaptureOptions& capture_options,
                                                     const std::function<void()>& interrupted = {});
  // Like observe(), but for programs with control flow or host sync points: observes up to `max_runs` runs of each region.
  ControlFlowObservation observe_runs(std::span<const ShapeView> shapes, std::span<const std::byte* const> inputs, const RunLimits& limits,
                                      uint64_t max_runs);
  BufferRange persistent() const;
  void close();  // frees device memory that is not leased; later calls throw StateError. Idempotent
  bool closed() const;

  // Use compile() instead.
  Program(std::shared_ptr<Context> context, const Graph& graph, const ProgramOptions& options);
  ~Program();
  Program(const Program&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Finishes the graph and compiles it. Throws GraphError if the graph is invalid, UnsupportedError if the device cannot run it.
std::shared_ptr<Program> compile(Graph& graph, std::shared_ptr<Context> context, const ProgramOptions& options = {});

}  // namespace pumice
