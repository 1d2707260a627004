// GEMM with a constant block-quantised matrix, with a scale per block along K. The weights stay quantised on the device.
#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/conv_gemm/lowerings.h"
#include "operators/common/composition.h"
#include "operators/common/strided_copy.h"
#include "operators/table/operator_table.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

// Inputs of the operator. kResidualInput is between the scales and the zero points.
enum BlockInput : size_t { kX, kW, kScale, kZero = kResidualInput + 1, kGateW, kGateScale, kGateZero, kGain };

bool is_gated(const LowerContext& node) {
  return node.has_input(kGateW);
}

bool has_points(const NodeContext& node) {
  return node.attributes->integer("has_points", 0) != 0;
}

// K elements of a chunk in pack_quant_weights.comp's layout, and columns of a tile.
constexpr int64_t kChunk = 128, kTileColumns = 16;

// Number of scales of a column per chunk.
int64_t scales_of(const NodeContext& node) {
  return std::max<int64_t>(kChunk / node.attributes->integer("block_size"), 1);
}

// Whether the node's matrices are packed for gemm_quant_mma: fp16 computation and 4-bit or 8-bit integers with fp16 or near-fp16 scales.
// Codes, scales and zero points are packed together at load. If one of them is not known then, or without shapes (packing in each call),
// all keep the file's layout.
bool takes_fragments(const PackContext& node) {
  const auto given = [&](size_t input) { return input < node.inputs.size() && node.inputs[input]; };
  if (node.shapes.empty() || (has_points(node) && !given(kZero))) return false;
  const bool rounds = node.attributes->integer("half_scales", 0) != 0;  // float32 scales close to fp16 values
  const auto has_halves = [&](size_t input) {
    if (!given(input)) return true;
    const DType dtype = node.input(input).dtype;
    return dtype == DType::float16 || (rounds && dtype == DType::float32);
  };
  if (!node.has_fragments() || node.float_dtype != DType::float16 || !given(kW) || !given(kScale)) return false;
  const TensorDesc& w = node.input(kW);
  const int64_t block = node.attributes->integer("block_size"), depth = w.shape[1];
  const uint64_t bytes = buffer_size(w.dtype, {round_up(w.shape[0], kTileColumns), round_up(depth, kChunk)});
  return (bits(w.dtype) == 4 || bits(w.dtype) == 8) && has_halves(kScale) && has_halves(kGateScale) && depth > 0 && depth % 32 == 0 &&
         block % 32 == 0 && (kChunk % block == 0 || block % kChunk == 0) && static_cast<int64_t>(bytes) <= largest_range(*node.context);
}

bool is_packed_at_load(const LowerContext& node, size_t input) {
  return input < node.constant_packed.size() && node.constant_packed[input];
}

// Codes are packed only for gemm_quant_mma.
bool is_in_fragments(const LowerContext& node) {
  return is_packed_at_load(node, kW);
}

// Returns an input in fragment order, if the codes are in that order. Throws Error if it is not, because the kernel would read it in the
// wrong layout.
Operand fragments_of(LowerContext& node, size_t input) {
  if (!is_packed_at_load(node, input))
    throw Error("node '" + std::string(node.node) + "': input " + std::to_string(input) + " is not packed as input 1 is");
  return node.in(input);
}

constexpr int64_t kMostRows = 16,
                  kMostRowsOnSoftware =
                      128;  // maximum M of the kernels that read the quantised matrix; for larger M the whole matrix is dequantised first
constexpr int64_t kMostWordRows = 4;  // the same for kernels that read the matrix word by word

// Tile and compile-time parameters of a kernel.
struct BlockTiling {
  std::string_view shader;
  int64_t rows, columns;
  SpecValues spec;
  Macros macros = {};
  bool has_gate = false, has_norm = false;  // the kernel has the gate, or the RMSNormalization of x, fused
};

