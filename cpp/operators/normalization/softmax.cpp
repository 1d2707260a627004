// Lowers Softmax, LogSoftmax and Hardmax.
#include "core/error.h"
#include "core/rounding.h"
#include "operators/common/composition.h"
#include "operators/common/row_registers.h"
#include "operators/common/mixed_precision.h"
#include "operators/normalization/lowerings.h"
#include "operators/reduction/reduce.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

// Softmax over the middle axis of [outer, size, inner]: a fold computes each column's maximum and a term from the sum of exponentials; a
// second kernel computes the results.
void add_columns(LowerContext& node, int64_t size, int64_t inner) {
  const TensorDesc& x = node.input(0);
  const bool logarithm = node.row->form == kLogSoftmax;
  const int64_t outer = x.elements() / size / inner, terms_first = round_up(outer * inner, 4);
  const Operand largest = node.temporary(static_cast<uint64_t>(2 * terms_first) * 4);
  Fold fold = fold_of(node, kLogSumExpFold, DType::float32);
  fold.finish = "(s)";
  fold.y_type = "float";
  fold.result = "vec2";
  // A column with an infinite maximum becomes NaN throughout.
  fold.store = "{ y[i] = (v).x; y[(p.results + 3u & ~3u) + i] = pm_isinf((v).x) ? pm_nan : " +
               std::string(logarithm ? "pm_log((v).y); }" : "1.0 / (v).y; }");
  add_fold(node, fold, {{outer, inner}, {{size * inner, 1}, {inner, 1}}}, {{size}, {{inner}}}, largest);
  const bool fits = size * inner * static_cast<int64_t>(bits(x.dtype)) / 8 <= largest_range(*node.context);
  if (inner % 4 == 0 && begins_in_fours(node) && fits) {
    constexpr int64_t kRows = 8;  // number of rows per invocation
    const MixedArrays arrays = mixed_arrays({{"X", x.dtype}, {"Y", node.output(0).dtype}});
    Macros macros = {{"LOGARITHM", logarithm ? "1" : "0"}, {"ROWS", std::to_string(kRows) + "u"}};
    arrays.tell(macros);
    StepBuilder step(node.kernel("softmax_columns.comp", arrays.storage, macros));
    step.bind("x", node.in(0)).bind("columns", largest).bind("y", node.out(0));
    step.set("outer", outer).set("size", size).set("inner", inner / 4).set("terms", terms_first / 4);
    return node.add(step.threads(static_cast<uint64_t>(outer * ceil_div(size, kRows) * inner / 4)).build());
  }
  Operand terms = largest;
  terms.byte_offset += static_cast<uint64_t>(terms_first) * 4;
  Composition parts(node);
  const Piece from = parts.input(0).seen_as({outer, size, inner});
  const TensorDesc of_columns(DType::float32, {outer, 1, inner});
  parts.map(logarithm ? "a0 - a1 - a2" : "exp(a0 - a1) * a2", {from, {of_columns, largest}, {of_columns, terms}},
            parts.output(0).seen_as(from.desc.shape));
}

// fp64 Softmax on [outer, size, inner], with a separate pass per step.
void add_doubles(LowerContext& node, int64_t size, int64_t inner) {
  const Shape whole{node.input(0).elements() / size / inner, size, inner}, columns{whole[0], 1, inner};
  Composition parts(node);
  const Piece x = parts.input(0).seen_as(whole), y = parts.output(0).seen_as(whole), exponentials = parts.scratch(DType::float64, whole),
              largest = parts.scratch(DType::float64, columns), sums = parts.scratch(DType::float64, columns);
  Attributes over_size;
  over_size.set("axes", std::vector<int64_t>{1});
  parts.add("ReduceMax", over_size, {x}, largest);
  parts.map("exp(a0 - a1)", {x, largest}, exponentials);
  parts.add("ReduceSum", over_size, {exponentials}, sums);
  if (node.row->form == kLogSoftmax)
    parts.map("a0 - a1 - log(a2)", {x, largest, sums}, y);
  else
    parts.map("a0 / a1", {exponentials, sums}, y);
}

}  // namespace

void lower_softmax(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (x.elements() == 0) return;
  if (!x.is_packed() || !y.is_packed()) throw UnsupportedError("node '" + std::string(node.node) + "': softmax of a strided tensor");
  int64_t inner = 1, size = 1;
  if (x.rank() > 0) {
    const int64_t given = node.attributes->integer("axis", -1);
    const auto axis = static_cast<size_t>(given < 0 ? given + x.rank() : given);
    size = x.shape[axis];
    for (size_t i = axis + 1; i < x.shape.size(); ++i) inner *= x.shape[i];
  }
  const int64_t rows = x.elements() / size;
  const int form = node.row->form;
  if (x.dtype == DType::float64) return add_doubles(node, size, inner);
  // Adjacent columns are read coalesced; walking strided rows would not be.
  if (form != kHardmax && inner >= kFewestColumns) return add_columns(node, size, inner);
  const int64_t iterations = size / 8 * 3 + 16, row_bytes = size * inner * static_cast<int64_t>(bits(x.dtype)) / 8;
  const bool is_cut = form != kHardmax && row_bytes > largest_range(*node.context);
  const auto held = form != kHardmax && inner == 1 && !is_cut ? held_rows(node, size, false) : std::nullopt;
  if (held) {
    const Macros macros = {{"LOGARITHM", form == kLogSoftmax ? "1" : "0"}};
    node.tell_additions(held_additions(node, *held));
    return node.add(held_step(node, *held, "softmax_registers.comp", macros, rows, size).build());
  }
  if (is_cut || (form != kHardmax && iterations > node.loop_limit().value_or(iterations))) return add_columns(node, size, inner);
  node.check_loops(iterations);
  const std::string mode = std::to_string(form);
  const bool is_short = has_short_rows(node, size);
  const MixedArrays arrays = mixed_arrays({{"X", x.dtype}, {"Y", y.dtype}});
  Macros macros = {{"LANES", node.prefers_lanes() ? "1" : "0"}, {"SHORT", is_short ? "1" : "0"}, {"MODE", mode}};
  arrays.tell(macros);
  const auto kernel = node.kernel("softmax.comp", arrays.storage, macros);
  StepBuilder step(kernel);
  step.bind("x", node.in(0)).bind("y", node.out(0)).set("rows", rows).set("inner", inner).set("size", size);
  step.set("x_outer", size * inner)
      .set("x_inner", 1)
      .set("x_step", inner)
      .set("y_outer", size * inner)
      .set("y_inner", 1)
      .set("y_step", inner);
  step.groups(row_groups(*kernel, is_short, rows));
  node.tell_additions(row_additions(node, *kernel, is_short, size));
  node.add(step.build());
}

}  // namespace pumice
