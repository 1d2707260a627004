// Operators on whole tensors, run at once: compiled where no plan of theirs is kept, recorded and waited for.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device/tensor.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

// Runs the operator that `describe` gives on tensors of its inputs' and its output's descriptions. `key` tells it from every other one of
// such descriptions. A context keeps the plans that it used last. `interrupted` as in pumice::upload.
void run_at_once(const std::string& key, const std::function<Operator()>& describe, const std::vector<Tensor>& inputs, const Tensor& output,
                 const Interrupted& interrupted);

// The same elements at an offset where an operator reads them: the tensor itself, or a copy.
Tensor aligned(const Tensor& source, const Interrupted& interrupted);

}  // namespace pumice