// CPU drivers use gemv_quant_cpu, whose lanes load as many words of a block as possible, up to kMostAhead elements.
BlockTiling lanes_tiling(int64_t rows, int64_t block, int64_t in_word) {
  constexpr int64_t kMostAhead = 32, kTileRows = 8;
  int64_t ahead = 1;
  while (2 * ahead * in_word <= kMostAhead && block % (2 * ahead * in_word) == 0) ahead *= 2;
  const int64_t each = std::min(rows, kTileRows);
  return {"gemv_quant_cpu.comp", each, 16, {{"ROWS", each}, {"AHEAD", ahead}}};
}

// GPUs use gemv_quant. A team reads four columns at once, or two if there are few (docs/tuning.md). Teams are all subgroups of a
// workgroup if K has enough 16-byte pieces, else one subgroup, or the workgroup without subgroups. For a gated product, a team computes a
// column from one of each matrix.
BlockTiling columns_tiling(const LowerContext& node, int64_t rows, int64_t columns, int64_t pieces) {
  constexpr int64_t kTeam = 32, kSubgroups = 4, kTileRows = 8, kManyColumns = 4096;
  const int64_t matrices = is_gated(node) ? 2 : 1, across = columns * matrices >= kManyColumns ? 4 : 2;
  const int64_t subgroup = node.subgroup(), each = std::min(rows, kTileRows);
  const int64_t subgroups = subgroup > 0 ? std::clamp<int64_t>(node.most_invocations() / subgroup, 1, kSubgroups) : 1;
  const bool shared = subgroup > 0 && pieces >= subgroups * subgroup;
  const int64_t team = subgroup == 0 ? kTeam : shared ? subgroups * subgroup : subgroup, teams = shared ? 1 : subgroups;
  const auto number = [](int64_t value) { return std::to_string(value) + "u"; };
  return {"gemv_quant.comp",
          each,
          teams * across / matrices,
          {{"ROWS", each}},
          {{"TEAM", number(team)}, {"TEAMS", std::to_string(teams)}, {"COLUMNS", number(across)}, {"SUBGROUP", std::to_string(subgroup)}},
          true,
          true};
}

// Devices with fragments use gemm_quant_mma. K is split over enough subgroups for several per multiprocessor: at least four, at most one per
// chunk, and half as many with a gate (two matrices). With fused normalisation, which every workgroup repeats, at most eight subgroups are
// used. A workgroup has two tiles, prefetched together, if there are many tiles per multiprocessor. WHOLE: a single row needs no bounds
// checks, because all subgroups have equally many full chunks. TURNS: the maximum number of subgroups leaves registers for double buffering
// if each has one chunk. SPARED: with two tiles, nothing is prefetched past the end (docs/tuning.md).
BlockTiling quads_tiling(const LowerContext& node, int64_t rows, int64_t columns, int64_t depth) {
  constexpr int64_t kLanes = 32, kSubgroupsOfCore = 16, kFewestSubgroups = 4, kMostSubgroups = 16, kMostOfNorm = 8, kTilesOfCore = 48;
  constexpr int64_t kMostParts = 8;  // maximum number of vec8s of a row that an invocation keeps in registers while normalising
  const int64_t chunks = ceil_div(depth, kChunk), tiles = ceil_div(columns, kTileColumns), sets = is_gated(node) ? 2 : 1;
  const int64_t wanted = std::max(ceil_div(node.multiprocessors() * kSubgroupsOfCore, tiles * sets), kFewestSubgroups);
  const int64_t in_group = sets == 1 && tiles >= node.multiprocessors() * kTilesOfCore ? 2 : 1;
  const bool is_normed = node.has_input(kGain);
  const int64_t most = std::min({is_normed ? kMostOfNorm : kMostSubgroups, node.most_invocations() / kLanes, chunks});
  int64_t subgroups = 1;
  while (subgroups * 2 <= most && subgroups < wanted) subgroups *= 2;
  const int64_t each = std::min(rows, kMostRows), staged = each * (chunks * 16 + 1);
  const int64_t of_subgroup = in_group * sets * kTileColumns * (each > 8 ? 17 : 9) * 4 + node.emulated_bytes(kLanes);
  const int64_t limit = static_cast<int64_t>(node.context->limit("maxComputeSharedMemorySize"));
  while (subgroups > 1 && subgroups * of_subgroup > limit) subgroups /= 2;
  const int64_t parts = ceil_div(ceil_div(chunks, subgroups) * kChunk, 8 * kLanes);
  const bool has_norm = parts <= kMostParts && staged * 16 + subgroups * (of_subgroup + each * 8) <= limit;
  const bool is_whole = each == 1 && depth % kChunk == 0 && chunks % subgroups == 0;
  SpecValues spec{{"ROWS", each}, {"INVOCATIONS", subgroups * kLanes}, {"TILES", in_group}, {"WHOLE", is_whole}};
  if (each == 1 && !is_normed && subgroups == kMostSubgroups && chunks == subgroups) spec.emplace_back("TURNS", 2);
  if (each == 1 && !is_normed && in_group == 2) spec.emplace_back("SPARED", 1);
  if (is_normed && has_norm) spec.insert(spec.end(), {{"STAGED", staged}, {"PARTS", parts}});
  const Macros macros{{"SCALES", std::to_string(scales_of(node))}, {"EMULATED", node.emulates_fragments() ? "1" : "0"}};
  return {"gemm_quant_mma.comp", each, in_group * kTileColumns, spec, macros, true, has_norm};
}

