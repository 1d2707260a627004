// Products with a constant matrix of few bits, whose blocks along the depth have a scale each. It stays of few bits on the device.
#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/contraction/lowerings.h"
#include "operators/means/compose.h"
#include "operators/means/strided.h"
#include "operators/row/operator_table.h"

namespace pumice {
namespace {

constexpr int64_t kMostRows = 16, kMostRowsOnSoftware = 128;  // past which the matrix is made floats first, for all of them
constexpr int64_t kMostWordRows = 4;                          // the same where the matrix is read word by word

// How a kernel shares out the products: rows and columns of a workgroup, and what it was compiled for.
struct BlockTiling {
  std::string_view shader;
  int64_t rows, columns;
  SpecValues spec;
  Macros macros = {};
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
BlockTiling columns_tiling(const LowerContext& node, int64_t rows, int64_t columns, int64_t pieces) {
  constexpr int64_t kTeam = 32, kSubgroups = 4, kTileRows = 8, kManyColumns = 4096;
  const int64_t subgroup = node.subgroup(), each = std::min(rows, kTileRows), across = columns >= kManyColumns ? 4 : 2;
  const int64_t subgroups = subgroup > 0 ? std::clamp<int64_t>(node.most_invocations() / subgroup, 1, kSubgroups) : 1;
  const bool shared = subgroup > 0 && pieces >= subgroups * subgroup;
  const int64_t team = subgroup == 0 ? kTeam : shared ? subgroups * subgroup : subgroup, teams = shared ? 1 : subgroups;
  const auto number = [](int64_t value) { return std::to_string(value) + "u"; };
  return {"block_columns.comp",
          each,
          teams * across,
          {{"ROWS", each}},
          {{"TEAM", number(team)}, {"TEAMS", std::to_string(teams)}, {"COLUMNS", number(across)}, {"SUBGROUP", std::to_string(subgroup)}}};
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

// The macros by which the kernels of include/blocks.glsl know the matrix.
Macros block_macros(const LowerContext& node) {
  const TensorDesc& w = node.input(1);
  return {{"BITS", std::to_string(bits(w.dtype))},
          {"SIGNED", is_signed_integer(w.dtype) ? "1" : "0"},
          {"ZERO", has_points(node) ? "1" : "0"},
          {"POINT", std::to_string(node.attributes->integer("zero_point", 0)) + ".0"}};
}

// Binds the matrix, its scales and its zero points.
StepBuilder& set_matrix(LowerContext& node, StepBuilder& step) {
  const TensorDesc& w = node.input(1);
  const int64_t block = node.attributes->integer("block_size"), depth = w.shape[1];
  step.bind("w", node.in(1)).bind("scale", node.packed(2));
  if (has_points(node)) step.bind("zero", node.in(3));
  return step.set("depth", depth).set("columns", w.shape[0]).set("block", block).set("blocks", ceil_div(depth, block));
}

}  // namespace

// Inputs: a [.., depth], w [columns, depth], scale [columns, blocks], zero points [columns, blocks].
void shape_of_block_matmul(ShapeContext& node) {
  const TensorDesc &a = node.input(0), &w = node.input(1), &scale = node.input(2);
  const int64_t block = node.attributes().integer("block_size");
  if (w.rank() != 2 || block < 1 || a.shape.back() != w.shape[1])
    node.fail("expected [.., depth] and [columns, depth] in blocks; given " + to_string(a.shape) + " and " + to_string(w.shape));
  const Shape blocks{w.shape[0], ceil_div(w.shape[1], block)};
  const bool has_points = node.attributes().integer("has_points", 0) != 0;
  if (scale.shape != blocks || (has_points && (!node.has(3) || node.input(3).shape != blocks)))
    node.fail("expected scales and zero points " + to_string(blocks) + "; given " + to_string(scale.shape));
  Shape shape = a.shape;
  shape.back() = w.shape[0];
  node.output(0, a.dtype, shape);
}

bool pack_block_matmul(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input != 2) return false;
  pack_floats(node, input, 1, packed);
  return true;
}

void lower_block_matmul(LowerContext& node) {
  const TensorDesc &a = node.input(0), &w = node.input(1), &y = node.output(0);
  if (y.elements() == 0) return;
  Composition parts(node);
  const int64_t columns = w.shape[0], depth = w.shape[1], block = node.attributes->integer("block_size"), rows = y.elements() / columns;
  if (const auto tiling = block_tiling(node, parts.input(0).operand, rows, block)) {
    Macros macros = block_macros(node);
    macros.insert(macros.end(), tiling->macros.begin(), tiling->macros.end());
    macros.emplace_back("EPILOGUE(x)", node.epilogue());
    const Operand* residual = node.residual();
    if (residual) macros.emplace_back("RESIDUAL", "1");
    StepBuilder step(node.kernel(tiling->shader, a.dtype, macros, tiling->spec));
    step.bind("x", parts.input(0).operand).bind("y", parts.output(0).operand);
    if (residual) step.bind("residual", *residual);
    set_matrix(node, step).set("rows", rows);
    step.groups(static_cast<uint64_t>(ceil_div(columns, tiling->columns)), static_cast<uint64_t>(ceil_div(rows, tiling->rows)));
    return node.add(step.build());
  }
  // All of the matrix as floats first.
  const Piece floats = parts.scratch(a.dtype, {columns, depth});
  StepBuilder step(node.kernel("block_floats.comp", a.dtype, block_macros(node)));
  step.bind("y", floats.operand);
  set_matrix(node, step).set("elements", columns * depth);
  node.add(step.threads(static_cast<uint64_t>(ceil_div(columns * depth, 8))).build());
  Attributes transposed;
  transposed.set("transB", int64_t{1});
  const Piece x = parts.input(0).seen_as({rows, depth}), result = parts.output(0).seen_as({rows, columns});
  const Operand* residual = node.residual();
  if (!residual) return parts.add("Gemm", transposed, {x, floats}, result, true);
  const Piece made = parts.scratch(y.dtype, {rows, columns});
  parts.add("Gemm", transposed, {x, floats}, made);
  const Expression whole = node.expression->substitute({{"x", Expression::name("a0")}, {"residual", Expression::name("a1")}});
  parts.map(whole, {made, {result.desc, *residual}}, result);
  (void)node.epilogue();
}

}  // namespace pumice
