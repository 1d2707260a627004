// Rows that move elements: one strided copy, or one for each part.
#include <algorithm>

#include "core/error.h"
#include "operators/families.h"
#include "operators/operator_table.h"
#include "operators/planes.h"
#include "operators/slice_geometry.h"
#include "operators/strided.h"

namespace pumice {
namespace {

size_t axis_of(const LowerContext& node, int64_t fallback, int rank) {
  const int64_t axis = node.attributes->integer("axis", fallback);
  return static_cast<size_t>(axis < 0 ? axis + rank : axis);
}

// Whole words of the target hold nothing but what the copy writes: a dense part that begins and ends on a word.
bool is_whole_words(DType dtype, int64_t first, int64_t elements) { return first * bits(dtype) % 32 == 0 && elements * bits(dtype) % 32 == 0; }

std::vector<int64_t> host_integers(const LowerContext& node, size_t i) {
  const HostTensor* host = node.host(i);
  if (!host) throw UnsupportedError("node '" + std::string(node.node) + "': input " + std::to_string(i) + " of " + std::string(node.row->name) + " has to be known on the host");
  return host->as_int64();
}

}  // namespace

void lower_concat(LowerContext& node) {
  const TensorDesc& y = node.output(0);
  const size_t axis = axis_of(node, 0, y.rank());
  int64_t begin = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.has_input(i)) continue;
    const TensorDesc& x = node.input(i);
    const int64_t first = begin * y.strides[axis];
    begin += x.shape[axis];
    add_strided_copy(node, y.dtype, {x.shape, {x.strides, y.strides}}, node.in(i), 0, node.out(0), first, is_whole_words(y.dtype, first, x.elements()));
  }
}

void lower_split(LowerContext& node) {
  const TensorDesc& x = node.input(0);
  const size_t axis = axis_of(node, 0, x.rank());
  int64_t begin = 0;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.has_output(i)) continue;
    const TensorDesc& y = node.output(i);
    add_strided_copy(node, y.dtype, {y.shape, {x.strides, y.strides}}, node.in(0), begin * x.strides[axis], node.out(i), 0, true);
    begin += y.shape[axis];
  }
}

void lower_transpose(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  std::vector<int64_t> axes = node.attributes->integers("perm");
  if (axes.empty())
    for (int axis = x.rank(); axis-- > 0;) axes.push_back(axis);
  Strides strides;
  for (const int64_t axis : axes) strides.push_back(x.strides[static_cast<size_t>(axis)]);
  add_strided_copy(node, y.dtype, {y.shape, {strides, y.strides}}, node.in(0), 0, node.out(0), 0, true);
}

void lower_expand(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  Strides strides = broadcast_strides(x.shape, x.strides, y.shape);
  for (size_t i = 0; i < x.shape.size(); ++i)
    if (x.shape[i] == 1) strides[y.shape.size() - x.shape.size() + i] = 0;
  add_strided_copy(node, y.dtype, {y.shape, {strides, y.strides}}, node.in(0), 0, node.out(0), 0, true);
}

void lower_copy(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (x.shape == y.shape) return add_strided_copy(node, y.dtype, {y.shape, {x.strides, y.strides}}, node.in(0), 0, node.out(0), 0, true);
  if (!y.is_packed()) throw UnsupportedError("node '" + std::string(node.node) + "': a reshape into a strided tensor");
  // A reshape keeps the row-major order of the elements: walk the source's axes.
  add_strided_copy(node, y.dtype, {x.shape, {x.strides, packed_strides(x.shape)}}, node.in(0), 0, node.out(0), 0, true);
}

void lower_slice(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  const auto optional_integers = [&](size_t i) { return node.has_input(i) ? host_integers(node, i) : std::vector<int64_t>{}; };
  const auto axes = slice_geometry(node.node, x.shape, host_integers(node, 1), host_integers(node, 2), optional_integers(3), optional_integers(4));
  Strides strides = x.strides;
  int64_t first = 0;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (axes[axis].length > 0) first += axes[axis].start * x.strides[axis];
    strides[axis] *= axes[axis].step;
  }
  add_strided_copy(node, y.dtype, {y.shape, {strides, y.strides}}, node.in(0), first, node.out(0), 0, true);
}