// Returns the tile of the kernel that reads the quantised matrix directly; nullopt if no kernel can.
std::optional<BlockTiling> block_tiling(const LowerContext& node, const Operand& x, int64_t rows, int64_t block) {
  const TensorDesc& w = node.input(1);
  const int64_t columns = w.shape[0], depth = w.shape[1], in_word = 32 / bits(w.dtype), piece = 4 * in_word;
  if (depth <= 0 || depth % in_word != 0 || block % in_word != 0) return {};
  if (is_in_fragments(node)) return rows <= kMostRows ? std::optional(quads_tiling(node, rows, columns, depth)) : std::nullopt;
  if (node.prefers_lanes()) return rows <= kMostRowsOnSoftware ? std::optional(lanes_tiling(rows, block, in_word)) : std::nullopt;
  const bool in_pieces = depth % piece == 0 && block % piece == 0 && phase_of(node, x) == 0;
  if (rows <= kMostRows && in_pieces) return columns_tiling(node, rows, columns, depth / piece);
  if (rows <= kMostWordRows) return BlockTiling{"gemv_quant_generic.comp", rows, 1, {{"ROWS", rows}}};
  return {};
}

// Inputs for one of the operator's matrices.
struct BlockMatrix {
  size_t w, scale, zero;
};
constexpr BlockMatrix kMatrix{kW, kScale, kZero}, kGate{kGateW, kGateScale, kGateZero};

// Macros that describe the matrix to include/quant_weights.glsl and pack_quant_weights.
Macros block_macros(const NodeContext& node, const TensorDesc& w) {
  return {{"BITS", std::to_string(bits(w.dtype))},
          {"SIGNED", is_signed_integer(w.dtype) ? "1" : "0"},
          {"ZERO", has_points(node) ? "1" : "0"},
          {"POINT", std::to_string(node.attributes->integer("zero_point", 0)) + ".0"}};
}

// Returns the quantised matrix or the zero points in the layout of the selected kernel.
Operand codes(LowerContext& node, size_t input) {
  return is_in_fragments(node) ? fragments_of(node, input) : node.in(input);
}

// Returns the scales of a matrix in that layout.
Operand scales(LowerContext& node, size_t input) {
  return is_in_fragments(node) ? fragments_of(node, input) : node.packed(input);
}

