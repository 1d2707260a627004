#include "graph/region/region.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "core/error.h"
#include "core/host_trace.h"
#include "graph/binding/pipeline_builder.h"
#include "graph/binding/plan.h"
#include "graph/binding/spills.h"
#include "graph/binding/weight_upload.h"
#include "graph/passes/deferred_nodes.h"
#include "graph/passes/passes.h"
#include "graph/region/deferred_expansion.h"
#include "graph/region/observed_region.h"

namespace pumice {
namespace {

constexpr size_t kMaxBindings = 16;        // maximum number of cached bindings
constexpr size_t kMaxExpandedRegions = 8;  // maximum number of cached regions of a late region: each has its own weights

std::string sizes_text(const std::vector<int64_t>& sizes, const std::vector<std::string>& names) {
  std::string text = "[";
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    const bool named = axis < names.size() && !names[axis].empty();
    text += (axis ? ", " : "") + (sizes[axis] != kUnknownSize ? std::to_string(sizes[axis]) : named ? names[axis] : "?");
  }
  return text + "]";
}

bool same_values(const std::optional<HostTensor>& known, const std::byte* given) {
  return !known || same_elements(*known, {known->desc, {}, given});
}

// Whether an input has indices; these are checked once the size of the indexed axis is known.
bool is_indices(const ProgramNode& node, size_t input) {
  return node.row->indices && node.row->indices(node.attributes, {}).input == input;
}

ProgramValue program_value(const std::string& name, const GraphValue& value) {
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
                       "shape " + sizes_text(*expected.shape, expected.dimension_names) + known,
                       "shape " + sizes_text({shapes[i].begin(), shapes[i].end()}, {}));
  }
}

// Regions compiled on demand for a late region, by set of shapes. Thread-safe.
struct Region::DeferredRegions {
  // `owner`: the late region's graph as built, with marks on the inputs whose elements the host reads. It must outlive this object.
  DeferredRegions(std::shared_ptr<Context> of, const ProgramGraph& owner, const ProgramOptions& compile_options, std::string names)
      : context(std::move(of)), graph(owner), options(compile_options), prefix(std::move(names)) {
    options.progress = {};  // the callback belongs to the compilation that has finished
    options.memory.reset();
  }

  // Compiles on first use; evicts the least recently used region if there are too many.
  std::shared_ptr<Region> find_or_compile(std::span<const ShapeView> shapes, std::span<const std::byte* const> values) {
    const std::lock_guard lock(mutex);
    for (auto entry = cached.begin(); entry != cached.end(); ++entry)
      if (entry->first.matches(shapes, values)) {
        cached.splice(cached.begin(), cached, entry);
        return cached.front().second;
      }
    ExpandedGraph expansion = expand_deferred(graph, shapes, values);
    expansion.subgraph.prefix = prefix;
    auto region = std::make_shared<Region>(context, *expansion.graph, expansion.subgraph, options);
    cached.emplace_front(std::move(expansion.key), std::move(region));
    if (cached.size() > kMaxExpandedRegions) cached.pop_back();
    return cached.front().second;
  }

  // Returns the report of the region used last; nullopt before the first use.
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
  mutable std::recursive_mutex mutex;                                  // recursive as in Region
  std::list<std::pair<ExpansionKey, std::shared_ptr<Region>>> cached;  // most recently used first
};

Region::Region(std::shared_ptr<Context> context, const Graph& graph, const Subgraph& subgraph, const ProgramOptions& options)
    : context_(std::move(context)),
      graph_(has_deferred_nodes(graph, subgraph) ? ProgramGraph(graph, subgraph, options) : run_passes(graph, subgraph, options)) {
  const bool deferred = has_deferred_nodes(graph, subgraph);
  if (deferred) find_host_nodes(graph_);
  for (ReportRow& row : graph_.report) row.node = subgraph.prefix + row.node;
  describe_values();
  if (deferred) {
    deferred_ = std::make_unique<DeferredRegions>(context_, graph_, options, subgraph.prefix);
    return;
  }
  weights_ = place_weights(context_, graph_);
  memo_.nodes.resize(graph_.nodes.size());
  initialise(options);
}

Region::~Region() = default;

void Region::describe_values() {
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const GraphValue& input = graph_.value(graph_.inputs[i]);
    inputs_.push_back(program_value(input.name, input));
    if (graph_.dynamic_inputs[i]) inputs_.back().shape.reset();
  }
  for (size_t j = 0; j + graph_.index_checks < graph_.outputs.size(); ++j)
    outputs_.push_back(program_value(graph_.outputs[j].first, graph_.value(graph_.outputs[j].second)));
  reads_values_ = std::find(graph_.shape_value_inputs.begin(), graph_.shape_value_inputs.end(), true) != graph_.shape_value_inputs.end();
  kernels_.resize(graph_.report.size());
  choices_.resize(graph_.report.size());
  spills_.resize(graph_.report.size());
}

std::shared_ptr<Region> Region::region_for(std::span<const ShapeView> shapes, std::span<const std::byte* const> values) {
  check_shapes(graph_.name, inputs_, shapes);
  if (reads_values_ && values.size() != inputs_.size())
    throw BindingError("K3", "inputs", graph_.name, "the elements of the inputs: shapes depend on them", "their shapes alone");
  return deferred_->find_or_compile(shapes, values);
}

