// Numbers of Python as a kernel's arguments.
#pragma once

#include <string>

#include "bindings.h"
#include "dispatch/kernel/kernel_arguments.h"

namespace pumice {

[[noreturn]] void refuse_argument(const std::string& name, const py::handle& value);
// Complex numbers and durations convert to numbers, but are none.
bool is_other_number(const py::handle& value);
bool is_sequence(const py::handle& value);
// Refuses nesting without an end: a list may hold itself.
void check_depth(const std::string& name, size_t depth);
// The numbers of a vector, matrix or array, in the order of memory, with the shape that they were given in.
void add_numbers(Numbers& numbers, const std::string& name, const py::handle& value, size_t axis = 0);

}  // namespace pumice
