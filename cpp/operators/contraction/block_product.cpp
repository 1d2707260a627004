// Products with a constant matrix of few bits, whose blocks along the depth have a scale each. It stays of few bits on the device.
#include <optional>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/contraction/lowerings.h"
#include "operators/means/compose.h"
#include "operators/row/operator_table.h"

namespace pumice {
namespace {

constexpr int64_t kMostRows = 4, kMostRowsOnSoftware = 128;  // past which the matrix is made floats first, for all of them

// How a kernel shares out the products: rows and columns of a workgroup, and what it is told.
struct BlockTiling {
  std::string_view shader;
  int64_t rows, columns;
  SpecValues spec;
  Macros macros;
};

// What the choice of a kernel depends on.
struct BlockProduct {
  int64_t rows, depth, block, bits;

  int64_t in_word() const { return 32 / bits; }
};

// The kernel for devices with subgroups, which reads 16 bytes at once of the matrix and eights of x; none where these do not lie so.
std::optional<BlockTiling> columns_tiling(const LowerContext& node, const BlockProduct& product) {
  constexpr int64_t kColumns = 4, kSplit = 4;
  const int64_t subgroup = node.subgroup(), invocations = kSplit * subgroup, chunk = 4 * product.in_word();
  if (subgroup == 0 || invocations > node.most_invocations() || product.depth % chunk != 0 || product.block % chunk != 0) return {};
  if (node.input_phase(0) != 0 || node.input_phase(1) != 0) return {};  // they begin where 16 bytes do
  const int64_t ahead = product.rows == 1 && product.depth / chunk > invocations ? 2 : 1;
  return BlockTiling{"block_columns.comp",
                     product.rows,
                     kColumns,
                     {{"ROWS", product.rows}, {"INVOCATIONS", invocations}, {"SPLIT", kSplit}, {"AHEAD", ahead}},
                     {{"SUBGROUP", std::to_string(subgroup) + "u"}}};
}

// CPU drivers take block_lanes, whose lanes read as many words at once as a block has, up to kMostAhead elements.
BlockTiling block_tiling(const LowerContext& node, const BlockProduct& product) {
  constexpr int64_t kMostAhead = 32, kTileRows = 8;
  if (!node.prefers_lanes())
    return columns_tiling(node, product).value_or(BlockTiling{"block_rows.comp", product.rows, 1, {{"ROWS", product.rows}}, {}});
  int64_t ahead = 1;
  while (2 * ahead * product.in_word() <= kMostAhead && product.block % (2 * ahead * product.in_word()) == 0) ahead *= 2;
  const int64_t each = std::min(product.rows, kTileRows);
  return {"block_lanes.comp", each, 16, {{"ROWS", each}, {"AHEAD", ahead}}, {}};
}

}  // namespace

// Inputs: a [.., depth], w [columns, depth], scale [columns, blocks], zero points [columns, blocks].
void shape_of_block_matmul(ShapeContext& node) {
  const TensorDesc &a = node.input(0), &w = node.input(1), &scale = node.input(2);
  const int64_t block = node.attributes().integer("block_size");
  if (w.rank() != 2 || block < 1 || a.shape.back() != w.shape[1])
    node.fail("expected [.., depth] and [columns, depth] in blocks; given " + to_string(a.shape) + " and " + to_string(w.shape));
  const Shape blocks{w.shape[0], ceil_div(w.shape[1], block)};
  if (scale.shape != blocks || (node.has(3) && node.input(3).shape != blocks))
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
  const BlockProduct product{rows, depth, block, static_cast<int64_t>(bits(w.dtype))};
  const int64_t in_word = product.in_word();
  const Operand scale = node.packed(2);
  if (rows <= (node.prefers_lanes() ? kMostRowsOnSoftware : kMostRows) && depth % in_word == 0 && block % in_word == 0 && depth > 0) {
    BlockTiling tiling = block_tiling(node, product);
    Macros macros = std::move(tiling.macros);
    macros.insert(macros.end(), {{"BITS", std::to_string(bits(w.dtype))},
                                 {"SIGNED", is_signed_integer(w.dtype) ? "1" : "0"},
                                 {"ZERO", node.has_input(3) ? "1" : "0"},
                                 {"EPILOGUE(x)", node.epilogue()}});
    StepBuilder step(node.kernel(tiling.shader, a.dtype, macros, tiling.spec));
    step.bind("x", parts.input(0).operand).bind("w", node.in(1)).bind("scale", scale).bind("y", parts.output(0).operand);
    if (node.has_input(3)) step.bind("zero", node.in(3));
    step.set("rows", rows).set("depth", depth).set("columns", columns).set("block", block).set("blocks", ceil_div(depth, block));
    step.groups(static_cast<uint64_t>(ceil_div(columns, tiling.columns)), static_cast<uint64_t>(ceil_div(rows, tiling.rows)));
    return node.add(step.build());
  }
  const Piece floats = parts.scratch(a.dtype, {columns, depth});
  std::vector<Piece> stored{parts.input(1), {TensorDesc(DType::float32, node.input(2).shape), scale}};
  if (node.has_input(3)) stored.push_back(parts.input(3));
  Attributes blocks, transposed;
  blocks.set("axis", int64_t{1});
  blocks.set("block_size", block);
  transposed.set("transB", int64_t{1});
  parts.add("DequantizeLinear", blocks, stored, floats);
  parts.add("Gemm", transposed, {parts.input(0).seen_as({rows, depth}), floats}, parts.output(0).seen_as({rows, columns}), true);
}

}  // namespace pumice
