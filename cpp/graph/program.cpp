#include "graph/program.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <unordered_set>

#include "core/error.h"
#include "graph/bound_program.h"
#include "graph/passes.h"
#include "graph/plan.h"
#include "graph/weights.h"

namespace pumice {
namespace {

constexpr size_t kMostBound = 16;  // choices of shapes that are remembered

std::string sizes_text(const std::vector<int64_t>& sizes, const std::vector<std::string>& names) {
  std::string text = "[";
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    const bool named = axis < names.size() && !names[axis].empty();
    text += (axis ? ", " : "") + (sizes[axis] != kUnknownSize ? std::to_string(sizes[axis]) : named ? names[axis] : "?");
  }
  return text + "]";
}

size_t byte_count(const TensorDesc& desc) {
  return desc.element_bytes();
}

bool same_values(const std::optional<HostTensor>& known, const std::byte* given) {
  return !known || std::memcmp(known->data, given, byte_count(known->desc)) == 0;
}

ProgramValue program_value(const std::string& name, const GraphValue& value) {
  return {name, value.dtype, value.shape, value.dimension_names};
}

}  // namespace

// All that a program holds. `mutex` guards what is bound and the report's kernels; the rest is fixed once made.
struct Program::State {
  std::shared_ptr<Context> context;
  ProgramGraph graph;
  Weights weights;
  BufferRange persistent;
  std::shared_ptr<InitializationState> initialised = std::make_shared<InitializationState>();
  std::vector<ProgramValue> inputs, outputs;
  bool reads_values = false;

  mutable std::mutex mutex;
  std::list<std::shared_ptr<BoundProgram>> bound;  // the last used first
  std::unordered_set<const KernelVariant*> made;   // kernels whose pipelines exist
  std::vector<std::string> kernels;                // by row of the report
  std::atomic<bool> closed{false};

  State(std::shared_ptr<Context> owner, const Graph& source, const ProgramOptions& options)
      : context(std::move(owner)), graph(prepare(source, options)), weights(place_weights(context, graph)) {
    for (const ValueId input : graph.inputs) inputs.push_back(program_value(graph.value(input).name, graph.value(input)));
    for (const auto& [name, value] : graph.outputs) outputs.push_back(program_value(name, graph.value(value)));
    reads_values = std::find(graph.value_inputs.begin(), graph.value_inputs.end(), true) != graph.value_inputs.end();
    kernels.resize(graph.report.size());
  }

  // Uploads the constants and packs them on the device, once.
  void initialise() {
    Plan plan;
    plan.name = graph.name;
    for (const auto& input : inputs) plan.inputs.push_back({input.name, {}});
    plan.inputs.insert(plan.inputs.end(), weights.slots.begin(), weights.slots.end());
    plan.initialization = weights.initialization;
    make_pipelines(weights.initialization->steps);
    const auto target = std::make_shared<CompiledOperator>(context, std::move(plan), initialised);
    const auto initializer = std::make_shared<Initializer>(context, std::vector<std::shared_ptr<const CompiledOperator>>{target});
    BufferArray sources(inputs.size());
    for (const HostTensor& source : weights.sources) sources.push_back(staged(source));
    BindingTable table(initializer);
    table.bind_inputs({sources});
    if (const uint64_t bytes = weights.initialization->persistent_bytes) {
      persistent = {Buffer::create(context, bytes), 0, bytes};
      table.bind_outputs({persistent});
    }
    CommandList list(context);
    list.dispatch(initializer, table);
    list.commit();
    context->wait(list.exec().id());
    release_constants();
  }

  BufferRange staged(const HostTensor& source) const {
    const auto buffer = Buffer::create(context, source.desc.bytes(), Heap::upload);
    if (buffer->bytes() > 0) std::memcpy(buffer->map(), source.data, byte_count(source.desc));
    return {buffer, 0, buffer->bytes()};
  }

  // The device has the weights: the host keeps only what it computes with.
  void release_constants() {
    std::vector<bool> needed(graph.values.size(), false);
    for (const ProgramNode& node : graph.nodes)
      for (size_t k = 0; k < node.inputs.size(); ++k)
        if (node.inputs[k] != kAbsent && (node.on_host || (k < 32 && (node.row->host_inputs >> k & 1))))
          needed[static_cast<size_t>(node.inputs[k])] = true;
    for (size_t i = 0; i < graph.values.size(); ++i) {
      auto& constant = graph.values[i].constant;
      if (!constant || needed[i]) continue;
      constant->owner.reset();
      constant->data = nullptr;
    }
    weights.sources.clear();
  }

  void make_pipelines(const std::vector<PlannedStep>& steps) {
    std::vector<const KernelVariant*> missing;
    for (const PlannedStep& step : steps)
      if (made.insert(step.kernel.get()).second) missing.push_back(step.kernel.get());
    if (!missing.empty()) create_pipelines(missing);
  }

  void check_open() const {
    if (closed) throw StateError("program '" + graph.name + "' is closed");
  }

