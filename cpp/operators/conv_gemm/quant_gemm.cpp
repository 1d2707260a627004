// GEMM with a constant block-quantised matrix, with a scale per block along K. The weights stay quantised on the device.
#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/strided_copy.h"
#include "operators/conv_gemm/lowerings.h"
#include "operators/table/operator_table.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

// Inputs of the operator. kResidualInput is between the scales and the zero points.
enum QuantGemmInput : size_t { kX, kW, kScale, kZero = kResidualInput + 1, kGateW, kGateScale, kGateZero, kGain };

bool is_gated(const LowerContext& node) {
  return node.has_input(kGateW);
}

bool has_zero_points(const NodeContext& node) {
  return node.attributes->integer("has_zero_points", 0) != 0;
}

// Chunk size along K in the layout of pack_quant_weights.comp, and number of columns per tile.
constexpr int64_t kChunkK = 128, kTileN = 16;

// Returns the number of scales per column and chunk.
int64_t count_scales_per_chunk(const NodeContext& node) {
  return std::max<int64_t>(kChunkK / node.attributes->integer("block_size"), 1);
}

// Whether the node's matrices are packed for gemm_quant_mma. This requires fp16 computation, and 4-bit or 8-bit integers with scales that
// are fp16 or close to fp16 values. Quantised values, scales and zero points are packed together when the program is loaded. If one of them
// is not constant, or if the input shapes are unknown, all keep the layout of the model file.
bool packs_fragments(const PackContext& node) {
  const auto is_given = [&](size_t input) { return input < node.inputs.size() && node.inputs[input]; };
  if (node.shapes.empty() || (has_zero_points(node) && !is_given(kZero))) return false;
  const bool rounds = node.attributes->integer("fp16_scales", 0) != 0;  // float32 scales close to fp16 values
  const auto has_fp16_scales = [&](size_t input) {
    if (!is_given(input)) return true;
    const DType dtype = node.input(input).dtype;
    return dtype == DType::float16 || (rounds && dtype == DType::float32);
  };
  if (!node.has_or_emulates_mma() || node.float_dtype != DType::float16 || !is_given(kW) || !is_given(kScale)) return false;
  const TensorDesc& w = node.input(kW);
  const int64_t block = node.attributes->integer("block_size"), k = w.shape[1];
  const uint64_t bytes = buffer_size(w.dtype, {round_up(w.shape[0], kTileN), round_up(k, kChunkK)});
  return (bits(w.dtype) == 4 || bits(w.dtype) == 8) && has_fp16_scales(kScale) && has_fp16_scales(kGateScale) && k > 0 && k % 32 == 0 &&
         block % 32 == 0 && (kChunkK % block == 0 || block % kChunkK == 0) &&
         static_cast<int64_t>(bytes) <= max_binding_bytes(*node.context);
}

bool is_packed_at_load(const LowerContext& node, size_t input) {
  return input < node.constant_packed.size() && node.constant_packed[input];
}

// Whether the quantised matrix is in fragment order. It is if it was packed, because only gemm_quant_mma packs.
bool is_in_fragment_order(const LowerContext& node) {
  return is_packed_at_load(node, kW);
}

// Returns an input of a node whose quantised matrix is in fragment order. Throws Error if this input is not in that order too, because the
// kernel would then read it in the wrong layout.
Operand get_fragment_operand(LowerContext& node, size_t input) {
  if (!is_packed_at_load(node, input))
    throw Error("node '" + std::string(node.node) + "': input " + std::to_string(input) + " is not packed as input 1 is");
  return node.input_operand(input);
}

constexpr int64_t kMaxRows = 16,
                  kMaxRowsOnCpu =
                      128;  // maximum M of the kernels that read the quantised matrix; for larger M the whole matrix is dequantised first
constexpr int64_t kMaxRowsByWord = 4;  // maximum M of the kernels that read the matrix word by word