// Binds a matrix with its scales and zero points.
StepBuilder& set_matrix(LowerContext& node, StepBuilder& step, const BlockMatrix& matrix) {
  const TensorDesc& w = node.input(matrix.w);
  const int64_t block = node.attributes->integer("block_size"), depth = w.shape[1];
  step.bind("w", codes(node, matrix.w)).bind("scale", scales(node, matrix.scale));
  if (has_points(node)) step.bind("zero", codes(node, matrix.zero));
  return step.set("depth", depth).set("columns", w.shape[0]).set("block", block).set("blocks", ceil_div(depth, block));
}

// A GEMM of the node: operands and epilogue.
struct BlockProduct {
  BlockMatrix matrix;
  Piece x, y;
  std::string epilogue;
  const Operand* residual = nullptr;
  bool is_gated = false, is_normed = false;  // the gate, or the normalisation of x, is fused into the kernel
  std::shared_ptr<const StepChoice> choice = nullptr;
};

void add_kernel(LowerContext& node, const BlockTiling& tiling, const BlockProduct& product) {
  const bool gated = product.is_gated, normed = product.is_normed;
  Macros macros = block_macros(node, node.input(kW));
  macros.insert(macros.end(), tiling.macros.begin(), tiling.macros.end());
  macros.emplace_back("EPILOGUE(x)", product.epilogue);
  if (product.residual || gated) macros.emplace_back("RESIDUAL", "1");
  if (gated) macros.insert(macros.end(), {{"GATED", "1"}, {"GATE(x)", node.attributes->text("gate_epilogue", "x")}});
  if (normed) macros.emplace_back("NORMED", "1");
  if (is_in_fragments(node) && tiling.rows == 1 && !normed) macros.emplace_back("HELD_X", "1");
  StepBuilder step(node.kernel(tiling.shader, product.x.desc.dtype, macros, tiling.spec));
  step.bind("x", product.x.operand).bind("y", product.y.operand);
  if (product.residual) step.bind("residual", *product.residual);
  if (gated) {
    step.bind("gate_w", codes(node, kGateW)).bind("gate_scale", scales(node, kGateScale));
    if (has_points(node)) step.bind("gate_zero", codes(node, kGateZero));
  }
  if (normed) step.bind("gain", node.packed(kGain)).set("epsilon", node.attributes->real("epsilon", 0));
  const int64_t columns = node.input(kW).shape[0], rows = product.y.desc.elements() / columns;
  set_matrix(node, step, product.matrix).set("rows", rows);
  step.groups(static_cast<uint64_t>(ceil_div(columns, tiling.columns)), static_cast<uint64_t>(ceil_div(rows, tiling.rows)));
  Step made = step.build();
  made.choice = product.choice;
  node.add(std::move(made));
}

constexpr int64_t kFloatColumns = 8;  // number of columns per invocation of dequantize_weights when it writes [K, N]

// Whether the GEMM reads [K, N] unpacked. Writing [N, K] and then packing it took half of the time of a long prefill.
bool takes_rows(const NodeContext& node, int64_t columns) {
  return !node.prefers_lanes() && columns % kFloatColumns == 0;
}

// Returns the dequantised matrix: [K, N] if the GEMM reads that directly, else [N, K].
Piece floats_of(LowerContext& node, Composition& parts, const BlockMatrix& matrix, DType dtype) {
  constexpr int64_t kSteps = 32;  // number of K elements of four invocations that write [K, N]; with fragments, of each invocation
  const int64_t columns = node.input(kW).shape[0], depth = node.input(kW).shape[1];
  const bool fragments = is_in_fragments(node), transposed = takes_rows(node, columns);
  const Piece floats = parts.scratch(dtype, transposed ? Shape{depth, columns} : Shape{columns, depth});
  Macros macros = block_macros(node, node.input(kW));
  if (fragments) macros.insert(macros.end(), {{"FRAGMENTS", "1"}, {"SCALES", std::to_string(scales_of(node))}});
  if (fragments && transposed) macros.emplace_back("W_FOURS", "1");
  if (transposed) macros.emplace_back("TRANSPOSED", "1");
  StepBuilder step(node.kernel("dequantize_weights.comp", dtype, macros));
  step.bind("y", floats.operand);
  set_matrix(node, step, matrix).set("elements", columns * depth);
  const int64_t stretches = ceil_div(depth, fragments ? kChunk : kSteps);
  node.add(
      step.threads(static_cast<uint64_t>(transposed ? columns / kFloatColumns * stretches * 4 : ceil_div(columns * depth, 8))).build());
  return floats;
}

