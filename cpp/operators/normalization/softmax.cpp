// Lowers Softmax, LogSoftmax and Hardmax.
#include "core/error.h"
#include "core/rounding.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/mixed_precision.h"
#include "operators/common/row_registers.h"
#include "operators/normalization/lowerings.h"
#include "operators/reduction/reduce.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

// Softmax over the middle axis of [outer, size, inner]. A reduction computes each column's maximum and normaliser (1 / sum of exponentials,
// or its logarithm); a second kernel computes the results.
void add_middle_axis_softmax(LowerContext& node, int64_t size, int64_t inner) {
  const TensorDesc& x = node.input(0);
  const bool is_log = node.row->form == kLogSoftmax;
  const int64_t outer = x.elements() / size / inner, stats_offset = round_up(outer * inner, 4);
  const Operand column_stats = node.add_temporary(static_cast<uint64_t>(2 * stats_offset) * 4);
  FoldGlsl fold = make_fold_glsl(node, kLogSumExpFold, DType::float32);
  fold.finish = "(s)";
  fold.y_type = "float";
  fold.result = "vec2";
  // If the maximum of a column is infinite, all results of the column become NaN.
  fold.store = "{ y[i] = (v).x; y[(p.results + 3u & ~3u) + i] = pm_isinf((v).x) ? pm_nan : " +
               std::string(is_log ? "pm_log((v).y); }" : "1.0 / (v).y; }");
  add_fold(node, fold, {{outer, inner}, {{size * inner, 1}, {inner, 1}}}, {{size}, {{inner}}}, column_stats);
  const bool fits = size * inner * static_cast<int64_t>(bits(x.dtype)) / 8 <= max_binding_bytes(*node.context);
  if (inner % 4 == 0 && is_vec4_aligned(node) && fits) {
    constexpr int64_t kRows = 8;  // number of rows per invocation
    const MixedPrecisionArrays arrays = make_mixed_precision_arrays({{"X", x.dtype}, {"Y", node.output(0).dtype}});
    Macros macros = {{"LOGARITHM", is_log ? "1" : "0"}, {"ROWS", std::to_string(kRows) + "u"}};
    arrays.append_to(macros);
    StepBuilder step(node.kernel("softmax_columns.comp", arrays.storage, macros));
    step.bind("x", node.input_operand(0)).bind("columns", column_stats).bind("y", node.output_operand(0));
    step.set("outer", outer).set("size", size).set("inner", inner / 4).set("normalizers_offset", stats_offset / 4);
    return node.add(step.set_threads(static_cast<uint64_t>(outer * ceil_div(size, kRows) * inner / 4)).build());
  }
  Operand normalizers = column_stats;
  normalizers.byte_offset += static_cast<uint64_t>(stats_offset) * 4;
  CompositeLowering composition(node);
  const TensorOperand source = composition.input(0).reshaped({outer, size, inner});
  const TensorDesc column_desc(DType::float32, {outer, 1, inner});
  composition.add_elementwise(is_log ? "a0 - a1 - a2" : "exp(a0 - a1) * a2",
                              {source, {column_desc, column_stats}, {column_desc, normalizers}},
                              composition.output(0).reshaped(source.desc.shape));
}

// Lowers an fp64 Softmax on [outer, size, inner] to separate reductions and elementwise steps.
void add_fp64_softmax(LowerContext& node, int64_t size, int64_t inner) {
  const Shape shape{node.input(0).elements() / size / inner, size, inner}, columns{shape[0], 1, inner};
  CompositeLowering composition(node);
  const TensorOperand x = composition.input(0).reshaped(shape), y = composition.output(0).reshaped(shape),
                      exponentials = composition.allocate_scratch(DType::float64, shape),
                      maxima = composition.allocate_scratch(DType::float64, columns),
                      sums = composition.allocate_scratch(DType::float64, columns);
  Attributes middle_axis;
  middle_axis.set("axes", std::vector<int64_t>{1});
  composition.add_operator("ReduceMax", middle_axis, {x}, maxima);
  composition.add_elementwise("exp(a0 - a1)", {x, maxima}, exponentials);
  composition.add_operator("ReduceSum", middle_axis, {exponentials}, sums);
  if (node.row->form == kLogSoftmax)
    composition.add_elementwise("a0 - a1 - log(a2)", {x, maxima, sums}, y);
  else
    composition.add_elementwise("a0 / a1", {exponentials, sums}, y);
}

}  // namespace

void lower_softmax(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (x.elements() == 0) return;
  if (!x.is_packed() || !y.is_packed()) throw UnsupportedError("node '" + std::string(node.node) + "': softmax of a strided tensor");
  int64_t inner = 1, size = 1;
  if (x.rank() > 0) {
    const int64_t declared_axis = node.attributes->integer("axis", -1);
    const auto axis = static_cast<size_t>(declared_axis < 0 ? declared_axis + x.rank() : declared_axis);
    size = x.shape[axis];
    for (size_t i = axis + 1; i < x.shape.size(); ++i) inner *= x.shape[i];
  }
  const int64_t rows = x.elements() / size;
  const int form = node.row->form;
  if (x.dtype == DType::float64) return add_fp64_softmax(node, size, inner);
  // Reading adjacent columns is coalesced; reading strided rows is not.
  if (form != kHardmax && inner >= kMinColumns) return add_middle_axis_softmax(node, size, inner);
  const int64_t iterations = size / 8 * 3 + 16, row_bytes = size * inner * static_cast<int64_t>(bits(x.dtype)) / 8;
  const bool exceeds_binding = form != kHardmax && row_bytes > max_binding_bytes(*node.context);
  const RowRegisterChoice registers =
      form != kHardmax && inner == 1 && !exceeds_binding ? choose_row_registers(node, size, false) : RowRegisterChoice{};
  if (registers.plan) {
    const Macros macros = {{"LOGARITHM", form == kLogSoftmax ? "1" : "0"}};
    node.report_additions(count_register_row_additions(node, *registers.plan));
    return node.add(make_row_register_step(node, registers, "softmax_registers.comp", macros, rows, size).build());
  }
  if (exceeds_binding || (form != kHardmax && iterations > node.loop_limit().value_or(iterations)))
    return add_middle_axis_softmax(node, size, inner);
  node.check_loop_limit(iterations);
  const std::string mode = std::to_string(form);
  const bool is_short = has_short_rows(node, size);
  const MixedPrecisionArrays arrays = make_mixed_precision_arrays({{"X", x.dtype}, {"Y", y.dtype}});
  Macros macros = {{"CPU_VARIANT", node.prefers_cpu_kernels() ? "1" : "0"}, {"SHORT_ROWS", is_short ? "1" : "0"}, {"MODE", mode}};
  arrays.append_to(macros);
  const auto kernel = node.kernel("softmax.comp", arrays.storage, macros);
  StepBuilder step(kernel);
  step.bind("x", node.input_operand(0)).bind("y", node.output_operand(0)).set("rows", rows).set("inner", inner).set("size", size);
  step.set("x_outer", size * inner)
      .set("x_inner", 1)
      .set("x_step", inner)
      .set("y_outer", size * inner)
      .set("y_inner", 1)
      .set("y_step", inner);
  step.set_workgroups(count_row_workgroups(*kernel, is_short, rows));
  if (!registers.spilled.empty()) step.set_variant(kRowLoopVariant, registers.spilled);
  node.report_additions(count_loop_row_additions(node, *kernel, is_short, size));
  node.add(step.build());
}

}  // namespace pumice
