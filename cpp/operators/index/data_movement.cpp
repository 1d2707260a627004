// Lowers operators that only move elements, such as Concat and Pad, to strided copies.
#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/common/nchw_view.h"
#include "operators/common/strided_copy.h"
#include "operators/geometry/slice_geometry.h"
#include "operators/geometry/strided_views.h"
#include "operators/index/lowerings.h"
#include "operators/table/host_tensor_access.h"
#include "operators/table/operator_table.h"
#include "operators/table/value_layout.h"

namespace pumice {
namespace {

size_t get_axis(const LowerContext& node, int64_t fallback, int rank) {
  const int64_t axis = node.attributes->integer("axis", fallback);
  return static_cast<size_t>(axis < 0 ? axis + rank : axis);
}

// Whether a contiguous range starts and ends at word boundaries, so that it shares no word with other elements.
bool is_whole_words(DType dtype, int64_t first, int64_t elements) {
  return first * bits(dtype) % 32 == 0 && elements * bits(dtype) % 32 == 0;
}

std::vector<int64_t> require_host_integers(const LowerContext& node, size_t i) {
  const HostTensor* host = node.host_tensor(i);
  if (!host)
    throw UnsupportedError("node '" + std::string(node.node) + "': input " + std::to_string(i) + " of " + std::string(node.row->name) +
                           " must be known on the host");
  return host->as_int64();
}

constexpr size_t kMaxTiledAxes = 3;  // maximum number of axes tiled per copy; each needs two axes of the copy

}  // namespace

void lower_concat(LowerContext& node) {
  const TensorDesc& y = node.output(0);
  const size_t axis = get_axis(node, 0, y.rank());
  int64_t begin = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.has_input(i)) continue;
    const TensorDesc& x = node.input(i);
    const int64_t first = begin * y.strides[axis];
    begin += x.shape[axis];
    add_strided_copy(node, y.dtype, {x.shape, {x.strides, y.strides}}, {node.input_operand(i)},
                     {.operand = node.output_operand(0), .first = first, .owns_words = is_whole_words(y.dtype, first, x.elements())});
  }
}

void lower_split(LowerContext& node) {
  const TensorDesc& x = node.input(0);
  const size_t axis = get_axis(node, 0, x.rank());
  const auto parts = node.has_input(1) ? require_host_integers(node, 1) : compute_even_split_sizes(x.shape[axis], node.outputs.size());
  int64_t begin = 0;
  for (size_t i = 0; i < node.outputs.size(); begin += parts.at(i++)) {
    if (!node.has_output(i)) continue;
    const TensorDesc& y = node.output(i);
    add_strided_copy(node, y.dtype, {y.shape, {x.strides, y.strides}}, {node.input_operand(0), begin * x.strides[axis]},
                     {node.output_operand(i)});
  }
}

void lower_transpose(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  add_strided_copy(node, y.dtype, {y.shape, {compute_transpose_strides(*node.attributes, x), y.strides}}, {node.input_operand(0)},
                   {node.output_operand(0)});
}

void lower_transpose_by(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  Attributes order;
  if (const auto perm = require_host_integers(node, 1); !perm.empty()) order.set("perm", perm);
  add_strided_copy(node, y.dtype, {y.shape, {compute_transpose_strides(order, x), y.strides}}, {node.input_operand(0)},
                   {node.output_operand(0)});
}

void lower_expand(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  Strides strides = compute_broadcast_strides(x.shape, x.strides, y.shape);
  for (size_t i = 0; i < x.shape.size(); ++i)
    if (x.shape[i] == 1) strides[y.shape.size() - x.shape.size() + i] = 0;
  add_strided_copy(node, y.dtype, {y.shape, {strides, y.strides}}, {node.input_operand(0)}, {node.output_operand(0)});
}

