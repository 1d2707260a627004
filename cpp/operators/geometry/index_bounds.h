// Valid ranges of index inputs, and bounds checks of indices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/table/index_bounds_rule.h"

namespace pumice {

// Converts the row-major index of an element to one index per axis.
std::vector<int64_t> unravel_index(const Shape& shape, int64_t position);
// Describes an invalid index for an error message, such as "9 at [0, 2]; expected -5 to 4". `index`: its value as text.
std::string describe_index_error(const IndexBounds& bounds, const Shape& shape, int64_t position, const std::string& index);
// Result of a bounds check: the number of out-of-range indices, and the row-major position and the value of the first one.
struct OutOfBoundsIndices {
  uint64_t count = 0;
  int64_t position = 0, index = 0;
};
OutOfBoundsIndices find_out_of_bounds(const IndexBounds& bounds, const TensorDesc& desc, const std::byte* indices);
// Checks indices on the host. Throws a GraphError that names the node and the first out-of-range index.
void check_indices(std::string_view node, const IndexBounds& bounds, const HostTensor& indices);

// Functions for OperatorRow::indices. Each returns the valid range of the index input of an operator; the trailing comments describe it.
IndexBounds get_axis_index_bounds(const Attributes& attributes, const std::vector<Shape>& inputs);  // input 1 indexes `axis` of input 0
IndexBounds get_index_tuple_bounds(const Attributes& attributes,
                                   const std::vector<Shape>& inputs);  // input 1 contains index tuples into input 0
IndexBounds get_cache_index_bounds(
    const Attributes& attributes,
    const std::vector<Shape>& inputs);  // input 2: index of the first cache row that the update (input 1) overwrites
IndexBounds get_slice_begin_bounds(const Attributes& attributes,
                                   const std::vector<Shape>& inputs);  // input 0: start of a slice on every axis of input 1
IndexBounds get_leading_index_bounds(const Attributes& attributes, const std::vector<Shape>& inputs);  // input 0 indexes `axis` of input 1
IndexBounds get_position_id_bounds(const Attributes& attributes,
                                   const std::vector<Shape>& inputs);  // input 3: row index into the cos and sin caches
IndexBounds get_batch_index_bounds(const Attributes& attributes, const std::vector<Shape>& inputs);  // input 2: batch index into input 0
IndexBounds get_roi_batch_index_bounds(const Attributes& attributes,
                                       const std::vector<Shape>& inputs);  // input 1: the first column contains batch indices
IndexBounds get_nonnegative_index_bounds(const Attributes& attributes,
                                         const std::vector<Shape>& inputs);  // input 2: non-negative batch index
IndexBounds get_unpool_index_bounds(const Attributes& attributes,
                                    const std::vector<Shape>& inputs);  // input 1: element index into the tensor before pooling
IndexBounds get_sequence_length_bounds(const Attributes& attributes,
                                       const std::vector<Shape>& inputs);  // input 1: lengths up to the size of `time_axis`
IndexBounds get_key_length_bounds(const Attributes& attributes,
                                  const std::vector<Shape>& inputs);  // input 6: lengths up to the number of keys, input 1
IndexBounds get_rnn_length_bounds(const Attributes& attributes,
                                  const std::vector<Shape>& inputs);  // input 4: lengths up to the number of time steps

}  // namespace pumice
