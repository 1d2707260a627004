// Fault injection into plans and the driver's compiler, to test the checks that should detect such faults.
#pragma once

#include <string_view>

namespace pumice {

// Whether PUMICE_FAULT selects this fault (for the whole process):
//   "stale": memory of temporary tensors is reused too early
//   "order": a step runs before its producer, as if a barrier were missing
//   "race": like "order", but in recordings only; a copy after each step hides it
//   "in place": a convolution overwrites its own input
//   "steps": runs the steps of the previous shapes
//   "push": uses the push constants of the previous shapes
//   "fold": skips the second row of workgroups of a folded grid
//   "compiler crash", "compiler hang", "compiler reject": the driver's compiler fails on kernels named "doomed"
//   "reversed": reverses the steps of each wave, which exposes dependences between them; results are unchanged if there are none
// Throws Error if PUMICE_FAULT is another name.
bool is_fault_injected(std::string_view fault);

}  // namespace pumice