// Lowers Tile to strided copies. An axis of n elements that is repeated r times becomes two axes: one of size r with source stride 0, and
// one of size n. Each copy tiles at most kMaxTiledAxes axes, starting with the last axes.
void lower_tile(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (y.elements() == 0) return;
  TensorDesc source = x;
  Operand from = node.input_operand(0);
  const Operand result = x.rank() > 4 ? get_contiguous_output(node, 0) : node.output_operand(0);  // packed, so that its axes merge
  for (size_t end = x.shape.size(); end > 0;) {
    const size_t first = end > kMaxTiledAxes ? end - kMaxTiledAxes : 0;
    Shape tiled_shape = source.shape;
    for (size_t axis = first; axis < end; ++axis) tiled_shape[axis] = y.shape[axis];
    const bool last = first == 0;
    const TensorDesc target = last && result.memory == MemoryKind::output ? y : TensorDesc(y.dtype, tiled_shape);
    IndexSpace space{{}, {{}, {}}};
    for (size_t axis = 0; axis < tiled_shape.size(); ++axis) {
      const int64_t size = source.shape[axis];
      space.sizes.insert(space.sizes.end(), {tiled_shape[axis] / size, size});
      space.strides[0].insert(space.strides[0].end(), {0, source.strides[axis]});
      space.strides[1].insert(space.strides[1].end(), {size * target.strides[axis], target.strides[axis]});
    }
    const Operand to = last ? result : node.add_temporary(target.bytes());
    add_strided_copy(node, y.dtype, std::move(space), {from}, {to});
    source = target;
    from = to;
    end = first;
  }
  if (x.shape.empty()) return lower_copy(node);
  copy_contiguous_output(node, 0, result);
}

void lower_copy(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (x.shape == y.shape)
    return add_strided_copy(node, y.dtype, {y.shape, {x.strides, y.strides}}, {node.input_operand(0)}, {node.output_operand(0)});
  // A reshape preserves row-major order. If the destination is packed, the copy uses the axes of the source; otherwise it uses the axes of
  // the destination and a packed source.
  if (y.is_packed())
    return add_strided_copy(node, y.dtype, {x.shape, {x.strides, packed_strides(x.shape)}}, {node.input_operand(0)},
                            {node.output_operand(0)});
  add_strided_copy(node, y.dtype, {y.shape, {packed_strides(y.shape), y.strides}}, {get_contiguous_input(node, 0)},
                   {node.output_operand(0)});
}

void lower_slice(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  const auto optional_integers = [&](size_t i) { return node.has_input(i) ? require_host_integers(node, i) : std::vector<int64_t>{}; };
  const auto axes = compute_slice_axes(node.node, x.shape, require_host_integers(node, 1), require_host_integers(node, 2),
                                       optional_integers(3), optional_integers(4));
  Strides strides = x.strides;
  int64_t first = 0;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (axes[axis].length > 0) first += axes[axis].start * x.strides[axis];
    strides[axis] *= axes[axis].step;
  }
  add_strided_copy(node, y.dtype, {y.shape, {strides, y.strides}}, {node.input_operand(0), first}, {node.output_operand(0)});
}

// Permutes blocks of b x b pixels and channels: [n, c * b * b, h, w] <-> [n, c, h * b, w * b].
static void add_block_permutation(LowerContext& node, const NchwView& deep, const NchwView& spatial, bool to_space) {
  const int64_t b = node.attributes->integer("blocksize");
  const bool column_row_depth = node.attributes->text("mode", "DCR") == "CRD";
  const int64_t channels = spatial.c, block_row = column_row_depth ? b : b * channels, block_column = column_row_depth ? 1 : channels,
                channel = column_row_depth ? b * b : 1;
  const std::vector<int64_t> sizes = {spatial.n, channels, deep.h, b, deep.w, b};
  const std::vector<int64_t> deep_strides = {deep.sn, channel * deep.sc, deep.sh, block_row * deep.sc, deep.sw, block_column * deep.sc};
  const std::vector<int64_t> spatial_strides = {spatial.sn, spatial.sc, spatial.sh * b, spatial.sh, spatial.sw * b, spatial.sw};
  const IndexSpace space{sizes, {to_space ? deep_strides : spatial_strides, to_space ? spatial_strides : deep_strides}};
  add_strided_copy(node, node.output(0).dtype, space, {node.input_operand(0)}, {node.output_operand(0)});
}

