#include "bindings.h"
#include "graph/region/plan_report.h"

namespace pumice {
namespace {

std::string_view place_name(Place place) {
  constexpr std::string_view names[] = {"none", "input", "output", "temporary", "persistent", "host"};
  return names[static_cast<size_t>(place)];
}

}  // namespace

Record step_record(const StepReport& step) {
  py::list operands;
  for (const auto& operand : step.operands) {
    py::dict one;
    one["name"] = operand.name, one["value"] = operand.value, one["place"] = place_name(operand.place), one["index"] = operand.index;
    one["begin"] = operand.begin, one["end"] = operand.end, one["read"] = operand.read, one["write"] = operand.write;
    operands.append(one);
  }
  Record result;
  result["label"] = step.label, result["kernel"] = step.kernel, result["wave"] = step.wave, result["barrier"] = step.barrier,
  result["operands"] = operands, result["groups"] = step.groups, result["folded"] = step.folded, result["additions"] = step.additions;
  if (step.choice) {
    py::dict choice;
    choice["kind"] = step.choice->kind, choice["own"] = step.choice->own, choice["taken"] = step.choice->taken;
    choice["refused"] = step.choice->refused, choice["variants"] = step.choice->variants, choice["spills"] = step.choice->spills;
    result["choice"] = choice;
  }
  return result;
}

}  // namespace pumice
