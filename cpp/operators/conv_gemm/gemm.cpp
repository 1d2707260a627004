// Lowers Gemm and MatMul.
#include <algorithm>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/common/strided_copy.h"
#include "operators/conv_gemm/conv_gemm_dispatch.h"
#include "operators/conv_gemm/conv_gemm_plan.h"
#include "operators/conv_gemm/conv_gemm_tiling.h"
#include "operators/conv_gemm/generic_gemm.h"
#include "operators/conv_gemm/int8_gemm.h"
#include "operators/conv_gemm/lowerings.h"
#include "operators/conv_gemm/requantize.h"
#include "operators/table/operator_table.h"

namespace pumice {

// Views B [.., K, N] (or [.., N, K] if `transposed`) as weights of a 1x1 convolution, with the batch as groups.
static WeightView view_matrix_weights(const TensorDesc& b, bool transposed) {
  const size_t rank = b.shape.size();
  const int64_t k = b.shape[rank - (transposed ? 1 : 2)], n = b.shape[rank - (transposed ? 2 : 1)];
  int64_t batch = 1;
  for (size_t i = 0; i + 2 < rank; ++i) batch *= b.shape[i];
  return {batch, n, k, 1, k * n, transposed ? k : 1, transposed ? 1 : n, 1};
}

// Whether C of Gemm has one value per column. It is then packed as float32; any other C is added as a matrix.
static bool is_row_bias(const TensorDesc& c, int64_t columns) {
  return c.rank() > 0 && c.shape.back() == columns && c.elements() == columns;
}

// Whether B already has the packed layout: rows padded to multiples of 8.
static bool is_already_packed(const NodeContext& node, const TensorDesc& b, const WeightView& weights, double scale) {
  return !node.prefers_cpu_kernels() && scale == 1 && b.dtype == node.float_dtype && b.is_packed() && weights.stride_out == 1 &&
         weights.channels_out % 8 == 0 && get_channels_per_block(node, weights, node.float_dtype) >= weights.channels_out;
}

// Returns M, the number of rows of input 0. Returns nullopt if it is not known at compile time or if input 0 is transposed.
static std::optional<int64_t> find_known_m(const NodeContext& node) {
  if (node.shapes.empty() || !node.shapes[0] || node.shapes[0]->size() < 2 || node.attributes->integer("transA", 0) != 0) return {};
  return element_count({node.shapes[0]->begin(), node.shapes[0]->end() - 1});
}

// Returns the orders in which a constant B can be packed, preferred first. Fragments are preferred if gemm_mma is fastest for this size,
// split_fp16 if an fp32 GEMM can use it, and column-major for other GEMMs with few rows.
static std::vector<WeightOrder> list_weight_orders(const NodeContext& node, const TensorDesc& b, const WeightView& weights) {
  const std::optional<int64_t> rows = find_known_m(node);
  if (!rows || b.rank() != 2 || !b.is_packed()) return {WeightOrder::blocks};
  if (can_split_fp16(node, *rows, weights.channels_out, weights.channels_in)) {
    const bool prefers = prefers_split_fp16(node, *rows, weights.channels_out, weights.channels_in);
    return prefers ? std::vector{WeightOrder::split_fp16, WeightOrder::blocks} : std::vector{WeightOrder::blocks, WeightOrder::split_fp16};
  }
  const bool has_columns =
      *rows <= kMaxColMajorRows && supports_gemv_col_major(node, weights) && weights.stride_out == 1 && node.shapes[0]->size() == 2;
  // With few columns, a kernel with one column per subgroup occupies more of the device than one with a tile per workgroup
  // (docs/tuning.md).
  constexpr int64_t kMinColumnsPerSm = 16;
  const bool has_few_columns = has_columns && weights.channels_out < kMinColumnsPerSm * node.num_multiprocessors();
  const bool has_fragments = select_mma_tiling(node, *rows, weights.channels_out, weights.channels_in).has_value();
  // Emulated cooperative matrices are only for tests, and tests request a tile explicitly.
  const bool prefers_fragments = has_fragments && node.has_mma() && !has_few_columns;
  std::vector<WeightOrder> orders;
  if (prefers_fragments) orders.push_back(WeightOrder::fragments);
  if (has_columns) orders.push_back(WeightOrder::col_major);
  orders.push_back(WeightOrder::blocks);
  if (has_fragments && !prefers_fragments) orders.push_back(WeightOrder::fragments);
  return orders;
}

// Returns the selected order of a constant B. Packing and lowering both call this, because they must agree.
static WeightOrder select_weight_order(const NodeContext& node, const std::vector<WeightOrder>& orders, const WeightView& weights) {
  if (!node.measured || orders.size() < 2) return orders[0];
  const auto found = node.measured->fastest.find(format_gemm_kind(node, *find_known_m(node), weights.channels_in, weights.channels_out));
  if (found == node.measured->fastest.end()) return orders[0];
  const WeightOrder measured_order = parse_weight_order(found->second);
  return std::ranges::find(orders, measured_order) == orders.end() ? orders[0] : measured_order;
}

// Returns the possible orders of input 1; empty if it is not constant. With measured variants, the list includes the original order of B,
// which may have been measured to be the fastest.
static std::vector<WeightOrder> list_constant_weight_orders(const LowerContext& node, const WeightView& weights) {
  const std::vector<bool>& constant = node.measured ? node.constant : node.constant_packed;
  const bool is_constant = constant.size() > 1 && constant[1];
  return is_constant ? list_weight_orders(node, node.input(1), weights) : std::vector<WeightOrder>{};
}

static WeightOrder choose_constant_weight_order(const LowerContext& node, const WeightView& weights) {
  const std::vector<WeightOrder> orders = list_constant_weight_orders(node, weights);
  return orders.empty() ? WeightOrder::blocks : select_weight_order(node, orders, weights);
}

// Whether B is read unpacked because packing would take longer than the GEMM: see gemv_cpu.comp.
static bool reads_unpacked_weights(const LowerContext& node, const TensorDesc& b, int64_t rows, double scale) {
  constexpr int64_t kMaxRows = 3 * kMaxCpuRows;
  return node.prefers_cpu_kernels() && !has_packed_weights(node) && rows <= kMaxRows && scale == 1 && b.dtype == node.float_dtype &&
         b.is_packed() && static_cast<int64_t>(b.bytes()) <= max_binding_bytes(*node.context);
}

static bool pack_gemm_weights(const PackContext& node, const WeightView& weights, double scale, PackedWeight& packed) {
  const WeightOrder order = select_weight_order(node, list_weight_orders(node, node.input(1), weights), weights);
  if (order == WeightOrder::blocks && is_already_packed(node, node.input(1), weights, scale)) return false;
  const WeightView columns{1, weights.channels_in, weights.channels_out, 1, 0, weights.stride_in, weights.stride_out, 0};
  if (order == WeightOrder::col_major)
    pack_rows(node, node.input(1), columns, scale, packed);
  else if (order == WeightOrder::fragments)
    pack_fragments(node, node.input(1), weights, scale, packed);
  else if (order == WeightOrder::split_fp16)
    pack_split_fp16(node, node.input(1), weights, node.split_fp16->exponent, packed);
  else
    pack_weights(node, 1, weights, scale, packed);
  return true;
}

// Returns input 1 as GEMM weights, and sets their order in `c`. A matrix that already has the packed layout is copied if it is not aligned.
static Operand get_gemm_weights(LowerContext& node, ConvGemmParams& c, int64_t rows, double scale) {
  const WeightView& weights = c.weights;
  if (reads_unpacked_weights(node, node.input(1), rows, scale)) {
    c.order = WeightOrder::strides;
    return node.input_operand(1);
  }
  if (choose_constant_weight_order(node, weights) != WeightOrder::blocks || !is_already_packed(node, node.input(1), weights, scale) ||
      node.input_misalignment(1) == 0)
    return node.get_packed_input(1);
  PackedWeight packed;
  pack_weights(node, node.input(1), weights, scale, packed);
  const Operand target = node.add_temporary(packed.desc.bytes());
  packed.steps(node.steps, node.input_operand(1), target);
  return target;
}

bool pack_gemm(const PackContext& node, size_t input, PackedWeight& packed) {
  const bool transposed = node.attributes->integer("transB", 0) != 0;
  if (!is_operator_float(node.input(input).dtype)) return false;
  if (input == 1) return pack_gemm_weights(node, view_matrix_weights(node.input(1), transposed), node.attributes->real("alpha", 1), packed);
  if (input != 2 || !node.inputs[1]) return false;
  if (!is_row_bias(node.input(2), node.input(1).shape[transposed ? 0 : 1])) return false;
  pack_as_float32(node, input, node.attributes->real("beta", 1), packed);
  return true;
}

NchwView make_matrix_view(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  return {1, columns, 1, rows, 0, column_stride, 0, row_stride};
}

ConvGemmParams make_gemm_params(const NchwView& a, const WeightView& b, const NchwView& y) {
  ConvGemmParams c{a, y, b, 1, a.w};
  c.is_gemm = true;
  return c;
}

static TensorDesc maybe_transpose(const TensorDesc& matrix, bool transposed) {
  if (!transposed) return matrix;
  return TensorDesc(matrix.dtype, {matrix.shape[1], matrix.shape[0]}, Strides{matrix.strides[1], matrix.strides[0]});
}

// Cooperative matrices need aligned rows whose size is padded to a multiple of 8. Other rows are first copied if the GEMM is large enough
// for the copy to pay off.
Operand prepare_gemm_input(LowerContext& node, ConvGemmParams& c) {
  constexpr int64_t kEight = 8, kLeast = 64;
  const int64_t rows = c.x.w, k_size = c.weights.channels_in;
  const bool ready = node.input_misalignment(0) == 0 && c.x.sc == 1 && k_size % kEight == 0 && c.x.sw % kEight == 0;
  if (ready) return node.input_operand(0);
  if (!reads_vec8(c.order) && (!node.has_coopmat() || std::min({rows, k_size, c.weights.channels_out}) < kLeast))
    return node.input_operand(0);
  PackedWeight packed;
  pack_rows(node, node.input(0), {1, k_size, rows, 1, 0, c.x.sc, c.x.sw, 0}, 1, packed);
  const Operand target = node.add_temporary(packed.desc.bytes());
  packed.steps(node.steps, node.input_operand(0), target);
  c.x = make_matrix_view(rows, k_size, round_up(k_size, kEight), 1);
  c.padded = true;
  return target;
}

// Returns the fp32 rows of input 0 with each element split into two fp16 values.
static Operand split_fp16_rows(LowerContext& node, ConvGemmParams& c) {
  const int64_t rows = c.x.w, k_size = c.weights.channels_in, row_elements = count_split_row_elements(k_size);
  const bool has_vec4 = node.input_misalignment(0) == 0 && c.x.sc == 1 && c.x.sw % 4 == 0;
  const Operand target = node.add_temporary(static_cast<uint64_t>(rows * row_elements) * 2);
  StepBuilder step(node.kernel("split_fp16_rows.comp", DType::int32, {{"X_VEC4", has_vec4 ? "1" : "0"}}));
  step.bind("x", node.input_operand(0)).bind("y", target).set("rows", rows).set("k_size", k_size);
  step.set("x_stride_row", c.x.sw).set("x_stride_column", c.x.sc);
  node.add(step.set_workgroups(static_cast<uint64_t>(rows)).build());
  c.x = make_matrix_view(rows, k_size, row_elements, 1);
  c.x_is_split = true;
  return target;
}

// Returns the rows of input 0 in the layout required by the weights' order. With split weights, this switches the node to fp16.
static Operand prepare_ordered_input(LowerContext& node, ConvGemmParams& c) {
  if (c.order != WeightOrder::split_fp16) return prepare_gemm_input(node, c);
  node.float_dtype = DType::float16;
  return node.split_fp16->exact_left ? prepare_gemm_input(node, c) : split_fp16_rows(node, c);
}

void lower_gemm(LowerContext& node) {
  const bool transposed_a = node.attributes->integer("transA", 0) != 0, transposed_b = node.attributes->integer("transB", 0) != 0;
  const TensorDesc &a = node.input(0), &y = node.output(0);
  const size_t row = transposed_a ? 1 : 0, column = 1 - row;
  const bool adds = node.has_input(2) && node.attributes->real("beta", 1) != 0;  // beta = 0 ignores C, even NaN
  const auto c_strides = [&] { return compute_broadcast_strides(node.input(2).shape, node.input(2).strides, y.shape); };
  // fp64 and integers use the generic kernel.
  if (!is_operator_float(y.dtype)) {
    const std::optional<Strides> c = adds ? std::optional(c_strides()) : std::nullopt;
    return add_generic_gemm(node, maybe_transpose(a, transposed_a), maybe_transpose(node.input(1), transposed_b), y, c,
                            {node.attributes->real("alpha", 1), node.attributes->real("beta", 1)});
  }
  ConvGemmParams c = make_gemm_params(make_matrix_view(a.shape[row], a.shape[column], a.strides[row], a.strides[column]),
                                      view_matrix_weights(node.input(1), transposed_b),
                                      make_matrix_view(y.shape[0], y.shape[1], y.strides[0], y.strides[1]));
  c.order = choose_constant_weight_order(node, c.weights);
  c.orders = list_constant_weight_orders(node, c.weights);
  const Operand left = prepare_ordered_input(node, c);
  const Operand weights = get_gemm_weights(node, c, y.shape[0], node.attributes->real("alpha", 1));
  ConvGemmBias bias = adds ? get_packed_bias(node) : ConvGemmBias{};
  if (adds && !is_row_bias(node.input(2), y.shape[1])) {
    const Strides strides = c_strides();
    bias = {ConvGemmBias::BiasKind::matrix, node.input_operand(2), strides[0], strides[1], node.attributes->real("beta", 1)};
  }
  add_conv_gemm(node, c, left, weights, bias, node.output_operand(0));
}

// Views a MatMul operand as matrices: a vector is a row on the left, a column on the right.
static TensorDesc view_as_matrices(const TensorDesc& desc, bool is_right) {
  if (desc.rank() != 1) return desc;
  const int64_t size = desc.shape[0], stride = desc.strides[0];
  return is_right ? TensorDesc(desc.dtype, {size, 1}, Strides{stride, 1})
                  : TensorDesc(desc.dtype, {1, size}, Strides{std::max<int64_t>(size, 1), stride});
}

bool pack_matmul(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input == 2) {
    pack_as_float32(node, input, 1, packed);
    return true;
  }
  if (input != 1 || !is_operator_float(node.input(1).dtype)) return false;
  return pack_gemm_weights(node, view_matrix_weights(view_as_matrices(node.input(1), true), false), 1, packed);
}

