// Lowers running sums and products along an axis.
#include <algorithm>

#include "core/error.h"
#include "operators/common/strided_copy.h"
#include "operators/reduction/lowerings.h"
#include "operators/reduction/reduce.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

constexpr size_t kRowRank = 4;
constexpr int64_t kMaxScanPerThread = 4096, kMinScanPerThread = 64;  // maximum and minimum number of elements per invocation
// Rows are split into parts until about this many invocations process them.
constexpr int64_t kTargetThreads = 4096;

// The slices along the scan axis, in the input and in the output.
struct ScannedRows {
  IndexSpace space;  // the rows, with strides of x and y
  int64_t size, x_step, y_step;
  bool exclusive, backwards;
};

class Scan {
 public:
  Scan(LowerContext& node, Fold fold) : node_(node), fold_(std::move(fold)) {}

  // Adds the scan. `x` and `y` have these dtypes; without a dtype they contain accumulators.
  void add(const Operand& x, std::optional<DType> x_dtype, const Operand& y, std::optional<DType> y_dtype, const ScannedRows& rows) {
    const int64_t count = rows.space.elements();
    const int64_t split_size =
        std::clamp(rows.size * count / kTargetThreads, std::min(kMinScanPerThread, rows.size), std::min(kMaxScanPerThread, rows.size));
    const int64_t splits = (rows.size + split_size - 1) / split_size;
    std::optional<Operand> carry;
    if (splits > 1) {
      const auto bytes = static_cast<uint64_t>(count * splits) * accumulator_bytes(fold_);
      const Operand totals = node_.temporary(bytes);
      add_step({x, x_dtype}, {totals, {}}, rows, {splits, split_size}, {}, true);
      carry = node_.temporary(bytes);
      Fold merged = fold_;
      merged.step = "STEP_TOTAL(s, v)";
      merged.macros = {{"STEP_TOTAL(s, t)", fold_.merge}};
      Scan(node_, merged).add(totals, {}, *carry, {}, {{{count}, {{splits}, {splits}}}, splits, 1, 1, true, false});
    }
    add_step({x, x_dtype}, {y, y_dtype}, rows, {splits, split_size}, carry, false);
  }

 private:
  // Elements and their dtype; nullopt: accumulators.
  struct Elements {
    const Operand& operand;
    std::optional<DType> dtype;
  };
  struct Splits {
    int64_t count, size;
  };

  void add_step(const Elements& x, const Elements& y, const ScannedRows& rows, const Splits& splits, const std::optional<Operand>& carry,
                bool totals) {
    Macros macros = {{"ACCUMULATOR", fold_.accumulator},
                     {"START", fold_.start},
                     {"STEP(s, v, i)", fold_.step},
                     {"CARRY", carry ? "1" : "0"},
                     {"TOTALS", totals ? "1" : "0"}};
    const auto append = [&](const Macros& more) { macros.insert(macros.end(), more.begin(), more.end()); };
    append(fold_.macros);
    append(x.dtype ? element_macros("x", *x.dtype) : Macros{{"X_TYPE", fold_.accumulator}, {"LOAD(i)", "x[i]"}});
    append(y.dtype ? element_macros("y", *y.dtype) : Macros{{"Y_TYPE", fold_.accumulator}, {"STORE(i, v)", "y[i] = (v)"}});
    append(int64_fp64_macros(fold_.accumulator));
    const DType stored = x.dtype && is_16bit_float(*x.dtype) ? *x.dtype : y.dtype.value_or(DType::float32);
    IndexSpace space = rows.space;
    space.coalesce();
    space.pad_to(kRowRank, "node '" + std::string(node_.node) + "'");
    StepBuilder step(node_.kernel("scan.comp", stored, macros));
    step.bind("x", x.operand).bind("y", y.operand);
    if (carry) step.bind("carry", *carry);
    const int64_t count = space.elements();
    step.set("rows", count).set("splits", splits.count).set("split_size", splits.size).set("size", rows.size);
    step.set("x_step", rows.x_step).set("y_step", rows.y_step).set("exclusive", rows.exclusive).set("backwards", rows.backwards);
    step.set("row", space.sizes).set("x_stride", space.strides[0]).set("y_stride", space.strides[1]);
    node_.add(step.threads(static_cast<uint64_t>(count * splits.count)).build());
  }

  LowerContext& node_;
  Fold fold_;
};

}  // namespace

void add_exclusive_sum(LowerContext& node, const Operand& x, const Operand& y, int64_t size) {
  Scan(node, fold_of(node, kSumFold, DType::int32)).add(x, {}, y, {}, {{{1}, {{1}, {1}}}, size, 1, 1, true, false});
}

void add_row_cumsum(LowerContext& node, const Operand& x, const Operand& y, int64_t rows, int64_t size) {
  const DType dtype = DType::float32;
  Scan(node, fold_of(node, kSumFold, dtype)).add(x, dtype, y, dtype, {{{rows}, {{size}, {size}}}, size, 1, 1, false, false});
}

// Returns the slices of two tensors of equal shape along an axis.
static ScannedRows rows_along(const LowerContext& node, const TensorDesc& x, const TensorDesc& y, size_t scanned) {
  ScannedRows rows{{{}, {{}, {}}},
                   x.shape[scanned],
                   x.strides[scanned],
                   y.strides[scanned],
                   node.attributes->integer("exclusive", 0) != 0,
                   node.attributes->integer("reverse", 0) != 0};
  for (size_t i = 0; i < x.shape.size(); ++i) {
    if (i == scanned) continue;
    rows.space.sizes.push_back(x.shape[i]);
    rows.space.strides[0].push_back(x.strides[i]);
    rows.space.strides[1].push_back(y.strides[i]);
  }
  return rows;
}

void lower_scan(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (x.elements() == 0) return;
  const HostTensor* axis_tensor = node.host(1);
  if (!axis_tensor) throw UnsupportedError("node '" + std::string(node.node) + "': an axis that is not known on the host");
  const int64_t axis = axis_tensor->as_int64().at(0);
  const auto scanned = static_cast<size_t>(axis < 0 ? axis + x.rank() : axis);
  const Fold fold = fold_of(node, *node.row->fold, x.dtype);
  const ScannedRows rows = rows_along(node, x, y, scanned);
  IndexSpace merged = rows.space;
  merged.coalesce();
  if (merged.sizes.size() <= kRowRank) return Scan(node, fold).add(node.in(0), x.dtype, node.out(0), y.dtype, rows);
  // The axes of packed tensors merge into one before and one after the scanned axis.
  const Operand from = dense_input(node, 0), to = dense_output(node, 0);
  Scan(node, fold).add(from, x.dtype, to, y.dtype, rows_along(node, x.packed(), y.packed(), scanned));
  finish_output(node, 0, to);
}

}  // namespace pumice