// Tile and compile-time parameters of a block-quantised GEMM kernel.
struct QuantGemmTiling {
  std::string_view shader;
  int64_t rows, columns;
  SpecValues spec;
  Macros macros = {};
  bool has_gate = false, has_norm = false;  // the gate (or the RMSNormalization of x) is fused into the kernel
  std::string variant = {}, spilled = {};   // name of the variant, and of the one that it replaces because its kernel spills registers
};

// Makes the tiling of gemv_quant_cpu, for CPU drivers. Each lane loads as many words of a block as possible, up to kMaxUnroll elements.
QuantGemmTiling make_cpu_tiling(int64_t rows, int64_t block, int64_t per_word) {
  constexpr int64_t kMaxUnroll = 32, kTileRows = 8;
  int64_t unroll = 1;
  while (2 * unroll * per_word <= kMaxUnroll && block % (2 * unroll * per_word) == 0) unroll *= 2;
  const int64_t tile_rows = std::min(rows, kTileRows);
  return {"gemv_quant_cpu.comp", tile_rows, 16, {{"ROWS", tile_rows}, {"UNROLL", unroll}}};
}

// Makes the tiling of gemv_quant, for GPUs. A thread group reads four columns at once, or two if there are few columns (docs/tuning.md). It
// is the whole workgroup if K has enough 16-byte pieces or if the device has no subgroup operations; otherwise it is one subgroup. For a
// gated product, a thread group computes the same column of both matrices. If the kernel spills registers, it takes fewer rows at once, and
// reads the matrix again for the others.
QuantGemmTiling make_gemv_tiling(const LowerContext& node, int64_t rows, int64_t columns, int64_t pieces) {
  constexpr int64_t kGroupThreads = 32, kSubgroups = 4, kTileRows = 8, kLargeN = 4096;
  constexpr int64_t kMaxInvocations = 256;  // with 512, an invocation on an Adreno 740 has 96 registers, and all tiles spill
  const int64_t matrices = is_gated(node) ? 2 : 1;
  struct Tile {
    int64_t rows, across;
    std::string name() const { return "gemv_quant " + std::to_string(rows) + "x" + std::to_string(across); }
  };
  std::vector<Tile> tiles{{std::min(rows, kTileRows), columns * matrices >= kLargeN ? 4 : 2}};
  while (tiles.back().rows > 1) tiles.push_back({ceil_div(tiles.back().rows, 2), tiles.back().across});
  if (tiles.back().across > 2) tiles.push_back({1, 2});
  const Tile& tile = choose_unspilled(node.spilled, tiles, [](const Tile& candidate) { return candidate.name(); });
  const int64_t subgroup = node.subgroup_size(), tile_rows = tile.rows, across = tile.across;
  const int64_t subgroups =
      subgroup > 0 ? std::clamp<int64_t>(std::min(node.max_invocations(), kMaxInvocations) / subgroup, 1, kSubgroups) : 1;
  const bool shared = subgroup > 0 && pieces >= subgroups * subgroup;
  const int64_t group_threads = subgroup == 0 ? kGroupThreads
                                : shared      ? subgroups * subgroup
                                              : subgroup,
                thread_groups = shared ? 1 : subgroups;
  const auto number = [](int64_t value) { return std::to_string(value) + "u"; };
  return {"gemv_quant.comp",
          tile_rows,
          thread_groups * across / matrices,
          {{"ROWS", tile_rows}},
          {{"GROUP_THREADS", number(group_threads)},
           {"THREAD_GROUPS", std::to_string(thread_groups)},
           {"COLUMNS", number(across)},
           {"SUBGROUP", std::to_string(subgroup)}},
          true,
          true,
          tile.name(),
          &tile == &tiles.front() ? "" : tiles.front().name()};
}

