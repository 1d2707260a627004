// GridSample: interpolates at coordinates that are computed on the device.
#include "operators/common/strided_copy.h"
#include "operators/resize/lowerings.h"
#include "operators/table/operator_table.h"

namespace pumice {

void lower_grid_sample(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  const std::string mode = node.attributes->text("mode"), padding = node.attributes->text("padding_mode");
  const size_t axes = x.shape.size() - 2;
  const Macros macros = {{"AXES", std::to_string(axes)},
                         {"TAPS", mode == "nearest"  ? "1"
                                  : mode == "linear" ? "2"
                                                     : "4"},
                         {"PADDING", padding == "zeros"    ? "0"
                                     : padding == "border" ? "1"
                                                           : "2"},
                         {"ALIGN", node.attributes->integer("align_corners") != 0 ? "1" : "0"}};
  const auto size = [&](size_t axis) { return axis < axes ? x.shape[2 + axis] : int64_t{1}; };
  add_contiguous_float_output(node, 0, "grid_sample.comp", macros, [&](StepBuilder& step) {
    step.bind("x", get_contiguous_input(node, 0)).bind("grid", get_contiguous_input(node, 1));
    step.set("channels", x.shape[1]).set("points", packed_strides(y.shape)[1]);
    step.set("size_0", size(0)).set("size_1", size(1)).set("size_2", size(2));
  });
}

}  // namespace pumice
