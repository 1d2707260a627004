#include "operators/conv_gemm/int8_gemm.h"

#include <algorithm>

#include "core/rounding.h"
#include "dispatch/kernel/coopmat_support.h"

namespace pumice {
namespace {

constexpr int64_t kLoadBytes = 16;  // bytes per load in the kernels

int64_t round_up_k(int64_t k) {
  return round_up(k, kLoadBytes);
}

// Whether elements of this dtype are converted to int8 by flipping the highest bit. Padding is zero after the conversion.
bool flips_sign(DType dtype) {
  return dtype == DType::uint8;
}

// Returns the number of `x_offset` units per 16 bytes as GLSL: an input is addressed in bytes, a scratch tensor in words.
std::string format_x_offset_unit(bool is_input) {
  return std::to_string(is_input ? kLoadBytes : kLoadBytes / 4) + "u";
}

// Returns the kernel that copies a matrix with strides `x_row` and `x_stride_k` into rows padded to 16 bytes.
std::shared_ptr<const KernelVariant> make_row_padding_kernel(const NodeContext& node, DType dtype, int64_t x_stride_k) {
  if (x_stride_k == 1) return make_pad_rows_kernel(node, dtype, flips_sign(dtype) ? "0x80808080u" : "0u");
  return node.kernel("transpose_int8.comp", DType::int32, {{"PAD", flips_sign(dtype) ? "0x80u" : "0u"}});
}

Step make_row_padding_step(const std::shared_ptr<const KernelVariant>& kernel, const Operand& x, const Operand& y, const MatrixRows& rows,
                           int64_t x_stride_k) {
  if (x_stride_k == 1) return make_pad_rows_step(kernel, DType::int8, x, y, rows);
  const int64_t words = round_up_k(rows.k) / 4;
  StepBuilder step(kernel);
  step.bind("x", x).bind("y", y).set("rows", rows.count).set("k_size", rows.k).set("words", words);
  step.set("x_row", rows.stride).set("x_stride_k", x_stride_k);
  step.set_threads(static_cast<uint64_t>(rows.count * words));
  return step.build();
}

std::shared_ptr<const KernelVariant> make_row_sums_kernel(const NodeContext& node, DType dtype, bool of_input) {
  return node.kernel("int8_row_sums.comp", DType::int32,
                     {{"FLIP", flips_sign(dtype) ? "0x80808080u" : "0u"}, {"X_UNIT", format_x_offset_unit(of_input)}});
}

StepBuilder make_row_sums_step(const std::shared_ptr<const KernelVariant>& kernel, const Operand& x, const Operand& y, int64_t rows,
                               int64_t k) {
  StepBuilder step(kernel);
  step.bind("x", x).bind("y", y).set("rows", rows).set("pad_rows", round_up_k(k) / kLoadBytes).set_workgroups(static_cast<uint64_t>(rows));
  return step;
}

// Workgroup tile, subgroup tile and K tile of gemm_int8.
struct Int8Tiling {
  int64_t rows, columns, sub_rows, sub_columns, k;

