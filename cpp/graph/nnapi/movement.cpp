// Operations that move elements, and those that create tensors from sizes.
#include <algorithm>
#include <initializer_list>
#include <limits>

#include "core/error.h"
#include "graph/nnapi/expansion.h"
#include "graph/nnapi/operations.h"
#include "operators/geometry/index_bounds.h"

namespace pumice::nnapi {
namespace {

constexpr int64_t kMaxParts = 65535;  // outputs of a Split if the axis size is unknown
constexpr int64_t kLast = std::numeric_limits<int64_t>::max(), kFirst = std::numeric_limits<int64_t>::min();

int64_t signed_size(size_t value) {
  return static_cast<int64_t>(value);
}

// Adds an output with operand i's quantization.
void add_moved_output(Expansion& e, ValueId id, size_t i = 0) {
  e.add_output(id, e.operand_quantization(i));
}

// Each of these lists must have one number per axis of operand 0.
void check_lengths(Operands& o, std::initializer_list<size_t> lists) {
  for (const size_t i : lists) {
    o.expect_rank(i, 1);
    if (const auto length = o.rank(0) ? std::nullopt : o.size(i, 0)) o.expect_rank(0, static_cast<size_t>(*length));
  }
  for (const size_t i : lists)
    if (const auto rank = o.rank(0)) o.expect_length(i, *rank, "numbers expected, one for each axis of operand 0");
}

std::string on_axis(size_t axis) {
  return " on axis " + std::to_string(axis);
}

// ---- slices and gathers

void check_slice(Operands& o) {
  check_lengths(o, {1, 2});
  const auto begin = o.numbers(1), size = o.numbers(2);
  if (size && std::ranges::any_of(*size, [](int64_t one) { return one < -1; }))
    o.fail(2, "sizes of at least 0, or -1 for all that is left, expected; given " + to_string(*size));
  const size_t rank = begin ? begin->size() : size ? size->size() : 0;
  for (size_t axis = 0; axis < rank; ++axis) {
    const int64_t from = begin ? (*begin)[axis] : 0, requested_size = size ? (*size)[axis] : 0;
    if (from < 0) o.fail(1, "at least 0 expected" + on_axis(axis) + "; given " + std::to_string(from));
    const auto axis_size = from > 0 || requested_size > 0 ? o.size(0, axis) : std::nullopt;
    if (axis_size && (from > *axis_size || requested_size > *axis_size - from))
      o.fail(2, "at most " + std::to_string(*axis_size) + " elements expected" + on_axis(axis) + "; given " +
                    std::to_string(requested_size) + " from " + std::to_string(from) + " on");
  }
}

bool has_open_size(const std::vector<int64_t>& size) {
  return std::ranges::find(size, -1) != size.end();
}

// Returns the `begin` operand if the host need not read it: a slice with known sizes may begin at a device-computed position.
std::optional<size_t> unread_begin(const Operands& o) {
  const auto size = o.numbers(2);
  return size && !has_open_size(*size) ? std::optional<size_t>(1) : std::nullopt;
}

// Expands a slice to gathers, so that the host need not read where it begins. The begin is clamped so that the slice fits.
ValueId slice_at_runtime_begin(Expansion& e, const std::vector<int64_t>& size) {
  ValueId y = e[0];
  const auto number = [&](int64_t value) { return e.scalar(static_cast<double>(value), DType::int32); };
  const ValueId checked_begin = e.add("pumice::SliceBegin", {e[1], e[0]}, with({{"size", size}}));
  const ValueId last = e.cast(e.add("Sub", {e.add("Shape", {e[0]}), e.integers(size)}), DType::int32);
  const ValueId begin = e.add("Max", {e.add("Min", {checked_begin, last}), number(0)});
  for (size_t axis = 0; axis < size.size(); ++axis) {
    const ValueId steps = e.add("Range", {number(0), number(size[axis]), number(1)});
    const ValueId first = e.add("Gather", {begin, e.integers({signed_size(axis)})});
    const ValueId indices = e.add("Add", {first, steps});
    y = e.add("Gather", {y, indices}, with({{"axis", signed_size(axis)}}));
  }
  return y;
}

void slice(Expansion& e) {
  const auto begin = e.known(1), size = e.known(2);
  if (begin && size) {
    std::vector<int64_t> end(begin->size());
    Shape shape;
    for (size_t axis = 0; axis < end.size(); ++axis) {
      const bool open = (*size)[axis] < 0;
      end[axis] = open ? kLast : (*begin)[axis] + (*size)[axis];
      shape.push_back(open ? kUnknownSize : (*size)[axis]);
    }
    const ValueId y = e.add("Slice", {e[0], e.integers(*begin), e.integers(end)});
    e.refine(y, shape);
    return add_moved_output(e, y);
  }
  if (size && !has_open_size(*size)) return add_moved_output(e, slice_at_runtime_begin(e, *size));
  const ValueId first = e.as_int64(1), sizes = e.as_int64(2);
  const ValueId end = e.add("Where", {e.add("Less", {sizes, e.integers({0})}), e.integers({kLast}), e.add("Add", {first, sizes})});
  add_moved_output(e, e.add("Slice", {e[0], first, end}));
}

// Masks of a strided slice, operands 4 to 6.
struct Masks {
  int64_t begin, end, shrink;
};

Masks masks_of(const Operands& o) {
  return {o.integer(4), o.integer(5), o.integer(6)};
}

bool has_bit(int64_t mask, size_t axis) {
  return axis < 32 && (mask >> axis & 1) != 0;
}

// A strided slice on one axis.
struct AxisSlice {
  int64_t begin, end, step;

