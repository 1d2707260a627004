#include "graph/passes/fuse_crops.h"

#include <algorithm>
#include <cstdint>

#include "graph/passes/use_def_chains.h"

namespace pumice {
namespace {

using Integers = std::vector<int64_t>;

// Number of elements cropped off each end of an axis.
struct Border {
  int64_t begin = 0, end = 0;
};

class CropSearch {
 public:
  explicit CropSearch(const ProgramGraph& graph) : graph_(graph), flow_(graph) {}

  // Returns the ConvTranspose that a Slice crops and its new pads; null if they cannot be fused.
  std::pair<const ProgramNode*, Integers> joined(const ProgramNode& slice) const {
    const ProgramNode* conv = slice.row->name == "Slice" ? flow_.producer(slice.inputs[0], "ConvTranspose") : nullptr;
    if (!conv || !flow_.only_reader(slice.inputs[0]) || conv->attributes.has("output_shape")) return {};
    if (conv->attributes.text("auto_pad", "NOTSET") != "NOTSET") return {};
    const auto& weights = graph_.value(conv->inputs[1]).shape;
    if (!weights || weights->size() < 3) return {};
    const auto borders = borders_of(slice, weights->size());
    if (!borders) return {};
    const size_t axes = weights->size() - 2;
    Integers pads = conv->attributes.integers("pads", Integers(2 * axes, 0));
    if (pads.size() != 2 * axes) return {};
    for (size_t i = 0; i < axes; ++i) {
      pads[i] += (*borders)[i].begin, pads[axes + i] += (*borders)[i].end;
      if (least_size(*conv, *weights, i) - pads[i] - pads[axes + i] < 1) return {};
    }
    return {conv, pads};
  }

 private:
  std::optional<Integers> list(const ProgramNode& slice, size_t input, Integers otherwise) const {
    const ValueId id = input < slice.inputs.size() ? slice.inputs[input] : kAbsent;
    if (id == kAbsent) return otherwise;
    const auto& constant = graph_.value(id).constant;
    if (!constant) return {};
    return constant->as_int64();
  }

  // Returns the borders that a Slice crops, by spatial axis; nullopt if it does anything else or the cropped sizes are unknown.
  std::optional<std::vector<Border>> borders_of(const ProgramNode& slice, size_t rank) const {
    constexpr int64_t kMost = 1 << 20, kWhole = INT32_MAX;
    const auto starts = list(slice, 1, {}), ends = list(slice, 2, {});
    if (!starts || !ends || starts->size() != ends->size()) return {};
    Integers first(starts->size());
    for (size_t k = 0; k < first.size(); ++k) first[k] = static_cast<int64_t>(k);
    const auto axes = list(slice, 3, first), steps = list(slice, 4, Integers(starts->size(), 1));
    if (!axes || !steps || axes->size() != starts->size() || steps->size() != starts->size()) return {};
    std::vector<Border> borders(rank - 2);
    std::vector<bool> seen(rank, false);
    for (size_t k = 0; k < starts->size(); ++k) {
      const int64_t axis = (*axes)[k] < 0 ? (*axes)[k] + static_cast<int64_t>(rank) : (*axes)[k], start = (*starts)[k], end = (*ends)[k];
      if (axis < 2 || axis >= static_cast<int64_t>(rank) || seen[static_cast<size_t>(axis)] || (*steps)[k] != 1) return {};
      seen[static_cast<size_t>(axis)] = true;
      if (start < 0 || start > kMost || end < -kMost || (end >= 0 && end < kWhole)) return {};
      borders[static_cast<size_t>(axis) - 2] = {start, end < 0 ? -end : 0};
    }
    return borders;
  }

  // Returns how many elements a ConvTranspose produces along an axis from one input element, without pads.
  static int64_t least_size(const ProgramNode& conv, const Shape& weights, size_t i) {
    const auto number = [&](std::string_view name, int64_t otherwise) {
      const Integers given = conv.attributes.integers(name);
      return i < given.size() ? given[i] : otherwise;
    };
    return (number("kernel_shape", weights[i + 2]) - 1) * number("dilations", 1) + 1 + number("output_padding", 0);
  }

  const ProgramGraph& graph_;
  ValueFlow flow_;
};

}  // namespace

void join_crops(ProgramGraph& graph, const FusionSet& wanted) {
  if (!wanted.has(Fusion::crop)) return;
  const CropSearch search(graph);
  std::vector<bool> gone(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto [found, pads] = search.joined(graph.nodes[i]);
    if (!found) continue;
    ProgramNode& conv = graph.nodes[static_cast<size_t>(found - graph.nodes.data())];
    conv.attributes.set("pads", pads);
    conv.outputs[0] = graph.nodes[i].outputs[0];
    graph.absorb(graph.nodes[i].report, conv.report, Fusion::crop);
    gone[i] = true;
  }
  graph.erase_nodes(gone);
}

}  // namespace pumice
