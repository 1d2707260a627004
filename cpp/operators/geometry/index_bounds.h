// Valid ranges of index inputs, and checks against them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/table/index_rule.h"

namespace pumice {

// Converts the row-major index of an element to one index per axis.
std::vector<int64_t> unravel_index(const Shape& shape, int64_t position);
// Describes an invalid index for an error message, such as "9 at [0, 2]; expected -5 to 4". `index`: its value as text.
std::string describe_index_error(const IndexBounds& bounds, const Shape& shape, int64_t position, const std::string& index);
// The number of out-of-range indices (int32 or int64, row-major), and the position and value of the first.
struct OutOfBoundsIndices {
  uint64_t count = 0;
  int64_t position = 0, index = 0;
};
OutOfBoundsIndices find_out_of_bounds(const IndexBounds& bounds, const TensorDesc& desc, const std::byte* indices);
// Checks indices on the host. Throws GraphError naming the node and the first out-of-range index.
void check_indices(std::string_view node, const IndexBounds& bounds, const HostTensor& indices);

// Functions for OperatorRow::indices: each returns the valid range of an operator's index input.
IndexBounds axis_index_bounds(const Attributes& attributes, const std::vector<Shape>& inputs);   // input 1 indexes `axis` of input 0
IndexBounds index_tuple_bounds(const Attributes& attributes, const std::vector<Shape>& inputs);  // input 1: index tuples into input 0
IndexBounds cache_index_bounds(const Attributes& attributes,
                               const std::vector<Shape>& inputs);  // input 2: first cache row that update input 1 overwrites
IndexBounds slice_begin_bounds(const Attributes& attributes,
                               const std::vector<Shape>& inputs);  // input 0: start of a slice on each axis of input 1
IndexBounds leading_index_bounds(const Attributes& attributes, const std::vector<Shape>& inputs);  // input 0 indexes `axis` of input 1
IndexBounds position_id_bounds(const Attributes& attributes, const std::vector<Shape>& inputs);    // input 3: row of the cos/sin caches
IndexBounds batch_index_bounds(const Attributes& attributes, const std::vector<Shape>& inputs);    // input 2: batch index into input 0
IndexBounds roi_batch_index_bounds(const Attributes& attributes,
                                   const std::vector<Shape>& inputs);  // input 1: batch index in the first column of each row
IndexBounds nonnegative_index_bounds(const Attributes& attributes,
                                     const std::vector<Shape>& inputs);  // input 2: batch index of 0 or more
IndexBounds unpool_index_bounds(const Attributes& attributes,
                                const std::vector<Shape>& inputs);  // input 1: element index in the tensor before pooling
IndexBounds sequence_length_bounds(const Attributes& attributes,
                                   const std::vector<Shape>& inputs);  // input 1: lengths up to the size of `time_axis`
IndexBounds key_length_bounds(const Attributes& attributes,
                              const std::vector<Shape>& inputs);  // input 6: lengths up to the number of keys, input 1
IndexBounds rnn_length_bounds(const Attributes& attributes,
                              const std::vector<Shape>& inputs);  // input 4: lengths up to the number of time steps

}  // namespace pumice
