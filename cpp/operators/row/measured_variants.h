// Variants of kernels that were measured on a device, which steps take in place of the engine's own choice.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "operators/row/spilled_variants.h"

namespace pumice {

// MeasuredVariants is what a program is told of variants when it is compiled. Both sides are names; lowering alone knows what they mean.
struct MeasuredVariants {
  std::map<std::string, std::string, std::less<>> taken;  // by kind of step: the variant that was quickest
  bool lists = false;                                     // every step tells all variants that it can take
};

// The choice of one step for which MeasuredVariants has a variant, or which lists them.
struct StepChoice {
  std::string kind;                        // of the step: what it computes, of which elements, and its sizes in classes
  std::string own;                         // the engine's own choice
  std::string taken;                       // the variant that the step runs
  std::string refused = {};                // a measured variant that this step cannot take; "" where there is none
  std::vector<std::string> variants = {};  // all that it can take, where that was asked for
  bool spills = false;                     // whether that is why it was refused: its kernel spills

  // The words of a report about a step that runs a measured variant, or that cannot take it; "" for other steps.
  std::string note() const {
    if (!refused.empty()) return "cannot take " + refused + (spills ? ", which spills" : "");
    return taken != own ? taken + " for " + own : "";
  }
};

// The variant that a step of this kind, which can take `own` and those of `others` that are not `spilled`, was told to take; none where it
// was told nothing. A plan that lists variants leaves such kinds out: several steps may take their place, whose times are not compared one
// by one.
std::shared_ptr<const StepChoice> told_choice(const MeasuredVariants* measured, std::string_view kind, std::string_view own,
                                              std::span<const std::string_view> others, const VariantNames* spilled = nullptr);

// The class of a size: the power of two that it reaches at most, and the largest, up to 256, that divides it, as kernel.tune() has them.
std::string size_class(int64_t size);

}  // namespace pumice
