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
// Target number of invocations: rows are split until there are about this many.
constexpr int64_t kTargetThreads = 4096;

// The rows along the scanned axis, in the input and in the output.
struct ScannedRows {
  IndexSpace space;  // index space of the rows, with strides of x and y
  int64_t size, x_step, y_step;
  bool exclusive, backwards;
};

class ScanBuilder {
 public:
  ScanBuilder(LowerContext& node, FoldGlsl fold) : node_(node), fold_(std::move(fold)) {}

  // Adds the scan of x into y. An array without a dtype contains accumulators of the scan.
  void add(const Operand& x, std::optional<DType> x_dtype, const Operand& y, std::optional<DType> y_dtype, const ScannedRows& rows) {
    const int64_t count = rows.space.elements();
    const int64_t split_size =
        std::clamp(rows.size * count / kTargetThreads, std::min(kMinScanPerThread, rows.size), std::min(kMaxScanPerThread, rows.size));
    const int64_t splits = (rows.size + split_size - 1) / split_size;
    std::optional<Operand> carry;
    if (splits > 1) {
      const auto bytes = static_cast<uint64_t>(count * splits) * get_accumulator_bytes(fold_);
      const Operand totals = node_.add_temporary(bytes);
      add_step({x, x_dtype}, {totals, {}}, rows, {splits, split_size}, {}, true);
      carry = node_.add_temporary(bytes);
      FoldGlsl merged = fold_;
      merged.step = "STEP_TOTAL(s, v)";
      merged.macros = {{"STEP_TOTAL(s, t)", fold_.merge}};
      ScanBuilder(node_, merged).add(totals, {}, *carry, {}, {{{count}, {{splits}, {splits}}}, splits, 1, 1, true, false});
    }
    add_step({x, x_dtype}, {y, y_dtype}, rows, {splits, split_size}, carry, false);
  }

 private:
  // An array and the dtype of its elements; nullopt: its elements are accumulators.
  struct ScanArray {
    const Operand& operand;
    std::optional<DType> dtype;
  };
  struct ScanSplits {
    int64_t count, size;
  };

  void add_step(const ScanArray& x, const ScanArray& y, const ScannedRows& rows, const ScanSplits& splits,
                const std::optional<Operand>& carry, bool totals) {
    Macros macros = {{"ACCUMULATOR", fold_.accumulator},
                     {"START", fold_.start},
                     {"STEP(s, v, i)", fold_.step},
                     {"CARRY", carry ? "1" : "0"},
                     {"TOTALS", totals ? "1" : "0"}};
    const auto append = [&](const Macros& more) { macros.insert(macros.end(), more.begin(), more.end()); };
    append(fold_.macros);
    append(x.dtype ? make_element_macros("x", *x.dtype) : Macros{{"X_TYPE", fold_.accumulator}, {"LOAD(i)", "x[i]"}});
    append(y.dtype ? make_element_macros("y", *y.dtype) : Macros{{"Y_TYPE", fold_.accumulator}, {"STORE(i, v)", "y[i] = (v)"}});
    append(make_64bit_macros(fold_.accumulator));
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
    node_.add(step.set_threads(static_cast<uint64_t>(count * splits.count)).build());
  }

  LowerContext& node_;
  FoldGlsl fold_;
};

}  // namespace

void add_exclusive_sum(LowerContext& node, const Operand& x, const Operand& y, int64_t size) {
  ScanBuilder(node, make_fold_glsl(node, kSumFold, DType::int32)).add(x, {}, y, {}, {{{1}, {{1}, {1}}}, size, 1, 1, true, false});
}

void add_row_cumsum(LowerContext& node, const Operand& x, const Operand& y, int64_t rows, int64_t size) {
  const DType dtype = DType::float32;
  ScanBuilder(node, make_fold_glsl(node, kSumFold, dtype)).add(x, dtype, y, dtype, {{{rows}, {{size}, {size}}}, size, 1, 1, false, false});
}

// Returns the rows of two tensors of equal shape along axis `scanned`.
static ScannedRows make_scanned_rows(const LowerContext& node, const TensorDesc& x, const TensorDesc& y, size_t scanned) {
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
  const HostTensor* axis_tensor = node.host_tensor(1);
  if (!axis_tensor) throw UnsupportedError("node '" + std::string(node.node) + "': the axis must be known on the host");
  const int64_t axis = axis_tensor->as_int64().at(0);
  const auto scanned = static_cast<size_t>(axis < 0 ? axis + x.rank() : axis);
  const FoldGlsl fold = make_fold_glsl(node, *node.row->fold, x.dtype);
  const ScannedRows rows = make_scanned_rows(node, x, y, scanned);
  IndexSpace merged = rows.space;
  merged.coalesce();
  if (merged.sizes.size() <= kRowRank)
    return ScanBuilder(node, fold).add(node.input_operand(0), x.dtype, node.output_operand(0), y.dtype, rows);
  // In packed tensors, the axes before the scanned axis merge into one, and so do the axes after it.
  const Operand from = get_contiguous_input(node, 0), to = get_contiguous_output(node, 0);
  ScanBuilder(node, fold).add(from, x.dtype, to, y.dtype, make_scanned_rows(node, x.packed(), y.packed(), scanned));
  copy_contiguous_output(node, 0, to);
}

}  // namespace pumice
