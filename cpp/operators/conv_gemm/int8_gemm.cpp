#include "operators/conv_gemm/int8_gemm.h"

#include <algorithm>

#include "core/rounding.h"
#include "dispatch/kernel/coopmat_support.h"

namespace pumice {
namespace {

constexpr int64_t kPiece = 16;  // bytes per load in the kernels

int64_t padded(int64_t depth) {
  return round_up(depth, kPiece);
}

// Whether unsigned bytes are converted to signed by flipping the highest bit. Padding is zero after the conversion.
bool flips(DType dtype) {
  return dtype == DType::uint8;
}

// Units of `x_offset` per 16-byte piece: bytes for an input, words for a scratch tensor.
std::string unit_of_x(bool is_input) {
  return std::to_string(is_input ? kPiece : kPiece / 4) + "u";
}

// Returns the kernel that copies a matrix with strides `x_row` and `x_depth` into rows padded to 16 bytes.
std::shared_ptr<const KernelVariant> rows_kernel(const NodeContext& node, DType dtype, int64_t x_depth) {
  if (x_depth == 1) return row_pieces_kernel(node, dtype, flips(dtype) ? "0x80808080u" : "0u");
  return node.kernel("transpose_int8.comp", DType::int32, {{"PAD", flips(dtype) ? "0x80u" : "0u"}});
}

Step rows_step(const std::shared_ptr<const KernelVariant>& kernel, const Operand& x, const Operand& y, const MatrixRows& rows,
               int64_t x_depth) {
  if (x_depth == 1) return row_pieces_step(kernel, DType::int8, x, y, rows);
  const int64_t words = padded(rows.depth) / 4;
  StepBuilder step(kernel);
  step.bind("x", x).bind("y", y).set("rows", rows.count).set("depth", rows.depth).set("words", words);
  step.set("x_row", rows.stride).set("x_depth", x_depth);
  step.threads(static_cast<uint64_t>(rows.count * words));
  return step.build();
}

std::shared_ptr<const KernelVariant> sums_kernel(const NodeContext& node, DType dtype, bool of_input) {
  return node.kernel("int8_row_sums.comp", DType::int32, {{"FLIP", flips(dtype) ? "0x80808080u" : "0u"}, {"X_UNIT", unit_of_x(of_input)}});
}

StepBuilder sums_step(const std::shared_ptr<const KernelVariant>& kernel, const Operand& x, const Operand& y, int64_t rows, int64_t depth) {
  StepBuilder step(kernel);
  step.bind("x", x).bind("y", y).set("rows", rows).set("pad_rows", padded(depth) / kPiece).groups(static_cast<uint64_t>(rows));
  return step;
}

// Workgroup tile, subgroup tile and K tile of gemm_int8.
struct IntegerTiling {
  int64_t rows, columns, sub_rows, sub_columns, depth;