// Returns the index space of the broadcast batch axes. Its tensors are both operands and the result, with strides in matrices.
static IndexSpace make_batch_space(const TensorDesc& a, const TensorDesc& b) {
  const auto batch_of = [](const TensorDesc& desc) { return Shape(desc.shape.begin(), desc.shape.end() - 2); };
  const Shape a_batch = batch_of(a), b_batch = batch_of(b), batch = broadcast_shape(a_batch, b_batch);
  IndexSpace space{batch,
                   {compute_broadcast_strides(a_batch, packed_strides(a_batch), batch),
                    compute_broadcast_strides(b_batch, packed_strides(b_batch), batch), packed_strides(batch)}};
  space.coalesce();
  return space;
}

static constexpr const char* kStridedLeft = "': MatMul of strided tensors with a constant on the right";

void lower_matmul(LowerContext& node) {
  const TensorDesc a = view_as_matrices(node.input(0), false), b = view_as_matrices(node.input(1), true), &y = node.output(0);
  const bool is_strided = !a.is_packed() || !b.is_packed() || !y.is_packed(), b_packed = has_packed_weights(node);
  const WeightView all = view_matrix_weights(b, false);
  if (const WeightOrder order = choose_constant_weight_order(node, all); is_operator_float(y.dtype) && order != WeightOrder::blocks) {
    if (a.rank() > 2 && is_strided) throw UnsupportedError("node '" + std::string(node.node) + kStridedLeft);
    // The batch of A is treated as additional rows.
    const size_t row = a.rank() - 2, column = a.rank() - 1;
    const int64_t rows = element_count({a.shape.begin(), a.shape.end() - 1});
    ConvGemmParams c = make_gemm_params(make_matrix_view(rows, a.shape[column], a.strides[row], a.strides[column]), all,
                                        make_matrix_view(rows, y.shape[column], y.strides[row], y.strides[column]));
    c.order = order;
    c.orders = list_constant_weight_orders(node, all);
    const Operand left = prepare_ordered_input(node, c);
    return add_conv_gemm(node, c, left, node.get_packed_input(1), get_packed_bias(node), node.output_operand(0));
  }
  if (node.has_input(2) && (is_strided || b.rank() != 2))
    throw UnsupportedError("node '" + std::string(node.node) + "': a bias of a product of strided tensors or of several matrices");
  if (!is_operator_float(y.dtype) || (is_strided && !b_packed)) {
    TensorDesc matrices = y;  // includes the axes that are dropped for vectors
    const auto insert = [&](size_t back) {
      matrices.shape.insert(matrices.shape.end() - static_cast<std::ptrdiff_t>(back), 1);
      matrices.strides.insert(matrices.strides.end() - static_cast<std::ptrdiff_t>(back), 0);
    };
    if (node.input(1).rank() == 1) insert(0);
    if (node.input(0).rank() == 1) insert(1);
    return add_generic_gemm(node, a, b, matrices);
  }
  if (is_strided) throw UnsupportedError("node '" + std::string(node.node) + kStridedLeft);
  const auto planes = [](int64_t rows, int64_t columns) { return make_matrix_view(rows, columns, columns, 1); };
  const int64_t k = all.channels_in, n = all.channels_out;
  if (all.groups == 1) {  // all batch items share one B: the batch of A is treated as additional rows
    const int64_t rows = element_count({a.shape.begin(), a.shape.end() - 1});
    ConvGemmParams c = make_gemm_params(planes(rows, k), all, planes(rows, n));
    c.orders = list_constant_weight_orders(node, all);
    const Operand weights = get_gemm_weights(node, c, rows, 1);
    const Operand left = prepare_gemm_input(node, c);
    return add_conv_gemm(node, c, left, weights, get_packed_bias(node), node.output_operand(0));
  }
  const int64_t m = a.shape[a.shape.size() - 2];
  // The last batch axis maps to the grid. Each index on the other batch axes is a separate dispatch.
  IndexSpace space = make_batch_space(a, b);
  ConvGemmParams c = make_gemm_params(planes(m, k), all, planes(m, n));
  const Operand weights = get_gemm_weights(node, c, m, 1);
  const int64_t group = c.order == WeightOrder::strides ? k * n : count_packed_elements_per_group(node, all);
  c.weights.groups = space.sizes.back();
  c.x_stride_group = space.strides[0].back() * m * k, c.w_stride_group = space.strides[1].back() * group,
  c.y_stride_group = space.strides[2].back() * m * n;
  for (int64_t run = 0; run < space.num_runs(); ++run) {
    c.x_first = space.get_run_offset(0, run) * m * k, c.w_first = space.get_run_offset(1, run) * group,
    c.y_first = space.get_run_offset(2, run) * m * n;
    add_conv_gemm(node, c, node.input_operand(0), weights, {}, node.output_operand(0));
  }
}

