// Strided index spaces for kernels that loop over a few axes: coalescing, and copies between strided tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "operators/table/lowering.h"

namespace pumice {

// Axes of an index space, with strides for each tensor; strides may be negative.
struct IndexSpace {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> strides;  // strides of each tensor, by axis

  int64_t elements() const;
  // A run is a row along the last axis. Return the number of runs, and the element offset of a run in a tensor.
  int64_t num_runs() const;
  int64_t run_offset(size_t tensor, int64_t run) const;
  // Drops axes of size 1 and merges adjacent axes that are contiguous in every tensor. Keeps at least one axis.
  void coalesce();
  // Adds leading axes of size 1 up to `rank`. Throws UnsupportedError naming `subject` if there are more.
  void pad_to(size_t rank, std::string_view subject);
};

// Whether the strides are those of a row-major tensor.
bool is_dense(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);

// Source of a copy; elements are relative to `first`.
struct CopySource {
  Operand operand;
  int64_t first = 0;
};

// Destination of a copy; elements are relative to `first`. `owns_words`: no other data shares its 32-bit words, so whole words may be
// written. `misalignment`: byte distance of the operand from the preceding 16-byte boundary.
struct CopyTarget {
  Operand operand;
  int64_t first = 0;
  bool owns_words = true;
  uint64_t misalignment = 0;
};

// Adds the copy y[i] = x[i] over a space of two tensors, x first.
void add_strided_copy(LowerContext& node, DType dtype, IndexSpace space, const CopySource& x, const CopyTarget& y);

// Byte distance of an operand's start from the preceding 16-byte boundary.
uint64_t get_misalignment(const LowerContext& node, const Operand& operand);

// Returns the macro PIECES: the number of pieces of `piece_bits` bits that an invocation copies.
Macros make_copy_macros(int64_t piece_bits);
uint64_t count_copy_threads(int64_t pieces, int64_t piece_bits);  // number of invocations that copy `pieces` pieces

// Returns input i as a dense row-major tensor, copied if it is strided.
Operand dense_input(LowerContext& node, size_t i);
// Returns the destination for kernels that write output i dense and row-major: the output itself, or a temporary that copy_dense_output()
// copies to it.
Operand dense_output(LowerContext& node, size_t i);
void copy_dense_output(LowerContext& node, size_t i, const Operand& dense);

// Computes output `i` with a kernel based on include/dense_output.glsl; `set` binds its inputs and parameters. `scale`: number of elements
// treated as one.
void add_dense_output(LowerContext& node, size_t i, std::string_view shader, Macros macros, const std::function<void(StepBuilder&)>& set,
                      int64_t scale = 1);

// Computes the floats of output `i` one by one with a kernel based on include/dense_float.glsl; `set` binds its inputs and parameters.
void add_dense_float_output(LowerContext& node, size_t i, std::string_view shader, Macros macros,
                            const std::function<void(StepBuilder&)>& set);

}  // namespace pumice
