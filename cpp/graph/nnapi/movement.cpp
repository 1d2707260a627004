// Operations that move elements, and those that make tensors out of sizes.
#include <algorithm>
#include <limits>

#include "core/error.h"
#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {
namespace {

constexpr int64_t kMostParts = 65535;  // outputs of a split whose axis is not known
constexpr int64_t kLast = std::numeric_limits<int64_t>::max(), kFirst = std::numeric_limits<int64_t>::min();

int64_t signed_size(size_t value) {
  return static_cast<int64_t>(value);
}

// Whatever the elements stand for, they stand for it afterwards.
void give_moved(Expansion& e, ValueId id, size_t i = 0) {
  e.give(id, e.as_operand(i));
}

void check_length(const Expansion& e, size_t i, size_t expected) {
  const auto& shape = e.value(i).shape;
  if (shape && !shape->empty() && (*shape)[0] != kUnknownSize && (*shape)[0] != signed_size(expected))
    e.fail(i, std::to_string(expected) + " numbers expected, one for each axis of operand 0; given " + std::to_string((*shape)[0]));
}

// One axis: from `start` to `end` in steps.
ValueId sliced(Expansion& e, ValueId x, int64_t start, int64_t end, size_t axis, int64_t step) {
  return e.add("Slice", {x, e.integers({start}), e.integers({end}), e.integers({signed_size(axis)}), e.integers({step})});
}

// ---- parts

void check_slice(const Expansion& e, const std::vector<int64_t>& begin, const std::vector<int64_t>& size) {
  const auto& x = e.value(0).shape;
  for (size_t axis = 0; axis < begin.size(); ++axis) {
    if (begin[axis] < 0) e.fail(1, "at least 0 expected on axis " + std::to_string(axis) + "; given " + std::to_string(begin[axis]));
    const int64_t most = !x || (*x)[axis] == kUnknownSize ? kLast : (*x)[axis];
    if (begin[axis] > most || size[axis] > most - begin[axis])
      e.fail(2, "at most " + std::to_string(most) + " elements expected on axis " + std::to_string(axis) + "; given " +
                    std::to_string(size[axis]) + " from " + std::to_string(begin[axis]) + " on");
  }
}

// The sizes are known and where to begin is not: elements are gathered, and no host has to read it.
ValueId slice_from(Expansion& e, const std::vector<int64_t>& size) {
  ValueId y = e[0];
  const auto number = [&](int64_t value) { return e.scalar(static_cast<double>(value), DType::int32); };
  for (size_t axis = 0; axis < size.size(); ++axis) {
    const ValueId steps = e.add("Range", {number(0), number(size[axis]), number(1)});
    const ValueId first = e.add("Gather", {e[1], e.integers({signed_size(axis)})});
    const ValueId indices = e.add("Add", {first, steps});
    y = e.add("Gather", {y, indices}, with({{"axis", signed_size(axis)}}));
  }
  return y;
}

void slice(Expansion& e) {
  if (e.value(0).shape)
    for (const size_t i : {1, 2}) check_length(e, i, e.rank(0));
  const auto begin = e.known(1), size = e.known(2);
  if (size && std::ranges::any_of(*size, [](int64_t one) { return one < -1; }))
    e.fail(2, "sizes of at least 0, or -1 for all that is left, expected; given " + to_string(*size));
  if (size) check_slice(e, begin.value_or(std::vector<int64_t>(size->size())), *size);
  if (begin && size) {
    std::vector<int64_t> end(begin->size());
    for (size_t axis = 0; axis < end.size(); ++axis) end[axis] = (*size)[axis] < 0 ? kLast : (*begin)[axis] + (*size)[axis];
    return give_moved(e, e.add("Slice", {e[0], e.integers(*begin), e.integers(end)}));
  }
  if (size && std::ranges::find(*size, -1) == size->end()) return give_moved(e, slice_from(e, *size));
  const ValueId first = e.as_int64(1), sizes = e.as_int64(2), zero = e.scalar(0, DType::int64);
  const ValueId end = e.add("Where", {e.add("Less", {sizes, zero}), e.scalar(1LL << 40, DType::int64), e.add("Add", {first, sizes})});
  give_moved(e, e.add("Slice", {e[0], first, end}));
}

// What a strided slice does on one axis.
struct AxisSlice {
  int64_t start, end, step;
};

AxisSlice axis_slice(const Expansion& e, size_t axis, int64_t begin, int64_t end, int64_t step) {
  const auto masked = [&](size_t i) { return (e.integer(i) >> axis & 1) != 0; };
  if (step == 0) e.fail(3, "steps other than 0 expected; given 0 on axis " + std::to_string(axis));
  if (masked(6)) {
    if (step < 0) e.fail(3, "a step above 0 expected on axis " + std::to_string(axis) + ", which goes; given " + std::to_string(step));
    return {begin, begin == -1 ? kLast : begin + 1, 1};
  }
  return {masked(4) ? (step > 0 ? 0 : kLast) : begin, masked(5) ? (step > 0 ? kLast : kFirst) : end, step};
}

void strided_slice(Expansion& e) {
  const size_t rank = e.rank(0);
  for (const size_t i : {1, 2, 3}) check_length(e, i, rank);
  const auto begin = e.list(1), end = e.list(2), steps = e.list(3);
  std::vector<int64_t> starts, ends, gone;
  for (size_t axis = 0; axis < rank; ++axis) {
    const AxisSlice slice = axis_slice(e, axis, begin[axis], end[axis], steps[axis]);
    starts.push_back(slice.start);
    ends.push_back(slice.end);
    if (e.integer(6) >> axis & 1) gone.push_back(signed_size(axis));
  }
  if (gone.size() == rank) gone.pop_back();  // [1] is left, never a scalar
  std::vector<int64_t> axes;
  for (size_t axis = 0; axis < rank; ++axis) axes.push_back(signed_size(axis));
  ValueId y = e.add("Slice", {e[0], e.integers(starts), e.integers(ends), e.integers(axes), e.integers(steps)});
  if (!gone.empty()) y = e.add("Squeeze", {y, e.integers(gone)});
  give_moved(e, y);
}

void gather(Expansion& e) {
  const auto axis = e.value(0).shape ? signed_size(e.axis(1, e.rank(0))) : e.integer(1);
  give_moved(e, e.add("Gather", {e[0], e[2]}, with({{"axis", axis}})));
}

void lookup(Expansion& e) {
  give_moved(e, e.add("Gather", {e[1], e[0]}, with({{"axis", int64_t{0}}})), 1);
}

void split(Expansion& e) {
  const size_t axis = e.axis(1, e.rank(0));
  const int64_t parts = e.integer(2), size = e.shape(0)[axis];
  if (parts < 1 || parts > (size == kUnknownSize ? kMostParts : size) || (size != kUnknownSize && size % parts != 0))
    e.fail(2, "a number that divides axis " + std::to_string(axis) + " of " + to_string(e.shape(0)) + " expected; given " +
                  std::to_string(parts));
  const auto made = e.add_many("Split", {e[0]}, static_cast<size_t>(parts), with({{"axis", signed_size(axis)}, {"num_outputs", parts}}));
  for (const ValueId part : made) give_moved(e, part);
}

void top_k(Expansion& e) {
  const int64_t k = e.integer(1);
  const auto made = e.add_many("TopK", {e[0], e.integers({k})}, 2, with({{"axis", int64_t{-1}}}));
  give_moved(e, made[0]);
  e.give(e.cast(made[1], DType::int32));
}

void reverse(Expansion& e) {
  const auto axes = e.list(1);
  if (axes.size() != 1) e.fail(1, "one axis expected; given " + to_string(axes));
  give_moved(e, sliced(e, e[0], -1, kFirst, e.axis(1, e.rank(0)), -1));
}

// ---- whole tensors

void tile(Expansion& e) {
  if (e.value(0).shape) check_length(e, 1, e.rank(0));
  give_moved(e, e.add("Tile", {e[0], e.as_int64(1)}));
}

void expand_dims(Expansion& e) {
  give_moved(e, e.add("Unsqueeze", {e[0], e.integers({signed_size(e.axis(1, e.rank(0) + 1))})}));
}

void reshape(Expansion& e) {
  give_moved(e, e.add("Reshape", {e[0], e.as_int64(1)}, with({{"allowzero", int64_t{1}}})));
}

// Never less than one axis is left.
void squeeze(Expansion& e) {
  const size_t rank = e.rank(0);
  std::vector<int64_t> axes;
  if (e.has(1)) {
    for (const int64_t given : e.list(1)) {
      const int64_t axis = given < 0 ? given + signed_size(rank) : given;
      if (axis < 0 || axis >= signed_size(rank))
        e.fail(1, "axes of " + to_string(e.shape(0)) + " expected; given " + std::to_string(given));
      if (std::ranges::find(axes, axis) == axes.end()) axes.push_back(axis);
    }
  } else {
    for (size_t axis = 0; axis < rank; ++axis)
      if (e.size(0, axis) == 1) axes.push_back(signed_size(axis));
  }
  if (axes.size() == rank && rank > 0) axes.pop_back();
  give_moved(e, axes.empty() ? e[0] : e.add("Squeeze", {e[0], e.integers(axes)}));
}

void transpose(Expansion& e) {
  if (!e.has(1)) return give_moved(e, e.add("Transpose", {e[0]}));
  give_moved(e, e.add("Transpose", {e[0]}, with({{"perm", e.list(1)}})));
}

void pack(Expansion& e) {
  std::vector<ValueId> parts;
  const size_t axis = e.axis(0, e.rank(1) + 1);
  for (size_t i = 1; i < e.count(); ++i) {
    if (e.quantization(i) != e.quantization(1))
      e.fail(i, to_string(e.quantization(1)) + " expected, as operand 1; given " + to_string(e.quantization(i)));
    parts.push_back(e.add("Unsqueeze", {e[i], e.integers({signed_size(axis)})}));
  }
  give_moved(e, e.add("Concat", parts, with({{"axis", signed_size(axis)}})), 1);
}

// Operands of other scales than the output's are brought to those.
void concatenation(Expansion& e) {
  const size_t last = e.count() - 1;
  const int64_t axis = signed_size(e.axis(last, e.rank(0)));
  std::vector<ValueId> parts;
  Quantization quantization;
  if (e.is_quantized(0)) {
    bool alike = true;
    for (size_t i = 1; i < last; ++i) alike = alike && e.quantization(i) == e.quantization(0);
    quantization = alike ? e.declared_or(e.quantization(0)) : e.declared();
  }
  for (size_t i = 0; i < last; ++i)
    parts.push_back(e.quantization(i) == quantization ? e[i] : e.quantized(e.reals(i), quantization, e.dtype(i)));
  e.give(e.add("Concat", parts, with({{"axis", axis}})), quantization);
}

void fill(Expansion& e) {
  const auto& value = e.value(1).constant;
  if (!value) e.refuse(1, "that is no constant");
  HostTensor one = *value;
  one.desc = TensorDesc(one.desc.dtype, {1});
  e.give(e.add("ConstantOfShape", {e.as_int64(0)}, with({{"value", one}})));
}

void rank(Expansion& e) {
  if (e.value(0).shape) return e.give(e.scalar(static_cast<double>(e.rank(0)), DType::int32));
  e.give(e.cast(e.add("Size", {e.add("Shape", {e[0]})}), DType::int32));
}

// ---- borders

// Begins, then ends, as Pad takes them, of pairs by axis.
std::vector<int64_t> known_pads(const Expansion& e) {
  const auto given = e.list(1);
  std::vector<int64_t> pads(given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] < 0) e.fail(1, "numbers of at least 0 expected; given " + std::to_string(given[i]));
    pads[i % 2 * given.size() / 2 + i / 2] = given[i];
  }
  return pads;
}