  // -1 selects the last element, as exporters write it.
  bool is_last() const { return begin == -1 && end == 0 && step > 0; }
  // Returns how many elements the slice selects on an axis of this size; 0 if it runs backwards from before the first element.
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

AxisSlice axis_slice(const AxisSlice& requested, const Masks& masks, size_t axis) {
  const bool forward = requested.step > 0;
  const bool opens = has_bit(masks.begin, axis), ends = has_bit(masks.end, axis);
  AxisSlice slice{opens ? (forward ? 0 : kLast) : requested.begin, ends ? (forward ? kLast : kFirst) : requested.end, requested.step};
  if (has_bit(masks.shrink, axis) && !opens && !ends && requested.is_last()) slice.end = kLast;
  return slice;
}

void check_strided_slice(Operands& o) {
  check_lengths(o, {1, 2, 3});
  const Masks masks = masks_of(o);
  const auto begin = o.numbers(1), end = o.numbers(2), steps = o.numbers(3);
  for (size_t axis = 0; steps && axis < steps->size(); ++axis) {
    if ((*steps)[axis] == 0) o.fail(3, "steps other than 0 expected; given 0" + on_axis(axis));
    if (has_bit(masks.shrink, axis) && (*steps)[axis] < 0)
      o.fail(3, "a step above 0 expected" + on_axis(axis) + ", which goes; given " + std::to_string((*steps)[axis]));
    if (!has_bit(masks.shrink, axis) || !begin || !end) continue;
    const auto size = o.size(0, axis);
    const int64_t count = size ? axis_slice({(*begin)[axis], (*end)[axis], (*steps)[axis]}, masks, axis).count(*size) : 1;
    if (count != 1) o.fail(6, "a range of one element expected" + on_axis(axis) + ", which goes; given one of " + std::to_string(count));
  }
}

// Inputs of Slice. If a backward slice begins before the first element, Slice would begin at the first element instead.
struct SliceLists {
  ValueId starts, ends, steps;
};

SliceLists known_lists(Expansion& e, const Masks& masks, const std::vector<AxisSlice>& axis_slices) {
  std::vector<int64_t> starts, ends, steps;
  for (size_t axis = 0; axis < axis_slices.size(); ++axis) {
    AxisSlice slice = axis_slice(axis_slices[axis], masks, axis);
    const int64_t size = e.shape(0)[axis];
    if (size != kUnknownSize && slice.count(size) == 0) slice = {0, 0, 1};
    starts.push_back(slice.begin), ends.push_back(slice.end), steps.push_back(slice.step);
  }
  return {e.integers(starts), e.integers(ends), e.integers(steps)};
}

SliceLists computed_lists(Expansion& e, const Masks& masks) {
  const auto where = [&](ValueId condition, ValueId a, ValueId b) { return e.add("Where", {condition, a, b}); };
  const auto number = [&](int64_t value) { return e.integers({value}); };
  // Selects `chosen` on the axes of the mask.
  const auto masked = [&](int64_t mask, ValueId chosen, ValueId otherwise) {
    std::vector<int64_t> bits;
    for (size_t axis = 0; axis < e.rank(0); ++axis) bits.push_back(has_bit(mask, axis));
    return where(e.cast(e.integers(bits), DType::bool_), chosen, otherwise);
  };
  ValueId starts = e.as_int64(1), ends = e.as_int64(2);
  const ValueId steps = e.as_int64(3), backward = e.add("Less", {steps, number(0)});
  ValueId is_last = e.add("And", {e.add("Equal", {starts, number(-1)}), e.add("Equal", {ends, number(0)})});
  is_last = e.add("And", {is_last, e.add("Not", {backward})});
  ends = masked(masks.shrink & ~masks.begin & ~masks.end, where(is_last, number(kLast), ends), ends);
  starts = masked(masks.begin, where(backward, number(kLast), number(0)), starts);
  ends = masked(masks.end, where(backward, number(kFirst), number(kLast)), ends);
  const ValueId before = e.add("Less", {starts, e.add("Neg", {e.add("Shape", {e[0]})})});
  ends = where(e.add("And", {backward, before}), number(kLast), ends);
  return {starts, ends, steps};
}

void strided_slice(Expansion& e) {
  const size_t rank = e.rank(0);
  const Masks masks = masks_of(e.rules());
  const auto begin = e.known(1), end = e.known(2), steps = e.known(3);
  std::vector<int64_t> axes, removed_axes;
  std::vector<AxisSlice> axis_slices;
  bool is_known = begin && end && steps;
  for (size_t axis = 0; axis < rank; ++axis) {
    axes.push_back(signed_size(axis));
    if (has_bit(masks.shrink, axis)) removed_axes.push_back(signed_size(axis));
    if (!begin || !end || !steps) continue;
    axis_slices.push_back({(*begin)[axis], (*end)[axis], (*steps)[axis]});
    const AxisSlice slice = axis_slice(axis_slices[axis], masks, axis);
    is_known = is_known && (e.shape(0)[axis] != kUnknownSize || slice.step > 0 || slice.begin >= 0);
  }
  if (removed_axes.size() == rank) removed_axes.pop_back();  // leaves [1], never a scalar
  const SliceLists lists = is_known ? known_lists(e, masks, axis_slices) : computed_lists(e, masks);
  ValueId y = e.add("Slice", {e[0], lists.starts, lists.ends, e.integers(axes), lists.steps});
  e.refine(y, Shape(rank, kUnknownSize));
  if (!removed_axes.empty()) y = e.add("Squeeze", {y, e.integers(removed_axes)});
  e.refine(y, Shape(rank - removed_axes.size(), kUnknownSize));
  add_moved_output(e, y);
}

// Known indices must be within the axis.
void check_indices(const Operands& o, size_t indices, size_t x, size_t axis) {
  const auto& elements = o.facts()[indices].elements;
  if (!elements) return;
  const auto index_values = elements->as_int64();
  const auto size = index_values.empty() ? std::nullopt : o.size(x, axis);
  const auto wrong = std::ranges::find_if(index_values, [&](int64_t one) { return one < 0 || (size && one >= *size); });
  if (wrong != index_values.end())
    o.fail(indices, "indices from 0 on, below " + (size ? std::to_string(*size) : "the size of axis " + std::to_string(axis)) +
                        ", expected; given " + std::to_string(*wrong));
}

void check_gather(Operands& o) {
  if (const auto rank = o.rank(0)) check_indices(o, 2, 0, o.axis(1, *rank));
}

void gather(Expansion& e) {
  const int64_t axis = e.any_axis(1, 0);
  add_moved_output(e, e.add("Gather", {e[0], e.checked_indices(e[2], e[0], axis)}, with({{"axis", axis}})));
}

void check_lookup(Operands& o) {
  o.expect_min_rank(1, 1);
  if (o.rank(1)) check_indices(o, 0, 1, 0);
}

void lookup(Expansion& e) {
  add_moved_output(e, e.add("Gather", {e[1], e.checked_indices(e[0], e[1], 0)}, with({{"axis", int64_t{0}}})), 1);
}

void check_split(Operands& o) {
  const int64_t parts = o.integer(2);
  const auto rank = o.rank(0);
  const size_t axis = rank ? o.axis(1, *rank) : 0;
  const auto size = rank ? o.size(0, axis) : std::nullopt;
  if (parts < 1 || parts > size.value_or(kMaxParts) || (size && *size % parts != 0))
    o.fail(2,
           "a number that divides axis " + std::to_string(axis) + " of " + o.shape_text(0) + " expected; given " + std::to_string(parts));
}

void split(Expansion& e) {
  const int64_t axis = e.any_axis(1, 0), parts = e.integer(2);
  const auto made = e.add_many("Split", {e[0]}, static_cast<size_t>(parts), with({{"axis", axis}, {"num_outputs", parts}}));
  for (const ValueId part : made) add_moved_output(e, part);
}

void top_k(Expansion& e) {
  const int64_t k = e.integer(1);
  const auto made = e.add_many("TopK", {e[0], e.integers({k})}, 2, with({{"axis", int64_t{-1}}}));
  add_moved_output(e, made[0]);
  e.add_output(e.cast(made[1], DType::int32));
}

// ---- whole tensors

void check_tile(Operands& o) {
  check_lengths(o, {1});
}

void tile(Expansion& e) {
  add_moved_output(e, e.add("Tile", {e[0], e.as_int64(1)}));
}

void expand_dims(Expansion& e) {
  add_moved_output(e, e.add("Unsqueeze", {e[0], e.integers({e.any_axis(1, 0, 1)})}));
}

void reshape(Expansion& e) {
  const auto shape = e.known(1);
  if (!shape) return add_moved_output(e, e.add("Reshape", {e[0], e.as_int64(1)}, with({{"allowzero", int64_t{1}}})));
  if (std::ranges::count(*shape, -1) > 1 || std::ranges::any_of(*shape, [](int64_t one) { return one < -1; }))
    e.fail(1, "sizes of at least 0, and at most one -1, expected; given " + to_string(*shape));
  std::vector<Length> lengths;
  for (const int64_t one : *shape) lengths.push_back({one});
  add_moved_output(e, e.reshaped(e[0], lengths));
}

// Keeps at least one axis.
void squeeze(Expansion& e) {
  if (e.has(1) && !e.known(1)) return add_moved_output(e, e.at_least_1d(e.add("Squeeze", {e[0], e.runtime_axes(1, e[0])})));
  const size_t rank = e.rank(0);
  std::vector<int64_t> axes;
  if (e.has(1)) {
    for (const int64_t axis_value : e.list(1)) {
      const int64_t axis = axis_value < 0 ? axis_value + signed_size(rank) : axis_value;
      if (axis < 0 || axis >= signed_size(rank))
        e.fail(1, "axes of " + to_string(e.shape(0)) + " expected; given " + std::to_string(axis_value));
      if (std::ranges::find(axes, axis) == axes.end()) axes.push_back(axis);
    }
  } else {
    for (size_t axis = 0; axis < rank; ++axis)
      if (e.size(0, axis) == 1) axes.push_back(signed_size(axis));
  }
  if (axes.size() == rank && rank > 0) axes.pop_back();
  add_moved_output(e, axes.empty() ? e[0] : e.add("Squeeze", {e[0], e.integers(axes)}));
}

void pack(Expansion& e) {
  std::vector<ValueId> parts;
  const int64_t axis = e.any_axis(0, 1, 1);
  for (size_t i = 1; i < e.count(); ++i) {
    if (e.quantization(i) != e.quantization(1))
      e.fail(i, to_string(e.quantization(1)) + " expected, as operand 1; given " + to_string(e.quantization(i)));
    parts.push_back(e.add("Unsqueeze", {e[i], e.integers({axis})}));
  }
  add_moved_output(e, e.add("Concat", parts, with({{"axis", axis}})), 1);
}

// Requantizes operands whose scale differs from the output's.
void concatenation(Expansion& e) {
  const size_t last = e.count() - 1;
  const int64_t axis = e.any_axis(last, 0);
  std::vector<ValueId> parts;
  Quantization quantization;
  if (e.is_quantized(0)) {
    bool alike = true;
    for (size_t i = 1; i < last; ++i) alike = alike && e.quantization(i) == e.quantization(0);
    quantization = alike ? e.declared_or(e.quantization(0)) : e.declared();
  }
  for (size_t i = 0; i < last; ++i)
    parts.push_back(e.quantization(i) == quantization ? e[i] : e.quantized(e.reals(i), quantization, e.dtype(i)));
  e.add_output(e.add("Concat", parts, with({{"axis", axis}})), quantization);
}

void fill(Expansion& e) {
  const auto& value = e.value(1).constant;
  if (!value) return e.add_output(e.add("Expand", {e[1], e.as_int64(0)}));  // a value computed by the program
  HostTensor one = *value;
  one.desc = TensorDesc(one.desc.dtype, {1});
  e.add_output(e.add("ConstantOfShape", {e.as_int64(0)}, with({{"value", one}})));
}

void rank(Expansion& e) {
  if (e.value(0).shape) return e.add_output(e.scalar(static_cast<double>(e.rank(0)), DType::int32));
  e.add_output(e.cast(e.add("Size", {e.add("Shape", {e[0]})}), DType::int32));
}

// ---- padding

void check_pads(Operands& o) {
  const auto fail = [&] { o.fail(1, "a pair of numbers for each axis of operand 0 expected; given " + o.shape_text(1)); };
  o.expect_rank(1, 2);
  const auto rows = o.size(1, 0), columns = o.size(1, 1);
  if (rows && !o.rank(0)) o.expect_rank(0, static_cast<size_t>(*rows));
  const auto rank = o.rank(0);
  if ((columns && *columns != 2) || (rows && rank && *rows != signed_size(*rank))) fail();
  if (const auto pad_values = o.numbers(1))
    for (const int64_t one : *pad_values)
      if (one < 0) o.fail(1, "numbers of at least 0 expected; given " + std::to_string(one));
}

// Returns pads for Pad, begins then ends, from pairs by axis.
ValueId pads_of(Expansion& e) {
  const auto pad_values = e.known(1);
  if (!pad_values) return e.cast(e.add("Reshape", {e.add("Transpose", {e[1]}), e.integers({-1})}), DType::int64);
  std::vector<int64_t> pads(pad_values->size());
  for (size_t i = 0; i < pad_values->size(); ++i) pads[i % 2 * pad_values->size() / 2 + i / 2] = (*pad_values)[i];
  return e.integers(pads);
}

void pad(Expansion& e) {
  std::vector<ValueId> inputs{e[0], pads_of(e)};
  if (e.is_quantized(0)) inputs.push_back(e.scalar(e.quantization(0).zero_point.value_or(0), e.dtype(0)));
  add_moved_output(e, e.add("Pad", inputs));
}

// The padding value has the tensor's type, or is an integer in a quantized tensor's own units.
void pad_with(Expansion& e) {
  const DTypeSet expected = e.is_quantized(0) ? kInt : kFloat;
  if (!contains(expected, e.dtype(2)))
    e.fail(2, names(expected) + " expected beside " + std::string(name(e.dtype(0))) + "; given " + std::string(name(e.dtype(2))));
  add_moved_output(e, e.add("Pad", {e[0], pads_of(e), e.scalar(e.real(2), e.dtype(0))}));
}

// Mirror padding may be as large as the axis (SYMMETRIC), or one less (REFLECT skips the border element).
void check_mirror_pad(Operands& o) {
  check_pads(o);
  const int64_t mode = o.integer(2);
  if (mode != 0 && mode != 1) o.fail(2, "0 (REFLECT) or 1 (SYMMETRIC) expected; given " + std::to_string(mode));
  const auto pads = o.numbers(1);
  for (size_t k = 0; pads && k < pads->size(); ++k) {
    const auto size = (*pads)[k] > 0 ? o.size(0, k / 2) : std::nullopt;
    const int64_t max_pad = size ? std::max<int64_t>(*size - (mode == 0 ? 1 : 0), 0) : kLast;
    if ((*pads)[k] > max_pad)
      o.fail(1, "at most " + std::to_string(max_pad) + on_axis(k / 2) + " expected; given " + std::to_string((*pads)[k]));
  }
}

void mirror_pad(Expansion& e) {
  const ValueId pads = pads_of(e);
  if (e.integer(2) == 1) return add_moved_output(e, e.add("pumice::SymmetricPad", {e[0], pads}));
  add_moved_output(e, e.add("Pad", {e[0], pads}, with({{"mode", std::string("reflect")}})));
}

}  // namespace

Operations movement_operations() {
  constexpr DTypeSet reals = kFloat | kQuant, numbers = reals | kInt;
  const auto moved = [](std::string_view name, int level, std::string_view summary, DTypeSet dtypes, std::vector<Operand> more,
                        void (*expand)(Expansion&)) {
    more.insert(more.begin(), tensor("x", dtypes));
    return Operation{name, level, summary, std::move(more), {tensor("y", dtypes)}, expand};
  };
  return {
      checked(moved("nnapi::SLICE", 3, "`size` elements of each axis from `begin` on; -1: all that are left.", numbers,
                    {list("begin"), list("size")}, slice),
              check_slice, unread_begin),
      checked(moved("nnapi::STRIDED_SLICE", 2, "From begin to end in steps; bits of the masks open an end, or let the axis go.", reals,
                    {list("begin"), list("end"), list("strides"), scalar("begin_mask"), scalar("end_mask"), scalar("shrink_axis_mask")},
                    strided_slice),
              check_strided_slice),
      checked(moved("nnapi::GATHER", 3, "The places of an axis that the indices name.", numbers, {scalar("axis"), tensor("indices", kInt)},
                    gather),
              check_gather),
      {"nnapi::EMBEDDING_LOOKUP",
       1,
       "The rows that the indices name.",
       {tensor("lookups", kInt), tensor("values", numbers)},
       {tensor("y", numbers)},
       lookup,
       {},
       check_lookup},
      {"nnapi::SPLIT",
       3,
       "An axis in equal parts, each an output.",
       {tensor("x", numbers), scalar("axis"), scalar("num_splits")},
       {tensors("y", numbers)},
       split,
       {},
       check_split},
      {"nnapi::TOPK_V2",
       3,
       "The k largest of the last axis, the largest first, and their indices.",
       {tensor("x", numbers), scalar("k")},
       {tensor("values", numbers), tensor("indices", kInt)},
       top_k},
      checked(moved("nnapi::TILE", 3, "Each axis so many times over.", numbers, {list("multiples")}, tile), check_tile),
      moved("nnapi::EXPAND_DIMS", 3, "With one more axis, of size 1.", numbers, {scalar("axis")}, expand_dims),
      moved("nnapi::RESHAPE", 1, "The elements in another shape; -1 stands for what is left.", numbers, {list("shape")}, reshape),
      moved("nnapi::SQUEEZE", 2, "Without the axes of size 1 that are named, or all of them; one is always left.", reals,
            {list("axes", true)}, squeeze),
      {"nnapi::PACK",
       6,
       "Tensors of one shape as the parts of a new axis.",
       {scalar("axis"), tensors("x", numbers, 'T')},
       {tensor("y", numbers)},
       pack},
      {"nnapi::CONCATENATION",
       1,
       "Tensors behind each other on an axis. Operands of other scales than the output's are brought to it.",
       {tensors("x", reals, 'T'), scalar("axis")},
       {tensor("y", reals)},
       concatenation},
      {"nnapi::FILL",
       4,
       "A tensor of these sizes, all of one value.",
       {list("dims"), scalar("value", kFloat | kInt)},
       {tensor("y", kFloat | kInt)},
       fill},
      {"nnapi::RANK", 4, "The number of axes.", {tensor("x", numbers | kTruth)}, {scalar("y")}, rank},
      checked(moved("nnapi::PAD", 2, "With zeros around.", reals, {pairs("paddings")}, pad), check_pads),
      checked(moved("nnapi::PAD_V2", 3, "With a value around; of a quantized tensor an int32 as it is stored.", reals,
                    {pairs("paddings"), scalar("value", kFloat | kInt)}, pad_with),
              check_pads),
      checked(moved("nnapi::MIRROR_PAD", 7, "With its own border mirrored around: without the outermost elements (0) or with them (1).",
                    numbers, {pairs("paddings"), scalar("mode")}, mirror_pad),
              check_mirror_pad),
  };
}

}  // namespace pumice::nnapi
