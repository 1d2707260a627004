// Faults that are put into plans on purpose, for tests of what finds them.
#pragma once

#include <string_view>

namespace pumice {

// Whether PUMICE_FAULT names this fault, for the whole process: "stale" (memory of temporary tensors is given to others too early), "order"
// (a step runs before the one whose result it reads, as where a barrier is missing), "race" (the same in recordings alone: a copy after
// each step hides it), "in place" (a convolution writes onto what it reads),
// "steps" (those of the last shapes run), "push" (their push constants are used), "fold" (a grid's second row of workgroups does not run),
// "reversed" (the steps of a wave run the other way round, which shows whether one of them needs another; results stay as they are).
// Throws Error for another name.
bool is_injected(std::string_view fault);

}  // namespace pumice
