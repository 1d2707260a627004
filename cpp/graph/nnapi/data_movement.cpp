// NNAPI operations that move elements, or create tensors of given sizes.
#include <algorithm>
#include <initializer_list>
#include <limits>

#include "core/error.h"
#include "graph/nnapi/expansion.h"
#include "graph/nnapi/operations.h"
#include "operators/geometry/index_bounds.h"

namespace pumice::nnapi {
namespace {

constexpr int64_t kMaxParts = 65535;  // maximum number of outputs of a Split if the axis size is unknown
constexpr int64_t kLast = std::numeric_limits<int64_t>::max(), kFirst = std::numeric_limits<int64_t>::min();

int64_t to_int64(size_t value) {
  return static_cast<int64_t>(value);
}

// Adds an output with the quantization of operand i.
void add_output_quantized_like(Expansion& e, ValueId id, size_t i = 0) {
  e.add_output(id, e.operand_quantization(i));
}

// Checks that each of these lists has one number per axis of operand 0.
void check_list_lengths(Operands& o, std::initializer_list<size_t> lists) {
  for (const size_t i : lists) {
    o.expect_rank(i, 1);
    if (const auto length = o.rank(0) ? std::nullopt : o.size(i, 0)) o.expect_rank(0, static_cast<size_t>(*length));
  }
  for (const size_t i : lists)
    if (const auto rank = o.rank(0)) o.expect_length(i, *rank, "numbers expected, one for each axis of operand 0");
}

std::string format_axis(size_t axis) {
  return " on axis " + std::to_string(axis);
}

// ---- slices and gathers

void check_slice(Operands& o) {
  check_list_lengths(o, {1, 2});
  const auto begin = o.known_ints(1), size = o.known_ints(2);
  if (size && std::ranges::any_of(*size, [](int64_t number) { return number < -1; }))
    o.fail(2, "non-negative sizes, or -1 for the rest, expected; given " + to_string(*size));
  const size_t rank = begin ? begin->size() : size ? size->size() : 0;
  for (size_t axis = 0; axis < rank; ++axis) {
    const int64_t from = begin ? (*begin)[axis] : 0, requested_size = size ? (*size)[axis] : 0;
    if (from < 0) o.fail(1, "at least 0 expected" + format_axis(axis) + "; given " + std::to_string(from));
    const auto axis_size = from > 0 || requested_size > 0 ? o.size(0, axis) : std::nullopt;
    if (axis_size && (from > *axis_size || requested_size > *axis_size - from))
      o.fail(2, "at most " + std::to_string(*axis_size) + " elements expected" + format_axis(axis) + "; given " +
                    std::to_string(requested_size) + " from index " + std::to_string(from));
  }
}

bool has_open_end(const std::vector<int64_t>& size) {
  return std::ranges::find(size, -1) != size.end();
}

// Returns the index of the `begin` operand if the host need not read it: a slice of known size may begin at a position that the device
// computes.
std::optional<size_t> find_runtime_begin(const Operands& o) {
  const auto size = o.known_ints(2);
  return size && !has_open_end(*size) ? std::optional<size_t>(1) : std::nullopt;
}

// Expands a slice to Gathers, so that the host need not read its begin, which is clamped so that the slice fits.
ValueId slice_at_runtime_begin(Expansion& e, const std::vector<int64_t>& size) {
  ValueId y = e[0];
  const auto number = [&](int64_t value) { return e.add_scalar(static_cast<double>(value), DType::int32); };
  const ValueId checked_begin = e.add("pumice::SliceBegin", {e[1], e[0]}, make_attrs({{"size", size}}));
  const ValueId last = e.cast(e.add("Sub", {e.add("Shape", {e[0]}), e.add_int64_vector(size)}), DType::int32);
  const ValueId begin = e.add("Max", {e.add("Min", {checked_begin, last}), number(0)});
  for (size_t axis = 0; axis < size.size(); ++axis) {
    const ValueId steps = e.add("Range", {number(0), number(size[axis]), number(1)});
    const ValueId first = e.add("Gather", {begin, e.add_int64_vector({to_int64(axis)})});
    const ValueId indices = e.add("Add", {first, steps});
    y = e.add("Gather", {y, indices}, make_attrs({{"axis", to_int64(axis)}}));
  }
  return y;
}

void expand_slice(Expansion& e) {
  const auto begin = e.known_ints(1), size = e.known_ints(2);
  if (begin && size) {
    std::vector<int64_t> end(begin->size());
    Shape shape;
    for (size_t axis = 0; axis < end.size(); ++axis) {
      const bool open = (*size)[axis] < 0;
      end[axis] = open ? kLast : (*begin)[axis] + (*size)[axis];
      shape.push_back(open ? kUnknownSize : (*size)[axis]);
    }
    const ValueId y = e.add("Slice", {e[0], e.add_int64_vector(*begin), e.add_int64_vector(end)});
    e.refine_shape(y, shape);
    return add_output_quantized_like(e, y);
  }
  if (size && !has_open_end(*size)) return add_output_quantized_like(e, slice_at_runtime_begin(e, *size));
  const ValueId first = e.cast_to_int64(1), sizes = e.cast_to_int64(2);
  const ValueId end =
      e.add("Where", {e.add("Less", {sizes, e.add_int64_vector({0})}), e.add_int64_vector({kLast}), e.add("Add", {first, sizes})});
  add_output_quantized_like(e, e.add("Slice", {e[0], first, end}));
}

// Masks of a strided slice: operands 4 to 6.
struct SliceMasks {
  int64_t begin, end, shrink;
};

SliceMasks read_slice_masks(const Operands& o) {
  return {o.read_int(4), o.read_int(5), o.read_int(6)};
}

bool is_axis_masked(int64_t mask, size_t axis) {
  return axis < 32 && (mask >> axis & 1) != 0;
}

// A strided slice on one axis.
struct AxisSlice {
  int64_t begin, end, step;