  int64_t subgroups() const { return rows / sub_rows * (columns / sub_columns); }
  uint64_t shared_bytes() const {  // K tiles of both operands, or staged results
    return static_cast<uint64_t>(std::max((rows + columns) * (k + kLoadBytes), subgroups() * 16 * (sub_columns * 4 + 16)));
  }
};

constexpr Int8Tiling kLargeInt8Tiling{128, 128, 64, 64, 128}, kMediumInt8Tiling{64, 64, 32, 32, 128},
    kSmallMInt8Tiling{16, 64, 16, 32, 128};
constexpr Int8Tiling kSmallestTiling{64, 64, 32, 32, 64};  // for devices with little shared memory

bool fits_device(const NodeContext& node, const Int8Tiling& tiling) {
  const auto subgroup = static_cast<int64_t>(node.context->info().matrix_subgroup_size());
  return tiling.shared_bytes() <= node.context->limit("maxComputeSharedMemorySize") &&
         tiling.subgroups() * subgroup <= node.max_invocations();
}

// Selects the largest tile with which the grid fills the device, else the tile for few rows or the medium tile (docs/tuning.md).
Int8Tiling select_int8_tiling(const NodeContext& node, int64_t rows, int64_t columns) {
  constexpr int64_t kBusyTiles = 100;
  const auto tiles_of = [&](const Int8Tiling& tiling) { return ceil_div(rows, tiling.rows) * ceil_div(columns, tiling.columns); };
  if (rows <= kSmallMInt8Tiling.rows && fits_device(node, kSmallMInt8Tiling)) return kSmallMInt8Tiling;
  const bool is_wide = tiles_of(kLargeInt8Tiling) >= kBusyTiles && rows > kMediumInt8Tiling.rows && columns > kMediumInt8Tiling.columns;
  for (const Int8Tiling& tiling : {kLargeInt8Tiling, kMediumInt8Tiling})
    if ((is_wide || tiling.rows < kLargeInt8Tiling.rows) && fits_device(node, tiling)) return tiling;
  return kSmallestTiling;
}

// Returns the size of the packed columns in bytes, padded so that the column sums behind them are aligned for any device.
int64_t count_packed_column_bytes(const TensorDesc& b) {
  constexpr int64_t kLargestBoundary = 256;
  return round_up(b.shape[1] * round_up_k(b.shape[0]), kLargestBoundary);
}

// Whether row sums are needed, because the columns have a zero point or their sign bit is flipped.
bool needs_row_sums(const Int8Params& params) {
  return params.w_zero || flips_sign(params.w);
}
bool needs_column_sums(const Int8Params& params) {
  return params.x_zero || flips_sign(params.x);
}

}  // namespace

bool supports_int8_coopmat(const NodeContext& node, const TensorDesc& b) {
  constexpr int64_t kMinK = 64, kMinColumns = 32;
  if (b.rank() != 2 || b.shape[0] < kMinK || b.shape[1] < kMinColumns) return false;
  const DeviceInfo& device = node.context->info();
  return device.feature("shaderInt8") && supports_coopmat(device, 32, DType::int8, DType::int32) && fits_device(node, kSmallestTiling) &&
         count_packed_column_bytes(b) + b.shape[1] * 4 <= max_binding_bytes(*node.context);
}

void pack_int8_columns(const NodeContext& node, const TensorDesc& b, PackedWeight& packed) {
  packed.desc = TensorDesc(DType::int32, {count_packed_column_bytes(b) / 4 + b.shape[1]});
  const auto to_columns = make_row_padding_kernel(node, b.dtype, b.strides[0]), to_sums = make_row_sums_kernel(node, b.dtype, false);
  packed.steps = [to_columns, to_sums, b](std::vector<Step>& steps, const Operand& source, const Operand& target) {
    const int64_t k = b.shape[0], columns = b.shape[1];
    Operand sums = target;
    sums.byte_offset += static_cast<uint64_t>(count_packed_column_bytes(b));
    steps.push_back(make_row_padding_step(to_columns, source, target, {columns, k, b.strides[1]}, b.strides[0]));
    steps.push_back(make_row_sums_step(to_sums, target, sums, columns, k).build());
  };
}

PackedInt8Rows pack_int8_rows(LowerContext& node, const TensorDesc& a, int64_t rows, const Int8Params& params) {
  const int64_t k = a.shape.back();
  PackedInt8Rows left{node.input_operand(0), {}, k % kLoadBytes != 0 || node.input_misalignment(0) != 0};
  if (left.copied) {
    left.rows = node.add_temporary(static_cast<uint64_t>(rows * round_up_k(k)));
    node.add(make_row_padding_step(make_row_padding_kernel(node, a.dtype, 1), node.input_operand(0), left.rows, {rows, k, k}, 1));
  }
  if (needs_row_sums(params)) {
    left.sums = node.add_temporary(static_cast<uint64_t>(rows) * 4);
    node.add(make_row_sums_step(make_row_sums_kernel(node, a.dtype, !left.copied), left.rows, left.sums, rows, k).build());
  }
  return left;
}

void add_int8_gemm(LowerContext& node, const PackedInt8Rows& left, const RowRange& range, const PackedInt8Columns& right,
                   const Int8Params& params, const Operand& y) {
  const int64_t rows = range.count, k = right.desc.shape[0], columns = right.desc.shape[1], pieces = round_up_k(k) / kLoadBytes;
  const Int8Tiling tiling = select_int8_tiling(node, rows, columns);
  Macros macros = make_int8_macros(params);
  macros.emplace_back("Y_VEC4", columns % 4 == 0 ? "1" : "0");
  macros.emplace_back("X_UNIT", format_x_offset_unit(!left.copied));
  macros.emplace_back("ADD_X_SUMS", needs_row_sums(params) ? "1" : "0");
  macros.emplace_back("ADD_W_SUMS", needs_column_sums(params) ? "1" : "0");
  const SpecValues spec = {{"INVOCATIONS", tiling.subgroups() * static_cast<int64_t>(node.context->info().matrix_subgroup_size())},
                           {"TILE_M", tiling.rows},
                           {"TILE_N", tiling.columns},
                           {"SUB_M", tiling.sub_rows},
                           {"SUB_N", tiling.sub_columns},
                           {"TILE_K", tiling.k},
                           {"NO_K_TAIL", pieces % (tiling.k / kLoadBytes) == 0 ? int64_t{1} : int64_t{0}}};
  StepBuilder step(node.kernel("gemm_int8.comp", DType::int32, macros, spec));
  step.bind("x", left.rows).bind("w", right.packed).bind("y", y).set("rows", rows).set("columns", columns).set("k_size", k);
  step.set("pad_rows", pieces).set("first_row", range.first);
  if (needs_row_sums(params)) step.bind("x_sums", left.sums);
  if (needs_column_sums(params)) {
    Operand sums = right.packed;
    sums.byte_offset += static_cast<uint64_t>(count_packed_column_bytes(right.desc));
    step.bind("w_sums", sums);
  }
  bind_zero_points(step, params);
  set_zero_points(step, params);
  step.set_workgroups(static_cast<uint64_t>(ceil_div(rows, tiling.rows)), static_cast<uint64_t>(ceil_div(columns, tiling.columns)));
  node.add(step.build());
}

}  // namespace pumice
