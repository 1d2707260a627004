// A refused call or command of the dv interface.
#pragma once

#include <cerrno>
#include <string>

#include "core/error.h"

namespace pumice::dv {

inline constexpr int kRefused = -1;  // the number of most refusals; others have one of errno's

// Rules: D4, what a call or a field of a command may be; D5, what the vendor's hardware takes (lists that are strict).
class Refusal : public BindingError {
 public:
  Refusal(const std::string& field, const std::string& wanted, const std::string& found, int number = kRefused,
          const std::string& rule_id = "D4")
      : BindingError(rule_id, field, "", wanted, found), code(number) {}

  int code;  // the number that the C interface returns
};

}  // namespace pumice::dv
