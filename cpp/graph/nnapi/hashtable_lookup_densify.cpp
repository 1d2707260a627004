// NNAPI HASHTABLE_LOOKUP and DENSIFY.
#include <algorithm>
#include <numeric>
#include <span>

#include "core/error.h"
#include "graph/nnapi/operations.h"
#include "graph/nnapi/recurrent_helpers.h"

namespace pumice::nnapi {
namespace {

void check_hashtable_lookup(Operands& o) {
  expect_ranks(o, 0, 2, 1);
  o.expect_min_rank(2, 1);
  if (o.rank(2)) expect_equal_sizes(o, {{1, 0}, {2, 0}}, "N19.2");
  reject_empty(o, "NG2");
}

// Compares each lookup with every key, and selects the first match.
void expand_hashtable_lookup(Expansion& e) {
  const auto unsqueeze = [&](ValueId id, int64_t axis) { return e.add("Unsqueeze", {id, e.add_int64_vector({axis})}); };
  const ValueId equal = e.cast(e.add("Equal", {unsqueeze(e[0], 1), unsqueeze(e[1], 0)}), DType::int32);
  const ValueId hit = e.add("ReduceMax", {equal, e.add_int64_vector({1})}, make_attrs({{"keepdims", int64_t{0}}}));
  const ValueId key_index = e.add("ArgMax", {equal}, make_attrs({{"axis", int64_t{1}}, {"keepdims", int64_t{0}}}));
  const ValueId values_found = e.add("Gather", {e[2], key_index}, make_attrs({{"axis", int64_t{0}}}));
  std::vector<int64_t> trailing_axes(e.rank(2) - 1);
  std::iota(trailing_axes.begin(), trailing_axes.end(), int64_t{1});
  ValueId is_hit = e.cast(hit, DType::bool_);
  if (!trailing_axes.empty()) is_hit = e.add("Unsqueeze", {is_hit, e.add_int64_vector(trailing_axes)});
  // The result of a miss is 0 in every byte, whatever the zero point.
  e.add_output(e.add("Where", {is_hit, values_found, e.add_scalar(0, e.dtype(2))}), e.operand_quantization(2));
  e.add_output(e.cast(hit, DType::uint8), {{1}, 0, {}});
}

// ---- DENSIFY

constexpr size_t kOrder = 1, kBlockMap = 2, kFormats = 3, kSizes = 4, kLevels = 5;

// Storage layout of a sparse tensor by levels: first the dense axes, then the blocks.
struct SparseLayout {
  std::vector<int64_t> order, map, formats, sizes;
  Shape shape;
  std::vector<int64_t> strides;  // strides of the dense tensor, in elements

