// Pooling.
#include "core/error.h"
#include "operators/families.h"
#include "operators/operator_table.h"
#include "operators/planes.h"
#include "operators/reduce.h"
#include "operators/window_geometry.h"

namespace pumice {
namespace {

struct Window {
  int64_t kernel_h = 1, kernel_w = 1, step_h = 1, step_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_h = 0, pad_w = 0, pad_end_h = 0, pad_end_w = 0;
};

int64_t first_of(const std::vector<int64_t>& values, int64_t missing) {
  return values.size() == 1 ? missing : values[0];
}

Window window_of(const WindowGeometry& geometry) {
  return {first_of(geometry.kernel, 1),    geometry.kernel.back(),    first_of(geometry.strides, 1),    geometry.strides.back(),
          first_of(geometry.dilations, 1), geometry.dilations.back(), first_of(geometry.pads_begin, 0), geometry.pads_begin.back(),
          first_of(geometry.pads_end, 0),  geometry.pads_end.back()};
}

void add_pool(LowerContext& node, bool average, const Window& window, bool count_padding) {
  const Planes x = planes_of(node, node.input(0)), y = planes_of(node, node.output(0));
  const bool vec4 = x.has_vector_channels(4) && y.has_vector_channels(4);
  const int64_t unit = vec4 ? 4 : 1, elements = y.elements() / unit;
  if (elements == 0) return;
  node.check_loops(window.kernel_h * (1 + window.kernel_w));
  const auto kernel = node.kernel("pool.comp", node.input(0).dtype,
                                  {{"MODE", average ? "1" : "0"}, {"VEC4", vec4 ? "1" : "0"}, {"EPILOGUE(x)", node.epilogue()}});
  StepBuilder step(kernel);
  step.bind("x", node.in(0)).bind("y", node.out(0)).set("elements", elements).set("channels", y.c / unit);
  step.set("out_h", y.h)
      .set("out_w", y.w)
      .set("in_h", x.h)
      .set("in_w", x.w)
      .set("window_h", window.kernel_h)
      .set("window_w", window.kernel_w);
  step.set("step_h", window.step_h).set("step_w", window.step_w).set("dilation_h", window.dilation_h).set("dilation_w", window.dilation_w);
  step.set("pad_h", window.pad_h).set("pad_w", window.pad_w);
  step.set("padded_h", x.h + window.pad_h + window.pad_end_h).set("padded_w", x.w + window.pad_w + window.pad_end_w);
  set_strides(step, 'x', x);
  set_strides(step, 'y', y);
  step.set("channels_fastest", y.sc == 1 && y.c > 1 ? 1 : 0)
      .set("count_padding", count_padding ? 1 : 0)
      .threads(static_cast<uint64_t>(elements));
  node.add(step.build());
}

}  // namespace

void lower_pool(LowerContext& node) {
  if (node.has_output(1)) throw UnsupportedError("node '" + std::string(node.node) + "': the Indices output of MaxPool");
  if (node.input(0).rank() != 3 && node.input(0).rank() != 4)
    throw UnsupportedError("node '" + std::string(node.node) + "': pooling over " + std::to_string(node.input(0).rank() - 2) +
                           " spatial axes; 1 and 2 are supported");
  const Window window = window_of(pool_geometry(*node.attributes, node.node, node.input(0).shape));
  add_pool(node, node.row->name == "AveragePool", window, node.attributes->integer("count_include_pad", 0) != 0);
}

void lower_global_pool(LowerContext& node) {
  const Planes x = planes_of(node, node.input(0)), y = planes_of(node, node.output(0));
  constexpr int64_t kFewest = 32, kMostInLanes = 16384;  // elements of a plane that are worth a workgroup; that one invocation may walk
  if (x.h * x.w > (node.prefers_lanes() ? kMostInLanes : kFewest) && node.output(0).elements() > 0) {
    const bool average = node.row->name == "GlobalAveragePool";
    return add_fold(node, fold_of(node, average ? "ReduceMean" : "ReduceMax", node.input(0).dtype),
                    {{x.n, x.c}, {{x.sn, x.sc}, {y.sn, y.sc}}}, {{x.h, x.w}, {{x.sh, x.sw}}});
  }
  add_pool(node, node.row->name == "GlobalAveragePool", {.kernel_h = x.h, .kernel_w = x.w}, false);
}

}  // namespace pumice
