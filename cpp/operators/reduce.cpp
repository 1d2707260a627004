// Reductions over axes, and layer normalisation.
#include <algorithm>
#include <map>

#include "core/error.h"
#include "operators/families.h"
#include "operators/operator_table.h"
#include "operators/strided.h"

namespace pumice {
namespace {

// How a reduction folds floats: START, STEP over values, MERGE of two parts, FINISH of the sum of n values.
struct Fold {
  const char *start, *step, *merge, *finish;
};

const Fold& fold_of(std::string_view op) {
  static const std::map<std::string_view, Fold> folds = {
      {"ReduceSum", {"0.0", "(s) + (v)", "(s) + (t)", "(s)"}},
      {"ReduceMean", {"0.0", "(s) + (v)", "(s) + (t)", "(s) / (n)"}},
      {"ReduceMax", {"uintBitsToFloat(0xff800000u)", "pm_max(s, v)", "pm_max(s, t)", "(s)"}},
      {"ReduceMin", {"uintBitsToFloat(0x7f800000u)", "pm_min(s, v)", "pm_min(s, t)", "(s)"}},
      {"ReduceProd", {"1.0", "(s) * (v)", "(s) * (t)", "(s)"}},
      {"ReduceL1", {"0.0", "(s) + abs(v)", "(s) + (t)", "(s)"}},
      {"ReduceL2", {"0.0", "(s) + (v) * (v)", "(s) + (t)", "sqrt(s)"}},
      {"ReduceSumSquare", {"0.0", "(s) + (v) * (v)", "(s) + (t)", "(s)"}},
      {"ReduceLogSum", {"0.0", "(s) + (v)", "(s) + (t)", "log(s)"}},
      {"ReduceLogSumExp", {"0.0", "(s) + exp(v)", "(s) + (t)", "log(s)"}},
  };
  return folds.at(op);
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

void lower_reduce(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (y.elements() == 0) return;
  if (!is_float(x.dtype)) throw UnsupportedError("node '" + std::string(node.node) + "': " + std::string(node.row->name) + " of " + std::string(name(x.dtype)));
  if (!y.is_packed()) throw UnsupportedError("node '" + std::string(node.node) + "': a reduction into a strided tensor");
  const auto reduced = reduced_axes(node);
  IndexSpace kept_space{{}, {{}}}, reduced_space{{}, {{}}};
  for (size_t axis = 0; axis < reduced.size(); ++axis) {
    IndexSpace& space = reduced[axis] ? reduced_space : kept_space;
    space.sizes.push_back(x.shape[axis]);
    space.strides[0].push_back(x.strides[axis]);
  }
  for (auto* space : {&kept_space, &reduced_space}) {
    space->coalesce();
    space->pad_to(3, "node '" + std::string(node.node) + "'");
    if (space == &reduced_space) node.check_loops(space->elements() + space->elements() / 4096 + space->sizes[0] * (1 + space->sizes[1]));
  }
  const Fold& fold = fold_of(node.row->name);
  const Macros macros = {{"START", fold.start}, {"STEP(s, v)", fold.step}, {"MERGE(s, t)", fold.merge}, {"FINISH(s, n)", fold.finish}, {"EPILOGUE(x)", node.epilogue()}};
  StepBuilder step(node.kernel("reduce.comp", x.dtype, macros));
  step.bind("x", node.in(0)).bind("y", node.out(0)).set("results", y.elements());
  step.set("kept", kept_space.sizes).set("kept_stride", kept_space.strides[0]).set("reduced", reduced_space.sizes).set("reduced_stride", reduced_space.strides[0]);
  node.add(step.threads(static_cast<uint64_t>(y.elements())).build());
}

}  // namespace pumice
