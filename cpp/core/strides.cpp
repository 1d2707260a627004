#include "core/strides.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace pumice {
namespace {

constexpr int64_t kMaxMarkedElements = int64_t{1} << 26;  // maximum number of elements that has_internal_overlap() checks one by one
constexpr std::string_view kNamedAxes = "NCDHW", kLetterAxes = "abcdefgh";

std::string get_default_axis_names(size_t rank) {
  if (rank == 3) return "NCW";
  if (rank == 4) return "NCHW";
  return std::string(rank == 5 ? kNamedAxes : kLetterAxes.substr(0, rank));
}

bool is_empty(const Shape& shape) {
  return std::find(shape.begin(), shape.end(), 0) != shape.end();
}

// Returns the axes of a named layout, as logical axis numbers from outermost to innermost in memory.
std::vector<size_t> find_memory_order(std::string_view layout, size_t rank) {
  if (layout.size() != rank)
    throw GraphError("layout", "'" + std::string(layout) + "' names " + std::to_string(layout.size()) + " axes, but the shape has rank " +
                                   std::to_string(rank));
  const auto is_letters_of = [&](std::string_view letters) {
    return std::all_of(layout.begin(), layout.end(), [&](char axis) {
      return letters.find(axis) != std::string_view::npos && std::count(layout.begin(), layout.end(), axis) == 1;
    });
  };
  const bool by_letters = is_letters_of(kLetterAxes.substr(0, rank));
  if (!by_letters && !is_letters_of(kNamedAxes))
    throw GraphError("layout", "'" + std::string(layout) + "' is not a permutation of axis letters of NCDHW, nor of the first " +
                                   std::to_string(rank) + " of " + std::string(kLetterAxes));
  const std::string_view logical = by_letters ? kLetterAxes : kNamedAxes;
  std::string axes(layout);
  std::sort(axes.begin(), axes.end(), [&](char a, char b) { return logical.find(a) < logical.find(b); });
  std::vector<size_t> order;
  for (const char axis : layout) order.push_back(axes.find(axis));
  return order;
}

// Returns the axes from outermost to innermost in memory; axes of size 1 or stride 0 keep their position.
std::vector<size_t> find_memory_order(const Shape& shape, const Strides& strides) {
  std::vector<size_t> order(shape.size()), moved;
  std::iota(order.begin(), order.end(), size_t{0});
  const auto counts = [&](size_t axis) { return shape[axis] > 1 && strides[axis] > 0; };
  std::copy_if(order.begin(), order.end(), std::back_inserter(moved), counts);
  std::stable_sort(moved.begin(), moved.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  auto next = moved.begin();
  for (size_t& axis : order)
    if (counts(axis)) axis = *next++;
  return order;
}

// Returns the axes of size > 1, innermost first.
std::vector<size_t> sort_axes_by_stride(const Shape& shape, const Strides& strides) {
  std::vector<size_t> axes;
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] > 1) axes.push_back(i);
  std::sort(axes.begin(), axes.end(), [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  return axes;
}

std::string to_channels_last(std::string name) {
  std::rotate(name.begin() + 1, name.begin() + 2, name.end());
  return name;
}

bool has_layout(const Shape& shape, const Strides& strides, const std::string& name) {
  std::vector<bool> broadcast;
  for (size_t i = 0; i < shape.size(); ++i) broadcast.push_back(shape[i] > 1 && strides[i] == 0);
  const Strides expected = compute_layout_strides(shape, name, broadcast);
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] > 1 && strides[i] != expected[i]) return false;
  return true;
}

}  // namespace

int64_t checked_mul(int64_t a, int64_t b, std::string_view subject) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result))
    throw GraphError(std::string(subject), std::to_string(a) + " * " + std::to_string(b) + " does not fit in 64 bits", "R8");
  return result;
}

int64_t checked_add(int64_t a, int64_t b, std::string_view subject) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result))
    throw GraphError(std::string(subject), std::to_string(a) + " + " + std::to_string(b) + " does not fit in 64 bits", "R8");
  return result;
}

