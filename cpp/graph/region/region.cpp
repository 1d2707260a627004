#include "graph/region/region.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "core/error.h"
#include "core/host_trace.h"
#include "graph/binding/pipeline_builder.h"
#include "graph/binding/plan.h"
#include "graph/binding/plan_without_spills.h"
#include "graph/binding/weight_upload.h"
#include "graph/passes/deferred_nodes.h"
#include "graph/passes/passes.h"
#include "graph/region/deferred_expansion.h"
#include "graph/region/intermediate_tensor_capture.h"

namespace pumice {
namespace {

constexpr size_t kMaxBindings = 16;        // maximum number of bindings in the cache
constexpr size_t kMaxExpandedRegions = 8;  // maximum number of expanded regions of a deferred region; each has its own weights

std::string format_sizes(const std::vector<int64_t>& sizes, const std::vector<std::string>& names) {
  std::string text = "[";
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    const bool named = axis < names.size() && !names[axis].empty();
    text += (axis ? ", " : "") + (sizes[axis] != kUnknownSize ? std::to_string(sizes[axis]) : named ? names[axis] : "?");
  }
  return text + "]";
}

bool has_same_elements(const std::optional<HostTensor>& known, const std::byte* elements) {
  return !known || have_same_elements(*known, {known->desc, {}, elements});
}

// Whether the input holds indices, which are checked once the size of the indexed axis is known.
bool is_index_input(const ProgramNode& node, size_t input) {
  return node.row->indices && node.row->indices(node.attributes, {}).input == input;
}

ProgramValue make_program_value(const std::string& name, const GraphValue& value) {
  return {name, value.dtype, value.shape, value.dimension_names};
}

}  // namespace

void check_shapes(const std::string& user, std::span<const ProgramValue> inputs, std::span<const ShapeView> shapes) {
  if (shapes.size() != inputs.size())
    throw BindingError("K4", "inputs", user, std::to_string(inputs.size()) + " inputs", std::to_string(shapes.size()));
  std::map<std::string_view, int64_t> named;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const auto& expected = inputs[i];
    if (!expected.shape) continue;
    bool fits = shapes[i].size() == expected.shape->size();
    for (size_t axis = 0; fits && axis < shapes[i].size(); ++axis) {
      const int64_t size = (*expected.shape)[axis];
      fits = size == kUnknownSize || size == shapes[i][axis];
      if (axis < expected.dimension_names.size() && !expected.dimension_names[axis].empty())
        fits = fits && named.try_emplace(expected.dimension_names[axis], shapes[i][axis]).first->second == shapes[i][axis];
    }
    if (fits) continue;
    std::string known;
    for (const auto& [name, size] : named) known += (known.empty() ? " with " : ", ") + std::string(name) + " = " + std::to_string(size);
    throw BindingError("K10", "input '" + expected.name + "'", expected.name,
                       "shape " + format_sizes(*expected.shape, expected.dimension_names) + known,
                       "shape " + format_sizes({shapes[i].begin(), shapes[i].end()}, {}));
  }
}

// Regions compiled on demand for a deferred region, one for each set of shapes. Thread-safe.
struct Region::DeferredRegions {
  // `deferred_graph`: the unexpanded graph of the region, which marks the inputs whose elements the host reads. Must outlive this object.
  DeferredRegions(std::shared_ptr<Context> owner_context, const ProgramGraph& deferred_graph, const ProgramOptions& compile_options,
                  std::string node_prefix)
      : context(std::move(owner_context)), graph(deferred_graph), options(compile_options), prefix(std::move(node_prefix)) {
    options.progress = {};  // the callback belongs to the compilation, which has finished
    options.memory.reset();
  }

  // Returns the region for these shapes; compiles it on first use and evicts the least recently used region if there are too many.
  std::shared_ptr<Region> find_or_compile(std::span<const ShapeView> shapes, std::span<const std::byte* const> values) {
    const std::lock_guard lock(mutex);
    for (auto entry = cached.begin(); entry != cached.end(); ++entry)
      if (entry->first.matches(shapes, values)) {
        cached.splice(cached.begin(), cached, entry);
        return cached.front().second;
      }
    ExpandedGraph expansion = expand_deferred_graph(graph, shapes, values);
    expansion.subgraph.prefix = prefix;
    auto region = std::make_shared<Region>(context, *expansion.graph, expansion.subgraph, options);
    cached.emplace_front(std::move(expansion.key), std::move(region));
    if (cached.size() > kMaxExpandedRegions) cached.pop_back();
    return cached.front().second;
  }

  // Returns the report of the region that was used last; nullopt before the first use.
  std::optional<std::vector<ReportRow>> report() const {
    const std::lock_guard lock(mutex);
    return cached.empty() ? std::nullopt : std::optional(cached.front().second->report());
  }

  void close() {
    const std::lock_guard lock(mutex);
    for (const auto& [expansion_key, region] : cached) region->close();
    cached.clear();
  }

