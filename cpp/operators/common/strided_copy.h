// Strided index spaces, and copies between strided tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "operators/table/lowering.h"

namespace pumice {

// A multi-dimensional index space, with one list of strides per tensor. Strides may be negative.
struct IndexSpace {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> strides;  // strides of each tensor, by axis

  int64_t elements() const;
  // Return the number of runs (rows along the last axis), and the offset of a run in a tensor, in elements.
  int64_t num_runs() const;
  int64_t get_run_offset(size_t tensor, int64_t run) const;
  // Removes axes of size 1, and merges adjacent axes that are contiguous in every tensor. Keeps at least one axis.
  void coalesce();
  // Prepends axes of size 1 until there are `rank` axes. Throws an UnsupportedError that names `subject` if there are more than that.
  void pad_to(size_t rank, std::string_view subject);
};

// Whether the strides describe a row-major tensor.
bool is_dense(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);

// Source of a copy. Offsets count from element `first`.
struct CopySource {
  Operand operand;
  int64_t first = 0;
};

// Destination of a copy. Offsets count from element `first`. `owns_words`: no other data shares its 32-bit words, so the kernel may write
// whole words. `misalignment`: byte distance of the operand from the preceding 16-byte boundary.
struct CopyTarget {
  Operand operand;
  int64_t first = 0;
  bool owns_words = true;
  uint64_t misalignment = 0;
};

// Adds the copy y[i] = x[i] over `space`, whose tensors are x and y, in this order.
void add_strided_copy(LowerContext& node, DType dtype, IndexSpace space, const CopySource& x, const CopyTarget& y);

// Returns the byte distance of an operand's start from the preceding 16-byte boundary.
uint64_t get_misalignment(const LowerContext& node, const Operand& operand);

// Returns the macro PIECES: the number of pieces of `piece_bits` bits that an invocation copies.
Macros make_copy_macros(int64_t piece_bits);
uint64_t count_copy_threads(int64_t pieces, int64_t piece_bits);  // number of invocations that copy `pieces` pieces

// Returns input i as a contiguous row-major tensor. Copies it if it is strided.
Operand get_contiguous_input(LowerContext& node, size_t i);
// Returns the destination for a kernel that writes output i contiguously: the output itself, or scratch memory if the output is strided.
// copy_contiguous_output() copies the scratch memory to the output.
Operand get_contiguous_output(LowerContext& node, size_t i);
void copy_contiguous_output(LowerContext& node, size_t i, const Operand& dense);

// Computes output `i` with a kernel that uses include/contiguous_output.glsl. `set` binds its inputs and parameters. `scale`: number of
// tensor elements that the kernel treats as one element.
void add_contiguous_output(LowerContext& node, size_t i, std::string_view shader, Macros macros,
                           const std::function<void(StepBuilder&)>& set, int64_t scale = 1);

// Computes the float output `i`, one element per invocation, with a kernel that uses include/contiguous_float_output.glsl. `set` binds its
// inputs and parameters.
void add_contiguous_float_output(LowerContext& node, size_t i, std::string_view shader, Macros macros,
                                 const std::function<void(StepBuilder&)>& set);

}  // namespace pumice
