// Reductions over axes.
#include "operators/reduce.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "operators/families.h"
#include "operators/operator_table.h"

namespace pumice {
namespace {

constexpr size_t kFoldRank = 3;
constexpr int64_t kMostInOne = 4096;     // elements that one invocation folds: sums of sums lose less than one long sum
constexpr int64_t kMostInGroup = 65536;  // and one workgroup
constexpr int64_t kGroupSize = 256;

// GLSL of an integer type and its ends.
struct IntegerText {
  std::string type, lowest, highest;
};

const IntegerText& integer_text(DType dtype) {
  static const std::map<DType, IntegerText> texts = {
      {DType::int8, {"int", "-128", "127"}},
      {DType::uint8, {"uint", "0u", "255u"}},
      {DType::int32, {"int", "(-2147483647 - 1)", "2147483647"}},
      {DType::uint32, {"uint", "0u", "4294967295u"}},
      {DType::int64, {"int64_t", "(-9223372036854775807l - 1l)", "9223372036854775807l"}},
      {DType::uint64, {"uint64_t", "0ul", "18446744073709551615ul"}},
  };
  return texts.at(dtype);
}

Fold float_fold(std::string_view op) {
  static const std::map<std::string_view, Fold> folds = {
      {"ReduceSum", {"float", "0.0", "(s) + (v)", "(s) + (t)", "(s)"}},
      {"ReduceMean", {"float", "0.0", "(s) + (v)", "(s) + (t)", "(s) / float(n)"}},
      {"ReduceMax", {"float", "uintBitsToFloat(0xff800000u)", "pm_max(s, v)", "pm_max(s, t)", "(s)"}},
      {"ReduceMin", {"float", "uintBitsToFloat(0x7f800000u)", "pm_min(s, v)", "pm_min(s, t)", "(s)"}},
      {"ReduceProd", {"float", "1.0", "(s) * (v)", "(s) * (t)", "(s)"}},
      {"ReduceL1", {"float", "0.0", "(s) + abs(v)", "(s) + (t)", "(s)"}},
      {"ReduceL2", {"float", "0.0", "(s) + (v) * (v)", "(s) + (t)", "sqrt(s)"}},
      {"ReduceSumSquare", {"float", "0.0", "(s) + (v) * (v)", "(s) + (t)", "(s)"}},
      {"ReduceLogSum", {"float", "0.0", "(s) + (v)", "(s) + (t)", "log(s)"}},
      // The largest element so far, and the sum of exponentials relative to it.
      {"ReduceLogSumExp",
       {"vec2", "vec2(uintBitsToFloat(0xff800000u), 0.0)", "pm_merge_exponentials(s, vec2(v, 1.0))", "pm_merge_exponentials(s, t)",
        "(s).x + log((s).y)"}},
  };
  return folds.at(op);
}

Fold integer_fold(std::string_view op, const IntegerText& text) {
  const std::map<std::string_view, Fold> folds = {
      {"ReduceSum", {text.type, text.type + "(0)", "(s) + (v)", "(s) + (t)", "(s)"}},
      {"ReduceMean", {text.type, text.type + "(0)", "(s) + (v)", "(s) + (t)", "(s) / " + text.type + "(n)"}},
      {"ReduceMax", {text.type, text.lowest, "max(s, v)", "max(s, t)", "(s)"}},
      {"ReduceMin", {text.type, text.highest, "min(s, v)", "min(s, t)", "(s)"}},
      {"ReduceProd", {text.type, text.type + "(1)", "(s) * (v)", "(s) * (t)", "(s)"}},
      {"ReduceL1", {text.type, text.type + "(0)", text.type.starts_with('u') ? "(s) + (v)" : "(s) + abs(v)", "(s) + (t)", "(s)"}},
      {"ReduceSumSquare", {text.type, text.type + "(0)", "(s) + (v) * (v)", "(s) + (t)", "(s)"}},
  };
  const auto found = folds.find(op);
  return found == folds.end() ? Fold{} : found->second;
}

uint64_t accumulator_bytes(const Fold& fold) {
  return fold.accumulator == "vec2" || fold.accumulator.find("64") != std::string::npos ? 8 : 4;
}

// How elements are declared, loaded and stored.
Macros element_macros(const std::string& array, DType dtype) {
  const bool bytes = bits(dtype) == 8, half = is_half_width(dtype);
  const std::string declared = half ? "sfp" : is_float(dtype) ? "float" : bytes ? "uint" : integer_text(dtype).type;
  if (array == "x") {
    const std::string load = half ? "pm_load(x, i)" : bytes ? (dtype == DType::int8 ? "pm_load_i8(x, i)" : "pm_load_u8(x, i)") : "x[i]";
    return {{"X_TYPE", declared}, {"LOAD(i)", load}};
  }
  const std::string store = half              ? "pm_store(y, i, EPILOGUE(v))"
                            : is_float(dtype) ? "y[i] = EPILOGUE(v)"
                            : bytes           ? "pm_store_u8(y, i, v)"
                                              : "y[i] = (v)";
  return {{"Y_TYPE", declared}, {"STORE(i, v)", store}};
}

struct Stage {
  Operand x, y;
  IndexSpace kept, reduced;
  bool first, last;
  int64_t parts, part_size;
  bool cooperate;
};

void add_stage(LowerContext& node, const Fold& fold, const Stage& stage, int64_t count) {
  const DType x = node.input(0).dtype, y = node.output(0).dtype;
  Macros macros = {{"ACCUMULATOR", fold.accumulator}, {"START", fold.start}, {"MERGE(s, t)", fold.merge}};
  const auto append = [&](const Macros& more) { macros.insert(macros.end(), more.begin(), more.end()); };
  append(stage.first ? element_macros("x", x) : Macros{{"X_TYPE", fold.accumulator}, {"LOAD(i)", "x[i]"}});
  append(stage.last ? element_macros("y", y) : Macros{{"Y_TYPE", fold.accumulator}, {"STORE(i, v)", "y[i] = (v)"}});
  append({{"STEP(s, v)", stage.first ? fold.step : "MERGE(s, v)"},
          {"FINISH(s, n)", stage.last ? fold.finish : "(s)"},
          {"EPILOGUE(x)", stage.last ? node.epilogue() : "x"}});
  const bool one_axis = stage.reduced.sizes[0] == 1 && stage.reduced.sizes[1] == 1;
  append({{"ONE_AXIS", one_axis ? "1" : "0"}, {"COOPERATE", stage.cooperate ? "1" : "0"}});
  if (bits(x) == 64) append({{"PM_HAS_INT64", "1"}});
  const DType stored = stage.first && is_half_width(x) ? x : stage.last ? y : DType::float32;
  StepBuilder step(node.kernel("reduce.comp", stored, macros));
  const int64_t results = stage.kept.elements();
  step.bind("x", stage.x).bind("y", stage.y).set("results", results).set("parts", stage.parts).set("part_size", stage.part_size);
  step.set("kept", stage.kept.sizes)
      .set("kept_stride", stage.kept.strides[0])
      .set("reduced", stage.reduced.sizes)
      .set("reduced_stride", stage.reduced.strides[0]);
  step.set("size", stage.reduced.elements()).set("count", count);
  const auto units = static_cast<uint64_t>(results * stage.parts);
  node.add((stage.cooperate ? step.groups(units) : step.threads(units)).build());
}

// Elements that a unit (an invocation or a workgroup) folds: all of them, or fewer where the units would be too few or too slow.
int64_t part_size_of(int64_t results, int64_t size, bool cooperate) {
  const int64_t most = cooperate ? kMostInGroup : kMostInOne, wanted_units = cooperate ? 256 : 64, least = cooperate ? 8 * kGroupSize : 256;
  if (size <= least) return std::max<int64_t>(size, 1);
  return std::clamp(size * results / wanted_units, least, std::min(most, size));
}

std::vector<bool> reduced_axes(const LowerContext& node) {
  const TensorDesc& x = node.input(0);
  std::vector<int64_t> axes = node.attributes->integers("axes");
  if (node.has_input(1)) {
    const HostTensor* host = node.host(1);
    if (!host) throw UnsupportedError("node '" + std::string(node.node) + "': axes that are not known on the host");
    axes = host->as_int64();
  }
  const bool none = axes.empty() && node.attributes->integer("noop_with_empty_axes", 0) != 0;
  std::vector<bool> reduced(x.shape.size(), axes.empty() && !none);
  for (const int64_t axis : axes) reduced[static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)] = true;
  return reduced;
}

}  // namespace

