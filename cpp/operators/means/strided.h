// Strided index spaces for kernels that loop over a few axes: coalescing, and the plain copy from one strided tensor to another.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "operators/row/lowering.h"

namespace pumice {

// Axes of one index space with the strides of every tensor that walks it; strides may be negative.
struct IndexSpace {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> strides;  // strides of each tensor, by axis

  int64_t elements() const;
  // The number of walks along the last axis, and the element of a tensor where a walk begins.
  int64_t runs() const;
  int64_t first_of(size_t tensor, int64_t run) const;
  // Drops axes of size 1 and merges neighbours that every tensor walks as one. Keeps at least one axis.
  void coalesce();
  // Adds leading axes of size 1 until there are `rank`. Throws UnsupportedError naming `what` where there are more.
  void pad_to(size_t rank, std::string_view what);
};

// The strides are those of a row-major tensor of these sizes.
bool is_dense(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);

// Where a copy reads, its elements counted from `first` on.
struct CopySource {
  Operand operand;
  int64_t first = 0;
};

// Where a copy writes, its elements counted from `first` on. alone: the words hold nothing else, so whole words may be written. phase:
// bytes from the last 16-byte boundary to where the operand begins.
struct CopyTarget {
  Operand operand;
  int64_t first = 0;
  bool alone = true;
  uint64_t phase = 0;
};

// Adds the copy y[i] = x[i] over a space of two tensors, x first.
void add_strided_copy(LowerContext& node, DType dtype, IndexSpace space, const CopySource& x, const CopyTarget& y);

// Bytes from the last 16-byte boundary to where an operand of the node begins.
uint64_t phase_of(const LowerContext& node, const Operand& operand);

// Macros of kernels that move pieces of `piece_bits`: LOCAL_SIZE, the invocations of a workgroup, and PIECES, how many each moves.
Macros moving_macros(int64_t piece_bits);
uint64_t moving_threads(int64_t pieces, int64_t piece_bits);  // invocations for that many

// Input i as a dense row-major tensor: as it is, or a copy of it where its strides are others.
Operand dense_input(LowerContext& node, size_t i);
// The memory in which a kernel that makes dense row-major tensors makes output i: the output itself, or a temporary that finish_output()
// then moves there.
Operand dense_output(LowerContext& node, size_t i);
void finish_output(LowerContext& node, size_t i, const Operand& dense);

// Makes output `i` with a kernel of include/dense.glsl; `set` gives the kernel its inputs and parameters. `scale`: neighbours that are made
// as one.
void add_dense(LowerContext& node, size_t i, std::string_view shader, Macros macros, const std::function<void(StepBuilder&)>& set,
               int64_t scale = 1);

// Makes the floats of output `i` one by one with a kernel of include/each_float.glsl; `set` gives the kernel its inputs and parameters.
void add_each_float(LowerContext& node, size_t i, std::string_view shader, Macros macros, const std::function<void(StepBuilder&)>& set);

}  // namespace pumice
