// A run of nodes without control flow, compiled: weights on the device once, bound per choice of input shapes.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "graph/binding/weights.h"
#include "graph/passes/program_graph.h"
#include "graph/region/bound_program.h"
#include "graph/region/program_value.h"

namespace pumice {

class ObservedRegion;
struct Observed;

// Checks the shapes of the inputs of `user`. Throws BindingError (K4, K10 naming the input).
void check_shapes(const std::string& user, std::span<const ProgramValue> inputs, std::span<const ShapeView> shapes);

// A compiled region with its weights and bindings. Thread-safe.
class Region {
 public:
  // Compiles the part: uploads its constants and packs them on the device. Where it has operations whose nodes depend on shapes that are
  // not known yet, that is done for each choice of them.
  Region(std::shared_ptr<Context> context, const Graph& graph, const GraphPart& part, const ProgramOptions& options);
  Region(const Region&) = delete;
  ~Region();

  const ProgramGraph& graph() const { return graph_; }
  const std::vector<ProgramValue>& inputs() const { return inputs_; }
  const std::vector<ProgramValue>& outputs() const { return outputs_; }  // without what checks of indices make
  const BufferRange& persistent() const { return persistent_; }
  bool is_late() const { return late_ != nullptr; }  // it is compiled for a choice of shapes
  // For a late region, the region that runs for these shapes.
  std::shared_ptr<Region> at(std::span<const ShapeView> shapes, std::span<const std::byte* const> values);
  // Whether the elements of an input, or of input i, decide about shapes.
  bool reads_values() const { return reads_values_; }
  bool reads_values(size_t i) const { return graph_.value_inputs[i]; }
  // Whether the elements of inputs are checked where a caller has them, although nothing depends on them.
  bool checks_values() const { return late_ || !graph_.checks.empty(); }
  // Binds on first use; the least recently used binding is forgotten where there are too many. `values` has the elements of the inputs; it
  // may be empty where none decide about shapes. Throws BindingError, GraphError, UnsupportedError. `progress` is told the kernels that are
  // compiled.
  std::shared_ptr<BoundProgram> bind(std::span<const ShapeView> shapes, std::span<const std::byte* const> values,
                                     const CompileProgress& progress = {});
  // A run for these shapes that copies what its kernels store.
  std::shared_ptr<ObservedRegion> observed(std::span<const ShapeView> shapes, std::span<const std::byte* const> values,
                                           const Observed& what);
  std::vector<ReportRow> report() const;  // kernels are those of the last binding
  void close();                           // frees device memory that no binding holds

 private:
  void describe();
  bool has_fragments() const;
  void initialise(const ProgramOptions& options);
  void release_constants();
  std::shared_ptr<BoundProgram> checked(std::span<const std::byte* const> values) const;
  void make_pipelines(const std::vector<PlannedStep>& steps, const CompileProgress& progress);
  bool matches(const BoundProgram& one, std::span<const ShapeView> shapes, std::span<const std::byte* const> values) const;

  std::shared_ptr<Context> context_;
  ProgramGraph graph_;
  Weights weights_;
  BufferRange persistent_;
  std::shared_ptr<InitializationState> initialised_ = std::make_shared<InitializationState>();
  std::vector<ProgramValue> inputs_, outputs_;
  bool reads_values_ = false;
  struct Late;
  std::unique_ptr<Late> late_;

  mutable std::recursive_mutex mutex_;                   // guards what follows; a signal handler may run the model that is being bound
  std::list<std::shared_ptr<BoundProgram>> bound_;       // the last used first
  std::unordered_set<const KernelVariant*> made_;        // kernels whose pipelines exist
  std::vector<std::string> kernels_, choices_, spills_;  // by row of the report
  BindMemo memo_;
};

}  // namespace pumice
