#include "graph/control_flow/control_flow_program.h"

#include <algorithm>

namespace pumice {

bool ControlFlowProgram::checks_indices() const {
  return std::ranges::any_of(routines, [](const Routine& routine) {
    return std::ranges::any_of(routine.steps, [](const RoutineStep& step) { return step.region && step.region->graph().index_checks > 0; });
  });
}

}  // namespace pumice
