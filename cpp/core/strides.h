// Shapes, strides and the layouts they make: arithmetic in 64 bits, every overflow found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

using Shape = std::vector<int64_t>;
using Strides = std::vector<int64_t>;  // in elements, >= 0; 0 broadcasts

inline constexpr int kMaxRank = 8;
inline constexpr int64_t kMaxElements = 0xffffffff;

// 64-bit checked products and sums; throw GraphError naming `what` on overflow.
int64_t checked_mul(int64_t a, int64_t b, std::string_view what);
int64_t checked_add(int64_t a, int64_t b, std::string_view what);

// Rule R8: rank, sizes and element count of a shape; as many strides, none negative. Throw GraphError.
void check_shape(const Shape& shape);
void check_strides(const Shape& shape, const Strides& strides);

// The axis as a number from 0 on: a negative one is counted from the end. Throws GraphError naming `what`.
int checked_axis(int axis, int rank, std::string_view what);

std::string to_string(const Shape& shape);                            // "[1, 3, 224, 224]"
int64_t element_count(const Shape& shape);                            // 1 for rank 0; checked
int64_t element_count(const Shape& shape, size_t first, size_t end);  // of axes first .. end - 1
Strides packed_strides(const Shape& shape);
// Whether strides are row-major without gaps. The strides of axes of size 1 say nothing; with a size 0 no stride does.
bool is_packed(const Shape& shape, const Strides& strides);
// Elements from element 0 to the last one reached: 0 where a size is 0.
int64_t reached_elements(const Shape& shape, const Strides& strides);
// Whether two indices reach one element. Where strides interleave over more than 2**26 elements it says yes without looking.
bool overlaps(const Shape& shape, const Strides& strides);
// The shape in memory: axes of stride 0 are of size 1.
Shape physical_shape(const Shape& shape, const Strides& strides);

// Strides of `shape` seen as the larger `target` (NumPy broadcasting). Throws GraphError with both shapes.
Strides broadcast_strides(const Shape& shape, const Strides& strides, const Shape& target);
Shape broadcast_shape(const Shape& a, const Shape& b);
// Strides of `target` on the elements of `shape` in row-major order; nullopt where they have to be moved. The counts are equal.
std::optional<Strides> reshaped_strides(const Shape& shape, const Strides& strides, const Shape& target);

// Strides of a layout given by name: a permutation of letters of NCDHW ("NHWC"), or of the letters from 'a' on, which name the axes
// in their logical order ("acb"). Sizes are in logical order. Axes marked in `broadcast` are of size 1 in memory and have stride 0.
Strides layout_strides(const Shape& shape, std::string_view layout, const std::vector<bool>& broadcast = {});
// The inverse of the function above: the name of the layout without gaps that has these strides, axes of stride 0 taken as broadcast;
// nullopt where there is none. Axes of ranks 3, 4 and 5 are NCW, NCHW and NCDHW, others the letters from 'a' on. Row-major comes first
// where several fit.
std::optional<std::string> layout_name(const Shape& shape, const Strides& strides);
// Strides with the same order of axes in memory, with rows (the innermost axis) a multiple of `multiple` elements apart.
Strides padded_strides(const Shape& shape, const Strides& strides, int64_t multiple);

}  // namespace pumice
