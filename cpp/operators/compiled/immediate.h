// Runs operators on whole tensors immediately: compiles them unless a plan is cached, records and waits.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device/tensor.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

// Runs the operator returned by `make_operator` on these tensors. `key` must identify the operator and its descriptions. Each context
// caches recently used plans. `interrupted` as in pumice::upload.
void run_immediately(const std::string& key, const std::function<Operator()>& make_operator, const std::vector<Tensor>& inputs,
                     const Tensor& output, const Interrupted& interrupted);

// Returns the tensor, or a copy if operators cannot read it at its offset.
Tensor make_aligned(const Tensor& source, const Interrupted& interrupted);

}  // namespace pumice
