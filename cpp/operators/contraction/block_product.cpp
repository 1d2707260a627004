// Products with a constant matrix of few bits, whose blocks along the depth have a scale each. It stays of few bits on the device.
#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/contraction/lowerings.h"
#include "operators/means/compose.h"
#include "operators/means/strided.h"
#include "operators/row/operator_table.h"
#include "operators/row/row_parts.h"

namespace pumice {
namespace {

// The inputs of the row. kResidualInput lies between the scales and the zero points.
enum BlockInput : size_t { kX, kW, kScale, kZero = kResidualInput + 1, kGateW, kGateScale, kGateZero, kGain };

bool is_gated(const LowerContext& node) {
  return node.has_input(kGateW);
}

constexpr int64_t kMostRows = 16, kMostRowsOnSoftware = 128;  // past which the matrix is made floats first, for all of them
constexpr int64_t kMostWordRows = 4;                          // the same where the matrix is read word by word

// How a kernel shares out the products: rows and columns of a workgroup, and what it was compiled for.
struct BlockTiling {
  std::string_view shader;
  int64_t rows, columns;
  SpecValues spec;
  Macros macros = {};
  bool joins = false;  // the kernel has the gate and the normalisation of x in it
};

// CPU drivers take block_lanes, whose lanes read as many words at once as a block has, up to kMostAhead elements.
BlockTiling lanes_tiling(int64_t rows, int64_t block, int64_t in_word) {
  constexpr int64_t kMostAhead = 32, kTileRows = 8;
  int64_t ahead = 1;
  while (2 * ahead * in_word <= kMostAhead && block % (2 * ahead * in_word) == 0) ahead *= 2;
  const int64_t each = std::min(rows, kTileRows);
  return {"block_lanes.comp", each, 16, {{"ROWS", each}, {"AHEAD", ahead}}};
}

// GPUs take block_columns, whose teams read four columns at once, or two where there are few (docs/tuning.md). A team is as many subgroups
// as a depth has pieces of 16 bytes for, or one of several in a workgroup; without subgroups it is a workgroup.
// A team makes a column of a gated product from one of each matrix.
BlockTiling columns_tiling(const LowerContext& node, int64_t rows, int64_t columns, int64_t pieces) {
  constexpr int64_t kTeam = 32, kSubgroups = 4, kTileRows = 8, kManyColumns = 4096;
  const int64_t matrices = is_gated(node) ? 2 : 1, across = columns * matrices >= kManyColumns ? 4 : 2;
  const int64_t subgroup = node.subgroup(), each = std::min(rows, kTileRows);
  const int64_t subgroups = subgroup > 0 ? std::clamp<int64_t>(node.most_invocations() / subgroup, 1, kSubgroups) : 1;
  const bool shared = subgroup > 0 && pieces >= subgroups * subgroup;
  const int64_t team = subgroup == 0 ? kTeam : shared ? subgroups * subgroup : subgroup, teams = shared ? 1 : subgroups;
  const auto number = [](int64_t value) { return std::to_string(value) + "u"; };
  return {"block_columns.comp",
          each,
          teams * across / matrices,
          {{"ROWS", each}},
          {{"TEAM", number(team)}, {"TEAMS", std::to_string(teams)}, {"COLUMNS", number(across)}, {"SUBGROUP", std::to_string(subgroup)}},
          true};
}

// The tiling of the kernel that multiplies so many rows with the matrix as it is; none where no kernel does.
std::optional<BlockTiling> block_tiling(const LowerContext& node, const Operand& x, int64_t rows, int64_t block) {
  const TensorDesc& w = node.input(1);
  const int64_t columns = w.shape[0], depth = w.shape[1], in_word = 32 / bits(w.dtype), piece = 4 * in_word;
  if (depth <= 0 || depth % in_word != 0 || block % in_word != 0) return {};
  if (node.prefers_lanes()) return rows <= kMostRowsOnSoftware ? std::optional(lanes_tiling(rows, block, in_word)) : std::nullopt;
  const bool in_pieces = depth % piece == 0 && block % piece == 0 && phase_of(node, x) == 0;
  if (rows <= kMostRows && in_pieces) return columns_tiling(node, rows, columns, depth / piece);
  if (rows <= kMostWordRows) return BlockTiling{"block_rows.comp", rows, 1, {{"ROWS", rows}}};
  return {};
}

bool has_points(const LowerContext& node) {
  return node.attributes->integer("has_points", 0) != 0;
}

// The inputs that describe one of the row's matrices.
struct BlockMatrix {
  size_t w, scale, zero;
};
constexpr BlockMatrix kMatrix{kW, kScale, kZero}, kGate{kGateW, kGateScale, kGateZero};

// The macros by which the kernels of include/blocks.glsl know the matrix.
Macros block_macros(const LowerContext& node) {
  const TensorDesc& w = node.input(kW);
  return {{"BITS", std::to_string(bits(w.dtype))},
          {"SIGNED", is_signed_integer(w.dtype) ? "1" : "0"},
          {"ZERO", has_points(node) ? "1" : "0"},
          {"POINT", std::to_string(node.attributes->integer("zero_point", 0)) + ".0"}};
}

// Binds a matrix, its scales and its zero points.
StepBuilder& set_matrix(LowerContext& node, StepBuilder& step, const BlockMatrix& matrix) {
  const TensorDesc& w = node.input(matrix.w);
  const int64_t block = node.attributes->integer("block_size"), depth = w.shape[1];
  step.bind("w", node.in(matrix.w)).bind("scale", node.packed(matrix.scale));
  if (has_points(node)) step.bind("zero", node.in(matrix.zero));
  return step.set("depth", depth).set("columns", w.shape[0]).set("block", block).set("blocks", ceil_div(depth, block));
}

// A product of a node: its operands, and what is made of each element as it is stored.
struct BlockProduct {
  BlockMatrix matrix;
  Piece x, y;
  std::string epilogue;
  const Operand* residual = nullptr;
  bool is_joined = false;  // the gate and the normalisation of x are parts of the kernel
};

void add_kernel(LowerContext& node, const BlockTiling& tiling, const BlockProduct& product) {
  const bool gated = product.is_joined && is_gated(node), normed = product.is_joined && node.has_input(kGain);
  Macros macros = block_macros(node);
  macros.insert(macros.end(), tiling.macros.begin(), tiling.macros.end());
  macros.emplace_back("EPILOGUE(x)", product.epilogue);
  if (product.residual || gated) macros.emplace_back("RESIDUAL", "1");
  if (gated) macros.insert(macros.end(), {{"GATED", "1"}, {"GATE(x)", node.attributes->text("gate_epilogue", "x")}});
  if (normed) macros.emplace_back("NORMED", "1");
  StepBuilder step(node.kernel(tiling.shader, product.x.desc.dtype, macros, tiling.spec));
  step.bind("x", product.x.operand).bind("y", product.y.operand);
  if (product.residual) step.bind("residual", *product.residual);
  if (gated) {
    step.bind("gate_w", node.in(kGateW)).bind("gate_scale", node.packed(kGateScale));
    if (has_points(node)) step.bind("gate_zero", node.in(kGateZero));
  }
  if (normed) step.bind("gain", node.packed(kGain)).set("epsilon", node.attributes->real("epsilon", 0));
  const int64_t columns = node.input(kW).shape[0], rows = product.y.desc.elements() / columns;
  set_matrix(node, step, product.matrix).set("rows", rows);
  step.groups(static_cast<uint64_t>(ceil_div(columns, tiling.columns)), static_cast<uint64_t>(ceil_div(rows, tiling.rows)));
  node.add(step.build());
}

// Makes floats of all of the matrix first.
void add_float_product(LowerContext& node, Composition& parts, const BlockProduct& product) {
  const int64_t columns = node.input(kW).shape[0], depth = node.input(kW).shape[1], rows = product.y.desc.elements() / columns;
  const DType dtype = product.x.desc.dtype;
  const Piece floats = parts.scratch(dtype, {columns, depth});
  StepBuilder step(node.kernel("block_floats.comp", dtype, block_macros(node)));
  step.bind("y", floats.operand);
  set_matrix(node, step, product.matrix).set("elements", columns * depth);
  node.add(step.threads(static_cast<uint64_t>(ceil_div(columns * depth, 8))).build());
  Attributes transposed;
  transposed.set("transB", int64_t{1});
  const Piece x = product.x.seen_as({rows, depth}), result = product.y.seen_as({rows, columns});
  if (!product.residual) return parts.add("Gemm", transposed, {x, floats}, result, product.epilogue);
  const Piece made = parts.scratch(product.y.desc.dtype, {rows, columns});
  parts.add("Gemm", transposed, {x, floats}, made);
  const Expression whole = node.expression->substitute({{"x", Expression::name("a0")}, {"residual", Expression::name("a1")}});
  parts.map(whole, {made, {result.desc, *product.residual}}, result);
}

void add_product(LowerContext& node, Composition& parts, const BlockProduct& product) {
  const int64_t rows = product.y.desc.elements() / node.input(kW).shape[0];
  const auto tiling = block_tiling(node, product.x.operand, rows, node.attributes->integer("block_size"));
  if (tiling && (tiling->joins || !product.is_joined)) return add_kernel(node, *tiling, product);
  add_float_product(node, parts, product);
}

// The rows that are multiplied, after RMSNormalization where that is a part of the node.
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

}  // namespace

// Inputs: a [.., depth], w [columns, depth], scale [columns, blocks], zero points [columns, blocks]; a second matrix with its own, the
// gate's; the gain [depth] of the normalisation of a.
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
  if (input != kScale && input != kGateScale && input != kGain) return false;
  pack_floats(node, input, 1, packed);
  return true;
}

void lower_block_matmul(LowerContext& node) {
  if (node.output(0).elements() == 0) return;
  Composition parts(node);
  BlockProduct product{kMatrix, parts.input(kX), parts.output(0), node.epilogue(), node.residual(), true};
  const int64_t rows = product.y.desc.elements() / node.input(kW).shape[0];
  const auto tiling = block_tiling(node, product.x.operand, rows, node.attributes->integer("block_size"));
  const bool is_plain = !is_gated(node) && !node.has_input(kGain);
  if (is_plain || (tiling && tiling->joins)) {
    product.is_joined = !is_plain;
    return add_product(node, parts, product);
  }
  product.is_joined = false;
  product.x = normalised(node, parts);
  if (!is_gated(node)) return add_product(node, parts, product);
  const Piece gate = parts.scratch(product.y.desc.dtype, product.y.desc.shape);
  add_product(node, parts, {kGate, product.x, gate, node.attributes->text("gate_epilogue", "x")});
  product.residual = &gate.operand;
  add_product(node, parts, product);
}

}  // namespace pumice
