// Kernel variants measured on a device, which replace the engine's own choices.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "operators/table/spilled_variants.h"

namespace pumice {

// Variants given to a program at compile time. Keys and values are names that only lowering interprets.
struct MeasuredVariants {
  std::map<std::string, std::string, std::less<>> taken;  // fastest variant, by kind of step
  bool lists = false;                                     // record for every step all variants that it supports
};

// The variant choice of a step for which MeasuredVariants has an entry, or lists all variants.
struct StepChoice {
  std::string kind;                        // kind of the step: its computation, dtypes and size classes
  std::string own;                         // the engine's own choice
  std::string taken;                       // the variant that the step runs
  std::string refused = {};                // a measured variant that this step cannot run; "" if none
  std::vector<std::string> variants = {};  // all supported variants, if requested
  bool spills = false;                     // rejected because its kernel spills

  // Report text for a step that runs a measured variant or cannot run it; "" for other steps.
  std::string note() const {
    if (!refused.empty()) return "cannot take " + refused + (spills ? ", which spills" : "");
    return taken != own ? taken + " for " + own : "";
  }
};

// Returns the measured variant for a step of this kind, which supports `own` and the `others` that are not in `spilled`; null if none was
// given. A plan that lists variants omits these kinds: a variant may consist of several steps, whose times cannot be compared one by one.
std::shared_ptr<const StepChoice> find_tuned_choice(const MeasuredVariants* measured, std::string_view kind, std::string_view own,
                                                    std::span<const std::string_view> others, const VariantNames* spilled = nullptr);

// Class of a size: the size rounded up to a power of two, and its largest power-of-two divisor up to 256. Same classes as kernel.tune().
std::string size_class(int64_t size);

}  // namespace pumice