  // Whether the slice is [-1:0], which exporters write to select the last element.
  bool selects_last() const { return begin == -1 && end == 0 && step > 0; }
  // Returns the number of elements that the slice selects on an axis of this size; 0 if it runs backwards from before the first element.
  int64_t count(int64_t size) const {
    const int64_t first_index = step > 0 ? 0 : -1, last_index = step > 0 ? size : size - 1;
    const auto clamp_index = [&](int64_t at) {
      return std::clamp(at < 0 ? std::max(at + size, first_index) : at, first_index, std::max(first_index, last_index));
    };
    const int64_t from = clamp_index(begin), distance = end == kFirst ? from + 1
                                                        : step > 0    ? clamp_index(end) - from
                                                                      : from - clamp_index(end);
    return distance <= 0 ? 0 : (distance - 1) / (step < 0 ? -step : step) + 1;
  }
};

AxisSlice apply_masks(const AxisSlice& requested, const SliceMasks& masks, size_t axis) {
  const bool forward = requested.step > 0;
  const bool opens = is_axis_masked(masks.begin, axis), ends = is_axis_masked(masks.end, axis);
  AxisSlice slice{opens ? (forward ? 0 : kLast) : requested.begin, ends ? (forward ? kLast : kFirst) : requested.end, requested.step};
  if (is_axis_masked(masks.shrink, axis) && !opens && !ends && requested.selects_last()) slice.end = kLast;
  return slice;
}

void check_strided_slice(Operands& o) {
  check_list_lengths(o, {1, 2, 3});
  const SliceMasks masks = read_slice_masks(o);
  const auto begin = o.known_ints(1), end = o.known_ints(2), steps = o.known_ints(3);
  for (size_t axis = 0; steps && axis < steps->size(); ++axis) {
    if ((*steps)[axis] == 0) o.fail(3, "nonzero steps expected; given 0" + format_axis(axis));
    if (is_axis_masked(masks.shrink, axis) && (*steps)[axis] < 0)
      o.fail(3, "a positive step expected" + format_axis(axis) + ", which is removed; given " + std::to_string((*steps)[axis]));
    if (!is_axis_masked(masks.shrink, axis) || !begin || !end) continue;
    const auto size = o.size(0, axis);
    const int64_t count = size ? apply_masks({(*begin)[axis], (*end)[axis], (*steps)[axis]}, masks, axis).count(*size) : 1;
    if (count != 1)
      o.fail(6, "a range of one element expected" + format_axis(axis) + ", which is removed; given one of " + std::to_string(count));
  }
}

// Inputs of an ONNX Slice. An empty backward slice that begins before the first element needs special treatment, since Slice would clamp
// its begin to the first element.
struct SliceInputs {
  ValueId starts, ends, steps;
};

SliceInputs make_static_slice_inputs(Expansion& e, const SliceMasks& masks, const std::vector<AxisSlice>& axis_slices) {
  std::vector<int64_t> starts, ends, steps;
  for (size_t axis = 0; axis < axis_slices.size(); ++axis) {
    AxisSlice slice = apply_masks(axis_slices[axis], masks, axis);
    const int64_t size = e.shape(0)[axis];
    if (size != kUnknownSize && slice.count(size) == 0) slice = {0, 0, 1};
    starts.push_back(slice.begin), ends.push_back(slice.end), steps.push_back(slice.step);
  }
  return {e.add_int64_vector(starts), e.add_int64_vector(ends), e.add_int64_vector(steps)};
}

SliceInputs make_runtime_slice_inputs(Expansion& e, const SliceMasks& masks) {
  const auto where = [&](ValueId condition, ValueId a, ValueId b) { return e.add("Where", {condition, a, b}); };
  const auto number = [&](int64_t value) { return e.add_int64_vector({value}); };
  // Returns `chosen` on the axes of the mask, `otherwise` on the others.
  const auto masked = [&](int64_t mask, ValueId chosen, ValueId otherwise) {
    std::vector<int64_t> bits;
    for (size_t axis = 0; axis < e.rank(0); ++axis) bits.push_back(is_axis_masked(mask, axis));
    return where(e.cast(e.add_int64_vector(bits), DType::bool_), chosen, otherwise);
  };
  ValueId starts = e.cast_to_int64(1), ends = e.cast_to_int64(2);
  const ValueId steps = e.cast_to_int64(3), backward = e.add("Less", {steps, number(0)});
  ValueId is_last = e.add("And", {e.add("Equal", {starts, number(-1)}), e.add("Equal", {ends, number(0)})});
  is_last = e.add("And", {is_last, e.add("Not", {backward})});
  ends = masked(masks.shrink & ~masks.begin & ~masks.end, where(is_last, number(kLast), ends), ends);
  starts = masked(masks.begin, where(backward, number(kLast), number(0)), starts);
  ends = masked(masks.end, where(backward, number(kFirst), number(kLast)), ends);
  const ValueId before = e.add("Less", {starts, e.add("Neg", {e.add("Shape", {e[0]})})});
  ends = where(e.add("And", {backward, before}), number(kLast), ends);
  return {starts, ends, steps};
}

void expand_strided_slice(Expansion& e) {
  const size_t rank = e.rank(0);
  const SliceMasks masks = read_slice_masks(e.rules());
  const auto begin = e.known_ints(1), end = e.known_ints(2), steps = e.known_ints(3);
  std::vector<int64_t> axes, removed_axes;
  std::vector<AxisSlice> axis_slices;
  bool is_known = begin && end && steps;
  for (size_t axis = 0; axis < rank; ++axis) {
    axes.push_back(to_int64(axis));
    if (is_axis_masked(masks.shrink, axis)) removed_axes.push_back(to_int64(axis));
    if (!begin || !end || !steps) continue;
    axis_slices.push_back({(*begin)[axis], (*end)[axis], (*steps)[axis]});
    const AxisSlice slice = apply_masks(axis_slices[axis], masks, axis);
    is_known = is_known && (e.shape(0)[axis] != kUnknownSize || slice.step > 0 || slice.begin >= 0);
  }
  if (removed_axes.size() == rank) removed_axes.pop_back();  // keeps shape [1], never a scalar
  const SliceInputs lists = is_known ? make_static_slice_inputs(e, masks, axis_slices) : make_runtime_slice_inputs(e, masks);
  ValueId y = e.add("Slice", {e[0], lists.starts, lists.ends, e.add_int64_vector(axes), lists.steps});
  e.refine_shape(y, Shape(rank, kUnknownSize));
  if (!removed_axes.empty()) y = e.add("Squeeze", {y, e.add_int64_vector(removed_axes)});
  e.refine_shape(y, Shape(rank - removed_axes.size(), kUnknownSize));
  add_output_quantized_like(e, y);
}

// Checks that known indices are within the axis.
void check_indices(const Operands& o, size_t indices, size_t x, size_t axis) {
  const auto& elements = o.facts()[indices].elements;
  if (!elements) return;
  const auto index_values = elements->as_int64();
  const auto size = index_values.empty() ? std::nullopt : o.size(x, axis);
  const auto wrong = std::ranges::find_if(index_values, [&](int64_t entry) { return entry < 0 || (size && entry >= *size); });
  if (wrong != index_values.end())
    o.fail(indices, "non-negative indices below " + (size ? std::to_string(*size) : "the size of axis " + std::to_string(axis)) +
                        " expected; given " + std::to_string(*wrong));
}

void check_gather(Operands& o) {
  if (const auto rank = o.rank(0)) check_indices(o, 2, 0, o.read_axis(1, *rank));
}

void expand_gather(Expansion& e) {
  const int64_t axis = e.read_onnx_axis(1, 0);
  add_output_quantized_like(e, e.add("Gather", {e[0], e.add_index_check(e[2], e[0], axis)}, make_attrs({{"axis", axis}})));
}

void check_embedding_lookup(Operands& o) {
  o.expect_min_rank(1, 1);
  if (o.rank(1)) check_indices(o, 0, 1, 0);
}

void expand_embedding_lookup(Expansion& e) {
  add_output_quantized_like(e, e.add("Gather", {e[1], e.add_index_check(e[0], e[1], 0)}, make_attrs({{"axis", int64_t{0}}})), 1);
}

void check_split(Operands& o) {
  const int64_t parts = o.read_int(2);
  const auto rank = o.rank(0);
  const size_t axis = rank ? o.read_axis(1, *rank) : 0;
  const auto size = rank ? o.size(0, axis) : std::nullopt;
  if (parts < 1 || parts > size.value_or(kMaxParts) || (size && *size % parts != 0))
    o.fail(2,
           "a number that divides axis " + std::to_string(axis) + " of " + o.format_shape(0) + " expected; given " + std::to_string(parts));
}

void expand_split(Expansion& e) {
  const int64_t axis = e.read_onnx_axis(1, 0), parts = e.read_int(2);
  const auto outputs =
      e.add_multi_output("Split", {e[0]}, static_cast<size_t>(parts), make_attrs({{"axis", axis}, {"num_outputs", parts}}));
  for (const ValueId output : outputs) add_output_quantized_like(e, output);
}

void expand_top_k(Expansion& e) {
  const int64_t k = e.read_int(1);
  const auto outputs = e.add_multi_output("TopK", {e[0], e.add_int64_vector({k})}, 2, make_attrs({{"axis", int64_t{-1}}}));
  add_output_quantized_like(e, outputs[0]);
  e.add_output(e.cast(outputs[1], DType::int32));
}

// ---- whole tensors

void check_tile(Operands& o) {
  check_list_lengths(o, {1});
}

void expand_tile(Expansion& e) {
  add_output_quantized_like(e, e.add("Tile", {e[0], e.cast_to_int64(1)}));
}

void expand_expand_dims(Expansion& e) {
  add_output_quantized_like(e, e.add("Unsqueeze", {e[0], e.add_int64_vector({e.read_onnx_axis(1, 0, 1)})}));
}

void expand_reshape(Expansion& e) {
  const auto shape = e.known_ints(1);
  if (!shape) return add_output_quantized_like(e, e.add("Reshape", {e[0], e.cast_to_int64(1)}, make_attrs({{"allowzero", int64_t{1}}})));
  if (std::ranges::count(*shape, -1) > 1 || std::ranges::any_of(*shape, [](int64_t number) { return number < -1; }))
    e.fail(1, "non-negative sizes, and at most one -1, expected; given " + to_string(*shape));
  std::vector<AxisLength> lengths;
  for (const int64_t axis_size : *shape) lengths.push_back({axis_size});
  add_output_quantized_like(e, e.reshape(e[0], lengths));
}

// Expands SQUEEZE, which keeps at least one axis.
void expand_squeeze(Expansion& e) {
  if (e.has(1) && !e.known_ints(1))
    return add_output_quantized_like(e, e.ensure_vector(e.add("Squeeze", {e[0], e.add_runtime_axes(1, e[0])})));
  const size_t rank = e.rank(0);
  std::vector<int64_t> axes;
  if (e.has(1)) {
    for (const int64_t axis_value : e.read_list(1)) {
      const int64_t axis = axis_value < 0 ? axis_value + to_int64(rank) : axis_value;
      if (axis < 0 || axis >= to_int64(rank))
        e.fail(1, "axes of " + to_string(e.shape(0)) + " expected; given " + std::to_string(axis_value));
      if (std::ranges::find(axes, axis) == axes.end()) axes.push_back(axis);
    }
  } else {
    for (size_t axis = 0; axis < rank; ++axis)
      if (e.size(0, axis) == 1) axes.push_back(to_int64(axis));
  }
  if (axes.size() == rank && rank > 0) axes.pop_back();
  add_output_quantized_like(e, axes.empty() ? e[0] : e.add("Squeeze", {e[0], e.add_int64_vector(axes)}));
}

void expand_pack(Expansion& e) {
  std::vector<ValueId> parts;
  const int64_t axis = e.read_onnx_axis(0, 1, 1);
  for (size_t i = 1; i < e.count(); ++i) {
    if (e.quantization(i) != e.quantization(1))
      e.fail(i, to_string(e.quantization(1)) + " expected, as operand 1; given " + to_string(e.quantization(i)));
    parts.push_back(e.add("Unsqueeze", {e[i], e.add_int64_vector({axis})}));
  }
  add_output_quantized_like(e, e.add("Concat", parts, make_attrs({{"axis", axis}})), 1);
}

// Requantizes operands whose quantization differs from that of the output.
void expand_concatenation(Expansion& e) {
  const size_t last = e.count() - 1;
  const int64_t axis = e.read_onnx_axis(last, 0);
  std::vector<ValueId> parts;
  Quantization quantization;
  if (e.is_quantized(0)) {
    bool alike = true;
    for (size_t i = 1; i < last; ++i) alike = alike && e.quantization(i) == e.quantization(0);
    quantization = alike ? e.declared_quantization_or(e.quantization(0)) : e.declared_quantization();
  }
  for (size_t i = 0; i < last; ++i)
    parts.push_back(e.quantization(i) == quantization ? e[i] : e.quantize(e.to_real(i), quantization, e.dtype(i)));
  e.add_output(e.add("Concat", parts, make_attrs({{"axis", axis}})), quantization);
}

void expand_fill(Expansion& e) {
  const auto& value = e.value(1).constant;
  if (!value) return e.add_output(e.add("Expand", {e[1], e.cast_to_int64(0)}));  // the program computes the value
  HostTensor fill_value = *value;
  fill_value.desc = TensorDesc(fill_value.desc.dtype, {1});
  e.add_output(e.add("ConstantOfShape", {e.cast_to_int64(0)}, make_attrs({{"value", fill_value}})));
}

void expand_rank(Expansion& e) {
  if (e.value(0).shape) return e.add_output(e.add_scalar(static_cast<double>(e.rank(0)), DType::int32));
  e.add_output(e.cast(e.add("Size", {e.add("Shape", {e[0]})}), DType::int32));
}

// ---- padding

void check_pads(Operands& o) {
  const auto fail = [&] { o.fail(1, "a pair of numbers for each axis of operand 0 expected; given " + o.format_shape(1)); };
  o.expect_rank(1, 2);
  const auto rows = o.size(1, 0), columns = o.size(1, 1);
  if (rows && !o.rank(0)) o.expect_rank(0, static_cast<size_t>(*rows));
  const auto rank = o.rank(0);
  if ((columns && *columns != 2) || (rows && rank && *rows != to_int64(*rank))) fail();
  if (const auto pad_values = o.known_ints(1))
    for (const int64_t pad : *pad_values)
      if (pad < 0) o.fail(1, "non-negative numbers expected; given " + std::to_string(pad));
}

// Returns ONNX pads (begins, then ends) from pairs by axis.
ValueId read_onnx_pads(Expansion& e) {
  const auto pad_values = e.known_ints(1);
  if (!pad_values) return e.cast(e.add("Reshape", {e.add("Transpose", {e[1]}), e.add_int64_vector({-1})}), DType::int64);
  std::vector<int64_t> pads(pad_values->size());
  for (size_t i = 0; i < pad_values->size(); ++i) pads[i % 2 * pad_values->size() / 2 + i / 2] = (*pad_values)[i];
  return e.add_int64_vector(pads);
}

void expand_pad(Expansion& e) {
  std::vector<ValueId> inputs{e[0], read_onnx_pads(e)};
  if (e.is_quantized(0)) inputs.push_back(e.add_scalar(e.quantization(0).zero_point.value_or(0), e.dtype(0)));
  add_output_quantized_like(e, e.add("Pad", inputs));
}

// The padding value has the dtype of the tensor or, for a quantized tensor, is an int32 in its own units.
void expand_pad_v2(Expansion& e) {
  const DTypeSet expected = e.is_quantized(0) ? kInt : kFloat;
  if (!contains(expected, e.dtype(2)))
    e.fail(2, join_dtype_names(expected) + " expected with " + std::string(name(e.dtype(0))) + "; given " + std::string(name(e.dtype(2))));
  add_output_quantized_like(e, e.add("Pad", {e[0], read_onnx_pads(e), e.add_scalar(e.read_real(2), e.dtype(0))}));
}

// Mirror padding may be at most the axis size (SYMMETRIC), or one less (REFLECT, which skips the border element).
void check_mirror_pad(Operands& o) {
  check_pads(o);
  const int64_t mode = o.read_int(2);
  if (mode != 0 && mode != 1) o.fail(2, "0 (REFLECT) or 1 (SYMMETRIC) expected; given " + std::to_string(mode));
  const auto pads = o.known_ints(1);
  for (size_t k = 0; pads && k < pads->size(); ++k) {
    const auto size = (*pads)[k] > 0 ? o.size(0, k / 2) : std::nullopt;
    const int64_t max_pad = size ? std::max<int64_t>(*size - (mode == 0 ? 1 : 0), 0) : kLast;
    if ((*pads)[k] > max_pad)
      o.fail(1, "at most " + std::to_string(max_pad) + format_axis(k / 2) + " expected; given " + std::to_string((*pads)[k]));
  }
}

void expand_mirror_pad(Expansion& e) {
  const ValueId pads = read_onnx_pads(e);
  if (e.read_int(2) == 1) return add_output_quantized_like(e, e.add("pumice::SymmetricPad", {e[0], pads}));
  add_output_quantized_like(e, e.add("Pad", {e[0], pads}, make_attrs({{"mode", std::string("reflect")}})));
}

}  // namespace

Operations make_data_movement_operations() {
  constexpr DTypeSet reals = kFloat | kQuant, numbers = reals | kInt;
  const auto moved = [](std::string_view name, int level, std::string_view summary, DTypeSet dtypes, std::vector<Operand> more,
                        void (*expand)(Expansion&)) {
    more.insert(more.begin(), tensor_arg("x", dtypes));
    return Operation{name, level, summary, std::move(more), {tensor_arg("y", dtypes)}, expand};
  };
  return {
      with_check(moved("nnapi::SLICE", 3, "`size` elements of each axis from `begin` on; -1: all that are left.", numbers,
                       {list_arg("begin"), list_arg("size")}, expand_slice),
                 check_slice, find_runtime_begin),
      with_check(moved("nnapi::STRIDED_SLICE", 2, "From begin to end in steps; bits of the masks open an end, or let the axis go.", reals,
                       {list_arg("begin"), list_arg("end"), list_arg("strides"), scalar_arg("begin_mask"), scalar_arg("end_mask"),
                        scalar_arg("shrink_axis_mask")},
                       expand_strided_slice),
                 check_strided_slice),
      with_check(moved("nnapi::GATHER", 3, "The places of an axis that the indices name.", numbers,
                       {scalar_arg("axis"), tensor_arg("indices", kInt)}, expand_gather),
                 check_gather),
      {"nnapi::EMBEDDING_LOOKUP",
       1,
       "The rows that the indices name.",
       {tensor_arg("lookups", kInt), tensor_arg("values", numbers)},
       {tensor_arg("y", numbers)},
       expand_embedding_lookup,
       {},
       check_embedding_lookup},
      {"nnapi::SPLIT",
       3,
       "An axis in equal parts, each an output.",
       {tensor_arg("x", numbers), scalar_arg("axis"), scalar_arg("num_splits")},
       {variadic_tensor_arg("y", numbers)},
       expand_split,
       {},
       check_split},
      {"nnapi::TOPK_V2",
       3,
       "The k largest of the last axis, the largest first, and their indices.",
       {tensor_arg("x", numbers), scalar_arg("k")},
       {tensor_arg("values", numbers), tensor_arg("indices", kInt)},
       expand_top_k},
      with_check(moved("nnapi::TILE", 3, "Each axis so many times over.", numbers, {list_arg("multiples")}, expand_tile), check_tile),
      moved("nnapi::EXPAND_DIMS", 3, "With one more axis, of size 1.", numbers, {scalar_arg("axis")}, expand_expand_dims),
      moved("nnapi::RESHAPE", 1, "The elements in another shape; -1 stands for what is left.", numbers, {list_arg("shape")},
            expand_reshape),
      moved("nnapi::SQUEEZE", 2, "Without the axes of size 1 that are named, or all of them; one is always left.", reals,
            {list_arg("axes", true)}, expand_squeeze),
      {"nnapi::PACK",
       6,
       "Tensors of one shape as the parts of a new axis.",
       {scalar_arg("axis"), variadic_tensor_arg("x", numbers, 'T')},
       {tensor_arg("y", numbers)},
       expand_pack},
      {"nnapi::CONCATENATION",
       1,
       "Tensors behind each other on an axis. Operands of other scales than the output's are brought to it.",
       {variadic_tensor_arg("x", reals, 'T'), scalar_arg("axis")},
       {tensor_arg("y", reals)},
       expand_concatenation},
      {"nnapi::FILL",
       4,
       "A tensor of these sizes, all of one value.",
       {list_arg("dims"), scalar_arg("value", kFloat | kInt)},
       {tensor_arg("y", kFloat | kInt)},
       expand_fill},
      {"nnapi::RANK", 4, "The number of axes.", {tensor_arg("x", numbers | kTruth)}, {scalar_arg("y")}, expand_rank},
      with_check(moved("nnapi::PAD", 2, "With zeros around.", reals, {pairs_arg("paddings")}, expand_pad), check_pads),
      with_check(moved("nnapi::PAD_V2", 3, "With a value around; of a quantized tensor an int32 as it is stored.", reals,
                       {pairs_arg("paddings"), scalar_arg("value", kFloat | kInt)}, expand_pad_v2),
                 check_pads),
      with_check(moved("nnapi::MIRROR_PAD", 7, "With its own border mirrored around: without the outermost elements (0) or with them (1).",
                       numbers, {pairs_arg("paddings"), scalar_arg("mode")}, expand_mirror_pad),
                 check_mirror_pad),
  };
}

}  // namespace pumice::nnapi
