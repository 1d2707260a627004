// Graph passes between Graph and Program. They preserve semantics and do not depend on the shapes of the data.
#pragma once

#include <cstdint>
#include <set>

#include "graph/description/fusions.h"
#include "graph/passes/program_graph.h"

namespace pumice {

// Runs all passes in order, with the fusions that `options` allows. `max_buffers`: storage buffers of a kernel on the device; no fusion
// adds operands beyond it.
ProgramGraph run_passes(const Graph& graph, const Subgraph& subgraph, const ProgramOptions& options, uint64_t max_buffers);

// ---- constants and dead code

// Replaces nodes with constant inputs by constants, if the host can compute them.
void fold_constants(ProgramGraph& graph);
// Removes nodes that no output depends on, and optional outputs without readers.
void remove_dead_nodes(ProgramGraph& graph);
// Marks nodes that the host evaluates at binding, and inputs whose elements shapes depend on.
void find_host_nodes(ProgramGraph& graph);

// ---- precision

// Changes internal floats to graph.float_dtype. Inputs and outputs keep their dtypes and get casts if necessary.
void set_precision(ProgramGraph& graph);

// Removes casts at inputs and outputs that already have the internal dtype.
void remove_redundant_casts(ProgramGraph& graph);

// Requests float32 for nodes that compute positions, angles and similar values: from integers converted to float (Cast, Range) or scaled
// graph inputs, up to nodes that are sensitive to errors below 1 (Sin, Cos, Floor, comparisons, ArgMax, Cast to integers) or inputs that
// the host reads, such as scales and limits. float16 rounds 2049 to 2048, bfloat16 rounds 257 to 256. These chains are a tiny part of a
// model. A Cast from 32-bit integers yields float32 if elementwise operators or data movement read it: a sum of int8 products exceeds
// float16 before it is scaled. In a graph with If, Loop or Scan, values between regions are stored as float32: inputs of a region count as
// integers, and outputs computed from them by such arithmetic, such as loop counters, are float32. The float32_nodes of the caller use the
// same marks; see force_fp32_nodes.h.
void keep_positions_fp32(ProgramGraph& graph);

// Requests float32 for nodes that compute scores from graph inputs or large integers by arithmetic or data movement. Returns the values,
// including graph inputs, that must saturate instead of overflowing to infinity when rounded to 16 bits: a row of only -inf would become
// NaN in Softmax. Infinities passed by the caller are kept. Runs before force_fp32_nodes(), which uses the marks.
std::set<ValueId> keep_attention_scores_finite(ProgramGraph& graph);

// Marks block-quantized matmuls whose float32 scales may be rounded to fp16, as the cooperative matrix kernels require: every scale is zero
// or a normal fp16 number. Other matmuls keep float32 scales and use other kernels; the report lists them on devices with cooperative
// matrices. Runs after set_precision(), which chooses the nodes that compute in float32.
void round_block_scales(ProgramGraph& graph);

// Removes casts from 16 bits to float32 that were not fused into elementwise nodes, if the kernels of all readers also accept 16 bits.
// Matmuls whose factors are all 16-bit values, or constants exact in 16 bits, read them directly: their kernels accumulate and store
// float32. Runs after elementwise fusion, because a cast fused into an elementwise node does not round and costs no dispatch.
void remove_widening_casts(ProgramGraph& graph);

// ---- fusions

// A fused node reads initial states directly instead of through a Concat of the directions, writes results directly as the outputs of a
// Split by direction, and writes Y in the order of a Transpose that groups the directions of each time step. Runs before precisions are
// chosen, so that states that are program inputs or outputs need no cast.
void fuse_bidirectional_rnn(ProgramGraph& graph, const FusionSet& fusions);

// A Slice that crops constant borders off the output of a ConvTranspose, as its only reader, becomes part of its pads, so that the borders
// are never computed. Not done if the result could be so small that the Slice would be empty.
void fuse_crops(ProgramGraph& graph, const FusionSet& fusions);

// Chains of elementwise operators with one varying operand become the epilogue of the matmul, convolution, pooling or reduction before
// them. Matmuls and convolutions also accept a second operand with the shape of the result (a residual). Elementwise operators of one shape
// fuse into one operator with up to four operands. Values with several readers and program outputs are still stored. Runs last, because it
// relies on final dtypes.
void fuse_elementwise(ProgramGraph& graph, const FusionSet& fusions, uint64_t max_buffers);

// Runs after elementwise fusion. Adjacent nodes in the table of fused pairs (operators/table/fused_pairs.h) become one node, such as a
// convolution and a max pooling with windows that do not overlap. The epilogues of both are kept.
void fuse_pairs(ProgramGraph& graph, const FusionSet& fusions);

// Runs after elementwise fusion. If the epilogue of a matmul reads another matmul of the same input (gate and up projection), one node
// computes both. An RMSNormalization read only by such matmuls is fused into them.
void fuse_block_quant_matmuls(ProgramGraph& graph, const FusionSet& fusions);

// If the queries and keys of an attention are rotated by the same angles, and its keys and values are written to the same cache rows, these
// four nodes become "pumice::RotaryCaches". Runs after index checks are collected, which refer to the separate nodes.
void fuse_rotary_caches(ProgramGraph& graph, const FusionSet& fusions, uint64_t max_buffers);

// ---- scheduling

// Runs after elementwise fusion. Sets, for each matmul with constant weights, the number of independent matmuls that share its input and
// weight shape.
void count_concurrent_gemms(ProgramGraph& graph);

}  // namespace pumice