void check_shape(const Shape& shape) {
  if (shape.size() > static_cast<size_t>(kMaxRank))
    throw GraphError("shape", "rank " + std::to_string(shape.size()) + "; the highest rank is " + std::to_string(kMaxRank), "R8");
  for (const int64_t size : shape)
    if (size < 0) throw GraphError("shape", "a negative size in " + to_string(shape), "R8");
  const int64_t count = element_count(shape);
  if (count > kMaxElements)
    throw GraphError("shape",
                     to_string(shape) + " has " + std::to_string(count) + " elements; the limit is " + std::to_string(kMaxElements), "R8");
}

void check_strides(const Shape& shape, const Strides& strides) {
  if (strides.size() != shape.size())
    throw GraphError("strides", std::to_string(strides.size()) + " strides for a shape of rank " + std::to_string(shape.size()), "R8");
  for (const int64_t stride : strides)
    if (stride < 0) throw GraphError("strides", "a negative stride in " + to_string(strides) + "; strides are 0 or more elements", "R8");
}

int normalize_axis(int axis, int rank, std::string_view subject) {
  if (axis < -rank || axis >= rank)
    throw GraphError(std::string(subject), "a tensor of rank " + std::to_string(rank) + " has no axis " + std::to_string(axis));
  return axis < 0 ? axis + rank : axis;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

int64_t element_count(const Shape& shape) {
  if (is_empty(shape)) return 0;
  int64_t count = 1;
  for (const int64_t size : shape) count = checked_mul(count, size, "element count");
  return count;
}

int64_t element_count(const Shape& shape, size_t first, size_t end) {
  return element_count({shape.begin() + static_cast<std::ptrdiff_t>(first), shape.begin() + static_cast<std::ptrdiff_t>(end)});
}

Strides packed_strides(const Shape& shape) {
  const bool empty = is_empty(shape);  // no element is accessed, so any strides are valid
  Strides strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    const int64_t size = std::max<int64_t>(shape[i], 1);
    stride = empty && stride > INT64_MAX / size ? 1 : checked_mul(stride, size, "strides");
  }
  return strides;
}

bool is_packed(const Shape& shape, const Strides& strides) {
  if (is_empty(shape)) return true;
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    if (strides[i] != stride) return false;
    stride *= shape[i];
  }
  return true;
}

int64_t count_span_elements(const Shape& shape, const Strides& strides) {
  if (is_empty(shape)) return 0;
  int64_t span = 1;
  for (size_t i = 0; i < shape.size(); ++i) span = checked_add(span, checked_mul(shape[i] - 1, strides[i], "buffer size"), "buffer size");
  return span;
}

bool has_internal_overlap(const Shape& shape, const Strides& strides) {
  if (is_empty(shape)) return false;
  const auto axes = sort_axes_by_stride(shape, strides);
  int64_t span = 1;  // number of elements that the inner axes span
  bool nested = true;
  for (const size_t axis : axes) {
    if (strides[axis] == 0) return true;
    nested = nested && strides[axis] >= span;
    span += (shape[axis] - 1) * strides[axis];
  }
  if (nested) return false;
  if (span > kMaxMarkedElements) return true;
  std::vector<bool> marked(static_cast<size_t>(span));
  std::vector<int64_t> index(axes.size(), 0);
  for (int64_t at = 0;;) {
    if (marked[static_cast<size_t>(at)]) return true;
    marked[static_cast<size_t>(at)] = true;
    size_t i = 0;
    for (; i < axes.size(); ++i) {
      at += strides[axes[i]];
      if (++index[i] < shape[axes[i]]) break;
      at -= shape[axes[i]] * strides[axes[i]];
      index[i] = 0;
    }
    if (i == axes.size()) return false;
  }
}

Shape physical_shape(const Shape& shape, const Strides& strides) {
  Shape physical = shape;
  for (size_t i = 0; i < shape.size(); ++i)
    if (strides[i] == 0) physical[i] = std::min<int64_t>(shape[i], 1);
  return physical;
}