  std::shared_ptr<Context> context;
  const ProgramGraph& graph;
  ProgramOptions options;
  std::string prefix;
  mutable std::recursive_mutex mutex;                                  // recursive for the same reason as Region::mutex_
  std::list<std::pair<ExpansionKey, std::shared_ptr<Region>>> cached;  // most recently used first
};

Region::Region(std::shared_ptr<Context> context, const Graph& graph, const Subgraph& subgraph, const ProgramOptions& options)
    : context_(std::move(context)),
      graph_(has_deferred_nodes(graph, subgraph)
                 ? ProgramGraph(graph, subgraph, options)
                 : run_passes(graph, subgraph, options, context_->limit("maxPerStageDescriptorStorageBuffers"))) {
  const bool deferred = has_deferred_nodes(graph, subgraph);
  if (deferred) find_host_nodes(graph_);
  for (ReportRow& row : graph_.report) row.node = subgraph.prefix + row.node;
  describe_values();
  if (deferred) {
    deferred_ = std::make_unique<DeferredRegions>(context_, graph_, options, subgraph.prefix);
    return;
  }
  weights_ = place_weights(context_, graph_);
  bind_cache_.nodes.resize(graph_.nodes.size());
  initialise_weights(options);
}

Region::~Region() = default;

void Region::describe_values() {
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const GraphValue& input = graph_.value(graph_.inputs[i]);
    inputs_.push_back(make_program_value(input.name, input));
    if (graph_.dynamic_inputs[i]) inputs_.back().shape.reset();
  }
  for (size_t j = 0; j + graph_.index_checks < graph_.outputs.size(); ++j)
    outputs_.push_back(make_program_value(graph_.outputs[j].first, graph_.value(graph_.outputs[j].second)));
  reads_values_ = std::find(graph_.shape_value_inputs.begin(), graph_.shape_value_inputs.end(), true) != graph_.shape_value_inputs.end();
  kernels_.resize(graph_.report.size());
  choices_.resize(graph_.report.size());
  spills_.resize(graph_.report.size());
}

std::shared_ptr<Region> Region::get_expanded_region(std::span<const ShapeView> shapes, std::span<const std::byte* const> values) {
  check_shapes(graph_.name, inputs_, shapes);
  if (reads_values_ && values.size() != inputs_.size())
    throw BindingError("K3", "inputs", graph_.name, "the elements of the inputs: shapes depend on them", "only their shapes");
  return deferred_->find_or_compile(shapes, values);
}

void Region::initialise_weights(const ProgramOptions& options) {
  if (options.memory && options.memory->context() != context_)
    throw BindingError("M3", "program '" + graph_.name + "'", "memory", "memory of the program's context", "that of another");
  const auto memory = options.memory ? options.memory : std::make_shared<UploadMemory>(context_, weights_.initialization->persistent_bytes);
  create_missing_pipelines(weights_.initialization->steps, options.progress);
  persistent_ = upload_weights(*memory, graph_.name, inputs_.size(), weights_, initialised_, options.progress);
  release_constants();
}

// After the upload, releases the constants that the host does not compute with.
void Region::release_constants() {
  std::vector<bool> needed(graph_.values.size(), false);
  for (const ProgramNode& node : graph_.nodes)
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (node.inputs[k] != kAbsent && (node.on_host || has_bit(node.row->host_inputs, k) || is_index_input(node, k)))
        needed[static_cast<size_t>(node.inputs[k])] = true;
  for (const InputCheck& check : graph_.checks)
    for (const GraphNode& node : check.chain)
      for (const ValueId input : node.inputs)
        if (input != kAbsent) needed[static_cast<size_t>(input)] = true;
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    auto& constant = graph_.values[i].constant;
    if (!constant || needed[i]) continue;
    *constant = HostTensor{constant->desc};
  }
}

void Region::create_missing_pipelines(const std::vector<PlannedStep>& steps, const CompileProgress& progress) {
  std::vector<const KernelVariant*> missing;
  for (const PlannedStep& step : steps)
    if (built_kernels_.insert(step.kernel.get()).second) missing.push_back(step.kernel.get());
  if (!missing.empty()) create_pipelines(missing, progress);
}

bool Region::matches_binding(const BoundProgram& binding, std::span<const ShapeView> shapes,
                             std::span<const std::byte* const> values) const {
  const BindInputs& key = binding.key();
  if (key.shapes.size() != shapes.size()) return false;
  for (size_t i = 0; i < shapes.size(); ++i)
    if (!std::equal(shapes[i].begin(), shapes[i].end(), key.shapes[i].begin(), key.shapes[i].end())) return false;
  if (!reads_values_) return true;
  if (values.size() != key.values.size()) return false;
  for (size_t i = 0; i < values.size(); ++i)
    if (!has_same_elements(key.values[i], values[i])) return false;
  return true;
}

