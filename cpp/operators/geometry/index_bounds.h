// Valid values of index inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/table/index_rule.h"

namespace pumice {

// Multi-index of an element of a tensor with that shape; `position` is its row-major index.
std::vector<int64_t> element_places(const Shape& shape, int64_t position);
// Text for messages: "9 at [0, 2]; expected -5 to 4". `index`: the value as text.
std::string index_text(const IndexBounds& bounds, const Shape& shape, int64_t position, const std::string& index);
// The number of out-of-range indices (int32 or int64, row-major), and the position and value of the first.
struct OutOfBounds {
  uint64_t count = 0;
  int64_t position = 0, index = 0;
};
OutOfBounds out_of_bounds(const IndexBounds& bounds, const TensorDesc& desc, const std::byte* indices);
// Checks indices on the host. Throws GraphError naming the node and the first out-of-range index.
void check_indices(std::string_view node, const IndexBounds& bounds, const HostTensor& indices);

// Index rules of the operators with indices (OperatorRow::indices).
IndexBounds indices_of_axis(const Attributes& attributes, const std::vector<Shape>& inputs);  // input 0 is indexed on `axis`
IndexBounds indices_of_rows(const Attributes& attributes, const std::vector<Shape>& inputs);  // input 0 is indexed after `batch_dims`
IndexBounds indices_of_cache(const Attributes& attributes,
                             const std::vector<Shape>& inputs);  // input 2 is the first row that the update, input 1, is written to
IndexBounds indices_of_begins(const Attributes& attributes,
                              const std::vector<Shape>& inputs);  // input 0 has the begins of slices of input 1
IndexBounds indices_from_first(const Attributes& attributes, const std::vector<Shape>& inputs);  // input 0 indexes `axis` of input 1
IndexBounds indices_of_places(const Attributes& attributes, const std::vector<Shape>& inputs);   // input 3 indexes rows of tables
IndexBounds indices_of_images(const Attributes& attributes, const std::vector<Shape>& inputs);   // input 2 indexes batch items of input 0
IndexBounds indices_of_boxes(const Attributes& attributes,
                             const std::vector<Shape>& inputs);  // input 1: batch item in the first column of each row
IndexBounds indices_of_runs(const Attributes& attributes, const std::vector<Shape>& inputs);  // input 2: any batch items, from 0 on
IndexBounds indices_of_pooled(const Attributes& attributes,
                              const std::vector<Shape>& inputs);  // indices refer to the tensor that was pooled
IndexBounds lengths_of_time(const Attributes& attributes,
                            const std::vector<Shape>& inputs);  // input 1 has lengths up to the size of `time_axis`
IndexBounds lengths_of_keys(const Attributes& attributes,
                            const std::vector<Shape>& inputs);  // input 6 has lengths up to the number of rows of input 1
IndexBounds lengths_of_steps(const Attributes& attributes,
                             const std::vector<Shape>& inputs);  // input 4 has lengths up to the number of time steps

}  // namespace pumice
