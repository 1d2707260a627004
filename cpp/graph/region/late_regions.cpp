#include "graph/region/late_regions.h"

#include <algorithm>

#include "core/error.h"
#include "graph/nnapi/late_operations.h"
#include "graph/passes/passes.h"

namespace pumice {
namespace {

constexpr size_t kMostMade = 8;  // each has weights of its own

}  // namespace

LateRegions::LateRegions(std::shared_ptr<Context> context, const ProgramGraph& graph, const ProgramOptions& options, std::string prefix)
    : context_(std::move(context)), graph_(graph), options_(options), prefix_(std::move(prefix)) {
  options_.progress = {};  // they are the compilation's, which is over
  options_.memory.reset();
}

bool LateRegions::matches(const Made& made, std::span<const ShapeView> shapes, std::span<const std::byte* const> values) const {
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (made.shapes[i].size() != shapes[i].size()) return false;
    if (made.known != Known::ranks && !std::ranges::equal(made.shapes[i], shapes[i])) return false;
    const auto& known = made.values[i];
    if (known && (i >= values.size() || !same_elements(*known, {known->desc, {}, values[i]}))) return false;
  }
  return true;
}

// With the sizes that the graph declares, or those at hand.
std::shared_ptr<Region> LateRegions::make(Made& made) const {
  std::vector<std::optional<Shape>> shapes;
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const auto& declared = graph_.value(graph_.inputs[i]).shape;
    if (made.known != Known::ranks)
      shapes.emplace_back(made.shapes[i]);
    else if (declared && !graph_.made_inputs[i])
      shapes.push_back(declared);
    else
      shapes.emplace_back(Shape(made.shapes[i].size(), kUnknownSize));
  }
  const auto graph = expanded(graph_, shapes, made.values);
  GraphPart part = whole(*graph);
  const auto late = std::ranges::find_if(graph->nodes(), is_late);
  if (late != graph->nodes().end() && made.known != Known::elements) return {};
  if (late != graph->nodes().end()) refuse_late(*late);
  part.host_outputs = graph_.host_outputs;
  return std::make_shared<Region>(context_, *graph, part, options_, prefix_);
}

std::shared_ptr<Region> LateRegions::at(std::span<const ShapeView> shapes, std::span<const std::byte* const> values) {
  const std::lock_guard lock(mutex_);
  for (auto one = made_.begin(); one != made_.end(); ++one)
    if (matches(*one, shapes, values)) {
      made_.splice(made_.begin(), made_, one);
      return made_.front().region;
    }
  Made made{Known::ranks, {}, std::vector<std::optional<HostTensor>>(shapes.size()), nullptr};
  for (const ShapeView& shape : shapes) made.shapes.emplace_back(shape.begin(), shape.end());
  for (const Known known : {Known::ranks, Known::sizes, Known::elements}) {
    made.known = known;
    for (size_t i = 0; known == Known::elements && i < values.size(); ++i)
      if (graph_.value_inputs[i])
        made.values[i] = HostTensor::copy_of(TensorDesc(graph_.value(graph_.inputs[i]).dtype, made.shapes[i]), values[i]);
    if ((made.region = make(made))) break;
  }
  made_.push_front(std::move(made));
  if (made_.size() > kMostMade) made_.pop_back();
  return made_.front().region;
}

std::optional<std::vector<ReportRow>> LateRegions::report() const {
  const std::lock_guard lock(mutex_);
  return made_.empty() ? std::nullopt : std::optional(made_.front().region->report());
}

void LateRegions::close() {
  const std::lock_guard lock(mutex_);
  for (const Made& one : made_) one.region->close();
  made_.clear();
}

}  // namespace pumice
