// 64-bit integers for devices without shaderInt64.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace pumice {

struct WordPairs {
  std::vector<uint32_t> spirv;
  std::set<std::string> lacks;  // uses of such integers that pairs of words cannot stand for; empty where all is well
};

// The module with pairs of words (uvec2, the low one first) in place of 64-bit integers, wherever they are: in memory both are the same.
// Results are those of such integers. `constants`: the values of specialization constants by their ids, of which those of 64 bits become
// constants.
WordPairs with_word_pairs(std::span<const uint32_t> spirv, const std::map<uint32_t, uint64_t>& constants);

}  // namespace pumice
