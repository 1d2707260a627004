// Converts Python numbers to kernel arguments.
#pragma once

#include <string>

#include "bindings.h"
#include "dispatch/kernel/kernel_arguments.h"

namespace pumice {

[[noreturn]] void throw_argument_error(const std::string& name, const py::handle& value);
// Returns whether the value is a complex number or a duration, which convert to float but are not valid.
bool is_unsupported_number(const py::handle& value);
bool is_sequence(const py::handle& value);
// Throws BindingError if nesting is too deep, since a list may contain itself.
void check_nesting_depth(const std::string& name, size_t depth);
// Appends the numbers of a vector, matrix or array in memory order, with the shape of the nesting.
void append_numbers(PushConstantValues& numbers, const std::string& name, const py::handle& value, size_t axis = 0);

}  // namespace pumice
