// A compiled subgraph without control flow. Its weights are uploaded once, and it is bound for each set of input shapes.
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

class IntermediateTensorCapture;
struct TensorCaptureOptions;

// Checks the input shapes of a program or graph named `user`. Throws BindingError if their number is wrong (K4), or naming an input with a
// wrong shape (K10).
void check_shapes(const std::string& user, std::span<const ProgramValue> inputs, std::span<const ShapeView> shapes);

// A compiled region with its weights and bindings. Thread-safe.
class Region {
 public:
  // Compiles `subgraph`: uploads its constants and packs them on the device. If it has operations that expand only for known shapes, it is
  // compiled later, once for each set of shapes.
  Region(std::shared_ptr<Context> context, const Graph& graph, const Subgraph& subgraph, const ProgramOptions& options);
  Region(const Region&) = delete;
  ~Region();

  const ProgramGraph& graph() const { return graph_; }
  const std::vector<ProgramValue>& inputs() const { return inputs_; }
  const std::vector<ProgramValue>& outputs() const { return outputs_; }  // without the outputs of index checks
  const BufferRange& persistent() const { return persistent_; }
  bool is_deferred() const { return deferred_ != nullptr; }  // whether it is compiled separately for each set of shapes
  // Returns the region that a deferred region compiled for these shapes; compiles it on first use.
  std::shared_ptr<Region> get_expanded_region(std::span<const ShapeView> shapes, std::span<const std::byte* const> values);
  // Whether shapes depend on the elements of any input, or of input i.
  bool reads_values() const { return reads_values_; }
  bool reads_values(size_t i) const { return graph_.shape_value_inputs[i]; }
  // Whether bind() checks input elements if they are passed, even if no shape depends on them.
  bool checks_input_elements() const { return deferred_ || !graph_.checks.empty(); }
  // Returns the binding for these shapes; creates it on first use and evicts the least recently used one if there are too many. `values`:
  // elements of the inputs; may be empty if no shape depends on them. `progress` is called with the kernels being compiled. Throws
  // BindingError for wrong inputs, GraphError if a shape rule is violated, UnsupportedError.
  std::shared_ptr<BoundProgram> bind(std::span<const ShapeView> shapes, std::span<const std::byte* const> values,
                                     const CompileProgress& progress = {});
  // Creates a run for these shapes that copies every tensor that a kernel stores.
  std::shared_ptr<IntermediateTensorCapture> make_intermediate_tensor_capture(std::span<const ShapeView> shapes,
                                                                              std::span<const std::byte* const> values,
                                                                              const TensorCaptureOptions& capture_options);
  std::vector<ReportRow> report() const;  // names the kernels of the last binding
  void close();                           // frees device memory that no binding uses

 private:
  void describe_values();
  bool has_or_emulates_mma() const;
  void initialise_weights(const ProgramOptions& options);
  void release_constants();
  std::shared_ptr<BoundProgram> check_latest_binding(std::span<const std::byte* const> values) const;
  void create_missing_pipelines(const std::vector<PlannedStep>& steps, const CompileProgress& progress);
  bool matches_binding(const BoundProgram& binding, std::span<const ShapeView> shapes, std::span<const std::byte* const> values) const;

  std::shared_ptr<Context> context_;
  ProgramGraph graph_;
  Weights weights_;
  BufferRange persistent_;
  std::shared_ptr<InitializationState> initialised_ = std::make_shared<InitializationState>();
  std::vector<ProgramValue> inputs_, outputs_;
  bool reads_values_ = false;
  struct DeferredRegions;
  std::unique_ptr<DeferredRegions> deferred_;

  mutable std::recursive_mutex
      mutex_;  // guards the members below; recursive, because a signal handler may run the model that is being bound
  std::list<std::shared_ptr<BoundProgram>> bindings_;       // most recently used first
  std::unordered_set<const KernelVariant*> built_kernels_;  // kernels whose pipelines are built
  std::vector<std::string> kernels_, choices_, spills_;     // indexed by row of the report
  BindCache bind_cache_;
};

}  // namespace pumice