void lower_depth_to_space(LowerContext& node) {
  add_block_permutation(node, make_nchw_view(node, node.input(0)), make_nchw_view(node, node.output(0)), true);
}

void lower_space_to_depth(LowerContext& node) {
  add_block_permutation(node, make_nchw_view(node, node.output(0)), make_nchw_view(node, node.input(0)), false);
}

// One axis of a Pad: its sizes and strides.
struct PadAxis {
  int64_t size, x_size, before, x_stride, y_stride;

  bool is_padded() const { return before != 0 || size != x_size; }
};

// Returns the axes of a Pad, sorted by decreasing output stride.
static std::vector<PadAxis> make_pad_axes(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  const auto pads = require_host_integers(node, 1);
  std::vector<PadAxis> all;
  for (size_t i = 0; i < x.shape.size(); ++i)
    all.push_back({y.shape[i], x.shape[i], node.has_input(3) ? 0 : pads[i], x.strides[i], y.strides[i]});
  if (node.has_input(3)) {
    const auto axes = require_host_integers(node, 3);
    for (size_t i = 0; i < axes.size(); ++i) all[static_cast<size_t>(axes[i] < 0 ? axes[i] + x.rank() : axes[i])].before = pads[i];
  }
  std::stable_sort(all.begin(), all.end(), [](const PadAxis& a, const PadAxis& b) { return a.y_stride > b.y_stride; });
  return all;
}

// Merges adjacent axes without padding, and drops unpadded axes of size 1.
static std::vector<PadAxis> merge_pad_axes(const std::vector<PadAxis>& axes) {
  std::vector<PadAxis> merged;
  for (const PadAxis& axis : axes) {
    if (axis.size == 1 && !axis.is_padded()) continue;
    const bool can_merge = !merged.empty() && !merged.back().is_padded() && !axis.is_padded() &&
                           merged.back().x_stride == axis.x_stride * axis.size && merged.back().y_stride == axis.y_stride * axis.size;
    if (!can_merge)
      merged.push_back(axis);
    else
      merged.back() = {merged.back().size * axis.size, merged.back().x_size * axis.x_size, 0, axis.x_stride, axis.y_stride};
  }
  return merged;
}

// Returns the bits of the padding value in the stored dtype, repeated to 64 bits.
static std::array<uint32_t, 2> get_pad_value_bits(const LowerContext& node) {
  if (!node.has_input(2)) return {};
  const HostTensor* host = node.host_tensor(2);
  if (!host) throw UnsupportedError("node '" + std::string(node.node) + "': the padding value must be known on the host");
  if (host->desc.elements() == 0) return {};
  const auto value = get_first_element_bits(host->converted(node.input(0).dtype));
  switch (bits(node.input(0).dtype)) {
    case 8:
      return {value[0] * 0x01010101u, value[0] * 0x01010101u};
    case 16:
      return {value[0] * 0x00010001u, value[0] * 0x00010001u};
    case 32:
      return {value[0], value[0]};
    default:
      return value;
  }
}

constexpr size_t kPadRank = 5;  // maximum number of axes in the kernel
constexpr size_t kPadRanks[] = {2, 3, kPadRank};