std::shared_ptr<BoundProgram> Region::bind(std::span<const ShapeView> shapes, std::span<const std::byte* const> values,
                                           const CompileProgress& progress) {
  if (deferred_) return get_expanded_region(shapes, values)->bind(shapes, values, progress);
  const std::lock_guard lock(mutex_);
  for (auto binding = bindings_.begin(); binding != bindings_.end(); ++binding)
    if (matches_binding(**binding, shapes, values)) {
      bindings_.splice(bindings_.begin(), bindings_, binding);
      return check_latest_binding(values);
    }
  const HostTraceSpan span("bind", graph_.name);
  check_shapes(graph_.name, inputs_, shapes);
  if (reads_values_ && values.size() != inputs_.size())
    throw BindingError("K3", "inputs", graph_.name, "the elements of the inputs: shapes depend on them", "only their shapes");
  BindInputs key;
  for (size_t i = 0; i < shapes.size(); ++i) {
    key.shapes.emplace_back(shapes[i].begin(), shapes[i].end());
    if (reads_values_)
      key.values.push_back(graph_.shape_value_inputs[i]
                               ? std::optional(HostTensor::copy_of(TensorDesc(inputs_[i].dtype, key.shapes[i]), values[i]))
                               : std::nullopt);
  }
  const auto plan_steps = [&] {
    const HostTraceSpan span_plan("plan", graph_.name);
    return bind_plan(context_, graph_, weights_, key, &bind_cache_);
  };
  BoundPlan plan = plan_without_spills(
      plan_steps, [&](const ExecutionPlan& new_plan) { create_missing_pipelines(new_plan.steps, progress); }, *graph_.spilled);
  kernels_ = plan.kernels;
  choices_ = plan.choices;
  spills_ = plan.spills;
  auto compiled = std::make_shared<CompiledOperator>(context_, std::move(plan.plan), initialised_);
  bindings_.push_front(std::make_shared<BoundProgram>(std::move(key), std::move(compiled), persistent_, inputs_.size(), plan));
  if (bindings_.size() > kMaxBindings) bindings_.pop_back();
  return check_latest_binding(values);
}

std::shared_ptr<IntermediateTensorCapture> Region::make_intermediate_tensor_capture(std::span<const ShapeView> shapes,
                                                                                    std::span<const std::byte* const> values,
                                                                                    const TensorCaptureOptions& capture_options) {
  if (deferred_) return get_expanded_region(shapes, values)->make_intermediate_tensor_capture(shapes, values, capture_options);
  const std::lock_guard lock(mutex_);
  const auto bound = bind(shapes, values);
  BoundPlan plan = bind_plan(context_, graph_, weights_, bound->key(), &bind_cache_, true);
  create_missing_pipelines(plan.plan.steps, {});
  const auto compiled = std::make_shared<CompiledOperator>(context_, std::move(plan.plan), initialised_);
  return std::make_shared<IntermediateTensorCapture>(compiled, persistent_, inputs_.size(), graph_, plan.stored, capture_options);
}

// Checks these input elements and returns the most recently used binding.
std::shared_ptr<BoundProgram> Region::check_latest_binding(std::span<const std::byte* const> values) const {
  const auto& bound = bindings_.front();
  for (size_t i = 0; i < graph_.checks.size(); ++i)
    check_input(graph_, graph_.checks[i], bound->checked_inputs()[i], bound->key().shapes, values);
  return bound;
}

// Whether the device has cooperative matrices of the program's float type, in the fragment layout of the fp16 kernels.
bool Region::has_or_emulates_mma() const {
  NodeContext any;
  any.context = context_;
  any.float_dtype = graph_.float_dtype;
  return any.has_or_emulates_mma();
}

std::vector<ReportRow> Region::report() const {
  if (deferred_)
    if (auto rows = deferred_->report()) return *rows;
  const std::lock_guard lock(mutex_);
  std::vector<ReportRow> rows = graph_.report;
  const bool has_mma = has_or_emulates_mma();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (const auto dtype = rows[i].dtype)
      rows[i].precision = is_operator_float(*dtype) ? pumice::name(get_storage_type(context_->info(), *dtype)) : pumice::name(*dtype);
    const std::string& kernel = kernels_[i];
    if (kernel == "view" || kernel == "host")
      rows[i].note = kernel;
    else
      rows[i].kernel = kernel;
    const std::string measured = choices_[i].empty() ? "" : "measured: " + choices_[i];
    for (const std::string& reason : {rows[i].fp32, has_mma ? rows[i].scales : "", measured, spills_[i]})
      if (!reason.empty()) rows[i].note += (rows[i].note.empty() ? "" : "; ") + reason;
  }
  return rows;
}

void Region::close() {
  if (deferred_) deferred_->close();
  const std::lock_guard lock(mutex_);
  bindings_.clear();
  persistent_ = {};
}

}  // namespace pumice
