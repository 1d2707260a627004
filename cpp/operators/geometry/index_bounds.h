// The integers that an input of indices may hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/row/index_rule.h"

namespace pumice {

// The place of an element on the axes of a tensor of that shape; `position` counts in row-major order.
std::vector<int64_t> element_places(const Shape& shape, int64_t position);
// "9 at [0, 2]; expected -5 to 4". `index`: the number as text.
std::string index_text(const IndexBounds& bounds, const Shape& shape, int64_t position, const std::string& index);
// How many of the indices, of int32 or int64 in row-major order, are out of bounds; the first one's place and value.
struct OutOfBounds {
  uint64_t count = 0;
  int64_t position = 0, index = 0;
};
OutOfBounds out_of_bounds(const IndexBounds& bounds, const TensorDesc& desc, const std::byte* indices);
// Checks indices on the host. Throws GraphError naming the node and the first of the numbers that is out of bounds.
void check_indices(std::string_view node, const IndexBounds& bounds, const HostTensor& indices);

// The rules of the rows with indices (OperatorRow::indices).
IndexBounds indices_of_axis(const Attributes& attributes, const std::vector<Shape>& inputs);     // index input 0 on `axis`
IndexBounds indices_of_rows(const Attributes& attributes, const std::vector<Shape>& inputs);     // index input 0 after `batch_dims`
IndexBounds indices_of_cache(const Attributes& attributes, const std::vector<Shape>& inputs);    // first rows of an update, input 1
IndexBounds indices_of_begins(const Attributes& attributes, const std::vector<Shape>& inputs);   // input 0: where slices of input 1 begin
IndexBounds indices_from_first(const Attributes& attributes, const std::vector<Shape>& inputs);  // input 0, on `axis` of input 1
IndexBounds indices_of_places(const Attributes& attributes, const std::vector<Shape>& inputs);   // input 3: rows of tables
IndexBounds indices_of_images(const Attributes& attributes, const std::vector<Shape>& inputs);   // input 2: images of input 0
IndexBounds indices_of_boxes(const Attributes& attributes, const std::vector<Shape>& inputs);    // input 1: image first in each row
IndexBounds indices_of_runs(const Attributes& attributes, const std::vector<Shape>& inputs);     // input 2: any images, from 0 on
IndexBounds indices_of_pooled(const Attributes& attributes, const std::vector<Shape>& inputs);   // index the tensor that was pooled
IndexBounds lengths_of_time(const Attributes& attributes, const std::vector<Shape>& inputs);     // input 1, up to that of `time_axis`
IndexBounds lengths_of_keys(const Attributes& attributes, const std::vector<Shape>& inputs);     // input 6, up to the rows of input 1
IndexBounds lengths_of_steps(const Attributes& attributes, const std::vector<Shape>& inputs);    // input 4, up to that of the steps

}  // namespace pumice
