// The error for a rejected call or command of the dv interface.
#pragma once

#include <cerrno>
#include <string>

#include "core/error.h"

namespace pumice::dv {

inline constexpr int kRefused = -1;  // the code of most rejections; the others have errno codes

// Rules: D4, valid calls and command fields; D5, limits of the vendor's hardware (strict lists).
class Refusal : public BindingError {
 public:
  Refusal(const std::string& field, const std::string& wanted, const std::string& found, int number = kRefused,
          const std::string& rule_id = "D4")
      : BindingError(rule_id, field, "", wanted, found), code(number) {}

  int code;  // return code in the C interface
};

}  // namespace pumice::dv
