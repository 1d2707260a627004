// Operator rows that move elements: Concat, Split, Pad, Slice, Transpose, Expand, Tile and others.
#include <algorithm>

#include "core/error.h"
#include "operators/common/split_axes.h"
#include "operators/geometry/slice_geometry.h"
#include "operators/geometry/strided_views.h"
#include "operators/host/host_node.h"
#include "operators/index/lowerings.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

void infer_concat_shape(ShapeContext& node) {
  Shape y = node.input(0).shape;
  const size_t axis = normalize_axis(node, node.attributes().integer("axis"), y.size());
  for (size_t i = 1; i < node.input_count(); ++i) {
    Shape x = node.input(i).shape;
    if (x.size() == y.size()) std::swap(x[axis], y[axis]);
    if (x.size() != y.size() ||
        !std::equal(x.begin(), x.end(), y.begin(), [&, k = size_t{0}](int64_t p, int64_t q) mutable { return k++ == axis || p == q; }))
      node.fail("input " + std::to_string(i) + " of shape " + to_string(node.input(i).shape) + " does not fit input 0 of shape " +
                to_string(node.input(0).shape) + " on axis " + std::to_string(axis));
    y[axis] = checked_add(x[axis], y[axis], "the joined axis");
  }
  node.output(0, node.input(0).dtype, y);
}

void infer_split_shape(ShapeContext& node) {
  Shape y = node.input(0).shape;
  const size_t axis = normalize_axis(node, node.attributes().integer("axis", 0), y.size());
  const size_t count = node.output_count();
  const int64_t num_outputs = node.attributes().integer("num_outputs", static_cast<int64_t>(count)), size = y[axis];
  if (!node.has(1) && num_outputs != static_cast<int64_t>(count))
    node.fail("num_outputs is " + std::to_string(num_outputs) + ", but there are " + std::to_string(count) + " outputs");
  const auto sizes = node.has(1) ? node.get_host_integers(1) : compute_even_split_sizes(size, count);
  int64_t total = 0;
  for (const int64_t part_size : sizes)
    total = part_size < 0 ? node.fail("a part of " + std::to_string(part_size) + " elements"),
    0                     : checked_add(total, part_size, "the parts");
  if (sizes.size() != count || total != size)
    node.fail("parts " + to_string(sizes) + " for " + std::to_string(count) + " outputs of an axis of " + std::to_string(size));
  for (size_t i = 0; i < count; ++i) {
    y[axis] = sizes[i];
    node.output(i, node.input(0).dtype, y);
  }
}

void infer_pad_shape(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const std::string mode = node.attributes().text("mode", "constant");
  if (node.has(2) && node.input(2).elements() > 1) node.fail("the padding value must be a scalar; given " + to_string(node.input(2).shape));
  const auto pads = node.get_host_integers(1);
  std::vector<size_t> axes;
  if (node.has(3))
    axes = normalize_axes(node, node.get_host_integers(3), x.size());
  else
    for (size_t axis = 0; axis < x.size(); ++axis) axes.push_back(axis);
  if (pads.size() != 2 * axes.size())
    node.fail(std::to_string(pads.size()) + " pads for " + std::to_string(axes.size()) + " axes; expected two for each");
  Shape y = x;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t before = pads[i], after = pads[i + axes.size()], size = x[axes[i]];
    y[axes[i]] = checked_add(checked_add(size, before, "padding"), after, "padding");
    if (y[axes[i]] < 0)
      node.fail("pads of " + std::to_string(before) + " and " + std::to_string(after) + " on an axis of " + std::to_string(size));
    if (mode != "constant" && size == 0 && y[axes[i]] > 0)
      node.fail("axis " + std::to_string(axes[i]) + " has no elements that mode '" + mode + "' could repeat");
  }
  node.output(0, node.input(0).dtype, y);
}

void infer_slice_shape(ShapeContext& node) {
  Shape y = node.input(0).shape;
  const auto list = [&](size_t i) { return node.has(i) ? node.get_host_integers(i) : std::vector<int64_t>(); };
  const auto slices = compute_slice_axes(node.node(), y, list(1), list(2), list(3), list(4));
  for (size_t axis = 0; axis < y.size(); ++axis) y[axis] = slices[axis].length;
  node.output(0, node.input(0).dtype, y);
}

