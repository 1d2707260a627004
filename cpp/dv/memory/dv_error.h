// The error for a rejected call or command of the dv interface.
#pragma once

#include <cerrno>
#include <string>

#include "core/error.h"

namespace pumice::dv {

inline constexpr int kRejected = -1;  // return code of most rejections; others return an errno code

// Rules: D4, valid calls and command fields; D5, limits of the vendor's hardware (strict lists).
class DvError : public BindingError {
 public:
  DvError(const std::string& field, const std::string& requirement, const std::string& value, int number = kRejected,
          const std::string& rule_id = "D4")
      : BindingError(rule_id, field, "", requirement, value), code(number) {}

  int code;  // return code in the C interface
};

}  // namespace pumice::dv