// Returns how many adjacent elements one load moves (up to 128 bits), such that no load contains both source elements and padding.
static int64_t choose_pad_load_width(const LowerContext& node, const std::vector<PadAxis>& axes, const Operand& x, bool constant) {
  const int64_t element_bits = bits(node.input(0).dtype);
  const PadAxis& inner = axes.back();
  if (inner.x_stride != 1 || inner.y_stride != 1 || (inner.is_padded() && !constant)) return 1;
  for (int64_t n = 128 / element_bits; n > 1 && n * element_bits >= 32; n /= 2) {
    if (inner.size % n != 0 || inner.x_size % n != 0 || inner.before % n != 0) continue;
    if (get_misalignment(node, x) % static_cast<uint64_t>(n * element_bits / 8) != 0) continue;
    if (std::all_of(axes.begin(), axes.end() - 1, [n](const PadAxis& axis) { return axis.x_stride % n == 0 && axis.y_stride % n == 0; }))
      return n;
  }
  return 1;
}

// Returns how many adjacent elements of the output's last axis one store writes.
static int64_t choose_pad_store_width(const std::vector<PadAxis>& axes, int64_t element_bits) {
  for (int64_t m = 128 / element_bits; m > 1 && m * element_bits >= 32; m /= 2)
    if (axes.back().y_stride == 1 && axes.back().size % m == 0 &&
        std::all_of(axes.begin(), axes.end() - 1, [m](const PadAxis& axis) { return axis.y_stride % m == 0; }))
      return m;
  return 1;
}

static void add_pad(LowerContext& node, std::vector<PadAxis> axes, const Operand& x, const Operand& y) {
  static const std::map<std::string_view, std::string_view> modes = {
      {"constant", "1"}, {"reflect", "2"}, {"edge", "3"}, {"wrap", "4"}, {"symmetric", "5"}};
  if (axes.size() > kPadRank)
    throw UnsupportedError("node '" + std::string(node.node) + "': Pad over " + std::to_string(axes.size()) +
                           " axes that cannot be merged; at most " + std::to_string(kPadRank) + " are supported");
  const std::string mode(modes.at(node.attributes->text("mode", "constant")));
  const size_t rank = *std::lower_bound(std::begin(kPadRanks), std::end(kPadRanks), axes.size());
  axes.insert(axes.begin(), rank - axes.size(), {1, 1, 0, 0, 0});
  const int64_t scale = choose_pad_load_width(node, axes, x, mode == "1"), element_bits = bits(node.input(0).dtype) * scale;
  PadAxis& inner = axes.back();
  inner.size /= scale, inner.x_size /= scale, inner.before /= scale;
  for (size_t i = 0; i + 1 < rank; ++i) axes[i].x_stride /= scale, axes[i].y_stride /= scale;
  const int64_t per_store = choose_pad_store_width(axes, element_bits);
  inner.size /= per_store;
  for (size_t i = 0; i + 1 < rank; ++i) axes[i].y_stride /= per_store;
  const auto each = [&](int64_t PadAxis::* field) {
    std::vector<int64_t> values;
    for (const PadAxis& axis : axes) values.push_back(axis.*field);
    return values;
  };
  const auto value = get_pad_value_bits(node);
  const bool words = per_store * element_bits < 32 && is_dense(each(&PadAxis::size), each(&PadAxis::y_stride));
  const int64_t elements_per_word = words ? 32 / element_bits : 1, piece_bits = elements_per_word * per_store * element_bits;
  int64_t elements = 1;
  for (const PadAxis& axis : axes) elements *= axis.size;
  Macros macros = make_copy_macros(piece_bits);
  macros.insert(macros.end(), {{"BITS", std::to_string(element_bits)},
                               {"SCALE", std::to_string(scale) + "u"},
                               {"ELEMENTS_PER_STORE", std::to_string(per_store)},
                               {"STEPS", "0"},
                               {"WORDS", words ? "1" : "0"},
                               {"RANK", std::to_string(rank)},
                               {"PAD", mode}});
  StepBuilder step(node.kernel("strided_copy.comp", DType::float32, macros));
  step.bind("x", x).bind("y", y).set("elements", elements).set("size", each(&PadAxis::size)).set("x_size", each(&PadAxis::x_size));
  step.set("before", each(&PadAxis::before)).set("x_stride", each(&PadAxis::x_stride)).set("y_stride", each(&PadAxis::y_stride));
  step.set("value", std::vector<int64_t>{value[0], value[1]});
  node.add(step.set_threads(count_copy_threads(ceil_div(elements, elements_per_word), piece_bits)).build());
}

