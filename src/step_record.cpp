#include "bindings.h"
#include "graph/region/plan_report.h"

namespace pumice {
namespace {

std::string_view memory_kind_name(MemoryKind kind) {
  constexpr std::string_view names[] = {"none", "input", "output", "temporary", "persistent", "host"};
  return names[static_cast<size_t>(kind)];
}

}  // namespace

Record step_record(const StepReport& step) {
  py::list operands;
  for (const auto& operand : step.operands) {
    py::dict operand_record;
    operand_record["name"] = operand.name, operand_record["value"] = operand.value,
    operand_record["place"] = memory_kind_name(operand.place), operand_record["index"] = operand.index;
    operand_record["begin"] = operand.begin, operand_record["end"] = operand.end, operand_record["read"] = operand.read,
    operand_record["write"] = operand.write;
    operands.append(operand_record);
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