Strides compute_broadcast_strides(const Shape& shape, const Strides& strides, const Shape& target) {
  const auto refuse = [&] { throw GraphError("broadcast", to_string(shape) + " does not broadcast to " + to_string(target)); };
  if (shape.size() > target.size()) refuse();
  Strides result(target.size(), 0);
  const size_t added = target.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == target[added + i])
      result[added + i] = strides[i];
    else if (shape[i] != 1)
      refuse();
  }
  return result;
}

Shape broadcast_shape(const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) throw GraphError("broadcast", to_string(a) + " and " + to_string(b) + " do not broadcast together");
    result[result.size() - 1 - i] = x == 1 ? y : x;
  }
  return result;
}

// Matches groups of old axes with groups of new axes of equal element count, outermost first. The old axes of a group must be contiguous.
std::optional<Strides> compute_view_strides(const Shape& shape, const Strides& strides, const Shape& target) {
  if (is_empty(shape) || pumice::is_packed(shape, strides)) return packed_strides(target);
  Shape sizes;
  Strides steps;
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != 1) sizes.push_back(shape[i]), steps.push_back(strides[i]);
  Strides result(target.size(), 1);
  size_t old_begin = 0, new_begin = 0;
  while (old_begin < sizes.size()) {
    size_t old_end = old_begin + 1, new_end = new_begin + 1;
    int64_t old_count = sizes[old_begin], new_count = target[new_begin];
    while (old_count != new_count) {
      if (old_count < new_count)
        old_count *= sizes[old_end++];
      else
        new_count *= target[new_end++];
    }
    for (size_t i = old_begin; i + 1 < old_end; ++i)
      if (steps[i] != steps[i + 1] * sizes[i + 1]) return {};
    int64_t stride = steps[old_end - 1];
    for (size_t i = new_end; i-- > new_begin;) {
      result[i] = stride;
      stride *= target[i];
    }
    old_begin = old_end;
    new_begin = new_end;
  }
  return result;
}

Strides compute_layout_strides(const Shape& shape, std::string_view layout, const std::vector<bool>& broadcast) {
  check_shape(shape);
  if (!broadcast.empty() && broadcast.size() != shape.size())
    throw GraphError("broadcast", std::to_string(broadcast.size()) + " marks for a shape of rank " + std::to_string(shape.size()));
  const auto order = find_memory_order(layout, shape.size());
  Shape in_memory;
  for (const size_t axis : order) in_memory.push_back(!broadcast.empty() && broadcast[axis] ? 1 : shape[axis]);
  const Strides packed = packed_strides(in_memory);
  Strides strides(shape.size());
  for (size_t i = 0; i < order.size(); ++i) strides[order[i]] = !broadcast.empty() && broadcast[order[i]] ? 0 : packed[i];
  return strides;
}

std::optional<std::string> find_layout_name(const Shape& shape, const Strides& strides) {
  check_shape(shape);
  check_strides(shape, strides);
  const std::string logical = get_default_axis_names(shape.size());
  if (is_empty(shape) || has_layout(shape, strides, logical)) return logical;
  if (shape.size() > 2 && has_layout(shape, strides, to_channels_last(logical))) return to_channels_last(logical);
  std::string permuted;
  for (const size_t axis : find_memory_order(shape, strides)) permuted += logical[axis];
  if (has_layout(shape, strides, permuted)) return permuted;
  return {};
}

Strides compute_padded_strides(const Shape& shape, const Strides& strides, int64_t multiple) {
  if (multiple < 1) throw GraphError("pad_rows", "rows a multiple of " + std::to_string(multiple) + " elements apart; at least 1");
  Strides result = strides;
  int64_t stride = 1;
  bool is_row = true;
  const auto order = find_memory_order(shape, strides);
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    if (strides[*axis] == 0) continue;
    result[*axis] = stride;
    stride = checked_mul(stride, std::max<int64_t>(shape[*axis], 1), "strides");
    if (is_row) stride = checked_mul(checked_add(stride, multiple - 1, "strides") / multiple, multiple, "strides");
    is_row = false;
  }
  return result;
}

}  // namespace pumice
