// Eager execution: compiles an operator unless its plan is cached, runs it, and waits for the result.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device/tensor.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

// Runs the operator returned by `make_operator` on these tensors. `key` must identify the operator, its attributes and its tensor
// descriptions: each context caches recently used plans by key. `interrupted`: see pumice::upload.
void run_eagerly(const std::string& key, const std::function<Operator()>& make_operator, const std::vector<Tensor>& inputs,
                 const Tensor& output, const InterruptCallback& interrupted);

// Returns the tensor, or a copy if its offset is not aligned for operators.
Tensor ensure_aligned(const Tensor& source, const InterruptCallback& interrupted);

}  // namespace pumice