// Dequantises the whole matrix, then runs a float GEMM.
void add_float_product(LowerContext& node, Composition& parts, const BlockProduct& product) {
  const int64_t columns = node.input(kW).shape[0], depth = node.input(kW).shape[1], rows = product.y.desc.elements() / columns;
  const Piece floats = floats_of(node, parts, product.matrix, product.x.desc.dtype);
  Attributes attributes;
  attributes.set("transB", int64_t{!takes_rows(node, columns)});
  const Piece x = product.x.seen_as({rows, depth}), result = product.y.seen_as({rows, columns});
  if (!product.residual) return parts.add("Gemm", attributes, {x, floats}, result, product.epilogue);
  const Piece made = parts.scratch(product.y.desc.dtype, {rows, columns});
  parts.add("Gemm", attributes, {x, floats}, made);
  const Expression whole = node.expression->substitute({{"x", Expression::name("a0")}, {"residual", Expression::name("a1")}});
  parts.map(whole, {made, {result.desc, *product.residual}}, result);
}

// Returns x, copied if needed, so that it starts at a 16-byte boundary for gemm_quant_mma.
Piece at_boundary(LowerContext& node, const Piece& x) {
  if (phase_of(node, x.operand) == 0) return x;
  Piece copy = x;
  copy.operand = node.temporary(x.desc.bytes());
  add_strided_copy(node, x.desc.dtype, {x.desc.shape, {x.desc.strides, x.desc.strides}}, {x.operand}, {copy.operand});
  return copy;
}

void add_product(LowerContext& node, Composition& parts, const BlockProduct& product, const std::optional<BlockTiling>& tiling) {
  if (!tiling) return add_float_product(node, parts, product);
  if (!is_in_fragments(node)) return add_kernel(node, *tiling, product);
  BlockProduct aligned = product;
  aligned.x = at_boundary(node, product.x);
  add_kernel(node, *tiling, aligned);
}

// Returns the rows to multiply, after RMSNormalization if the node has one.
Piece normalised(LowerContext& node, Composition& parts) {
  const Piece x = parts.input(kX);
  if (!node.has_input(kGain)) return x;
  Attributes attributes;
  attributes.set("epsilon", attribute_real(node.attributes->real("epsilon", 0)));
  const Piece made = parts.scratch(x.desc.dtype, x.desc.shape);
  const Piece gain{TensorDesc(DType::float32, node.input(kGain).shape), node.packed(kGain), true};
  parts.add("RMSNormalization", attributes, {x, gain}, made);
  return made;
}

// RMSNormalization is fused into the kernel or runs before it. With fragments, a separate kernel is faster for more than kMostNormedRows
// rows, because every workgroup would normalise all rows. A measured variant overrides the choice (docs/tuning.md).
constexpr std::string_view kInside = "normalised inside", kBefore = "normalised before";
constexpr int64_t kMostNormedRows = 1;

void choose_norm(const LowerContext& node, int64_t rows, BlockProduct& product) {
  const std::string_view own = is_in_fragments(node) && rows > kMostNormedRows ? kBefore : kInside;
  product.choice = told_choice(node.measured, "block product of " + std::to_string(rows) + " normalised rows", own,
                               std::array<std::string_view, 2>{kInside, kBefore});
  product.is_normed = (product.choice ? product.choice->taken : own) == kInside;
}

}  // namespace