// Input indices of an integer GEMM. `a` is always input 0.
struct Int8MatMulInputs {
  size_t b, a_zero, b_zero;
};
static constexpr Int8MatMulInputs kMatMulInteger{1, 2, 3}, kQLinearMatMul{3, 2, 5};

static bool pack_int8_matmul(const PackContext& node, const Int8MatMulInputs& inputs, size_t input, PackedWeight& packed) {
  if (input == inputs.b) {
    const TensorDesc b = view_as_matrices(node.input(input), true);
    if (supports_int8_coopmat(node, b))
      pack_int8_columns(node, b, packed);
    else
      pack_integer_weights(node, node.input(input), view_matrix_weights(b, false), packed);
    return true;
  }
  if (input != inputs.a_zero && input != inputs.b_zero) return false;
  pack_as_int32(node, input, node.input(input).elements(), packed);
  return true;
}

bool pack_matmul_integer(const PackContext& node, size_t input, PackedWeight& packed) {
  return pack_int8_matmul(node, kMatMulInteger, input, packed);
}

bool pack_qlinear_matmul(const PackContext& node, size_t input, PackedWeight& packed) {
  if (pack_int8_matmul(node, kQLinearMatMul, input, packed)) return true;
  return pack_requantize_params(node, input, packed);
}

