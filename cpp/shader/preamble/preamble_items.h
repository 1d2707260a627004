// A text of GLSL as its top-level items, macros and functions, of which a shader gets those that it uses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pumice {

// The words of a text: names and keywords, also those in comments and directives.
std::vector<std::string_view> words_of(std::string_view text);

// The items of `catalogue` that `words` name, and those that these name in turn, in the order of the catalogue. An item is a #define with
// its continued lines, or a function, structure or variable. Items of one name (overloads) are taken together.
std::string used_items(std::string_view catalogue, const std::vector<std::string_view>& words);

}  // namespace pumice
