#include "operators/geometry/slice_geometry.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace pumice {
namespace {

// Returns the number of elements that a slice selects. `start` and `end` are already clamped to the axis.
int64_t count_slice_elements(int64_t start, int64_t end, int64_t step) {
  const int64_t distance = step > 0 ? end - start : start - end;
  if (distance <= 0) return 0;
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  return static_cast<int64_t>((static_cast<uint64_t>(distance) - 1) / stride) + 1;
}

SliceAxis make_slice_axis(int64_t size, int64_t start, int64_t end, int64_t step) {
  const auto from_end = [&](int64_t at) { return at < 0 ? at + size : at; };
  const int64_t lower = step > 0 ? 0 : -1, upper = step > 0 ? size : size - 1;
  const int64_t first = std::clamp(from_end(start), step > 0 ? lower : std::min<int64_t>(0, upper), upper);
  return {first, step, count_slice_elements(first, std::clamp(from_end(end), lower, upper), step)};
}

}  // namespace

std::vector<SliceAxis> compute_slice_axes(std::string_view node, const Shape& shape, const std::vector<int64_t>& starts,
                                          const std::vector<int64_t>& ends, std::vector<int64_t> axes, std::vector<int64_t> steps) {
  const auto fail = [&](const std::string& message) { throw GraphError(std::string(node), message); };
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    fail(std::to_string(starts.size()) + " starts, " + std::to_string(ends.size()) + " ends, " + std::to_string(axes.size()) +
         " axes and " + std::to_string(steps.size()) + " steps");
  std::vector<SliceAxis> result;
  for (const int64_t size : shape) result.push_back({0, 1, size});
  std::vector<bool> seen(shape.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto rank = static_cast<int64_t>(shape.size());
    const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (axis < 0 || axis >= rank) fail("a tensor of rank " + std::to_string(rank) + " has no axis " + std::to_string(axes[i]));
    const auto at = static_cast<size_t>(axis);
    if (seen[at]) fail("axis " + std::to_string(axes[i]) + " is given twice");
    if (steps[i] == 0) fail("the step on axis " + std::to_string(axes[i]) + " is 0");
    seen[at] = true;
    result[at] = make_slice_axis(shape[at], starts[i], ends[i], steps[i]);
  }
  return result;
}

std::vector<int64_t> compute_even_split_sizes(int64_t size, size_t count) {
  const auto num_chunks = static_cast<int64_t>(count);
  const int64_t chunk = (size + num_chunks - 1) / num_chunks;
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < num_chunks; ++i) sizes.push_back(std::clamp<int64_t>(size - i * chunk, 0, chunk));
  return sizes;
}

}  // namespace pumice