static TensorDesc make_int32_result_desc(const TensorDesc& a, const TensorDesc& b) {
  const auto batch_of = [](const TensorDesc& desc) { return Shape(desc.shape.begin(), desc.shape.end() - 2); };
  Shape shape = broadcast_shape(batch_of(a), batch_of(b));
  shape.insert(shape.end(), {a.shape[a.shape.size() - 2], b.shape.back()});
  return TensorDesc(DType::int32, shape);
}

// Adds int8 GEMMs on cooperative matrices. All rows of A share one B. Each range of rows with a uniform zero-point stride is one GEMM.
static void add_int8_row_gemms(LowerContext& node, const ConvGemmParams& c, const TensorDesc& a, const PackedInt8Columns& right,
                               const IndexSpace& all_rows, const Operand& y) {
  if (all_rows.elements() == 0) return;
  const int64_t rows = all_rows.sizes.back(), runs = all_rows.num_runs();
  Int8Params terms = *c.integers;
  if (terms.x_zero) terms.x_zero->stride = all_rows.strides[0].back();
  const PackedInt8Rows left = pack_int8_rows(node, a, rows * runs, terms);
  for (int64_t run = 0; run < runs; ++run) {
    if (terms.x_zero) terms.x_zero->first = all_rows.get_run_offset(0, run);
    if (terms.w_zero) terms.w_zero->first = all_rows.get_run_offset(1, run);
    add_int8_gemm(node, left, {run * rows, rows}, right, terms, y);
  }
}

