// Rules for operators, initializers, binding tables, kernels and packed weights, with the ids that errors use.
#pragma once

#include <span>
#include <string_view>

namespace pumice {

struct RuleText {
  std::string_view id, text;
};

// Returns all rules, ordered by family: counts and kinds (C), initializers (I), owned tensors (O), memory (M), ranges (R), descriptions
// (T), hazards (H), temporary and persistent resources (P), lifetime (L), graphs (G), kernel and program arguments (K), the dv interface
// (D).
std::span<const RuleText> list_binding_rules();

}  // namespace pumice