void check_paddings(const Expansion& e) {
  const Shape& shape = e.shape(1);
  if (shape.size() != 2 || (shape[1] != 2 && shape[1] != kUnknownSize) ||
      (e.value(0).shape && shape[0] != signed_size(e.rank(0)) && shape[0] != kUnknownSize))
    e.fail(1, "a pair of numbers for each axis of operand 0 expected; given " + to_string(shape));
}

ValueId pads_of(Expansion& e) {
  check_paddings(e);
  if (e.known(1)) return e.integers(known_pads(e));
  return e.cast(e.add("Reshape", {e.add("Transpose", {e[1]}), e.integers({-1})}), DType::int64);
}

void pad(Expansion& e) {
  std::vector<ValueId> inputs{e[0], pads_of(e)};
  if (e.is_quantized(0)) inputs.push_back(e.scalar(e.quantization(0).zero_point.value_or(0), e.dtype(0)));
  give_moved(e, e.add("Pad", inputs));
}

// The value is one of the tensor's type; of a quantized tensor an integer as it is stored.
void pad_with(Expansion& e) {
  const DTypeSet expected = e.is_quantized(0) ? kInt : kFloat;
  if (!contains(expected, e.dtype(2))) e.fail(2, names(expected) + " expected; given " + std::string(name(e.dtype(2))));
  give_moved(e, e.add("Pad", {e[0], pads_of(e), e.scalar(e.real(2), e.dtype(0))}));
}