// Adds integer GEMMs that write row-major int32 sums to `y`. Each batch item is a separate GEMM, unless all batch items share B and their
// rows have a uniform stride.
static void add_int8_matmul(LowerContext& node, const Int8MatMulInputs& inputs, const Operand& y) {
  const TensorDesc a = view_as_matrices(node.input(0), false), b = view_as_matrices(node.input(inputs.b), true),
                   accumulators = make_int32_result_desc(a, b);
  const WeightView all = view_matrix_weights(b, false);
  const Operand weights = node.get_packed_input(inputs.b);
  const auto strides_of = [&](size_t input, bool columns) {
    return node.has_input(input) ? compute_quant_param_strides(node.input(input), accumulators.shape, columns).value()
                                 : Strides(accumulators.shape.size(), 0);
  };
  const Strides a_zero = strides_of(inputs.a_zero, false), b_zero = strides_of(inputs.b_zero, true);
  const auto front = [](const std::vector<int64_t>& values, size_t back) {
    return std::vector<int64_t>(values.begin(), values.end() - static_cast<std::ptrdiff_t>(back));
  };
  const int64_t k = all.channels_in, n = all.channels_out, rows = a.shape[a.shape.size() - 2],
                group = count_packed_elements_per_group(node, all);
  const auto planes = [](int64_t count, int64_t columns) { return make_matrix_view(count, columns, columns, 1); };
  ConvGemmParams c = make_gemm_params(planes(rows, k), all, planes(rows, n));
  c.integers = Int8Params{a.dtype, b.dtype, get_zero_points(node, inputs.a_zero), get_zero_points(node, inputs.b_zero)};
  if (c.integers->x_zero) c.integers->x_zero->stride = a_zero[a_zero.size() - 2];
  if (c.integers->w_zero) c.integers->w_zero->stride = b_zero.back();
  IndexSpace all_rows{front(accumulators.shape, 1), {front(a_zero, 1), front(b_zero, 1)}};
  all_rows.coalesce();
  if (supports_int8_coopmat(node, b)) return add_int8_row_gemms(node, c, a, {b, weights}, all_rows, y);
  if (all.groups == 1 && all_rows.sizes.size() == 1 && all_rows.strides[1][0] == 0) {
    c.x = planes(all_rows.sizes[0], k), c.y = planes(all_rows.sizes[0], n), c.out_w = all_rows.sizes[0];
    if (c.integers->x_zero) c.integers->x_zero->stride = all_rows.strides[0][0];
    return add_conv_gemm(node, c, node.input_operand(0), weights, {}, y);
  }
  const Shape a_batch = front(a.shape, 2), b_batch = front(b.shape, 2), batch = front(accumulators.shape, 2);
  IndexSpace space{
      batch,
      {compute_broadcast_strides(a_batch, packed_strides(a_batch), batch),
       compute_broadcast_strides(b_batch, packed_strides(b_batch), batch), packed_strides(batch), front(a_zero, 2), front(b_zero, 2)}};
  space.coalesce();
  c.weights.groups = space.sizes.back();
  c.x_stride_group = space.strides[0].back() * rows * k, c.w_stride_group = space.strides[1].back() * group,
  c.y_stride_group = space.strides[2].back() * rows * n;
  if (c.integers->x_zero) c.integers->x_zero->stride_group = space.strides[3].back();
  if (c.integers->w_zero) c.integers->w_zero->stride_group = space.strides[4].back();
  for (int64_t run = 0; run < space.num_runs(); ++run) {
    c.x_first = space.get_run_offset(0, run) * rows * k, c.w_first = space.get_run_offset(1, run) * group;
    c.y_first = space.get_run_offset(2, run) * rows * n;
    if (c.integers->x_zero) c.integers->x_zero->first = space.get_run_offset(3, run);
    if (c.integers->w_zero) c.integers->w_zero->first = space.get_run_offset(4, run);
    add_conv_gemm(node, c, node.input_operand(0), weights, {}, y);
  }
}

void lower_matmul_integer(LowerContext& node) {
  add_int8_matmul(node, kMatMulInteger, node.output_operand(0));
}

void lower_qlinear_matmul(LowerContext& node) {
  const TensorDesc sums =
      make_int32_result_desc(view_as_matrices(node.input(0), false), view_as_matrices(node.input(kQLinearMatMul.b), true));
  const Operand accumulators = node.add_temporary(sums.bytes());
  add_int8_matmul(node, kQLinearMatMul, accumulators);
  const auto strides_of = [&](size_t input, bool columns) {
    return compute_quant_param_strides(node.input(input), sums.shape, columns).value();
  };
  add_requantize(node, accumulators, sums.shape, strides_of(1, false), strides_of(4, true), strides_of(6, false));
}

}  // namespace pumice