// Makes the tiling of gemm_quant_mma, for devices with cooperative matrices (docs/tuning.md). K is split over so many subgroups that each
// multiprocessor runs several: at least four per workgroup, at most one per chunk, and half as many with a gate (two matrices). With fused
// normalisation, which every workgroup repeats, a workgroup has at most eight subgroups. It has two tiles, which are prefetched together,
// if there are many tiles per multiprocessor. NO_K_TAIL: a single row needs no bounds checks, because all subgroups have the same number of
// full chunks. REGISTER_STAGES: if each subgroup has one chunk, registers suffice for double buffering even with the maximum number of
// subgroups. SKIP_LAST_PREFETCH: with two tiles, nothing is prefetched past the end.
QuantGemmTiling make_mma_tiling(const LowerContext& node, int64_t rows, int64_t columns, int64_t k) {
  constexpr int64_t kLanes = 32, kSubgroupsPerSm = 16, kMinSubgroups = 4, kMaxSubgroups = 16, kMaxNormSubgroups = 8, kTilesPerSm = 48;
  constexpr int64_t kMaxVec8PerThread = 8;  // maximum number of vec8s of a row that an invocation keeps in registers while normalising
  const int64_t chunks = ceil_div(k, kChunkK), tiles = ceil_div(columns, kTileN), sets = is_gated(node) ? 2 : 1;
  const int64_t target_subgroups = std::max(ceil_div(node.num_multiprocessors() * kSubgroupsPerSm, tiles * sets), kMinSubgroups);
  const int64_t tiles_per_group = sets == 1 && tiles >= node.num_multiprocessors() * kTilesPerSm ? 2 : 1;
  const bool is_normed = node.has_input(kGain);
  const int64_t max_subgroups = std::min({is_normed ? kMaxNormSubgroups : kMaxSubgroups, node.max_invocations() / kLanes, chunks});
  int64_t subgroups = 1;
  while (subgroups * 2 <= max_subgroups && subgroups < target_subgroups) subgroups *= 2;
  const int64_t tile_m = std::min(rows, kMaxRows), staged = tile_m * (chunks * 16 + 1);
  const int64_t bytes_per_subgroup =
      tiles_per_group * sets * kTileN * (tile_m > 8 ? 17 : 9) * 4 + node.count_emulation_shared_bytes(kLanes);
  const int64_t limit = static_cast<int64_t>(node.context->limit("maxComputeSharedMemorySize"));
  while (subgroups > 1 && subgroups * bytes_per_subgroup > limit) subgroups /= 2;
  const int64_t vec8_per_thread = ceil_div(ceil_div(chunks, subgroups) * kChunkK, 8 * kLanes);
  const bool has_norm = vec8_per_thread <= kMaxVec8PerThread && staged * 16 + subgroups * (bytes_per_subgroup + tile_m * 8) <= limit;
  const bool is_whole = tile_m == 1 && k % kChunkK == 0 && chunks % subgroups == 0;
  SpecValues spec{{"ROWS", tile_m}, {"INVOCATIONS", subgroups * kLanes}, {"TILES", tiles_per_group}, {"NO_K_TAIL", is_whole}};
  if (tile_m == 1 && !is_normed && subgroups == kMaxSubgroups && chunks == subgroups) spec.emplace_back("REGISTER_STAGES", 2);
  if (tile_m == 1 && !is_normed && tiles_per_group == 2) spec.emplace_back("SKIP_LAST_PREFETCH", 1);
  if (is_normed && has_norm) spec.insert(spec.end(), {{"STAGED", staged}, {"STAGED_PER_THREAD", vec8_per_thread}});
  const Macros macros{{"SCALES", std::to_string(count_scales_per_chunk(node))}, {"EMULATED", node.emulates_mma() ? "1" : "0"}};
  return {"gemm_quant_mma.comp", tile_m, tiles_per_group * kTileN, spec, macros, true, has_norm};
}