// Blocks of b x b pixels and channels trade places: [n, c * b * b, h, w] <-> [n, c, h * b, w * b].
static void add_blocks(LowerContext& node, const Planes& deep, const Planes& wide, bool to_space) {
  const int64_t b = node.attributes->integer("blocksize");
  const bool column_row_depth = node.attributes->text("mode", "DCR") == "CRD";
  const int64_t channels = wide.c, block_row = column_row_depth ? b : b * channels, block_column = column_row_depth ? 1 : channels, channel = column_row_depth ? b * b : 1;
  const std::vector<int64_t> sizes = {wide.n, channels, deep.h, b, deep.w, b};
  const std::vector<int64_t> of_deep = {deep.sn, channel * deep.sc, deep.sh, block_row * deep.sc, deep.sw, block_column * deep.sc};
  const std::vector<int64_t> of_wide = {wide.sn, wide.sc, wide.sh * b, wide.sh, wide.sw * b, wide.sw};
  const IndexSpace space{sizes, {to_space ? of_deep : of_wide, to_space ? of_wide : of_deep}};
  add_strided_copy(node, node.output(0).dtype, space, node.in(0), 0, node.out(0), 0, true);
}

void lower_depth_to_space(LowerContext& node) { add_blocks(node, planes_of(node, node.input(0)), planes_of(node, node.output(0)), true); }

void lower_space_to_depth(LowerContext& node) { add_blocks(node, planes_of(node, node.output(0)), planes_of(node, node.input(0)), false); }

void lower_pad(LowerContext& node) {
  constexpr size_t kPadRank = 5;
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (y.elements() == 0) return;
  const std::string mode = node.attributes->text("mode", "constant");
  const auto pads = host_integers(node, 1);
  const size_t rank = x.shape.size();
  std::vector<int64_t> begin(rank, 0);
  std::vector<int64_t> axes;
  if (node.has_input(3))
    axes = host_integers(node, 3);
  else
    for (size_t i = 0; i < rank; ++i) axes.push_back(static_cast<int64_t>(i));
  for (size_t i = 0; i < axes.size(); ++i) begin[static_cast<size_t>(axes[i] < 0 ? axes[i] + static_cast<int64_t>(rank) : axes[i])] = pads[i];
  double value = 0;
  if (node.has_input(2)) {
    const HostTensor* host = node.host(2);
    if (!host) throw UnsupportedError("node '" + std::string(node.node) + "': a padding value that is not known on the host");
    value = host->desc.elements() > 0 ? host->as_double()[0] : 0;
  }
  if (x.dtype != DType::float32 && x.dtype != DType::float16) throw UnsupportedError("node '" + std::string(node.node) + "': Pad of " + std::string(name(x.dtype)));
  if (rank > kPadRank) throw UnsupportedError("node '" + std::string(node.node) + "': Pad of rank " + std::to_string(rank) + "; at most 5");
  // Axes in the order of the output's memory, so that neighbouring invocations write neighbouring elements.
  std::vector<size_t> order(rank);
  for (size_t i = 0; i < rank; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return y.strides[a] > y.strides[b]; });
  const auto arranged = [&](const std::vector<int64_t>& values, int64_t filler) {
    std::vector<int64_t> result(kPadRank - rank, filler);
    for (const size_t axis : order) result.push_back(values[axis]);
    return result;
  };
  const auto kernel = node.kernel("pad.comp", x.dtype, {{"MODE", mode == "constant" ? "0" : mode == "reflect" ? "1" : "2"}});
  StepBuilder step(kernel);
  step.bind("x", node.in(0)).bind("y", node.out(0)).set("elements", y.elements()).set("size", arranged(y.shape, 1)).set("in_size", arranged(x.shape, 1));
  step.set("begin", arranged(begin, 0)).set("x_stride", arranged(x.strides, 0)).set("y_stride", arranged(y.strides, 0)).set("value", value);
  node.add(step.threads(static_cast<uint64_t>(y.elements())).build());
}

void lower_gather(LowerContext& node) {
  const TensorDesc &x = node.input(0), &indices = node.input(1), &y = node.output(0);
  if (y.elements() == 0) return;
  if (!x.is_packed() || !indices.is_packed() || !y.is_packed()) throw UnsupportedError("node '" + std::string(node.node) + "': Gather of strided tensors");
  const size_t axis = axis_of(node, 0, x.rank());
  int64_t inner = 1;
  for (size_t i = axis + 1; i < x.shape.size(); ++i) inner *= x.shape[i];
  const int64_t lanes = std::max(32 / bits(x.dtype), 1);
  const auto kernel = node.kernel("gather.comp", DType::float32, {{"BITS", std::to_string(bits(x.dtype))}});
  StepBuilder step(kernel);
  step.bind("x", node.in(0)).bind("indices", node.in(1)).bind("y", node.out(0)).set("elements", y.elements()).set("inner", inner);
  step.set("index_count", indices.elements()).set("size", x.shape[axis]).set("index_words", bits(indices.dtype) / 32);
  node.add(step.threads(static_cast<uint64_t>((y.elements() + lanes - 1) / lanes)).build());
}

}  // namespace pumice