  size_t num_levels() const { return order.size(); }
  size_t num_axes() const { return order.size() - map.size(); }
  // Return the axis that a level traverses, and its stride in elements.
  size_t axis(size_t level) const {
    const auto at = static_cast<size_t>(order[level]);
    return at < num_axes() ? at : static_cast<size_t>(map[at - num_axes()]);
  }
  int64_t stride(size_t level) const {
    const auto block = level < num_axes() ? std::ranges::find(map, order[level]) : map.end();
    if (block == map.end()) return strides[axis(level)];
    return strides[axis(level)] * sizes[find_block_level(static_cast<size_t>(block - map.begin()))];
  }
  // Returns the level that traverses a block axis.
  size_t find_block_level(size_t block) const {
    return static_cast<size_t>(std::ranges::find(order, static_cast<int64_t>(num_axes() + block)) - order.begin());
  }
};

// Checks the traversal order: the axes in any order, then the blocks in any order that NNAPI accepts. NNAPI reads the size of
// block b at level order[num_axes + b], which must equal the size at the level that traverses block b.
void expect_permutation(const Expansion& e, const SparseLayout& layout) {
  std::vector<int64_t> sorted = layout.order;
  const auto middle = sorted.begin() + static_cast<int64_t>(layout.num_axes());
  std::sort(sorted.begin(), middle);
  std::sort(middle, sorted.end());
  for (size_t p = 0; p < layout.num_levels(); ++p)
    if (sorted[p] != static_cast<int64_t>(p))
      e.fail(kOrder, "N21.2", "the axes in some order, then the blocks in some order, expected; given " + to_string(layout.order));
  for (size_t block = 0; block < layout.map.size(); ++block)
    if (layout.sizes[static_cast<size_t>(layout.order[layout.num_axes() + block])] != layout.sizes[layout.find_block_level(block)])
      e.fail(kOrder, "N21.4", "blocks in an order whose inverse names the same sizes expected; given " + to_string(layout.order));
}

SparseLayout read_sparse_layout(const Expansion& e) {
  SparseLayout layout{e.read_list(kOrder),
                      e.has(kBlockMap) ? e.read_list(kBlockMap) : std::vector<int64_t>{},
                      e.read_list(kFormats),
                      e.read_list(kSizes),
                      {},
                      {}};
  const size_t levels = layout.num_levels();
  if (e.count() != kLevels + 2 * levels)
    e.fail("N21.1", std::to_string(kLevels + 2 * levels) + " operands expected, two for each level after the first five; given " +
                        std::to_string(e.count()));
  for (const size_t i : {kFormats, kSizes})
    if (e.read_list(i).size() != levels)
      e.fail(i, "N21.1", std::to_string(levels) + " numbers expected; given " + to_string(e.read_list(i)));
  if (2 * layout.map.size() > levels)
    e.fail(kBlockMap, "N21.1", "at most one block for each axis expected; given " + to_string(layout.map));
  expect_permutation(e, layout);
  for (const int64_t format : layout.formats)
    if (format != 0 && format != 1) e.fail(kFormats, "N21.1", "0 (dense) or 1 (sparse) expected; given " + std::to_string(format));
  for (const int64_t size : layout.sizes)
    if (size < 1) e.fail(kSizes, "N21.4", "positive sizes expected; given " + std::to_string(size));
  for (size_t k = 0; k < layout.map.size(); ++k)
    if (layout.map[k] < (k ? layout.map[k - 1] + 1 : 0) || layout.map[k] >= static_cast<int64_t>(layout.num_axes()))
      e.fail(kBlockMap, "N21.4", "ascending axes of the tensor expected; given " + to_string(layout.map));
  layout.shape.assign(layout.num_axes(), 1);
  for (size_t p = 0; p < levels; ++p) {
    int64_t& size = layout.shape[layout.axis(p)];
    size = checked_mul(size, layout.sizes[p], "sizes");
  }
  layout.strides.assign(layout.num_axes(), 1);
  for (size_t axis = layout.num_axes(); axis-- > 1;)
    layout.strides[axis - 1] = checked_mul(layout.strides[axis], layout.shape[axis], "sizes");
  return layout;
}

// Offsets in the dense tensor, one for each position of a level.
using Positions = std::vector<int64_t>;

Positions expand_dense_level(const Positions& before, int64_t size, int64_t stride) {
  Positions after;
  for (const int64_t offset : before)
    for (int64_t i = 0; i < size; ++i) after.push_back(offset + i * stride);
  return after;
}

Positions expand_sparse_level(const Expansion& e, const Positions& before, size_t level, int64_t size, int64_t stride) {
  const size_t at = kLevels + 2 * level;
  for (const size_t i : {at, at + 1})
    if (!e.has(i)) e.fail(i, "N21.1", "segments and indices of a sparse level expected; given none");
  const auto segments = e.read_list(at), indices = e.read_list(at + 1);
  const auto count = static_cast<int64_t>(indices.size());
  if (segments.size() != before.size() + 1 || segments[0] != 0 || !std::ranges::is_sorted(segments) || segments.back() > count)
    e.fail(at, "N21.4",
           std::to_string(before.size() + 1) + " non-decreasing numbers, from 0 to at most " + std::to_string(count) +
               ", expected; given " + to_string(segments));
  Positions after;
  for (size_t k = 0; k < before.size(); ++k)
    for (int64_t j = segments[k]; j < segments[k + 1]; ++j) {
      const int64_t index = indices[static_cast<size_t>(j)];
      if (index < 0 || index >= size)
        e.fail(at + 1, "N21.4", "indices from 0 to " + std::to_string(size - 1) + " expected; given " + std::to_string(index));
      after.push_back(before[k] + index * stride);
    }
  return after;
}

void check_densify(Operands& o) {
  o.expect_rank(0, 1);
  reject_empty(o, "NG2");
}

// Whether all operands except the values are known now. At binding, they always are.
bool has_known_lists(const Expansion& e) {
  for (size_t i = kOrder; i < e.count(); ++i)
    if (e.has(i) && !e.known_ints(i)) return false;
  return true;
}

// Gathers the value of each element of the dense tensor, or the zero appended after the last value.
void expand_densify(Expansion& e) {
  if (!has_known_lists(e)) {
    if (!e.infers_types_only()) throw UnknownShapeError("node '" + e.rules().node() + "': DENSIFY with lists that are not known yet");
    return e.add_output(e.add("Identity", {e[0]}), e.operand_quantization(0));
  }
  const SparseLayout layout = read_sparse_layout(e);
  Positions positions{0};
  for (size_t p = 0; p < layout.num_levels(); ++p)
    positions = layout.formats[p] == 0 ? expand_dense_level(positions, layout.sizes[p], layout.stride(p))
                                       : expand_sparse_level(e, positions, p, layout.sizes[p], layout.stride(p));
  const int64_t values = e.size(0, 0);
  if (static_cast<int64_t>(positions.size()) > values)
    e.fail(0, "N21.4", "a value for each of " + std::to_string(positions.size()) + " positions expected; given " + std::to_string(values));
  std::vector<int64_t> gather_indices(static_cast<size_t>(element_count(layout.shape)), values);
  for (size_t k = 0; k < positions.size(); ++k) gather_indices[static_cast<size_t>(positions[k])] = static_cast<int64_t>(k);
  const Quantization quantization = e.operand_quantization(0);
  const ValueId none = e.add("Expand", {e.add_scalar(quantization.zero_point.value_or(0), e.dtype(0)), e.add_int64_vector({1})});
  const ValueId values_and_zero = e.add("Concat", {e[0], none}, make_attrs({{"axis", int64_t{0}}}));
  std::vector<AxisLength> lengths;
  for (const int64_t size : layout.shape) lengths.push_back({size});
  e.add_output(
      e.reshape(e.add("Gather", {values_and_zero, e.add_int64_vector(gather_indices)}, make_attrs({{"axis", int64_t{0}}})), lengths),
      quantization);
}

}  // namespace

Operations make_lookup_operations() {
  constexpr DTypeSet values = kFloat | kInt | make_dtype_set(DType::uint8);
  constexpr DTypeSet all = kFloat | kInt | kTruth | kQuant | kQuant16;
  return {
      {"nnapi::HASHTABLE_LOOKUP",
       1,
       "The part of the values whose key is the number looked up, and whether there is one; where there is none, zeros.",
       {tensor_arg("lookups", kInt), tensor_arg("keys", kInt), tensor_arg("values", kFloat | kInt | kQuant)},
       {tensor_arg("y", values), tensor_arg("hits", make_dtype_set(DType::uint8))},
       expand_hashtable_lookup,
       {},
       check_hashtable_lookup},
      {"nnapi::DENSIFY",
       kExperimental,
       "A dense tensor of the values of a sparse one: its levels in the order they are walked, each dense (0) or sparse (1), their sizes, "
       "and the segments and indices of each. The host knows all but the values when a program is bound.",
       {tensor_arg("values", all),
        list_arg("order"),
        list_arg("block_map", true),
        list_arg("formats"),
        list_arg("sizes"),
        {{"levels", kInt, true, true}, OperandKind::list}},
       {tensor_arg("y", all)},
       expand_densify,
       {},
       check_densify},
  };
}

}  // namespace pumice::nnapi