// Returns the tile of the kernel that reads the quantised matrix directly; nullopt if no kernel can.
std::optional<QuantGemmTiling> select_quant_tiling(const LowerContext& node, const Operand& x, int64_t rows, int64_t block) {
  const TensorDesc& w = node.input(1);
  const int64_t columns = w.shape[0], k = w.shape[1], per_word = 32 / bits(w.dtype), piece = 4 * per_word;
  if (k <= 0 || k % per_word != 0 || block % per_word != 0) return {};
  if (is_in_fragment_order(node)) return rows <= kMaxRows ? std::optional(make_mma_tiling(node, rows, columns, k)) : std::nullopt;
  if (node.prefers_cpu_kernels()) return rows <= kMaxRowsOnCpu ? std::optional(make_cpu_tiling(rows, block, per_word)) : std::nullopt;
  const bool in_pieces = k % piece == 0 && block % piece == 0 && get_misalignment(node, x) == 0;
  if (rows <= kMaxRows && in_pieces) return make_gemv_tiling(node, rows, columns, k / piece);
  if (rows <= kMaxRowsByWord) return QuantGemmTiling{"gemv_quant_generic.comp", rows, 1, {{"ROWS", rows}}};
  return {};
}

// Input indices of one of the operator's quantised matrices.
struct QuantMatrixInputs {
  size_t w, scale, zero;
};
constexpr QuantMatrixInputs kMatrix{kW, kScale, kZero}, kGate{kGateW, kGateScale, kGateZero};

// Macros that describe the matrix to include/quant_weights.glsl and pack_quant_weights.
Macros make_quant_macros(const NodeContext& node, const TensorDesc& w) {
  return {{"BITS", std::to_string(bits(w.dtype))},
          {"SIGNED", is_signed_integer(w.dtype) ? "1" : "0"},
          {"ZERO", has_zero_points(node) ? "1" : "0"},
          {"POINT", std::to_string(node.attributes->integer("zero_point", 0)) + ".0"}};
}

// Returns the quantised matrix or the zero points in the layout of the selected kernel.
Operand get_quantized_operand(LowerContext& node, size_t input) {
  return is_in_fragment_order(node) ? get_fragment_operand(node, input) : node.input_operand(input);
}

// Returns the scales of a matrix in the layout of the selected kernel.
Operand get_scale_operand(LowerContext& node, size_t input) {
  return is_in_fragment_order(node) ? get_fragment_operand(node, input) : node.get_packed_input(input);
}

// Binds a matrix with its scales and zero points.
StepBuilder& bind_quant_matrix(LowerContext& node, StepBuilder& step, const QuantMatrixInputs& matrix) {
  const TensorDesc& w = node.input(matrix.w);
  const int64_t block = node.attributes->integer("block_size"), k = w.shape[1];
  step.bind("w", get_quantized_operand(node, matrix.w)).bind("scale", get_scale_operand(node, matrix.scale));
  if (has_zero_points(node)) step.bind("zero", get_quantized_operand(node, matrix.zero));
  return step.set("k_size", k).set("columns", w.shape[0]).set("block", block).set("blocks", ceil_div(k, block));
}

// A GEMM with a quantised matrix: its operands and epilogue.
struct QuantGemm {
  QuantMatrixInputs matrix;
  TensorOperand x, y;
  std::string epilogue;
  const Operand* residual = nullptr;
  bool is_gated = false, is_normed = false;  // the gate, or the normalisation of x, is fused into the kernel
  std::shared_ptr<const StepChoice> choice = nullptr;
};

