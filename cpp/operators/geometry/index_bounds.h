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
std::vector<int64_t> unravel_index(const Shape& shape, int64_t position);
// Text for messages: "9 at [0, 2]; expected -5 to 4". `index`: the value as text.
std::string describe_index_error(const IndexBounds& bounds, const Shape& shape, int64_t position, const std::string& index);
// The number of out-of-range indices (int32 or int64, row-major), and the position and value of the first.
struct OutOfBoundsIndices {
  uint64_t count = 0;
  int64_t position = 0, index = 0;
};
OutOfBoundsIndices find_out_of_bounds(const IndexBounds& bounds, const TensorDesc& desc, const std::byte* indices);
// Checks indices on the host. Throws GraphError naming the node and the first out-of-range index.
void check_indices(std::string_view node, const IndexBounds& bounds, const HostTensor& indices);

// Index rules of the operators with indices (OperatorRow::indices).
IndexBounds axis_index_bounds(const Attributes& attributes, const std::vector<Shape>& inputs);   // input 0 is indexed on `axis`
IndexBounds index_tuple_bounds(const Attributes& attributes, const std::vector<Shape>& inputs);  // input 0 is indexed after `batch_dims`
IndexBounds cache_index_bounds(const Attributes& attributes,
                               const std::vector<Shape>& inputs);  // input 2 is the first row that the update, input 1, is written to
IndexBounds slice_begin_bounds(const Attributes& attributes,
                               const std::vector<Shape>& inputs);  // input 0 has the begins of slices of input 1
IndexBounds leading_index_bounds(const Attributes& attributes, const std::vector<Shape>& inputs);  // input 0 indexes `axis` of input 1
IndexBounds position_id_bounds(const Attributes& attributes, const std::vector<Shape>& inputs);    // input 3 indexes rows of tables
IndexBounds batch_index_bounds(const Attributes& attributes, const std::vector<Shape>& inputs);    // input 2 indexes batch items of input 0
IndexBounds roi_batch_index_bounds(const Attributes& attributes,
                                   const std::vector<Shape>& inputs);  // input 1: batch item in the first column of each row
IndexBounds nonnegative_index_bounds(const Attributes& attributes,
                                     const std::vector<Shape>& inputs);  // input 2: any batch items, from 0 on
IndexBounds unpool_index_bounds(const Attributes& attributes,
                                const std::vector<Shape>& inputs);  // indices refer to the tensor that was pooled
IndexBounds sequence_length_bounds(const Attributes& attributes,
                                   const std::vector<Shape>& inputs);  // input 1 has lengths up to the size of `time_axis`
IndexBounds key_length_bounds(const Attributes& attributes,
                              const std::vector<Shape>& inputs);  // input 6 has lengths up to the number of rows of input 1
IndexBounds rnn_length_bounds(const Attributes& attributes,
                              const std::vector<Shape>& inputs);  // input 4 has lengths up to the number of time steps

}  // namespace pumice
