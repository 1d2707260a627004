// Lowers NMS and soft-NMS, which select boxes one at a time, by descending score.
#include <algorithm>

#include "core/rounding.h"
#include "operators/common/strided_copy.h"
#include "operators/table/operator_table.h"
#include "operators/window/lowerings.h"

namespace pumice {
namespace {

constexpr int64_t kGroupThreads = 64;         // workgroup size of nms.comp
constexpr int64_t kMaxIterations = 60 << 10;  // maximum number of loop iterations per invocation; see NodeContext::check_loop_limit

double get_host_scalar(const LowerContext& node, size_t i, double fallback) {
  const HostTensor* host = node.host_tensor(i);
  return host ? host->as_double().at(0) : fallback;
}

}  // namespace

void lower_nms(LowerContext& node) {
  const TensorDesc &boxes = node.input(0), &scores = node.input(1), &y = node.output(0);
  if (y.elements() == 0) return;
  const int64_t rows = scores.shape[0] * scores.shape[1], count = scores.shape[2], max_boxes = y.shape[2];
  const int64_t steps = 1 + ceil_div(max_boxes, kGroupThreads);  // iterations per box
  node.check_loop_limit(2 * steps);
  const int64_t boxes_per_dispatch = std::max<int64_t>((kMaxIterations - steps) / steps, 1);
  const auto kernel = node.kernel("nms.comp", boxes.dtype, {{"CENTER", node.attributes->integer("center_point_box") != 0 ? "1" : "0"}});
  const Operand num_selected = node.add_temporary(static_cast<uint64_t>(rows) * sizeof(uint32_t));
  const Operand boxes_in = get_contiguous_input(node, 0), scores_in = get_contiguous_input(node, 1),
                order_in = get_contiguous_input(node, 2);
  for (int64_t first = 0; first < count; first += boxes_per_dispatch) {
    StepBuilder step(kernel);
    step.bind("boxes", boxes_in)
        .bind("scores", scores_in)
        .bind("order", order_in)
        .bind("y", node.output_operand(0))
        .bind("num_selected", num_selected);
    step.set("rows", rows).set("classes", scores.shape[1]).set("count", count).set("max_boxes", max_boxes);
    step.set("first", first).set("end", std::min(first + boxes_per_dispatch, count)).set("has_score_threshold", node.has_input(5) ? 1 : 0);
    step.set("score_threshold", get_host_scalar(node, 5, 0)).set("iou_threshold", get_host_scalar(node, 4, 0));
    node.add(step.set_workgroups(static_cast<uint64_t>(rows)).build());
  }
}

void lower_soft_nms(LowerContext& node) {
  const TensorDesc& scores = node.input(1);
  const Attributes& node_attributes = *node.attributes;
  const int64_t rows = scores.shape[0], num_classes = scores.shape[1] - 1, max_boxes = node_attributes.integer("most"),
                slots = rows * num_classes;
  if (slots == 0) return;
  const int64_t rounds = max_boxes < 0 ? rows : std::min(max_boxes, rows), iterations_per_pass = ceil_div(rows, kGroupThreads);
  // Loop iterations: `before` only in the first dispatch, `steps` in every round.
  const int64_t before = 2 * iterations_per_pass, steps = 1 + 4 * iterations_per_pass;
  node.check_loop_limit(before + 2 * steps);
  const int64_t rounds_per_dispatch = std::max<int64_t>((kMaxIterations - before - steps) / steps, 1);
  const std::string method = node_attributes.text("method");
  const Macros macros = {{"METHOD", method == "gaussian" ? "2" : method == "linear" ? "1" : "0"}};
  const auto kernel = node.kernel("soft_nms.comp", scores.dtype, macros);
  const Operand counts = node.add_temporary(static_cast<uint64_t>(2 * slots) * sizeof(uint32_t));
  const Operand holes = node.add_temporary(static_cast<uint64_t>(slots) * sizeof(uint32_t));
  const Operand boxes_in = get_contiguous_input(node, 0), scores_in = get_contiguous_input(node, 1),
                images_in = get_contiguous_input(node, 2);
  for (int64_t first = 0; first == 0 || first < rounds; first += rounds_per_dispatch) {
    StepBuilder step(kernel);
    step.bind("boxes", boxes_in).bind("scores", scores_in).bind("images", images_in).bind("counts", counts).bind("holes", holes);
    step.bind("y", node.output_operand(0))
        .bind("decayed", node.output_operand(1))
        .bind("image_first", node.output_operand(2))
        .bind("class_first", node.output_operand(3));
    step.set("rows", rows)
        .set("num_classes", num_classes)
        .set("rounds", rounds)
        .set("first", first)
        .set("end", std::min(first + rounds_per_dispatch, rounds));
    for (const char* name : {"threshold", "least", "overlap", "sigma"}) step.set(name, node_attributes.real(name));
    node.add(step.set_workgroups(static_cast<uint64_t>(slots)).build());
  }
}

}  // namespace pumice
