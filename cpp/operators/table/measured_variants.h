// Kernel variants measured on a device, which replace the engine's default choices.
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

// Measured variants for compiling a program. Keys and values are names that only lowering interprets.
struct MeasuredVariants {
  std::map<std::string, std::string, std::less<>> fastest;  // fastest variant, by kind of step
  bool lists_all = false;                                   // record for every step all variants that it supports
};

// The variant selected for a step. Set if MeasuredVariants has an entry for the step's kind, or lists all variants.
struct StepChoice {
  std::string kind;                        // kind of the step: its computation, dtypes and size classes
  std::string default_variant;             // the engine's default choice
  std::string selected;                    // the variant that the step runs
  std::string rejected = {};               // a measured variant that this step cannot run; "" if none
  std::vector<std::string> variants = {};  // all supported variants, if requested
  bool spills = false;                     // `rejected` spills registers

  // Returns a text for reports if the step runs or rejects a measured variant; else "".
  std::string note() const {
    if (!rejected.empty()) return "cannot take " + rejected + (spills ? ", which spills" : "");
    return selected != default_variant ? selected + " for " + default_variant : "";
  }
};

// Returns the choice for a step of this kind, which can run `default_variant` and the `alternatives` that are not in `spilled`. Returns
// null if `measured` has no entry for the kind. `lists_all` does not cover these kinds: a variant may consist of several steps, whose times
// cannot be compared one by one.
std::shared_ptr<const StepChoice> find_tuned_choice(const MeasuredVariants* measured, std::string_view kind,
                                                    std::string_view default_variant, std::span<const std::string_view> alternatives,
                                                    const VariantNames* spilled = nullptr);

// Class of a size: the size rounded up to a power of two, and its largest power-of-two divisor up to 256. Same classes as kernel.tune().
std::string format_size_class(int64_t size);

}  // namespace pumice