// Inputs: a [.., K], w [N, K], scale [N, blocks], zero points [N, blocks]; the same three for the gate's matrix; the gain [K] of the
// normalisation of a.
void shape_of_block_matmul(ShapeContext& node) {
  const TensorDesc &a = node.input(kX), &w = node.input(kW);
  const int64_t block = node.attributes().integer("block_size");
  if (w.rank() != 2 || block < 1 || a.shape.back() != w.shape[1])
    node.fail("expected [.., depth] and [columns, depth] in blocks; given " + to_string(a.shape) + " and " + to_string(w.shape));
  const Shape blocks{w.shape[0], ceil_div(w.shape[1], block)};
  const auto check = [&](size_t input, const Shape& expected, const char* what) {
    if (node.has(input) && node.input(input).shape != expected)
      node.fail("expected " + std::string(what) + " " + to_string(expected) + "; given " + to_string(node.input(input).shape));
  };
  for (const size_t input : {kScale, kZero, kGateScale, kGateZero}) check(input, blocks, "scales and zero points");
  check(kGateW, w.shape, "a gate's matrix");
  check_vector(node, kGain, w.shape[1], "gain");
  Shape shape = a.shape;
  shape.back() = w.shape[0];
  node.output(0, a.dtype, shape);
}

bool pack_block_matmul(const PackContext& node, size_t input, PackedWeight& packed) {
  const bool is_codes = input == kW || input == kGateW, is_points = input == kZero || input == kGateZero;
  const bool is_scale = input == kScale || input == kGateScale;
  if (!is_codes && !is_points && !is_scale && input != kGain) return false;
  if (input == kGain || !takes_fragments(node)) {
    if (is_codes || is_points) return false;
    pack_floats(node, input, 1, packed);
    return true;
  }
  const TensorDesc& w = node.input(kW);
  const int64_t columns = w.shape[0], depth = w.shape[1], block = node.attributes->integer("block_size");
  const int64_t lines = round_up(columns, kTileColumns), chunks = ceil_div(depth, kChunk), scales = scales_of(node);
  packed.desc = is_codes ? TensorDesc(w.dtype, {lines, chunks * kChunk}) : TensorDesc(DType::float16, {lines, chunks * scales});
  Macros macros = block_macros(node, w);
  macros.insert(macros.end(), {{"SCALES", std::to_string(scales)}, {"TERMS", is_codes ? "0" : "1"}, {"INTEGERS", is_points ? "1" : "0"}});
  if (is_scale && node.input(input).dtype == DType::float32) macros.emplace_back("SOURCE_FLOAT", "1");
  const int64_t words = static_cast<int64_t>(packed.desc.bytes()) / 4;
  packed.steps = packing_each(node.kernel("pack_quant_weights.comp", DType::float16, macros), words, [=](StepBuilder& step) {
    step.set("words", words).set("depth", depth).set("columns", columns).set("block", block).set("blocks", ceil_div(depth, block));
  });
  return true;
}

void lower_block_matmul(LowerContext& node) {
  if (node.output(0).elements() == 0) return;
  Composition parts(node);
  BlockProduct product{kMatrix, parts.input(kX), parts.output(0), node.epilogue(), node.residual()};
  const int64_t rows = product.y.desc.elements() / node.input(kW).shape[0], block = node.attributes->integer("block_size");
  auto tiling = block_tiling(node, product.x.operand, rows, block);
  if (node.has_input(kGain) && tiling && tiling->has_norm) choose_norm(node, rows, product);
  if (!product.is_normed) {
    product.x = normalised(node, parts);
    tiling = block_tiling(node, product.x.operand, rows, block);
  }
  product.is_gated = is_gated(node) && tiling && tiling->has_gate;
  if (!is_gated(node) || product.is_gated) return add_product(node, parts, product, tiling);
  const Piece gate = parts.scratch(product.y.desc.dtype, product.y.desc.shape);
  add_product(node, parts, {kGate, product.x, gate, node.attributes->text("gate_epilogue", "x")}, tiling);
  product.residual = &gate.operand;
  add_product(node, parts, product, tiling);
}

}  // namespace pumice