// Returns the operand if it is packed; otherwise returns packed scratch memory. A source is copied into the scratch memory here. For a
// destination, `space` describes the copy from scratch memory that the caller must add.
static Operand make_packed_operand(LowerContext& node, std::vector<PadAxis>& axes, const Operand& operand, bool is_source,
                                   IndexSpace& space) {
  int64_t PadAxis::* const size = is_source ? &PadAxis::x_size : &PadAxis::size;
  int64_t PadAxis::* const stride = is_source ? &PadAxis::x_stride : &PadAxis::y_stride;
  space = {};
  std::vector<int64_t> strides;
  for (const PadAxis& axis : axes) space.sizes.push_back(axis.*size), strides.push_back(axis.*stride);
  const std::vector<int64_t> packed = packed_strides(space.sizes);
  if (is_dense(space.sizes, strides)) return operand;
  for (size_t i = 0; i < axes.size(); ++i) axes[i].*stride = packed[i];
  const Operand dense = node.add_temporary(std::max<uint64_t>(buffer_size(node.input(0).dtype, space.sizes), 4));
  space.strides = is_source ? std::vector{strides, packed} : std::vector{packed, strides};
  if (is_source) add_strided_copy(node, node.input(0).dtype, space, {operand}, {dense});
  return dense;
}

void lower_pad(LowerContext& node) {
  const DType dtype = node.input(0).dtype;
  if (node.output(0).elements() == 0) return;
  if (bits(dtype) < 8) throw UnsupportedError("node '" + std::string(node.node) + "': Pad of " + std::string(name(dtype)));
  auto axes = merge_pad_axes(make_pad_axes(node));
  Operand from = node.input_operand(0), to = node.output_operand(0);
  IndexSpace moved;
  if (axes.size() > kPadRank) {
    // Pack source and destination, so that adjacent unpadded axes merge.
    from = make_packed_operand(node, axes, from, true, moved);
    to = make_packed_operand(node, axes, to, false, moved);
    // There are too many axes for one kernel: pad the inner axes first, into a packed tensor in which they merge into one axis.
    auto inner = axes;
    int64_t stride = 1;
    for (size_t i = inner.size(); i-- > 0;) {
      if (i + kPadRank <= inner.size()) inner[i] = {inner[i].x_size, inner[i].x_size, 0, inner[i].x_stride, 0};
      inner[i].y_stride = stride;
      stride *= inner[i].size;
    }
    const Operand inner_padded = node.add_temporary(static_cast<uint64_t>(stride * bits(dtype) / 8));
    add_pad(node, merge_pad_axes(inner), from, inner_padded);
    for (size_t i = 0; i < axes.size(); ++i) {
      axes[i].x_stride = inner[i].y_stride;
      if (i + kPadRank > axes.size()) axes[i].x_size = axes[i].size, axes[i].before = 0;
    }
    axes = merge_pad_axes(axes);
    from = inner_padded;
  }
  add_pad(node, std::move(axes), from, to);
  if (to.memory != MemoryKind::output) add_strided_copy(node, dtype, moved, {to}, {node.output_operand(0)});
}

void lower_bit_cast(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (bits(x.dtype) != bits(y.dtype))
    throw UnsupportedError("node '" + std::string(node.node) + "': BitCast where " + std::string(name(x.dtype)) + " becomes " +
                           std::string(name(y.dtype)) + " at the precision of the program");
  add_strided_copy(node, y.dtype, {y.shape, {x.strides, y.strides}}, {node.input_operand(0)}, {node.output_operand(0)});
}

}  // namespace pumice