void Region::initialise(const ProgramOptions& options) {
  if (options.memory && options.memory->context() != context_)
    throw BindingError("M3", "program '" + graph_.name + "'", "memory", "memory of the program's context", "that of another");
  const auto memory = options.memory ? options.memory : std::make_shared<UploadMemory>(context_, weights_.initialization->persistent_bytes);
  make_pipelines(weights_.initialization->steps, options.progress);
  persistent_ = upload_weights(*memory, graph_.name, inputs_.size(), weights_, initialised_, options.progress);
  release_constants();
}

// Drops constants once the device has the weights; keeps those that the host computes with.
void Region::release_constants() {
  std::vector<bool> needed(graph_.values.size(), false);
  for (const ProgramNode& node : graph_.nodes)
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (node.inputs[k] != kAbsent && (node.on_host || has_bit(node.row->host_inputs, k) || is_indices(node, k)))
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

void Region::make_pipelines(const std::vector<PlannedStep>& steps, const CompileProgress& progress) {
  std::vector<const KernelVariant*> missing;
  for (const PlannedStep& step : steps)
    if (built_kernels_.insert(step.kernel.get()).second) missing.push_back(step.kernel.get());
  if (!missing.empty()) create_pipelines(missing, progress);
}

bool Region::matches(const BoundProgram& binding, std::span<const ShapeView> shapes, std::span<const std::byte* const> values) const {
  const BindInputs& key = binding.key();
  if (key.shapes.size() != shapes.size()) return false;
  for (size_t i = 0; i < shapes.size(); ++i)
    if (!std::equal(shapes[i].begin(), shapes[i].end(), key.shapes[i].begin(), key.shapes[i].end())) return false;
  if (!reads_values_) return true;
  if (values.size() != key.values.size()) return false;
  for (size_t i = 0; i < values.size(); ++i)
    if (!same_values(key.values[i], values[i])) return false;
  return true;
}

std::shared_ptr<BoundProgram> Region::bind(std::span<const ShapeView> shapes, std::span<const std::byte* const> values,
                                           const CompileProgress& progress) {
  if (deferred_) return region_for(shapes, values)->bind(shapes, values, progress);
  const std::lock_guard lock(mutex_);
  for (auto binding = bindings_.begin(); binding != bindings_.end(); ++binding)
    if (matches(**binding, shapes, values)) {
      bindings_.splice(bindings_.begin(), bindings_, binding);
      return check_latest_binding(values);
    }
  const HostSpan span("bind", graph_.name);
  check_shapes(graph_.name, inputs_, shapes);
  if (reads_values_ && values.size() != inputs_.size())
    throw BindingError("K3", "inputs", graph_.name, "the elements of the inputs: shapes depend on them", "their shapes alone");
  BindInputs key;
  for (size_t i = 0; i < shapes.size(); ++i) {
    key.shapes.emplace_back(shapes[i].begin(), shapes[i].end());
    if (reads_values_)
      key.values.push_back(graph_.shape_value_inputs[i]
                               ? std::optional(HostTensor::copy_of(TensorDesc(inputs_[i].dtype, key.shapes[i]), values[i]))
                               : std::nullopt);
  }
  const auto planned = [&] {
    const HostSpan plans("plan", graph_.name);
    return bind_plan(context_, graph_, weights_, key, &memo_);
  };
  BoundPlan plan = plan_without_spills(planned, [&](const Plan& made) { make_pipelines(made.steps, progress); }, *graph_.spilled);
  kernels_ = plan.kernels;
  choices_ = plan.choices;
  spills_ = plan.spills;
  auto compiled = std::make_shared<CompiledOperator>(context_, std::move(plan.plan), initialised_);
  bindings_.push_front(std::make_shared<BoundProgram>(std::move(key), std::move(compiled), persistent_, inputs_.size(), plan));
  if (bindings_.size() > kMaxBindings) bindings_.pop_back();
  return check_latest_binding(values);
}

std::shared_ptr<ObservedRegion> Region::make_observed_region(std::span<const ShapeView> shapes, std::span<const std::byte* const> values,
                                                             const ObserveOptions& observe_options) {
  if (deferred_) return region_for(shapes, values)->make_observed_region(shapes, values, observe_options);
  const std::lock_guard lock(mutex_);
  const auto bound = bind(shapes, values);
  BoundPlan plan = bind_plan(context_, graph_, weights_, bound->key(), &memo_, true);
  make_pipelines(plan.plan.steps, {});
  const auto compiled = std::make_shared<CompiledOperator>(context_, std::move(plan.plan), initialised_);
  return std::make_shared<ObservedRegion>(compiled, persistent_, inputs_.size(), graph_, plan.stored, observe_options);
}

// Returns the last used binding after checking the elements of these inputs.
std::shared_ptr<BoundProgram> Region::check_latest_binding(std::span<const std::byte* const> values) const {
  const auto& bound = bindings_.front();
  for (size_t i = 0; i < graph_.checks.size(); ++i)
    check_input(graph_, graph_.checks[i], bound->checked_inputs()[i], bound->key().shapes, values);
  return bound;
}

// Whether the device has cooperative matrices of the program's float type, in the fragment layout of the fp16 kernels.
bool Region::has_fragments() const {
  NodeContext any;
  any.context = context_;
  any.float_dtype = graph_.float_dtype;
  return any.has_fragments();
}

std::vector<ReportRow> Region::report() const {
  if (deferred_)
    if (auto rows = deferred_->report()) return *rows;
  const std::lock_guard lock(mutex_);
  std::vector<ReportRow> rows = graph_.report;
  const bool has_mma = has_fragments();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (const auto dtype = rows[i].dtype)
      rows[i].precision = is_operator_float(*dtype) ? pumice::name(storage_of(context_->info(), *dtype)) : pumice::name(*dtype);
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
