// Shapes, strides and layouts, in 64-bit arithmetic with overflow checks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

using Shape = std::vector<int64_t>;
using Strides = std::vector<int64_t>;  // strides in elements, >= 0; 0 broadcasts

inline constexpr int kMaxRank = 8;
inline constexpr int64_t kMaxElements = 0xffffffff;

// Checked 64-bit arithmetic. Throws GraphError naming `subject` on overflow.
int64_t checked_mul(int64_t a, int64_t b, std::string_view subject);
int64_t checked_add(int64_t a, int64_t b, std::string_view subject);

// Check rule R8: the rank, sizes and element count of a shape, and one non-negative stride per axis. They throw GraphError on a violation.
void check_shape(const Shape& shape);
void check_strides(const Shape& shape, const Strides& strides);

// Normalises a possibly negative axis to 0 .. rank - 1. Throws GraphError naming `subject`.
int normalize_axis(int axis, int rank, std::string_view subject);

std::string to_string(const Shape& shape);                            // "[1, 3, 224, 224]"
int64_t element_count(const Shape& shape);                            // 1 for rank 0; throws GraphError on overflow
int64_t element_count(const Shape& shape, size_t first, size_t end);  // product of the sizes of axes first .. end - 1
Strides packed_strides(const Shape& shape);
// Whether strides are row-major without gaps. Ignores the strides of axes of size 1, and all strides if any size is 0.
bool is_packed(const Shape& shape, const Strides& strides);
// Number of elements in memory from element 0 through the last one; 0 if any size is 0.
int64_t count_span_elements(const Shape& shape, const Strides& strides);
// Whether two indices map to the same element. Conservatively returns true for interleaved strides that span more than 2**26 elements.
bool has_internal_overlap(const Shape& shape, const Strides& strides);
// Returns the shape as stored in memory: axes with stride 0 have size 1.
Shape physical_shape(const Shape& shape, const Strides& strides);

// Returns strides that broadcast `shape` to `target` (NumPy rules). Throws GraphError with both shapes if it does not broadcast.
Strides compute_broadcast_strides(const Shape& shape, const Strides& strides, const Shape& target);
Shape broadcast_shape(const Shape& a, const Shape& b);
// Returns strides that view `shape` as `target` in row-major order; nullopt if a copy is needed. Element counts must be equal.
std::optional<Strides> compute_view_strides(const Shape& shape, const Strides& strides, const Shape& target);

// Returns the strides of a named layout: a permutation of letters from NCDHW ("NHWC"), or of letters starting at 'a' that name the axes in
// logical order ("acb"). Sizes are in logical order. Axes marked in `broadcast` have size 1 in memory and stride 0.
Strides compute_layout_strides(const Shape& shape, std::string_view layout, const std::vector<bool>& broadcast = {});
// Inverse of compute_layout_strides(). Returns the name of the gapless layout with these strides, or nullopt. Axes with stride 0 count as
// broadcast. Axes are named NCW, NCHW or NCDHW for ranks 3, 4 and 5, else by letters starting at 'a'. Prefers row-major if several layouts
// match.
std::optional<std::string> find_layout_name(const Shape& shape, const Strides& strides);
// Returns strides with the same memory order, whose row pitch is padded to a multiple of `multiple` elements.
Strides compute_padded_strides(const Shape& shape, const Strides& strides, int64_t multiple);

}  // namespace pumice