  int64_t subgroups() const { return rows / sub_rows * (columns / sub_columns); }
  uint64_t shared_bytes() const {  // K tiles of both operands, or staged results
    return static_cast<uint64_t>(std::max((rows + columns) * (depth + kPiece), subgroups() * 16 * (sub_columns * 4 + 16)));
  }
};

constexpr IntegerTiling kWideIntegers{128, 128, 64, 64, 128}, kMiddleIntegers{64, 64, 32, 32, 128}, kFewIntegers{16, 64, 16, 32, 128};
constexpr IntegerTiling kLeast{64, 64, 32, 32, 64};  // for devices with little shared memory

bool fits(const NodeContext& node, const IntegerTiling& tiling) {
  const auto subgroup = static_cast<int64_t>(node.context->limit("subgroupSize"));
  return tiling.shared_bytes() <= node.context->limit("maxComputeSharedMemorySize") &&
         tiling.subgroups() * subgroup <= node.most_invocations();
}

// Chooses the largest tile that occupies the device, else the one for few rows or the medium one (docs/tuning.md).
IntegerTiling tiling_of(const NodeContext& node, int64_t rows, int64_t columns) {
  constexpr int64_t kBusyTiles = 100;
  const auto tiles_of = [&](const IntegerTiling& tiling) { return ceil_div(rows, tiling.rows) * ceil_div(columns, tiling.columns); };
  if (rows <= kFewIntegers.rows && fits(node, kFewIntegers)) return kFewIntegers;
  const bool is_wide = tiles_of(kWideIntegers) >= kBusyTiles && rows > kMiddleIntegers.rows && columns > kMiddleIntegers.columns;
  for (const IntegerTiling& tiling : {kWideIntegers, kMiddleIntegers})
    if ((is_wide || tiling.rows < kWideIntegers.rows) && fits(node, tiling)) return tiling;
  return kLeast;
}

// Returns the bytes of the packed columns, padded so that the sums start at a boundary. No device requires a larger alignment.
int64_t columns_bytes(const TensorDesc& b) {
  constexpr int64_t kLargestBoundary = 256;
  return round_up(b.shape[1] * padded(b.shape[0]), kLargestBoundary);
}

// Whether row sums are needed: they are multiplied by the other side's zero point or sign flip.
bool needs_row_sums(const IntegerTerms& terms) {
  return terms.w_zero || flips(terms.w);
}
bool needs_column_sums(const IntegerTerms& terms) {
  return terms.x_zero || flips(terms.x);
}

}  // namespace

bool has_integer_matrices(const NodeContext& node, const TensorDesc& b) {
  constexpr int64_t kLeastDepth = 64, kLeastColumns = 32;
  if (b.rank() != 2 || b.shape[0] < kLeastDepth || b.shape[1] < kLeastColumns) return false;
  const DeviceInfo& device = node.context->info();
  return device.feature("shaderInt8") && has_matrix_units(device, 32, DType::int8, DType::int32) && fits(node, kLeast) &&
         columns_bytes(b) + b.shape[1] * 4 <= largest_range(*node.context);
}

void pack_integer_columns(const NodeContext& node, const TensorDesc& b, PackedWeight& packed) {
  packed.desc = TensorDesc(DType::int32, {columns_bytes(b) / 4 + b.shape[1]});
  const auto to_columns = rows_kernel(node, b.dtype, b.strides[0]), to_sums = sums_kernel(node, b.dtype, false);
  packed.steps = [to_columns, to_sums, b](std::vector<Step>& steps, const Operand& source, const Operand& target) {
    const int64_t depth = b.shape[0], columns = b.shape[1];
    Operand sums = target;
    sums.byte_offset += static_cast<uint64_t>(columns_bytes(b));
    steps.push_back(rows_step(to_columns, source, target, {columns, depth, b.strides[1]}, b.strides[0]));
    steps.push_back(sums_step(to_sums, target, sums, columns, depth).build());
  };
}

IntegerRows transpose_int8(LowerContext& node, const TensorDesc& a, int64_t rows, const IntegerTerms& terms) {
  const int64_t depth = a.shape.back();
  IntegerRows left{node.in(0), {}, depth % kPiece != 0 || node.input_phase(0) != 0};
  if (left.copied) {
    left.rows = node.temporary(static_cast<uint64_t>(rows * padded(depth)));
    node.add(rows_step(rows_kernel(node, a.dtype, 1), node.in(0), left.rows, {rows, depth, depth}, 1));
  }
  if (needs_row_sums(terms)) {
    left.sums = node.temporary(static_cast<uint64_t>(rows) * 4);
    node.add(sums_step(sums_kernel(node, a.dtype, !left.copied), left.rows, left.sums, rows, depth).build());
  }
  return left;
}

void add_integer_product(LowerContext& node, const IntegerRows& left, const RowRange& range, const IntegerColumns& right,
                         const IntegerTerms& terms, const Operand& y) {
  const int64_t rows = range.count, depth = right.desc.shape[0], columns = right.desc.shape[1], pieces = padded(depth) / kPiece;
  const IntegerTiling tiling = tiling_of(node, rows, columns);
  Macros macros = integer_macros(terms);
  macros.emplace_back("Y_VEC4", columns % 4 == 0 ? "1" : "0");
  macros.emplace_back("X_UNIT", unit_of_x(!left.copied));
  macros.emplace_back("ADD_X_SUMS", needs_row_sums(terms) ? "1" : "0");
  macros.emplace_back("ADD_W_SUMS", needs_column_sums(terms) ? "1" : "0");
  const SpecValues spec = {{"INVOCATIONS", tiling.subgroups() * static_cast<int64_t>(node.context->info().limit("subgroupSize"))},
                           {"TILE_R", tiling.rows},
                           {"TILE_C", tiling.columns},
                           {"SUB_R", tiling.sub_rows},
                           {"SUB_C", tiling.sub_columns},
                           {"DEPTH", tiling.depth},
                           {"WHOLE", pieces % (tiling.depth / kPiece) == 0 ? int64_t{1} : int64_t{0}}};
  StepBuilder step(node.kernel("gemm_int8.comp", DType::int32, macros, spec));
  step.bind("x", left.rows).bind("w", right.packed).bind("y", y).set("rows", rows).set("columns", columns).set("depth", depth);
  step.set("pad_rows", pieces).set("first_row", range.first);
  if (needs_row_sums(terms)) step.bind("x_sums", left.sums);
  if (needs_column_sums(terms)) {
    Operand sums = right.packed;
    sums.byte_offset += static_cast<uint64_t>(columns_bytes(right.desc));
    step.bind("w_sums", sums);
  }
  bind_zero_points(step, terms);
  set_zero_points(step, terms);
  step.groups(static_cast<uint64_t>(ceil_div(rows, tiling.rows)), static_cast<uint64_t>(ceil_div(columns, tiling.columns)));
  node.add(step.build());
}

}  // namespace pumice