  void check_shapes(std::span<const ShapeView> shapes, std::span<const std::byte* const> values) const {
    if (shapes.size() != inputs.size())
      throw BindingError("K4", "inputs", graph.name, std::to_string(inputs.size()) + " inputs", std::to_string(shapes.size()));
    if (reads_values && values.size() != inputs.size())
      throw BindingError("K3", "inputs", graph.name, "the elements of the inputs: shapes depend on them", "their shapes alone");
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

  bool matches(const BoundProgram& one, std::span<const ShapeView> shapes, std::span<const std::byte* const> values) const {
    const BindInputs& key = one.key();
    if (key.shapes.size() != shapes.size()) return false;
    for (size_t i = 0; i < shapes.size(); ++i)
      if (!std::equal(shapes[i].begin(), shapes[i].end(), key.shapes[i].begin(), key.shapes[i].end())) return false;
    if (!reads_values) return true;
    if (values.size() != key.values.size()) return false;
    for (size_t i = 0; i < values.size(); ++i)
      if (!same_values(key.values[i], values[i])) return false;
    return true;
  }

  // Binds on first use; the least recently used binding is forgotten where there are too many.
  std::shared_ptr<BoundProgram> bind(std::span<const ShapeView> shapes, std::span<const std::byte* const> values) {
    check_open();
    const std::lock_guard lock(mutex);
    for (auto one = bound.begin(); one != bound.end(); ++one)
      if (matches(**one, shapes, values)) {
        bound.splice(bound.begin(), bound, one);
        return bound.front();
      }
    check_shapes(shapes, values);
    BindInputs key;
    for (size_t i = 0; i < shapes.size(); ++i) {
      key.shapes.emplace_back(shapes[i].begin(), shapes[i].end());
      if (reads_values)
        key.values.push_back(graph.value_inputs[i]
                                 ? std::optional(HostTensor::copy_of(TensorDesc(inputs[i].dtype, key.shapes[i]), values[i]))
                                 : std::nullopt);
    }
    BoundPlan plan = bind_plan(context, graph, weights, key);
    for (const auto& segment : plan.plan.segments)
      for (const auto& block : segment.blocks) make_pipelines(block.steps);
    kernels = plan.kernels;
    auto compiled = std::make_shared<CompiledOperator>(context, std::move(plan.plan), initialised);
    bound.push_front(std::make_shared<BoundProgram>(std::move(key), std::move(compiled), persistent, inputs.size(), plan));
    if (bound.size() > kMostBound) bound.pop_back();
    return bound.front();
  }
};

Program::Program(std::shared_ptr<Context> context, const Graph& graph, const ProgramOptions& options)
    : state_(std::make_unique<State>(std::move(context), graph, options)) {
  state_->initialise();
  // Where all sizes are known, what cannot be lowered is refused here and not at the first call.
  std::vector<ShapeView> shapes;
  for (const auto& input : state_->inputs)
    if (input.shape && std::find(input.shape->begin(), input.shape->end(), kUnknownSize) == input.shape->end())
      shapes.emplace_back(*input.shape);
  if (shapes.size() == state_->inputs.size() && !state_->reads_values) state_->bind(shapes, {});
}

Program::~Program() = default;

const std::string& Program::name() const {
  return state_->graph.name;
}
const std::vector<ProgramValue>& Program::inputs() const {
  return state_->inputs;
}
const std::vector<ProgramValue>& Program::outputs() const {
  return state_->outputs;
}
const std::shared_ptr<Context>& Program::context() const {
  return state_->context;
}
bool Program::reads_values(size_t i) const {
  return state_->graph.value_inputs[i];
}
BufferRange Program::persistent() const {
  return state_->persistent;
}
bool Program::closed() const {
  return state_->closed;
}

std::shared_ptr<Execution> Program::execution(std::span<const ShapeView> shapes, std::span<const std::byte* const> values, bool wait,
                                              std::optional<double> timeout_seconds, const std::function<void()>& interrupted) {
  return state_->bind(shapes, values)->lease(wait, timeout_seconds, interrupted);
}

std::shared_ptr<CompiledOperator> Program::compiled(std::span<const ShapeView> shapes, std::span<const std::byte* const> values) {
  return state_->bind(shapes, values)->compiled();
}

std::vector<ReportRow> Program::report() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<ReportRow> rows = state_->graph.report;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (const auto dtype = rows[i].dtype)
      rows[i].precision = is_working_float(*dtype) ? pumice::name(storage_of(state_->context->info(), *dtype)) : pumice::name(*dtype);
    const std::string& kernel = state_->kernels[i];
    if (kernel == "view" || kernel == "host")
      rows[i].note = kernel;
    else
      rows[i].kernel = kernel;
  }
  return rows;
}

ArenaReport Program::arena(std::span<const ShapeView> shapes, std::span<const std::byte* const> values) {
  return state_->bind(shapes, values)->arena(state_->graph);
}

std::vector<StepReport> Program::plan(std::span<const ShapeView> shapes, std::span<const std::byte* const> values) {
  return state_->bind(shapes, values)->steps(state_->graph);
}

std::vector<std::pair<std::string, double>> Program::profile(std::span<const ShapeView> shapes, std::span<const std::byte* const> inputs) {
  const auto execution = state_->bind(shapes, inputs)->timed();
  for (size_t i = 0; i < inputs.size(); ++i)
    if (const size_t bytes = byte_count(execution->input_desc(i))) std::memcpy(execution->input(i), inputs[i], bytes);
  context()->wait(execution->start().id());  // the first run compiles, on some drivers
  context()->wait(execution->start().id());
  return execution->list().recording()->dispatch_times();
}

void Program::close() {
  if (state_->closed.exchange(true)) return;
  const std::lock_guard lock(state_->mutex);
  state_->bound.clear();
  state_->persistent = {};
}

std::shared_ptr<Program> Graph::compile(std::shared_ptr<Context> context, const ProgramOptions& options) {
  finish();
  for (const ValueId input : inputs_)
    if (const GraphValue& value = values_[static_cast<size_t>(input)]; value.owned)
      throw GraphError(value.name, "an owned input is bound to an initializer, which programs do not have: compile_operator()", "O6");
  return std::make_shared<Program>(std::move(context), *this, options);
}

}  // namespace pumice