void set_permuted_shape(ShapeContext& node, bool reverses, const std::vector<int64_t>& perm) {
  const Shape& x = node.input(0).shape;
  Shape y(x.rbegin(), x.rend());
  if (!reverses) {
    const auto axes = normalize_axes(node, perm, x.size());
    if (axes.size() != x.size()) node.fail("perm " + to_string(perm) + " for a tensor of rank " + std::to_string(x.size()));
    for (size_t i = 0; i < axes.size(); ++i) y[i] = x[axes[i]];
  }
  node.output(0, node.input(0).dtype, y);
}

void infer_transpose_shape(ShapeContext& node) {
  set_permuted_shape(node, !node.attributes().has("perm"), node.attributes().integers("perm"));
}

// Input 1 is the permutation of the axes. If it is empty, the axes are reversed.
void infer_transpose_by_shape(ShapeContext& node) {
  check_vector(node, 1, node.input(1).elements(), "axes");
  const auto perm = node.get_host_integers(1);
  set_permuted_shape(node, perm.empty(), perm);
}

int64_t check_blocksize(const ShapeContext& node) {
  const int64_t block = node.attributes().integer("blocksize");
  if (block < 1 || block > 46340) node.fail("blocksize: expected 1 to 46340; given " + std::to_string(block));
  return block;
}

void infer_depth_to_space_shape(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const int64_t b = check_blocksize(node);
  const std::string mode = node.attributes().text("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") node.fail("mode '" + mode + "'; supported: DCR and CRD");
  if (x[1] % (b * b) != 0) node.fail(std::to_string(x[1]) + " channels in blocks of " + std::to_string(b) + " by " + std::to_string(b));
  node.output(0, node.input(0).dtype, {x[0], x[1] / (b * b), checked_mul(x[2], b, "height"), checked_mul(x[3], b, "width")});
}

void infer_space_to_depth_shape(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const int64_t b = check_blocksize(node);
  if (x[2] % b != 0 || x[3] % b != 0)
    node.fail("an image of " + std::to_string(x[2]) + " by " + std::to_string(x[3]) + " in blocks of " + std::to_string(b));
  node.output(0, node.input(0).dtype, {x[0], checked_mul(x[1], b * b, "channels"), x[2] / b, x[3] / b});
}

void infer_expand_shape(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const Shape target_shape = node.get_host_integers(1);
  Shape y;
  try {
    y = broadcast_shape(x, target_shape);
  } catch (const GraphError& error) {
    node.fail(error.what());
  }
  node.output(0, node.input(0).dtype, y);
}

void infer_tile_shape(ShapeContext& node) {
  Shape y = node.input(0).shape;
  const auto repeats = node.get_host_integers(1);
  if (repeats.size() != y.size()) node.fail(std::to_string(repeats.size()) + " repeats for a tensor of rank " + std::to_string(y.size()));
  for (size_t axis = 0; axis < y.size(); ++axis) {
    if (repeats[axis] < 0) node.fail(std::to_string(repeats[axis]) + " repeats of axis " + std::to_string(axis));
    y[axis] = checked_mul(y[axis], repeats[axis], "the repeated axis");
  }
  node.output(0, node.input(0).dtype, y);
}

// Pad can be split along axes without padding.
void append_pad_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const int rank = node.input(kData).rank();
  if (node.has_input(3) || !node.host_tensor(1)) return;
  const std::vector<int64_t> pads = node.host_tensor(1)->as_int64();
  const auto padding = [&](int axis) { return pads.at(static_cast<size_t>(axis)); };
  append_axes_except(node, axes, [&](int axis) { return padding(axis) != 0 || padding(axis + rank) != 0; });
}

}  // namespace