void add_quant_kernel(LowerContext& node, const QuantGemmTiling& tiling, const QuantGemm& gemm) {
  const bool gated = gemm.is_gated, normed = gemm.is_normed;
  Macros macros = make_quant_macros(node, node.input(kW));
  macros.insert(macros.end(), tiling.macros.begin(), tiling.macros.end());
  macros.emplace_back("EPILOGUE(x)", gemm.epilogue);
  if (gemm.residual || gated) macros.emplace_back("RESIDUAL", "1");
  if (gated) macros.insert(macros.end(), {{"GATED", "1"}, {"GATE(x)", node.attributes->text("gate_epilogue", "x")}});
  if (normed) macros.emplace_back("NORMED", "1");
  if (is_in_fragment_order(node) && tiling.rows == 1 && !normed) macros.emplace_back("X_IN_REGISTERS", "1");
  StepBuilder step(node.kernel(tiling.shader, gemm.x.desc.dtype, macros, tiling.spec));
  step.bind("x", gemm.x.operand).bind("y", gemm.y.operand);
  if (gemm.residual) step.bind("residual", *gemm.residual);
  if (gated) {
    step.bind("gate_w", get_quantized_operand(node, kGateW)).bind("gate_scale", get_scale_operand(node, kGateScale));
    if (has_zero_points(node)) step.bind("gate_zero", get_quantized_operand(node, kGateZero));
  }
  if (normed) step.bind("gain", node.get_packed_input(kGain)).set("epsilon", node.attributes->real("epsilon", 0));
  const int64_t columns = node.input(kW).shape[0], rows = gemm.y.desc.elements() / columns;
  bind_quant_matrix(node, step, gemm.matrix).set("rows", rows);
  step.set_workgroups(static_cast<uint64_t>(ceil_div(columns, tiling.columns)), static_cast<uint64_t>(ceil_div(rows, tiling.rows)));
  if (!tiling.variant.empty()) step.set_variant(tiling.variant, tiling.spilled);
  Step built = step.build();
  built.choice = gemm.choice;
  node.add(std::move(built));
}

constexpr int64_t kDequantColumns = 8;  // number of columns per invocation of dequantize_weights when it writes [K, N]

// Whether the float GEMM can read the dequantised matrix as [K, N] without packing. (Packing [N, K] took half of the time of a long
// prefill.)
bool gemm_reads_unpacked(const NodeContext& node, int64_t columns) {
  return !node.prefers_cpu_kernels() && columns % kDequantColumns == 0;
}

// Returns the dequantised matrix: [K, N] if the GEMM reads that directly, else [N, K].
TensorOperand dequantize_matrix(LowerContext& node, CompositeLowering& composition, const QuantMatrixInputs& matrix, DType dtype) {
  constexpr int64_t kStepsK = 32;  // K elements per four invocations that write [K, N] from a matrix that is not in fragment order
  const int64_t columns = node.input(kW).shape[0], k = node.input(kW).shape[1];
  const bool fragments = is_in_fragment_order(node), transposed = gemm_reads_unpacked(node, columns);
  const TensorOperand floats = composition.allocate_scratch(dtype, transposed ? Shape{k, columns} : Shape{columns, k});
  Macros macros = make_quant_macros(node, node.input(kW));
  if (fragments) macros.insert(macros.end(), {{"FRAGMENTS", "1"}, {"SCALES", std::to_string(count_scales_per_chunk(node))}});
  if (fragments && transposed) macros.emplace_back("W_UVEC4", "1");
  if (transposed) macros.emplace_back("TRANSPOSED", "1");
  StepBuilder step(node.kernel("dequantize_weights.comp", dtype, macros));
  step.bind("y", floats.operand);
  bind_quant_matrix(node, step, matrix).set("elements", columns * k);
  const int64_t k_tiles = ceil_div(k, fragments ? kChunkK : kStepsK);
  node.add(
      step.set_threads(static_cast<uint64_t>(transposed ? columns / kDequantColumns * k_tiles * 4 : ceil_div(columns * k, 8))).build());
  return floats;
}