// One axis with its ends mirrored, the outermost elements included.
ValueId mirrored(Expansion& e, ValueId x, size_t axis, int64_t before, int64_t after) {
  std::vector<ValueId> parts;
  if (before > 0) parts.push_back(sliced(e, x, before - 1, kFirst, axis, -1));
  parts.push_back(x);
  if (after > 0) parts.push_back(sliced(e, x, -1, -after - 1, axis, -1));
  return parts.size() == 1 ? x : e.add("Concat", parts, with({{"axis", signed_size(axis)}}));
}

void mirror_pad(Expansion& e) {
  check_paddings(e);
  const int64_t mode = e.integer(2);
  if (mode != 0 && mode != 1) e.fail(2, "0 (REFLECT) or 1 (SYMMETRIC) expected; given " + std::to_string(mode));
  const auto pads = known_pads(e);
  const size_t rank = e.rank(0);
  for (size_t k = 0; k < pads.size(); ++k) {
    const int64_t size = e.shape(0)[k % rank], most = size - (mode == 0 ? 1 : 0);
    if (size != kUnknownSize && pads[k] > most)
      e.fail(1, "at most " + std::to_string(most) + " on axis " + std::to_string(k % rank) + " expected; given " + std::to_string(pads[k]));
  }
  if (mode == 0) return give_moved(e, e.add("Pad", {e[0], e.integers(pads)}, with({{"mode", std::string("reflect")}})));
  ValueId y = e[0];
  for (size_t axis = 0; axis < rank; ++axis) y = mirrored(e, y, axis, pads[axis], pads[axis + rank]);
  give_moved(e, y);
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
      moved("nnapi::SLICE", 3, "`size` elements of each axis from `begin` on; -1: all that are left.", numbers,
            {list("begin"), list("size")}, slice),
      moved("nnapi::STRIDED_SLICE", 2, "From begin to end in steps; bits of the masks open an end, or let the axis go.", reals,
            {list("begin"), list("end"), list("strides"), scalar("begin_mask"), scalar("end_mask"), scalar("shrink_axis_mask")},
            strided_slice),
      moved("nnapi::GATHER", 3, "The places of an axis that the indices name.", numbers, {scalar("axis"), tensor("indices", kInt)}, gather),
      {"nnapi::EMBEDDING_LOOKUP",
       1,
       "The rows that the indices name.",
       {tensor("lookups", kInt), tensor("values", numbers)},
       {tensor("y", numbers)},
       lookup},
      {"nnapi::SPLIT",
       3,
       "An axis in equal parts, each an output.",
       {tensor("x", numbers), scalar("axis"), scalar("num_splits")},
       {tensors("y", numbers)},
       split},
      {"nnapi::TOPK_V2",
       3,
       "The k largest of the last axis, the largest first, and their indices.",
       {tensor("x", numbers), scalar("k")},
       {tensor("values", numbers), tensor("indices", kInt)},
       top_k},
      moved("nnapi::REVERSE", 7, "One axis back to front.", numbers, {list("axis")}, reverse),
      moved("nnapi::TILE", 3, "Each axis so many times over.", numbers, {list("multiples")}, tile),
      moved("nnapi::EXPAND_DIMS", 3, "With one more axis, of size 1.", numbers, {scalar("axis")}, expand_dims),
      moved("nnapi::RESHAPE", 1, "The elements in another shape; -1 stands for what is left.", numbers, {list("shape")}, reshape),
      moved("nnapi::SQUEEZE", 2, "Without the axes of size 1 that are named, or all of them; one is always left.", reals,
            {list("axes", true)}, squeeze),
      moved("nnapi::TRANSPOSE", 2, "The axes in another order, or back to front.", reals, {list("perm", true)}, transpose),
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
      moved("nnapi::PAD", 2, "With zeros around.", reals, {tensor("paddings", kInt)}, pad),
      moved("nnapi::PAD_V2", 3, "With a value around; of a quantized tensor an int32 as it is stored.", reals,
            {tensor("paddings", kInt), scalar("value", kFloat | kInt)}, pad_with),
      moved("nnapi::MIRROR_PAD", 7, "With its own border mirrored around: without the outermost elements (0) or with them (1).", numbers,
            {tensor("paddings", kInt), scalar("mode")}, mirror_pad),
  };
}

}  // namespace pumice::nnapi
