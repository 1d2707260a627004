#include "core/strided_copy.h"

#include <cstring>

namespace pumice {
namespace {

template <size_t N>
void copy_runs(const StridedRuns& runs, const std::byte* source, std::byte* target) {
  runs.visit([&](int64_t from, int64_t to) { std::memcpy(target + to, source + from, N); });
}

}  // namespace

StridedRuns::StridedRuns(size_t element_bytes, const Shape& shape, const Strides& source, const Strides& target)
    : run_bytes_(element_bytes) {
  for (size_t i = 0; i < shape.size(); ++i) {
    empty_ = empty_ || shape[i] == 0;
    if (shape[i] == 1) continue;
    const bool continues = !axes_.empty() && axes_.back().source == shape[i] * source[i] && axes_.back().target == shape[i] * target[i];
    if (continues)
      axes_.back() = {axes_.back().size * shape[i], source[i], target[i]};
    else
      axes_.push_back({shape[i], source[i], target[i]});
  }
  const auto bytes = static_cast<int64_t>(element_bytes);
  if (axes_.empty() || axes_.back().source != bytes || axes_.back().target != bytes) return;
  run_bytes_ *= static_cast<size_t>(axes_.back().size);
  axes_.pop_back();
}

Strides to_byte_strides(const Strides& strides, size_t element_bytes) {
  Strides result = strides;
  for (int64_t& stride : result) stride *= static_cast<int64_t>(element_bytes);
  return result;
}

void copy_strided(size_t element_bytes, const Shape& shape, const std::byte* source, const Strides& source_strides, std::byte* target,
                  const Strides& target_strides) {
  const StridedRuns runs(element_bytes, shape, source_strides, target_strides);
  switch (runs.run_bytes()) {
    case 1:
      return copy_runs<1>(runs, source, target);
    case 2:
      return copy_runs<2>(runs, source, target);
    case 4:
      return copy_runs<4>(runs, source, target);
    case 8:
      return copy_runs<8>(runs, source, target);
    default:
      runs.visit([&](int64_t from, int64_t to) { std::memcpy(target + to, source + from, runs.run_bytes()); });
  }
}

}  // namespace pumice
