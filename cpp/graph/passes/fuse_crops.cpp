#include <algorithm>
#include <cstdint>

#include "graph/passes/passes.h"
#include "graph/passes/use_def_chains.h"

namespace pumice {
namespace {

using Integers = std::vector<int64_t>;

// Number of elements cropped off each end of one axis.
struct CropBorder {
  int64_t begin = 0, end = 0;
};

class CropMatcher {
 public:
  explicit CropMatcher(const ProgramGraph& graph) : graph_(graph), use_def_(graph) {}

  // Returns the ConvTranspose that a Slice crops, and its new pads; null if they cannot be fused.
  std::pair<const ProgramNode*, Integers> find_fusion(const ProgramNode& slice) const {
    const ProgramNode* conv = slice.row->name == "Slice" ? use_def_.find_producer(slice.inputs[0], "ConvTranspose") : nullptr;
    if (!conv || !use_def_.find_only_reader(slice.inputs[0]) || conv->attributes.has("output_shape")) return {};
    if (conv->attributes.text("auto_pad", "NOTSET") != "NOTSET") return {};
    const auto& weights = graph_.value(conv->inputs[1]).shape;
    if (!weights || weights->size() < 3) return {};
    const auto borders = find_crop_borders(slice, weights->size());
    if (!borders) return {};
    const size_t axes = weights->size() - 2;
    Integers pads = conv->attributes.integers("pads", Integers(2 * axes, 0));
    if (pads.size() != 2 * axes) return {};
    for (size_t i = 0; i < axes; ++i) {
      pads[i] += (*borders)[i].begin, pads[axes + i] += (*borders)[i].end;
      if (min_output_size(*conv, *weights, i) - pads[i] - pads[axes + i] < 1) return {};
    }
    return {conv, pads};
  }

 private:
  std::optional<Integers> read_constant_list(const ProgramNode& slice, size_t input, Integers fallback) const {
    const ValueId id = input < slice.inputs.size() ? slice.inputs[input] : kAbsent;
    if (id == kAbsent) return fallback;
    const auto& constant = graph_.value(id).constant;
    if (!constant) return {};
    return constant->as_int64();
  }

  // Returns the borders that a Slice crops, for each spatial axis; nullopt if it does anything else or the borders are unknown.
  std::optional<std::vector<CropBorder>> find_crop_borders(const ProgramNode& slice, size_t rank) const {
    constexpr int64_t kMaxBorder = 1 << 20, kWhole = INT32_MAX;
    const auto starts = read_constant_list(slice, 1, {}), ends = read_constant_list(slice, 2, {});
    if (!starts || !ends || starts->size() != ends->size()) return {};
    Integers first(starts->size());
    for (size_t k = 0; k < first.size(); ++k) first[k] = static_cast<int64_t>(k);
    const auto axes = read_constant_list(slice, 3, first), steps = read_constant_list(slice, 4, Integers(starts->size(), 1));
    if (!axes || !steps || axes->size() != starts->size() || steps->size() != starts->size()) return {};
    std::vector<CropBorder> borders(rank - 2);
    std::vector<bool> is_listed(rank, false);
    for (size_t k = 0; k < starts->size(); ++k) {
      const int64_t axis = (*axes)[k] < 0 ? (*axes)[k] + static_cast<int64_t>(rank) : (*axes)[k], start = (*starts)[k], end = (*ends)[k];
      if (axis < 2 || axis >= static_cast<int64_t>(rank) || is_listed[static_cast<size_t>(axis)] || (*steps)[k] != 1) return {};
      is_listed[static_cast<size_t>(axis)] = true;
      if (start < 0 || start > kMaxBorder || end < -kMaxBorder || (end >= 0 && end < kWhole)) return {};
      borders[static_cast<size_t>(axis) - 2] = {start, end < 0 ? -end : 0};
    }
    return borders;
  }

  // Returns the output size of a ConvTranspose along an axis for an input of size 1, without pads.
  static int64_t min_output_size(const ProgramNode& conv, const Shape& weights, size_t i) {
    const auto number = [&](std::string_view name, int64_t fallback) {
      const Integers values = conv.attributes.integers(name);
      return i < values.size() ? values[i] : fallback;
    };
    return (number("kernel_shape", weights[i + 2]) - 1) * number("dilations", 1) + 1 + number("output_padding", 0);
  }

  const ProgramGraph& graph_;
  UseDefChains use_def_;
};

}  // namespace

void fuse_crops(ProgramGraph& graph, const FusionSet& fusions) {
  if (!fusions.has(Fusion::crop)) return;
  const CropMatcher matcher(graph);
  std::vector<bool> removed(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto [conv_node, pads] = matcher.find_fusion(graph.nodes[i]);
    if (!conv_node) continue;
    ProgramNode& conv = graph.nodes[static_cast<size_t>(conv_node - graph.nodes.data())];
    conv.attributes.set("pads", pads);
    conv.outputs[0] = graph.nodes[i].outputs[0];
    graph.mark_fused(graph.nodes[i].report, conv.report, Fusion::crop);
    removed[i] = true;
  }
  graph.erase_nodes(removed);
}

}  // namespace pumice
