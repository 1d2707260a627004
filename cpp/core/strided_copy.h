// Copies between strided host arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/strides.h"

namespace pumice {

// Iterates over two strided arrays of the same shape, in the longest runs that are contiguous in both. Offsets are in bytes.
class StridedRuns {
 public:
  // Strides are in bytes and may be negative or 0.
  StridedRuns(size_t element_bytes, const Shape& shape, const Strides& source, const Strides& target);
  size_t run_bytes() const { return run_bytes_; }
  // Calls visit(source offset, target offset) for each run, in row-major order.
  template <typename Visit>
  void visit(Visit&& visit) const;

 private:
  struct CopyAxis {
    int64_t size, source, target;
  };
  std::vector<CopyAxis> axes_;  // outermost first; excludes the axes merged into runs
  size_t run_bytes_;
  bool empty_ = false;
};

Strides to_byte_strides(const Strides& strides, size_t element_bytes);
void copy_strided(size_t element_bytes, const Shape& shape, const std::byte* source, const Strides& source_strides, std::byte* target,
                  const Strides& target_strides);

template <typename Visit>
void StridedRuns::visit(Visit&& visit) const {
  if (empty_) return;
  if (axes_.empty()) return visit(int64_t{0}, int64_t{0});
  const CopyAxis inner = axes_.back();
  const size_t outer = axes_.size() - 1;
  std::vector<int64_t> index(outer, 0);
  for (int64_t from = 0, to = 0;;) {
    for (int64_t i = 0; i < inner.size; ++i) visit(from + i * inner.source, to + i * inner.target);
    size_t axis = outer;
    for (; axis-- > 0;) {
      from += axes_[axis].source, to += axes_[axis].target;
      if (++index[axis] < axes_[axis].size) break;
      from -= axes_[axis].size * axes_[axis].source, to -= axes_[axis].size * axes_[axis].target;
      index[axis] = 0;
    }
    if (axis == SIZE_MAX) return;
  }
}

}  // namespace pumice