// Dequantises the whole matrix, then runs a float GEMM.
void add_dequantized_gemm(LowerContext& node, CompositeLowering& composition, const QuantGemm& gemm) {
  const int64_t columns = node.input(kW).shape[0], k = node.input(kW).shape[1], rows = gemm.y.desc.elements() / columns;
  const TensorOperand floats = dequantize_matrix(node, composition, gemm.matrix, gemm.x.desc.dtype);
  Attributes attributes;
  attributes.set("transB", int64_t{!gemm_reads_unpacked(node, columns)});
  const TensorOperand x = gemm.x.reshaped({rows, k}), result = gemm.y.reshaped({rows, columns});
  if (!gemm.residual) return composition.add_operator("Gemm", attributes, {x, floats}, result, gemm.epilogue);
  const TensorOperand unfused = composition.allocate_scratch(gemm.y.desc.dtype, {rows, columns});
  composition.add_operator("Gemm", attributes, {x, floats}, unfused);
  const Expression epilogue = node.expression->substitute({{"x", Expression::name("a0")}, {"residual", Expression::name("a1")}});
  composition.add_elementwise(epilogue, {unfused, {result.desc, *gemm.residual}}, result);
}

// Returns x for gemm_quant_mma. Copies x if it does not start at a 16-byte boundary.
TensorOperand align_to_16_bytes(LowerContext& node, const TensorOperand& x) {
  if (get_misalignment(node, x.operand) == 0) return x;
  TensorOperand copy = x;
  copy.operand = node.add_temporary(x.desc.bytes());
  add_strided_copy(node, x.desc.dtype, {x.desc.shape, {x.desc.strides, x.desc.strides}}, {x.operand}, {copy.operand});
  return copy;
}

void add_quant_gemm(LowerContext& node, CompositeLowering& composition, const QuantGemm& gemm,
                    const std::optional<QuantGemmTiling>& tiling) {
  if (!tiling) return add_dequantized_gemm(node, composition, gemm);
  if (!is_in_fragment_order(node)) return add_quant_kernel(node, *tiling, gemm);
  QuantGemm aligned = gemm;
  aligned.x = align_to_16_bytes(node, gemm.x);
  add_quant_kernel(node, *tiling, aligned);
}

// Returns the rows to multiply: x, normalised by RMSNormalization if the node has a gain.
TensorOperand apply_rms_norm(LowerContext& node, CompositeLowering& composition) {
  const TensorOperand x = composition.input(kX);
  if (!node.has_input(kGain)) return x;
  Attributes attributes;
  attributes.set("epsilon", round_to_float32(node.attributes->real("epsilon", 0)));
  const TensorOperand normalized = composition.allocate_scratch(x.desc.dtype, x.desc.shape);
  const TensorOperand gain{TensorDesc(DType::float32, node.input(kGain).shape), node.get_packed_input(kGain), true};
  composition.add_operator("RMSNormalization", attributes, {x, gain}, normalized);
  return normalized;
}

// The RMSNormalization is fused into the GEMM kernel or runs before it. With cooperative matrices, a separate kernel is faster for more
// than kMaxFusedNormRows rows, because every workgroup of a fused kernel normalises all rows. A measured variant overrides this
// (docs/tuning.md).
constexpr std::string_view kFusedNorm = "normalised inside", kSeparateNorm = "normalised before";
constexpr int64_t kMaxFusedNormRows = 1;

void choose_norm_fusion(const LowerContext& node, int64_t rows, QuantGemm& gemm) {
  const std::string_view default_choice = is_in_fragment_order(node) && rows > kMaxFusedNormRows ? kSeparateNorm : kFusedNorm;
  gemm.choice = find_tuned_choice(node.measured, "quantized GEMM of " + std::to_string(rows) + " normalised rows", default_choice,
                                  std::array<std::string_view, 2>{kFusedNorm, kSeparateNorm});
  gemm.is_normed = (gemm.choice ? gemm.choice->selected : default_choice) == kFusedNorm;
}

}  // namespace

