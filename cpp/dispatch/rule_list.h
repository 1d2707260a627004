// The rules of operators, initializers, binding tables, kernels and packed weights by their ids, as errors name them.
#pragma once

#include <span>
#include <string_view>

namespace pumice {

struct Rule {
  std::string_view id, text;
};

// All rules in the order of their families: counts and kinds (C), initializers (I), owned tensors (O), memory (M), ranges (R), descriptions
// (T), hazards (H), temporary and persistent resources (P), lifetime (L), graphs (G), arguments of kernels and programs (K), the dv
// interface (D).
std::span<const Rule> binding_rules();

}  // namespace pumice
