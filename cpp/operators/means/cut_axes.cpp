#include "operators/means/cut_axes.h"

#include <algorithm>
#include <array>

#include "operators/row/families.h"
#include "operators/row/operator_table.h"

namespace pumice {

int64_t CutWindow::extent() const {
  return (geometry.kernel[spatial] - 1) * geometry.dilations[spatial] + 1;
}

AxisPart CutWindow::read(const AxisPart& made) const {
  const int64_t stride = geometry.strides[spatial], padded = made.begin + geometry.pads_begin[spatial];
  if (!transposed) return {made.begin * stride - geometry.pads_begin[spatial], (made.count - 1) * stride + extent()};
  // From the first input that reaches the part, or the last one that begins before it, on.
  const int64_t begin = padded < extent() ? 0 : std::min((padded - extent() + stride) / stride, padded / stride);
  return {begin, (padded + made.count - 1) / stride + 1 - begin};
}

AxisPart CutWindow::read_inside(const AxisPart& made) const {
  const AxisPart all = read(made);
  const int64_t begin = std::clamp<int64_t>(all.begin, 0, size), end = std::clamp<int64_t>(all.begin + all.count, 0, size);
  return {begin, end - begin};
}

int64_t CutWindow::most_read(int64_t count) const {
  const int64_t stride = geometry.strides[spatial];
  return std::min(size, transposed ? (count + extent() - 2) / stride + 2 : (count - 1) * stride + extent());
}

void CutWindow::set_pads(const AxisPart& made, Attributes& attributes) const {
  const size_t axes = geometry.kernel.size();
  std::vector<int64_t> pads = geometry.pads_begin, more(axes, 0);
  pads.insert(pads.end(), geometry.pads_end.begin(), geometry.pads_end.end());
  const AxisPart inside = read_inside(made);
  if (transposed) {
    const int64_t stride = geometry.strides[spatial], whole = (inside.count - 1) * stride + extent();
    const int64_t before = made.begin + geometry.pads_begin[spatial] - inside.begin * stride, behind = whole - before - made.count;
    more = attributes.integers("output_padding");
    more.resize(axes, 0);
    pads[spatial] = before, pads[axes + spatial] = std::max<int64_t>(behind, 0), more[spatial] = std::max<int64_t>(-behind, 0);
    attributes.set("output_padding", more);
  } else {
    const AxisPart all = read(made);
    pads[spatial] = inside.begin - all.begin;
    pads[axes + spatial] = all.begin + all.count - inside.begin - inside.count;
  }
  attributes.set("pads", pads);
  if (attributes.has("auto_pad")) attributes.set("auto_pad", std::string("NOTSET"));
}

int broadcast_axis(const TensorDesc& operand, int axis, int rank) {
  const int own = axis - (rank - operand.rank());
  return own >= 0 && operand.shape[static_cast<size_t>(own)] > 1 ? own : kWhole;
}

namespace {

using Rule = void (*)(const LowerContext&, std::vector<CutAxis>&);

constexpr size_t kData = 0;

// An axis of input 0 and of every output there is, with all other operands whole.
CutAxis own_axis(const LowerContext& node, int axis) {
  CutAxis made{node.input(kData).shape[static_cast<size_t>(axis)], std::vector<int>(node.inputs.size(), kWhole), {}, {}};
  made.inputs[kData] = axis;
  for (const auto& output : node.outputs) made.outputs.push_back(output ? axis : kWhole);
  return made;
}

int counted_axis(int64_t axis, int rank) {
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

void of_maps(const LowerContext& node, std::vector<CutAxis>& axes) {
  const TensorDesc& y = node.output(0);
  const bool casts = node.row->lower == &lower_cast;  // a second operand tells a dtype alone
  for (int axis = 0; axis < y.rank(); ++axis) {
    CutAxis& cut = axes.emplace_back(y.shape[static_cast<size_t>(axis)], std::vector<int>(node.inputs.size(), kWhole), std::vector{axis});
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.has_input(i) && (i == kData || !casts)) cut.inputs[i] = broadcast_axis(node.input(i), axis, y.rank());
  }
}

// All axes of input 0 but those that `is_bound` names.
template <typename IsBound>
void others(const LowerContext& node, std::vector<CutAxis>& axes, const IsBound& is_bound) {
  for (int axis = 0; axis < node.input(kData).rank(); ++axis)
    if (!is_bound(axis)) axes.push_back(own_axis(node, axis));
}

// All axes but the one that is an attribute.
void beside_axis(const LowerContext& node, std::vector<CutAxis>& axes) {
  const int bound = counted_axis(node.attributes->integer("axis", -1), node.input(kData).rank());
  others(node, axes, [&](int axis) { return axis == bound; });
}

void beside_scan(const LowerContext& node, std::vector<CutAxis>& axes) {
  if (!node.host(1)) return;
  const int bound = counted_axis(node.host(1)->as_int64().at(0), node.input(kData).rank());
  others(node, axes, [&](int axis) { return axis == bound; });
}

void before_axis(const LowerContext& node, std::vector<CutAxis>& axes) {
  const int bound = counted_axis(node.attributes->integer("axis", -1), node.input(kData).rank());
  others(node, axes, [&](int axis) { return axis >= bound; });
}

void beside_listed(const LowerContext& node, std::vector<CutAxis>& axes) {
  const int rank = node.input(kData).rank();
  std::vector<int> bound;
  for (const int64_t axis : node.attributes->integers("axes", {0, 2, 3})) bound.push_back(counted_axis(axis, rank));
  others(node, axes, [&](int axis) { return std::ranges::find(bound, axis) != bound.end(); });
}

void images(const LowerContext& node, std::vector<CutAxis>& axes) {
  axes.push_back(own_axis(node, 0));
}

// Axes without padding.
void of_pads(const LowerContext& node, std::vector<CutAxis>& axes) {
  const int rank = node.input(kData).rank();
  if (node.has_input(3) || !node.host(1)) return;
  const std::vector<int64_t> pads = node.host(1)->as_int64();
  const auto padding = [&](int axis) { return pads.at(static_cast<size_t>(axis)); };
  others(node, axes, [&](int axis) { return padding(axis) != 0 || padding(axis + rank) != 0; });
}

void beside_channels(const LowerContext& node, std::vector<CutAxis>& axes) {
  others(node, axes, [](int axis) { return axis == 1; });
}

void before_matrices(const LowerContext& node, std::vector<CutAxis>& axes) {
  const int rank = node.input(kData).rank();
  others(node, axes, [&](int axis) { return axis >= rank - 2; });
}

void planes(const LowerContext& node, std::vector<CutAxis>& axes) {
  for (const int axis : {0, 1}) axes.push_back(own_axis(node, axis));
}

// Axes that stay; `reduced` is asked by axis of input 0.
template <typename IsReduced>
void kept(const LowerContext& node, std::vector<CutAxis>& axes, const IsReduced& reduced) {
  const TensorDesc &x = node.input(kData), &y = node.output(0);
  int made = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (!reduced(axis)) {
      axes.push_back(own_axis(node, axis));
      axes.back().outputs = {made};
    }
    if (!reduced(axis) || x.rank() == y.rank()) ++made;
  }
}

void of_reductions(const LowerContext& node, std::vector<CutAxis>& axes) {
  const int rank = node.input(kData).rank();
  std::vector<int64_t> given = node.attributes->integers("axes");
  if (node.has_input(1)) {
    if (!node.host(1)) return;
    given = node.host(1)->as_int64();
  }
  const bool none = given.empty() && node.attributes->integer("noop_with_empty_axes", 0) != 0;
  kept(node, axes, [&](int axis) {
    return given.empty() ? !none : std::ranges::any_of(given, [&](int64_t each) { return counted_axis(each, rank) == axis; });
  });
}

void of_positions(const LowerContext& node, std::vector<CutAxis>& axes) {
  const int bound = counted_axis(node.attributes->integer("axis", 0), node.input(kData).rank());
  kept(node, axes, [&](int axis) { return axis == bound; });
}

// Scale and zero point are numbers, or lie along one axis, in blocks of it perhaps.
void of_quantizations(const LowerContext& node, std::vector<CutAxis>& axes) {
  const TensorDesc& x = node.input(kData);
  const bool one = node.input(1).elements() == 1, blocks = node.attributes->integer("block_size", 0) != 0;
  const int along = counted_axis(node.attributes->integer("axis", 1), x.rank());
  others(node, axes, [&](int axis) { return blocks && axis == along; });
  for (CutAxis& cut : axes)
    for (size_t i = 1; i < node.inputs.size() && !one; ++i) {
      if (!node.has_input(i)) continue;
      if (blocks) cut.inputs[i] = cut.inputs[kData];
      if (!blocks && cut.inputs[kData] == along) cut.inputs[i] = 0;
    }
}

// Scales and the like are vectors over the channels.
void of_channel_norms(const LowerContext& node, std::vector<CutAxis>& axes) {
  const bool in_images = node.row->lower != &lower_batch_norm;  // means are those of a plane
  others(node, axes, [&](int axis) { return in_images && axis > 1; });
  for (CutAxis& cut : axes) {
    if (cut.inputs[kData] != 1) continue;
    cut.packs_vectors = true;
    for (size_t i = 1; i < node.inputs.size() && i < 5; ++i)
      if (node.has_input(i) && node.input(i).rank() == 1) cut.inputs[i] = 0;
  }
}

// By whole groups of channels, for each of which the scale and the bias have a number, or for each channel.
void of_group_norms(const LowerContext& node, std::vector<CutAxis>& axes) {
  images(node, axes);
  const int64_t channels = node.input(kData).shape[1], groups = node.attributes->integer("num_groups", 1);
  if (groups < 2 || node.input(1).elements() != channels || node.input(2).elements() != channels) return;
  CutAxis& cut = axes.emplace_back(own_axis(node, 1));
  cut.inputs[1] = cut.inputs[2] = 0;
  cut.size = groups, cut.unit = channels / groups;
  cut.counts = "num_groups";
  cut.packs_vectors = true;
}

void add_windows(const LowerContext& node, const WindowGeometry& geometry, std::vector<CutAxis>& axes) {
  const TensorDesc &x = node.input(kData), &y = node.output(0);
  for (size_t i = 0; i < geometry.kernel.size(); ++i) {
    const int axis = static_cast<int>(i) + 2;
    CutAxis& cut = axes.emplace_back(own_axis(node, axis));
    cut.size = y.shape[i + 2];
    cut.window = CutWindow{geometry, i, x.shape[i + 2], node.row->lower == &lower_conv_transpose};
  }
}

// Places of the largest elements are counted over the whole input.
void of_pools(const LowerContext& node, std::vector<CutAxis>& axes) {
  if (node.has_output(1)) return;
  planes(node, axes);
  add_windows(node, pool_geometry(*node.attributes, node.node, node.input(kData).shape), axes);
}

void of_convolutions(const LowerContext& node, std::vector<CutAxis>& axes) {
  const bool quantized = node.row->lower == &lower_qlinear_conv;
  images(node, axes);
  add_windows(node, conv_geometry(*node.attributes, node.node, node.input(kData).shape, node.input(quantized ? 3 : 1).shape), axes);
}

void of_transposed_convolutions(const LowerContext& node, std::vector<CutAxis>& axes) {
  images(node, axes);
  if (!node.attributes->integers("output_shape").empty()) return;
  add_windows(node, conv_transpose_geometry(*node.attributes, node.node, node.input(kData).shape, node.input(1).shape), axes);
}

// Images, and heads that have keys and values of their own.
void of_attentions(const LowerContext& node, std::vector<CutAxis>& axes) {
  constexpr size_t kMask = 3, kPastKey = 4, kCounts = 6;
  const bool has_heads = node.input(kData).rank() == 4 && node.input(1).rank() == 4 && node.input(kData).shape[1] == node.input(1).shape[1];
  for (int axis = 0; axis < (has_heads ? 2 : 1); ++axis) {
    CutAxis& cut = axes.emplace_back(own_axis(node, axis));
    for (size_t i = 1; i < node.inputs.size(); ++i)
      if (node.has_input(i))
        cut.inputs[i] = i == kMask ? broadcast_axis(node.input(i), axis, 4) : i == kCounts && axis != 0 ? kWhole : axis;
  }
  // Rows of queries, where all see the same keys.
  const Attributes& attributes = *node.attributes;
  const bool limits = attributes.integer("is_causal", 0) != 0 || attributes.integer("left_window_size", -1) >= 0 ||
                      attributes.integer("right_window_size", -1) >= 0;
  if (limits || node.has_input(kPastKey) || node.has_output(1) || node.has_output(2)) return;
  const int row_axis = node.input(kData).rank() - 2;
  CutAxis& cut = axes.emplace_back(own_axis(node, row_axis));
  if (node.has_output(3)) cut.outputs[3] = 2;
  if (node.has_input(kMask)) cut.inputs[kMask] = broadcast_axis(node.input(kMask), 2, 4);
}

// Rows of the left factor and columns of the right one.
void of_matrix_products(const LowerContext& node, std::vector<CutAxis>& axes) {
  const bool transposed[] = {node.attributes->integer("transA", 0) != 0, node.attributes->integer("transB", 0) != 0};
  for (const int axis : {0, 1}) {
    CutAxis& cut =
        axes.emplace_back(node.output(0).shape[static_cast<size_t>(axis)], std::vector<int>(node.inputs.size(), kWhole), std::vector{axis});
    cut.inputs[static_cast<size_t>(axis)] = transposed[axis] ? 1 - axis : axis;
    if (node.has_input(2)) cut.inputs[2] = broadcast_axis(node.input(2), axis, 2);
  }
}

// The axes of each operand before those of its rows and their elements.
void of_recognised_attentions(const LowerContext& node, std::vector<CutAxis>& axes) {
  const Attributes& attributes = *node.attributes;
  if (attributes.integer("grouped") != 0 || attributes.integer("short_mask") != 0) return;
  const std::vector<int64_t> q = attributes.integers("q_axes"), k = attributes.integers("k_axes"), v = attributes.integers("v_axes"),
                             y = attributes.integers("y_axes");
  if (k.size() != q.size() || v.size() != q.size() || y.size() != q.size()) return;
  const auto axis_of = [](const std::vector<int64_t>& order, size_t place) { return static_cast<int>(order[place]); };
  for (size_t place = 0; place + 2 < q.size(); ++place) {
    CutAxis& cut = axes.emplace_back(own_axis(node, axis_of(q, place)));
    cut.inputs[1] = axis_of(k, place), cut.inputs[2] = axis_of(v, place);
    cut.outputs = {axis_of(y, place)};
    if (node.has_input(3)) cut.inputs[3] = broadcast_axis(node.input(3), static_cast<int>(place), static_cast<int>(q.size()));
  }
}

// Axes that keep their size by their own scale.
void of_resizes(const LowerContext& node, std::vector<CutAxis>& axes) {
  const bool by_sizes = node.host(3) && node.host(3)->desc.elements() > 0, has_axes = node.attributes->has("axes");
  if (by_sizes || has_axes || !node.host(2) || node.attributes->text("coordinate_transformation_mode") == "tf_crop_and_resize") return;
  const std::vector<double> scales = node.host(2)->as_double();
  others(node, axes, [&](int axis) { return scales.at(static_cast<size_t>(axis)) != 1; });
}

void of_grid_samples(const LowerContext& node, std::vector<CutAxis>& axes) {
  const TensorDesc& grid = node.input(1);
  images(node, axes);
  axes.back().inputs[1] = 0;
  axes.push_back(own_axis(node, 1));
  for (int axis = 1; axis + 1 < grid.rank(); ++axis)
    axes.push_back({grid.shape[static_cast<size_t>(axis)], {kWhole, axis}, {axis + 1}, {}});
}

// Along the axis that is looked up the table stays whole; along others it may be longer than the indices.
void of_gathered_elements(const LowerContext& node, std::vector<CutAxis>& axes) {
  const TensorDesc& indices = node.input(1);
  const int bound = counted_axis(node.attributes->integer("axis", 0), indices.rank());
  for (int axis = 0; axis < indices.rank(); ++axis)
    axes.push_back({indices.shape[static_cast<size_t>(axis)], {axis == bound ? kWhole : axis, axis}, {axis}, {}});
}

void of_gathered_rows(const LowerContext& node, std::vector<CutAxis>& axes) {
  const TensorDesc &x = node.input(kData), &indices = node.input(1);
  const int batch = static_cast<int>(node.attributes->integer("batch_dims", 0)), places = indices.rank() - 1;
  const int addressed = batch + static_cast<int>(indices.shape.back());
  for (int axis = 0; axis < places; ++axis)
    axes.push_back({indices.shape[static_cast<size_t>(axis)], {axis < batch ? axis : kWhole, axis}, {axis}, {}});
  for (int axis = addressed; axis < x.rank(); ++axis)
    axes.push_back({x.shape[static_cast<size_t>(axis)], {axis, kWhole}, {places + axis - addressed}, {}});
}

// Axes on which the updates are as long as what they change.
void of_scattered_elements(const LowerContext& node, std::vector<CutAxis>& axes) {
  const TensorDesc &x = node.input(kData), &indices = node.input(1);
  const int bound = counted_axis(node.attributes->integer("axis", 0), x.rank());
  others(node, axes,
         [&](int axis) { return axis == bound || x.shape[static_cast<size_t>(axis)] != indices.shape[static_cast<size_t>(axis)]; });
  for (CutAxis& cut : axes) cut.inputs[1] = cut.inputs[2] = cut.inputs[kData];
}

// The axes that an address leaves open.
void of_scattered_rows(const LowerContext& node, std::vector<CutAxis>& axes) {
  const TensorDesc& indices = node.input(1);
  const int addressed = static_cast<int>(indices.shape.back()), places = indices.rank() - 1;
  others(node, axes, [&](int axis) { return axis < addressed; });
  for (CutAxis& cut : axes) cut.inputs[2] = places + cut.inputs[kData] - addressed;
}

// Caches, their updates and where these begin.
void of_caches(const LowerContext& node, std::vector<CutAxis>& axes) {
  const int bound = counted_axis(node.attributes->integer("axis", -2), node.input(kData).rank());
  others(node, axes, [&](int axis) { return axis == bound; });
  for (CutAxis& cut : axes) {
    cut.inputs[1] = cut.inputs[kData];
    if (cut.inputs[kData] == 0 && node.has_input(2)) cut.inputs[2] = 0;
  }
}

void of_reversed_sequences(const LowerContext& node, std::vector<CutAxis>& axes) {
  const int rank = node.input(kData).rank(), time = counted_axis(node.attributes->integer("time_axis", 0), rank),
            batch = counted_axis(node.attributes->integer("batch_axis", 1), rank);
  others(node, axes, [&](int axis) { return axis == time; });
  for (CutAxis& cut : axes)
    if (cut.inputs[kData] == batch) cut.inputs[1] = 0;
}

void of_regions(const LowerContext& node, std::vector<CutAxis>& axes) {
  CutAxis& rois = axes.emplace_back(node.input(1).shape[0], std::vector<int>(node.inputs.size(), 0), std::vector{0});
  rois.inputs[kData] = kWhole;
  axes.push_back(own_axis(node, 1));
}

void of_deformed_columns(const LowerContext& node, std::vector<CutAxis>& axes) {
  images(node, axes);
  for (size_t i = 1; i < node.inputs.size(); ++i)
    if (node.has_input(i)) axes.back().inputs[i] = 0;
}

void of_fills(const LowerContext& node, std::vector<CutAxis>& axes) {
  const Shape& shape = node.output(0).shape;
  for (int axis = 0; axis < node.output(0).rank(); ++axis)
    axes.push_back({shape[static_cast<size_t>(axis)], std::vector<int>(node.inputs.size(), kWhole), {axis}, {}});
}

// The axis of the depth is new; those before it and behind it are the indices'.
void of_one_hots(const LowerContext& node, std::vector<CutAxis>& axes) {
  const int depth = counted_axis(node.attributes->integer("axis", -1), node.output(0).rank());
  for (int axis = 0; axis < node.input(kData).rank(); ++axis) {
    axes.push_back(own_axis(node, axis));
    axes.back().outputs = {axis < depth ? axis : axis + 1};
  }
}

// The last axis has real and imaginary parts.
void of_transforms(const LowerContext& node, std::vector<CutAxis>& axes) {
  const int rank = node.input(kData).rank();
  if (node.has_input(2) && !node.host(2)) return;
  const int64_t given = node.has_input(2) ? node.host(2)->as_int64().at(0) : node.attributes->integer("axis", -2);
  const int bound = counted_axis(given, rank);
  others(node, axes, [&](int axis) { return axis == bound || axis == rank - 1; });
}

// Sequences of one batch do not meet.
void of_recurrences(const LowerContext& node, std::vector<CutAxis>& axes) {
  const bool batch_first = node.attributes->integer("layout", 0) != 0;
  const int in = batch_first ? 0 : 1;
  CutAxis& cut = axes.emplace_back(node.input(kData).shape[static_cast<size_t>(in)], std::vector<int>(node.inputs.size(), kWhole));
  cut.inputs[kData] = in;
  for (const size_t state : {5, 6})
    if (node.has_input(state)) cut.inputs[state] = in;
  if (node.has_input(4)) cut.inputs[4] = 0;
  for (size_t j = 0; j < node.outputs.size(); ++j) cut.outputs.push_back(!node.has_output(j) ? kWhole : batch_first ? 0 : j == 0 ? 2 : 1);
}

struct RowRule {
  void (*lower)(LowerContext&);
  Rule rule;
};

constexpr std::array kRules = std::to_array<RowRule>({
    {&lower_map, of_maps},
    {&lower_cast, of_maps},
    {&lower_quantize, of_quantizations},
    {&lower_softmax, beside_axis},
    {&lower_lp_norm, beside_axis},
    {&lower_topk, beside_axis},
    {&lower_scan, beside_scan},
    {&lower_layer_norm, before_axis},
    {&lower_mean_variance_norm, beside_listed},
    {&lower_lrn, beside_channels},
    {&lower_instance_norm, of_channel_norms},
    {&lower_batch_norm, of_channel_norms},
    {&lower_group_norm, of_group_norms},
    {&lower_reduce, of_reductions},
    {&lower_arg, of_positions},
    {&lower_pool, of_pools},
    {&lower_global_pool, planes},
    {&lower_global_lp_pool, planes},
    {&lower_conv, of_convolutions},
    {&lower_conv_integer, of_convolutions},
    {&lower_qlinear_conv, of_convolutions},
    {&lower_conv_transpose, of_transposed_convolutions},
    {&lower_gemm, of_matrix_products},
    {&lower_attention, of_attentions},
    {&lower_recognised_attention, of_recognised_attentions},
    {&lower_pad, of_pads},
    {&lower_resize, of_resizes},
    {&lower_grid_sample, of_grid_samples},
    {&lower_gather_elements, of_gathered_elements},
    {&lower_gather_nd, of_gathered_rows},
    {&lower_scatter_elements, of_scattered_elements},
    {&lower_scatter_nd, of_scattered_rows},
    {&lower_tensor_scatter, of_caches},
    {&lower_reverse_sequence, of_reversed_sequences},
    {&lower_trilu, before_matrices},
    {&lower_determinant, before_matrices},
    {&lower_roi_align, of_regions},
    {&lower_roi_pool, of_regions},
    {&lower_deform_columns, of_deformed_columns},
    {&lower_columns_to_image, images},
    {&lower_trees, images},
    {&lower_pairwise_coupling, images},
    {&lower_constant_of_shape, of_fills},
    {&lower_one_hot, of_one_hots},
    {&lower_dft, of_transforms},
    {&lower_stft, images},
    {&lower_recurrent, of_recurrences},
});

}  // namespace

std::vector<CutAxis> cut_axes(const LowerContext& node) {
  std::vector<CutAxis> axes;
  const auto found = std::ranges::find(kRules, node.row->lower, &RowRule::lower);
  if (found != kRules.end()) found->rule(node, axes);
  for (CutAxis& axis : axes) {
    axis.inputs.resize(node.inputs.size(), kWhole);
    axis.outputs.resize(node.outputs.size(), kWhole);
  }
  return axes;
}

}  // namespace pumice