// Inputs: a [.., K]; w [N, K], its scales [N, blocks] and zero points [N, blocks]; the same three for the matrix of the gate; the gain [K]
// of the normalisation of a.
void infer_block_quant_matmul_shape(ShapeContext& node) {
  const TensorDesc &a = node.input(kX), &w = node.input(kW);
  const int64_t block = node.attributes().integer("block_size");
  if (w.rank() != 2 || block < 1 || a.shape.back() != w.shape[1])
    node.fail("expected [.., k_size] and [columns, k_size] in blocks; given " + to_string(a.shape) + " and " + to_string(w.shape));
  const Shape blocks{w.shape[0], ceil_div(w.shape[1], block)};
  const auto check = [&](size_t input, const Shape& expected, const char* label) {
    if (node.has(input) && node.input(input).shape != expected)
      node.fail("expected " + std::string(label) + " " + to_string(expected) + "; given " + to_string(node.input(input).shape));
  };
  for (const size_t input : {kScale, kZero, kGateScale, kGateZero}) check(input, blocks, "scales and zero points");
  check(kGateW, w.shape, "a gate's matrix");
  check_vector(node, kGain, w.shape[1], "gain");
  Shape shape = a.shape;
  shape.back() = w.shape[0];
  node.output(0, a.dtype, shape);
}

bool pack_block_quant_matmul(const PackContext& node, size_t input, PackedWeight& packed) {
  const bool is_matrix = input == kW || input == kGateW, is_zero_points = input == kZero || input == kGateZero;
  const bool is_scale = input == kScale || input == kGateScale;
  if (!is_matrix && !is_zero_points && !is_scale && input != kGain) return false;
  if (input == kGain || !packs_fragments(node)) {
    if (is_matrix || is_zero_points) return false;
    pack_as_float32(node, input, 1, packed);
    return true;
  }
  const TensorDesc& w = node.input(kW);
  const int64_t columns = w.shape[0], k = w.shape[1], block = node.attributes->integer("block_size");
  const int64_t lines = round_up(columns, kTileN), chunks = ceil_div(k, kChunkK), scales = count_scales_per_chunk(node);
  packed.desc = is_matrix ? TensorDesc(w.dtype, {lines, chunks * kChunkK}) : TensorDesc(DType::float16, {lines, chunks * scales});
  Macros macros = make_quant_macros(node, w);
  macros.insert(macros.end(),
                {{"SCALES", std::to_string(scales)}, {"SCALES_OR_ZEROS", is_matrix ? "0" : "1"}, {"INTEGERS", is_zero_points ? "1" : "0"}});
  if (is_scale && node.input(input).dtype == DType::float32) macros.emplace_back("SOURCE_FLOAT", "1");
  const int64_t words = static_cast<int64_t>(packed.desc.bytes()) / 4;
  packed.steps = make_elementwise_packing(node.kernel("pack_quant_weights.comp", DType::float16, macros), words, [=](StepBuilder& step) {
    step.set("words", words).set("k_size", k).set("columns", columns).set("block", block).set("blocks", ceil_div(k, block));
  });
  return true;
}

void lower_block_quant_matmul(LowerContext& node) {
  if (node.output(0).elements() == 0) return;
  CompositeLowering composition(node);
  QuantGemm gemm{kMatrix, composition.input(kX), composition.output(0), node.epilogue(), node.residual()};
  const int64_t rows = gemm.y.desc.elements() / node.input(kW).shape[0], block = node.attributes->integer("block_size");
  auto tiling = select_quant_tiling(node, gemm.x.operand, rows, block);
  if (node.has_input(kGain) && tiling && tiling->has_norm) choose_norm_fusion(node, rows, gemm);
  if (!gemm.is_normed) {
    gemm.x = apply_rms_norm(node, composition);
    tiling = select_quant_tiling(node, gemm.x.operand, rows, block);
  }
  gemm.is_gated = is_gated(node) && tiling && tiling->has_gate;
  if (!is_gated(node) || gemm.is_gated) return add_quant_gemm(node, composition, gemm, tiling);
  const TensorOperand gate = composition.allocate_scratch(gemm.y.desc.dtype, gemm.y.desc.shape);
  add_quant_gemm(node, composition, {kGate, gemm.x, gate, node.attributes->text("gate_epilogue", "x")}, tiling);
  gemm.residual = &gate.operand;
  add_quant_gemm(node, composition, gemm, tiling);
}

}  // namespace pumice