OperatorRows define_index_operators() {
  const std::vector<ValueRole> x{value_role("x", kAny)}, y{value_role("y", kAny)};
  const auto with_int64 = [](std::initializer_list<ValueRole> more) {
    std::vector<ValueRole> roles{value_role("x", kAny)};
    roles.insert(roles.end(), more);
    return roles;
  };
  return {{.name = "Concat",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = {variadic_role("x", kAny, 'T')},
                      .outputs = y,
                      .attributes = {required_attribute("axis", AttributeKind::integer)},
                      .min_rank = 1},
           .shape = infer_concat_shape,
           .lower = lower_concat,
           .strides = StrideSupport::image,
           .alias = {.concatenates = true},
           .evaluate = evaluate_concat},
          {.name = "Split",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = with_int64({optional_role("split", kInt64)}),
                      .outputs = {variadic_role("y", kAny)},
                      .attributes = {integer_attribute("axis", 0), optional_attribute("num_outputs", AttributeKind::integer)},
                      .min_rank = 1},
           .shape = infer_split_shape,
           .lower = lower_split,
           .host_inputs = make_input_mask(1),
           .host = {.assumed_values = AssumedHostValues::parts},
           .strides = StrideSupport::image,
           .alias = {.views = make_split_views},
           .evaluate = evaluate_split},
          {.name = "Pad",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = {value_role("x", kAny, 'T'), value_role("pads", kInt64), optional_role("value", kAny, 'T'),
                                 optional_role("axes", kIndices)},
                      .outputs = y,
                      .attributes = {choice_attribute("mode", "constant", {"constant", "reflect", "edge", "wrap"})}},
           .shape = infer_pad_shape,
           .lower = lower_pad,
           .host_inputs = make_input_mask(1, 2, 3),
           .host = {.element_inputs = make_input_mask(2)},
           .strides = StrideSupport::image,
           .split = append_pad_split_axes},
          // Pads with mirrored elements, including the edge element. ONNX Pad has no such mode.
          {.name = "pumice::SymmetricPad",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = {value_role("x", kAny), value_role("pads", kInt64)},
                      .outputs = y,
                      .attributes = {choice_attribute("mode", "symmetric", {"symmetric"})}},
           .shape = infer_pad_shape,
           .lower = lower_pad,
           .host_inputs = make_input_mask(1),
           .strides = StrideSupport::image,
           .split = append_pad_split_axes},
          {.name = "Slice",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = with_int64({value_role("starts", kIndices), value_role("ends", kIndices), optional_role("axes", kIndices),
                                            optional_role("steps", kIndices)}),
                      .outputs = y,
                      .min_rank = 1},
           .shape = infer_slice_shape,
           .lower = lower_slice,
           .host_inputs = make_input_mask(1, 2, 3, 4),
           .strides = StrideSupport::image,
           .evaluate = evaluate_slice},
          {.name = "Transpose",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = x, .outputs = y, .attributes = {optional_attribute("perm", AttributeKind::integers)}},
           .shape = infer_transpose_shape,
           .lower = lower_transpose,
           .strides = StrideSupport::image,
           .alias = {.views = make_transpose_view},
           .evaluate = evaluate_transpose},
          {.name = "pumice::TransposeBy",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = {value_role("x", kAny), value_role("perm", kIndices)}, .outputs = y},
           .shape = infer_transpose_by_shape,
           .lower = lower_transpose_by,
           .host_inputs = make_input_mask(1),
           .strides = StrideSupport::image,
           .evaluate = evaluate_transpose_by},
          {.name = "DepthToSpace",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = x,
                      .outputs = y,
                      .attributes = {required_attribute("blocksize", AttributeKind::integer), text_attribute("mode", "DCR")},
                      .min_rank = 4,
                      .max_rank = 4},
           .shape = infer_depth_to_space_shape,
           .lower = lower_depth_to_space,
           .strides = StrideSupport::image},
          {.name = "SpaceToDepth",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = x,
                      .outputs = y,
                      .attributes = {required_attribute("blocksize", AttributeKind::integer), text_attribute("mode", "DCR")},
                      .min_rank = 4,
                      .max_rank = 4},
           .shape = infer_space_to_depth_shape,
           .lower = lower_space_to_depth,
           .strides = StrideSupport::image},
          {.name = "Expand",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = with_int64({value_role("shape", kInt64)}), .outputs = y},
           .shape = infer_expand_shape,
           .rank_from = [](const Attributes&, bool lists) { return lists ? std::optional<size_t>(1) : std::nullopt; },
           .lower = lower_expand,
           .host_inputs = make_input_mask(1),
           .evaluate = evaluate_expand},
          {.name = "Tile",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = with_int64({value_role("repeats", kInt64)}), .outputs = y},
           .shape = infer_tile_shape,
           .lower = lower_tile,
           .host_inputs = make_input_mask(1),
           .evaluate = evaluate_tile}};
}

}  // namespace pumice