Fold fold_of(const NodeContext& node, std::string_view op, DType dtype) {
  if (is_working_float(dtype)) return float_fold(op);
  Fold fold;
  if (is_integer(dtype) && bits(dtype) != 16 && bits(dtype) >= 8) fold = integer_fold(op, integer_text(dtype));
  if (fold.start.empty())
    throw UnsupportedError("node '" + std::string(node.node) + "': " + std::string(op) + " of " + std::string(name(dtype)));
  if (bits(dtype) == 64 && !node.context->feature("shaderInt64"))
    throw UnsupportedError("node '" + std::string(node.node) + "': " + std::string(op) + " of " + std::string(name(dtype)) +
                           " needs the feature shaderInt64, which the device lacks");
  return fold;
}

void add_fold(LowerContext& node, const Fold& fold, IndexSpace kept, IndexSpace reduced) {
  const int64_t results = kept.elements(), count = reduced.elements();
  Stage stage{node.in(0), node.out(0), std::move(kept), std::move(reduced), true, false, 1, 1, false};
  while (!stage.last) {
    for (IndexSpace* space : {&stage.kept, &stage.reduced}) {
      space->coalesce();
      space->pad_to(kFoldRank, "node '" + std::string(node.node) + "'");
    }
    const int64_t size = stage.reduced.elements();
    stage.cooperate = !node.prefers_lanes() && size >= 32 && results < 32768;
    stage.part_size = part_size_of(results, size, stage.cooperate);
    stage.parts = std::max<int64_t>((size + stage.part_size - 1) / stage.part_size, 1);
    stage.last = stage.parts == 1;
    stage.y = stage.last ? node.out(0) : node.temporary(static_cast<uint64_t>(results * stage.parts) * accumulator_bytes(fold));
    add_stage(node, fold, stage, count);
    stage.x = stage.y;
    stage.kept = {{results}, {{stage.parts}}};
    stage.reduced = {{stage.parts}, {{1}}};
    stage.first = false;
  }
}

void lower_reduce(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (y.elements() == 0) return;
  if (!y.is_packed()) throw UnsupportedError("node '" + std::string(node.node) + "': a reduction into a strided tensor");
  const auto reduced = reduced_axes(node);
  IndexSpace kept_space{{}, {{}}}, reduced_space{{}, {{}}};
  for (size_t axis = 0; axis < reduced.size(); ++axis) {
    IndexSpace& space = reduced[axis] ? reduced_space : kept_space;
    space.sizes.push_back(x.shape[axis]);
    space.strides[0].push_back(x.strides[axis]);
  }
  add_fold(node, fold_of(node, node.row->name, x.dtype), std::move(kept_space), std::move(reduced_space));
}

}  // namespace pumice
